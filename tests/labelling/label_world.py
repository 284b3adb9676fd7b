"""A collection whose relevant documents are known, and sources that hold some of them as negatives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from foils.data import Collection, Labels, Negatives
from foils.data.labels import CHECKS
from foils.data.negatives import negatives_table
from foils.labelling.doors import LabelSheet, pairs_of
from foils.rating import Candidates, Pairs

QUERIES, DOCUMENTS = 30, 120


def relevant(query: int, document: int) -> bool:
    return document % QUERIES == query


def world(dev: tuple[str, ...] = ()) -> Collection:
    """Query i is answered by the documents of its number, modulo 30: four each, of which one or two are labelled.

    Judgements are for training, but for the queries of `dev`.
    """
    documents = {f"d{i}": f"document {i} of subject {i % QUERIES}" for i in range(DOCUMENTS)}
    queries = {f"q{i}": f"subject {i}" for i in range(QUERIES)}
    qrels = {f"q{i}": {f"d{i}": 1, **({f"d{i + QUERIES}": 1} if i % 2 else {})} for i in range(QUERIES)}
    of_dev = {query: qrels.pop(query) for query in dev}
    return Collection.from_dicts("world", documents, queries, {"train": qrels, **({"dev": of_dev} if dev else {})})


def source(name: str, seed: int, *, per_query: int = 8, text: Callable[[int, int], str] | None = None) -> Negatives:
    """Negatives of every query, some of which are relevant and not labelled; with `text`, ones of its own."""
    rng = np.random.default_rng(seed)
    pairs = []
    for query in range(QUERIES):
        labelled = {query, query + QUERIES} if query % 2 else {query}
        free = [row for row in range(DOCUMENTS) if row not in labelled]
        good = [row for row in free if relevant(query, row)]
        rest = rng.permutation([row for row in free if not relevant(query, row)])
        pairs += [(query, row) for row in [*good, *rest.tolist()][:per_query]]
    ids = [pa.array([f"{letter}{pair[at]}" for pair in pairs]) for at, letter in enumerate("qd")]
    if text is not None:
        ids[1] = pa.array([f"{name}-{number} d{row}" for number, (_, row) in enumerate(pairs)])
    table = negatives_table(*ids, name, np.zeros(len(pairs)), np.zeros(len(pairs)))
    if text is not None:
        table = table.append_column("text", pa.array([text(*pair) for pair in pairs], pa.large_string()))
    return Negatives(table)


def oracle(query: str, positive: str, document: str) -> bool:
    """Answers rightly."""
    return query.rsplit(" ", 1)[1] == document.rsplit(" ", 1)[1]


class Program:
    """A judge of `foils rate` by a function of query, positive and document."""

    antisymmetric = True

    def __init__(self, answer: Callable[[str, str, str], bool]) -> None:
        self.name = self.fingerprint = answer.__name__
        self.answer = answer

    def judge(self, candidates: Candidates, pairs: Pairs) -> np.ndarray:
        queries, texts = candidates.queries_of(pairs.first), candidates.texts(pairs.first)
        relevant = [self.answer(query, "", text) for query, text in zip(queries, texts, strict=True)]
        return np.where(relevant, 0.7, 0.2)


def sheet(path: Path, n: int = 6) -> LabelSheet:
    collection = world()
    universe = pairs_of({"a": source("a", 1), "b": source("b", 2)})
    return LabelSheet.of(path, collection, universe, universe.draw(n))


def world_folder(path: Path) -> Path:
    """Write the world as a BEIR folder, its first documents being the positives."""
    path.joinpath("qrels").mkdir(parents=True)
    of, qrels = world(), ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(QUERIES))]
    for name, table, key in (("corpus", of.documents, "doc_id"), ("queries", of.queries, "query_id")):
        lines = ({"_id": row[key], "title": "", "text": row["text"]} for row in table.to_pylist())
        path.joinpath(f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    path.joinpath("qrels", "train.tsv").write_text("\n".join(qrels))
    return path


def counts_of(labels: Labels, judge: str) -> dict[str, int]:
    """Count the pairs that a judge judged, found relevant, and skipped, less those whose truth is known."""
    rows = [row for row in labels.table.to_pylist() if row["judge"] == judge and row["sources"] not in CHECKS]
    answers = [row["relevant"] for row in rows]
    skipped = answers.count(None)
    return {"judged": len(answers) - skipped, "relevant": answers.count(1), "skipped": skipped}
