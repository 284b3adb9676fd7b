"""Measures of systems on the judgements of a split."""

from foils.evaluation.systems import (
    dense_run,
    evaluate_runs,
    first_documents,
    measure_encoder,
    measure_run,
    named_systems,
    qrels_of,
    rankings_of,
    rerank_run,
    runs_of,
)
from foils.searching.runs import bm25_run

__all__ = [
    "bm25_run",
    "dense_run",
    "evaluate_runs",
    "first_documents",
    "measure_encoder",
    "measure_run",
    "named_systems",
    "qrels_of",
    "rankings_of",
    "rerank_run",
    "runs_of",
]
