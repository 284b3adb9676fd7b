"""Statistics: measures by name, paired tests, intervals, rank correlations, draws of a sample and estimates from it."""

from foils.statistics.agreement import Agreement, agreement, kendall_tau, pearson_r, rank_stability, spearman_rho
from foils.statistics.drawing import Drawn, draw, importance, permanent_numbers
from foils.statistics.measures import parse_measures
from foils.statistics.significance import (
    ALTERNATIVES,
    Alternative,
    Comparison,
    PairedTest,
    bootstrap_interval,
    compare_systems,
    holm,
    paired_test,
)
from foils.statistics.survey import Share, corrected_share, difference, estimate_share

__all__ = [
    "ALTERNATIVES",
    "Agreement",
    "Alternative",
    "Comparison",
    "Drawn",
    "PairedTest",
    "Share",
    "agreement",
    "bootstrap_interval",
    "compare_systems",
    "corrected_share",
    "difference",
    "draw",
    "estimate_share",
    "holm",
    "importance",
    "kendall_tau",
    "paired_test",
    "parse_measures",
    "pearson_r",
    "permanent_numbers",
    "rank_stability",
    "spearman_rho",
]
