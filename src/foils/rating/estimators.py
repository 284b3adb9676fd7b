"""Ratings from pairwise judgements: Thurstone and Bradley–Terry by one Newton's method, and online Elo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import lapack
from scipy.special import erfcx, expit, ndtr
from threadpoolctl import threadpool_limits

from foils.rating.pairs import Block, Floats, Judgements, Marks, Pairs, Rows, Showings, block_of
from foils.runtime import memory, progress
from foils.runtime.errors import ConvergenceError, InputError
from foils.runtime.parallel import map_shards
from foils.statistics.elo_scale import BASE, ELO_PER_LOGIT, ELO_PER_PROBIT, expected_score


def online_elo(pairs: Pairs, preference: npt.ArrayLike, *, k_factor: float = 32.0) -> Floats:
    """Return (N,) ratings after R_A += K(S − E), R_B −= K(S − E) for each pair in turn (eqs. 26–27).

    The result depends on the order of the pairs, never settles while K is constant, and has no
    standard error; the estimators `thurstone` and `bradley_terry` have none of these faults.

    Args:
        pairs: who met whom; each query's pairs in the order in which they were judged.
        preference: (m,) S in [0, 1], P(first ≻ second); NaN: missing, changes nothing.
        k_factor: K in Elo points, above 0: larger forgets faster.

    Raises:
        InputError: preferences outside [0, 1], wrong lengths, or a K that is not above 0.
    """
    outcomes = checked_preference(pairs, preference)
    if not k_factor > 0:
        raise InputError(f"k_factor {k_factor}; expected a number of Elo points above 0, often 16 to 32")
    ratings = np.full(pairs.candidates, BASE)
    for first, second, outcome in zip(pairs.first, pairs.second, outcomes, strict=True):
        if np.isfinite(outcome):
            change = k_factor * (outcome - expected_score(ratings[first] - ratings[second]))
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
        first = f"(first: {values[wrong][0]!r})"
        raise InputError(f"{int(wrong.sum())} preferences are outside [0, 1] {first}; NaN stands for none")
    return values


@dataclass(frozen=True)
class Terms:
    """Per judgement: the log-likelihood, its slope in Δ, minus its second derivative; (m,) each."""

    value: Floats
    slope: Floats
    curvature: Floats


@dataclass(frozen=True)
class Link:
    """A model of preference.

    Attributes:
        name: of the model.
        elo_per_unit: Elo points in one unit of its ratings, a probit or a logit.
        single: F, from a lead Δ to the chance to be preferred in one showing.
        terms: (Δ, w) -> Terms.
        fisher: Δ -> F′(Δ)²/(F(Δ)F(−Δ)), the Fisher information of one such judgement about Δ.
        biases: β of each way in which a pair is shown, by which the first one leads; each is shown
            turned, too. All answers about a pair count together as one judgement, their mean.
    """

    name: str
    elo_per_unit: float
    single: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats], Terms]
    fisher: Callable[[Floats], Floats]
    biases: tuple[float, ...] = ()

    def probability(self, lead: Floats) -> Floats:
        """Return the mean of F(Δ ± β) over the ways in which pairs are shown."""
        return self._mean(self.single, lead)

    def information(self, lead: Floats) -> Floats:
        """Return the mean Fisher information over these ways."""
        return self._mean(self.fisher, lead)

    def variance(self, lead: Floats) -> Floats:
        """Return the mean of F(Δ)F(−Δ), the variance of one yes or no, over these ways."""
        return self._mean(lambda shown: self.single(shown) * self.single(-shown), lead)

    def _mean(self, function: Callable[[Floats], Floats], lead: Floats) -> Floats:
        ways = (*self.biases, *(-bias for bias in self.biases)) or (0.0,)
        return np.asarray(sum(function(lead + bias) for bias in ways) / len(ways))


def mills(x: Floats) -> Floats:
    """Return λ(x) = φ(x)/Φ(x) as √(2/π)/erfcx(−x/√2), exact far into both tails (Algorithm 1's λ)."""
    with np.errstate(over="ignore"):
        return np.asarray(sqrt(2 / pi) / erfcx(np.asarray(x) / -sqrt(2)))


def thurstone_terms(lead: Floats, preference: Floats) -> Terms:
    """Return the terms of w log Φ(Δ) + (1 − w) log Φ(−Δ) (eq. 30).

    With a = |Δ|, w for the leader, and h = erfcx(a/√2)/2: Φ(−a) = h·exp(−a²/2), so that log Φ(−a) =
    log h − a²/2, log Φ(a) = log1p(−Φ(−a)) and λ(−a) = 1/(h√(2π)) lose no digits in either tail.
    Slope w λ(a) − (1 − w) λ(−a), curvature w λ(a)(λ(a) + a) + (1 − w) λ(−a)(λ(−a) − a).
    """
    a = np.abs(lead)
    w = np.where(lead >= 0, preference, 1 - preference)
    half = 0.5 * erfcx(a / sqrt(2))
    bell = np.exp(-0.5 * a * a)
    tail = half * bell
    ahead, behind = bell / (sqrt(2 * pi) * (1 - tail)), 1 / (sqrt(2 * pi) * half)
    value = w * np.log1p(-tail) + (1 - w) * (np.log(half) - 0.5 * a * a)
    slope = w * ahead - (1 - w) * behind
    curvature = w * ahead * (ahead + a) + (1 - w) * behind * (behind - a)
    return Terms(value, np.where(lead >= 0, slope, -slope), curvature)


def bradley_terry_terms(lead: Floats, preference: Floats) -> Terms:
    """Return the terms of w log σ(Δ) + (1 − w) log σ(−Δ) (eq. 22).

    With a = |Δ| and w for the leader: value −log(1 + e^(−a)) − (1 − w)a, slope w σ(−a) − (1 −
    w)σ(a) = w − σ(a), in the form that keeps its digits when w = 1 and a is large; curvature
    σ(a)σ(−a).
    """
    a = np.abs(lead)
    w = np.where(lead >= 0, preference, 1 - preference)
    small = np.exp(-a)
    ahead, behind = 1 / (1 + small), small / (1 + small)
    slope = w * behind - (1 - w) * ahead
    return Terms(-np.log1p(small) - (1 - w) * a, np.where(lead >= 0, slope, -slope), ahead * behind)


THURSTONE = Link(
    "thurstone",
    ELO_PER_PROBIT,
    lambda lead: np.asarray(ndtr(lead)),
    thurstone_terms,
    lambda lead: mills(lead) * mills(-np.asarray(lead)),  # φ²/(Φ(Δ)Φ(−Δ)), eqs. 44–45, A.5
)
BRADLEY_TERRY = Link(
    "bradley-terry",
    ELO_PER_LOGIT,
    lambda lead: np.asarray(expit(lead)),
    bradley_terry_terms,
    lambda lead: np.asarray(expit(lead) * expit(-np.asarray(lead))),
)
LINKS = {link.name: link for link in (THURSTONE, BRADLEY_TERRY)}


_CANDIDATES = 20_000  # fitted together
_CELLS = 1_000_000
_CELL = 64  # bytes that a cell of an information matrix takes, with what it is made from
_STEPS, _HALVINGS = 100, 40
_SETTLED = 1e-8  # no rating moves by more than this in the last Newton step
_TURNS, _BIAS_SETTLED = 12, 1e-4  # of ratings and bias, and the change of the bias at which they end
_DISTANCES = 8  # quantiles of the distances at which pairs of lists were shown
_AGREE = 1e-12  # by which both orders of a pair may differ where they say the same
_WIDEST_BIAS = 10.0  # spread of the prior on β, which holds it where the first shown always wins
_SLACK = 1e-13  # of the log-posterior, which rounding may lower
_ROUNDING = 1e-15  # of a gradient, by the root of the squared degrees
_SINGULAR = 1e12  # condition from which nothing is known
_NULL = 1e-13  # curvature of a direction, by that of its candidates, from which on it is rounding alone


@dataclass(frozen=True)
class Ratings:
    """How good each candidate is, with its error.

    Attributes:
        model: `thurstone` or `bradley-terry`.
        rating: (N,) e in the model's unit (probits, logits), of mean 0 over each connected
            component of judged pairs; NaN for a candidate that no judgement names.
        standard_error: (N,) of e, in the same unit; NaN where the rating is, or where none was asked for.
        component: (N,) the first candidate of the connected component: those of two cannot be compared.
        order_bias: β, by which the document that is shown first leads, in the same unit; 0 where it
            was not fitted.
        order_bias_error: its standard error.
        distances: how far apart pairs were shown, as shares of the mean, each as often; (1,): all alike.
    """

    model: str
    rating: Floats
    standard_error: Floats
    component: Rows
    order_bias: float = 0.0
    order_bias_error: float = 0.0
    distances: tuple[float, ...] = (1.0,)

    @property
    def link(self) -> Link:
        """The model of an answer, or of the mean of both orders where a bias of position was fitted."""
        link = LINKS[self.model]
        biases = tuple(self.order_bias * each for each in self.distances) if self.order_bias else ()
        return replace(link, biases=biases)

    @property
    def elo(self) -> Floats:
        """(N,) ratings in Elo points, of mean 1500."""
        return BASE + LINKS[self.model].elo_per_unit * self.rating

    @property
    def elo_error(self) -> Floats:
        """(N,) standard errors in Elo points."""
        return LINKS[self.model].elo_per_unit * self.standard_error


def _estimate(
    pairs: Pairs,
    preference: npt.ArrayLike,
    link: Link,
    prior_sd: float,
    standard_errors: bool,
    known_lead: Floats | float = 0.0,
) -> Ratings:
    """Fit every query's ratings, block by block; `thurstone` and `bradley_terry` say what the arguments mean.

    `known_lead`, (m,) or one number, is added to the leads of the pairs.
    """
    preference = checked_preference(pairs, preference)
    if not prior_sd > 0:
        raise InputError(f"prior_sd {prior_sd}: expected above 0, inf for no prior")
    known = np.isfinite(preference)
    judged, w, precision = pairs.where(known), preference[known], 1 / prior_sd**2
    (rating, error), component = np.full((2, pairs.candidates), np.nan), np.arange(pairs.candidates)
    failed = np.zeros(pairs.queries, bool)
    added = np.broadcast_to(known_lead, len(pairs))[known]

    def fitted(block: Block) -> tuple[Block, Floats, Rows, Marks]:
        e, settled = maximum(block, w[block.pairs], link, precision, added[block.pairs])
        label = _components(block)
        first = np.unique(label, return_index=True)[1][label].reshape(e.shape)
        mean = (np.bincount(label, e.ravel()) / np.bincount(label))[label].reshape(e.shape)
        return block, e - mean, block.at.ravel()[first], settled

    with progress.task("rating", judged.queries, "queries") as advance:
        for block, e, of, settled in map_shards(fitted, judged.blocks(_CANDIDATES, each=1)):
            rating[block.at], component[block.at], failed[block.queries] = e, of, ~settled
            advance(len(block.queries))
    if standard_errors or not precision:
        error = _errors(judged, rating, link, precision)
        failed |= np.logical_or.reduceat(np.append(np.isinf(error), False), pairs.offsets[:-1]) & (pairs.sizes > 0)
        error = error if standard_errors else np.full_like(error, np.nan)
    if failed.any():
        raise ConvergenceError(
            f"the ratings of {failed.sum()} of {pairs.queries} queries did not settle in {_STEPS} Newton steps; "
            "without a prior a candidate that wins or loses everything has no finite rating: give a finite prior_sd"
        )
    rating[judged.degrees == 0] = error[judged.degrees == 0] = np.nan
    return Ratings(link.name, rating, error, component)


def _errors(judged: Pairs, rating: Floats, link: Link, precision: float) -> Floats:
    """(N,) standard errors of ratings, inf in a query about which too little is known."""

    def erring(block: Block) -> tuple[Block, Floats]:
        spread = covariance(block, rating[block.at], link, precision=precision)
        return block, np.maximum(np.diagonal(spread, axis1=1, axis2=2), 0.0)

    errors = np.full(judged.candidates, np.nan)
    for block, variance in map_shards(erring, judged.blocks(memory.rows_at_once(_CELL, most=_CELLS))):
        errors[block.at] = np.sqrt(variance)
    return errors


def order_biased(
    pairs: Pairs,
    answers: Judgements | Showings,
    *,
    model: str = "thurstone",
    prior_sd: float = 10.0,
    standard_errors: bool = True,
    bias: float | None = None,
) -> Ratings:
    """Return ratings and one bias of position, fitted together.

    argmax over e and β of (1/K) Σ_k Σ w_k log F(Δ + βx_k) + (1 − w_k) log F(−Δ − βx_k) − Σ e²/(2 prior_sd²),

    Δ = e_i − e_j and w_k what showing k of a pair says of i ≻ j. Of a pair that is shown in both
    orders K = 2, w = (f, 1 − b) and x = (1, −1). Of a list, x is by how many places i stood before
    j, over the mean of |x|. Averaging the answers instead fits the mean of F(Δ ± β), which is
    flatter than F(Δ), by F alone, and draws gaps towards 0. All answers about a pair count as one,
    so that without a bias the ratings are those of the mean answers; where both orders of every
    pair agree, β is 0.

    e and β are fitted by turns, each by Newton's method: the likelihood is concave, since log F is
    and its argument is linear in both. The standard error of β is 1/√h, h the curvature in β at the
    fitted ratings.

    Args:
        pairs: who was compared with whom.
        answers: about the pairs; a pair that lacks an order is left out.
        model: `thurstone` or `bradley-terry`.
        prior_sd: as in `thurstone`.
        standard_errors: compute them.
        bias: β, where it is known; None: it is fitted.

    Raises:
        ConvergenceError, InputError: as `thurstone`.
    """
    link, (w, x) = LINKS[model], answers.observations()
    preference, count = np.where(np.isfinite(answers.preference), answers.preference, np.nan), len(w)
    known = np.isfinite(preference)
    w = np.where(known, w, np.nan)
    answered = np.isfinite(w)
    if not known.any() or np.abs((w - preference)[answered]).max() < _AGREE:
        return _estimate(pairs, preference, link, prior_sd, standard_errors)
    order = np.argsort(np.tile(pairs.query, count), kind="stable")
    every = pairs.at(order % len(pairs))
    scale = float(np.abs(x[answered]).mean())
    w, x = w.ravel()[order], np.nan_to_num(x.ravel()[order]) / scale

    def rated(beta: float) -> Ratings:
        return _estimate(every, w, link, prior_sd / sqrt(count), False, beta * x)

    if bias is not None:
        return rated(bias)
    beta, curvature, answered = 0.0, 1.0, np.isfinite(w)
    ratings = _estimate(pairs, preference, link, prior_sd, False)
    for _ in range(_TURNS):
        lead, before = (ratings.rating[every.first] - ratings.rating[every.second])[answered], beta
        for _ in range(_STEPS):
            terms = link.terms(lead + beta * x[answered], w[answered])
            curvature = float((terms.curvature * x[answered] ** 2).sum()) + count / _WIDEST_BIAS**2
            step = (float((x[answered] * terms.slope).sum()) - count * beta / _WIDEST_BIAS**2) / curvature
            beta += float(np.clip(step, -1, 1))
            if abs(step) < _SETTLED:
                break
        ratings = rated(beta)
        if abs(beta - before) < _BIAS_SETTLED:
            break
    shares = np.quantile(np.abs(x[answered]), (np.arange(_DISTANCES) + 0.5) / _DISTANCES)
    distances = (1.0,) if np.ptp(shares) < _AGREE else tuple(shares.tolist())
    error, judged = ratings.standard_error, pairs.where(known)
    biased = replace(ratings, order_bias=beta, order_bias_error=sqrt(count / curvature), distances=distances)
    if standard_errors:
        error = _errors(judged, ratings.rating, biased.link, 1 / prior_sd**2)
        error[np.isnan(ratings.rating)] = np.nan
    return replace(biased, standard_error=error)


def maximum(
    block: Block, w: Floats, link: Link, precision: float, known_lead: Floats | float = 0.0
) -> tuple[Floats, Marks]:
    """Return (B, n) the maximum of each query's log-posterior by Newton's method, and (B,) whether it settled there.

    The log-posterior Σ w log F(Δ) + (1 − w) log F(−Δ) − Σ e²/(2s²), Δ = e_i − e_j + what is known,
    is concave, with the Hessian −(L + 1/s²), L the Laplacian weighted by the curvature of each
    judgement. Conjugate gradients solve the systems of all queries together; a step is halved where
    it leads down, and a query stays where it has settled.

    Args:
        block: the queries and their pairs.
        w: (p,) of its pairs, all finite.
        link: the model.
        precision: 1/s² of the Gaussian prior, 0 for none.
        known_lead: (p,) what is known of each pair's lead, or one number for all.
    """
    shape, n = block.at.shape, block.at.shape[1]
    first, second = block.query * n + block.first, block.query * n + block.second
    laplacian = _Laplacian(first, second, shape, precision)
    e = np.zeros(shape)

    def evaluated(e: Floats) -> tuple[Terms, Floats]:
        terms = link.terms(e.ravel()[first] - e.ravel()[second] + known_lead, w)
        return terms, np.bincount(block.query, terms.value, len(e)) - 0.5 * precision * np.einsum("bn,bn->b", e, e)

    terms, posterior = evaluated(e)
    settled = np.zeros(len(e), bool)
    for _ in range(_STEPS):
        slopes = np.bincount(first, terms.slope, e.size) - np.bincount(second, terms.slope, e.size)
        gradient = np.where(settled[:, None], 0.0, slopes.reshape(shape) - precision * e)
        step = laplacian.solve(gradient, terms.curvature)
        length = np.ones((len(e), 1))
        for _ in range(_HALVINGS):
            candidate = e + length * step
            new_terms, new_posterior = evaluated(candidate)
            worse = ~(new_posterior >= posterior - _SLACK * np.abs(posterior))
            if not worse.any():
                break
            length[worse] /= 2
        e, terms, posterior = candidate, new_terms, new_posterior
        settled |= (np.abs(step).max(axis=1, initial=0) <= _SETTLED) & np.isfinite(posterior)
        if settled.all():
            break
    return e, settled


class _Laplacian:
    """L + 1/s² of all queries of a block, by the curvature of each pair: sparse, and solved by conjugate gradients."""

    def __init__(self, first: Rows, second: Rows, shape: tuple[int, int], precision: float) -> None:
        ends = np.concatenate([first, second])
        by_candidate = sparse.csc_array(  # one column an end: turning it round sorts the ends by candidate
            (np.ones(len(ends), np.int8), ends, np.arange(len(ends) + 1)), shape=(shape[0] * shape[1], len(ends))
        ).tocsr()
        others = np.concatenate([second, first])[by_candidate.indices]
        self.pair, self.precision, self.shape = by_candidate.indices % max(len(first), 1), precision, shape
        self.weights = sparse.csr_array(
            (np.zeros(len(ends)), others, by_candidate.indptr), shape=(shape[0] * shape[1],) * 2
        )
        degrees = np.diff(by_candidate.indptr).reshape(shape).astype(np.float64)
        self.rounding = _ROUNDING * np.sqrt(_dot(degrees, degrees))

    def solve(self, gradient: Floats, curvature: Floats) -> Floats:
        """Return x with (L + 1/s²) x = gradient, (B, n), the diagonal being the preconditioner.

        Each query stops at a residual of min(0.1, √‖g‖)·‖g‖, which keeps Newton's convergence
        superlinear, or at the rounding of g. Without a prior L has a null space: a direction whose
        curvature is rounding is not followed.
        """
        self.weights.data = curvature[self.pair]
        diagonal = self.weights.sum(axis=1).reshape(self.shape) + self.precision
        diagonal[diagonal == 0] = 1.0
        norm = np.sqrt(_dot(gradient, gradient))
        target = np.maximum(np.minimum(0.1, np.sqrt(norm)) * norm, self.rounding)
        x, residual = np.zeros(self.shape), gradient.copy()
        direction = residual / diagonal
        inner = _dot(residual, direction)
        for _ in range(2 * self.shape[1]):
            if (np.sqrt(_dot(residual, residual)) <= target).all():
                break
            image = diagonal * direction - (self.weights @ direction.ravel()).reshape(self.shape)
            bent = _dot(direction, image)
            bent[bent <= _NULL * _dot(direction, diagonal * direction)] = 0.0
            alpha = _ratio(inner, bent)
            x += alpha * direction
            residual -= alpha * image
            z = residual / diagonal
            inner, previous = _dot(residual, z), inner
            direction = z + _ratio(inner, previous) * direction
        return x


def _dot(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.einsum("bn,bn->b", one, other))


def _ratio(above: Floats, below: Floats) -> Floats:
    """(B, 1) above over below, 0 where that is not above 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)[:, None]


def _components(block: Block) -> Rows:
    """(B·n,) a number for the connected component of each candidate."""
    count, n = block.at.shape
    ends = block.query * n + block.first, block.query * n + block.second
    graph = sparse.coo_array((np.ones(len(block.query)), ends), shape=(count * n, count * n))
    return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1])


def covariance(block: Block, rating: Floats, link: Link, *, precision: float) -> Floats:
    """Return (B, n, n), in the lower triangle, covariances of the ratings: the inverse information, centred.

    With I = L + 1/s², L weighted by the Fisher information at the ratings, and 1_c the indicator of
    a connected component of m_c candidates: C = (I + Σ_c 1_c 1_cᵀ/m_c)⁻¹ − Σ_c 1_c 1_cᵀ/m_c · 1/(1
    + 1/s²), which drops the one direction per component that no judgement speaks about. 1/s² = 0
    gives the pseudo-inverse of L. inf for a query whose information is singular up to rounding,
    which moves eigenvalues by about n·ε·the largest diagonal cell: in some direction nothing is
    known.

    Args:
        block: the queries and their pairs.
        rating: (B, n) e of the block's candidates; NaN where there is none.
        link: the model.
        precision: 1/s² of the Gaussian prior.
    """
    count, n = block.at.shape
    label, places = _components(block).reshape(count, n), np.arange(n)
    centre = (label[:, :, None] == label[:, None, :]).astype(np.float64)
    centre /= centre.sum(axis=2, keepdims=True)
    weight = np.nan_to_num(link.information(block.lead(rating)))
    cells = np.bincount((block.query * n + block.first) * n + block.second, weight, count * n * n).reshape(count, n, n)
    spread = centre - cells
    spread -= cells.transpose(0, 2, 1)
    spread[:, places, places] += cells.sum(axis=1) + cells.sum(axis=2) + precision
    most = spread[:, places, places].max(axis=1, initial=0)
    with threadpool_limits(1, user_api="blas"):  # many small matrices: threads would wait for each other
        for query, information in enumerate(spread):
            factor, failed = lapack.dpotrf(information.T, clean=0, overwrite_a=1)
            inverse, singular = lapack.dpotri(factor, overwrite_c=1) if not failed else (factor, 1)
            spread[query] = np.inf if singular else inverse.T
    spread[spread[:, places, places].max(axis=1, initial=0) * most > _SINGULAR] = np.inf
    centre /= 1 + precision
    spread -= centre
    return np.asarray(spread)


def lead_errors(judged: Pairs, ratings: Ratings, leader: Rows, *, prior_sd: float) -> Floats:
    """Return (N,) the standard error of e_leader − e_i in Elo points: √(C_ll + C_ii − 2C_li), 0 for the leader itself.

    It is not the root of the summed squares of the two ratings' own errors: those are correlated,
    by what they were compared with in common and by the centring.

    Args:
        judged: the pairs that have a judgement.
        ratings: from them.
        leader: (Q,) a candidate of each query.
        prior_sd: as in the estimation.

    Returns:
        NaN where either rating is NaN, or the two are in different components.

    Source: ANMI 2.0 eqs. 44–45 for C, the inverse Fisher information.
    """
    leaders = np.repeat(leader, judged.sizes)
    leads = Pairs.unchecked(judged.offsets, leaders, np.arange(len(leaders)))
    variance = lead_variances(judged, ratings, prior_sd=prior_sd, leads=leads)
    known = np.isfinite(ratings.rating) & np.isfinite(ratings.rating[leaders])
    known &= ratings.component == ratings.component[leaders]
    return np.where(known, ratings.link.elo_per_unit * np.sqrt(np.maximum(variance, 0.0)), np.nan)


def lead_variances(judged: Pairs, ratings: Ratings, *, prior_sd: float, leads: Pairs | None = None) -> Floats:
    """Return (m,) the variance of e_first − e_second of each pair, in the model's unit; NaN where there is no rating.

    Args:
        judged: the pairs that have a judgement.
        ratings: from them.
        prior_sd: as in the estimation.
        leads: pairs of the same candidates to give it for; None: those judged.
    """
    link, leads = ratings.link, judged if leads is None else leads
    variance = np.full(len(leads), np.nan)
    for block in judged.blocks(memory.rows_at_once(_CELL, most=_CELLS)):
        spread = covariance(block, ratings.rating[block.at], link, precision=1 / prior_sd**2)
        single, pair = np.diagonal(spread, axis1=1, axis2=2), block_of(leads, block.queries)
        shared = spread[pair.query, np.maximum(pair.first, pair.second), np.minimum(pair.first, pair.second)]
        variance[pair.pairs] = single[pair.query, pair.first] + single[pair.query, pair.second] - 2 * shared
    return variance


def thurstone(
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    prior_sd: float = 10.0,
    standard_errors: bool = True,
) -> Ratings:
    """Return ê = argmax Σ w log Φ(e_i − e_j) + (1 − w) log Φ(e_j − e_i) − Σ e²/(2 prior_sd²), per query.

    The first part is eq. 30. The second is a weak Gaussian prior: without it a candidate that wins
    or loses all its comparisons outright has no finite rating. At the default of 10 probits and six
    judgements a candidate it pulls ratings with a spread of one probit (296 Elo points) together by
    about 1 %, of two probits by about 10 %, since judgements between candidates far apart say
    little. Ratings have mean 0 over each connected component (Σe = 0 in eq. 30), which the prior
    brings about by itself. A query whose judgements fall into several components is fitted, and
    `component` says which ratings can be compared.

    Standard errors are roots of the diagonal of the inverse Fisher information plus prior, on the
    centred space (eqs. 44–45, A.5). They count every judgement as one yes-or-no answer; a fraction
    that is steadier than a coin of that bias has a smaller error than they say.

    Args:
        pairs: who was compared with whom.
        preference: (m,) w in [0, 1], P(first ≻ second); NaN: no judgement, which is left out.
        prior_sd: standard deviation of the prior, in probits, above 0; more is weaker; inf: none.
        standard_errors: compute them (about half of the time).

    Raises:
        ConvergenceError: a query has no finite maximum, which happens without a prior alone.
        InputError: preferences outside [0, 1], wrong lengths, or a prior_sd that is not above 0.

    Source: ANMI 2.0 eqs. 30, 34; concave by Lemma 1.
    """
    return _estimate(pairs, preference, THURSTONE, prior_sd, standard_errors)


def bradley_terry(
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    prior_sd: float = 10.0,
    standard_errors: bool = True,
) -> Ratings:
    """Return ê = argmax Σ w log σ(e_i − e_j) + (1 − w) log σ(e_j − e_i) − Σ e²/(2 prior_sd²), per query.

    Everything else is as in `thurstone`, in logits in place of probits. The likelihood has a unique
    finite maximum without a prior only where every split of a query's candidates into two has
    preference flowing both ways (Ford 1957), which is more than the connectedness that Theorem 5
    asks for.

    Raises:
        ConvergenceError: a query has no finite maximum.
        InputError: preferences outside [0, 1], wrong lengths, or a prior_sd that is not above 0.

    Source: ANMI 2.0 eq. 22.
    """
    return _estimate(pairs, preference, BRADLEY_TERRY, prior_sd, standard_errors)
