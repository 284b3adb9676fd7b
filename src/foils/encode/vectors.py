"""Every text is embedded once: immutable shards of vectors, found by fingerprint, route and text.

A shard is one NumPy file of records (key, vector), written whole, named by its keys; it never changes. So a kill
costs at most the shard in the making, two processes may write at once, and a model with other weights has another
folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from foils import progress
from foils.data.collection import Collection, Rows
from foils.data.store import write_whole
from foils.encode.encoder import Encoder, Floats, Kind, check_finite
from foils.errors import FormatError, InputError, UnknownNameError

SLICE = 16_384  # texts looked up, and sorted by length, together
SHARD = 1_024  # texts of a shard: what a kill can cost

STORAGE = {"float32": "<f4", "float16": "<f2"}
_Keys = npt.NDArray[np.uint64]


class Texts(Protocol):
    """A sequence of texts that may be read in slices from where they are stored."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...


@dataclass(frozen=True)
class DocumentTexts:
    """Texts of documents of a collection, read in slices; None: all documents."""

    collection: Collection
    rows: Rows | None = None

    def __len__(self) -> int:
        return len(self.collection.documents) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        rows = np.arange(len(self)) if self.rows is None else self.rows
        if isinstance(index, slice):
            return self.collection.document_texts(rows[index])
        return self.collection.document_texts([rows[index]])[0]


