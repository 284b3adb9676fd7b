"""How far apart candidates are and how noisy answers are, from moments of the answers: the prior that fits them.

With ratings e ~ N(0, s²) in probits, the lead of a pair is N(0, 2s²), and the leads of two pairs that share a candidate
correlate with ρ = s²/(1 + 2s²) once the noise of Thurstone's answers is added. So for any answers w with the mean
P(i ≻ j), independent from pair to pair,

    E[(w_ij − ½)(w_ik − ½)] = arcsin(ρ)/2π,     E[p(1 − p)] = ¼ − arcsin(2ρ)/2π,

and the dispersion φ = Var(w | p)/(p(1 − p)) = 1 − E[w(1 − w)]/E[p(1 − p)]: 1 for yes-or-no answers, 1/v for the mean of
v votes, 0 for an answer that is the probability itself. Residuals of ratings that are fitted with these say φ better
where answers are fractions and more than the ratings need.

Source: the orthant probability of two normals with correlation ρ, ¼ + arcsin(ρ)/2π (Sheppard 1899).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from foils.rating.estimators import ESTIMATORS, LINKS, Ratings, checked_preference, lead_variances
from foils.rating.pairs import Floats, Judgements, Pairs, Showings, parts_of
from foils.statistics.elo_scale import ELO_PER_PROBIT

USUAL, WIDTH = 1.0, 1.0  # centre of the belief about s in probits, and its standard deviation on the log scale
LEAST, MOST = 0.05, 2.0  # probits
WEAKEST = 10.0  # probits: the weakest prior in effect
_TURNS, _SETTLED = 6, 0.1  # of fit and dispersion, and the change of log φ at which they end
_ROUNDING = 1e-9
_DISTANCES = 8  # quantiles of the distances at which pairs of lists were shown
_GRID = np.exp(np.linspace(np.log(LEAST), np.log(MOST), 400))


@dataclass(frozen=True)
class Spread:
    """What answers say of their own scale.

    Attributes:
        sd: standard deviation s of the candidates' ratings, in the model's unit.
        dispersion: φ in (0, 1], the variance of an answer over that of one yes or no.
    """

    sd: float
    dispersion: float = 1.0

    @property
    def prior_sd(self) -> float:
        """The prior_sd, s/√φ, of an estimator that counts each answer as one yes or no."""
        return float(self.sd / np.sqrt(self.dispersion))


def moment(correlation: Floats, *biases: float) -> Floats:
    """Return E[(w − ½)(w′ − ½)] of two mean answers whose noisy leads have a correlation ρ.

    w is the mean of a yes or no in both orders; the first shown wins with the chance Φ(h) on average, h a bias; several
    occur equally often. It is ½∫ (exp(−h²/(1 + sin θ)) + exp(−h²/(1 − sin θ)))/2π dθ from 0 to arcsin ρ, and without a
    bias arcsin(ρ)/2π: the derivative of a normal orthant in ρ is the density at its corner (Plackett 1954).
    """
    parts = [_orthant(correlation, bias, sign) for bias in biases or (0.0,) for sign in (1.0, -1.0)]
    return np.asarray(sum(parts) / len(parts))


def _orthant(correlation: Floats, bias: float, sign: float) -> Floats:
    """∫ exp(−h²/(1 ± sin θ))/2π dθ from 0 to arcsin ρ, by Gauss and Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    half = np.arcsin(np.asarray(correlation))[..., None] / 2
    values = np.exp(-(bias**2) / (1 + sign * np.sin(half * (nodes + 1)))) / (2 * np.pi)
    return np.asarray((values * weights * half).sum(axis=-1))


