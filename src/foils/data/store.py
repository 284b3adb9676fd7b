"""Files that appear whole, tables that say where they come from.

A table is written as Parquet with its provenance in the schema's metadata: stage, settings, seed, model
fingerprint, versions, digests of the inputs. No time and no path goes in, so the same work gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foils.data.aside import held, place_aside
from foils.runtime.errors import FailureError, FormatError, InputError

Provenance = dict[str, Any]
_KEY = b"foils"
_VERSIONED = ("foils", "numpy", "pyarrow", "bm25s", "sentence-transformers", "torch")


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
    path = path.resolve()
    aside = place_aside(path)
    try:
        with held(aside):
            yield aside
            flush(aside)
            aside.replace(path)
            flush(path.parent)
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        with suppress(OSError):
            aside.unlink()


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
    path = Path(path).resolve()
    aside = place_aside(path)
    try:
        with held(aside, folder=True):
            yield aside
            _flush_all(aside)
            try:
                aside.rename(path)
                flush(path.parent)
            except OSError as error:
                if not (path / mark).is_file():
                    raise FailureError(f"cannot write {path} ({error.strerror}); remove what is there") from error
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def fill_folder(path: str | Path) -> Iterator[Path]:
    """Give a new folder to fill aside; on success its files take their places in `path`, each whole.

    What `path` holds beside them stays. Files of inner folders come first, so that those of the folder itself, which
    speak of the others, come last.

    Raises:
        InputError: the folder cannot be made.
        FailureError: a file cannot be written (full disk, no permission).
    """
    path = Path(path).resolve()
    aside = place_aside(path)
    try:
        with held(aside, folder=True):
            yield aside
            _flush_all(aside)
            files = [each for each in aside.rglob("*") if each.is_file()]
            for file in sorted(files, key=lambda each: (-len(each.parts), each)):
                place = path / file.relative_to(aside)
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)
                flush(place.parent)
            flush(path.parent)
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


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
    for each in sorted(folder.rglob("*"), key=lambda path: (-len(path.parts), path)):
        if each.is_file() or each.is_dir():
            flush(each)
    flush(folder)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole, as UTF-8."""
    with write_whole(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


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


def write_table(path: str | Path, table: pa.Table, provenance: Provenance) -> None:
    """Write an Arrow table as Parquet (zstd) with its provenance in the metadata, whole."""
    with write_whole(path) as aside:
        _write_parquet(aside, table, provenance)


def table_bytes(table: pa.Table, provenance: Provenance) -> bytes:
    """Return the bytes of the file that `write_table` writes."""
    written = pa.BufferOutputStream()
    _write_parquet(written, table, provenance)
    return bytes(written.getvalue())


def _write_parquet(place: Any, table: pa.Table, provenance: Provenance) -> None:
    recorded = json.dumps(provenance, sort_keys=True)
    pq.write_table(
        table.replace_schema_metadata({_KEY: recorded.encode()}), place, compression="zstd", write_page_checksum=True
    )


def read_table(path: str | Path) -> tuple[pa.Table, Provenance]:
    """Read a Parquet table and its provenance ({} where the file carries none).

    Raises:
        InputError: there is no such file.
        FormatError: the file is not Parquet, or damaged.
    """
    existing_file(path)
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
        table.validate(full=True)
        provenance = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise FormatError(f"not a readable Parquet file ({_first_line(error)}); make it again", path) from error
    if not isinstance(provenance, dict):
        raise FormatError(f"its provenance is no JSON object but {type(provenance).__name__}; make it again", path)
    return table.replace_schema_metadata(None), provenance


def provenance(
    stage: str, settings: Mapping[str, Any], *, inputs: Mapping[str, str] | None = None, **more: Any
) -> Provenance:
    """Return what a written table says of itself: stage, settings, digests of inputs, versions, and `more`."""
    return {
        "stage": stage,
        "settings": dict(settings),
        "inputs": dict(inputs or {}),
        "versions": {name: found for name in _VERSIONED if (found := _version(name))},
        **more,
    }


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with existing_file(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
