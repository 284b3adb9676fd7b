"""From answers to ratings and gaps: the prior that fits them, the bias of position, errors that cover, and offsets.

**The prior.** With ratings e ~ N(0, s²) in probits, the lead of a pair is N(0, 2s²), and the leads
of two pairs that share a candidate correlate with ρ = s²/(1 + 2s²) once the noise of Thurstone's
answers is added. So for any answers w with the mean P(i ≻ j), independent from pair to pair,

    E[(w_ij − ½)(w_ik − ½)] = arcsin(ρ)/2π,     E[p(1 − p)] = ¼ − arcsin(2ρ)/2π,

and the dispersion φ = Var(w | p)/(p(1 − p)) = 1 − E[w(1 − w)]/E[p(1 − p)]: 1 for yes-or-no answers,
1/v for the mean of v votes, 0 for an answer that is the probability itself. Residuals of ratings
that are fitted with these say φ better where answers are fractions and more than the ratings need.
Source: the orthant probability of two normals with correlation ρ, ¼ + arcsin(ρ)/2π (Sheppard 1899).

**Lists.** Answers about the pairs of a list come from the same few showings of it. They are not
independent: their errors are taken from the variance between the showings, so that more pairs of
the same showings claim nothing more.

**Between queries.** The ratings of a query have mean 0 whatever its candidates are worth, so that a
query without a relevant document looks like one with many. A few of its candidates are compared
with candidates of other queries, each as an answer to its own query. With e the ratings within
queries and b the offsets,

    P((q, i) ≻ (r, j)) = F(e_qi + b_q − e_rj − b_r),

and b is the maximum a posteriori of all queries together, e being known and b ~ N(0, s_b²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from foils.rating.estimators import (
    LINKS,
    Link,
    Ratings,
    checked_preference,
    covariance,
    lead_errors,
    lead_variances,
    maximum,
    order_biased,
)
from foils.rating.pairs import Candidates, Floats, Judgements, Pairs, Rows, Showings, block_of
from foils.statistics.elo_scale import ELO_PER_PROBIT

# centre of the belief about s in probits, and its standard deviation on the log scale
USUAL, WIDTH = 1.0, 1.0
LEAST, MOST = 0.05, 2.0  # probits
WEAKEST = 10.0  # probits: the weakest prior in effect
_REFINED, _SETTLED = 6, 0.1  # of fit and dispersion, and the change of log φ at which they end
_ROUNDING = 1e-9
_DISTANCES = 8  # quantiles of the distances at which pairs of lists were shown
_GRID = np.exp(np.linspace(np.log(LEAST), np.log(MOST), 400))


@dataclass(frozen=True)
class Spread:
    """What answers say of their own scale.

    Attributes:
        sd: standard deviation s of the candidates' ratings, in the model's unit.
        dispersion: φ in (0, 1], the variance of an answer over that of one yes or no.
        information: ι in (0, 1], the share of its Fisher information that an answer keeps under a bias
            of position; 1 without one.
    """

    sd: float
    dispersion: float = 1.0
    information: float = 1.0

    @property
    def prior_sd(self) -> float:
        """The prior_sd, s/√(φι), of an estimator that counts each answer as one yes or no.

        By ι the prior is as much weaker as the answers are, so that it draws gaps together no more
        under a bias of position than without one.
        """
        return float(self.sd / np.sqrt(self.dispersion * self.information))


def moment(correlation: Floats, *biases: float) -> Floats:
    """Return E[(w − ½)(w′ − ½)] of two mean answers whose noisy leads have a correlation ρ.

    w is the mean of a yes or no in both orders; the first shown wins with the chance Φ(h) on
    average, h a bias; several occur equally often. It is ½∫ (exp(−h²/(1 + sin θ)) + exp(−h²/(1 −
    sin θ)))/2π dθ from 0 to arcsin ρ, and without a bias arcsin(ρ)/2π: the derivative of a normal
    orthant in ρ is the density at its corner (Plackett 1954).
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

    M = Σ (w_ij − ½)(w_ik − ½) over candidates i and the ordered pairs of their answers, over their
    number, estimates arcsin(ρ)/2π with the standard error of a mean over candidates. s is the
    posterior mean of log s between 0.05 and 2 probits, given M and the belief log s ~ N(log 1, 1):
    1 probit is 296 Elo points. φ is its mean over the same posterior, at least (s/10)², so that the
    prior in effect, s/√φ, is never weaker than 10 probits.

    Answers that never contradict each other tell the order, and of the spread only that it is
    large: it is then almost 2 probits. Where no candidate has two answers, s is the belief's, 0.66.

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


