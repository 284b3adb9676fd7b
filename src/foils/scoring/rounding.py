"""Vectors whose inner products do not depend on the order in which their terms are summed, nor on threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BITS = 11  # of a component beside its sign


def rounded(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Return vectors whose inner products are exact in float32, in whatever order their terms are summed.

    Components are rounded to 2⁻¹¹ of the power of two nearest the vector's length, so that an inner product is a whole
    number below 2²⁴ of their product. That moves the inner product of two unit vectors by about 2·10⁻⁴.

    Args:
        vectors: (n, d), finite.
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    units = np.exp2(np.ceil(np.log2(np.maximum(lengths, 1e-30)) - 0.5) - BITS).astype(np.float32)[:, None]
    return np.asarray(np.rint(vectors / units) * units, np.float32)
