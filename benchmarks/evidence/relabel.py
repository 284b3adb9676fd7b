"""What relabelling finds, and what training on what it found is worth, where judgements are complete.

    python benchmarks/run.py relabel find COLLECTION ... [--hide 0 0.5 0.9 0.98] [--seeds 1] [--top 30]
    python benchmarks/run.py relabel train COLLECTION ... [--hide 0 0.5 0.9 0.98] [--seeds 3] [--top 10]
        [--model NAME=FOLDER]

A share of each training query's positives is hidden, and the first `--top` documents of dense retrieval (the word
table of all-MiniLM-L6-v2) are mined. `find`: precision and recall of the rows that are called positive, by how many
rows a noisy oracle labels (it is wrong about a tenth of them), with what labels of other queries say and
without it; beside them what a threshold on the likeness to the nearest positive reaches that knows the truth.

`train`: the word table trained on the table as it is (untouched), with the promoted rows as positives (relabelled, by
5 % of the rows), with every false negative rejected that there is (truth); with the table untouched and a
mask of a guide (all-MiniLM-L6-v2); on random negatives, and on none, without and with the guide. nDCG@10 on
the test split, paired tests against untouched, Holm's correction over the systems. With `--model`, a folder with a
language model, as BERT-tiny, and what to call it, that is trained instead: untouched, relabelled and masked by the
guide, on one list of a positive and all negatives a query. What is in the result file is not done again.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import foils
from common import argument_parser, hidden, load, narrowed, save
from foils.data import Collection, Labels, Negatives, Run, load_collection
from foils.encode.vectors import AT_128
from foils.evaluation import dense_run, evaluate_runs
from foils.labelling.doors import pairs_in
from foils.labelling.relabelling import answers_of, evidence_of, verdicts_of, with_errors
from foils.rating import Candidates, Pairs
from foils.statistics.survey import learn

MODEL = "static:all-MiniLM-L6-v2"
GUIDE = "all-MiniLM-L6-v2"
NOISE = 0.1
MEASURE = "nDCG@10"
ENCODING = replace(AT_128, encoder=MODEL)
CELL = ("collection", "hidden", "seed", "top")
STEPS = {"epochs": 1, "batch_size": 128, "form": "triplets", "max_positives": 4}
STEPS_OF_LANGUAGE_MODELS = {"epochs": 1, "batch_size": 32, "form": "lists", "max_positives": 1, "max_length": 64}
WAYS_OF_LANGUAGE_MODELS = ("untouched", "relabelled", "masked by a guide")


class Oracle:
    """A judge by the complete judgements, who is wrong about some pairs."""

    name, fingerprint, antisymmetric = "oracle", "oracle", True

    def __init__(self, whole: Collection, noise: float, seed: int) -> None:
        texts = whole.query_texts(np.arange(len(whole.queries))), whole.document_texts(np.arange(len(whole.documents)))
        self.rows = [{text: row for row, text in enumerate(each)} for each in texts]
        self.known = {
            (q, d) for q, d in zip(*(rows.tolist() for rows in whole.positives("train").pairs()), strict=True)
        }
        self.noise, self.rng = noise, np.random.default_rng(seed)

    def judge(self, candidates: Candidates, pairs: Pairs) -> np.ndarray:
        texts = zip(candidates.queries_of(pairs.first), candidates.texts(pairs.first), strict=True)
        right = np.array([(self.rows[0][query], self.rows[1][text]) in self.known for query, text in texts], bool)
        return np.where(right ^ (self.rng.random(len(pairs)) < self.noise), 0.9, 0.1)


def labels_of(collection: Collection, mined: Negatives, whole: Collection, n: int, seed: int) -> Labels:
    """What the noisy oracle says of n rows, and of pairs of known truth."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "labels.parquet"
        oracle = Oracle(whole, NOISE, seed)
        return foils.label(collection, {"dense": mined}, n=n, ask=oracle, output=output, seed=seed).labels


def false_ones(table: Negatives, whole: Collection) -> np.ndarray:
    queries, documents = table.rows_in(whole)
    return whole.positives("train").contain(queries, documents)


def recall_at(score: np.ndarray, truth: np.ndarray, precision: float = 0.9) -> float | None:
    """The largest recall that a threshold on a score reaches at this precision, chosen by the truth."""
    hits = np.cumsum(truth[np.argsort(-score)])
    enough = np.flatnonzero(hits / np.arange(1, len(hits) + 1) >= precision)
    return float(hits[enough[-1]] / truth.sum()) if len(enough) and truth.any() else None


def found(verdict: np.ndarray, truth: np.ndarray) -> dict[str, float | int | None]:
    positive = verdict == "positive"
    return {
        "called_positive": int(positive.sum()),
        "precision": float(truth[positive].mean()) if positive.any() else None,
        "recall": float(truth[positive].sum() / truth.sum()) if truth.any() else None,
    }  # fmt: skip


