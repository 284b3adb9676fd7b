"""Indexes of faiss: built here, read from a file, or brought along, of inner products or of L2 distances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime import memory, progress
from foils.runtime.errors import FormatError, InputError, UnknownNameError, require
from foils.runtime.files import write_whole
from foils.searching.index import Index, Rows, Scores, checked_queries
from foils.searching.index_files import IndexOrigin, add_origin, read_origin

FaissKind = Literal["flat", "hnsw", "ivf"]
FAISS_KINDS = ("flat", "hnsw", "ivf")
INNER_PRODUCT, L2 = 0, 1  # faiss' numbers of its metrics
NORM_TOLERANCE = 1e-3  # relative, of squared norms: what rounding to float16 leaves of unit vectors, and more


@dataclass(frozen=True)
class FaissIndex:
    """A faiss index whose vectors are the documents, by position: exact, or approximate.

    Attributes:
        index: faiss' own index, of inner products or of L2 distances; its search-time settings (efSearch, nprobe) are
            those it was built with.
        squared_norm: ‖d‖² of every document, which turns distances into inner products; `as_index` measures it, and an
            index of inner products needs none.
        kind: what it is called in its file: `flat`, `hnsw` or `ivf`, otherwise the name of faiss' class.

    Made by `FaissIndex.build`, `FaissIndex.load` or `as_index`. Ties, and what an approximate index misses, are faiss'
    affair.

    Raises:
        InputError: no index of faiss, or one of another metric.
    """

    index: Any
    squared_norm: float | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.index, require("faiss", "faiss").Index):
            raise InputError(f"expected an index of faiss over float vectors; found {type(self.index).__name__}")
        if self.index.metric_type not in (INNER_PRODUCT, L2):
            raise InputError(
                f"{type(self.index).__name__} compares vectors by faiss' metric {self.index.metric_type}; expected "
                "METRIC_INNER_PRODUCT or, where all documents have one norm, METRIC_L2"
            )
        object.__setattr__(self, "kind", self.kind or type(self.index).__name__)

    @classmethod
    def build(
        cls,
        documents: Vectors,
        kind: FaissKind = "flat",
        *,
        links: int = 32,
        construction_depth: int = 200,
        search_depth: int = 128,
        lists: int | None = None,
        probes: int = 16,
        block: int = 65_536,
    ) -> FaissIndex:
        """Build an index of inner products over documents.

        Args:
            documents: N vectors.
            kind: `flat` (exact), `hnsw` (a graph) or `ivf` (inverted lists by k-means).
            links: hnsw: neighbours of a node (M).
            construction_depth: hnsw: candidates while building (efConstruction).
            search_depth: hnsw: candidates while searching (efSearch); more finds more.
            lists: ivf: how many lists; None: about 4·√N, at most N/39 (what faiss wants for k-means).
            probes: ivf: lists visited by a query (nprobe); more finds more.
            block: documents handed over at a time.

        Raises:
            MissingExtraError: faiss is not installed.
            UnknownNameError: an unknown kind.
            InputError: no document, or a setting below 1.
        """
        faiss = require("faiss", "faiss")
        if kind not in FAISS_KINDS:
            raise UnknownNameError("kind of faiss index", kind, FAISS_KINDS)
        n, d = len(documents), documents.dimension if len(documents) else 0
        settings = (links, construction_depth, search_depth, probes, block, 1 if lists is None else lists)
        if not n or min(settings) < 1:
            raise InputError(f"expected documents and settings of at least 1; found {n} documents, {settings}")
        if kind == "hnsw":
            index = faiss.IndexHNSWFlat(d, links, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction, index.hnsw.efSearch = construction_depth, search_depth
        elif kind == "ivf":
            count = min(n, lists or max(1, min(int(4 * np.sqrt(n)), n // 39)))
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, count, faiss.METRIC_INNER_PRODUCT)
            index.train(documents.take(slice(0, n)).astype(np.float32, copy=False))
            index.nprobe = min(probes, count)
        else:
            index = faiss.IndexFlatIP(d)
        with progress.task(f"building the {kind} index", total=n, unit="documents") as advance:
            for _, part in documents.blocks(block):
                index.add(np.ascontiguousarray(part, np.float32))
                advance(len(part))
        return cls(index, kind=kind)

    @classmethod
    def load(
        cls, path: str | Path, documents: Vectors, *, kind: str | None = None, encoder: str | None = None
    ) -> FaissIndex:
        """Read an index that `save` wrote, if it was built from just these documents.

        Args:
            path: of the file.
            documents: vectors that the index must hold, in this order; one pass makes their digest.
            kind: the kind that it must be; None: any.
            encoder: fingerprint that it must have; None: any.

        Raises:
            MissingExtraError: faiss is not installed.
            InputError: no such file, or an index of other vectors, another encoder or another kind.
            FormatError: not an index that `save` wrote, or a damaged one.
        """
        faiss = require("faiss", "faiss")
        origin = read_origin(path)  # faiss itself crashes on some damage
        wanted = IndexOrigin.of(
            documents, origin.kind if kind is None else kind, origin.encoder if encoder is None else encoder
        )
        if differences := origin.differences(wanted):
            raise InputError(
                f"{path}: an index built from something else: {'; '.join(differences)}; name another file, or remove "
                "this one, and the index is built again"
            )
        try:
            return cls(faiss.read_index(str(path)), kind=origin.kind).over(documents)
        except RuntimeError as error:
            raise FormatError("not a readable faiss index; build it again", path) from error

    def save(self, path: str | Path, documents: Vectors, *, encoder: str = "") -> None:
        """Write the index with its search-time settings, and what it was built from; the file appears whole.

        Args:
            path: of the file.
            documents: the vectors that the index holds, in its order.
            encoder: fingerprint of what made them.

        Raises:
            InputError: an index that does not hold these documents.
        """
        faiss = require("faiss", "faiss")
        origin = IndexOrigin.of(documents, self.over(documents).kind, encoder)
        with write_whole(path) as aside:
            faiss.write_index(self.index, str(aside))
            add_origin(aside, origin)

    def over(self, documents: Vectors) -> FaissIndex:
        """Return this index, ready to search these documents: of L2 distances, with the norm that all of them have.

        Raises:
            InputError: it has another size or dimension, or distances to documents of several norms.
        """
        if len(self) != len(documents) or self.index.d != documents.dimension:
            raise InputError(
                f"expected an index of the {len(documents):,} documents, of dimension {documents.dimension}; found "
                f"{len(self):,} documents in the index, of dimension {self.index.d}"
            )
        if self.index.metric_type == L2 and self.squared_norm is None:
            return replace(self, squared_norm=_common_squared_norm(documents))
        return self

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
    checked, in one pass over the documents; what is returned remembers the norm, and is not checked again.

    Args:
        index: an `Index`, or faiss' own.
        documents: the vectors that it holds, in its order.

    Raises:
        InputError: no index, one of another size or dimension, of a metric other than inner product and L2, or of L2
            distances over documents of several norms.
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
