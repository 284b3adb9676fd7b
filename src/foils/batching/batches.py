"""An epoch cut into batches: every row in exactly one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        if not -len(self) <= k < len(self):
            raise IndexError(f"batch {k} of {len(self)}")
        k %= len(self)
        return self.order[k * self.batch_size : (k + 1) * self.batch_size]

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
