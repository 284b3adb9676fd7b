"""Files that appear whole, carry checksums, and are locked while they are used."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any

import xxhash

from foils.runtime.errors import FailureError, InputError

try:
    import fcntl
except ImportError:  # not on Windows: what a killed writer left aside stays there
    fcntl = None  # type: ignore[assignment]


TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.part")
SEAL = "checksum"
TUNED_FILE = "retriever.json"  # of a folder that `foils tune` wrote: its model lies in the folder model
CHANGED = "its contents have changed since they were written (their checksum is another)"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; the cache's own is for its user alone."""
    cache = cache_folder()
    if cache in (folder, *folder.parents) and not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Give a new file or folder beside `path`, locked for as long as this process lives; it is removed at the end.

    What writers that were killed left in the folder is removed first.
    """
    try:
        make_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}; choose another place") from error
    remove_dead(path.parent)
    temporary = _beside(path)
    try:
        with _locked_anew(temporary, folder=folder):
            yield temporary
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        _remove(temporary)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def _remove(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _locked_anew(temporary: Path, *, folder: bool) -> Iterator[None]:
    """Make a temporary file or folder and lock it, so that others see whether its writer lives."""
    handle = None
    while handle is None:
        temporary.mkdir(exist_ok=True) if folder else temporary.touch()
        if fcntl is None:
            break
        try:
            handle = os.open(temporary, os.O_RDONLY if folder else os.O_RDWR)
        except FileNotFoundError:  # another process took it for dead before it was opened
            continue
        with suppress(OSError):  # a file system without locks: nobody can take it for dead
            fcntl.flock(handle, fcntl.LOCK_EX)
        if not _is_open(handle, temporary):  # another process took it for dead before the lock
            os.close(handle)
            handle = None
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_open(handle: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def remove_dead(folder: Path) -> None:
    """Remove what writers that were killed left in a folder: that on which nobody holds a lock."""
    for left in folder.glob(".*.part") if fcntl else ():
        if TEMPORARY.fullmatch(left.name):
            with suppress(OSError), _locked(left):
                _remove(left)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is between reading and writing this file, and keep others waiting meanwhile."""
    make_folder(path.parent)
    with _locked(path.parent, wait=True):  # the file itself is replaced by each writing
        yield


def hold(folder: Path, *, by: object) -> None:
    """Say that a folder of the cache is used: now, by its time, and for as long as `by` lives, by a shared lock.

    A folder that is not there, that is another's, or that cannot be locked, is used all the same.
    """
    mark_used(folder)
    if fcntl is not None:
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            weakref.finalize(by, os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH)


def mark_used(path: Path) -> None:
    """Give a file or folder the time of now, by which the least recently used is known."""
    with suppress(OSError):
        os.utime(path)


def remove_unused(path: Path) -> bool:
    """Remove a file or folder, of which others see the whole or nothing; tell whether it was removed.

    It stays where a process holds it, where one is writing into it, and where the file system has no locks to tell.

    Raises:
        FailureError: it may not be removed.
    """
    temporary = _beside(path)
    try:
        with ExitStack() as locks:
            locks.enter_context(_locked(path))
            for writing in path.glob(".*.part") if path.is_dir() else ():
                if TEMPORARY.fullmatch(writing.name):
                    locks.enter_context(_locked(writing))
            path.rename(temporary)  # what a kill leaves of it, the next writer beside it removes
            shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
    except FileNotFoundError:
        return not path.exists()
    except OSError as error:
        if isinstance(error, _InUseError) or (fcntl is None and isinstance(error, PermissionError)):
            return False
        raise FailureError(f"cannot remove {path}: {error.strerror or error}; look at its permissions") from error
    return True


class _InUseError(OSError):
    """Another process holds it."""


@contextmanager
def _locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder: once nobody else holds it, or only if nobody does."""
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not wait:  # else: a file system without locks
                raise _InUseError from error
        yield
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Return the folder for everything that can be made again: $FOILS_CACHE, or foils in the user's cache."""
    if chosen := os.environ.get("FOILS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foils"


@contextmanager
def write_whole(path: str | Path) -> Iterator[Path]:
    """Give a path to write aside; on success it takes the place of `path` at once, on failure nothing changes.

    A link stays a link: what it points to is replaced. A device or a pipe is given as it is. What writers that were
    killed left aside in the folder is removed.

    Raises:
        InputError: the path is a folder, or its folder does not exist and cannot be made.
        FailureError: the file cannot be written (full disk, no permission).
    """
    path = Path(path)
    if _is_special(path):
        try:
            yield path
        except OSError as error:
            raise FailureError(f"cannot write {path}: {error.strerror or error}") from error
        return
    path = _resolved(path)
    with _temporary(path) as temporary:
        yield temporary
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)


