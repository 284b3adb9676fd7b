"""Does a predictor order the sources as the measured result does? Kendall's τ.

A predictor gives one number a source, before training; an outcome gives one or several (seeds) after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def kendall_tau(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Kendall's τ-b: (concordant − discordant) / √((n₀ − ties in a)(n₀ − ties in b)), n₀ = n(n − 1)/2.

    Args:
        a: (n,) finite numbers, n ≥ 2.
        b: (n,) finite numbers.

    Returns:
        τ-b in [−1, 1]; NaN where all values of a, or of b, are equal.
    """
    return float(kendall_taus(np.asarray(a, np.float64)[None], np.asarray(b, np.float64)[None])[0])


def kendall_taus(a: Floats, b: Floats) -> Floats:
    """Return (m,) Kendall's τ-b of each row of (m, n) finite numbers with the same row of others."""
    x, y = _signs(a), _signs(b)
    both = np.sqrt(np.count_nonzero(x, axis=(1, 2)) * np.count_nonzero(y, axis=(1, 2)).astype(np.float64))
    return np.asarray(np.divide((x * y).sum(axis=(1, 2)), both, out=np.full(both.shape, np.nan), where=both > 0))


def _signs(values: Floats) -> Floats:
    """(m, n, n) signs of the differences within each row of (m, n) numbers."""
    return np.sign(values[:, :, None] - values[:, None, :])
