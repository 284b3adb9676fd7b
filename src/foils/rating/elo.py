"""The Elo scale, and ratings that are updated one judgement at a time.

One unit everywhere in tables: the Elo point, on which a lead of 400 means odds of ten to one, around a mean of 1500.
"""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from foils.rating.pairs import Floats, Pairs
from foils.runtime.errors import InputError

ELO_PER_LOGIT = 400 / log(10)
"""173.7 Elo points to the unit of Bradley–Terry: σ(x) = 1/(1 + 10^(−173.7x/400)) (eq. 28)."""

LOGITS_PER_PROBIT = 1.702
"""The factor that brings σ(1.702x) closest to Φ(x), within 0.0095 for every x (Haley 1952)."""

ELO_PER_PROBIT = ELO_PER_LOGIT * LOGITS_PER_PROBIT
"""295.7 Elo points to the unit of Thurstone's model."""

BASE = 1500.0
"""The mean of every query's ratings on the Elo scale, by custom."""


def expected_score(gap: npt.ArrayLike) -> Floats:
    """Return E = 1/(1 + 10^(−gap/400)), the chance to be preferred with a lead of `gap` Elo points (eq. 26)."""
    return np.asarray(expit(np.asarray(gap, np.float64) / ELO_PER_LOGIT))


def online_elo(
    pairs: Pairs, preference: npt.ArrayLike, *, k_factor: float = 32.0, start: npt.ArrayLike | None = None
) -> Floats:
    """Return (N,) ratings after R_A += K(S − E), R_B −= K(S − E) for each pair in turn (eqs. 26–27).

    The result depends on the order of the pairs, never settles while K is constant, and has no standard error; the
    estimators `thurstone` and `bradley_terry` have none of these faults. It is for judgements that keep coming.

    Args:
        pairs: who met whom; each query's pairs in the order in which they were judged.
        preference: (m,) S in [0, 1], P(first ≻ second); NaN: missing, changes nothing.
        k_factor: K in Elo points, above 0: larger forgets faster.
        start: (N,) ratings before the first pair; None: 1500 each.

    Raises:
        InputError: preferences outside [0, 1], wrong lengths, or a K that is not above 0.
    """
    outcomes = checked_preference(pairs, preference)
    if not k_factor > 0:
        raise InputError(f"k_factor {k_factor}; expected a number of Elo points above 0, often 16 to 32")
    ratings = np.full(pairs.candidates, BASE) if start is None else np.array(start, np.float64)
    if ratings.shape != (pairs.candidates,):
        raise InputError(
            f"start has shape {ratings.shape}; expected one rating for each of {pairs.candidates} candidates"
        )
    for turn in range(int(np.diff(pairs.pair_offsets).max(initial=0))):  # one pair of every query at a time
        at = (pairs.pair_offsets[:-1] + turn)[np.diff(pairs.pair_offsets) > turn]
        at = at[np.isfinite(outcomes[at])]
        first, second = pairs.first[at], pairs.second[at]
        change = k_factor * (outcomes[at] - expected_score(ratings[first] - ratings[second]))
        ratings[first] += change
        ratings[second] -= change
    return ratings


def checked_preference(pairs: Pairs, preference: npt.ArrayLike) -> Floats:
    """Return preferences as (m,) float64.

    Raises:
        InputError: not one for each pair, or one outside [0, 1] (NaN stands for a missing one).
    """
    values = np.asarray(preference, np.float64)
    if values.shape != (len(pairs),):
        raise InputError(f"preference has shape {values.shape}; expected one for each of {len(pairs)} pairs")
    if (wrong := (values < 0) | (values > 1)).any():
        raise InputError(
            f"{int(wrong.sum())} preferences are outside [0, 1] (first: {values[wrong][0]!r}); a preference is the "
            "probability that the first candidate is the better one, NaN where there is no judgement"
        )
    return values
