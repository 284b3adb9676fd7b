"""Shards of vectors: NumPy files of records (key, vector), each written whole, named by its keys, never changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.data.store import write_whole
from foils.encode.encoder import Encoder, Kind, check_finite
from foils.errors import FormatError, InputError

STORAGE = {"float32": "<f4", "float16": "<f2"}
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class ShardWriter:
    """Encodes the texts of a shard and writes it, once: asked again, it finds it written."""

    encoder: Encoder
    kind: Kind
    folder: Path
    storage: str

    def __call__(self, shard: tuple[Keys, list[str]]) -> Path:
        """Return the file of the shard, from keys (n, 2) and texts (n,)."""
        keys, texts = shard
        path = self.folder.absolute() / _name_of(keys)
        if not path.is_file():
            records = np.empty(len(keys), record_type(self.encoder.dimension, self.storage))
            records["key"], records["vector"] = keys, self._encoded(texts)
            with write_whole(path) as aside, aside.open("wb") as out:
                np.save(out, records, allow_pickle=False)
        return path

    def _encoded(self, texts: list[str]) -> npt.NDArray[np.floating]:
        encoder = self.encoder
        vectors = encoder.encode(texts, self.kind)
        if vectors.shape != (len(texts), encoder.dimension):
            raise InputError(
                f"the encoder {encoder.name} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
                f"expected ({len(texts)}, {encoder.dimension})"
            )
        with np.errstate(over="ignore"):
            return check_finite(vectors.astype(STORAGE[self.storage]), texts, encoder.name)


class Shards:
    """The shards of one fingerprint: which keys lie where."""

    def __init__(self, folder: Path, dimension: int, storage: str) -> None:
        self.folder = folder
        self.record = record_type(dimension, storage)
        self._files: list[npt.NDArray[np.void]] = []
        self._index: list[tuple[Keys, Rows]] = []  # sorted by the first word, each at most half its predecessor
        self._size = 0
        for path in sorted(folder.glob("*.npy")) if folder.is_dir() else []:
            self.open(path)
            self.expect(_intact(self._files[-1], path))

    def find(self, keys: Keys) -> Rows:
        """Return the position of each key, (n, 2) -> (n,), −1 where it is missing."""
        found = np.full(len(keys), -1, np.int64)
        for known, positions in self._index:
            at = np.minimum(np.searchsorted(known[:, 0], keys[:, 0]), len(known) - 1)
            same = (known[at] == keys).all(axis=1)
            found[same] = positions[at[same]]
        return found

    def arrays(self, dimension: int) -> tuple[npt.NDArray[np.floating], ...]:
        """Return the shards' vectors, mapped."""
        return tuple(file["vector"] for file in self._files) or (np.zeros((0, dimension), np.float32),)

    def open(self, path: Path) -> int:
        """Map a shard, the next of those whose keys were announced, and return how many vectors it has."""
        records = mapped(path)
        if records.dtype != self.record:
            raise FormatError(f"holds {records.dtype}, expected {self.record}; remove the file", path)
        self._files.append(records)
        return len(records)

    def expect(self, keys: Keys) -> None:
        """Give positions to the keys of the next shard, which may not be written yet."""
        positions = self._size + np.arange(len(keys), dtype=np.int64)
        self._size += len(keys)
        while self._index and len(self._index[-1][0]) <= 2 * len(keys):
            before, before_positions = self._index.pop()
            keys, positions = np.concatenate([before, keys]), np.concatenate([before_positions, positions])
        order = np.argsort(keys[:, 0], kind="stable")
        self._index.append((keys[order], positions[order]))


def record_type(dimension: int, storage: str) -> np.dtype[np.void]:
    """Return the type of a shard's records: a 128-bit key and a vector."""
    return np.dtype([("key", "<u8", (2,)), ("vector", STORAGE[storage], (dimension,))])


def mapped(path: Path) -> npt.NDArray[np.void]:
    """Map a shard into memory.

    Raises:
        FormatError: it is not an array of (key, vector) records, or is cut off or longer than it says.
    """
    try:
        records = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's parser of headers raises what the damage leads it to
        raise FormatError(f"damaged shard of vectors ({error}); remove the file", path) from error
    if not isinstance(records, np.memmap) or records.ndim != 1 or records.dtype.names != ("key", "vector"):
        raise FormatError("not a shard of vectors, a list of (key, vector); remove the file", path)
    if path.stat().st_size != records.offset + records.nbytes:
        raise FormatError("damaged shard of vectors (it goes on after its end); remove the file", path)
    return records


def _intact(records: npt.NDArray[np.void], path: Path) -> Keys:
    """The keys of a shard, once they have its name and its vectors are finite."""
    keys: Keys = np.array(records["key"])
    if path.name != _name_of(keys) or not np.isfinite(records["vector"].sum(dtype=np.float64)):
        raise FormatError("damaged shard of vectors (its contents changed); remove the file", path)
    return keys


def _name_of(keys: Keys) -> str:
    return f"{hashlib.blake2b(keys.tobytes(), digest_size=16).hexdigest()}.npy"
