"""Files that appear whole, carry checksums, and are locked while they are used."""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from foils.runtime.errors import FailureError, FoilsError, InputError

try:
    import fcntl
except ImportError:  # not on Windows: what a killed writer left aside stays there
    fcntl = None  # type: ignore[assignment]


log = logging.getLogger(__name__)

Value = TypeVar("Value")
TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.part")
SEAL, META = "checksum", "meta.json"
# raised by what reads damaged files of the cache
DAMAGE = (OSError, ValueError, KeyError, TypeError, RuntimeError)
CHANGED = "its contents have changed since they were written (their checksum is another)"


def cache_folder() -> Path:
    """Return the folder for everything that can be made again: $FOILS_CACHE, or foils in the user's cache."""
    chosen = os.environ.get("FOILS_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foils"


# kind of what the cache keeps, and its folder -> names of the entries; what foils did not put there stays
CACHED = {
    "vectors": r"[^/]+-float(32|16)(-xxh3)?",
    "collections": r"(pydocs-)?[0-9a-f]{32}",
    "tokens": r"[0-9a-f]{32}",
    "mined": r"[0-9a-f]{32}",
    "bm25": r"[0-9a-f]{32}",
    "faiss": r"[0-9a-f]{32}",
    "llm": r"[0-9a-f]{16}",
}


def cache_place(kind: str, name: str = "") -> Path:
    """Return where the cache keeps an entry of a kind of `CACHED`; without a name, the folder of the kind."""
    return cache_folder() / kind / name


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; the cache's own is for its user alone.

    Raises:
        InputError: it cannot be made.
    """
    cache = cache_folder()
    try:
        if cache in (folder, *folder.parents) and not cache.exists():
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another place") from error


# Who uses a file or folder is known by locks: a process that dies gives them back.


@contextmanager
def _locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder: once nobody else holds it (where there are no locks, at once), or only if nobody does.

    Raises:
        OSError: somebody else holds it, or nobody can tell; with `wait`, it is not there.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if wait else nullcontext():
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process at a time read a file and write it anew: others wait until the context ends."""
    make_folder(path.parent)
    with _locked(path.parent, wait=True):  # the file itself is replaced by each writing
        yield


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def remove_whole(path: Path) -> None:
    """Remove a file or folder at once.

    A kill leaves it as it was, or something that the next writer there removes.

    Raises:
        OSError: it may not be removed.
    """
    aside = _aside(path)
    path.rename(aside)
    with suppress(FileNotFoundError):  # another process took it for what a killed one left
        _remove(aside)


def discard(path: Path, what: str, why: object) -> None:
    """Remove what is damaged in the cache, where that may be done, and say that it is made again."""
    log.warning("the %s %s is damaged (%s); it is made again", what, path, str(why)[:500])
    with suppress(OSError):
        remove_whole(path)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left in a folder, on which nobody holds a lock."""
    for left in folder.glob(".*.part") if fcntl else ():
        if TEMPORARY.fullmatch(left.name):
            with suppress(OSError), _locked(left):
                _remove(left)


# What is written appears whole: written aside, flushed, and then given its name.


@contextmanager
def _temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Give a new file or folder beside `path`, locked for as long as this process lives.

    It is removed at the end.

    What writers that were killed left in the folder, on which nobody holds a lock, is removed first.
    """
    make_folder(path.parent)
    sweep(path.parent)
    temporary = _aside(path)
    try:
        with ExitStack() as lock:
            while not temporary.exists():  # also where another process took it for dead before it was locked
                temporary.mkdir() if folder else temporary.touch()
                with suppress(FileNotFoundError):
                    lock.enter_context(_locked(temporary, wait=True))
            yield temporary
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        with suppress(OSError):
            _remove(temporary)


@contextmanager
def write_whole(path: str | Path) -> Iterator[Path]:
    """Give a path to write aside.

    On success it takes the place of `path` at once, on failure nothing changes.

    A link stays a link: what it points to is replaced. What writers that were killed left aside in
    the folder is removed.

    Raises:
        InputError: the path is a folder, a pipe or a device, or its folder does not exist and cannot be made.
        FailureError: the file cannot be written (full disk, no permission).
    """
    place = _resolved(path)
    if place.exists() and not place.is_file():
        raise InputError(f"{path} is a folder, a pipe or a device; give the name of a file")
    with _temporary(place) as temporary:
        yield temporary
        flush(temporary)
        temporary.replace(place)
        flush(place.parent)


@contextmanager
def fill_folder(path: str | Path, *, mark: str = "") -> Iterator[Path]:
    """Give a new folder to fill aside.

    On success it takes the place of `path` at once, on failure nothing changes.

    What `path` holds beside them stays: links to it are made in the new folder before. Weights of
    another model that it holds do not, for they would be read with the new ones. Whoever may read
    the folder may read its files.

    Args:
        path: of the folder.
        mark: name of a file without which the folder counts as unfinished. For what is made once,
            the same by whoever makes it: where another process was first, its folder stays.

    Raises:
        InputError: the folder cannot be made.
        FailureError: a file cannot be written (full disk, no permission).
    """
    path = _resolved(path)
    with _temporary(path, folder=True) as temporary:
        yield temporary
        if mark and (path / mark).exists():
            return
        mode = temporary.stat().st_mode & 0o777  # as the user's umask has it
        for each in temporary.rglob("*"):
            each.chmod(mode if each.is_dir() else mode & 0o666)
        if path.exists():
            _link_others(path, temporary)
        # what lies in a folder before it
        for each in (*sorted(temporary.rglob("*"), reverse=True), temporary):
            flush(each)
        if path.exists():
            _exchange(temporary, path)
        else:
            with suppress(OSError) if mark else nullcontext():  # another process was first
                temporary.rename(path)
        flush(path.parent)


def _link_others(old: Path, new: Path) -> None:
    """Give a folder links to what the one before holds beside its files, weights and adapters of a model left out."""
    for file in old.rglob("*"):
        part = file.relative_to(old)
        left_out = part.parent == Path() and OF_WEIGHTS.fullmatch(file.name)
        if file.is_dir() or left_out or (new / part).exists():
            continue
        (new / part).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, new / part)
        except OSError:  # a file system without links
            shutil.copy2(file, new / part)