def refined(pairs: Pairs, preference: Floats, spread: Spread, estimate: Callable[[float], Ratings]) -> Spread:
    """Return the spread with the dispersion that the residuals of the fitted ratings show, found by turns with the fit.

    φ = Σ (w − p)²/Σ v(1 − h), p = F(e_i − e_j) at the ratings, v = p(1 − p), both the mean of both
    orders where a bias of position is fitted, h = c_ij·v_ij the leverage of an answer, c_ij its
    Fisher information and v_ij the variance of the lead at φ = 1. Where ratings follow every answer
    (a cycle) residuals say nothing, and φ stays what it was. Yes-or-no answers have φ = 1 by
    themselves.

    Args:
        pairs: who was compared with whom.
        preference: (m,) w in [0, 1], all finite.
        spread: of these answers, from `spread_of`.
        estimate: from a prior_sd to the ratings.
    """
    for _ in range(_REFINED):
        if spread.dispersion > 1 - _ROUNDING:
            break
        before, ratings = spread.dispersion, estimate(spread.prior_sd)
        variances, link = lead_variances(pairs, ratings, prior_sd=spread.prior_sd), ratings.link
        lead = ratings.rating[pairs.first] - ratings.rating[pairs.second]
        left = 1 - link.information(lead) * variances
        free = float((link.variance(lead) * np.maximum(left, 0.0)).sum())
        residual = float(((preference - link.probability(lead)) ** 2).sum())
        if free <= 0:
            break
        dispersion = residual / free
        spread = Spread(spread.sd, bounded(dispersion, spread.sd * link.elo_per_unit / ELO_PER_PROBIT))
        if abs(np.log(spread.dispersion / before)) < _SETTLED:
            break
    return spread


def order_noise(judgements: Judgements, fitted: Floats, dispersion: float, difference: Floats) -> tuple[float, float]:
    """Return what the disagreement of both orders says of fractional answers: a factor on errors, and κ on leads.

    The two answers about a pair differ by noise alone, once the position bias is taken off. So the
    mean of both has at least the dispersion φ_o = Σ d²/4 / Σ p(1 − p), d the difference and p the
    fitted preference: the factor is √(φ_o/φ), at least 1. And noise of variance σ² on the probits
    of single answers draws fitted leads towards 0 by 1/κ, κ = √(1 + σ²), σ² half the variance of
    the difference of the probits of both orders (between 0.01 and 0.99). Answers that are mostly
    yes or no, and judges who cannot disagree, have (1, 1).

    Args:
        judgements: of pairs, both orders.
        fitted: (m,) P(first ≻ second) by the ratings.
        dispersion: φ by the residuals.
        difference: (m,) what the bias of position adds to the first order less the second, as it is fitted.
    """
    one, other = judgements.forward, 1 - judgements.backward
    known = np.isfinite(one + other + fitted)
    one, other, p = one[known], other[known], fitted[known]
    inside = (np.abs(one - 0.5) < 0.49) & (np.abs(other - 0.5) < 0.49)
    if inside.sum() < 2 or inside.mean() < 0.5 or np.ptp(one - other) < _ROUNDING:
        return 1.0, 1.0
    of_orders = float(((one - other - difference[known]) ** 2).sum() / 4 / (p * (1 - p)).sum())
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

    Answers of one showing share its noise, and agree more than ratings make them. What the places
    alone make likely is taken off each answer in the place of ½.

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
        # of one candidate, so that few candidates that agree do not look certain
        most = counts[counts > 0].mean() / 4
        error = np.sqrt(((products - mean * counts) ** 2).sum() + most**2) / counts.sum()
        log_density -= 0.5 * ((mean - moment(shared_correlation(_GRID), *biases)) / error) ** 2
    weight = np.exp(log_density - log_density.max())
    return np.asarray(weight / weight.sum())


