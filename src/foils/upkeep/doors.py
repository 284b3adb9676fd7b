"""The door to the cache: its size, its checksums, and what of it is removed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from foils.runtime import progress
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder, remove_dead, remove_unused
from foils.runtime.memory import parsed_size
from foils.runtime.options import Option, Settings, refuse, spelled
from foils.upkeep.entries import KINDS, Entry, checked, damage, entries, others
from foils.upkeep.results import CacheCheck, CachePruned, CacheSize

DAY = 86_400.0
ACTIONS = ("size", "verify", "prune")


@dataclass(frozen=True, kw_only=True)
class PruneSettings(Settings):
    """What `prune` removes.

    Attributes:
        keep: Remove the least recently used entries until the others take at most this size, as 500MB or 20GiB.
        older_than: Remove entries that were not used for this many days.
        dry_run: Remove nothing; show what would be removed.
    """

    heading = "Prune"

    keep: Annotated[int | None, Option(parse=parsed_size, metavar="SIZE", least=0)] = None
    older_than: Annotated[float | None, Option(metavar="DAYS", least=0)] = None
    dry_run: bool = False


@door
def cache(
    action: Annotated[str, Option(names=ACTIONS)] = "size",
    *,
    kind: Annotated[tuple[str, ...], Option(names=tuple(KINDS), repeated=True)] = (),
    prune: PruneSettings,
) -> CacheSize | CacheCheck | CachePruned:
    """Show how large the cache is, check it against its checksums, or remove what was not used for long.

    The cache ($FOILS_CACHE, or foils in the user's cache) holds what can be made again: collections, vectors, compiled
    models, judgements, and answers of language models, which cost money to ask for again (--kind leaves them out).

    Entries are removed whole: a model's vectors, a collection, a judge's answers. One that a process reads or writes
    stays. Links, and what foils did not put there, stay too.

    Args:
        action: What to do: size, verify, or prune.
        kind: Only entries of this kind; may be given several times.

    Raises:
        InputError: prune without saying what, or settings of prune with another action.
        FailureError: an entry may not be removed.
    """
    folder = cache_folder()
    if action != "prune":
        refuse(prune.changed(), f"with {action}; it goes with prune")
    every = entries(folder, kind)
    if action == "size":
        return CacheSize(folder, every, None if kind else others(folder, every))
    return _verified(folder, every) if action == "verify" else _pruned(folder, every, prune)


def _verified(folder: Path, every: Sequence[Entry]) -> CacheCheck:
    files = {each: checked(each) for each in every}
    count, damaged = Counter[str](), dict[Path, str]()
    with progress.task("checking the cache", total=sum(map(len, files.values())), unit="files") as advance:
        for entry, paths in files.items():
            for path in paths:
                if wrong := damage(entry.kind, path):
                    damaged[path] = wrong
                count[entry.kind] += 1
                advance(1)
    without = Counter(entry.kind for entry, paths in files.items() if not paths)
    return CacheCheck(folder, dict(count), dict(without), damaged)


def _pruned(folder: Path, every: Sequence[Entry], settings: PruneSettings) -> CachePruned:
    if settings.keep is None and settings.older_than is None:
        keep, older = spelled("keep"), spelled("older_than")
        raise InputError(f"prune needs {keep} (a size), {older} (days), or both: what is to be removed")
    oldest = -float("inf") if settings.older_than is None else time.time() - settings.older_than * DAY
    size, limit = sum(each.bytes for each in every), settings.keep
    removed, in_use, kept = list[Entry](), list[Entry](), list[Entry]()
    for entry in sorted(every, key=lambda each: (each.used, each.name)):
        if not (entry.used < oldest or (limit is not None and size > limit)):
            kept.append(entry)
        elif settings.dry_run or remove_unused(entry.path):
            removed.append(entry)
            size -= entry.bytes
        else:
            in_use.append(entry)
    if not settings.dry_run:
        for name in KINDS:
            remove_dead(folder / name)
    return CachePruned(folder, removed, in_use, kept, settings.dry_run)