def find(given: str, hide: float, seed: int, top: int) -> dict[str, Any]:
    whole = load_collection(given)
    collection, _ = hidden(whole, hide, seed)
    mined = foils.mine(collection, "dense", top=top, encoder=MODEL)
    start = time.process_time()
    asked_of, features = evidence_of(collection, mined, *ENCODING.open(collection))
    seconds, rows = time.process_time() - start, []
    truth, pairs = false_ones(mined, whole)[asked_of], pairs_in(mined.table.take(asked_of))
    score = {"nearest": recall_at(features["nearest"], truth)}
    for n in (60, 300, len(pairs) // 100, len(pairs) // 20):
        labels = labels_of(collection, mined, whole, n, seed)
        nobody = answers_of(labels, pairs, None)
        asked = with_errors(answers_of(labels, pairs, "judge:oracle"), nobody)
        for names in ([*features], ["nearest"]):
            start, columns = time.process_time(), np.column_stack([features[name] for name in names])
            verdict = verdicts_of(learn(columns, [asked]), [asked], nobody, 0.9)[0]
            rows.append({"asked": n, "other_queries": len(names) > 1, **found(verdict, truth),
                         "seconds": round(time.process_time() - start, 1)})  # fmt: skip
    return {"collection": Path(given).name, "hidden": hide, "seed": seed, "top": top, "rows": len(pairs),
            "false": float(truth.mean()), "recall_at_90_by_truth": score, "found": rows,
            "seconds_of_evidence": round(seconds, 1)}  # fmt: skip


def train(given: str, hide: float, seed: int, top: int, model: str = MODEL) -> dict[str, Any]:
    whole = load_collection(given)
    collection, _ = hidden(whole, hide, seed)
    mined = foils.mine(collection, "dense", top=top, encoder=MODEL)
    truth = false_ones(mined, whole)
    labels = labels_of(collection, mined, whole, len(mined) // 20, seed)
    relabelled = foils.relabel(collection, mined, labels=labels, encoder=MODEL)
    more = foils.load(collection, add_judgements=relabelled.promoted)
    ways: dict[str, tuple[Collection, Negatives | None, str | None]] = {
        "untouched": (collection, mined, None),
        "relabelled": (more, relabelled, None),
        "truth": (collection, mined.reject(truth, "false"), None),
        "masked by a guide": (collection, mined, GUIDE),
        "random": (collection, foils.mine(collection, "random", top=top, seed=seed), None),
        "none": (collection, None, None),
        "none, masked by a guide": (collection, None, GUIDE),
    }
    steps, runs = STEPS, []
    if model != MODEL:
        steps, ways = STEPS_OF_LANGUAGE_MODELS, {name: ways[name] for name in WAYS_OF_LANGUAGE_MODELS}
    with tempfile.TemporaryDirectory() as folder, narrowed() if model == MODEL else nullcontext():
        for name, (of, table, mask) in ways.items():
            how = {**steps, "form": "pairs" if table is None else steps["form"], "seed": seed, "mask": mask}
            trained = foils.train(
                of, table, model=model.rpartition("=")[2], output=Path(folder) / name, device="cpu", **how
            )
            runs.append(Run(dense_run(trained.model, whole, "test").table, name))
    result = evaluate_runs(whole, runs, rng=np.random.default_rng(seed), measures=[MEASURE], against=["untouched"])
    return {
        "collection": Path(given).name, "hidden": hide, "seed": seed, "top": top, "model": name_of(model),
        "false": float(truth.mean()), **found(np.array(relabelled.table["verdict"].to_pylist()), truth),
        "means": {each.name: each.means[MEASURE] for each in result.systems},
        "p_holm": {each.a if each.b == "untouched" else each.b: each.p_holm for each in result.comparisons},
    }  # fmt: skip


def name_of(model: str) -> str:
    return model.partition("=")[0]


def shown(what: str, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table: what was found by share asked about, or what each training reached."""
    rows = []
    for each in results:
        cell = {key: each[key] for key in ("collection", "hidden", "seed")}
        if what == "find":
            rows += [{**cell, **one} for one in each["found"]]
        else:
            marked = {name: p < 0.05 for name, p in each["p_holm"].items()}
            means = {name: f"{mean:.4f}{'*' * marked.get(name, False)}" for name, mean in each["means"].items()}
            rows.append({**cell, "model": each["model"], **means})
    return rows


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("find", "train"))
    parser.add_argument("collection", nargs="+")
    parser.add_argument("--hide", type=float, nargs="+", default=[0.0, 0.5, 0.9, 0.98])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--top", type=int)
    parser.add_argument("--model", default=MODEL)
    given = parser.parse_args()
    known = load("relabel")
    known.pop("tables", None)
    rows, doing = (
        known.setdefault(given.what, []),
        {"find": find, "train": partial(train, model=given.model)}[given.what],
    )
    top = given.top or {"find": 30, "train": 10}[given.what]
    for collection in given.collection:
        for hide in given.hide:
            for seed in range(given.seeds):
                key = (Path(collection).name, hide, seed, top, name_of(given.model))
                if any((*(each[name] for name in CELL), each.get("model", MODEL)) == key for each in rows):
                    continue
                rows.append(doing(collection, hide, seed, top))
                save("relabel", known, {what: shown(what, each) for what, each in known.items()})
