"""Statistics of measured results: paired tests, intervals, rank correlations."""

from foils.statistics.agreement import Agreement, agreement, kendall_tau, pearson_r, rank_stability, spearman_rho
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

__all__ = [
    "ALTERNATIVES",
    "Agreement",
    "Alternative",
    "Comparison",
    "PairedTest",
    "agreement",
    "bootstrap_interval",
    "compare_systems",
    "holm",
    "kendall_tau",
    "paired_test",
    "pearson_r",
    "rank_stability",
    "spearman_rho",
]
