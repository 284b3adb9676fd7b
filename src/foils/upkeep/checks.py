"""Whether the files of the cache still are what was written: every checksum there is, compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foils.data.build import check_stored
from foils.data.store import read_table
from foils.encode.shards import check_shard
from foils.encode.vectors import FORM
from foils.llm.log import check_log
from foils.runtime.errors import FoilsError
from foils.upkeep.entries import Entry


def checked(entry: Entry) -> list[Path]:
    """Return the files of an entry that carry a checksum; of a collection, its folder."""
    path = entry.path
    if entry.kind == "vectors":
        return sorted(path.glob("*.npy")) if path.name.endswith(FORM) else []
    if entry.kind == "judgements":
        return sorted(path.glob("part-*.parquet"))
    return [path] if entry.kind in _CHECKS else []


def damage(kind: str, path: Path) -> str | None:
    """Say what is wrong with a file of a kind, or a collection; None where nothing is, or it was removed meanwhile."""
    try:
        _CHECKS[kind](path)
    except FoilsError as error:
        return str(error) if path.exists() else None
    return None


_CHECKS: dict[str, Callable[[Path], object]] = {
    "vectors": check_shard,
    "collections": check_stored,
    "judgements": read_table,
    "llm": check_log,
}
