"""Ratings from pairwise judgements: Thurstone and Bradley–Terry by one Newton's method, and online Elo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import lapack
from scipy.special import entr, erfcx, expit, ndtr
from threadpoolctl import threadpool_limits

from foils.rating.pairs import Block, Floats, Pairs, Rows
from foils.runtime import memory, progress
from foils.runtime.errors import ConvergenceError, InputError
from foils.runtime.parallel import map_shards
from foils.statistics.elo_scale import BASE, ELO_PER_LOGIT, ELO_PER_PROBIT, expected_score


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
        unit: in which its ratings are.
        elo_per_unit: Elo points in one unit.
        probability: F, from a lead Δ to the chance to be preferred.
        terms: (Δ, w) -> Terms.
        information: Δ -> F′(Δ)²/(F(Δ)F(−Δ)), the Fisher information of one judgement about Δ.
    """

    name: str
    unit: str
    elo_per_unit: float
    probability: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats], Terms]
    information: Callable[[Floats], Floats]


def mills(x: Floats) -> Floats:
    """Return λ(x) = φ(x)/Φ(x) as √(2/π)/erfcx(−x/√2), exact far into both tails (Algorithm 1's λ)."""
    with np.errstate(over="ignore"):
        return np.asarray(sqrt(2 / pi) / erfcx(np.asarray(x) / -sqrt(2)))


def thurstone_terms(lead: Floats, preference: Floats) -> Terms:
    """Return the terms of w log Φ(Δ) + (1 − w) log Φ(−Δ) (eq. 30).

    With a = |Δ|, w for the leader, and h = erfcx(a/√2)/2: Φ(−a) = h·exp(−a²/2), so that
    log Φ(−a) = log h − a²/2, log Φ(a) = log1p(−Φ(−a)) and λ(−a) = 1/(h√(2π)) lose no digits in either tail. Slope
    w λ(a) − (1 − w) λ(−a), curvature w λ(a)(λ(a) + a) + (1 − w) λ(−a)(λ(−a) − a).
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

    With a = |Δ| and w for the leader: value −log(1 + e^(−a)) − (1 − w)a, slope w σ(−a) − (1 − w)σ(a) = w − σ(a), in
    the form that keeps its digits when w = 1 and a is large; curvature σ(a)σ(−a).
    """
    a = np.abs(lead)
    w = np.where(lead >= 0, preference, 1 - preference)
    small = np.exp(-a)
    ahead, behind = 1 / (1 + small), small / (1 + small)
    slope = w * behind - (1 - w) * ahead
    return Terms(-np.log1p(small) - (1 - w) * a, np.where(lead >= 0, slope, -slope), ahead * behind)


def thurstone_information(lead: Floats) -> Floats:
    """Return φ(Δ)²/(Φ(Δ)Φ(−Δ)) as λ(Δ)λ(−Δ) (eqs. 44–45, A.5)."""
    return mills(lead) * mills(-np.asarray(lead))


def bradley_terry_information(lead: Floats) -> Floats:
    """Return σ(Δ)σ(−Δ)."""
    return np.asarray(expit(lead) * expit(-np.asarray(lead)))


def comparison_bits(lead: Floats, link: Link) -> Floats:
    """Return H(F(Δ)) in bits: what one more judgement at this lead tells; 1 at Δ = 0, towards 0 far off (eq. 46)."""
    return np.asarray((entr(link.probability(lead)) + entr(link.probability(-np.asarray(lead)))) / np.log(2))


THURSTONE = Link(
    "thurstone", "probit", ELO_PER_PROBIT, lambda x: np.asarray(ndtr(x)), thurstone_terms, thurstone_information
)
BRADLEY_TERRY = Link(
    "bradley-terry",
    "logit",
    ELO_PER_LOGIT,
    lambda x: np.asarray(expit(x)),
    bradley_terry_terms,
    bradley_terry_information,
)
LINKS = {link.name: link for link in (THURSTONE, BRADLEY_TERRY)}


_HALVINGS = 40
_SLACK = 1e-13
_FLAT = 1e-12
_ROUNDING = 1e-15
_NULL = 1e-13


@dataclass(frozen=True)
class Fit:
    """What Newton's method found for a block of queries.

    Attributes:
        ratings: (B, n) e.
        log_likelihood: (B,) of the judgements at e, without the prior.
        iterations: (B,) steps taken.
        converged: (B,) whether the last step was within the tolerance.
    """

    ratings: Floats
    log_likelihood: Floats
    iterations: Rows
    converged: npt.NDArray[np.bool_]


