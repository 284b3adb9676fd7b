"""Maximum a posteriori ratings of many queries at once: Newton's method over blocks of queries.

Each query's log-posterior is Σ w log F(e_i − e_j) + (1 − w) log F(e_j − e_i) − Σ e²/(2s²), concave, with the Hessian
−(L + I/s²), L the graph Laplacian weighted by the curvature of each judgement. A block of queries lies in a rectangle
(queries × candidates); one step solves all of its systems by conjugate gradients at once, each query with its own
step length and its own end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from foils.rating.links import Link, Terms
from foils.rating.pairs import Block, Floats, Rows

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
