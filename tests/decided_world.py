"""Worlds of hidden positives, mined, scored and judged, for decisions whose truth is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data import Negatives
from foils.data.labels import Labels
from foils.deciding import BeliefSettings, Decision, decide
from foils.encode import VectorStore
from foils.mining import RandomRetriever, mine_negatives
from foils.mining.rules import Uniform
from hidden_positives import QUERIES, World


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
        return mine_negatives(world.collection, retriever, split="train", top=5, **how)  # type: ignore[arg-type]

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
