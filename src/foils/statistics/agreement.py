"""Does a predictor order the sources as the measured result does? Rank correlations, with intervals.

A predictor gives one number a source, before training; an outcome gives one or several (seeds, queries) after it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.runtime import memory
from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Agreement:
    """How well a predictor's numbers agree with the measured ones.

    Attributes:
        kendall: Kendall's τ-b in [−1, 1].
        spearman: Spearman's ρ in [−1, 1].
        pearson: Pearson's r in [−1, 1].
        stability: share of source pairs within a setting that both order alike, in [0, 1].
        intervals: name of each of the four → (low, high) of its bootstrap.
        resampled: what the bootstrap drew: `sources`, or `replicates` where the outcome has several.
        undefined: draws in which a coefficient does not exist (all values equal), left out of the intervals.
    """

    kendall: float
    spearman: float
    pearson: float
    stability: float
    intervals: dict[str, Interval]
    resampled: str
    undefined: int


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
    found = np.empty(len(a))
    for rows in _blocks(a.shape):
        x, y = _signs(a[rows]), _signs(b[rows])
        both = np.sqrt(np.count_nonzero(x, axis=(1, 2)) * np.count_nonzero(y, axis=(1, 2)).astype(np.float64))
        found[rows] = _divided((x * y).sum(axis=(1, 2)), both)
    return found


def spearman_rho(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Spearman's ρ: Pearson's r of the ranks, ties sharing their mean rank; arguments as `kendall_tau`."""
    return float(_spearman(*_rows(a, b))[0])


def pearson_r(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Pearson's r: Σ(a − ā)(b − b̄) / √(Σ(a − ā)² Σ(b − b̄)²); arguments as `kendall_tau`."""
    return float(_pearson(*_rows(a, b))[0])


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
    own = np.arange(x.shape[1])[None]
    return float(_stability(x, y, _within(x.shape[1], settings), own)[0])


def agreement(
    predictor: npt.ArrayLike,
    outcome: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    settings: Sequence[Hashable] | None = None,
    level: float = 0.95,
    resamples: int = 2_000,
) -> Agreement:
    """Return the agreement of a predictor with an outcome, with percentile bootstrap intervals.

    Where the outcome has replicates (seeds, or queries) their means are compared, and the bootstrap draws replicates
    with replacement, the same for all sources: the interval is about *these* sources. Without replicates it draws
    sources: the interval is about sources *like these*, and wide where they are few.

    Args:
        predictor: (n,) one number a source, higher meaning better; n ≥ 2.
        outcome: (n,) or (n, replicates), higher meaning better.
        rng: source of the draws.
        settings: (n,) which setting each source belongs to; used by `stability` alone.
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
    within = _within(x.shape[1], settings)
    drawn = results.shape[1] if replicated else x.shape[1]
    taken = rng.integers(drawn, size=(resamples, drawn))
    own = np.arange(x.shape[1])[None]
    if replicated:
        draws = _coefficients(np.repeat(x, resamples, axis=0), _means_of(results, taken), within, own)
    else:
        draws = _coefficients(x[0, taken], y[0, taken], within, taken)
    names = ("kendall", "spearman", "pearson", "stability")
    values = {name: float(value) for name, value in zip(names, _coefficients(x, y, within, own)[0], strict=True)}
    intervals = {name: _interval(draws[:, i], level) for i, name in enumerate(names)}
    undefined = int(np.isnan(draws).any(axis=1).sum())
    return Agreement(
        **values, intervals=intervals, resampled="replicates" if replicated else "sources", undefined=undefined
    )


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


def _coefficients(x: Floats, y: Floats, within: npt.NDArray[np.bool_], sources: npt.NDArray[np.int64]) -> Floats:
    """(m, 4) Kendall's τ, Spearman's ρ, Pearson's r and stability of rows of (m, n) numbers; the others as below."""
    return np.stack([kendall_taus(x, y), _spearman(x, y), _pearson(x, y), _stability(x, y, within, sources)], axis=1)


def _spearman(x: Floats, y: Floats) -> Floats:
    from scipy.stats import rankdata

    return _pearson(*(np.asarray(rankdata(each, axis=1), np.float64) for each in (x, y)))


def _pearson(x: Floats, y: Floats) -> Floats:
    defined = (np.ptp(x, axis=1) > 0) & (np.ptp(y, axis=1) > 0)
    x, y = (each - each.mean(axis=1, keepdims=True) for each in (x, y))
    norms = np.where(defined, np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1)), 0.0)
    return np.asarray(np.clip(_divided((x * y).sum(axis=1), norms), -1.0, 1.0))


def _stability(x: Floats, y: Floats, within: npt.NDArray[np.bool_], sources: npt.NDArray[np.int64]) -> Floats:
    """(m,) shares of the pairs that both order alike; a source makes no pair with itself.

    Args:
        x: (m, n) numbers.
        y: (m, n) numbers.
        within: (s, s) whether two sources are of one setting.
        sources: (m, n) the source of each number, or (1, n) where it is the same in every row.
    """
    found = np.empty(len(x))
    for rows in _blocks(x.shape):
        of = sources if len(sources) == 1 else sources[rows]
        counted = within[of[:, :, None], of[:, None, :]] & (of[:, :, None] != of[:, None, :])
        alike = (_signs(x[rows]) == _signs(y[rows])) & counted
        found[rows] = _divided(alike.sum(axis=(1, 2)).astype(np.float64), counted.sum(axis=(1, 2)).astype(np.float64))
    return found


def _divided(a: Floats, b: Floats) -> Floats:
    """A / b, NaN where b is 0."""
    return np.asarray(np.divide(a, b, out=np.full(a.shape, np.nan), where=b > 0))


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of the first of so many rows whose numbers, squared or not, fit in the budget of memory."""
    rows, *inner = shape
    size = memory.rows_at_once(8 * 6 * math.prod(inner) * (inner[0] if len(inner) == 1 else 1), most=max(rows, 1))
    return (slice(start, start + size) for start in range(0, rows, size))


def _interval(draws: Floats, level: float) -> Interval:
    defined = draws[~np.isnan(draws)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _within(n: int, settings: Sequence[Hashable] | None) -> npt.NDArray[np.bool_]:
    if settings is None:
        return np.ones((n, n), bool)
    if len(settings) != n:
        raise InputError(f"expected one setting for each of {n} sources, found {len(settings)}")
    return np.array([[a == b for b in settings] for a in settings], bool)


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
