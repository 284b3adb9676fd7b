"""The rating gaps of the rows that a curriculum by learning progress goes by. Needs torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foils.runtime.errors import InputError
from foils.selection.curriculum import LearningProgress
from foils.selection.rules import BOUNDS, TIERS, tier_of
from foils.training.data import TrainingSet
from foils.training.tiers import TierCurriculum

DANGER = "negatives in the danger zone, left out"
UNRATED = "negatives without a rating gap, left out"


def outside_danger(data: TrainingSet) -> TrainingSet:
    """Return the triplets whose negative has a rating gap that is not in the danger zone, below 100 (ANMI Table 2).

    Raises:
        InputError: no triplets, no negative with a rating gap, or none outside the danger zone.
    """
    gaps = _gaps(data)
    if np.isnan(gaps).any():
        data = data.without(np.isnan(gaps), reason=UNRATED)
    return data.without(gaps[np.isfinite(gaps)] < BOUNDS[0], reason=DANGER)


def _gaps(data: TrainingSet) -> NDArray[np.float64]:
    """Return (N,) the rating gap of each triplet's negative, NaN where it has none."""
    if data.rows.shape[1] != 3:
        raise InputError(f"a curriculum by progress goes by a row's one negative; these have {data.rows.shape[1] - 2}")
    gaps: NDArray[np.float64] = data.facts.own_gaps()[:, 0]
    if np.isnan(gaps).all():
        raise InputError("a curriculum by progress goes by gaps of ratings, and there are none; rate the negatives")
    return gaps


def by_progress(data: TrainingSet) -> TierCurriculum:
    """Return the curriculum over the tiers that have rows."""
    gaps = _gaps(data)
    if np.isnan(gaps).any():
        raise InputError(f"{int(np.isnan(gaps).sum())} rows have no rating gap; leave them out with outside_danger")
    tier = tier_of(gaps)
    there, numbers = np.unique(tier, return_inverse=True)
    names = [TIERS[i] for i in there]
    if TIERS[0] in names or len(names) < 2:
        raise InputError(
            f"a curriculum by progress needs two tiers or more among {', '.join(TIERS[1:])}, and nothing in the danger "
            f"zone; these rows are of {', '.join(names)}"
        )
    return TierCurriculum(numbers.astype(np.int64), LearningProgress(len(names)), names=names)