@dataclass(frozen=True)
class Vectors:
    """(n, d) vectors that lie in one or more arrays, in memory or mapped from files.

    Attributes:
        chunks: arrays (m_i, d), float32 or float16.
        positions: (n,) where each vector lies in the chunks laid end to end.
    """

    chunks: tuple[npt.NDArray[np.floating], ...]
    positions: Rows

    @classmethod
    def of(cls, array: npt.NDArray[np.floating]) -> Vectors:
        """Wrap an (n, d) array."""
        if array.ndim != 2:
            raise InputError(f"vectors of shape {array.shape}; expected (n, d)")
        return cls((array,), np.arange(len(array), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def dimension(self) -> int:
        """The dimension d."""
        return int(self.chunks[0].shape[1])

    def select(self, rows: npt.ArrayLike) -> Vectors:
        """Return these rows, without copying a vector."""
        return Vectors(self.chunks, self.positions[np.asarray(rows, np.int64)])

    def take(
        self, rows: npt.ArrayLike | slice, *, out: npt.NDArray[np.floating] | None = None
    ) -> npt.NDArray[np.floating]:
        """Return copies of these rows, (len(rows), d), in float32 (float64 where the vectors are).

        With `out`, of that shape and of any precision, they are written there: fresh memory costs more than the copy.
        """
        wanted = self.positions[rows if isinstance(rows, slice) else np.asarray(rows, np.int64)]
        first = self.chunks[0]
        if out is None:
            kind = np.float64 if first.dtype == np.float64 else np.float32
            if len(self.chunks) == 1:
                return np.asarray(first[wanted], kind)
            out = np.empty((len(wanted), self.dimension), kind)
        elif len(self.chunks) == 1 and first.dtype == out.dtype and first.flags.c_contiguous:
            return np.take(first, wanted, axis=0, out=out, mode="clip")  # other modes copy through a buffer
        starts = np.cumsum([0, *(len(chunk) for chunk in self.chunks)])
        chunk_of = np.searchsorted(starts, wanted, side="right") - 1
        for index in np.unique(chunk_of):
            here = np.flatnonzero(chunk_of == index)
            out[here] = self.chunks[index][wanted[here] - starts[index]]
        return out

    def blocks(self, size: int) -> Iterator[tuple[int, npt.NDArray[np.floating]]]:
        """Yield (first row, block of at most `size` vectors) over all rows."""
        for start in range(0, len(self), size):
            yield start, self.take(slice(start, start + size))


class VectorStore:
    """Vectors of texts on disk.

    Args:
        folder: of the store; made on the first write.
        storage: float32, or float16 for half the space (its loss: see `cosine_loss`).

    Raises:
        UnknownNameError: another storage.
    """

    def __init__(self, folder: str | Path, *, storage: str = "float32") -> None:
        if storage not in STORAGE:
            raise UnknownNameError("storage", storage, STORAGE)
        self.folder, self.storage = Path(folder), storage
        self._opened: dict[str, _Shards] = {}

    def embed(self, encoder: Encoder, texts: Texts, kind: Kind) -> Vectors:
        """Return the vectors of texts, encoding those, and only those, that the store does not hold yet.

        Args:
            encoder: what makes the vectors; its fingerprint decides where they are kept.
            texts: (n,) a list, or anything that gives its texts in slices.
            kind: "query" or "document", which decides prompt and route.

        Raises:
            InputError: an encoder that gives another number of vectors, or of another dimension, than it says.
            FailureError: a vector that is NaN or infinite (also in the storage's precision), or a shard that cannot
                be written.
            FormatError: a shard that is damaged.
        """
        shards = self._shards(encoder)
        positions = np.empty(len(texts), np.int64)
        with progress.task(f"embedding {kind} texts", total=len(texts), unit="texts") as advance:
            for start in range(0, len(texts), SLICE):
                part = texts[start : start + SLICE]
                keys = text_keys(part, encoder.route(kind))
                found = shards.find(keys)
                advance(int((found >= 0).sum()))
                missing = _distinct(keys, found < 0)
                missing = missing[np.argsort([-len(part[i]) for i in missing], kind="stable")]
                for first in range(0, len(missing), SHARD):
                    chosen = missing[first : first + SHARD]
                    shards.add(keys[chosen], self._encoded(encoder, [part[i] for i in chosen], kind))
                    advance(len(chosen))
                positions[start : start + SLICE] = shards.find(keys)
        return Vectors(shards.arrays(encoder.dimension), positions)

    def _encoded(self, encoder: Encoder, texts: list[str], kind: Kind) -> npt.NDArray[np.floating]:
        vectors = encoder.encode(texts, kind)
        if vectors.shape != (len(texts), encoder.dimension):
            raise InputError(
                f"the encoder {encoder.name} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
                f"expected ({len(texts)}, {encoder.dimension})"
            )
        with np.errstate(over="ignore"):
            return check_finite(vectors.astype(STORAGE[self.storage]), texts, encoder.name)

    def missing(self, encoder: Encoder, texts: Texts, kind: Kind) -> int:
        """Count the distinct texts that `embed` would have to encode."""
        shards = self._shards(encoder)
        keys = [text_keys(texts[at : at + SLICE], encoder.route(kind)) for at in range(0, len(texts), SLICE)]
        every = np.concatenate(keys) if keys else np.zeros((0, 2), np.uint64)
        return len(_distinct(every, shards.find(every) < 0))

    def _shards(self, encoder: Encoder) -> _Shards:
        place = f"{encoder.fingerprint}-{self.storage}"
        if place not in self._opened:
            self._opened[place] = _Shards(self.folder / place, encoder.dimension, self.storage)
        return self._opened[place]


def text_keys(texts: Sequence[str], route: str) -> _Keys:
    """Return (n, 2) 128-bit digests (BLAKE2b) of route and text."""
    prefix = hashlib.blake2b(route.encode() + b"\x1f", digest_size=16)
    digests = bytearray()
    for text in texts:
        hasher = prefix.copy()
        hasher.update(text.encode("utf-8", "surrogatepass"))
        digests += hasher.digest()
    return np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2)


def cosine_loss(reference: Floats, vectors: Floats) -> tuple[float, float]:
    """Return mean and minimum cosine of paired rows, each (n, d): what another precision or backend changes."""
    a, b = reference.astype(np.float64), vectors.astype(np.float64)
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(cosines.mean()), float(cosines.min())


def _distinct(keys: _Keys, among: npt.NDArray[np.bool_]) -> Rows:
    """Rows of the first occurrence of each distinct key among the marked ones, in order."""
    rows = np.flatnonzero(among)
    _, first = np.unique(keys[rows], axis=0, return_index=True)
    return rows[np.sort(first)]


class _Shards:
    """The shards of one fingerprint: which keys lie where."""

    def __init__(self, folder: Path, dimension: int, storage: str) -> None:
        self.folder = folder
        self.record = np.dtype([("key", "<u8", (2,)), ("vector", STORAGE[storage], (dimension,))])
        self._files: list[npt.NDArray[np.void]] = []
        self._index: list[tuple[_Keys, Rows]] = []  # sorted by the first word, each at most half its predecessor
        self._size = 0
        for path in sorted(folder.glob("*.npy")) if folder.is_dir() else []:
            self._open(path)

    def find(self, keys: _Keys) -> Rows:
        """Return the position of each key, (n, 2) -> (n,), −1 where it is missing."""
        found = np.full(len(keys), -1, np.int64)
        for known, positions in self._index:
            at = np.minimum(np.searchsorted(known[:, 0], keys[:, 0]), len(known) - 1)
            same = (known[at] == keys).all(axis=1)
            found[same] = positions[at[same]]
        return found

    def add(self, keys: _Keys, vectors: npt.NDArray[np.floating]) -> None:
        """Write one shard, whole."""
        records = np.empty(len(keys), self.record)
        records["key"], records["vector"] = keys, vectors
        path = self.folder / f"{hashlib.blake2b(keys.tobytes(), digest_size=16).hexdigest()}.npy"
        with write_whole(path) as aside, aside.open("wb") as out:
            np.save(out, records, allow_pickle=False)
        self._open(path)

    def arrays(self, dimension: int) -> tuple[npt.NDArray[np.floating], ...]:
        """Return the shards' vectors, mapped."""
        return tuple(file["vector"] for file in self._files) or (np.zeros((0, dimension), np.float32),)

    def _open(self, path: Path) -> None:
        try:
            records = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise FormatError(f"damaged shard of vectors ({error}); remove the file", path) from error
        if records.dtype != self.record:
            raise FormatError(f"holds {records.dtype}, expected {self.record}; remove the file", path)
        keys = np.array(records["key"])
        positions = self._size + np.arange(len(keys), dtype=np.int64)
        self._files.append(records)
        self._size += len(keys)
        while self._index and len(self._index[-1][0]) <= 2 * len(keys):
            before, before_positions = self._index.pop()
            keys, positions = np.concatenate([before, keys]), np.concatenate([before_positions, positions])
        order = np.argsort(keys[:, 0], kind="stable")
        self._index.append((keys[order], positions[order]))
