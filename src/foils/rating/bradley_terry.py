"""The model of Bradley and Terry, P(i ≻ j) = σ(e_i − e_j), fitted to fractional judgements."""

from __future__ import annotations

from typing import Literal

import numpy.typing as npt

from foils.rating.links import BRADLEY_TERRY
from foils.rating.pairs import Pairs
from foils.rating.ratings import Ratings, estimate


def bradley_terry(
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    prior_sd: float = 10.0,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    standard_errors: bool = True,
    failures: Literal["raise", "nan"] = "raise",
) -> Ratings:
    """Return ê = argmax Σ w log σ(e_i − e_j) + (1 − w) log σ(e_j − e_i) − Σ e²/(2 prior_sd²), per query.

    Everything else is as in `thurstone`, in logits in place of probits. The likelihood has a unique finite maximum
    without a prior only where every split of a query's candidates into two has preference flowing both ways (Ford
    1957), which is more than the connectedness that Theorem 5 asks for.

    Raises:
        ConvergenceError: a query did not converge and failures is "raise".
        InputError: preferences outside [0, 1], wrong lengths, settings out of range (all listed).

    Source: ANMI 2.0 eq. 22.
    """
    return estimate(
        pairs,
        preference,
        BRADLEY_TERRY,
        prior_sd=prior_sd,
        tolerance=tolerance,
        max_iterations=max_iterations,
        standard_errors=standard_errors,
        failures=failures,
    )
