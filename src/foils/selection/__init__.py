"""Which negatives to train on, and with what weight: rules on ratings."""

from foils.selection.benefit import ByBenefit, Candidates, Composed, list_benefit, most_useful, select_by_benefit
from foils.selection.curriculum import LearningProgress, curriculum, stage_of
from foils.selection.doors import RULES, Selected
from foils.selection.rules import (
    BOUNDS,
    TIERS,
    WEIGHTS,
    RatedRows,
    Selection,
    adapted_gap,
    denoise,
    fit_gaps,
    mixture,
    optimal,
    optimal_gap,
    percentile,
    relative,
    simans,
    table,
    two_group_risk,
)
from foils.statistics.elo_scale import information

__all__ = [
    "BOUNDS",
    "RULES",
    "TIERS",
    "WEIGHTS",
    "ByBenefit",
    "Candidates",
    "Composed",
    "LearningProgress",
    "RatedRows",
    "Selected",
    "Selection",
    "adapted_gap",
    "curriculum",
    "denoise",
    "fit_gaps",
    "information",
    "list_benefit",
    "mixture",
    "most_useful",
    "optimal",
    "optimal_gap",
    "percentile",
    "relative",
    "select_by_benefit",
    "simans",
    "stage_of",
    "table",
    "two_group_risk",
]