def spread_of(
    pairs: Pairs, preference: npt.ArrayLike, *, model: str = "thurstone", position_bias: float = 0.0
) -> Spread:
    """Estimate the spread of the ratings of all queries together, and the dispersion of the answers.

    M = Σ (w_ij − ½)(w_ik − ½) over candidates i and the ordered pairs of their answers, over their number, estimates
    arcsin(ρ)/2π with the standard error of a mean over candidates. s is the posterior mean of log s between 0.05 and 2
    probits, given M and the belief log s ~ N(log 1, 1): 1 probit is 296 Elo points. φ is its mean over the same
    posterior, at least (s/10)², so that the prior in effect, s/√φ, is never weaker than 10 probits.

    Answers that never contradict each other tell the order, and of the spread only that it is large: it is then almost
    2 probits. Where no candidate has two answers, s is the belief's, 0.66.

    Args:
        pairs: who was compared with whom, chosen without regard to the answers.
        preference: (m,) w in [0, 1], P(first ≻ second); NaN is left out.
        model: in whose unit s is given; the moments are those of Thurstone's model.
        position_bias: how much more often than half of the time the first shown is preferred, in (−½, ½).

    Raises:
        InputError: preferences outside [0, 1], or wrong lengths.
    """
    w = checked_preference(pairs, preference)
    pairs, w = pairs.where(np.isfinite(w)), w[np.isfinite(w)]
    bias = float(ndtri(np.clip(0.5 + position_bias, 1e-3, 1 - 1e-3)))
    posterior = _posterior(*_products(pairs, w - 0.5), bias)
    s = float(np.exp(posterior @ np.log(_GRID)))
    same = 2 * shared_correlation(_GRID)
    held, single = 0.25 - moment(same, bias), ndtr(bias) * ndtr(-bias) - _orthant(same, bias, 1.0)
    left = np.maximum(held - (w * (1 - w)).mean(), 0.0) / single if len(w) else np.ones(1)
    dispersion = float(posterior @ left) if len(w) else 1.0
    unit = ELO_PER_PROBIT / LINKS[model].elo_per_unit
    return Spread(s * unit, bounded(dispersion, s))


def refined(
    pairs: Pairs,
    preference: Floats,
    spread: Spread,
    *,
    model: str = "thurstone",
    estimate: Callable[[float], Ratings] | None = None,
) -> Spread:
    """Return the spread with the dispersion that the residuals of the fitted ratings show, found by turns with the fit.

    φ = Σ (w − p)²/Σ v(1 − h), p = F(e_i − e_j) at the ratings, v = p(1 − p), both the mean of both orders where a bias
    of position is fitted, h = c_ij·v_ij the leverage of an answer, c_ij its
    Fisher information and v_ij the variance of the lead at φ = 1. Where ratings follow every answer (a cycle) residuals
    say nothing, and φ stays what it was. Yes-or-no answers have φ = 1 by themselves.

    Args:
        pairs: who was compared with whom.
        preference: (m,) w in [0, 1], all finite.
        spread: of these answers, from `spread_of`.
        model: as there.
        estimate: from a prior_sd to the ratings; None: by the estimator of the model.
    """
    for _ in range(_TURNS):
        if spread.dispersion > 1 - _ROUNDING:
            break
        before = spread.dispersion
        if estimate is None:
            ratings = ESTIMATORS[model](pairs, preference, prior_sd=spread.prior_sd, standard_errors=False)
        else:
            ratings = estimate(spread.prior_sd)
        variances, link = lead_variances(pairs, ratings, prior_sd=spread.prior_sd), ratings.link
        free = residual = 0.0
        for part in parts_of(len(pairs)):
            lead = ratings.rating[pairs.first[part]] - ratings.rating[pairs.second[part]]
            p = link.probability(lead)
            left = 1 - link.information(lead) * variances[part]
            free += float((link.variance(lead) * np.maximum(left, 0.0)).sum())
            residual += float(((preference[part] - p) ** 2).sum())
        del variances
        if free <= 0:
            break
        dispersion = residual / free
        spread = Spread(spread.sd, bounded(dispersion, spread.sd * link.elo_per_unit / ELO_PER_PROBIT))
        if abs(np.log(spread.dispersion / before)) < _SETTLED:
            break
    return spread


def order_noise(
    judgements: Judgements, fitted: Floats, dispersion: float, *, difference: Floats | None = None
) -> tuple[float, float]:
    """Return what the disagreement of both orders says of fractional answers: a factor on errors, and κ on leads.

    The two answers about a pair differ by noise alone, once the position bias, the mean difference, is taken off. So
    the mean of both has at least the dispersion φ_o = Σ d²/4 / Σ p(1 − p), d the difference and p the fitted
    preference: the factor is √(φ_o/φ), at least 1. And noise of variance σ² on the probits of single answers draws
    fitted leads towards 0 by 1/κ, κ = √(1 + σ²), σ² half the variance of the difference of the probits of both orders
    (between 0.01 and 0.99). Answers that are mostly yes or no, and judges who cannot disagree, have (1, 1).

    Args:
        judgements: of pairs, both orders.
        fitted: (m,) P(first ≻ second) by the ratings.
        dispersion: φ by the residuals.
        difference: (m,) what the bias of position adds to the first order less the second, as it is fitted; None: the
            mean difference.
    """
    one, other = judgements.forward, 1 - judgements.backward
    known = np.isfinite(one + other + fitted)
    one, other, p = one[known], other[known], fitted[known]
    inside = (np.abs(one - 0.5) < 0.49) & (np.abs(other - 0.5) < 0.49)
    if inside.sum() < 2 or inside.mean() < 0.5 or np.ptp(one - other) < _ROUNDING:
        return 1.0, 1.0
    expected = (one - other).mean() if difference is None else difference[known]
    of_orders = float(((one - other - expected) ** 2).sum() / 4 / (p * (1 - p)).sum())
    variance = float(np.var(ndtri(one[inside]) - ndtri(other[inside]))) / 2
    return float(np.sqrt(max(1.0, of_orders / dispersion))), float(np.sqrt(1 + variance))


