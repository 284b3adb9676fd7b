"""The work of each verb on a small collection, as bytes; and an executor that does shards as other processes would."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

import foils
from fakes import HashingEncoder
from foils.data import Collection, Negatives
from foils.data.collection import DocumentTexts
from foils.encode import Kind, VectorStore
from foils.mining import DenseRetriever, Miner, RandomRetriever
from foils.rating import BiEncoderJudge
from foils.runtime.parallel import executing
from foils.scoring import ScoreSettings, score_sources

QUERIES, DOCUMENTS = 160, 240
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]


def world(seed: int = 0) -> Collection:
    """Random words; each query has one positive."""
    rng = np.random.default_rng(seed)
    documents = {f"d{i}": " ".join(rng.choice(WORDS, rng.integers(3, 30))) for i in range(DOCUMENTS)}
    queries = {f"q{i}": " ".join(rng.choice(WORDS, rng.integers(2, 6))) for i in range(QUERIES)}
    qrels = {"train": {key: {f"d{(7 * i) % DOCUMENTS}": 1} for i, key in enumerate(queries)}}
    return Collection.from_dicts("world", documents, queries, qrels)


def cut_small(patch: Any) -> None:
    """Cut the work in many small shards."""
    patch.setattr("foils.encode.vectors.BLOCK", 16)
    patch.setattr("foils.encode.vectors.SLICE", 64)
    patch.setattr("foils.mining.candidates.QUERIES", 32)
    patch.setattr("foils.runtime.parallel.TOGETHER", 3)
    patch.setattr("foils.rating.estimators._CELLS", 300)


def embedded(folder: Path, encoder: Any = None) -> dict[str, bytes]:
    """What embedding leaves: what is kept, and the vectors in order."""
    collection, encoder = world(), encoder or HashingEncoder()
    found = VectorStore(folder / "vectors").embed(encoder, DocumentTexts(collection), "document")
    return files(folder) | {"vectors": found.take(slice(None)).tobytes()}


def mined(folder: Path) -> dict[str, bytes]:
    """Dense negatives, those of one block of queries among them."""
    collection, retriever = dense(folder)
    few = Collection("few", collection.documents, collection.queries, {"train": collection.qrels["train"][:20]}, "few")
    return {
        "all": table(Miner(collection, retriever, top=5).mined("train")),
        "few": table(Miner(few, retriever, top=5).mined("train")),
    }


def scored(folder: Path) -> dict[str, bytes]:
    """The scores of two sources, their hybrid and the control."""
    collection, retriever = dense(folder)
    sources = {
        "dense": Miner(collection, retriever, top=9).mined("train"),
        "random": Miner(collection, RandomRetriever(collection), top=9).mined("train"),
    }
    settings, store = ScoreSettings(regularization=0.1), VectorStore(folder / "vectors")
    scores = score_sources(collection, sources, HashingEncoder(), store, settings, replicates=20)
    return {"json": json.dumps(scores.to_json()).encode()}


def rated(folder: Path) -> dict[str, bytes]:
    """Ratings by the vectors of a store."""
    collection, retriever = dense(folder)
    negatives = Miner(collection, retriever, top=5).mined("train")
    judge = BiEncoderJudge(HashingEncoder(), store=VectorStore(folder / "vectors"))
    found = foils.rate(collection, negatives, judge=judge, degree=4, accept_judge=True)
    return files(folder) | {"rated": table(found)}


WORK: dict[str, Callable[[Path], dict[str, bytes]]] = {
    "embed": embedded,
    "mine": mined,
    "score": scored,
    "rate": rated,
}


def dense(folder: Path) -> tuple[Collection, DenseRetriever]:
    collection, encoder, store = world(), HashingEncoder(), VectorStore(folder / "vectors")
    queries = store.embed(encoder, collection.query_texts(np.arange(QUERIES)), "query")
    return collection, DenseRetriever(queries, store.embed(encoder, DocumentTexts(collection), "document"))


def files(folder: Path) -> dict[str, bytes]:
    """Every file under the folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def table(negatives: Negatives) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, negatives.table.schema) as out:
        out.write_table(negatives.table.combine_chunks())
    return sink.getvalue().to_pybytes()


class Elsewhere:
    """Does shards as other processes would: on copies of work and item, the later ones first, and each one twice.

    Attributes:
        maps: how many shards each map had.
    """

    def __init__(self) -> None:
        self.maps: list[int] = []

    def __call__(self, work: Callable[[Any], Any], items: Iterable[Any], *, model: bool = False) -> Iterator[Any]:
        sent, source = cloudpickle.dumps(work), iter(items)
        self.maps.append(0)
        at = len(self.maps) - 1
        while group := list(islice(source, 5)):
            self.maps[at] += len(group)
            with executing(None):
                twice = [[copied(cloudpickle.loads(sent)(copied(item))) for _ in range(2)] for item in reversed(group)]
            yield from (second for _, second in reversed(twice))


def copied(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


@contextmanager
def noted(notes: Path, seconds: float) -> Iterator[None]:
    """Take one's time, and leave notes: on which machine and in which process something began, and that it ended."""
    import ray

    name = f"{time.time_ns()}-{ray.get_runtime_context().get_node_id()}"
    (notes / f"{name}.begun").write_text(str(os.getpid()))
    time.sleep(seconds)
    yield
    (notes / f"{name}.ended").touch()


class WatchedEncoder(HashingEncoder):
    """Takes its time, and leaves notes of each call."""

    def __init__(self, notes: Path, seconds: float) -> None:
        super().__init__()
        self.notes, self.seconds = notes, seconds

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        with noted(self.notes, self.seconds):
            return super().encode(texts, kind)


class WatchedRetriever(RandomRetriever):
    """Takes its time, and leaves notes of each search."""

    def __init__(self, collection: Collection, notes: Path, seconds: float) -> None:
        super().__init__(collection)
        self.notes, self.seconds = notes, seconds

    def search(self, query_rows: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        with noted(self.notes, self.seconds):
            return super().search(query_rows, depth)
