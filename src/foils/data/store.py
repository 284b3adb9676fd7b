"""Files that appear whole, tables that say where they come from.

A table is written as Parquet with its provenance in the schema's metadata: stage, settings, seed, model
fingerprint, versions, digests of the inputs. No time and no path goes in, so the same work gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foils.errors import FailureError, FormatError, InputError

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

    A link stays a link: what it points to is replaced. A device or a pipe is given as it is.

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
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}; choose another place") from error
    try:
        yield aside
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(path)
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        with suppress(OSError):
            aside.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole, as UTF-8."""
    with write_whole(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: object) -> None:
    """Write a value as indented JSON; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_table(path: str | Path, table: pa.Table, provenance: Provenance) -> None:
    """Write an Arrow table as Parquet (zstd) with its provenance in the metadata, whole."""
    recorded = json.dumps(provenance, sort_keys=True, ensure_ascii=False)
    labelled = table.replace_schema_metadata({_KEY: recorded.encode()})
    with write_whole(path) as aside:
        pq.write_table(labelled, aside, compression="zstd")


def read_table(path: str | Path) -> tuple[pa.Table, Provenance]:
    """Read a Parquet table and its provenance ({} where the file carries none).

    Raises:
        InputError: there is no such file.
        FormatError: the file is not Parquet, or damaged.
    """
    existing_file(path)
    try:
        table = pq.ParquetFile(path).read()
        table.validate(full=True)
        provenance = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    except (pa.ArrowException, OSError, ValueError) as error:
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
        what = "is a folder, not a file" if path.is_dir() else "no such file"
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
