"""Ranks of a few documents under every prefix of many orders of dimensions: the inner loop of the grid.

`plain_grid_ranks` says what is computed, one matrix product a block of masks. `grid_ranks` computes the same by
running sums, compiled, where numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import MissingExtraError, require

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.integer[Any]]
Ranks = npt.NDArray[np.int32]


def grid_ranks(products: Floats, orders: Integers, cuts: Integers, columns: Integers) -> Ranks:
    """Return how many documents stand before each chosen one, when only a prefix of the dimensions counts.

    score(o, c, j) = Σ_{i < c} products[j, orders[o, i]]; rank = #{j' : score(j') > score(j)} + #{j' < j : equal}.

    Args:
        products: (k, d) q_i·d_ji of each document j and dimension i, documents by position.
        orders: (o, d) each row the dimensions in some order.
        cuts: (c,) how many dimensions count, ascending, in 1..d.
        columns: (m,) the documents whose ranks are wanted, as rows of `products`.

    Returns:
        (o, c, m) 0-based ranks.
    """
    compiled = _compiled()
    if compiled is None:
        return plain_grid_ranks(products, orders, cuts, columns)
    ranks: Ranks = compiled(
        np.ascontiguousarray(products.T), orders.astype(np.int32), cuts.astype(np.int64), columns.astype(np.int64)
    )
    return ranks


def plain_grid_ranks(
    products: Floats, orders: Integers, cuts: Integers, columns: Integers, *, block: int = 400
) -> Ranks:
    """Return the same as `grid_ranks`, `block` orders at a time: (block·c, d) masks times (d, k) products."""
    out = np.empty((len(orders), len(cuts), len(columns)), np.int32)
    for start in range(0, len(orders), block):
        place = np.argsort(orders[start : start + block], axis=1)
        masks = (place[:, None, :] < cuts[:, None]).astype(np.float32)
        scores = masks.reshape(-1, orders.shape[1]) @ products.T
        part = np.empty((len(scores), len(columns)), np.int32)
        for at, column in enumerate(columns):
            own = scores[:, column, None]
            part[:, at] = np.count_nonzero(scores > own, axis=1)
            part[:, at] += np.count_nonzero(scores[:, :column] == own, axis=1)
        out[start : start + block] = part.reshape(len(place), len(cuts), len(columns))
    return out


@cache
def _compiled() -> Callable[..., Any] | None:
    try:
        numba = require("numba", "fast")
    except MissingExtraError:
        return None
    prange = numba.prange

    def ranks(products, orders, cuts, columns):  # type: ignore[no-untyped-def]  # compiled, on arrays
        k = products.shape[1]
        out = np.empty((len(orders), len(cuts), len(columns)), np.int32)
        for o in prange(len(orders)):
            scores = np.zeros(k, np.float32)
            done = 0
            for c in range(len(cuts)):
                while done < cuts[c]:
                    added = products[orders[o, done]]
                    for j in range(k):
                        scores[j] += added[j]
                    done += 1
                for m in range(len(columns)):
                    own = scores[columns[m]]
                    before = 0
                    for j in range(k):
                        before += scores[j] > own
                    for j in range(columns[m]):
                        before += scores[j] == own
                    out[o, c, m] = before
        return out

    compiled: Callable[..., Any] = numba.njit(parallel=True)(ranks)
    return compiled