_TURNS = 3  # of fit and dispersion of showings
_AT_ONCE = 1_000_000  # cells of covariances


@dataclass(frozen=True)
class Fit:
    """Ratings, and what they were fitted to.

    Attributes:
        ratings: with standard errors that count the dispersion.
        spread: of the ratings, and the dispersion of the answers.
        pairs: that have answers in both orders.
        answers: about them; `Showings` where some come from lists.
    """

    ratings: Ratings
    spread: Spread
    pairs: Pairs
    answers: Judgements | Showings

    def gaps(self, reference: Rows) -> Floats:
        """Return (N,) e_reference − e_d in Elo points; NaN where the two cannot be compared.

        Args:
            reference: (Q,) a candidate of each query.
        """
        ratings, of = self.ratings, np.repeat(reference, self.pairs.sizes)
        return np.where(ratings.component[of] == ratings.component, ratings.elo[of] - ratings.elo, np.nan)

    def gap_errors(self, reference: Rows, gap: Floats) -> Floats:
        """Return (N,) the errors of gaps, √((f·se)² + ((κ − 1)·gap)² + δ²).

        f and κ by `order_noise`, se that of the lead, and δ what the gap changes by when the bias
        of position does by its standard error.
        """
        ratings, spread = self.ratings, self.spread
        lead = ratings.rating[self.pairs.first] - ratings.rating[self.pairs.second]
        link, bias = ratings.link, ratings.order_bias
        factor, shrunken, moved = 1.0, 1.0, np.zeros(1)
        if isinstance(self.answers, Judgements):
            one = LINKS[ratings.model].probability
            difference = one(lead + bias) - one(lead - bias)
            fitted = link.probability(lead)
            factor, shrunken = order_noise(self.answers, fitted, spread.dispersion, difference)
        if bias:
            other = order_biased(
                self.pairs,
                self.answers,
                model=ratings.model,
                prior_sd=spread.prior_sd,
                standard_errors=False,
                bias=bias + ratings.order_bias_error * spread.dispersion**0.5,
            )
            moved = replace(self, ratings=other).gaps(reference) - gap
        errors = lead_errors(self.pairs, ratings, reference, prior_sd=spread.prior_sd) * spread.dispersion**0.5
        squares = (shrunken * factor * errors) ** 2 + ((shrunken - 1) * gap) ** 2 + moved**2
        return np.asarray(np.sqrt(squares))


def fit_ratings(
    pairs: Pairs,
    answers: Judgements | Showings,
    *,
    model: str = "thurstone",
    spread: Spread | None = None,
) -> Fit:
    """Fit ratings to answers, with one bias of position where both orders disagree (`order_biased`).

    Args:
        pairs: that were asked about.
        answers: about them, `Showings` where some come from lists; pairs that lack an order are left out.
        model: `thurstone` or `bradley-terry`.
        spread: of the ratings, in the model's unit, as an earlier fit found it; None: as it fits the
            answers (`spread_of`, `refined`, and of lists `spread_of_showings`, `showing_dispersion`).
    """
    known = np.isfinite(answers.preference)
    judged, answers = pairs.where(known), answers.where(known)

    def estimate(sd: float) -> Ratings:
        return order_biased(judged, answers, model=model, prior_sd=sd, standard_errors=False)

    if spread is None:
        if isinstance(answers, Showings):
            spread = _spread_of_lists(judged, answers, model, estimate)
        else:
            bias = answers.position_bias if len(judged) else 0.0
            first = spread_of(judged, answers.preference, model=model, position_bias=bias)
            spread = refined(judged, answers.preference, first, estimate)
        spread = replace(spread, information=information_kept(judged, estimate(spread.prior_sd)))
    ratings = order_biased(judged, answers, model=model, prior_sd=spread.prior_sd)
    scaled = replace(ratings, standard_error=spread.dispersion**0.5 * ratings.standard_error)
    return Fit(scaled, spread, judged, answers)


