"""Which negatives to train on, and with what weight: rules on ratings."""

from foils.selection.benefit import Candidates, list_benefit, most_useful, select_by_benefit
from foils.selection.certainty import sure, zone_probabilities, zones
from foils.selection.curriculum import LearningProgress, curriculum, progress, stage_of
from foils.selection.mixture import fit_gaps, likeliest_fit, mixture
from foils.selection.optimal import adapted_gap, information, optimal, optimal_gap, two_group_risk
from foils.selection.results import ByBenefit, Composed, Selected
from foils.selection.rows import GapMixture, RatedRows, Selection
from foils.selection.rules import BOUNDS, TIERS, WEIGHTS, denoise, percentile, relative, table
from foils.selection.sampling import simans, simans_log_weights
from foils.selection.stage import RULES, select_negatives

__all__ = [
    "BOUNDS",
    "RULES",
    "TIERS",
    "WEIGHTS",
    "ByBenefit",
    "Candidates",
    "Composed",
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
    "likeliest_fit",
    "list_benefit",
    "mixture",
    "most_useful",
    "optimal",
    "optimal_gap",
    "percentile",
    "progress",
    "relative",
    "select_by_benefit",
    "select_negatives",
    "simans",
    "simans_log_weights",
    "stage_of",
    "sure",
    "table",
    "two_group_risk",
    "zone_probabilities",
    "zones",
]
