"""A durable log of records: one JSON line each, on disk before it counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from foils.data.lines import json_value
from foils.data.store import lock_alone
from foils.errors import FailureError, FormatError


class RecordLog:
    """An append-only file of JSON lines by key; the last line of a key holds. Use it as a context.

    A line that a kill cut off, at the end of the file, is dropped when the file is opened again. One process writes at
    a time: another one would ask for the same records.

    Args:
        path: of the file; made, with its folder, on opening.

    Raises:
        FormatError: a line before the last is damaged.
        FailureError: the file cannot be written, or another process is writing it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records: dict[str, dict[str, Any]] = {}
        self._out: IO[bytes] | None = None

    def __enter__(self) -> RecordLog:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._out = self.path.open("a+b")
            lock_alone(self._out, self.path)
            self._out.seek(0)
            whole = self._read(self._out.read())
            self._out.truncate(whole)
        except (FormatError, FailureError):
            self.__exit__(None, None, None)
            raise
        except OSError as error:
            raise FailureError(f"cannot write {self.path}: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Append a record and wait until it is on disk."""
        if self._out is None:
            raise FailureError(f"the log {self.path} is not open")
        try:
            self._out.write(json.dumps({"key": key, **record}, ensure_ascii=True).encode() + b"\n")
            self._out.flush()
            os.fsync(self._out.fileno())
        except OSError as error:
            raise FailureError(
                f"cannot write {self.path}: {error.strerror or error}; what was finished is kept"
            ) from error
        self.records[key] = record

    def _read(self, data: bytes) -> int:
        """Take over the whole lines; return where the last of them ends."""
        end = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:end].split(b"\n")[:-1], 1):
            try:
                record = json_value(line)
                self.records[_text(record.pop("key"))] = record
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
                raise FormatError(
                    "a damaged line; remove it, and its record will be asked for again", self.path, number
                ) from error
        return end


def _text(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key that is {key!r}")
    return key
