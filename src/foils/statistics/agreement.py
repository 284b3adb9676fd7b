"""Does a predictor order the sources as the measured result does? Rank correlations, with intervals.

A predictor gives one number a source, before training; an outcome gives one or several (seeds, queries) after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    x, y = _signs(a), _signs(b)
    _alike(a, b)
    both = np.sqrt(np.count_nonzero(x) * float(np.count_nonzero(y)))
    return float(np.sum(x * y) / both) if both else float("nan")


def spearman_rho(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Spearman's ρ: Pearson's r of the ranks, ties sharing their mean rank; arguments as `kendall_tau`."""
    from scipy.stats import rankdata

    x, y = _alike(a, b)
    return pearson_r(rankdata(x), rankdata(y))


def pearson_r(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Pearson's r: Σ(a − ā)(b − b̄) / √(Σ(a − ā)² Σ(b − b̄)²); arguments as `kendall_tau`."""
    x, y = _alike(a, b)
    if not (np.ptp(x) and np.ptp(y)):
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
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
    _alike(a, b)
    agree = _signs(a) == _signs(b)
    within = _within(len(agree), settings) & np.triu(np.ones_like(agree), k=1)
    return float(agree[within].mean()) if within.any() else float("nan")


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
    x, y = _alike(predictor, results.mean(axis=1) if results.ndim == 2 and results.size else results)
    if not 0 < level < 1 or resamples < 1 or not np.isfinite(results).all():
        raise InputError(f"expected finite outcomes, level in (0, 1), resamples ≥ 1; found {level=}, {resamples=}")
    if settings is not None and len(settings) != len(x):
        raise InputError(f"expected one setting for each of {len(x)} sources, found {len(settings)}")
    groups = None if settings is None else np.array([list(settings).index(s) for s in settings])
    names = ("kendall", "spearman", "pearson", "stability")
    draws = np.empty((resamples, len(names)))
    for draw in draws:
        if replicated:
            taken = rng.integers(results.shape[1], size=results.shape[1])
            draw[:] = _coefficients(x, results[:, taken].mean(axis=1), groups)
        else:
            rows = rng.integers(len(x), size=len(x))
            draw[:] = _coefficients(x[rows], y[rows], None if groups is None else groups[rows], rows)
    kendall, spearman, pearson, stability = _coefficients(x, y, groups)
    intervals = {name: _interval(draws[:, i], level) for i, name in enumerate(names)}
    undefined = int(np.isnan(draws).any(axis=1).sum())
    drawn = "replicates" if replicated else "sources"
    return Agreement(kendall, spearman, pearson, stability, intervals, drawn, undefined)


def _coefficients(
    x: Floats, y: Floats, groups: npt.NDArray[np.int64] | None, drawn: npt.NDArray[np.int64] | None = None
) -> tuple[float, float, float, float]:
    if drawn is None:
        stability = rank_stability(x, y, settings=None if groups is None else groups.tolist())
    else:  # a source drawn twice makes no pair with itself
        within = _within(len(x), None if groups is None else groups.tolist()) & (drawn[:, None] != drawn)
        agree = _signs(x) == _signs(y)
        stability = float(agree[within].mean()) if within.any() else float("nan")
    return kendall_tau(x, y), spearman_rho(x, y), pearson_r(x, y), stability


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


def _signs(a: npt.ArrayLike) -> Floats:
    values = np.asarray(a, np.float64)
    return np.sign(values[:, None] - values[None, :]) if values.ndim == 1 else np.empty((0, 0))


def _alike(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise InputError(f"expected two lists of equal length ≥ 2, one number a source; found {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("a number is not finite; leave such sources out, and say so")
    return x, y