def information_kept(pairs: Pairs, ratings: Ratings) -> float:
    """Return ι, the mean Fisher information of the pairs' answers over that of answers without a bias of position."""
    if not ratings.order_bias:
        return 1.0
    lead = ratings.rating[pairs.first] - ratings.rating[pairs.second]
    return float(ratings.link.information(lead).mean() / LINKS[ratings.model].information(lead).mean())


def _spread_of_lists(pairs: Pairs, showings: Showings, model: str, estimate: Callable[[float], Ratings]) -> Spread:
    """Spread by products of answers from different showings, dispersion by the variance between the showings."""
    unit = ELO_PER_PROBIT / LINKS[model].elo_per_unit
    sd = spread_of_showings(pairs, showings) * unit
    dispersion = 1.0
    for _ in range(_TURNS):
        used = sd / dispersion**0.5
        between_showings = showing_dispersion(pairs, showings, estimate(used), prior_sd=used)
        dispersion = max(between_showings, (sd / unit / WEAKEST) ** 2)
    return Spread(sd, dispersion)


def showing_dispersion(pairs: Pairs, showings: Showings, ratings: Ratings, *, prior_sd: float) -> float:
    """Return φ, the variance of gaps between showings over that of independent answers, one for each pair.

    With g_k the gradient of showing k's log-likelihood at the ratings and C their covariance, a gap
    c'e moves by c'C(g_k − ḡ) with a showing: its variance is Σ_k (c'C(g_k − ḡ))²/(K(K − 1)).
    Independent answers would give c'(C − C²/s²)c. φ is the sum of the first over that of the
    second, over the gaps of all candidates to the last one of their query.

    Source: the sandwich of Huber 1967 and White 1982 by clusters; one factor for all, since a query
    has few showings.
    """
    link, single, count = ratings.link, LINKS[ratings.model], len(showings.wins)
    distance = float(np.abs(showings.ahead[np.isfinite(showings.wins)]).mean())
    precision, between, within = 1 / prior_sd**2, 0.0, 0.0
    for block in pairs.blocks(_AT_ONCE):
        rating = np.nan_to_num(ratings.rating[block.at])
        shape, n = rating.shape, rating.shape[1]
        lower = covariance(block, rating, link, precision=precision)
        whole = np.tril(lower) + np.tril(lower, -1).transpose(0, 2, 1)
        whole = np.where(np.isfinite(whole), whole, 0.0)
        first, second = block.query * n + block.first, block.query * n + block.second
        moves = []
        for wins, ahead in zip(showings.wins[:, block.pairs], showings.ahead[:, block.pairs], strict=True):
            known = np.isfinite(wins)
            lead = block.lead(rating) + ratings.order_bias * np.where(known, ahead, 0.0) / distance
            slope = np.where(known, single.terms(lead, np.where(known, wins, 0.5)).slope, 0.0)
            size = shape[0] * n
            gradient = (np.bincount(first, slope, size) - np.bincount(second, slope, size)).reshape(shape)
            moved = np.einsum("bij,bj->bi", whole, gradient)
            moves.append(moved[:, -1:] - moved)
        moves_of = np.stack(moves)
        between += float(((moves_of - moves_of.mean(axis=0)) ** 2).sum()) / (count * (count - 1))
        sampling = whole - precision * np.einsum("bij,bjk->bik", whole, whole)
        variance = np.diagonal(sampling, axis1=1, axis2=2)
        within += float((variance + variance[:, -1:] - 2 * sampling[:, -1, :]).sum())
    return between / within if within > 0 else 1.0


