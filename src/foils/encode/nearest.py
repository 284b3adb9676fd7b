"""The documents of largest inner product, exactly: what dense mining and exact search both need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.encode.vectors import Vectors

BLOCK = 4_096  # documents of a block, and queries that go well with it: 64 MiB of products

Floats = npt.NDArray[np.floating]
Scores = npt.NDArray[np.float64]


def top_inner_products(queries: Floats, documents: Vectors, depth: int, *, block: int = BLOCK) -> tuple[Rows, Scores]:
    """Return the documents with the largest inner products, exactly.

    Args:
        queries: (n, d).
        documents: (m, d).
        depth: how many; rows beyond m are −1, with NaN.
        block: documents multiplied at once; changes speed and memory alone.

    Returns:
        Rows (n, depth), best first, ties by row, and inner products (n, depth).
    """
    best = np.full((len(queries), depth), -np.inf, queries.dtype)
    rows = np.full((len(queries), depth), -1, np.int64)
    if not best.size:
        return rows, best.astype(np.float64)
    for start, vectors in documents.blocks(block):
        products = queries @ vectors.T
        if rows[0, -1] < 0 and depth < products.shape[1]:  # lists not full yet: the block's own best can enter
            entering = products >= np.partition(products, -depth, axis=1)[:, -depth, None]
        else:
            entering = products > best[:, -1:]
        query, column = np.nonzero(entering)
        if len(query):
            best, rows = _merged(best, rows, query, column + start, products[query, column])
    return rows, np.where(rows >= 0, best, np.nan).astype(np.float64)


def _merged(best: Floats, rows: Rows, query: Rows, row: Rows, product: Floats) -> tuple[Floats, Rows]:
    """Put new (query, row, product) among the best; they come from later rows, so ties go to those already there."""
    touched, index = np.unique(query, return_inverse=True)
    depth = best.shape[1]
    queries = np.concatenate([np.repeat(np.arange(len(touched)), depth), index])
    products = np.concatenate([best[touched].ravel(), product])
    candidates = np.concatenate([rows[touched].ravel(), row])
    order = np.lexsort((np.where(candidates < 0, np.iinfo(np.int64).max, candidates), -products, queries))
    starts = np.searchsorted(queries[order], np.arange(len(touched)))
    chosen = order[starts[:, None] + np.arange(depth)]
    best, rows = best.copy(), rows.copy()
    best[touched], rows[touched] = products[chosen], candidates[chosen]
    return best, rows
