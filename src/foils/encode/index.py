"""First stage: the k documents of largest inner product, exactly or by an index of faiss, built here or brought along.

An index takes query vectors (n, d) and gives positions and scores (n, k'), best first. Masked queries are queries as
any other, so every index here serves both passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from foils.encode.nearest import BLOCK, DEVICE_QUERIES, gpu, top_inner_products
from foils.encode.vectors import Vectors
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names, require

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
FAISS_KINDS = ("flat", "hnsw", "ivf")
INNER_PRODUCT = 0  # faiss' number of this metric
LINKS, CONSTRUCTION_DEPTH, SEARCH_DEPTH, PROBES = 32, 200, 128, 16  # of hnsw (M, efConstruction, efSearch), of ivf
ADDED = 65_536  # documents handed to faiss at a time
PROBED, FOUND = 16, 10  # documents searched for, to tell whether an index holds them; hits of each
NEAR = 0.02  # of ‖q‖‖d‖: what a score may be off by in an index that keeps vectors as they are


class Index(Protocol):
    """What answers queries with documents."""

    def __len__(self) -> int:
        """Return how many documents the index holds."""

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and inner products, each (n, min(k, N)), best first; position −1: nothing more found."""


@dataclass(frozen=True)
class ExactIndex:
    """Every inner product, in blocks; ties go to the lower position.

    Attributes:
        documents: N vectors of dimension d.
        block: documents at a time; changes memory and speed, and not one bit of the result. None: what the memory
            budget allows.
        device: torch device of the model that made the vectors: it searches, too, where it is a GPU of CUDA that this
            process has; else the processor does. The result is the same, bit for bit.
    """

    documents: Vectors
    block: int | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if not len(self.documents) or (self.block is not None and self.block < 1):
            found = f"{len(self.documents)} documents, block={self.block}"
            raise InputError(f"expected documents and a block of at least 1; found {found}")

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
        device = gpu(self.device)
        size = BLOCK if device is None else DEVICE_QUERIES
        with progress.task("searching", total=len(wanted), unit="queries") as advance:
            for first in range(0, len(wanted), size):
                part = slice(first, first + size)
                best = top_inner_products(wanted[part], self.documents, depth, block=self.block, device=device)
                positions[part], scores[part] = best
                advance(len(wanted[part]))
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
        raise InputError(f"expected finite queries (n, {dimension}) and k of at least 1; found {queries.shape}, k={k}")
    return np.ascontiguousarray(queries, np.float32)


@dataclass(frozen=True)
class FaissIndex:
    """A faiss index of inner products whose vectors are the documents, by position: exact, or approximate.

    Whether it holds these documents is seen from its scores of a few. Ties, and what an approximate index misses, are
    faiss' affair.

    Attributes:
        index: faiss' own index; its search-time settings (efSearch, nprobe) are those it was built with.
        documents: the vectors that it holds, in its order.

    Raises:
        InputError: no index of faiss, or one of another metric, of another size or dimension, or of other vectors.
    """

    index: Any
    documents: Vectors = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.index, require("faiss", "faiss").Index):
            raise InputError(f"expected an index of faiss over float vectors; found {type(self.index).__name__}")
        if self.index.metric_type != INNER_PRODUCT:
            said = f"{type(self.index).__name__} compares vectors by faiss' metric {self.index.metric_type}"
            raise InputError(f"{said}; build it with METRIC_INNER_PRODUCT, or search it through foils.SharpenedSearch")
        if len(self) != len(self.documents) or self.index.d != self.documents.dimension:
            wanted = f"the {len(self.documents):,} documents, of dimension {self.documents.dimension}"
            raise InputError(f"expected an index of {wanted}; found {len(self):,}, of dimension {self.index.d}")
        # some documents are searched for: their products must be the scores, or each must be found, as compressed
        rows = np.unique(np.linspace(0, len(self) - 1, PROBED).astype(np.int64))
        probes = self.documents.take(rows).astype(np.float32)
        positions, scores = self.search(probes, FOUND)
        found = positions >= 0
        hits = self.documents.take(np.where(found, positions, 0).ravel()).astype(np.float32)
        hits = hits.reshape(*positions.shape, -1)
        products = np.einsum("nd,nkd->nk", probes, hits)
        lengths = np.linalg.norm(probes, axis=1)[:, None] * np.linalg.norm(hits, axis=2)
        near = (np.abs(scores - products) <= NEAR * lengths + 1e-6)[found]
        own = (positions == rows[:, None]).any(axis=1)
        if found.any() and near.mean() < 0.5 and own.mean() < 0.5:
            said = f"the index holds other vectors than the {len(self):,} documents, or these in another order"
            raise InputError(f"{said}; build it from these vectors, in this order")

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
        check_names("kind of faiss index", [kind], FAISS_KINDS)
        if not len(documents):
            raise InputError("expected at least one document; found none")
        n, d = len(documents), documents.dimension
        lists = max(1, min(int(4 * np.sqrt(n)), n // 39))
        factory = {"flat": "Flat", "hnsw": f"HNSW{LINKS},Flat", "ivf": f"IVF{lists},Flat"}[kind]
        index = faiss.index_factory(d, factory, faiss.METRIC_INNER_PRODUCT)
        if kind == "hnsw":
            index.hnsw.efConstruction, index.hnsw.efSearch = CONSTRUCTION_DEPTH, SEARCH_DEPTH
        elif kind == "ivf":
            index.train(documents.take(slice(0, n)).astype(np.float32, copy=False))
            index.nprobe = min(PROBES, lists)
        with progress.task(f"building the {kind} index", total=n, unit="documents") as advance:
            for _, part in documents.blocks(ADDED):
                index.add(np.ascontiguousarray(part, np.float32))
                advance(len(part))
        return cls(index, documents)

    def __len__(self) -> int:
        """Return how many documents the index holds."""
        return int(self.index.ntotal)

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and inner products, each (n, min(k, N)), best first; position −1: nothing more found.

        Raises:
            InputError: queries of another dimension, values that are not finite, k < 1, or an index with ids of its
                own.
        """
        scores, positions = self.index.search(checked_queries(queries, k, int(self.index.d)), min(k, len(self)))
        if positions.size and not -1 <= positions.min() <= positions.max() < len(self):
            raise InputError(f"{type(self.index).__name__} has ids of its own; expected the documents' positions")
        return positions.astype(np.int64, copy=False), scores


def as_index(index: Any, documents: Vectors) -> Index:
    """Return an index as it is if it can search these documents; an index of faiss is wrapped.

    Args:
        index: an `Index`, or faiss' own.
        documents: the vectors that it holds, in its order.

    Raises:
        InputError: no index, one of another size, or what `FaissIndex` refuses.
    """
    if isinstance(index, FaissIndex):
        return index if index.documents is documents else FaissIndex(index.index, documents)
    if all(hasattr(index, name) for name in ("ntotal", "d", "search")):
        return FaissIndex(index, documents)
    if not all(hasattr(index, name) for name in ("__len__", "search")):
        raise InputError(f"expected an index with a length and a search, or one of faiss; found {type(index).__name__}")
    if len(index) != len(documents):
        raise InputError(f"expected an index of the {len(documents):,} documents; found {len(index):,} in it")
    return index  # type: ignore[no-any-return]  # it has what the protocol asks for
