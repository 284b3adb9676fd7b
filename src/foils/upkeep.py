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

from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder, remove_dead, remove_unused
from foils.runtime.memory import parsed_size
from foils.runtime.options import Needs, Option, Settings, spelled
from foils.runtime.results import Result, Table

__all__ = ["Cache", "Entry", "cache"]

DAY = 86_400.0  # seconds
OTHER = "other"


KINDS = {  # name of the folder in the cache -> what lies there, and the names of its entries
    "vectors": ("vectors of texts, a model each", re.compile(r"[^/]+-float(32|16)(-xxh3)?")),
    "collections": ("collections", re.compile(r"(pydocs-)?[0-9a-f]{32}")),
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
    """What lies in the cache, and what was done with it.

    Attributes:
        action: size or prune.
        folder: the cache.
        entries: of the kinds that were asked for, by kind and name.
        other: what belongs to no entry; None where single kinds were asked for, and of prune.
        removed: (of prune) entries, the least recently used first; with a dry run, those that would be.
        in_use: (of prune) entries that would have been removed, and are used by a process.
        kept: (of prune) the other entries.
        dry_run: (of prune) whether nothing was removed.
    """

    action: str
    folder: Path
    entries: Sequence[Entry]
    other: Entry | None = None
    removed: Sequence[Entry] = ()
    in_use: Sequence[Entry] = ()
    kept: Sequence[Entry] = ()
    dry_run: bool = False

    def tables(self) -> list[Table]:
        """Return a row for each kind; of prune, one for each entry that was removed, and what is left."""
        title = f"the cache, {self.folder}"
        by_kind = {kind: [each for each in self.entries if each.kind == kind] for kind in KINDS}
        if self.action == "size":
            rows = [(KINDS[kind][0], *_sums(every)) for kind, every in by_kind.items() if every]
            other = [] if self.other is None else [self.other]
            rows += [("anything else", "", *_sums(other)[1:])] if other else []
            return [
                Table(title, ["kind", "entries", "files", "size"], [*rows, ("all", *_sums([*self.entries, *other]))])
            ]
        what = "to remove (nothing was removed)" if self.dry_run else "removed"
        gone = [(each.name, *_sums([each])[1:]) for each in self.removed]
        left = [("removed", *_sums(self.removed)), ("in use, kept", *_sums(self.in_use)), ("kept", *_sums(self.kept))]
        tables = [Table(f"{what}: {self.folder}", ["entry", "files", "size"], gone)] if gone else []
        return [*tables, Table("in all", ["", "entries", "files", "size"], left)]

    def to_json(self) -> dict[str, Any]:
        """Return what was asked for: entries with the time of their last use, or what went."""
        if self.action == "size":
            every = [*self.entries, *([] if self.other is None else [self.other])]
            facts: dict[str, Any] = {
                "bytes": sum(each.bytes for each in every),
                "entries": [each.to_json() for each in every],
            }
        else:
            facts = {name: [each.to_json() for each in getattr(self, name)] for name in ("removed", "in_use", "kept")}
            facts["dry_run"] = self.dry_run
        return {"folder": str(self.folder), **facts}


def _sums(entries: Sequence[Entry]) -> tuple[str, str, str]:
    """The number of entries, of files, and their size."""
    size, count = sum(each.bytes for each in entries), sum(each.kind != OTHER for each in entries)
    unit, factor = next(
        (each for each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if size >= each[1]), ("B", 1)
    )
    return f"{count:,}", f"{sum(each.files for each in entries):,}", f"{size / factor:,.{int(unit != 'B')}f} {unit}"


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

    Raises:
        InputError: prune without saying what, or settings of prune with another action.
        FailureError: an entry may not be removed.
    """
    folder = cache_folder()
    entries = _entries(folder, kind or KINDS)
    if action == "size":
        whole = _measured(OTHER, folder, folder)
        files, size = (sum(getattr(each, name) for each in entries) for name in ("files", "bytes"))
        other = Entry(OTHER, OTHER, folder, max(0, whole.files - files), max(0, whole.bytes - size), whole.used)
        return Cache(action, folder, entries, None if kind else other)
    return _pruned(folder, entries, prune)


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
    inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    files, size, used = 0, 0, 0.0
    with suppress(OSError):
        used = path.stat().st_mtime
    for each in [path] if path.is_file() else inside:
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
    removed, in_use, kept = list[Entry](), list[Entry](), list[Entry]()
    for entry in sorted(entries, key=lambda each: (each.used, each.name)):
        if not (entry.used < oldest or (limit is not None and size > limit)):
            kept.append(entry)
        elif settings.dry_run or remove_unused(entry.path):
            removed.append(entry)
            size -= entry.bytes
        else:
            in_use.append(entry)
    for name in () if settings.dry_run else KINDS:
        remove_dead(folder / name)
    return Cache("prune", folder, entries, removed=removed, in_use=in_use, kept=kept, dry_run=settings.dry_run)
