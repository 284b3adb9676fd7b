"""Shards of vectors: NumPy files of records (key, vector), each written whole, named by its keys, never changed.

A shard ends with the xxh3_64 of all bytes before it, which is checked when a process first reads its vectors. An index
beside the shards says which keys lie where, so that opening a folder does not read them; it is made again where it is
missing, damaged, or names a shard that is gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from foils.data.collection import Rows
from foils.encode.encoder import Encoder, Kind, check_finite
from foils.runtime.errors import FailureError, FormatError, InputError
from foils.runtime.files import hold, write_whole

STORAGE = {"float32": "<f4", "float16": "<f2"}
CHECKSUM = 8  # bytes, at the end of a shard
INDEX = "index.arrow"
_META = b"shards"
UNINDEXED = 32  # shards that the index may lack before it is written anew
Keys = npt.NDArray[np.uint64]
Records = npt.NDArray[np.void]


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
        path = self.folder.absolute() / name_of(keys)
        if not path.is_file():
            records = np.empty(len(keys), record_type(self.encoder.dimension, self.storage))
            records["key"], records["vector"] = keys, self._encoded(texts)
            with write_whole(path) as aside:
                with aside.open("wb") as out:  # np.save does not say that a disk is full
                    np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(records))
                    out.write(records.view(np.uint8).data)
                checksum = _checksum(np.fromfile(aside, np.uint8))
                with aside.open("ab") as out:
                    out.write(checksum)
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
        self._paths: list[Path] = []
        self._files: dict[Path, Records] = {}  # those that were read, and found whole
        self._starts = [0]  # where the vectors of each shard begin, and after the last expected one, where they end
        self._index: list[tuple[Keys, Rows]] = []  # sorted by the first word, each at most half its predecessor
        self._held = folder.is_dir()
        if self._held:
            hold(folder, by=self)
        there = {path.name: path for path in sorted(folder.glob("*.npy"))} if self._held else {}
        known = read_index(folder, set(there))
        if known is not None:
            self._paths += [there.pop(name) for name in known.names]
            self._starts += np.cumsum(known.lengths).tolist()
            self._index.append((known.keys, known.positions))
        for path in there.values():
            self.expect(_keys_of(self._opened(path), path))
            self._paths.append(path)
        if len(there) > UNINDEXED:
            lengths = np.diff(self._starts)
            keys, positions = (np.concatenate(each) for each in zip(*self._index, strict=True))
            write_index(folder, [path.name for path in self._paths], lengths, keys, positions)

    def find(self, keys: Keys) -> Rows:
        """Return the position of each key, (n, 2) -> (n,), −1 where it is missing."""
        found = np.full(len(keys), -1, np.int64)
        for known, positions in self._index:
            if len(known):
                at = np.minimum(np.searchsorted(known[:, 0], keys[:, 0]), len(known) - 1)
                same = (known[at] == keys).all(axis=1)
                found[same] = positions[at[same]]
        return found

    def touched(self, positions: Rows, dimension: int) -> tuple[tuple[npt.NDArray[np.floating], ...], Rows]:
        """Return the vectors, mapped, of the shards that hold these positions, and where in them each lies.

        Raises:
            FormatError: one of these shards is damaged.
        """
        starts = np.asarray(self._starts)
        shard = np.searchsorted(starts, positions, side="right") - 1
        used, place = np.unique(shard, return_inverse=True)
        arrays = tuple(self._opened(self._paths[each])["vector"] for each in used)
        begins = np.cumsum([0, *(len(array) for array in arrays)])[:-1]
        if not arrays:
            return (np.zeros((0, dimension), np.float32),), positions
        return arrays, np.asarray(positions - starts[shard] + begins[place], np.int64)

    def open(self, path: Path) -> int:
        """Take a shard, the next of those whose keys were announced, and return how many vectors it has."""
        if not self._held:
            self._held = True
            hold(self.folder, by=self)
        self._paths.append(path)
        return len(self._opened(path))

    def expect(self, keys: Keys) -> None:
        """Give positions to the keys of the next shard, which may not be written yet."""
        positions = self._starts[-1] + np.arange(len(keys), dtype=np.int64)
        self._starts.append(self._starts[-1] + len(keys))
        while self._index and len(self._index[-1][0]) <= 2 * len(keys):
            before, before_positions = self._index.pop()
            keys, positions = np.concatenate([before, keys]), np.concatenate([before_positions, positions])
        order = np.argsort(keys[:, 0], kind="stable")
        self._index.append((keys[order], positions[order]))

    def _opened(self, path: Path) -> Records:
        if path not in self._files:
            records = mapped(path)
            if records.dtype != self.record:
                raise FormatError(f"holds {records.dtype}, expected {self.record}; remove the file", path)
            self._files[path] = records
        return self._files[path]


def record_type(dimension: int, storage: str) -> np.dtype[np.void]:
    """Return the type of a shard's records: a 128-bit key and a vector."""
    return np.dtype([("key", "<u8", (2,)), ("vector", STORAGE[storage], (dimension,))])