def fit_block(
    block: Block,
    preference: Floats,
    link: Link,
    *,
    known_lead: Floats | None = None,
    precision: float,
    tolerance: float,
    max_iterations: int,
) -> Fit:
    """Return the maximum of each query's log-posterior.

    Args:
        block: the queries and their pairs.
        preference: (p,) w of the block's pairs, all finite.
        link: the model.
        known_lead: (p,) what is known of each pair's lead, to which that of the ratings is added; None: nothing.
        precision: 1/s² of the Gaussian prior, 0 for none.
        tolerance: a query is done when no rating moves by more than this in a full Newton step.
        max_iterations: Newton steps at most.
    """
    system = _System(block, precision, known_lead)
    ratings = np.zeros((len(block.queries), block.n))
    terms, posterior, likelihood = _evaluate(system, link, ratings, preference)
    iterations = np.zeros(len(ratings), np.int64)
    converged = np.zeros(len(ratings), bool)
    for _ in range(max_iterations):
        gradient = np.where(converged[:, None], 0.0, system.scatter(terms.slope) - precision * ratings)
        step = system.solve(gradient, terms.curvature)
        iterations += ~converged
        length = np.where(converged, 0.0, 1.0)[:, None]
        for _ in range(_HALVINGS):
            candidate = ratings + length * step
            new_terms, new_posterior, likelihood = _evaluate(system, link, candidate, preference)
            worse = ~(new_posterior >= posterior - _SLACK * np.abs(posterior))
            if not worse.any():
                break
            length[worse] /= 2
        ratings, terms, posterior = candidate, new_terms, new_posterior
        converged |= (np.abs(step).max(axis=1, initial=0) <= tolerance) & np.isfinite(posterior)
        if converged.all():
            break
    return Fit(ratings, likelihood, iterations, converged & ~system.flat(terms.curvature))


def _evaluate(system: _System, link: Link, ratings: Floats, preference: Floats) -> tuple[Terms, Floats, Floats]:
    """Return the terms of each judgement, and each query's log-posterior and log-likelihood."""
    terms = link.terms(system.lead(ratings), preference)
    likelihood = system.per_query(terms.value)
    return terms, likelihood - 0.5 * system.precision * np.einsum("bn,bn->b", ratings, ratings), likelihood


