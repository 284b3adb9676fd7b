"""How hard each negative is: from pairwise judgements on a sparse graph to Elo ratings with errors."""

from foils.rate.bradley_terry import bradley_terry
from foils.rate.elo import BASE, ELO_PER_LOGIT, ELO_PER_PROBIT, LOGITS_PER_PROBIT, expected_score, online_elo
from foils.rate.graph import algebraic_connectivity, all_pairs, diameter, regular_pairs
from foils.rate.pairs import Pairs
from foils.rate.ratings import Ratings
from foils.rate.thurstone import thurstone, thurstone_ascent

__all__ = [
    "BASE",
    "ELO_PER_LOGIT",
    "ELO_PER_PROBIT",
    "LOGITS_PER_PROBIT",
    "Pairs",
    "Ratings",
    "algebraic_connectivity",
    "all_pairs",
    "bradley_terry",
    "diameter",
    "expected_score",
    "online_elo",
    "regular_pairs",
    "thurstone",
    "thurstone_ascent",
]
