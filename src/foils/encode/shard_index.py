"""Which keys lie where in a folder of shards: one file, which can be made again at any time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from foils.runtime.errors import FailureError
from foils.runtime.files import write_whole

NAME = "index.arrow"
_META = b"shards"


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
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate()
        facts = json.loads((table.schema.metadata or {})[_META])
        first, second, positions = (table[name].to_numpy() for name in ("first", "second", "position"))
        keys = np.column_stack([first, second])
        if facts["checksum"] != _checksum(facts["names"], facts["lengths"], keys, positions):
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
    facts = {**held, "checksum": _checksum(held["names"], held["lengths"], keys, positions)}
    columns = {"first": keys[:, 0].copy(), "second": keys[:, 1].copy(), "position": positions}
    table = pa.table(columns).replace_schema_metadata({_META: json.dumps(facts).encode()})
    with suppress(FailureError), write_whole(folder / NAME) as aside, pa.ipc.new_file(str(aside), table.schema) as out:
        out.write_table(table)


def _checksum(names: object, lengths: object, keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> str:
    hasher = xxhash.xxh3_64(json.dumps([names, lengths]).encode())
    for each in (keys, positions):
        hasher.update(np.ascontiguousarray(each).tobytes())
    return hasher.hexdigest()