class _System:
    """The weighted Laplacians of a block: leads, sums at the candidates, and L x + x/s² = g for all queries."""

    def __init__(self, block: Block, precision: float, known_lead: Floats | None = None) -> None:
        self.precision, self.known_lead = precision, known_lead
        self.shape = (len(block.queries), block.n)
        self.first, self.second = block.first, block.second
        ends = np.concatenate([block.first, block.second])
        entries = sparse.csc_array(  # one column an end: turning it round sorts the ends by candidate
            (np.ones(len(ends), np.int8), ends, np.arange(len(ends) + 1)), shape=(self.shape[0] * block.n, len(ends))
        ).tocsr()
        self.order = entries.indices % max(len(block.first), 1)
        others = np.concatenate([block.second, block.first])[entries.indices]
        size = self.shape[0] * block.n
        self.adjacency = sparse.csr_array((np.zeros(len(ends)), others, entries.indptr), shape=(size, size))
        self.query = block.first // max(block.n, 1)
        degrees = np.diff(entries.indptr).reshape(self.shape)
        self.rounding = _ROUNDING * np.sqrt((degrees.astype(float) ** 2).sum(axis=1))

    def lead(self, ratings: Floats) -> Floats:
        """(p,) e_first − e_second, and what is known before."""
        flat = ratings.ravel()
        lead = flat[self.first] - flat[self.second]
        return np.asarray(lead if self.known_lead is None else lead + self.known_lead)

    def scatter(self, slope: Floats) -> Floats:
        """(B, n) sums of what each pair gives to its first and takes from its second candidate."""
        size = self.shape[0] * self.shape[1]
        sums = np.bincount(self.first, slope, size) - np.bincount(self.second, slope, size)
        return np.asarray(sums, np.float64).reshape(self.shape)

    def per_query(self, values: Floats) -> Floats:
        """(B,) sums over each query's pairs."""
        return np.asarray(np.bincount(self.query, values, self.shape[0]), np.float64)

    def diagonal(self, curvature: Floats) -> Floats:
        """(B, n) of L + I/s²; puts the curvatures into the adjacency on its way."""
        self.adjacency.data = curvature[self.order]
        return np.asarray(self.adjacency.sum(axis=1)).reshape(self.shape) + self.precision

    def flat(self, curvature: Floats) -> npt.NDArray[np.bool_]:
        """(B,) whether ratings ran so far apart that a judged candidate has no curvature left: no maximum was met."""
        met = np.diff(self.adjacency.indptr).reshape(self.shape) > 0
        return np.asarray((met & (self.diagonal(curvature) < _FLAT)).any(axis=1))

    def solve(self, gradient: Floats, curvature: Floats) -> Floats:
        """Return x with (L + I/s²) x = gradient, (B, n), by conjugate gradients with the diagonal as preconditioner.

        Each query stops at a residual of min(0.1, √‖g‖)·‖g‖, which keeps Newton's convergence superlinear, or at the
        rounding of g. Without a prior L has a null space; a direction whose curvature is
        rounding alone is not followed.
        """
        diagonal = self.diagonal(curvature)
        diagonal[diagonal == 0] = 1.0
        norm = np.sqrt(np.einsum("bn,bn->b", gradient, gradient))
        target = np.maximum(np.minimum(0.1, np.sqrt(norm)) * norm, self.rounding)
        x, residual = np.zeros(self.shape), gradient.copy()
        z = residual / diagonal
        direction, inner = z, np.einsum("bn,bn->b", residual, z)
        for _ in range(2 * self.shape[1]):
            if (np.sqrt(np.einsum("bn,bn->b", residual, residual)) <= target).all():
                break
            image = diagonal * direction - (self.adjacency @ direction.ravel()).reshape(self.shape)
            bent = np.einsum("bn,bn->b", direction, image)
            bent[bent <= _NULL * np.einsum("bn,bn,bn->b", direction, diagonal, direction)] = 0.0
            alpha = _ratio(inner, bent)[:, None]
            x += alpha * direction
            residual -= alpha * image
            z = residual / diagonal
            inner, previous = np.einsum("bn,bn->b", residual, z), inner
            direction = z + _ratio(inner, previous)[:, None] * direction
        return x


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def covariance(block: Block, ratings: Floats, link: Link, *, precision: float) -> Floats:
    """Return (B, n, n) covariances of the ratings: the inverse Fisher information on the centred space.

    With I = L + 1/s², L weighted by the Fisher information at the ratings, and 1_c the indicator of a connected
    component of m_c candidates: C = (I + Σ_c 1_c 1_cᵀ/m_c)⁻¹ − Σ_c 1_c 1_cᵀ/m_c · 1/(1 + 1/s²), which drops the one
    direction per component that no judgement speaks about. 1/s² = 0 gives the pseudo-inverse of L.

    Args:
        block: the queries and their pairs.
        ratings: (N,) e of all candidates, not only the block's; NaN where there is none.
        link: the model.
        precision: 1/s² of the Gaussian prior.
    """
    matrix, centre = _centred_information(block, ratings, link, precision)
    with threadpool_limits(1, user_api="blas"):  # many small matrices: threads would wait for each other
        return np.asarray(np.linalg.inv(matrix) - centre / (1 + precision))


def variances(block: Block, ratings: Floats, link: Link, *, precision: float) -> Floats:
    """Return (B, n) the diagonal of `covariance`, in half the time: with M = RᵀR, (M⁻¹)_ii = Σ_k (R⁻¹)_ik².

    inf for a query whose information is singular up to rounding: in some direction nothing is known. Rounding moves the
    eigenvalues of M by about n·ε·max M_ii, so that no variance above the inverse of that is told from infinity.
    """
    matrix, centre = _centred_information(block, ratings, link, precision)
    diagonal = np.empty(matrix.shape[:2])
    rounding = block.n * np.finfo(float).eps * np.diagonal(matrix, axis1=1, axis2=2).max(axis=1, initial=0)
    with threadpool_limits(1, user_api="blas"):
        for query, information in enumerate(matrix):
            factor, failed = lapack.dpotrf(information.T, clean=1)
            inverse, singular = lapack.dtrtri(factor) if not failed else (factor, 1)
            variance = np.inf if singular else np.einsum("ik,ik->i", inverse, inverse)
            diagonal[query] = np.inf if np.max(variance, initial=0) * rounding[query] > 1 else variance
    return np.asarray(diagonal - np.diagonal(centre, axis1=1, axis2=2) / (1 + precision))


