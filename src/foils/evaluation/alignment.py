"""Alignment and uniformity of unit vectors: how close pairs are, how evenly all are spread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError

_UNIT = 1e-3


def alignment(a: npt.ArrayLike, b: npt.ArrayLike, *, exponent: float = 2.0) -> float:
    """Return the mean distance of positive pairs: mean_i ‖a_i − b_i‖^exponent, in [0, 2^exponent]; lower is closer.

    Args:
        a: (n, d) unit vectors, n ≥ 1.
        b: (n, d) unit vectors; b_i is the positive of a_i.
        exponent: above 0; 2 is the published choice.

    Raises:
        InputError: shapes that differ, no pair, vectors that are not of length 1, an exponent not above 0.

    Source: Wang and Isola 2020, eq. 1.
    """
    first, second = _unit(a, "a"), _unit(b, "b")
    if first.shape != second.shape or exponent <= 0:
        raise InputError(
            f"expected pairs of equal shape and exponent > 0; found {first.shape}, {second.shape}, {exponent}"
        )
    return float(np.mean(np.linalg.norm(first - second, axis=1) ** exponent))


def uniformity(x: npt.ArrayLike, *, t: float = 2.0, block: int = 1024) -> float:
    """Return log mean_{i<j} exp(−t‖x_i − x_j‖²), in [−4t, 0]; lower is more evenly spread over the sphere.

    Args:
        x: (n, d) unit vectors, n ≥ 2.
        t: above 0; 2 is the published choice.
        block: rows at a time; changes memory and speed, not the result beyond rounding.

    Raises:
        InputError: fewer than two vectors, vectors that are not of length 1, t or block not above 0.

    Source: Wang and Isola 2020, eq. 2.
    """
    vectors = _unit(x, "x")
    n = len(vectors)
    if n < 2 or t <= 0 or block < 1:
        raise InputError(f"expected at least 2 vectors, t > 0 and block ≥ 1; found {n} vectors, t={t}, block={block}")
    total = 0.0
    for start in range(0, n, block):
        rows = vectors[start : start + block]
        squared = np.maximum(2.0 - 2.0 * (rows @ vectors[start:].T), 0.0)
        total += float(np.sum(np.triu(np.exp(-t * squared), k=1)))
    return float(np.log(total / (n * (n - 1) / 2)))


def _unit(x: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    vectors = np.asarray(x, np.float64)
    if vectors.ndim != 2 or not len(vectors):
        raise InputError(f"{name}: expected vectors of shape (n, d), n ≥ 1; found {vectors.shape}")
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.all(np.abs(lengths - 1.0) < _UNIT):
        raise InputError(
            f"{name}: expected unit vectors, found lengths from {lengths.min():.4g} to {lengths.max():.4g}; "
            "normalise them"
        )
    return vectors
