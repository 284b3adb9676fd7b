"""HOBIT-C: the vectors that the previous epoch's own forward passes left behind (HOBIT section 5.4, A.6).

When a batch is trained, the cached vectors that it was built from are less than two epochs of steps old: lag ℓ ≤ 2t − 1
with t steps per epoch. A row that an epoch trains on costs no extra pass. A row that it left out, as one of a short
last batch that is dropped, keeps its vectors for one more epoch; if that epoch leaves it out too, it is embedded when
the next one begins. Warm-up epochs fill the cache as all others. Memory is bounded: one row per training pair,
2 · N · d numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Rows
from foils.runtime.errors import InputError

Vectors = NDArray[np.floating]


class EmbeddingCache:
    """The latest vectors of each training pair.

    Args:
        rows: N, how many pairs there are.
        dtype: "float16" halves the memory of "float32"; products are taken in single precision either way.
        scaled: whether vectors are kept with length 1, for a model that compares by cosine; else they are kept as they
            are, for one that compares by inner product.
    """

    def __init__(self, rows: int, *, dtype: str = "float32", scaled: bool = True) -> None:
        if dtype not in ("float16", "float32"):
            raise InputError(f"the cache holds float16 or float32; got {dtype!r}")
        self.rows, self.dtype, self.scaled = rows, dtype, scaled
        self.queries: Vectors = np.empty((0, 0), dtype)
        self.documents: Vectors = np.empty((0, 0), dtype)
        self.filled = np.zeros(rows, bool)
        self.recent = np.zeros(rows, bool)
        self._fresh = np.zeros(rows, bool)

    @property
    def nbytes(self) -> int:
        """Bytes held by vectors: 2 · N · d · itemsize once the first row has come, whatever comes later."""
        return int(self.queries.nbytes + self.documents.nbytes)

    @property
    def missing(self) -> Rows:
        """Rows that no forward pass has filled yet, ascending."""
        return np.flatnonzero(~self.filled)

    def update(self, rows: Rows, queries: Vectors, documents: Vectors) -> None:
        """Store vectors (m, d) of these rows, replacing older ones; they are scaled here where the cache is.

        Raises:
            InputError: shapes that do not fit, rows that do not exist, vectors that are not finite or zero.
        """
        rows = np.asarray(rows, np.int64)
        if rows.size and not (rows.min() >= 0 and rows.max() < self.rows):
            raise InputError(f"the cache has rows 0..{self.rows - 1}; got {rows.min()}..{rows.max()}")
        if not self.queries.size:
            self.queries = np.zeros((self.rows, queries.shape[1]), self.dtype)
            self.documents = np.zeros((self.rows, queries.shape[1]), self.dtype)
        expected = (rows.size, self.queries.shape[1])
        if queries.shape != expected or documents.shape != expected:
            raise InputError(
                f"{rows.size} rows need vectors of shape {expected}; got {queries.shape} and {documents.shape}"
            )
        pair = (unit(queries), unit(documents)) if self.scaled else (np.asarray(queries), np.asarray(documents))
        if not all(np.isfinite(side).all() and side.any(axis=1).all() for side in pair):
            raise InputError("vectors to cache must be finite and not zero: the training may have diverged")
        self.queries[rows], self.documents[rows] = pair
        self.filled[rows] = self.recent[rows] = self._fresh[rows] = True

    def turn(self) -> Rows:
        """Begin an epoch: return the rows that were not updated since the one before began, ascending."""
        old = np.flatnonzero(~self.recent)
        self.recent[:] = False
        return old

    def fresh(self, block: int = 65536) -> Iterator[tuple[Rows, Vectors, Vectors]]:
        """Yield what has been stored since the last call, in blocks of rows: for other processes to `update` with."""
        rows = np.flatnonzero(self._fresh)
        self._fresh[:] = False
        for start in range(0, rows.size, block):
            part = rows[start : start + block]
            yield part, self.queries[part], self.documents[part]

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the contents as arrays, for a checkpoint."""
        return {"queries": self.queries, "documents": self.documents, "filled": self.filled, "recent": self.recent}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the contents from a checkpoint's arrays.

        Raises:
            InputError: they are of another data set, or no vectors.
        """
        if state["filled"].shape != (self.rows,):
            raise InputError(f"the saved cache is of {state['filled'].size} rows, the data set has {self.rows}")
        pair = [state[name] for name in ("queries", "documents") if name in state]
        shapes = [array.shape for array in pair if array.dtype.kind == "f" and np.isfinite(array).all()]
        if len(shapes) < 2 or shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] != self.rows:
            raise InputError("the saved cache has no vectors of these rows; resume from another checkpoint")
        self.queries = state["queries"].astype(self.dtype)
        self.documents = state["documents"].astype(self.dtype)
        self.filled = state["filled"].astype(bool)
        self.recent = state.get("recent", np.zeros(self.rows)).astype(bool)
        self._fresh = np.zeros(self.rows, bool)


def unit(vectors: Vectors) -> NDArray[np.float32]:
    """Return the vectors (m, d) in single precision, each of length 1; one that is zero stays zero."""
    single = np.asarray(vectors, np.float32)
    norms = np.linalg.norm(single, axis=1, keepdims=True)
    norms[norms == 0] = 1
    scaled: NDArray[np.float32] = single / norms
    return scaled
