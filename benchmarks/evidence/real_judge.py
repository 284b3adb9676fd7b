"""What does the path from texts to a reranker give, and cost, with the smallest instruct model as judge?

    python benchmarks/run.py real_judge banking77/ --student BERT-TINY/ --base-url http://localhost:8000/v1 --model NAME

The steps are those of docs/rerankers.md. Training queries have no label; BM25 and all-MiniLM-L6-v2 find candidates of
each, which are fused. The model compares pairs of them by one token, each candidate with two others, and those of
different queries for offsets; a small transformer learns the ratings by regression. Measured is nDCG@10 on test
queries, of BM25's first 20 documents in the reranker's order. Beside it stands that of a reranker which learned
ratings by all-MiniLM-L6-v2's cosines in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import foils
from common import argument_parser, save
from foils.data import Collection, load_collection
from foils.encode.encoder import logits
from foils.evaluation import bm25_run, measure_run, rerank_run
from foils.runtime.errors import FailureError

MEASURE, DEPTH = "nDCG@10", 20


def some(given: Collection, split: str, count: int) -> pa.Table:
    """The judgements of some queries of a split, drawn at random."""
    table = given.qrels[split]
    ids = np.random.default_rng(7).permutation(np.unique(table["query_id"].to_pylist()))[:count]
    return table.filter(pc.is_in(table["query_id"].cast(pa.string()), value_set=pa.array(ids)))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--student", required=True, help="a folder with a small transformer")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--answer", default="token")
    given = parser.parse_args()
    whole, folder = load_collection(str(given.collection)), Path(mkdtemp())
    test, trained = some(whole, "test", 200), some(whole, "train", given.queries)
    asked = pc.is_in(whole.queries["query_id"], value_set=trained["query_id"].unique())
    bare = replace(whole, queries=whole.queries.filter(asked), qrels={}, digest=f"{whole.digest[:20]}-bare")
    measured = replace(whole, qrels={"test": test}, digest=f"{whole.digest[:20]}-measured")
    first, seconds = bm25_run(measured, "test", depth=DEPTH), dict[str, float]()

    def timed(step: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            seconds[step] = time.perf_counter() - start
            print(f"{step}: {seconds[step]:.0f} s", flush=True)

    def mined() -> Any:
        sources = {
            "bm25": foils.mine(bare, "bm25", split="all", top=given.candidates),
            "dense": foils.mine(bare, "dense", encoder="all-MiniLM-L6-v2", split="all", top=given.candidates),
        }
        return foils.fuse(bare, sources, method="rrf", top=given.candidates)

    pool = timed("candidates", mined)
    how = {"split": "all", "degree": 2, "between": 2}
    asking = {"judge": f"llm:{given.model},answer={given.answer}", "base_url": given.base_url, "concurrency": 2}
    stopped = ""
    try:
        rated = timed("trial", lambda: foils.rate(bare, pool, **asking, **how))
    except FailureError as error:
        stopped = str(error)
        rated = timed("ratings", lambda: foils.rate(bare, pool, accept_judge=True, **asking, **how))
    teacher = foils.rate(bare, pool, judge="bi-encoder:all-MiniLM-L6-v2", accept_judge=True, device="cpu", **how)

    def learned(of: Any, name: str) -> Any:
        return foils.train(
            bare, of, model=given.student, output=folder / name, reranker=True, loss="regression", max_length=96,
            epochs=3, batch_size=40, learning_rate=3e-4, split="all", device="cpu",
        ).model  # fmt: skip

    def value(scorer: Any = None) -> float:
        run = first if scorer is None else rerank_run(first, measured, lambda p: logits(scorer, p), depth=DEPTH)
        return float(measure_run(run, measured, "test", [MEASURE]).means[MEASURE])

    reranker = timed("reranker", lambda: learned(rated, "reranker"))
    values = {
        "BM25, as it ranks": value(),
        "reranker, ratings of the language model": value(reranker),
        "reranker, ratings by all-MiniLM-L6-v2's cosines": value(learned(teacher, "of-teacher")),
    }
    use, did = next(iter(rated.models.values())), rated.summary
    result = {
        "model": given.model,
        "queries": given.queries,
        "questions": use.requests,
        "unread": sum(use.failures.values()),
        "position bias": did["position_bias"],
        "order bias, Elo": did["order_bias"],
        "both orders agree, correlation": did["orders_agree"],
        "stopped": stopped,
    }
    tables = {
        "What the judge said": [{"": name, "value": each} for name, each in result.items()],
        "Seconds": [{"step": name, "seconds": each} for name, each in seconds.items()],
        "What is learned": [{"order of BM25's first 20": name, MEASURE: each} for name, each in values.items()],
    }
    save("real_judge", {**result, "seconds": seconds, "values": values}, tables)
