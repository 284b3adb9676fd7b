"""The Elo scale, the unit of all ratings: a lead of 400 points means odds of ten to one; the mean is 1500."""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt
from scipy.special import entr, expit, ndtr

ELO_PER_LOGIT = 400 / log(10)
"""173.7 Elo points to the unit of Bradley–Terry: σ(x) = 1/(1 + 10^(−173.7x/400)) (eq. 28)."""

LOGITS_PER_PROBIT = 1.702
"""The factor that brings σ(1.702x) closest to Φ(x), within 0.0095 for every x (Haley 1952)."""

ELO_PER_PROBIT = ELO_PER_LOGIT * LOGITS_PER_PROBIT
"""295.7 Elo points to the unit of Thurstone's model."""

BASE = 1500.0
"""The mean of every query's ratings on the Elo scale, by custom."""


def expected_score(gap: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return E = 1/(1 + 10^(−gap/400)), the chance of preference with a lead of `gap` Elo points (eq. 26)."""
    return np.asarray(expit(np.asarray(gap, np.float64) / ELO_PER_LOGIT))


def information(gap: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return I(Δ) = H(Φ(Δ/295.7)) in bits, for gaps in Elo points: 1 at 0, 0.63 at 296 (eq. 46)."""
    lead = np.asarray(gap, np.float64) / ELO_PER_PROBIT
    return np.asarray((entr(ndtr(lead)) + entr(ndtr(-lead))) / np.log(2))
