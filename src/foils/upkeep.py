"""The cache: what lies in it, and what of it is removed, the least recently used first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import CACHED, cache_folder, cache_place, remove_whole, sweep
from foils.runtime.memory import parsed_size
from foils.runtime.options import Option, door, spelled
from foils.runtime.results import Result, Table

__all__ = ["Cache", "Entry", "cache"]


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
    """

    folder: Path
    entries: Sequence[Entry]
    removed: Sequence[Entry] = ()

    def tables(self) -> list[Table]:
        """Return a row for each kind with its entries and their size; the caption says what was removed."""
        of_kind = {kind: [each.bytes for each in self.entries if each.kind == kind] for kind in CACHED}
        rows = [(kind, f"{len(sizes):,}", _mebibytes(sizes)) for kind, sizes in of_kind.items()]
        removed = _mebibytes(each.bytes for each in self.removed)
        caption = f"Removed: {len(self.removed):,} entries, {removed} MiB." if self.removed else ""
        return [Table(f"the cache, {self.folder}", ("kind", "entries", "MiB"), rows, caption)]

    def to_json(self) -> dict[str, Any]:
        """Return the entries and what was removed."""
        parts = {"entries": self.entries, "removed": self.removed}
        listed = {name: [{**vars(each), "path": str(each.path)} for each in part] for name, part in parts.items()}
        return {"folder": str(self.folder), **listed}


def _mebibytes(sizes: Iterable[int]) -> str:
    return f"{sum(sizes) / 2**20:,.1f}"


@door
def cache(
    action: Annotated[str, Option(names=("size", "prune"))] = "size",
    *,
    keep: Annotated[int | None, Option(parse=parsed_size, metavar="SIZE", least=0)] = None,
) -> Cache:
    """Show how large the cache is, or remove what was not used for long, while no other command runs.

    The cache ($FOILS_CACHE, or foils in the user's cache) holds what can be made again; answers of
    language models (llm, judgements) cost money to ask for again. Links, and what foils did not put
    there, stay.

    Args:
        action: What to do: size, or prune.
        keep: Remove the least recently used entries until the others take at most this size, as
            500MB or 20GiB.

    Example:
        foils cache prune --keep 20GiB

    Raises:
        InputError: prune without a size, or a size without prune.
        FailureError: an entry may not be removed.
    """
    if (action == "prune") == (keep is None):
        raise InputError(f"prune, and prune alone, takes {spelled('keep')}, the size that may stay")
    if action == "prune":
        for kind in CACHED:
            sweep(cache_place(kind))
    entries = [
        _entry(kind, path)
        for kind, names in CACHED.items()
        for path in sorted(cache_place(kind).glob("*"))
        if re.fullmatch(names, path.name) and path.is_dir() and not path.is_symlink()
    ]
    removed, size = list[Entry](), sum(each.bytes for each in entries)
    for each in sorted(entries, key=lambda entry: entry.used):
        if keep is None or size <= keep:
            break
        try:
            remove_whole(each.path)
        except OSError as error:
            raise FailureError(f"cannot remove {each.path}: {error.strerror}; look at its permissions") from error
        removed.append(each)
        size -= each.bytes
    return Cache(cache_folder(), [each for each in entries if each not in removed], removed)


def _entry(kind: str, path: Path) -> Entry:
    states = [Path(folder, name).lstat() for folder, _, names in os.walk(path) for name in names]
    used = max((max(each.st_atime, each.st_mtime) for each in states), default=path.stat().st_mtime)
    return Entry(kind, path, sum(each.st_size for each in states), used)
