"""The cache: what lies in it, and what of it is removed, the least recently used first."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import CACHED, cache_folder, cache_place, remove_whole, sweep
from foils.runtime.memory import parsed_size
from foils.runtime.options import Option, door, spelled
from foils.runtime.results import Result, Table

__all__ = ["Cache", "Entry", "cache"]

DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Entry:
    """What is kept or removed whole: a model's vectors, a collection, an index, a judge's answers.

    Attributes:
        kind: of `foils.runtime.files.CACHED`.
        path: of the folder.
        bytes: its size.
        used: when one of its files was last read or written, in seconds since 1970.
    """

    kind: str
    path: Path
    bytes: int
    used: float


@dataclass(frozen=True)
class Cache(Result):
    """What lies in the cache, and what was removed of it.

    Attributes:
        folder: the cache.
        entries: that are there.
        removed: the least recently used first.
        pruned: whether entries were looked for to remove.
    """

    folder: Path
    entries: Sequence[Entry]
    removed: Sequence[Entry] = ()
    pruned: bool = False

    def tables(self) -> list[Table]:
        """Return a row for each kind with its entries and their size, and after pruning those that were removed."""
        columns, rows = ["kind", "entries", "MiB", *(["removed", "MiB"] if self.pruned else [])], []
        for kind in CACHED:
            cells = [kind]
            for part in (self.entries, self.removed) if self.pruned else (self.entries,):
                sizes = [each.bytes for each in part if each.kind == kind]
                cells += [f"{len(sizes):,}", f"{sum(sizes) / 2**20:,.1f}"]
            rows.append(cells)
        return [Table(f"the cache, {self.folder}", columns, rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the entries and what was removed."""
        entries, removed = (
            [{**vars(each), "path": str(each.path)} for each in part] for part in (self.entries, self.removed)
        )
        return {"folder": str(self.folder), "entries": entries, "removed": removed}


@door
def cache(
    action: Annotated[str, Option(names=("size", "prune"))] = "size",
    *,
    keep: Annotated[int | None, Option(parse=parsed_size, metavar="SIZE", least=0)] = None,
    older_than: Annotated[float | None, Option(metavar="DAYS", least=0)] = None,
) -> Cache:
    """Show how large the cache is, or remove what was not used for long, while no other command runs.

    The cache ($FOILS_CACHE, or foils in the user's cache) holds what can be made again; answers of
    language models (llm, judgements) cost money to ask for again. Links, and what foils did not put
    there, stay.

    Args:
        action: What to do: size, or prune.
        keep: Remove the least recently used entries until the others take at most this size, as
            500MB or 20GiB.
        older_than: Remove entries that were not used for this many days.

    Example:
        foils cache prune --keep 20GiB

    Raises:
        InputError: prune without saying what, or saying what without prune.
        FailureError: an entry may not be removed.
    """
    if (action == "prune") == (keep is None and older_than is None):
        raise InputError(
            f"prune, and prune alone, takes {spelled('keep')} (a size), {spelled('older_than')} (days), or both"
        )
    folder = cache_folder()
    if action == "prune":
        for kind in CACHED:
            sweep(cache_place(kind))
    entries = [
        _entry(kind, path)
        for kind, names in CACHED.items()
        for path in sorted(cache_place(kind).glob("*"))
        if re.fullmatch(names, path.name) and path.is_dir() and not path.is_symlink()
    ]
    removed, size, now = list[Entry](), sum(each.bytes for each in entries), time.time()
    for each in sorted(entries, key=lambda entry: entry.used) if action == "prune" else ():
        if (keep is not None and size > keep) or (older_than is not None and each.used < now - older_than * DAY):
            try:
                remove_whole(each.path)
            except OSError as error:
                raise FailureError(f"cannot remove {each.path}: {error.strerror}; look at its permissions") from error
            removed.append(each)
            size -= each.bytes
    return Cache(folder, [each for each in entries if each not in removed], removed, action == "prune")


def _entry(kind: str, path: Path) -> Entry:
    states = [Path(folder, name).lstat() for folder, _, names in os.walk(path) for name in names]
    used = max((max(each.st_atime, each.st_mtime) for each in states), default=path.stat().st_mtime)
    return Entry(kind, path, sum(each.st_size for each in states), used)