_TURNS_BETWEEN = 20  # of fit and dispersion, and the change of log φ at which they end


@dataclass(frozen=True)
class Offsets:
    """What comparisons between queries say.

    Attributes:
        offset: (Q,) b of each query in Elo points, mean 0 over those compared with each other; NaN
            for a query that no answer names.
        comparisons: asked for.
        missing: of them without an answer.
        unreached: queries with ratings that no answer names, which have no offset.
        spread: standard deviation s_b of offsets in Elo points, as the answers have it.
    """

    offset: Floats
    comparisons: int
    missing: int
    unreached: int
    spread: float


def fit_offsets(candidates: Candidates, pairs: Rows, preference: Floats, ratings: Ratings) -> Offsets:
    """Return the offsets of queries: argmax_b Σ w log F(L + b_q − b_r) + (1 − w) log F(−L − b_q + b_r) − φΣ b²/(2s_b²).

    L = e_qi − e_rj is known from the ratings. s_b comes from the answers as `spread_of` has it,
    whose moments hold with candidates drawn anew for each comparison: leads of two comparisons of
    one query then share b_q alone, and s_b = s√(1 + 2s_e²), s the spread that `spread_of` sees and
    s_e² the mean square of the ratings that were compared, in probits. The dispersion is that of
    the residuals, φ = Σ (w − p)²/Σ p(1 − p) · m/(m − Σ_q I_q/(I_q + φ/s_b²)), I_q the Fisher
    information about b_q, found by turns with the fit. Errors of the ratings pull offsets towards 0
    somewhat.

    Args:
        candidates: that were compared.
        pairs: (m, 2) of them, as `pairs_between` draws them.
        preference: (m,) w in [0, 1]; NaN: no answer.
        ratings: within queries.
    """
    link, queries = LINKS[ratings.model], len(candidates.query_ids)
    known = np.isfinite(preference)
    rated = np.unique(candidates.query_of(np.flatnonzero(np.isfinite(ratings.rating))))
    if not known.any():
        return Offsets(np.full(queries, np.nan), len(pairs), len(pairs), len(rated), float("nan"))
    compared, w = pairs[known], preference[known]
    rating, per_probit = ratings.rating[compared], ELO_PER_PROBIT / link.elo_per_unit
    over = Pairs(np.array([0, queries]), *candidates.query_of(compared).T)
    within = float((rating**2).mean()) / per_probit**2
    sd, lead = spread_of(over, w).sd * np.sqrt(1 + 2 * within), rating[:, 0] - rating[:, 1]
    belief = Spread(sd * per_probit)
    for _ in range(_TURNS_BETWEEN):
        before, offset = belief.dispersion, fitted_offsets(over, w, link, lead, belief)
        whole = lead + offset[over.first] - offset[over.second]
        p, information = link.probability(whole), link.information(whole)
        of_query = np.bincount(np.append(over.first, over.second), np.append(information, information), queries)
        used = float((of_query / (of_query + 1 / belief.prior_sd**2)).sum())
        expected = float((p * (1 - p)).sum()) * max(1 - used / len(w), 0.0)
        dispersion = float(((w - p) ** 2).sum()) / expected if expected > 0 else before
        belief = Spread(belief.sd, bounded(dispersion, sd))
        if abs(np.log(belief.dispersion / before)) < _SETTLED:
            break
    return Offsets(
        offset=offset * link.elo_per_unit,
        comparisons=len(pairs),
        missing=int((~known).sum()),
        unreached=int(np.isnan(offset[rated]).sum()),
        spread=float(sd * ELO_PER_PROBIT),
    )


def fitted_offsets(over: Pairs, w: Floats, link: Link, lead: Floats, belief: Spread) -> Floats:
    """Return the offsets that a belief leads to, in the model's unit: (Q,), NaN where no answer names a query."""
    offset, _ = maximum(block_of(over, np.zeros(1, np.int64)), w, link, 1 / belief.prior_sd**2, lead)
    return np.where(over.degrees > 0, offset[0], np.nan)
