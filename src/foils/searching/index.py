"""First stage: the k documents of largest inner product, exactly or by an index of faiss, built here or brought along.

An index takes query vectors (n, d) and gives positions and scores (n, k'), best first. Masked queries are queries as
any other, so every index here serves both passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.encode.nearest import BLOCK, top_inner_products
from foils.runtime import memory, progress
from foils.runtime.errors import InputError, UnknownNameError, require

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
FAISS_KINDS = ("flat", "hnsw", "ivf")
INNER_PRODUCT, L2 = 0, 1  # faiss' numbers of its metrics
NORM_TOLERANCE = 1e-3  # relative, of squared norms: what rounding to float16 leaves of unit vectors, and more
LINKS, CONSTRUCTION_DEPTH, SEARCH_DEPTH, PROBES = 32, 200, 128, 16  # of hnsw (M, efConstruction, efSearch), of ivf
ADDED = 65_536  # documents handed to faiss at a time
PROBED, FOUND = 16, 10  # documents searched for, to tell whether an index holds them; hits of each
NEAR = 0.02  # of ‖q‖‖d‖: what a score may be off by in an index that keeps vectors as they are


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


@dataclass(frozen=True)
class FaissIndex:
    """A faiss index whose vectors are the documents, by position: exact, or approximate.

    Attributes:
        index: faiss' own index, of inner products or of L2 distances; its search-time settings (efSearch, nprobe) are
            those it was built with.
        squared_norm: ‖d‖² of every document, which turns distances into inner products; `as_index` measures it, and an
            index of inner products needs none.
        held: the documents that it was found to hold; `as_index` looks.

    Made by `FaissIndex.build` or `as_index`. Ties, and what an approximate index misses, are faiss'
    affair.

    Raises:
        InputError: no index of faiss, or one of another metric.
    """

    index: Any
    squared_norm: float | None = None
    held: Vectors | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.index, require("faiss", "faiss").Index):
            raise InputError(f"expected an index of faiss over float vectors; found {type(self.index).__name__}")
        if self.index.metric_type not in (INNER_PRODUCT, L2):
            raise InputError(
                f"{type(self.index).__name__} compares vectors by faiss' metric {self.index.metric_type}; expected "
                "METRIC_INNER_PRODUCT or, where all documents have one norm, METRIC_L2"
            )

    @classmethod
    def build(cls, documents: Vectors, kind: str = "flat") -> FaissIndex:
        """Build an index of inner products over documents.

        Args:
            documents: N vectors.
            kind: `flat` (exact), `hnsw` (a graph; M 32, efConstruction 200, efSearch 128) or `ivf` (inverted lists by
                k-means, about 4·√N of them, at most N/39; nprobe 16).

        Raises:
            MissingExtraError: faiss is not installed.
            UnknownNameError: an unknown kind.
            InputError: no document.
        """
        faiss = require("faiss", "faiss")
        if kind not in FAISS_KINDS:
            raise UnknownNameError("kind of faiss index", kind, FAISS_KINDS)
        if not len(documents):
            raise InputError("expected at least one document; found none")
        n, d = len(documents), documents.dimension
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(d, LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction, index.hnsw.efSearch = CONSTRUCTION_DEPTH, SEARCH_DEPTH
        elif kind == "ivf":
            count = max(1, min(int(4 * np.sqrt(n)), n // 39))
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, count, faiss.METRIC_INNER_PRODUCT)
            index.train(documents.take(slice(0, n)).astype(np.float32, copy=False))
            index.nprobe = min(PROBES, count)
        else:
            index = faiss.IndexFlatIP(d)
        with progress.task(f"building the {kind} index", total=n, unit="documents") as advance:
            for _, part in documents.blocks(ADDED):
                index.add(np.ascontiguousarray(part, np.float32))
                advance(len(part))
        return cls(index).over(documents)

    def over(self, documents: Vectors) -> FaissIndex:
        """Return this index, known to hold these documents: of L2 distances, with the norm that all of them have.

        Raises:
            InputError: it has another size or dimension, distances to documents of several norms, or other vectors.
        """
        if len(self) != len(documents) or self.index.d != documents.dimension:
            raise InputError(
                f"expected an index of the {len(documents):,} documents, of dimension {documents.dimension}; found "
                f"{len(self):,} documents in the index, of dimension {self.index.d}"
            )
        if self.held is documents:
            return self
        norm = _common_squared_norm(documents) if self.index.metric_type == L2 else None
        ready = replace(self, squared_norm=norm, held=documents)
        ready._refuse_other_documents(documents)
        return ready

    def _refuse_other_documents(self, documents: Vectors) -> None:
        """Search for some documents: their inner products must be the scores, or each must be found, as compressed."""
        rows = np.unique(np.linspace(0, len(documents) - 1, PROBED).astype(np.int64))
        probes = documents.take(rows).astype(np.float32)
        positions, scores = self.search(probes, FOUND)
        found = positions >= 0
        hits = documents.take(np.where(found, positions, 0).ravel()).astype(np.float32).reshape(*positions.shape, -1)
        products = np.einsum("nd,nkd->nk", probes, hits)
        lengths = np.linalg.norm(probes, axis=1)[:, None] * np.linalg.norm(hits, axis=2)
        near = (np.abs(scores - products) <= NEAR * lengths + 1e-6)[found]
        own = (positions == rows[:, None]).any(axis=1)
        if found.any() and near.mean() < 0.5 and own.mean() < 0.5:
            raise InputError(
                f"the index holds other vectors than the {len(documents):,} documents, or these in another order: its "
                "scores of some of them are not their inner products; build it from these vectors, in this order"
            )

    def __len__(self) -> int:
        """Return how many documents the index holds."""
        return int(self.index.ntotal)

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and inner products, each (n, min(k, N)), best first; position −1: nothing more found.

        From L2 distances D = ‖q − d‖² the inner product is q·d = (‖q‖² + ‖d‖² − D) / 2.

        Raises:
            InputError: queries of another dimension, values that are not finite, k < 1, an index of distances whose
                documents' norm is not known, or one with ids of its own.
        """
        wanted = checked_queries(queries, k, int(self.index.d))
        scores, positions = self.index.search(wanted, min(k, len(self)))
        if positions.size and not -1 <= positions.min() <= positions.max() < len(self):
            raise InputError(
                f"{type(self.index).__name__} gave the id {positions.max()}, but holds {len(self):,} vectors: it has "
                "ids of its own; expected an index whose ids are the documents' positions"
            )
        if self.index.metric_type == L2:
            if self.squared_norm is None:
                raise InputError(
                    "the scores of an index of L2 distances depend on the documents' norm; hand it over with them: "
                    "as_index(index, documents)"
                )
            scores = (np.sum(wanted**2, axis=1, keepdims=True) + np.float32(self.squared_norm) - scores) / 2
        return positions.astype(np.int64, copy=False), scores