def mapped(path: Path) -> Records:
    """Map a shard into memory, checked against its checksum.

    Raises:
        FormatError: it is not an array of (key, vector) records, is cut off, longer than it says, or has changed.
    """
    try:
        records = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's parser of headers raises what the damage leads it to
        raise FormatError(f"damaged shard of vectors ({error}); remove the file", path) from error
    if not isinstance(records, np.memmap) or records.ndim != 1 or records.dtype.names != ("key", "vector"):
        raise FormatError("not a shard of vectors, a list of (key, vector); remove the file", path)
    whole = np.memmap(path, np.uint8, "r")
    if len(whole) != records.offset + records.nbytes + CHECKSUM:
        raise FormatError("damaged shard of vectors (it does not end where it says); remove the file", path)
    if _checksum(whole[:-CHECKSUM]) != whole[-CHECKSUM:].tobytes():
        raise FormatError("damaged shard of vectors (its contents changed); remove the file", path)
    return records


def name_of(keys: Keys) -> str:
    """Return the name of the shard of these keys."""
    return f"{hashlib.blake2b(keys.tobytes(), digest_size=16).hexdigest()}.npy"


def _checksum(data: npt.NDArray[np.uint8]) -> bytes:
    return xxhash.xxh3_64(memoryview(data)).digest()  # type: ignore[arg-type]  # an array is a buffer


def _keys_of(records: Records, path: Path) -> Keys:
    """The keys of a shard, once they have its name."""
    keys: Keys = np.array(records["key"])
    if path.name != name_of(keys):
        raise FormatError("damaged shard of vectors (its keys are another's); remove the file", path)
    return keys


@dataclass(frozen=True)
class ShardIndex:
    """What a folder's shards hold.

    Attributes:
        names: of the shards, in the order of their positions.
        lengths: how many vectors each has.
        keys: (n, 2), sorted by the first word.
        positions: (n,) of each key in the shards laid end to end.
    """

    names: list[str]
    lengths: list[int]
    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.int64]


def read_index(folder: Path, there: set[str]) -> ShardIndex | None:
    """Return the index of a folder; None where there is none, or it is damaged, or names a shard that is not there."""
    path = folder / INDEX
    if not path.is_file():
        return None
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate()
        facts = json.loads((table.schema.metadata or {})[_META])
        first, second, positions = (table[name].to_numpy() for name in ("first", "second", "position"))
        keys = np.column_stack([first, second])
        if facts["checksum"] != _index_checksum(facts["names"], facts["lengths"], keys, positions):
            return None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not set(facts["names"]) <= there:
        return None
    return ShardIndex(facts["names"], facts["lengths"], keys, positions)


def write_index(
    folder: Path,
    names: Sequence[str],
    lengths: Sequence[int] | npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.int64],
) -> None:
    """Write the index of a folder whole; where it cannot be written, opening the folder stays slow, and that is all."""
    order = np.argsort(keys[:, 0], kind="stable")
    keys, positions = keys[order], positions[order]
    held = {"names": list(names), "lengths": [int(each) for each in lengths]}
    facts = {**held, "checksum": _index_checksum(held["names"], held["lengths"], keys, positions)}
    columns = {"first": keys[:, 0].copy(), "second": keys[:, 1].copy(), "position": positions}
    table = pa.table(columns).replace_schema_metadata({_META: json.dumps(facts).encode()})
    with suppress(FailureError), write_whole(folder / INDEX) as aside, pa.ipc.new_file(str(aside), table.schema) as out:
        out.write_table(table)


def _index_checksum(
    names: object, lengths: object, keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]
) -> str:
    hasher = xxhash.xxh3_64(json.dumps([names, lengths]).encode())
    for each in (keys, positions):
        hasher.update(np.ascontiguousarray(each).tobytes())
    return hasher.hexdigest()
