"""Ratings of many queries' candidates, and the estimators' common frame: blocks and failures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from foils.rating.elo import checked_preference
from foils.rating.links import LINKS, Link
from foils.rating.newton import Fit, covariance, fit_block, variances
from foils.rating.pairs import Block, Floats, Pairs, Rows
from foils.runtime import memory, progress
from foils.runtime.errors import ConvergenceError, InputError
from foils.runtime.parallel import map_shards
from foils.statistics.elo_scale import BASE

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
