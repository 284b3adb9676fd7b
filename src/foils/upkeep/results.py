"""What looking at, checking and pruning the cache found, as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foils.runtime.results import Result, Table
from foils.upkeep.entries import KINDS, OTHER, Entry


@dataclass(frozen=True)
class CacheSize(Result):
    """What lies in the cache.

    Attributes:
        folder: the cache.
        entries: of the kinds that were asked for, by kind and name.
        other: what belongs to no entry; None where single kinds were asked for.
    """

    folder: Path
    entries: Sequence[Entry]
    other: Entry | None = None

    def tables(self) -> list[Table]:
        """Return a row for each kind."""
        rows = [(KINDS[kind].shows, *_sums(each)) for kind, each in _by_kind(self.entries).items()]
        if self.other is not None:
            rows.append(("anything else", "", f"{self.other.files:,}", shown(self.other.bytes)))
        every = [*self.entries, *([self.other] if self.other is not None else [])]
        rows.append(("all", *_sums(every)))
        return [Table(f"the cache, {self.folder}", ["kind", "entries", "files", "size"], rows)]

    def to_json(self) -> dict[str, Any]:
        """Return every entry, with the time of its last use in seconds since 1970."""
        every = [*self.entries, *([self.other] if self.other is not None else [])]
        return {"folder": str(self.folder), "bytes": _bytes(every), "entries": [_facts(each) for each in every]}


@dataclass(frozen=True)
class CacheCheck(Result):
    """Whether the cache is whole.

    Attributes:
        folder: the cache.
        checked: kind -> how many files (of collections: folders) were compared with their checksums.
        unchecked: kind -> how many entries have none.
        damaged: what is wrong, by file.
    """

    folder: Path
    checked: dict[str, int]
    unchecked: dict[str, int]
    damaged: dict[Path, str]

    def tables(self) -> list[Table]:
        """Return a row for each kind; the remarks name what is damaged."""
        kinds = [kind for kind in KINDS if kind in self.checked or kind in self.unchecked]
        rows = [
            (KINDS[kind].shows, f"{self.checked.get(kind, 0):,}", f"{self.unchecked.get(kind, 0):,}") for kind in kinds
        ]
        columns = ["kind", "compared", "entries without a checksum"]
        damaged = "\n".join([f"damaged: {len(self.damaged)}", *self.damaged.values()])
        return [Table(f"the cache, {self.folder}", columns, rows, caption=damaged)]

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and what is damaged."""
        damaged = {str(path): wrong for path, wrong in self.damaged.items()}
        return {"folder": str(self.folder), "checked": self.checked, "unchecked": self.unchecked, "damaged": damaged}


@dataclass(frozen=True)
class CachePruned(Result):
    """What was removed from the cache.

    Attributes:
        folder: the cache.
        removed: entries, the least recently used first; with a dry run, those that would be.
        in_use: entries that would have been removed, and are used by a process.
        kept: the other entries.
        dry_run: whether nothing was removed.
    """

    folder: Path
    removed: Sequence[Entry]
    in_use: Sequence[Entry]
    kept: Sequence[Entry]
    dry_run: bool

    def tables(self) -> list[Table]:
        """Return what was removed, and what is left."""
        what = "to remove (nothing was removed)" if self.dry_run else "removed"
        rows = [(each.name, f"{each.files:,}", shown(each.bytes)) for each in self.removed]
        totals = [("removed", self.removed), ("in use, kept", self.in_use), ("kept", self.kept)]
        left = [(name, *_sums(each)) for name, each in totals]
        return [
            *([Table(f"{what}: {self.folder}", ["entry", "files", "size"], rows)] if rows else []),
            Table("in all", ["", "entries", "files", "size"], left),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the entries that were removed, that are in use, and that were kept."""
        parts = {"removed": self.removed, "in_use": self.in_use, "kept": self.kept}
        listed = {name: [_facts(each) for each in every] for name, every in parts.items()}
        return {"folder": str(self.folder), "dry_run": self.dry_run, **listed}


def shown(size: int) -> str:
    """Return a number of bytes for people."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} B"


def _by_kind(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    return {kind: own for kind in KINDS if (own := [each for each in entries if each.kind == kind])}


def _bytes(entries: Sequence[Entry]) -> int:
    return sum(each.bytes for each in entries)


def _sums(entries: Sequence[Entry]) -> tuple[str, str, str]:
    count = sum(each.kind != OTHER for each in entries)
    return f"{count:,}", f"{sum(each.files for each in entries):,}", shown(_bytes(entries))


def _facts(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in ("kind", "name", "files", "bytes", "used")}
