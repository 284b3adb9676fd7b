"""Measures of systems on the judgements of a split."""

from foils.evaluation.alignment import alignment, uniformity
from foils.evaluation.measures import DEFAULT_MEASURES, Measured, measure_rankings, parse_measures
from foils.evaluation.measuring import dense_run, encoder_score, measure_encoder, reranker_score
from foils.evaluation.rerank import rerank_run
from foils.evaluation.systems import Evaluation, evaluate_runs, qrels_of, rankings_of

__all__ = [
    "DEFAULT_MEASURES",
    "Evaluation",
    "Measured",
    "alignment",
    "dense_run",
    "encoder_score",
    "evaluate_runs",
    "measure_encoder",
    "measure_rankings",
    "parse_measures",
    "qrels_of",
    "rankings_of",
    "rerank_run",
    "reranker_score",
    "uniformity",
]