@contextmanager
def write_whole_folder(path: str | Path, *, mark: str) -> Iterator[Path]:
    """Give a new folder to fill aside; on success it takes the place of `path` at once.

    For what is made once, the same by whoever makes it: where another process was first, its folder stays.

    Args:
        path: of the folder.
        mark: a file of it, by which a folder that is there already is known to be such a one.

    Raises:
        InputError: the folder that is to hold it cannot be made.
        FailureError: it cannot be written (full disk, no permission, something else in its place).
    """
    path = _resolved(path)
    with _temporary(path, folder=True) as temporary:
        yield temporary
        _flush_all(temporary)
        try:
            temporary.rename(path)
            flush(path.parent)
        except OSError as error:
            if not (path / mark).is_file():
                raise FailureError(f"cannot write {path} ({error.strerror}); remove what is there") from error


@contextmanager
def fill_folder(path: str | Path) -> Iterator[Path]:
    """Give a new folder to fill aside; on success its files take their places in `path`, each whole.

    What `path` holds beside them stays. Files of inner folders come first, so that those of the folder itself, which
    speak of the others, come last.

    Raises:
        InputError: the folder cannot be made.
        FailureError: a file cannot be written (full disk, no permission).
    """
    path = _resolved(path)
    with _temporary(path, folder=True) as temporary:
        yield temporary
        _flush_all(temporary)
        for file in sorted((each for each in temporary.rglob("*") if each.is_file()), key=_inner_first):
            place = path / file.relative_to(temporary)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
            flush(place.parent)
        flush(path.parent)


def _inner_first(path: Path) -> tuple[int, Path]:
    return -len(path.parts), path


def _resolved(path: str | Path) -> Path:
    """The path that links lead to; what no link can lead to is refused."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise InputError(f"cannot write {path}: {error}; choose another name") from error


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk: until then a power cut may undo them.

    A file system that cannot flush folders is left to itself.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not path.is_dir():
            raise


def _flush_all(folder: Path) -> None:
    """Flush every file and folder in a folder, and the folder itself last."""
    for each in sorted(folder.rglob("*"), key=_inner_first):
        if each.is_file() or each.is_dir():
            flush(each)
    flush(folder)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole, as UTF-8."""
    with write_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def without_nan(value: Any) -> Any:
    """Return the value with null in place of every number that is not finite, for JSON."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def write_json(path: str | Path, value: object) -> None:
    """Write a value as indented JSON; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with existing_file(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_checksum(path: Path) -> str:
    """Return xxh3_64 of a file's bytes, as 16 hexadecimal digits: against damage, not against attacks."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_64).hexdigest()


def existing_file(path: str | Path) -> Path:
    """Return the path when a file is there, else raise an InputError that says so."""
    path = Path(path)
    try:
        found = path.is_file()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check the path") from error
    if not found:
        what = "no such file"
        if path.is_dir() or path.exists():
            what = "is a folder, not a file" if path.is_dir() else "is a pipe or a device; write it to a file first"
        elif path.is_symlink():
            what = "is a link that leads to no file"
        raise InputError(f"{path}: {what}; check the path")
    return path


def _is_special(path: Path) -> bool:
    """Tell whether the path is a device or a pipe; a folder is an error."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the name of a file")
        return path.exists() and not path.is_file()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another name") from error


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of what it says: xxh3_64 of its canonical text, as 16 hexadecimal digits.

    The canonical text is ASCII, has its keys sorted and no blanks; a float is its shortest form that reads the same.
    """
    read_again = json.loads(json.dumps(value))  # keys that are numbers become text, and sort as it does
    return {**value, SEAL: _checksum(read_again)}


def intact(value: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object, as it was read, still says what its checksum was taken of.

    One without a checksum counts as intact: nothing is known of it.
    """
    return SEAL not in value or value[SEAL] == _checksum({key: each for key, each in value.items() if key != SEAL})


def write_sealed(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, whole; NaN is refused, since JSON has none."""
    write_json(path, sealed(value))


def _checksum(value: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
