"""Answers of language models: kept in one file of a folder, and the JSON in them read."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import xxhash

from foils.runtime.errors import FailureError, FormatError
from foils.runtime.files import make_folder

NAME = "answers.sqlite"
STARTS = 1000  # brackets of an answer that are tried as the beginning of its JSON
_BRACKET = re.compile(r"[\[{]")
_DAMAGED = "damaged answers; remove the file, and they will be asked for again"


class AnswerStore:
    """What records came to, by key, in an SQLite file: on disk before it counts. Use it as a context, repeatedly.

    Each record has a checksum, which is compared when it is read. Several processes may use one file.

    Args:
        folder: of the file; made on opening.

    Raises:
        FormatError: the file, or a record in it, is damaged.
        FailureError: the file cannot be read or written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / NAME
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> AnswerStore:
        make_folder(self.path.parent)
        with self._told():
            connection = self._connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            connection.execute("PRAGMA synchronous = FULL")
            columns = "key TEXT PRIMARY KEY, record TEXT NOT NULL, checksum TEXT"
            connection.execute(f"CREATE TABLE IF NOT EXISTS answers ({columns})")
            connection.commit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record, in the place of an earlier one of its key, and wait until it is on disk."""
        text = json.dumps(record)
        with self._told(), self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, text, _checksum(key, text)))

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of a key, None where there is none."""
        with self._told():
            found = self._opened().execute("SELECT * FROM answers WHERE key = ?", (key,)).fetchone()
        return None if found is None else self._read(*found)

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """Every record by its key, in the order in which they were added."""
        with self._told():
            rows = self._opened().execute("SELECT * FROM answers ORDER BY rowid").fetchall()
        return {row[0]: self._read(*row) for row in rows}

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise FailureError(f"the answers {self.path} are not open")
        return self._connection

    def _read(self, key: str, text: str, checksum: str) -> dict[str, Any]:
        if _checksum(key, text) != checksum:
            raise FormatError(_DAMAGED, self.path)
        return dict(json.loads(text))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what SQLite complains of as an error of the file, or of the disk."""
        try:
            yield
        except sqlite3.OperationalError as error:  # a full disk, no permission, another process for too long
            raise FailureError(f"cannot write {self.path}: {error}; what was finished is kept") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FormatError(f"{_DAMAGED} ({error})", self.path) from error


def _checksum(key: str, text: str) -> str:
    return xxhash.xxh3_64(f"{key}\0{text}".encode()).hexdigest()


def without_thoughts(text: str) -> str:
    """Return an answer without what stands between <think> and </think>.

    Where a </think> has no beginning, as under chat templates that open the thoughts in the prompt, all before it is
    thought; thoughts without an end are all that follows.
    """
    kept: list[str] = []
    *thoughts, rest = text.split("</think>")
    for part in thoughts:
        before, begun, _ = part.partition("<think>")
        kept = [*kept, before] if begun else []
    return "".join([*kept, rest.partition("<think>")[0]])


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON object or list that begins at each bracket, inner ones after those around them.

    Line breaks inside strings are taken as they are. Brackets that begin no JSON are passed over; after STARTS brackets
    no more are tried, so that a model that repeats itself stops no run.
    """
    decoder = json.JSONDecoder(strict=False)
    for start in islice((match.start() for match in _BRACKET.finditer(text)), STARTS):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value
