"""A durable log of records: one JSON line each, with a checksum of what it says, on disk before it counts."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from foils.data.records import json_value
from foils.runtime.errors import FailureError, FormatError
from foils.runtime.files import CHANGED, SEAL, intact, lock_alone, make_folder, mark_used, sealed


class RecordLog:
    """An append-only file of JSON lines by key; the last line of a key holds. Use it as a context, as often as needed.

    Each line has a checksum, which is compared when it is read; lines of older logs, which have none, are read as they
    are.

    Memory holds where each record is (16 bytes), not the record. Opened again, only what other processes wrote
    meanwhile is read. A line that a kill cut off, at the end of the file, is dropped when the file is opened. One
    process writes at a time: another one would ask for the same records.

    Args:
        path: of the file; made, with its folder, on opening.

    Raises:
        FormatError: a line before the last is damaged.
        FailureError: the file cannot be written, or another process is writing it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: IO[bytes] | None = None
        self._forget()

    def __enter__(self) -> RecordLog:
        try:
            make_folder(self.path.parent)
            self._file = self.path.open("a+b")
            lock_alone(self._file, self.path)
            self._read_on(self._file)
            self._file.truncate(self._end)
            mark_used(self.path)
        except (FormatError, FailureError):
            self.__exit__(None, None, None)
            raise
        except OSError as error:
            raise FailureError(f"cannot write {self.path}: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Append a record and wait until it is on disk."""
        file, line = self._opened(), json.dumps(sealed({"key": key, **record}), ensure_ascii=True).encode() + b"\n"
        try:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise FailureError(
                f"cannot write {self.path}: {error.strerror or error}; what was finished is kept"
            ) from error
        self._take(key, len(line))

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of a key, None where there is none."""
        file, start = self._opened(), self._places.get(key)
        if start is None:
            return None
        file.seek(start)
        there, record = _parsed(file.readline(), self.path, None)
        return record if there == key else None  # another key of the same digest

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """Every record, read again: for small logs."""
        file = self._opened()
        file.seek(0)
        return dict(_parsed(line, self.path, number) for number, line in enumerate(file, 1))

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise FailureError(f"the log {self.path} is not open")
        return self._file

    def _forget(self) -> None:
        self._places, self._end, self._lines, self._inode = _Places(), 0, 0, -1

    def _read_on(self, file: IO[bytes]) -> None:
        """Take over the whole lines after those that were read; all of them where the file is another one."""
        state = os.fstat(file.fileno())
        if state.st_ino != self._inode or state.st_size < self._end:
            self._forget()
            self._inode = state.st_ino
        file.seek(self._end)
        for line in file:
            if not line.endswith(b"\n"):
                break
            key, _ = _parsed(line, self.path, self._lines + 1)
            self._take(key, len(line))

    def _take(self, key: str, length: int) -> None:
        self._places.put(key, self._end)
        self._end += length
        self._lines += 1


class _Places:
    """Where the record of each key begins: sorted digests of keys and positions, and a dictionary of recent ones.

    Two keys may have one digest (64 bits; a chance of 1 in 10⁴ among sixty million keys): the later one is found.
    """

    def __init__(self) -> None:
        self._digests, self._starts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._recent: dict[int, int] = {}

    def put(self, key: str, start: int) -> None:
        self._recent[_digest(key)] = start
        if len(self._recent) > max(4096, len(self._digests) // 8):
            digests = np.concatenate([self._digests, np.fromiter(self._recent.keys(), np.uint64)])
            starts = np.concatenate([self._starts, np.fromiter(self._recent.values(), np.int64)])
            order = np.argsort(digests, kind="stable")
            last = np.append(np.diff(digests[order]) > 0, True)
            self._digests, self._starts, self._recent = digests[order][last], starts[order][last], {}

    def get(self, key: str) -> int | None:
        digest = _digest(key)
        if digest in self._recent:
            return self._recent[digest]
        at = int(np.searchsorted(self._digests, np.uint64(digest)))
        there = at < len(self._digests) and int(self._digests[at]) == digest
        return int(self._starts[at]) if there else None


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def check_log(path: Path) -> None:
    """Read a log through, whoever writes it; a last line without an end is left out.

    Raises:
        FormatError: a line is damaged.
        FailureError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    _parsed(line, path, number)
    except OSError as error:
        raise FailureError(f"cannot read {path}: {error.strerror or error}") from error


def _parsed(line: bytes, path: Path, number: int | None) -> tuple[str, dict[str, Any]]:
    """Return key and record of a line of a log."""
    try:
        record = json_value(line)
        if not intact(record):
            raise ValueError(CHANGED)
        record.pop(SEAL, None)
        key = record.pop("key")
        if not isinstance(key, str):
            raise TypeError(f"a key that is {key!r}")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        message = "a damaged line; remove it, and its record will be asked for again"
        raise FormatError(message, path, number) from error
    return key, record
