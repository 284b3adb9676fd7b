"""Measures of systems on the judgements of a split."""

from foils.evaluation.measuring import (
    dense_run,
    encoder_score,
    first_documents,
    measure_encoder,
    measure_reranker,
    qrels_of,
    rankings_of,
    rerank_run,
    reranker_score,
)
from foils.evaluation.systems import evaluate_runs, named_systems, runs_of
from foils.searching.runs import bm25_run
from foils.statistics.measures import Measured, measure_rankings, parse_measures

__all__ = [
    "Measured",
    "bm25_run",
    "dense_run",
    "encoder_score",
    "evaluate_runs",
    "first_documents",
    "measure_encoder",
    "measure_rankings",
    "measure_reranker",
    "named_systems",
    "parse_measures",
    "qrels_of",
    "rankings_of",
    "rerank_run",
    "reranker_score",
    "runs_of",
]