def _centred_information(block: Block, ratings: Floats, link: Link, precision: float) -> tuple[Floats, Floats]:
    """(B, n, n) I + Σ_c 1_c 1_cᵀ/m_c, positive definite, and the second part alone."""
    count, n = len(block.queries), block.n
    weight = np.nan_to_num(link.information(ratings[block.at[block.first]] - ratings[block.at[block.second]]))
    query, first, second = block.first // max(n, 1), block.first % max(n, 1), block.second % max(n, 1)
    cells = np.bincount((query * n + first) * n + second, weight, count * n * n).reshape(count, n, n)
    adjacency = cells + cells.transpose(0, 2, 1)
    graph = sparse.coo_array((np.ones(len(weight)), (block.first, block.second)), shape=(count * n, count * n))
    labels = sparse.csgraph.connected_components(graph, directed=False)[1]
    members = np.bincount(labels)[labels].reshape(count, n, 1)
    labels = labels.reshape(count, n)
    centre = (labels[:, :, None] == labels[:, None, :]) / members
    matrix = centre - adjacency
    diagonal = np.arange(n)
    matrix[:, diagonal, diagonal] += adjacency.sum(axis=2) + precision
    return matrix, centre


_CANDIDATES = 20_000
_CELLS = 1_000_000
_CELL = 64  # bytes that a cell of a covariance takes, with what it is made from


@dataclass(frozen=True)
class Ratings:
    """How good each candidate is, with its error.

    Attributes:
        model: `thurstone` or `bradley-terry`.
        rating: (N,) e in the model's unit (probits, logits), of mean 0 over each connected component of judged
            pairs; NaN for a candidate that no judgement names.
        standard_error: (N,) of e, in the same unit; NaN where the rating is, or where none was asked for.
        component: (N,) label of the connected component: ratings of different components cannot be compared.
        log_likelihood: (Q,) of the judgements.
        iterations: (Q,) Newton steps.
        converged: (Q,) whether the tolerance was reached; ratings of a query where it was not are NaN.
    """

    model: str
    rating: Floats
    standard_error: Floats
    component: Rows
    log_likelihood: Floats
    iterations: Rows
    converged: npt.NDArray[np.bool_]

    @property
    def elo(self) -> Floats:
        """(N,) ratings in Elo points, of mean 1500."""
        return BASE + LINKS[self.model].elo_per_unit * self.rating

    @property
    def elo_error(self) -> Floats:
        """(N,) standard errors in Elo points."""
        return LINKS[self.model].elo_per_unit * self.standard_error

    def scaled_errors(self, factor: float) -> Ratings:
        """Return the ratings with standard errors times a factor: the root of the answers' dispersion."""
        return replace(self, standard_error=factor * self.standard_error)


def estimate(
    pairs: Pairs,
    preference: npt.ArrayLike,
    link: Link,
    *,
    known_lead: Floats | None = None,
    prior_sd: float,
    tolerance: float,
    max_iterations: int,
    standard_errors: bool,
    failures: str,
) -> Ratings:
    """Fit every query's ratings, block by block; `thurstone` and `bradley_terry` say what the arguments mean.

    `known_lead` (m,), in the model's unit, is added to the lead of each pair: P(i ≻ j) = F(known + e_i − e_j).
    """
    preference = checked_preference(pairs, preference)
    _check_settings(prior_sd, tolerance, max_iterations, failures)
    judged = pairs.where(np.isfinite(preference))
    outcomes, precision = preference if judged is pairs else preference[np.isfinite(preference)], 1 / prior_sd**2
    ahead = known_lead if known_lead is None or judged is pairs else known_lead[np.isfinite(preference)]
    total, queries = pairs.candidates, pairs.queries
    rating, error, likelihood = np.full(total, np.nan), np.full(total, np.nan), np.zeros(queries)
    iterations, converged = np.zeros(queries, np.int64), np.ones(queries, bool)

    def fitted(block: Block) -> tuple[Block, Fit]:
        return block, fit_block(
            block,
            outcomes[block.pairs],
            link,
            known_lead=None if ahead is None else ahead[block.pairs],
            precision=precision,
            tolerance=tolerance,
            max_iterations=max_iterations,
        )

    def uncertain(block: Block) -> tuple[Block, Floats]:
        return block, variances(block, rating, link, precision=precision)

    with progress.task("rating", queries, "queries") as advance:
        for block, fit in map_shards(fitted, judged.blocks(_CANDIDATES)):
            _put(rating, block, fit.ratings)
            likelihood[block.queries], iterations[block.queries] = fit.log_likelihood, fit.iterations
            converged[block.queries] = fit.converged
            advance(len(block.queries))
    if failures == "raise" and not converged.all():
        _raise(converged, max_iterations)
    judged = judged.where(converged[judged.query])
    component = judged.components()
    rating[judged.degrees == 0] = np.nan
    rating -= _means(rating, component)[component]
    if standard_errors:
        with progress.task("standard errors", queries, "queries") as advance:
            for block, variance in map_shards(uncertain, judged.blocks(_cells(), power=2)):
                _put(error, block, np.sqrt(np.maximum(variance, 0.0)))
                advance(len(block.queries))
        error[np.isnan(rating)] = np.nan
    return Ratings(link.name, rating, error, component, likelihood, iterations, converged)


