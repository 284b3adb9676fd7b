"""Nearest rows by inner product: HOBIT's candidates and the graphs of its rivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Matrix, Rows
from foils.runtime import memory
from foils.runtime.errors import InputError, require

BLOCK = 4096  # documents per matrix product, at most


def nearest(
    queries: NDArray[np.floating],
    documents: Matrix,
    among: Rows,
    *,
    k: int,
    block: int | None = None,
) -> tuple[Rows, NDArray[np.float32]]:
    """Return, for each query, the k rows of `documents[among]` of highest inner product.

    Only a block of the documents is gathered at a time, so the extra memory is `block` rows and the results.

    Args:
        queries: (m, d).
        documents: (N, d), or a memory map.
        among: row numbers of the documents to search, ascending.
        k: how many to return; if `among` has fewer, that many.
        block: documents per matrix product; changes speed, and results only by rounding. None: as many as the memory
            budget allows, 4096 at most.

    Returns:
        rows (m, min(k, len(among))) and inner products, best first; ties go to the lower row.
    """
    if k < 1:
        raise InputError(f"k is how many neighbours to return, at least 1; got {k}")
    require("numba", "batch")
    from foils.batching import kernels

    k = min(k, among.size)
    scores = np.full((queries.shape[0], k), -np.inf, np.float32)
    rows = np.full((queries.shape[0], k), np.iinfo(np.int64).max, np.int64)
    if k:
        left = np.ascontiguousarray(queries, np.float32)
        block = block or memory.rows_at_once(4 * (documents.shape[1] + len(left)), most=BLOCK)
        for start in range(0, among.size, block):
            ids = among[start : start + block]
            right = documents[ids].astype(np.float32, copy=False)
            kernels.merge_top(left @ right.T, ids, scores, rows)
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)


@dataclass
class Unused:
    """The unused rows nearest to each seed, searched for many coming seeds in one pass.

    Attributes:
        queries: (N, d) of the seeds.
        documents: (N, d) that are searched.
        used: (N,) bool, shared with the caller, who sets it as rows are spent.
        k: neighbours wanted per seed.
        spare: how many times k are fetched, so that a list survives the rows spent between fetching and use.
    """

    queries: Matrix
    documents: Matrix
    used: NDArray[np.bool_]
    k: int
    spare: int = 2

    def __post_init__(self) -> None:
        self._lists: dict[int, Rows] = {}

    def prepare(self, seeds: Rows) -> None:
        """Search for these seeds at once, forgetting earlier lists."""
        self._lists.clear()
        self._search(seeds, self.k * self.spare)

    def candidates(self, seeds: Rows, *, factor: int = 1) -> Rows:
        """Return the union over `seeds` of each one's `factor`·k nearest unused rows, ascending.

        As exact as `nearest`: a list with too few rows left is searched again.
        """
        left_over = self.used.size - int(np.count_nonzero(self.used))
        want, nothing = min(self.k * factor, left_over), np.empty(0, np.int64)
        left = {seed: rows[~self.used[rows]] for seed in seeds.tolist() for rows in [self._lists.get(seed, nothing)]}
        short = [seed for seed, rows in left.items() if rows.size < want]
        if short:
            self._search(np.asarray(short, np.int64), self.k * factor * self.spare)
            left.update({seed: self._lists[seed] for seed in short})
        return np.unique(np.concatenate([rows[:want] for rows in left.values()]))

    def _search(self, seeds: Rows, k: int) -> None:
        rows, _ = nearest(self.queries[seeds], self.documents, np.flatnonzero(~self.used), k=k)
        self._lists.update(zip(seeds.tolist(), rows, strict=True))
