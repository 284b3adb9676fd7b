"""What lies in the cache: entries of each kind, each kept or removed whole, and whether they are damaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foils.data.collection import check_stored
from foils.data.tables import read_table
from foils.encode.shards import check_shard
from foils.encode.vectors import FORM
from foils.llm.log import check_log
from foils.runtime.errors import FoilsError

OTHER = "other"


@dataclass(frozen=True)
class Kind:
    """One kind of entries.

    Attributes:
        shows: what they are, for a table.
        entry: pattern of an entry's name.
        below: how many folders lie between that of the kind and the entries.
        files: whether an entry is a file, not a folder.
    """

    shows: str
    entry: re.Pattern[str]
    below: int = 0
    files: bool = False


KINDS = {  # name of the folder in the cache -> what lies there
    "vectors": Kind("vectors of texts, a model each", re.compile(r".+-float(32|16)(-xxh3)?")),
    "collections": Kind("collections", re.compile(r"(pydocs-)?[0-9a-f]{32}")),
    "compiled": Kind("compiled models", re.compile(r".+\.onnx")),
    "judgements": Kind("judgements, a judge and collection each", re.compile(r".+-[0-9a-f]{16}")),
    "llm": Kind("answers of language models, a log each", re.compile(r".+\.jsonl"), below=1, files=True),
}


@dataclass(frozen=True)
class Entry:
    """What is kept or removed whole: a model's vectors, a collection, a compiled model, a judge's answers, a log.

    Attributes:
        kind: name of its kind.
        name: its path in the cache.
        path: of the folder, or of the file.
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


def entries(folder: Path, kinds: Collection[str] = ()) -> list[Entry]:
    """Return the entries of a cache, by kind and name.

    Links are not followed, so nothing outside the folder is met. What does not have the name of an entry is none.

    Args:
        folder: of the cache; it may be missing.
        kinds: these alone; empty: all.
    """
    every = []
    for name, kind in KINDS.items():
        if name in (kinds or KINDS):
            places = [folder / name]
            for _ in range(kind.below):
                places = [inner for place in places for inner in _inside(place) if inner.is_dir()]
            for path in sorted(inner for place in places for inner in _inside(place)):
                fits = kind.entry.fullmatch(path.name) and not path.name.startswith(".")
                if fits and (path.is_file() if kind.files else path.is_dir()):
                    every.append(_measured(name, path, folder))
    return every


def others(folder: Path, known: Collection[Entry]) -> Entry:
    """Return everything in a cache that belongs to no entry, as if it were one."""
    whole = _measured(OTHER, folder, folder)
    files, size = (sum(getattr(each, name) for each in known) for name in ("files", "bytes"))
    return Entry(OTHER, OTHER, folder, max(0, whole.files - files), max(0, whole.bytes - size), whole.used)


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


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files in a folder and the folders in it, or the file itself; no links."""
    if path.is_symlink():
        return
    if path.is_file():
        yield path
    for inner in _inside(path):
        yield from files_of(inner)


def _inside(folder: Path) -> list[Path]:
    """What lies in a folder, links left out; nothing where it is a link, no folder, or gone meanwhile."""
    with suppress(OSError):
        if not folder.is_symlink():
            return sorted(path for path in folder.iterdir() if not path.is_symlink())
    return []


def _measured(kind: str, path: Path, cache: Path) -> Entry:
    files, size, used = 0, 0, 0.0
    with suppress(OSError):
        used = path.stat().st_mtime
    for each in files_of(path):
        with suppress(OSError):
            state = each.stat()
            files, size, used = files + 1, size + state.st_size, max(used, state.st_mtime)
    return Entry(kind, path.relative_to(cache).as_posix(), path, files, size, used)
