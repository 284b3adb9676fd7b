"""Measures of systems on the judgements of a split."""

from foils.evaluation.alignment import alignment, uniformity
from foils.evaluation.measures import DEFAULT_MEASURES, Measured, measure_rankings
from foils.evaluation.measuring import (
    bm25_run,
    dense_run,
    encoder_score,
    measure_encoder,
    measure_reranker,
    reranker_score,
)
from foils.evaluation.rerank import first_documents, rerank_run
from foils.evaluation.systems import Evaluation, evaluate_runs, qrels_of, rankings_of
from foils.statistics import parse_measures

__all__ = [
    "DEFAULT_MEASURES",
    "Evaluation",
    "Measured",
    "alignment",
    "bm25_run",
    "dense_run",
    "encoder_score",
    "evaluate_runs",
    "first_documents",
    "measure_encoder",
    "measure_rankings",
    "measure_reranker",
    "parse_measures",
    "qrels_of",
    "rankings_of",
    "rerank_run",
    "reranker_score",
    "uniformity",
]
