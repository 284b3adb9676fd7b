"""Collections whose positives are truly hidden: mined, judged, and decided for; the share of a table that they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data import Collection, Negatives, Recapture
from foils.data.labels import Labels
from foils.deciding import BeliefSettings, Decision, decide
from foils.encode import Vectors, VectorStore
from foils.mining import DenseRetriever, Miner, RandomRetriever
from foils.mining.rules import PositiveScores, Uniform

QUERIES, DOCUMENTS, D = 500, 4_000, 16


@dataclass(frozen=True)
class World:
    """A collection whose relevant documents are labelled by a coin, and what is relevant without a label."""

    collection: Collection
    queries: Vectors
    documents: Vectors
    hidden: set[tuple[str, str]]

    @property
    def unlabelled(self) -> float:
        """o: relevant documents without a label for each labelled one, over the queries that have one."""
        return len(self.hidden) / len(self.collection.known_positives.doc_rows)

    def dense(self) -> DenseRetriever:
        return DenseRetriever(self.queries, self.documents)

    def scores(self) -> PositiveScores:
        return PositiveScores.of(self.collection, self.dense(), np.arange(QUERIES))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def hidden_world(seed: int, *, labelled: float = 0.5, duplicates: float = 0.0, preference: float = 1.0) -> World:
    """1–9 relevant documents a query, more or less near it, among others; each is labelled with one probability.

    With a preference the nearest are labelled so many times as often as the farthest, `labelled` in the mean.
    """
    mean = 1.0 if preference == 1 else (preference - 1) / np.log(preference)
    rng = np.random.default_rng(seed)
    queries = unit(rng.standard_normal((QUERIES, D)))
    documents = unit(rng.standard_normal((DOCUMENTS, D)))
    texts = [f"{a} {b} {c}" for a, b, c in rng.integers(10_000, size=(DOCUMENTS, 3))]
    free, qrels, hidden = iter(rng.permutation(DOCUMENTS).tolist()), {}, set()
    for query in range(QUERIES):
        own = [next(free) for _ in range(rng.integers(1, 10 if query % 3 else 4))]
        chance = {}
        for row in own:
            away = rng.uniform(0.1, 0.45)
            documents[row] = unit(queries[[query]] + away * rng.standard_normal((1, D)))[0]
            chance[row] = labelled * preference ** ((0.45 - away) / 0.35) / mean
            if rng.random() < duplicates:
                texts[row] = texts[own[0]]
        known = {f"d{row}": 1 for row in own if rng.random() < chance[row]}
        if known:
            qrels[f"q{query}"] = known
            hidden |= {(f"q{query}", f"d{row}") for row in own if f"d{row}" not in known}
    names = {f"d{row}": text for row, text in enumerate(texts)}
    asked = {f"q{row}": f"query {row}" for row in range(QUERIES)}
    collection = Collection.from_dicts("hidden", names, asked, {"train": qrels})
    return World(collection, Vectors.of(queries), Vectors.of(documents), hidden)


def shares(world: World, negatives) -> tuple[float, float, float]:
    """The true share of hidden positives, the estimated one, and the standard error of their difference.

    The true one varies too, being of these hidden positives: as a ratio over queries, false ones to hidden ones.
    """
    kept = negatives.kept()
    pairs = zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True)
    false = np.zeros(QUERIES)
    np.add.at(false, [int(query[1:]) for query, document in pairs if (query, document) in world.hidden], 1)
    hidden = np.bincount([int(query[1:]) for query, _ in world.hidden], minlength=QUERIES)
    recapture = Recapture.of(negatives)
    assert recapture is not None
    scale = world.unlabelled / recapture.kept
    own = np.sqrt(((false - false.sum() / hidden.sum() * hidden) ** 2).sum()) / recapture.kept
    error = np.hypot(recapture.standard_error * scale, own)
    return false.sum() / len(kept), min(1.0, scale * recapture.returned), float(error)


class WorldEncoder:
    """Gives each text of a world its vector."""

    name, fingerprint, dimension, similarity = "world", "world", 16, "cosine"

    def __init__(self, world: World) -> None:
        self.vectors = {"query": world.queries.array, "document": world.documents.array}
        texts = {
            "query": world.collection.query_texts(np.arange(QUERIES)),
            "document": world.collection.document_texts(np.arange(len(world.collection.documents))),
        }
        self.row = {kind: {text: row for row, text in enumerate(of)} for kind, of in texts.items()}

    def route(self, kind: str) -> str:
        return kind

    def encode(self, texts: list[str], kind: str) -> np.ndarray:
        return self.vectors[kind][[self.row[kind][text] for text in texts]].astype(np.float32)


def mined(world: World) -> dict[str, Negatives]:
    def mine(retriever: object, **how: object) -> Negatives:
        return Miner(world.collection, retriever, top=5, **how).mined("train")  # type: ignore[arg-type]

    return {
        "hard": mine(world.dense()),
        "middle": mine(world.dense(), ranks=(20, 25)),
        "drawn": mine(world.dense(), ranks=(0, 20), draw=Uniform()),
        "random": mine(RandomRetriever(world.collection, seed=1)),
    }


def true_share(world: World, negatives: Negatives) -> float:
    kept = negatives.kept()
    pairs = zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True)
    return float(np.mean([pair in world.hidden for pair in pairs]))


def oracle(world: World, sources: dict[str, Negatives], count: int, seed: int = 0) -> Labels:
    rng = np.random.default_rng(seed)
    tables = [source.kept().select(["query_id", "doc_id"]) for source in sources.values()]
    parts = [each.take(pa.array(rng.choice(len(each), count // len(tables), replace=False))) for each in tables]
    rows = {(row["query_id"], row["doc_id"]) for part in parts for row in part.to_pylist()}
    judged = [{"query_id": q, "doc_id": d, "relevant": int((q, d) in world.hidden)} for q, d in sorted(rows)]
    return Labels(pa.Table.from_pylist(judged))


def decided(
    world: World, sources: dict[str, Negatives], folder: Path, encoder: object = None, **given: Any
) -> Decision:
    """The decision between sources, with the settings of a belief among what is given."""
    names = [name for name in given if name in BeliefSettings.__dataclass_fields__]
    belief = BeliefSettings(**{name: given.pop(name) for name in names})
    encoder, store = encoder or WorldEncoder(world), VectorStore(folder / "vectors")
    return decide(world.collection, sources, encoder, store, belief, temperature=0.1, **given)  # type: ignore[arg-type]
