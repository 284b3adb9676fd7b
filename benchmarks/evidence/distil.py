"""Is a teacher's list of scores worth more than the label alone? Distillation against contrastive training.

    python benchmarks/run.py distil COLLECTION ... [--student MODEL] [--teacher MODEL] [--rates 0.001 0.003 0.01]
        [--seeds 3] [--train-queries 2000] [--test-queries 1000] [--batch-size 64] [--epochs 3]

Every loss has the same queries, positives, negatives (BM25's first eight), batches and steps; only loss and learning
rate differ. The student is the word table of all-MiniLM-L6-v2, or `--student` (a folder with a language model, as
BERT-tiny, with its own --rates). The teacher is an encoder, or `cross-encoder:FOLDER`; its scores are those of
`foils.score_pairs`, divided by 0.05 for an encoder's cosines and by 1 for logits, the student's cosines by 0.05.

Each loss chooses its learning rate on dev (where there is no such split, a fifth of the training queries, which are not
trained on) with a seed that is not among the tested; the measure is nDCG@10 of exact search over the whole corpus.
Paired tests on test queries of the mean over seeds, against contrastive training, Holm's correction over the losses.
A training that is in the result file is not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import foils
from common import load, narrowed, save
from foils.data import Collection, Negatives, load_collection
from foils.encode import VectorStore
from foils.encode.models import STATIC
from foils.encode.opening import AT_128
from foils.evaluation import measure_encoder
from foils.mining.scorers import ScoredPairs
from foils.training.models import load_trainable

MEASURE = "nDCG@10"
STUDENT, TEACHER = "static:all-MiniLM-L6-v2", "all-MiniLM-L6-v2"
CROSS_ENCODER = "cross-encoder:"
NEGATIVES, TUNED_WITH = 8, 1000
LOSSES: dict[str, tuple[str, dict[str, float]]] = {
    "contrastive": ("mnrl", {}),
    "distil": ("distil", {"alpha": 0.0}),
    "distil + contrastive": ("distil", {"alpha": 0.5}),
    "margin-mse": ("margin-mse", {"alpha": 0.0}),
    "margin-mse + contrastive": ("margin-mse", {"alpha": 0.5}),
}
RATES, RATES_OF_LANGUAGE_MODELS = (0.001, 0.003, 0.01), (0.0001, 0.0003, 0.001)
CELL = ("collection", "student", "teacher", "train_queries", "test_queries", "batch_size", "epochs")


def part(given: str, queries: int, test: int) -> Collection:
    """The collection with so many training and test queries and a split dev, the same for every seed and loss."""
    collection = load_collection(given)
    qrels = collection.qrels

    def drawn(table: pa.Table, start: int, end: int | None) -> pa.Table:
        ids = np.unique(np.array(table["query_id"].to_pylist(), object))
        chosen = np.random.default_rng(11).permutation(ids)[start:end]
        return table.filter(pc.is_in(table["query_id"], value_set=pa.array(chosen, table["query_id"].type)))

    train = qrels["train"].filter(pc.greater(qrels["train"]["relevance"], 0))
    held_out = 0 if "dev" in qrels else len(pc.unique(train["query_id"])) // 5
    dev = qrels["dev"] if not held_out else drawn(train, 0, held_out)
    splits = {"train": drawn(train, held_out, held_out + queries), "dev": dev, "test": drawn(qrels["test"], 0, test)}
    return replace(collection, qrels=splits, digest=f"{collection.digest[:20]}-{queries}-{test}")


def scored(collection: Collection, teacher: str) -> ScoredPairs:
    """The negatives with the teacher's scores."""
    mined = foils.mine(collection, "bm25", top=NEGATIVES)
    name = teacher if teacher.startswith(CROSS_ENCODER) else f"bi-encoder:{teacher}"
    return foils.score_pairs(collection, mined, teacher=name, max_length=AT_128.max_length)


