"""Measures, significance, agreement: did it help, and did the score see it coming?"""

from foils.evaluation.agreement import (
    Agreement,
    agreement,
    kendall_tau,
    pearson_r,
    rank_stability,
    spearman_rho,
)
from foils.evaluation.alignment import alignment, uniformity
from foils.evaluation.measures import DEFAULT_MEASURES, Measured, measure_rankings, parse_measures
from foils.evaluation.rerank import load_reranker, rerank_run
from foils.evaluation.significance import (
    Comparison,
    PairedTest,
    bootstrap_interval,
    compare_systems,
    holm,
    paired_test,
)
from foils.evaluation.systems import Evaluation, evaluate_runs, qrels_of, rankings_of

__all__ = [
    "DEFAULT_MEASURES",
    "Agreement",
    "Comparison",
    "Evaluation",
    "Measured",
    "PairedTest",
    "agreement",
    "alignment",
    "bootstrap_interval",
    "compare_systems",
    "evaluate_runs",
    "holm",
    "kendall_tau",
    "load_reranker",
    "measure_rankings",
    "paired_test",
    "parse_measures",
    "pearson_r",
    "qrels_of",
    "rank_stability",
    "rankings_of",
    "rerank_run",
    "spearman_rho",
    "uniformity",
]
