"""Trained rerankers and ratings against a noisy oracle: who finds hidden positives, and at what cost?

    python benchmarks/relabel_judges.py COLLECTION MODEL [--hide 0.5 0.9] [--seeds 1] [--top 30] [--queries 1000]

As `relabel.py find`, of some training queries, with MODEL, a folder with a masked language model (BERT-tiny), made a
cross-encoder by `foils train --reranker` on the labels that are visible and four random negatives of each. It is a
judge of the cascade, which compares each document with a labelled positive; or its scores (`foils score-pairs`), or its
ratings (`foils rate`), are evidence. Beside them the oracle, which is wrong about one row in ten.

Precision and recall of the rows that are called positive, with all evidence, and without what labels of other queries
say; and of each likeness, score and rating by itself the recall that a threshold reaches at precision .9, chosen by the
truth.
Writes benchmarks/results/relabel_judges.json; what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import foils
from foils.data import Collection, load_collection
from foils.labelling.evidence import Evidence, evidence_of
from foils.labelling.judging import ByFunction, PairJudge, open_judge
from foils.labelling.marking import pairs_of_rows
from foils.labelling.relabelling import Cascade
from foils.llm import LLMSettings
from relabel import ALIKE, ENCODING, MODEL, NOISE, Oracle, false_ones, found, recall_at, without_others
from study_first import hidden
from written import write_result

RESULTS = Path(__file__).parent / "results" / "relabel_judges.json"
LENGTH, DEGREE = 64, 6
ALONE = (*ALIKE, "teacher", "gap")
ASKED: dict[str, tuple[tuple[str, float], ...]] = {
    "nobody": (),
    "reranker, 20 %": (("reranker", 0.2),),
    "oracle, 1 %": (("oracle", 0.01),),
    "oracle, 5 %": (("oracle", 0.05),),
    "reranker, 20 %, then oracle, 1 %": (("reranker", 0.2), ("oracle", 0.01)),
}


def drawn(whole: Collection, queries: int) -> Collection:
    """The collection with so many training queries."""
    table = whole.qrels["train"]
    ids = np.unique(np.array(table["query_id"].to_pylist(), object))
    kept = np.random.default_rng(5).permutation(ids)[:queries]
    train = table.filter(pc.is_in(table["query_id"], value_set=pa.array(kept, table["query_id"].type)))
    return replace(whole, qrels={**whole.qrels, "train": train}, digest=f"{whole.digest[:24]}-{queries}")


def reranker_of(collection: Collection, model: str, folder: Path, seed: int) -> str:
    """A cross-encoder that is trained on the visible labels, by its folder."""
    negatives = foils.mine(collection, "random", top=4, seed=seed)
    foils.train(
        collection, negatives, model=model, output=folder, reranker=True, form="lists", max_positives=4,
        batch_size=16, max_length=LENGTH, seed=seed, device="cpu",
    )  # fmt: skip
    return str(folder)


def run(given: str, model: str, hide: float, seed: int, top: int, queries: int) -> dict[str, Any]:
    whole = drawn(load_collection(given), queries)
    collection, _ = hidden(whole, hide, seed)
    mined = foils.mine(collection, "dense", top=top, encoder=MODEL)
    seconds, tables = {}, {"": mined}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def timed(name: str, start: float) -> None:
            seconds[name] = round(time.process_time() - start, 1)

        start = time.process_time()
        reranker = reranker_of(collection, model, folder / "reranker", seed)
        timed("training", start)
        judge, kept = f"cross-encoder:{reranker}", {"max_length": LENGTH}
        start = time.process_time()
        tables["scores"] = foils.score_pairs(collection, mined, teacher=judge, vectors=folder / "v", **kept)
        timed("scores", start)
        start = time.process_time()
        tables["ratings"] = foils.rate(
            collection, mined, judge=judge, degree=DEGREE, seed=seed, judgements=folder / "j", **kept
        )
        timed("ratings", start)
        encoding = replace(ENCODING, max_length=LENGTH)
        judges: dict[str, PairJudge] = {
            "reranker": open_judge(judge, collection, encoding=encoding, llm=LLMSettings()),
            "oracle": ByFunction(Oracle(whole, NOISE, seed)),
        }
        rows, alone = [], {}
        for name, table in tables.items():
            every = evidence_of(collection, table, *ENCODING.open(collection), seed=seed)
            truth = false_ones(table, whole)[every.rows]
            alone |= {each: recall_at(every.features[:, every.names.index(each)], truth)
                      for each in ALONE if each in every.names}  # fmt: skip
            pairs = pairs_of_rows(table, every.rows)
            for others, asked, each in verdicts(collection, pairs, every, truth, judges, seed):
                rows.append({"evidence": name, "other_queries": others, "asked": asked, **each})
    return {"collection": Path(given).name, "hidden": hide, "seed": seed, "top": top, "queries": queries,
            "false": float(false_ones(mined, whole).mean()), "rows": len(mined.table), "alone": alone,
            "found": rows, "seconds": seconds}  # fmt: skip


def verdicts(
    collection: Collection, pairs: pa.Table, every: Evidence, truth: np.ndarray, judges: dict[str, PairJudge], seed: int
) -> list[tuple[bool, str, dict[str, Any]]]:
    """What each way of asking finds, with all evidence and without that of other queries."""
    made = []
    both: dict[bool, Evidence] = {True: every, False: without_others(every)}
    for others, evidence in both.items():
        for asked, steps in ASKED.items():
            start, cascade = time.process_time(), Cascade(collection, pairs, evidence, seed=seed)
            uses = [cascade.ask(judges[name], round(share * len(pairs)), checks=100) for name, share in steps]
            each: dict[str, Any] = found(cascade.verdicts(0.9, 0.95)[0], truth)
            each["recall_at_90_by_truth"] = recall_at(cascade.probability, truth)
            each["judges"] = [[round(use.sensitivity, 3), round(use.specificity, 3)] for use in uses]
            made.append((others, asked, {**each, "seconds": round(time.process_time() - start, 1)}))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("model")
    parser.add_argument("--hide", type=float, nargs="+", default=[0.5, 0.9])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    known = json.loads(given.json.read_text()) if given.json.is_file() else []
    for hide in given.hide:
        for seed in range(given.seeds):
            key = (Path(given.collection).name, hide, seed, given.top, given.queries)
            if any(tuple(each[n] for n in ("collection", "hidden", "seed", "top", "queries")) == key for each in known):
                continue
            known.append(run(given.collection, given.model, hide, seed, given.top, given.queries))
            print(json.dumps(known[-1]["found"], indent=1), flush=True)
            write_result(given.json, known)


if __name__ == "__main__":
    main()
