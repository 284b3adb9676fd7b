"""Statistics: measures of rankings, paired tests, intervals, rank correlations, draws of a sample and estimates."""

from foils.statistics.measures import measure_rankings, parse_measures
from foils.statistics.significance import (
    Comparison,
    bootstrap_interval,
    compare_systems,
    holm,
    paired_test,
)
from foils.statistics.survey import estimate_share, importance

__all__ = [
    "Comparison",
    "bootstrap_interval",
    "compare_systems",
    "estimate_share",
    "holm",
    "importance",
    "measure_rankings",
    "paired_test",
    "parse_measures",
]
