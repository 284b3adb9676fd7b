"""Which negatives to train on, and with what weight: rules on ratings."""

from foils.select.curriculum import LearningProgress, curriculum, progress, stage_of
from foils.select.mixture import GapMixture, fit_gaps, mixture
from foils.select.optimal import adapted_gap, information, optimal, optimal_gap, two_group_risk
from foils.select.rows import RatedRows, Selection
from foils.select.rules import BOUNDS, TIERS, WEIGHTS, denoise, percentile, relative, table
from foils.select.sampling import simans, simans_log_weights
from foils.select.stage import METHODS, Selected, select_negatives

__all__ = [
    "BOUNDS",
    "METHODS",
    "TIERS",
    "WEIGHTS",
    "GapMixture",
    "LearningProgress",
    "RatedRows",
    "Selected",
    "Selection",
    "adapted_gap",
    "curriculum",
    "denoise",
    "fit_gaps",
    "information",
    "mixture",
    "optimal",
    "optimal_gap",
    "percentile",
    "progress",
    "relative",
    "select_negatives",
    "simans",
    "simans_log_weights",
    "stage_of",
    "table",
    "two_group_risk",
]
