"""Measures, significance, agreement: did it help, and did the score see it coming?"""

from foils.evaluate.agreement import (
    Agreement,
    agreement,
    kendall_tau,
    pearson_r,
    rank_stability,
    spearman_rho,
)
from foils.evaluate.alignment import alignment, uniformity
from foils.evaluate.measures import DEFAULT_MEASURES, Measured, measure_rankings, parse_measures
from foils.evaluate.significance import (
    Comparison,
    PairedTest,
    bootstrap_interval,
    compare_systems,
    holm,
    paired_test,
)

__all__ = [
    "DEFAULT_MEASURES",
    "Agreement",
    "Comparison",
    "Measured",
    "PairedTest",
    "agreement",
    "alignment",
    "bootstrap_interval",
    "compare_systems",
    "holm",
    "kendall_tau",
    "measure_rankings",
    "paired_test",
    "parse_measures",
    "pearson_r",
    "rank_stability",
    "spearman_rho",
    "uniformity",
]
