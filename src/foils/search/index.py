"""First stage: the k documents of largest inner product, exactly or by faiss.

An index takes query vectors (n, d) and gives positions and scores (n, k'), best first. Masked queries are queries as
any other, so every index here serves both passes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from foils import progress
from foils.data.store import existing_file, write_whole
from foils.encode import Vectors
from foils.encode.nearest import BLOCK, top_inner_products
from foils.errors import FormatError, InputError, UnknownNameError, require

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
FaissKind = Literal["flat", "hnsw", "ivf"]
FAISS_KINDS = ("flat", "hnsw", "ivf")


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
        wanted = _checked(queries, k, self.documents.dimension)
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


@dataclass(frozen=True)
class FaissIndex:
    """A faiss index of inner products: exact (`flat`), or approximate (`hnsw`, `ivf`).

    Attributes:
        index: faiss' own index; its search-time settings (efSearch, nprobe) are those it was built with.

    Made by `FaissIndex.build` or `FaissIndex.load`. Ties, and what an approximate index misses, are faiss' affair.
    """

    index: Any

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
        """Build an index over documents.

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
        return cls(index)

    @classmethod
    def load(cls, path: str | Path) -> FaissIndex:
        """Read an index that `save` wrote.

        Raises:
            MissingExtraError: faiss is not installed.
            InputError: no such file.
            FormatError: not an index that `save` wrote, or a damaged one.
        """
        faiss = require("faiss", "faiss")
        if not _is_whole(existing_file(path)):  # faiss itself crashes on some damage
            raise FormatError("damaged, or not written by foils; build it again", path)
        try:
            return cls(faiss.read_index(str(path)))
        except RuntimeError as error:
            raise FormatError("not a readable faiss index; build it again", path) from error

    def save(self, path: str | Path) -> None:
        """Write the index, with its search-time settings, whole; a digest at the end, which faiss reads past."""
        faiss = require("faiss", "faiss")
        with write_whole(path) as aside:
            faiss.write_index(self.index, str(aside))
            digest = _digest(aside, aside.stat().st_size)
            with aside.open("ab") as out:
                out.write(_END + digest)

    def __len__(self) -> int:
        """Return how many documents the index holds."""
        return int(self.index.ntotal)

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Scores]:
        """Return positions and inner products, each (n, min(k, N)), best first; position −1: nothing more found.

        Raises:
            InputError: queries of another dimension, values that are not finite, or k < 1.
        """
        wanted = _checked(queries, k, int(self.index.d))
        scores, positions = self.index.search(wanted, min(k, len(self)))
        return positions.astype(np.int64, copy=False), scores


def _checked(queries: npt.NDArray[np.floating], k: int, dimension: int) -> Scores:
    if queries.ndim != 2 or queries.shape[1] != dimension or k < 1 or not np.isfinite(queries).all():
        raise InputError(
            f"expected finite queries of shape (n, {dimension}) and k of at least 1; found {queries.shape}, k={k}"
        )
    return np.ascontiguousarray(queries, np.float32)


_END = b"foils-index-1\n"


def _digest(path: Path, size: int) -> bytes:
    """BLAKE2b of the first bytes of a file."""
    hasher = hashlib.blake2b(digest_size=32)
    with path.open("rb") as opened:
        while size > 0 and (part := opened.read(min(size, 1 << 22))):
            hasher.update(part)
            size -= len(part)
    return hasher.digest()


def _is_whole(path: Path) -> bool:
    """Tell whether the file ends with the digest of what comes before."""
    size = path.stat().st_size - len(_END) - 32
    if size < 0:
        return False
    with path.open("rb") as opened:
        opened.seek(size)
        return opened.read() == _END + _digest(path, size)
