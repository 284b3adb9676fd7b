"""Pairs that a small bag of words can learn from, and pairs that teach nothing; the files of a study."""

import csv
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import load_collection
from foils.data.description import with_three_splits
from foils.experiments.plan import Plan
from foils.experiments.study import trained_file
from foils.experiments.tune import Tuning
from foils.experiments.tuned import Setting, Tuned
from foils.runtime.files import write_sealed
from train_models import WORDS, static_model

ASKED, ANSWERED = WORDS[:25], WORDS[25:]
"""Words of queries, and of documents: each word of a query stands for one of its answer."""


def write_pairs(path: Path, count: int = 240, *, shuffled: bool = False, shared: int = 0, seed: int = 0) -> Path:
    """Write pairs: the words of a query stand for words of its document; shuffled, for those of another one.

    So many of a query's four words are the document's own, by which BM25 finds it.
    """
    rng = np.random.default_rng(seed)
    meant = dict(zip(ANSWERED, rng.permutation(ASKED).tolist(), strict=True))
    documents = [" ".join(rng.choice(ANSWERED, 6, replace=False)) for _ in range(count)]
    queries = [
        " ".join(word if at < shared else meant[word] for at, word in enumerate(text.split()[:4])) for text in documents
    ]
    answers = rng.permutation(documents).tolist() if shuffled else documents
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["query", "positive"])
        writer.writerows(zip(queries, answers, strict=True))
    return path


def write_world(folder: Path) -> None:
    """Write pairs.csv, shuffled.csv, and the model `static`."""
    write_pairs(folder / "pairs.csv", shared=1)
    write_pairs(folder / "shuffled.csv", shuffled=True)
    static_model().save_pretrained(str(folder / "static"))


def tuned_by(
    sections: Mapping[str, Any], folder: Path, *, members: Sequence[Setting] | None = None, share: float = 1.0
) -> Tuned:
    """Tune in a folder, some decisions made before; with `members`, these trainings are taken, whatever dev says."""
    plan = Plan(deepcopy(dict(sections)))
    tuning = Tuning(with_three_splits(load_collection(plan["given"]["collection"])), plan, folder, "cpu")
    if members is not None:
        tuning.schedule()
        base = tuning.measured((), 0.0)
        taken = tuning.measured(tuple(members), share) if members else base
        tuning.explore = lambda: ([base, taken] if members else [base], taken)
    return tuning.run()


def write_marked(write_beir: Callable[..., Path], folder: Path, queries: int = 120, *, seed: int = 0) -> None:
    """Write the collection `marked`: of five documents with a query's words, the one with the word "nu" is relevant.

    BM25 cannot tell the five apart; a reranker learns the word.
    """
    rng = np.random.default_rng(seed)
    documents, asked, judged = {}, {}, {}
    for query in range(queries):
        words = rng.choice(WORDS[:-1], 2, replace=False).tolist()
        marked = int(rng.integers(5))
        for place in range(5):
            text = [*words, *rng.choice(WORDS[:-1], 3).tolist(), WORDS[-1] if place == marked else WORDS[0]]
            documents[f"d{query}-{place}"] = ("", " ".join(rng.permutation(text)))
        asked[f"q{query}"] = " ".join(words)
        judged[f"q{query}"] = {f"d{query}-{marked}": 1}
    half, quarter = queries // 2, 3 * queries // 4
    parts = {"train": range(half), "dev": range(half, quarter), "test": range(quarter, queries)}
    qrels = {split: {f"q{query}": judged[f"q{query}"] for query in rows} for split, rows in parts.items()}
    write_beir(folder / "marked", documents=documents, queries=asked, qrels=qrels)


SOURCES = {"random": "0" * 10, "bm25": "1" * 10, "é <b>": "2" * 10}
FACTS = {
    "collection": {"name": "c", "digest": "c" * 32}, "model": {"name": "m", "fingerprint": "m" * 32},
    "settings": {"measures": ["nDCG@10"]}, "sources": SOURCES,
}  # fmt: skip


def write_study(folder: Path) -> dict[str, Path]:
    """Write a study of one cell with three sources, two seeds each; return some of its files by kind."""
    cell = folder / "cells" / "c--m--x"
    write_sealed(cell / "cell.json", FACTS)
    predictors = {name: {"eci_sem": float(at)} for at, name in enumerate(SOURCES)}
    write_sealed(cell / "scores.json", {"of": {"sources": SOURCES}, "sources": predictors})
    for at, (name, digest) in enumerate(SOURCES.items()):
        for seed in range(2):
            result = {"per_query": {"nDCG@10": [0.1 * at, 0.2 * at + 0.01 * seed]}, "rows": 3, "steps": 1}
            write_sealed(trained_file(cell, name, digest, seed), result)
    return {"cell": cell / "cell.json", "scores": cell / "scores.json",
            "result": trained_file(cell, "bm25", SOURCES["bm25"], 1)}  # fmt: skip
