"""Which negatives to train on, and with what weight: rules on ratings."""

from foils.selection.benefit import ByBenefit, Composed
from foils.selection.doors import RULES, Selected
from foils.selection.rules import (
    LearningProgress,
    RatedRows,
    Selection,
    adapted_gap,
    curriculum,
    denoise,
    mixture,
    optimal,
    optimal_gap,
    percentile,
    relative,
    simans,
    stage_of,
    table,
)

__all__ = [
    "RULES",
    "ByBenefit",
    "Composed",
    "LearningProgress",
    "RatedRows",
    "Selected",
    "Selection",
    "adapted_gap",
    "curriculum",
    "denoise",
    "mixture",
    "optimal",
    "optimal_gap",
    "percentile",
    "relative",
    "simans",
    "stage_of",
    "table",
]