def facts_of(teacher: str, collection: Collection, table: ScoredPairs) -> dict[str, Any]:
    """How good a teacher it is: which documents of the table it prefers and, of an encoder, its own nDCG@10."""
    facts: dict[str, Any] = {"positive_first": table.teachers[0][2]}
    if not teacher.startswith(CROSS_ENCODER):
        encoder, store = replace(AT_128, encoder=teacher).open(collection)
        facts |= {split: measured(encoder, collection, split, store) for split in ("dev", "test")}
    return facts


def measured(model: Any, collection: Collection, split: str, store: VectorStore | None = None) -> list[float]:
    measures = measure_encoder(model, collection, split, [MEASURE], store=store)
    return [round(float(value), 4) for value in measures.per_query[MEASURE]]


def trained(collection: Collection, table: Negatives, cell: dict[str, Any], loss: str, rate: float, seed: int) -> Any:
    name, settings = LOSSES[loss]
    if name != "mnrl":
        logits = cell["teacher"].startswith(CROSS_ENCODER)
        settings = {**settings, "temperature": 0.05, "teacher_temperature": 1.0 if logits else 0.05}
    with tempfile.TemporaryDirectory() as folder, narrowed() if cell["student"].startswith(STATIC) else nullcontext():
        return foils.train(
            collection, table, model=cell["student"], output=Path(folder) / "model", form="lists", max_positives=1,
            loss=name, loss_settings=settings, learning_rate=rate, seed=seed, batch_size=cell["batch_size"],
            epochs=cell["epochs"], device="cpu",
        ).model  # fmt: skip


class Known:
    """The result file: what is in it is not done again."""

    def __init__(self) -> None:
        self.results: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.results |= {key: value for key, value in load("distil").items() if key != "tables"}

    def keep(self, kind: str, what: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for each in self.results[kind]:
            if what.items() <= each.items():
                return each
        self.results[kind].append(made := {**what, **make()})
        tables = {"Trained, nDCG@10 on test": self.results["on test"], "Untrained": self.results["untrained"]}
        save("distil", self.results, tables)
        return made


def run(given: str, cell: dict[str, Any], rates: Sequence[float], seeds: int, known: Known) -> None:
    """Choose each loss's learning rate on dev, then train with it and measure on test."""
    collection = part(given, cell["train_queries"], cell["test_queries"])
    table = scored(collection, cell["teacher"])
    known.keep("teacher", cell, lambda: facts_of(cell["teacher"], collection, table))
    start = load_trainable(cell["student"], device="cpu")
    known.keep("untrained", cell, lambda: {"test": measured(start, collection, "test")})

    def on(split: str, loss: str, rate: float, seed: int) -> dict[str, list[float]]:
        return {split: measured(trained(collection, table, cell, loss, rate, seed), collection, split)}

    for loss in LOSSES:
        dev = {}
        for rate in rates:
            what = {**cell, "loss": loss, "rate": rate}
            dev[rate] = np.mean(known.keep("on dev", what, partial(on, "dev", loss, rate, TUNED_WITH))["dev"])
        best = max(dev, key=lambda rate: dev[rate])
        for seed in range(seeds):
            what = {**cell, "loss": loss, "rate": best, "seed": seed}
            known.keep("on test", what, partial(on, "test", loss, best, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="+")
    parser.add_argument("--student", default=STUDENT)
    parser.add_argument("--teacher", default=TEACHER)
    parser.add_argument("--rates", type=float, nargs="+", help="default: by the student, static or a language model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train-queries", type=int, default=2000)
    parser.add_argument("--test-queries", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    known = Known()
    rates = given.rates or (RATES if given.student.startswith(STATIC) else RATES_OF_LANGUAGE_MODELS)
    for collection in given.collection:
        name = Path(collection).name
        cell = {"collection": name, **{each: getattr(given, each) for each in CELL if each != "collection"}}
        run(collection, cell, rates, given.seeds, known)


if __name__ == "__main__":
    main()
