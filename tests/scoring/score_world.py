"""Small random worlds to score: a collection, sources over it, and the same as plain records."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plain
import pyarrow as pa

from foils.data import Collection, Negatives
from foils.data.negatives import REQUIRED
from foils.encode import Kind, Vectors
from foils.scoring import Scores, ScoreSettings, score_sources

WORDS = [
    "wind", "boat", "keel", "sail", "tack", "bread", "yeast", "flour", "loaf", "dough", "bee", "honey", "nest", "wax",
]  # fmt: skip


@dataclass(frozen=True)
class World:
    """A collection with sources, and for each source the plain records, of all queries in the split's order."""

    collection: Collection
    sources: dict[str, Negatives]
    plainly: dict[str, list[plain.Record]]


def negatives(rows: Sequence[tuple[str, str, str | None]], name: str = "made") -> Negatives:
    """A table from (query id, document id, own text or None), ranked as they come."""
    ranks: dict[str, int] = {}
    listed: list[dict[str, Any]] = []
    for query, document, text in rows:
        rank = ranks[query] = ranks.get(query, -1) + 1
        listed.append(
            {"query_id": query, "doc_id": document, "source": name, "rank": rank, "score": np.nan, "text": text}
        )
    schema = pa.schema([*REQUIRED, ("text", pa.large_string())])
    table = pa.Table.from_pylist(listed, schema)
    return Negatives(table if any(text is not None for *_, text in rows) else table.drop_columns(["text"]))


def random_world(
    seed: int, *, queries: int = 9, documents: int = 30, sources: int = 3, skip: float = 0.2, most: int = 6
) -> World:
    """Random texts of few words: equal texts with several ids, equal words in other writing, own texts, queries
    without a word, several positives, sources without negatives for some queries, negatives that are positives."""
    rng = np.random.default_rng(seed)
    texts = {f"d {i}": _text(rng, 2, 7) for i in range(documents)}
    texts["d 1"] = texts["d 0"]  # one text, two documents
    texts["d 3"] = texts["d 2"].upper() + "!"  # one vector, two texts
    asked = {f"q {i}": _text(rng, 1, 4) for i in range(queries)}
    asked["q 1"] = "?!"
    names = list(texts)
    judged = {query: [str(d) for d in rng.choice(names, rng.integers(1, 4), replace=False)] for query in asked}
    judged["q 0"] = ["d 2", "d 0"]
    collection = Collection.from_dicts(
        "world", texts, asked, {"train": {query: dict.fromkeys(of, 1) for query, of in judged.items()}}
    )
    tables, plainly = {}, {}
    for name in "abcdef"[:sources]:
        rows: list[tuple[str, str, str | None]] = []
        for query in asked:
            if rng.random() < skip and query != "q 0":
                continue
            count = int(rng.integers(1, most + 1))
            rows += [(query, str(d), None) for d in rng.choice(names, count, replace=False)]
            if rng.random() < 0.5:
                rows.append((query, f"own {name}", _text(rng, 3, 6)))
        rows.append(("q 0", "own fox", texts["d 3"]))
        tables[name] = negatives(rows)
        plainly[name] = [
            plain.Record(
                text,
                tuple(texts[d] for d in judged[query]),
                tuple(texts[d] if own is None else own for q, d, own in rows if q == query),
            )
            for query, text in asked.items()
        ]
    return World(collection, tables, plainly)


def vector(text: str, dimension: int = 12) -> np.ndarray:
    """A float64 unit vector: the sum of one random direction a word."""
    summed = np.zeros(dimension)
    for word in sorted(plain.tokens(text)) or [""]:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        summed += np.random.default_rng(int.from_bytes(digest)).standard_normal(dimension)
    return summed / np.linalg.norm(summed)


class Texts(dict):
    """Vectors of texts, made when asked for."""

    def __missing__(self, text):
        return vector(text)


class ExactStore:
    """Stands in for the store where vectors are to stay in float64; counts what it is asked for."""

    def __init__(self, vectors: Mapping[str, np.ndarray] | None = None) -> None:
        self.vectors = vectors
        self.asked: list[str] = []

    def embed(self, encoder: object, texts: Sequence[str], kind: Kind) -> Vectors:
        every = list(texts[0 : len(texts)])
        self.asked += every
        return Vectors.of(np.array([vector(text) if self.vectors is None else self.vectors[text] for text in every]))


class NoEncoder:
    """An encoder that is never asked: `ExactStore` has the vectors."""

    name, dimension, fingerprint = "none", 12, "none"

    def route(self, kind: Kind) -> str:
        return ""

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        raise AssertionError("nothing is to be encoded")


def _text(rng: np.random.Generator, least: int, most: int) -> str:
    return " ".join(str(word) for word in rng.choice(WORDS, rng.integers(least, most + 1)))


APART = ("control", "replicates")


def score(collection: Collection, sources: Mapping[str, Negatives], encoder: Any, store: Any, **chosen: Any) -> Scores:
    """Score with these settings, without intervals unless replicates are asked for."""
    apart = {"replicates": 0, **{name: chosen.pop(name) for name in APART if name in chosen}}
    return score_sources(collection, sources, encoder, store, ScoreSettings(**chosen), **apart)
