"""Statistics: measures of rankings, paired tests, intervals, rank correlations, draws of a sample and estimates."""

from foils.statistics.agreement import Agreement, agreement, kendall_tau, pearson_r, rank_stability, spearman_rho
from foils.statistics.measures import (
    DEFAULT_MEASURES,
    Measured,
    alignment,
    measure_rankings,
    parse_measures,
    uniformity,
)
from foils.statistics.significance import (
    ALTERNATIVES,
    Alternative,
    Comparison,
    PairedTest,
    bootstrap_interval,
    compare_systems,
    holm,
    paired_test,
    randomisation_p,
)
from foils.statistics.survey import (
    Drawn,
    Share,
    corrected_share,
    difference,
    draw,
    estimate_share,
    importance,
    permanent_numbers,
)

__all__ = [
    "ALTERNATIVES",
    "DEFAULT_MEASURES",
    "Agreement",
    "Alternative",
    "Comparison",
    "Drawn",
    "Measured",
    "PairedTest",
    "Share",
    "agreement",
    "alignment",
    "bootstrap_interval",
    "compare_systems",
    "corrected_share",
    "difference",
    "draw",
    "estimate_share",
    "holm",
    "importance",
    "kendall_tau",
    "measure_rankings",
    "paired_test",
    "parse_measures",
    "pearson_r",
    "permanent_numbers",
    "randomisation_p",
    "rank_stability",
    "spearman_rho",
    "uniformity",
]
