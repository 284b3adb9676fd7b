"""The cache: what lies in it, and what of it is removed, the least recently used first."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder, remove_dead, remove_unused
from foils.runtime.memory import parsed_size
from foils.runtime.options import Needs, Option, Settings, door, spelled
from foils.runtime.results import Result, Table

__all__ = ["Cache", "Entry", "cache"]

DAY = 86_400.0  # seconds
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))

KINDS = {  # name of the folder in the cache -> what lies there, and the names of its entries
    "vectors": ("vectors of texts, a model each", re.compile(r"[^/]+-float(32|16)(-xxh3)?")),
    "collections": ("collections", re.compile(r"(pydocs-)?[0-9a-f]{32}")),
    "mined": ("minings that were begun", re.compile(r"[0-9a-f]{32}")),
    "bm25": ("indexes of BM25, a collection each", re.compile(r"[0-9a-f]{32}")),
    "faiss": ("indexes of vectors, a collection and a model each", re.compile(r"[0-9a-f]{32}")),
    "judgements": ("judgements, a judge and collection each", re.compile(r"[^/]+-[0-9a-f]{16}")),
    "llm": ("answers of language models, a collection each", re.compile(r"[0-9a-f]{16}")),
}


@dataclass(frozen=True)
class Entry:
    """What is kept or removed whole: a model's vectors, a collection, a judge's answers, a log.

    Attributes:
        kind: name of its kind.
        name: its path in the cache.
        path: of the folder.
        files: how many files it has.
        bytes: how long they are together.
        used: when it was last opened or written, in seconds since 1970.
    """

    kind: str
    name: str
    path: Path
    files: int
    bytes: int
    used: float

    def to_json(self) -> dict[str, Any]:
        """Return its facts, without its whole path."""
        return {name: value for name, value in vars(self).items() if name != "path"}


@dataclass(frozen=True)
class Cache(Result):
    """What lies in the cache, and what was removed of it.

    Attributes:
        folder: the cache.
        entries: that are there, by kind and name; after a dry run also those that would be removed.
        removed: entries, the least recently used first; with a dry run, those that would be.
        dry_run: whether nothing was removed.
    """

    folder: Path
    entries: Sequence[Entry]
    removed: Sequence[Entry] = ()
    dry_run: bool = False

    def tables(self) -> list[Table]:
        """Return a row for each kind, and one for each entry that was removed."""
        by_kind = {kind: [each for each in self.entries if each.kind == kind] for kind in KINDS}
        rows = [(KINDS[kind][0], *_sums(every)) for kind, every in by_kind.items() if every]
        columns = ["kind", "entries", "files", "size"]
        tables = [Table(f"the cache, {self.folder}", columns, [*rows, ("all", *_sums(self.entries))])]
        if self.removed:
            what = "to remove (nothing was removed)" if self.dry_run else "removed"
            gone = [(each.name, *_sums([each])[1:]) for each in self.removed]
            tables.append(Table(what, ["entry", "files", "size"], gone))
        return tables

    def to_json(self) -> dict[str, Any]:
        """Return the entries with the time of their last use, and what was removed."""
        return {
            "folder": str(self.folder),
            "bytes": sum(each.bytes for each in self.entries),
            "entries": [each.to_json() for each in self.entries],
            "removed": [each.to_json() for each in self.removed],
            "dry_run": self.dry_run,
        }


def _sums(entries: Sequence[Entry]) -> tuple[str, str, str]:
    """The number of entries, of files, and their size."""
    size, files = sum(each.bytes for each in entries), sum(each.files for each in entries)
    unit, factor = next((each for each in UNITS if size >= each[1]), ("B", 1))
    return f"{len(entries):,}", f"{files:,}", f"{size / factor:,.{int(factor > 1)}f} {unit}"


@dataclass(frozen=True, kw_only=True)
class PruneSettings(Settings):
    """What `prune` removes.

    Attributes:
        keep: Remove the least recently used entries until the others take at most this size, as 500MB or 20GiB.
        older_than: Remove entries that were not used for this many days.
        dry_run: Remove nothing; show what would be removed.
    """

    heading = "Prune"
    needs: ClassVar[Needs] = {"action": "prune"}

    keep: Annotated[int | None, Option(parse=parsed_size, metavar="SIZE", least=0)] = None
    older_than: Annotated[float | None, Option(metavar="DAYS", least=0)] = None
    dry_run: bool = False


@door
def cache(
    action: Annotated[str, Option(names=("size", "prune"))] = "size",
    *,
    kind: Annotated[tuple[str, ...], Option(names=tuple(KINDS), repeated=True)] = (),
    prune: PruneSettings,
) -> Cache:
    """Show how large the cache is, or remove what was not used for long.

    The cache ($FOILS_CACHE, or foils in the user's cache) holds what can be made again: collections, vectors,
    judgements, and answers of language models, which cost money to ask for again (--kind leaves them out).

    Entries are removed whole: a model's vectors, a collection, a judge's answers. One that a process reads or writes
    stays. Links, and what foils did not put there, stay too.

    Args:
        action: What to do: size, or prune.
        kind: Only entries of this kind; may be given several times.

    Example:
        foils cache prune --keep 20GiB

    Raises:
        InputError: prune without saying what, or settings of prune with another action.
        FailureError: an entry may not be removed.
    """
    folder = cache_folder()
    entries = _entries(folder, kind or KINDS)
    return Cache(folder, entries) if action == "size" else _pruned(folder, entries, prune)


def _entries(folder: Path, kinds: Collection[str]) -> list[Entry]:
    """The entries of a cache, by kind and name. Links are not followed, so nothing outside the folder is met."""
    every = []
    for name in (name for name in KINDS if name in kinds):
        for path in sorted((folder / name).glob("*")):
            linked = path.is_symlink() or path.parent.is_symlink()
            if not linked and path.is_dir() and KINDS[name][1].fullmatch(path.name):
                every.append(_measured(name, path, folder))
    return every


def _measured(kind: str, path: Path, cache: Path) -> Entry:
    files, size, used = 0, 0, 0.0
    with suppress(OSError):
        used = path.stat().st_mtime
    for each in (Path(folder, name) for folder, _, names in os.walk(path) for name in names):
        with suppress(OSError):
            if not each.is_symlink():
                state = each.stat()
                files, size, used = files + 1, size + state.st_size, max(used, state.st_mtime)
    return Entry(kind, path.relative_to(cache).as_posix(), path, files, size, used)


def _pruned(folder: Path, entries: Sequence[Entry], settings: PruneSettings) -> Cache:
    if settings.keep is None and settings.older_than is None:
        keep, older = spelled("keep"), spelled("older_than")
        raise InputError(f"prune needs {keep} (a size), {older} (days), or both: what is to be removed")
    oldest = -float("inf") if settings.older_than is None else time.time() - settings.older_than * DAY
    size, limit = sum(each.bytes for each in entries), settings.keep
    removed = list[Entry]()
    for entry in sorted(entries, key=lambda each: (each.used, each.name)):
        unwanted = entry.used < oldest or (limit is not None and size > limit)
        if unwanted and (settings.dry_run or remove_unused(entry.path)):
            removed.append(entry)
            size -= entry.bytes
    for name in () if settings.dry_run else KINDS:
        remove_dead(folder / name)
    left = entries if settings.dry_run else [each for each in entries if each not in removed]
    return Cache(folder, left, removed, settings.dry_run)
