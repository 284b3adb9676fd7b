"""Every text is embedded once: immutable shards of vectors, found by fingerprint, route and text.

A shard is one NumPy file of records (key, vector), written whole, named by its keys; it never changes. So a kill
costs at most the shards in the making, two processes may write at once, and a model with other weights has another
folder. Which texts a shard holds, and so what is encoded together, is fixed before the first is encoded: shards may
be made on several machines that share the folder, and their vectors are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.encode.encoder import Encoder, Floats, Kind
from foils.encode.shards import STORAGE, Keys, Shards, ShardWriter, mapped
from foils.runtime import progress
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.parallel import map_shards

SLICE = 16_384  # texts looked up, and sorted by length, together
SHARD = 1_024  # texts of a shard: what a kill can cost
FORM = "xxh3"  # of shards, in the name of their folder: those without a checksum are not met
ALIKE = 32  # distinct texts whose vectors are compared, to see a model that gives all of them one
FILES = 4_096  # shards of one call, about: where there are more texts, shards are larger, up to a slice


class Texts(Protocol):
    """A sequence of texts that may be read in slices from where they are stored."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...


@dataclass(frozen=True)
class Vectors:
    """(n, d) vectors that lie in one or more arrays, in memory or mapped from files.

    Attributes:
        chunks: arrays (m_i, d), float32 or float16.
        positions: (n,) where each vector lies in the chunks laid end to end; −1: there is none (`spread`).
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

    def __reduce__(self) -> tuple[Callable[..., Vectors], tuple[Any, ...]]:
        """Send mapped shards to other processes by their paths."""
        return _reopened, (tuple(_path_of(chunk) or chunk for chunk in self.chunks), self.positions)

    @property
    def dimension(self) -> int:
        """The dimension d."""
        return int(self.chunks[0].shape[1])

    def spread(self, rows: npt.ArrayLike, length: int) -> Vectors:
        """Return `length` rows of which only these, in order, have a vector: the others must not be taken."""
        positions = np.full(length, -1, np.int64)
        positions[np.asarray(rows, np.int64)] = self.positions
        return Vectors(self.chunks, positions)

    def select(self, rows: npt.ArrayLike) -> Vectors:
        """Return these rows, without copying a vector."""
        return Vectors(self.chunks, self.positions[np.asarray(rows, np.int64)])

    def take(
        self, rows: npt.ArrayLike | slice, *, out: npt.NDArray[np.floating] | None = None
    ) -> npt.NDArray[np.floating]:
        """Return copies of these rows, (len(rows), d), in float32 (float64 where the vectors are).

        With `out`, of that shape and of any precision, they are written there: fresh memory costs more than the copy.

        Raises:
            InputError: a row without a vector (`spread`).
        """
        wanted = self.positions[rows if isinstance(rows, slice) else np.asarray(rows, np.int64)]
        if (wanted < 0).any():
            raise InputError(f"{int((wanted < 0).sum())} of {len(wanted)} rows have no vector; embed them first")
        first = self.chunks[0]
        if out is None:
            kind = np.float64 if first.dtype == np.float64 else np.float32
            if len(self.chunks) == 1:
                return np.asarray(first[wanted], kind)
            out = np.empty((len(wanted), self.dimension), kind)
        elif len(self.chunks) == 1 and first.dtype == out.dtype and first.flags.c_contiguous:
            return np.take(first, wanted, axis=0, out=out, mode="clip")  # other modes copy through a buffer
        starts = np.cumsum([0, *(len(chunk) for chunk in self.chunks)])
        order = np.argsort(wanted, kind="stable")
        ends = np.searchsorted(wanted[order], starts)
        for chunk, start, first, last in zip(self.chunks, starts, ends, ends[1:], strict=False):
            if first < last:
                here = order[first:last]
                out[here] = chunk[wanted[here] - start]
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
        self._opened: dict[str, Shards] = {}

    def __reduce__(self) -> tuple[Callable[..., VectorStore], tuple[Any, ...]]:
        """Send a store to other processes by its folder."""
        return _store_at, (self.folder.absolute(), self.storage)

    def embed(
        self, encoder: Encoder, texts: Texts, kind: Kind, *, task: str | None = None, unit: str = "texts"
    ) -> Vectors:
        """Return the vectors of texts, encoding those, and only those, that the store does not hold yet.

        Args:
            encoder: what makes the vectors; its fingerprint decides where they are kept.
            texts: (n,) a list, or anything that gives its texts in slices.
            kind: "query" or "document", which decides prompt and route.
            task: what the progress says; None: that texts of this kind are embedded.
            unit: what the progress counts, each distinct text once.

        Raises:
            InputError: an encoder that gives another number of vectors, or of another dimension, than it says.
            FailureError: a vector that is NaN or infinite (also in the storage's precision), or a shard that cannot
                be written.
            FormatError: a shard that is damaged.
        """
        shards = self._shards(encoder)
        try:
            positions, plan = _planned(shards, texts, encoder.route(kind), kind, unit)
            fresh = sum(len(keys) for _, part in plan for keys, _ in part)
            distinct = len(np.unique(positions))
            write = ShardWriter(encoder, kind, shards.folder, self.storage)
            with progress.task(task or f"embedding {kind} texts", total=distinct, unit=unit) as advance:
                advance(distinct - fresh)
                for path in map_shards(write, _read(texts, plan), model=True):
                    advance(shards.open(path))
        except BaseException:
            self._opened.clear()  # it expects shards that will not come
            raise
        vectors = Vectors(*shards.touched(positions, encoder.dimension))
        _check_spread(vectors, positions, encoder)
        return vectors

    def missing(self, encoder: Encoder, texts: Texts, kind: Kind) -> int:
        """Count the distinct texts that `embed` would have to encode."""
        shards = self._shards(encoder)
        keys = [text_keys(texts[at : at + SLICE], encoder.route(kind)) for at in range(0, len(texts), SLICE)]
        every = np.concatenate(keys) if keys else np.zeros((0, 2), np.uint64)
        return len(_distinct(every, shards.find(every) < 0))

    def _shards(self, encoder: Encoder) -> Shards:
        place = f"{encoder.fingerprint}-{self.storage}-{FORM}"
        if place not in self._opened:
            self._opened[place] = Shards(self.folder / place, encoder.dimension, self.storage)
        return self._opened[place]


_Plan = list[tuple[int, list[tuple[Keys, Rows]]]]  # where a slice begins; keys and rows, within it, of each new shard


def _planned(shards: Shards, texts: Texts, route: str, kind: Kind, unit: str) -> tuple[Rows, _Plan]:
    """Return where each text's vector will lie, and which shards are to be made for that; announce their keys."""
    positions, plan = np.empty(len(texts), np.int64), []
    size = shard_size(len(texts))
    long = len(texts) > SLICE
    looking = progress.task(f"looking up {kind} texts", len(texts), unit) if long else nullcontext(lambda _: None)
    with looking as advance:
        for start in range(0, len(texts), SLICE):
            part = texts[start : start + SLICE]
            keys = text_keys(part, route)
            rows = _distinct(keys, shards.find(keys) < 0)
            rows = rows[np.argsort([-len(part[i]) for i in rows], kind="stable")]
            own = [(keys[chosen], chosen) for chosen in (rows[at : at + size] for at in range(0, len(rows), size))]
            for chosen_keys, _ in own:
                shards.expect(chosen_keys)
            positions[start : start + SLICE] = shards.find(keys)
            plan += [(start, own)] if own else []
            advance(len(part))
    return positions, plan


def _read(texts: Texts, plan: _Plan) -> Iterator[tuple[Keys, list[str]]]:
    """Yield keys and texts of each planned shard."""
    for start, shards in plan:
        part = texts[start : start + SLICE]
        yield from ((keys, [part[i] for i in rows]) for keys, rows in shards)


def shard_size(texts: int) -> int:
    """Return how many texts a shard holds where so many are embedded: 1024, and above four million more."""
    return min(SLICE, max(SHARD, -(-texts // FILES)))


def text_keys(texts: Sequence[str], route: str) -> Keys:
    """Return (n, 2) 128-bit digests (BLAKE2b) of route and text."""
    prefix = hashlib.blake2b(route.encode() + b"\x1f", digest_size=16)
    digests = bytearray()
    for text in texts:
        hasher = prefix.copy()
        hasher.update(text.encode("utf-8", "surrogatepass"))
        digests += hasher.digest()
    return np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2)


def cosine_loss(reference: Floats, vectors: Floats) -> tuple[float, float]:
    """Return mean and minimum cosine of paired rows, each (n, d): what another precision changes."""
    a, b = reference.astype(np.float64), vectors.astype(np.float64)
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(cosines.mean()), float(cosines.min())


def _distinct(keys: Keys, among: npt.NDArray[np.bool_]) -> Rows:
    """Rows of the first occurrence of each distinct key among the marked ones, in order."""
    rows = np.flatnonzero(among)
    _, first = np.unique(keys[rows], axis=0, return_index=True)
    return rows[np.sort(first)]


def _check_spread(vectors: Vectors, positions: Rows, encoder: Encoder) -> None:
    """Raise an InputError where an encoder gives many texts one vector: nothing can be ranked by such vectors."""
    _, first = np.unique(positions, return_index=True)
    if encoder.dimension == 1 or len(first) < ALIKE:  # one number is the score of a pair
        return
    sample = vectors.take(first[np.linspace(0, len(first) - 1, ALIKE).astype(int)])
    if np.abs(sample - sample[0]).max() <= 1e-6 * np.abs(sample).max():
        raise InputError(
            f"the encoder {encoder.name} gives each of {ALIKE} texts the same vector: its weights are zero, or its "
            "training collapsed; take another model"
        )


_mapped_once = lru_cache(maxsize=None)(mapped)  # a shard never changes


def _path_of(chunk: npt.NDArray[np.floating]) -> Path | None:
    """Return the file whose vectors the chunk is, None where it lies in memory."""
    whole = chunk.base
    if not isinstance(whole, np.memmap) or whole.dtype.names != ("key", "vector") or len(whole) != len(chunk):
        return None
    return Path(str(whole.filename)).absolute()


def _reopened(chunks: tuple[Path | npt.NDArray[np.floating], ...], positions: Rows) -> Vectors:
    return Vectors(
        tuple(_mapped_once(chunk)["vector"] if isinstance(chunk, Path) else chunk for chunk in chunks), positions
    )


def _store_at(folder: Path, storage: str) -> VectorStore:
    return VectorStore(folder, storage=storage)
