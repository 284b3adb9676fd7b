"""Nearest rows by inner product, exact or by cells: HOBIT's candidates and the graphs of its rivals."""

from __future__ import annotations

from collections.abc import Callable
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
        find: (seeds, unused rows, k) → the k unused rows nearest to each seed's query, best first.
        used: (N,) bool, shared with the caller, who sets it as rows are spent.
        k: neighbours wanted per seed.
        spare: how many times k are fetched, so that a list survives the rows spent between fetching and use.
    """

    find: Callable[[Rows, Rows, int], Rows]
    used: NDArray[np.bool_]
    k: int
    spare: int = 2

    def __post_init__(self) -> None:
        self._lists: dict[int, Rows] = {}
        self._whole: set[int] = set()
        self.searched = 0

    def prepare(self, seeds: Rows) -> None:
        """Search for these seeds at once, forgetting earlier lists."""
        self._lists.clear()
        self._whole.clear()
        self._search(seeds, self.k * self.spare)

    def candidates(self, seeds: Rows, *, factor: int = 1) -> Rows:
        """Return the union over `seeds` of each one's `factor`·k nearest unused rows, ascending.

        As exact as `find`: a list with too few rows left is searched again.
        """
        want = self.k * factor
        left = {int(seed): self._left(int(seed)) for seed in seeds}
        short = [seed for seed, rows in left.items() if rows.size < want and seed not in self._whole]
        if short:
            self._search(np.asarray(short, np.int64), want * self.spare)
            left.update({seed: self._left(seed) for seed in short})
        return np.unique(np.concatenate([rows[:want] for rows in left.values()]))

    def _left(self, seed: int) -> Rows:
        rows = self._lists.get(seed)
        return np.empty(0, np.int64) if rows is None else rows[~self.used[rows]]

    def _search(self, seeds: Rows, k: int) -> None:
        among = np.flatnonzero(~self.used)
        rows = self.find(seeds, among, k)
        self._lists.update(zip(seeds.tolist(), rows, strict=True))
        self.searched += seeds.size
        if among.size <= k:
            self._whole.update(seeds.tolist())


CELLS_BLOCK = 8192  # documents per matrix product, at most
ROUNDS = 5
"""Rounds of k-means, on a sample of 64 documents per cell."""


@dataclass(frozen=True)
class Cells:
    """Documents by the nearest of ~√N centres.

    Attributes:
        centres: (C, d) float32 unit vectors.
        cell_of: (N,) int32, the cell of each document.
    """

    centres: NDArray[np.float32]
    cell_of: NDArray[np.int32]

    @classmethod
    def build(cls, documents: Matrix, *, rng: np.random.Generator, block: int | None = None) -> Cells:
        """Cluster the documents by inner product: a sample for the centres, then everybody.

        Args:
            documents: (N, d) unit vectors.
            rng: draws the sample and the first centres.
            block: documents per matrix product; None: as many as the memory budget allows, 8192 at most.
        """
        n = documents.shape[0]
        count = max(1, round(n**0.5))
        block = block or memory.rows_at_once(4 * (documents.shape[1] + count), most=CELLS_BLOCK)
        sample = np.sort(rng.choice(n, size=min(n, 64 * count), replace=False))
        centres = documents[rng.choice(sample, size=count, replace=False)].astype(np.float32)
        for _ in range(ROUNDS):
            sums = np.zeros(centres.shape)
            for start in range(0, sample.size, block):
                part = documents[sample[start : start + block]].astype(np.float32)
                np.add.at(sums, (part @ centres.T).argmax(axis=1), part)
            norms = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), centres).astype(np.float32)
        cell_of = np.empty(n, np.int32)
        for start in range(0, n, block):
            part = documents[start : start + block].astype(np.float32)
            cell_of[start : start + block] = (part @ centres.T).argmax(axis=1)
        return cls(centres, cell_of)

    def nearest(self, queries: NDArray[np.floating], documents: Matrix, among: Rows, *, k: int) -> Rows:
        """Return (m, min(k, len(among))) rows of `documents[among]`, about the nearest to each query, best first.

        A query looks into the sixteenth of the cells whose centres are nearest (at least 16). A query that finds
        fewer than k there is searched exactly, and so is everybody once few documents are left.
        """
        require("numba", "batch")
        from foils.batching import kernels

        count = self.centres.shape[0]
        probes = max(16, count // 16)
        if probes >= count or among.size <= 64 * k:
            return nearest(queries, documents, among, k=k)[0]
        left = np.ascontiguousarray(queries, np.float32)
        looked = np.argpartition(-(left @ self.centres.T), probes, axis=1)[:, :probes]
        asking = np.argsort(looked.ravel(), kind="stable") // probes
        begin_asking = np.searchsorted(np.sort(looked.ravel()), np.arange(count + 1))
        members = among[np.argsort(self.cell_of[among], kind="stable")]
        begins = np.searchsorted(self.cell_of[members], np.arange(count + 1))
        scores = np.full((len(left), k), -np.inf, np.float32)
        rows = np.full((len(left), k), np.iinfo(np.int64).max, np.int64)
        for cell in range(count):
            who, ids = asking[begin_asking[cell] : begin_asking[cell + 1]], members[begins[cell] : begins[cell + 1]]
            if who.size and ids.size:
                right = documents[ids].astype(np.float32, copy=False)
                kernels.merge_top_of(who, left[who] @ right.T, ids, scores, rows)
        short = np.flatnonzero(np.isneginf(scores).any(axis=1))
        best = np.take_along_axis(rows, np.lexsort((rows, -scores), axis=1), axis=1)
        if short.size:
            best[short] = nearest(queries[short], documents, among, k=k)[0]
        return best