def as_index(index: Any, documents: Vectors) -> Index:
    """Return an index as it is if it can search these documents; an index of faiss is wrapped.

    Distances order documents as inner products do where all have one norm. For an index of L2 distances that is
    checked, in one pass over the documents. Whether an index of faiss holds these documents is seen from its scores of
    a few. What is returned remembers both, and is not checked again.

    Args:
        index: an `Index`, or faiss' own.
        documents: the vectors that it holds, in its order.

    Raises:
        InputError: no index, one of another size or dimension, of other vectors, of a metric other than inner product
            and L2, or of L2 distances over documents of several norms.
    """
    if not isinstance(index, FaissIndex) and all(hasattr(index, name) for name in ("ntotal", "d", "search")):
        index = FaissIndex(index)
    if not all(hasattr(index, name) for name in ("__len__", "search")):
        raise InputError(f"expected an index with a length and a search, or one of faiss; found {type(index).__name__}")
    if isinstance(index, FaissIndex):
        return index.over(documents)
    if len(index) != len(documents):
        raise InputError(
            f"expected an index of the {len(documents):,} documents; found {len(index):,} documents in the index"
        )
    return index  # type: ignore[no-any-return]  # it has what the protocol asks for


def _common_squared_norm(documents: Vectors) -> float:
    low, high = np.inf, 0.0
    for _, part in documents.blocks(memory.rows_at_once(12 * documents.dimension, most=65_536)):
        squared = np.einsum("nd,nd->n", part, part, dtype=np.float64)
        low, high = min(low, float(squared.min())), max(high, float(squared.max()))
    if high - low > NORM_TOLERANCE * high:
        raise InputError(
            f"an index of L2 distances over documents whose norms range from {low**0.5:.4g} to {high**0.5:.4g}: the "
            "nearest is not the one of the largest inner product; normalise the vectors, or build the index with "
            "faiss.METRIC_INNER_PRODUCT"
        )
    return (low + high) / 2