def bounded(dispersion: float, sd: float) -> float:
    """Return φ in (0, 1] for which the prior in effect is not weaker than the weakest; sd in probits."""
    return 1.0 if dispersion > 1 - _ROUNDING else max(dispersion, (sd / WEAKEST) ** 2)


def shared_correlation(sd: Floats) -> Floats:
    """Return ρ = s²/(1 + 2s²), of the noisy leads of two pairs that share a candidate; s in probits."""
    return np.asarray(sd**2 / (1 + 2 * sd**2))


def _products(pairs: Pairs, x: Floats) -> tuple[Floats, Floats]:
    """Return (N,) sums of products of two answers about a candidate, less ½ each, and how many there are."""
    sums = np.bincount(pairs.first, x, pairs.candidates) - np.bincount(pairs.second, x, pairs.candidates)
    ends = np.append(pairs.first, pairs.second)
    squares = np.bincount(ends, np.append(x * x, x * x), pairs.candidates)
    return np.asarray(sums**2 - squares), pairs.degrees * (pairs.degrees - 1.0)


def spread_of_showings(pairs: Pairs, showings: Showings) -> float:
    """Return the spread s in probits, as `spread_of`, by products of answers that come from different showings.

    Answers of one showing share its noise, and agree more than ratings make them. What the places alone make likely is
    taken off each answer in the place of ½.

    Args:
        pairs: of candidates in lists.
        showings: of the lists. The chance that the first shown wins is Φ(κx), x the places between the two.
    """
    wins, known = showings.wins, np.isfinite(showings.wins)
    ends = np.append(pairs.first, pairs.second)

    def crossed(values: Floats, sign: float) -> Floats:
        """Σ over pairs j ≠ l of a candidate and showings k ≠ k′ of x_ijk·x_ilk′."""
        parts = np.stack([np.bincount(ends, np.append(x, sign * x), pairs.candidates) for x in values])
        same_pair = values.sum(axis=0) ** 2 - (values**2).sum(axis=0)
        apart = np.bincount(ends, np.append(same_pair, same_pair), pairs.candidates)
        return np.asarray(parts.sum(axis=0) ** 2 - (parts**2).sum(axis=0) - apart)

    x = np.abs(showings.ahead[known])
    wins_of_first = float(np.where(showings.ahead > 0, wins, 1 - wins)[known].mean())
    distances = np.quantile(x, (np.arange(_DISTANCES) + 0.5) / _DISTANCES)
    grid = np.linspace(-3, 3, 601) / distances.mean()
    kappa = grid[np.abs(ndtr(grid[:, None] * distances).mean(axis=1) - wins_of_first).argmin()]
    products = crossed(np.where(known, wins - ndtr(kappa * np.nan_to_num(showings.ahead)), 0.0), -1.0)
    counts = crossed(known.astype(np.float64), 1.0)
    return float(np.exp(_posterior(products, counts, *(kappa * distances)) @ np.log(_GRID)))


def _posterior(products: Floats, counts: Floats, *biases: float) -> Floats:
    """Return the probability of each s of the grid, given the products of answers less ½, and their number."""
    log_density = -0.5 * (np.log(_GRID / USUAL) / WIDTH) ** 2
    if counts.any():
        mean = products.sum() / counts.sum()
        most = counts[counts > 0].mean() / 4  # of one candidate, so that few candidates that agree do not look certain
        error = np.sqrt(((products - mean * counts) ** 2).sum() + most**2) / counts.sum()
        log_density -= 0.5 * ((mean - moment(shared_correlation(_GRID), *biases)) / error) ** 2
    weight = np.exp(log_density - log_density.max())
    return np.asarray(weight / weight.sum())