def _exchange(one: Path, other: Path) -> None:
    """Give two folders each other's name: at once on Linux.

    Elsewhere a kill may leave `other` as `.NAME.before`.
    """
    with suppress(AttributeError, OSError, TypeError):  # of another system
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        if rename(FROM_HERE, os.fsencode(one), FROM_HERE, os.fsencode(other), EXCHANGE) == 0:
            return
    before = other.with_name(f".{other.name}.before")
    other.rename(before)
    one.rename(other)
    before.rename(one)


FROM_HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
OF_WEIGHTS = re.compile(r".*\.safetensors(\.index\.json)?|pytorch_model.*|adapter_config\.json")


def check_writable(folder: str | Path) -> None:
    """Refuse a folder that cannot be written, before the long work whose result it is to hold.

    Raises:
        InputError: a file cannot be made in it, or beside it, where a new folder is filled.
    """
    folder = _resolved(folder)
    for path in (folder, folder.parent):
        place = next(each for each in (path, *path.parents) if each.exists())
        try:
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror}; choose another place") from error


# How the names of outputs end, in lower case; "": a name without an ending will do.
PARQUET, JSON, JSONL, HTML = (".parquet", ""), (".json", ""), (".jsonl", ""), (".html", ".htm", "")
TREC, LABEL_FILES = (".trec", ".run", ".txt", ""), (".tsv", ".csv", ".jsonl", ".parquet")
FOLDER = "/"  # in the place of an ending: what is written is a folder
SHOWN = (".html", ".trec", ".run")  # what nothing reads that is given the folder around it


def check_output(path: str | Path, endings: Collection[str], read: Iterable[Path] = (), name: str = "") -> None:
    """Refuse a place where nothing is to be written: what is read lies there, or its name says another form.

    Files are told by where they lie on the disk, so that links, other spellings and relative paths
    make no difference.

    Args:
        path: of the file or folder to write.
        endings: of names that say what is written. `FOLDER`: a folder is written.
        read: files and folders that are read for what is written. Of a folder in BEIR's layout the
            texts and judgements count, of another all files but `SHOWN`.
        name: of the option that gives the path, for the message.

    Raises:
        InputError: the name ends otherwise; a folder lies where a file is to be written, or a file
            in the place of a folder; or the place is a file that is read, or a folder around one.
    """
    place, called = _resolved(path), f"{name} {path}".strip()
    of_folder, ending = FOLDER in endings, Path(path).suffix.lower()
    for read_path in read:
        files = list(_files_read(read_path))
        if of_folder:
            files += {folder for file in files for folder in (*file.absolute().parents, *file.resolve().parents)}
        is_read = any(map(place.samefile, files)) if place.exists() else _belongs(place, read_path.resolve())
        if is_read:
            problem = f"{read_path} is read for this, and writing here would change it"
            raise InputError(f"{called}: {problem}; give another place")
    if not of_folder and ending not in endings:
        expected = f"a name that ends in {' or '.join(filter(None, endings))}"
        raise InputError(f"{called}: the name does not say what is written; expected {expected}")
    if place.exists() and place.is_dir() != of_folder:
        what, expected = ("a file", "folder") if of_folder else ("a folder", "file")
        raise InputError(f"{called} is {what}; give the name of a {expected}")


def _files_read(place: Path) -> Iterator[Path]:
    """A file; or a folder, and the files in it that a reader of the folder reads."""
    yield place
    texts = any(place.glob("queries.jsonl*"))
    for file in place.rglob("*"):
        if file.is_file() and (_belongs(file, place) if texts else file.suffix.lower() not in SHOWN):
            yield file


