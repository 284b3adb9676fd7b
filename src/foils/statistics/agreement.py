"""Does a predictor order the sources as the measured result does? Rank correlations, with intervals.

A predictor gives one number a source, before training; an outcome gives one or several (seeds, queries) after it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from foils.runtime import memory
from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """How well a predictor's numbers agree with the measured ones; NaN where all values of either are equal.

    Attributes:
        kendall: Kendall's τ-b in [−1, 1].
        low: lower end of the bootstrap interval of τ, of the draws in which it exists.
        high: upper end.
        spearman: Spearman's ρ in [−1, 1].
        pearson: Pearson's r in [−1, 1].
    """

    kendall: float
    low: float
    high: float
    spearman: float
    pearson: float


def kendall_tau(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Kendall's τ-b: (concordant − discordant) / √((n₀ − ties in a)(n₀ − ties in b)), n₀ = n(n − 1)/2.

    Args:
        a: (n,) finite numbers, n ≥ 2.
        b: (n,) finite numbers.

    Returns:
        τ-b in [−1, 1]; NaN where all values of a, or of b, are equal.

    Raises:
        InputError: lengths that differ, fewer than 2 values, a value that is not finite.
    """
    return float(kendall_taus(*_rows(a, b))[0])


def kendall_taus(a: Floats, b: Floats) -> Floats:
    """Return (m,) Kendall's τ-b of each row of (m, n) finite numbers with the same row of others."""
    taus = np.empty(len(a))
    for rows in _blocks(a.shape):
        x, y = _signs(a[rows]), _signs(b[rows])
        both = np.sqrt(np.count_nonzero(x, axis=(1, 2)) * np.count_nonzero(y, axis=(1, 2)).astype(np.float64))
        taus[rows] = np.divide((x * y).sum(axis=(1, 2)), both, out=np.full(both.shape, np.nan), where=both > 0)
    return taus


def spearman_rho(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Spearman's ρ: Pearson's r of the ranks, ties sharing their mean rank; arguments as `kendall_tau`."""
    return pearson_r(*(stats.rankdata(each[0]) for each in _rows(a, b)))


def pearson_r(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Pearson's r: Σ(a − ā)(b − b̄) / √(Σ(a − ā)² Σ(b − b̄)²); arguments as `kendall_tau`."""
    x, y = (each[0] - each[0].mean() for each in _rows(a, b))
    if not (np.ptp(np.asarray(a)) and np.ptp(np.asarray(b))):
        return float("nan")
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def rank_stability(a: npt.ArrayLike, b: npt.ArrayLike, *, settings: Sequence[Hashable] | None = None) -> float:
    """Return the share of pairs of sources, within one setting, that a and b put in the same order.

    A pair agrees where sign(a_i − a_j) = sign(b_i − b_j): a tie agrees with a tie alone.

    Args:
        a: (n,) finite numbers, n ≥ 2.
        b: (n,) finite numbers.
        settings: (n,) which setting each source belongs to (as hybrid or not); None: all belong to one.

    Returns:
        A share in [0, 1]; NaN where no setting holds two sources.

    Raises:
        InputError: lengths that differ, fewer than 2 values, a value that is not finite.

    Source: ECI_sem, section on simplifications (Table 4).
    """
    x, y = _rows(a, b)
    n = x.shape[1]
    if settings is not None and len(settings) != n:
        raise InputError(f"expected one setting for each of {n} sources, found {len(settings)}")
    of = [None] * n if settings is None else settings
    counted = np.array([[at != other and of[at] == of[other] for other in range(n)] for at in range(n)])
    alike = (_signs(x) == _signs(y))[0]
    return float(alike[counted].mean()) if counted.any() else float("nan")


def agreement(
    predictor: npt.ArrayLike,
    outcome: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2_000,
) -> Agreement:
    """Return the agreement of a predictor with an outcome, τ with its percentile bootstrap interval.

    Where the outcome has replicates (seeds, or queries) their means are compared, and the bootstrap draws replicates
    with replacement, the same for all sources: the interval is about *these* sources. Without replicates it draws
    sources: the interval is about sources *like these*, and wide where they are few.

    Args:
        predictor: (n,) one number a source, higher meaning better; n ≥ 2.
        outcome: (n,) or (n, replicates), higher meaning better.
        rng: source of the draws.
        level: coverage in (0, 1).
        resamples: how many draws, ≥ 1.

    Raises:
        InputError: shapes that do not fit, a value that is not finite, a level or a number of draws out of range.
    """
    results = np.asarray(outcome, np.float64)
    replicated = results.ndim == 2 and results.shape[1] > 1
    x, y = _rows(predictor, results.mean(axis=1) if results.ndim == 2 and results.size else results)
    if not 0 < level < 1 or resamples < 1 or not np.isfinite(results).all():
        raise InputError(f"expected finite outcomes, level in (0, 1), resamples ≥ 1; found {level=}, {resamples=}")
    drawn = results.shape[1] if replicated else x.shape[1]
    taken = rng.integers(drawn, size=(resamples, drawn))
    if replicated:
        draws = kendall_taus(np.repeat(x, resamples, axis=0), _means_of(results, taken))
    else:
        draws = kendall_taus(x[0, taken], y[0, taken])
    defined = draws[~np.isnan(draws)]
    ends = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]) if len(defined) else np.full(2, np.nan)
    low, high = map(float, ends)
    return Agreement(kendall_tau(x[0], y[0]), low, high, spearman_rho(x[0], y[0]), pearson_r(x[0], y[0]))


def resampled_taus(
    predictor: Floats, results: Floats, sources: npt.NDArray[np.int64], replicates: npt.NDArray[np.int64]
) -> Floats:
    """Return (m,) Kendall's τ of m draws of sources and replicates; a source drawn twice ties with itself in both.

    Args:
        predictor: (n,) one number a source.
        results: (n, r) replicates of each source's outcome.
        sources: (m, n) which sources each draw takes.
        replicates: (m, r) which replicates, the same for all sources.
    """
    return kendall_taus(predictor[sources], np.take_along_axis(_means_of(results, replicates), sources, axis=1))


def _means_of(results: Floats, taken: npt.NDArray[np.int64]) -> Floats:
    """(m, n) means of (n, r) results over the replicates that each of m draws takes."""
    means = np.empty((len(taken), len(results)))
    for rows in _blocks((len(taken), *results.shape)):
        means[rows] = np.take(results, taken[rows], axis=1).mean(axis=2).T
    return means


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of the first of so many rows whose numbers, squared or not, fit in the budget of memory."""
    rows, *inner = shape
    size = memory.rows_at_once(8 * 6 * math.prod(inner) * (inner[0] if len(inner) == 1 else 1), most=max(rows, 1))
    return (slice(start, start + size) for start in range(0, rows, size))


def _signs(values: Floats) -> Floats:
    """(m, n, n) signs of the differences within each row of (m, n) numbers."""
    return np.sign(values[:, :, None] - values[:, None, :])


def _rows(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Two lists of numbers, as (1, n) each."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise InputError(f"expected two lists of equal length ≥ 2, one number a source; found {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("a number is not finite; leave such sources out, and say so")
    return x[None], y[None]
