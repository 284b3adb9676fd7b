"""What every method works with: an epoch cut into batches, every row in exactly one of them, and nearest rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foils.runtime import memory
from foils.runtime.errors import InputError

Rows = NDArray[np.int64]


Matrix = Any
"""Rows (N, d) that are read by their numbers: an array, a memory map, or vectors joined as they are read."""
BLOCK = 16384


@dataclass(frozen=True)
class Batches:
    """The batches of one epoch: a permutation of the rows, cut every `batch_size`.

    Attributes:
        order: (N,) int64, a permutation of 0..N-1; batch k is `order[k * batch_size : (k + 1) * batch_size]`.
        batch_size: rows in each batch; only the last may be shorter.
        among: of a mixture, of how many rows the epoch's are drawn: `order` may leave some of them out, and take others
            several times. None: it is a permutation.

    Raises:
        InputError: `order` is not a permutation of 0..N-1, or not of the rows it is drawn from, or `batch_size` < 1.
    """

    order: Rows
    batch_size: int
    among: int | None = None

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)
        order = np.asarray(self.order)
        if order.ndim != 1 or (order.size and order.dtype.kind not in "iu"):
            raise InputError(f"an epoch's order is a vector of row numbers; got {order.dtype} {order.shape}")
        order = order.astype(np.int64)
        inside = order[(order >= 0) & (order < (order.size if self.among is None else self.among))]
        if self.among is not None and inside.size < order.size:
            raise InputError(f"an epoch draws from rows 0..{self.among - 1}; {order.size - inside.size} do not exist")
        missing = np.flatnonzero(np.bincount(inside, minlength=order.size) == 0)
        if missing.size and self.among is None:
            raise InputError(
                f"an epoch visits every row exactly once; of {order.size} rows {missing.size} are missing "
                f"(first: {missing[:5].tolist()}), others come twice or do not exist"
            )
        order.flags.writeable = False
        object.__setattr__(self, "order", order)

    @property
    def rows(self) -> int:
        """How many rows the epoch has."""
        return int(self.order.size)

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def __getitem__(self, k: int) -> Rows:
        start = range(0, self.rows, self.batch_size)[k]
        return self.order[start : start + self.batch_size]

    def __iter__(self) -> Iterator[Rows]:
        return (self[k] for k in range(len(self)))


def shuffled(batches: Batches, *, rng: np.random.Generator) -> Batches:
    """Shuffle whole batches; a short last one stays last.

    Greedy methods spend the easy choices first: without this, the worst batches come at the end of an epoch.
    """
    full = batches.rows // batches.batch_size
    cut = full * batches.batch_size
    head = batches.order[:cut].reshape(full, batches.batch_size)[rng.permutation(full)]
    return Batches(np.concatenate([head.ravel(), batches.order[cut:]]), batches.batch_size)


def check_batch_size(batch_size: int) -> None:
    """Raise InputError unless `batch_size` is a positive whole number."""
    if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool) or batch_size < 1:
        raise InputError(f"batch_size is a whole number of at least 1; got {batch_size!r}")


def check_vectors(queries: NDArray[np.floating], documents: NDArray[np.floating]) -> None:
    """Raise InputError unless row i of both matrices can be the i-th training pair.

    Both must be (N, d) floating point with the same shape and finite values (checked by blocks of rows).
    """
    if queries.ndim != 2 or queries.shape != documents.shape or {queries.dtype.kind, documents.dtype.kind} != {"f"}:
        raise InputError(
            "row i of queries and of documents are the i-th training pair: floating-point matrices of one shape (N, d);"
            f" got {queries.dtype} {queries.shape} and {documents.dtype} {documents.shape}"
        )
    for name, matrix in (("queries", queries), ("documents", documents)):
        for start in range(0, len(matrix), BLOCK):
            bad = np.flatnonzero(~np.isfinite(matrix[start : start + BLOCK].sum(axis=1, dtype=np.float64)))
            if bad.size:
                raise InputError(f"{name} has rows with NaN or infinity (first: {(start + bad[:5]).tolist()})")


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
    from foils.batching import kernels

    k = min(k, among.size)
    scores = np.full((queries.shape[0], k), -np.inf, np.float32)
    rows = np.full((queries.shape[0], k), np.iinfo(np.int64).max, np.int64)
    if k:
        left = np.ascontiguousarray(queries, np.float32)
        block = block or memory.rows_at_once(4 * (documents.shape[1] + len(left)), most=4096)
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
