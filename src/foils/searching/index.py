"""First stage: the k documents of largest inner product, exactly; by faiss: `foils.searching.faiss_index`.

An index takes query vectors (n, d) and gives positions and scores (n, k'), best first. Masked queries are queries as
any other, so every index here serves both passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.encode.nearest import BLOCK, top_inner_products
from foils.runtime import progress
from foils.runtime.errors import InputError

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Index(Protocol):
    """What answers queries with documents."""

    def __len__(self) -> int:
        """Return how many documents the index holds."""
        ...

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and inner products, each (n, min(k, N)), best first; position −1: nothing more found."""
        ...


@dataclass(frozen=True)
class ExactIndex:
    """Every inner product, in blocks; ties go to the lower position.

    Attributes:
        documents: N vectors of dimension d.
        block: documents at a time; changes memory and speed, and not one bit of the result. None: what the memory
            budget allows.
        query_block: queries at a time, likewise.
    """

    documents: Vectors
    block: int | None = None
    query_block: int = BLOCK

    def __post_init__(self) -> None:
        if not len(self.documents) or min(self.query_block, 1 if self.block is None else self.block) < 1:
            raise InputError(
                f"expected documents and blocks of at least 1; found {len(self.documents)} documents, "
                f"block={self.block}, query_block={self.query_block}"
            )

    def __len__(self) -> int:
        """Return how many documents the index holds."""
        return len(self.documents)

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and float32 inner products, each (n, min(k, N)), best first.

        Raises:
            InputError: queries of another dimension, values that are not finite, or k < 1.
        """
        wanted = checked_queries(queries, k, self.documents.dimension)
        depth = min(k, len(self))
        positions = np.empty((len(wanted), depth), np.int64)
        scores = np.empty((len(wanted), depth), np.float32)
        with progress.task("searching", total=len(wanted), unit="queries") as advance:
            for first in range(0, len(wanted), self.query_block):
                rows = slice(first, first + self.query_block)
                positions[rows], scores[rows] = top_inner_products(
                    wanted[rows], self.documents, depth, block=self.block
                )
                advance(len(wanted[rows]))
        return positions, scores


def search_lists(
    index: Index, queries: npt.NDArray[np.floating], k: int, *, without: Rows | None = None
) -> tuple[list[Rows], list[Scores]]:
    """Return each query's list of at most k positions, best first, and their scores.

    Args:
        index: what retrieves; places that an approximate one leaves empty are left out.
        queries: (n, d).
        k: at least 1.
        without: (n,) a position that is left out of the query's list, to which the next moves up; −1: none.
    """
    own = np.full(len(queries), -1, np.int64) if without is None else without
    positions, scores = index.search(queries, k + int((own >= 0).any()))
    kept = (positions >= 0) & (positions != own[:, None])
    kept &= np.cumsum(kept, axis=1) <= k
    if kept.all():
        return list(positions), list(scores)
    return [p[of] for p, of in zip(positions, kept, strict=True)], [s[of] for s, of in zip(scores, kept, strict=True)]


def checked_queries(queries: npt.NDArray[np.floating], k: int, dimension: int) -> Scores:
    """Return queries (n, d) as a contiguous float32 array.

    Raises:
        InputError: another shape or dimension, values that are not finite, or k < 1.
    """
    if queries.ndim != 2 or queries.shape[1] != dimension or k < 1 or not np.isfinite(queries).all():
        raise InputError(
            f"expected finite queries of shape (n, {dimension}) and k of at least 1; found {queries.shape}, k={k}"
        )
    return np.ascontiguousarray(queries, np.float32)