def lead_errors(judged: Pairs, ratings: Ratings, leader: Rows, *, prior_sd: float) -> Floats:
    """Return (N,) the standard error of e_leader − e_i in Elo points: √(C_ll + C_ii − 2C_li), 0 for the leader itself.

    It is not the root of the summed squares of the two ratings' own errors: those are correlated, by what they were
    compared with in common and by the centring.

    Args:
        judged: the pairs that have a judgement.
        ratings: from them.
        leader: (Q,) a candidate of each query.
        prior_sd: as in the estimation.

    Returns:
        NaN where either rating is NaN, or the two are in different components.

    Source: ANMI 2.0 eqs. 44–45 for C, the inverse Fisher information.
    """
    link, error = LINKS[ratings.model], np.full(judged.candidates, np.nan)
    for block in judged.blocks(_cells(), power=2):
        spread = covariance(block, ratings.rating, link, precision=1 / prior_sd**2)
        rows, place = np.arange(len(block.queries)), leader[block.queries] - judged.offsets[block.queries]
        own = np.diagonal(spread, axis1=1, axis2=2)
        variance = own[rows, place][:, None] + own - 2 * spread[rows, place]
        _put(error, block, np.sqrt(np.maximum(variance, 0.0)))
    of = np.repeat(leader, judged.sizes)
    known = np.isfinite(ratings.rating) & np.isfinite(ratings.rating[of])
    known &= ratings.component == ratings.component[of]
    return np.where(known, link.elo_per_unit * error, np.nan)


def lead_variances(judged: Pairs, ratings: Ratings, *, precision: float) -> Floats:
    """Return (m,) the variance of e_first − e_second of each pair, in the model's unit; NaN where there is no rating.

    Args:
        judged: the pairs that have a judgement.
        ratings: from them.
        precision: 1/prior_sd² of the estimation.
    """
    link, variance = LINKS[ratings.model], np.full(len(judged), np.nan)
    for block in judged.blocks(_cells(), power=2):
        spread = covariance(block, ratings.rating, link, precision=precision)
        query, first, second = block.first // block.n, block.first % block.n, block.second % block.n
        own = np.diagonal(spread, axis1=1, axis2=2)
        variance[block.pairs] = own[query, first] + own[query, second] - 2 * spread[query, first, second]
    return variance


def _cells() -> int:
    """Return how many cells of covariances may be at work together."""
    return memory.rows_at_once(_CELL, most=_CELLS)


def _means(values: Floats, group: Rows) -> Floats:
    return np.asarray(np.bincount(group, values) / np.bincount(group), np.float64)


def _put(target: Floats, block: Block, values: Floats) -> None:
    inside = block.at >= 0
    target[block.at[inside]] = values.ravel()[inside]


def _check_settings(prior_sd: float, tolerance: float, max_iterations: int, failures: str) -> None:
    faults = []
    if not prior_sd > 0:
        faults.append(f"prior_sd {prior_sd}: expected above 0, inf for no prior")
    if not tolerance > 0:
        faults.append(f"tolerance {tolerance}: expected above 0")
    if max_iterations < 1:
        faults.append(f"max_iterations {max_iterations}: expected at least 1")
    if failures not in ("raise", "nan"):
        faults.append(f"failures {failures!r}: expected 'raise' or 'nan'")
    if faults:
        raise InputError("; ".join(faults))


def _raise(converged: npt.NDArray[np.bool_], max_iterations: int) -> None:
    failed = np.flatnonzero(~converged)
    raise ConvergenceError(
        f"the ratings of {len(failed)} of {len(converged)} queries did not settle in {max_iterations} Newton steps "
        f"(first: query {failed[0]}); without a prior a candidate that wins or loses everything has no finite rating: "
        "give a finite prior_sd, or failures='nan' to have NaN there"
    )


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


ESTIMATORS: dict[str, Callable[..., Ratings]] = {"thurstone": thurstone, "bradley-terry": bradley_terry}
