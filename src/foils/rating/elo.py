"""Elo ratings, which are updated one judgement at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foils.rating.pairs import Floats, Pairs
from foils.runtime.errors import InputError
from foils.statistics.elo_scale import BASE, expected_score


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
