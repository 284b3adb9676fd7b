"""Thurstone's model of preference, P(i ≻ j) = Φ(e_i − e_j), fitted to fractional judgements."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from foils.rating.elo import checked_preference
from foils.rating.links import THURSTONE, mills
from foils.rating.pairs import Floats, Pairs
from foils.rating.ratings import Ratings, estimate
from foils.runtime.errors import ConvergenceError, InputError


def thurstone(
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    prior_sd: float = 10.0,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    standard_errors: bool = True,
    failures: Literal["raise", "nan"] = "raise",
) -> Ratings:
    """Return ê = argmax Σ w log Φ(e_i − e_j) + (1 − w) log Φ(e_j − e_i) − Σ e²/(2 prior_sd²), per query.

    The first part is eq. 30. The second is a weak Gaussian prior: without it a candidate that wins or loses all
    its comparisons outright has no finite rating. At the default of 10 probits and six judgements a candidate
    it pulls ratings with a spread of one probit (296 Elo points) together by about 1 %, of two probits by about
    10 %, since judgements between candidates far apart say little. Ratings have mean 0 over each connected
    component (Σe = 0 in eq. 30), which the prior brings about by itself. A query whose judgements fall into
    several components is fitted, and `component` says which ratings can be compared.

    Standard errors are roots of the diagonal of the inverse Fisher information plus prior, on the centred space
    (eqs. 44–45, A.5). They count every judgement as one yes-or-no answer; a fraction that is steadier than a coin
    of that bias has a smaller error than they say.

    Args:
        pairs: who was compared with whom.
        preference: (m,) w in [0, 1], P(first ≻ second); NaN: no judgement, which is left out.
        prior_sd: standard deviation of the prior, in probits, above 0; more is weaker; inf: none.
        tolerance: no rating moves by more than this, in probits, in the last Newton step.
        max_iterations: Newton steps at most.
        standard_errors: compute them (about half of the time).
        failures: a query that does not converge raises, or has NaN ratings and converged = False.

    Raises:
        ConvergenceError: a query did not converge and failures is "raise".
        InputError: preferences outside [0, 1], wrong lengths, settings out of range (all listed).

    Source: ANMI 2.0 eqs. 30, 34; concave by Lemma 1.
    """
    return estimate(
        pairs,
        preference,
        THURSTONE,
        prior_sd=prior_sd,
        tolerance=tolerance,
        max_iterations=max_iterations,
        standard_errors=standard_errors,
        failures=failures,
    )


def thurstone_ascent(
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    step: Literal["decaying", "constant"] = "decaying",
    tolerance: float = 1e-8,
    max_iterations: int = 100_000,
) -> Floats:
    """Return ratings (N,) by Algorithm 1's gradient ascent, without a prior: the plain reference of `thurstone`.

    g_i = Σ_j w_ij λ(e_i − e_j) − (1 − w_ij) λ(e_j − e_i), centred; e ← e + ηg, centred. As the algorithm is printed,
    η_t = 1/(1 + 0.1t): it overshoots until η falls below 2/L, L ≤ 2 × the largest degree being the gradient's
    Lipschitz constant, so it works for small degrees only and ends slowly. "constant" is Theorem 9's η = 1/L.

    Args:
        pairs: who was compared with whom; each query's graph connected.
        preference: (m,) w in [0, 1]; NaN is left out.
        step: decaying (Algorithm 1, line 6) or constant (Theorem 9).
        tolerance: on the largest component of the centred gradient.
        max_iterations: steps at most.

    Raises:
        ConvergenceError: the gradient is still above the tolerance, or not finite.
        InputError: an unknown step, preferences outside [0, 1], or wrong lengths.

    Source: ANMI 2.0 Algorithm 1, Theorem 9.
    """
    w = checked_preference(pairs, preference)
    if step not in ("decaying", "constant"):
        raise InputError(f"step {step!r}; expected 'decaying' or 'constant'")
    pairs, w = pairs.where(np.isfinite(w)), w[np.isfinite(w)]
    lipschitz = 2 * pairs.degrees.max(initial=1)
    query = np.repeat(np.arange(pairs.queries), pairs.sizes)

    def centred(values: Floats) -> Floats:
        means = np.bincount(query, values, pairs.queries) / np.maximum(pairs.sizes, 1)
        return np.asarray(values - means[query])

    e = np.zeros(pairs.candidates)
    for t in range(1, max_iterations + 1):
        lead = e[pairs.first] - e[pairs.second]
        slope = w * mills(lead) - (1 - w) * mills(-lead)
        sums = np.bincount(pairs.first, slope, len(e)) - np.bincount(pairs.second, slope, len(e))
        g = centred(np.asarray(sums, np.float64))
        if np.abs(g).max(initial=0) < tolerance:
            return e
        e = centred(e + g * (1 / (1 + 0.1 * t) if step == "decaying" else 1 / lipschitz))
        if not np.isfinite(e).all():
            raise ConvergenceError(f"gradient ascent diverged in step {t}; take step='constant', or `thurstone`")
    raise ConvergenceError(
        f"gradient ascent: gradient {np.abs(g).max():.2g} after {max_iterations} steps, expected below {tolerance}; "
        "`thurstone` gets there in a few steps of Newton's method"
    )
