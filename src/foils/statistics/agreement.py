"""Does a predictor order the sources as the measured result does? Kendall's τ, its bootstrap, and rank stability.

A predictor gives one number a source, before training; an outcome gives one or several (seeds) after it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from foils.runtime import memory
from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]


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