def _belongs(file: Path, folder: Path) -> bool:
    """Whether BEIR's layout has the file in the folder: texts, or judgements."""
    texts = file.parent == folder and file.name.startswith(("corpus.jsonl", "queries.jsonl"))
    return texts or file.parent == folder / "qrels"


def _resolved(path: str | Path) -> Path:
    """The path that links lead to; what no link can lead to, and what cannot be looked at, is refused."""
    try:
        path = Path(path).resolve()
        path.exists()
    except (OSError, RuntimeError) as error:  # a loop of links, a name that is too long
        raise InputError(f"cannot write {path}: {error}; choose another name") from error
    return path


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk: until then a power cut may undo them.

    A file system that cannot flush folders is left to itself.
    """
    with suppress(OSError) if path.is_dir() else nullcontext():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole, as UTF-8."""
    with write_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: object) -> None:
    """Write a value as indented JSON; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def without_nan(value: Any) -> Any:
    """Return the value with null in place of every number that is not finite, for JSON."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def existing_file(path: str | Path) -> Path:
    """Return the path when a file is there, else raise an InputError that says so."""
    if os.path.isfile(path):  # noqa: PTH113  (which takes a name that is too long for none)
        return Path(path)
    what = "is a folder, a pipe or a device, not a file" if os.path.exists(path) else "no such file"  # noqa: PTH110
    raise InputError(f"{path}: {what}; check the path")


# Checksums


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with existing_file(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_checksum(path: Path) -> str:
    """Return xxh3_64 of a file's bytes, as 16 hexadecimal digits: against damage, not against attacks."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_64).hexdigest()


def write_sealed(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object whole, with the checksum of what it says: xxh3_64 of its canonical text.

    The canonical text is ASCII, has its keys sorted and no blanks; a float is its shortest form
    that reads the same.
    """
    read_again = json.loads(json.dumps(value))  # keys that are numbers become text, and sort as it does
    write_json(path, {**value, SEAL: _checksum(read_again)})


def unsealed(value: Any) -> dict[str, Any]:
    """Return a JSON object, as it was read, without its checksum.

    Raises:
        ValueError: it has none, or says something else than its checksum was taken of.
    """
    rest = {key: each for key, each in value.items() if key != SEAL} if isinstance(value, dict) else {}
    if not isinstance(value, dict) or value.get(SEAL) != _checksum(rest):
        raise ValueError(CHANGED)
    return rest


def digest_of(key: object, size: int = 6) -> str:
    """Return a digest of a JSON value, in hexadecimal: the same value, the same digest."""
    text = json.dumps(key, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _checksum(value: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_parts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write meta.json of a folder that is being filled: these facts, and the checksums of the files there."""
    files = {path.name: file_checksum(path) for path in sorted(folder.iterdir()) if path.is_file()}
    write_sealed(folder / META, {**facts, "files": files})


def read_parts(folder: Path) -> dict[str, Any]:
    """Return the facts of a folder's meta.json.

    Each file is read through once a process, and its checksum compared.

    Raises:
        OSError, ValueError, KeyError, RecursionError: a file of it is missing or damaged (`DAMAGE`).
    """
    meta = unsealed(json.loads((folder / META).read_bytes()))
    check_files(folder, meta["files"])
    return meta


def check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Read each file of a folder through once a process, and compare its checksum.

    Raises:
        OSError, ValueError: a file is missing or damaged.
    """
    for name, checksum in checksums.items():
        state = (folder / name).stat()
        facts = (str((folder / name).absolute()), state.st_size, state.st_mtime_ns)
        if facts not in _verified and file_checksum(folder / name) != checksum:
            raise ValueError(f"{name}: {CHANGED}")
        _verified.add(facts)


_verified: set[tuple[str, int, int]] = set()


def kept_folder(
    place: Path, what: str, read: Callable[[], Value], make: Callable[[], Value], write: Callable[[Path, Value], None]
) -> Value:
    """Return what lies in a folder of the cache; where nothing does, or it is damaged, make it and keep it there.

    Args:
        place: of the folder.
        what: it is, for warnings: of damage, and of a cache that may only be read, or a full disk.
        read: the folder's files.
        make: it anew.
        write: the files into a folder.
    """
    if (place / META).is_file():
        try:
            read_parts(place)
            return read()
        except DAMAGE as error:
            discard(place, what, error)
    value = make()
    try:
        with fill_folder(place, mark=META) as aside:
            write(aside, value)
            write_parts(aside, {})
    except FoilsError as error:
        log.warning("the %s is not kept: %s", what, error)
    return value


def kept_arrays(place: Path, what: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return arrays of numbers or texts by name, mapped from a folder of the cache, or made and kept there.

    Args:
        place: of the folder.
        what: they are, as for `kept_folder`.
        make: them anew.
    """
    import numpy as np

    def read() -> Mapping[str, Any]:
        return {path.stem: np.load(path, mmap_mode="r") for path in place.glob("*.npy")}

    def write(aside: Path, arrays: Mapping[str, Any]) -> None:
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array)

    return kept_folder(place, what, read, make, write)
