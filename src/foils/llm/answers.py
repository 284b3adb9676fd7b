"""Answers of language models: kept in one file of a folder, and the JSON in them read."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from foils.runtime.errors import FailureError, FormatError
from foils.runtime.files import make_folder

NAME = "answers.sqlite"
STARTS = 1000  # brackets of an answer that are tried as the beginning of its JSON
_BRACKET = re.compile(r"[\[{]")
_DAMAGED = "damaged answers; remove the file, and they will be asked for again"


class AnswerStore:
    """Answers by key, in an SQLite file: on disk before they count. Several processes may use one file.

    Each answer has a checksum, which is compared when it is read.

    Args:
        folder: of the file; made with it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / NAME

    def add(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep records, each in the place of an earlier one of its key, and wait until they are on disk.

        Raises:
            FormatError: the file is damaged.
            FailureError: it cannot be written.
        """
        texts = [(key, json.dumps(record)) for key, record in records.items()]
        with self._connected() as connection:
            rows = [(key, text, _checksum(key, text)) for key, text in texts]
            connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the records of those keys that have one.

        Raises:
            FormatError: the file, or one of these records, is damaged.
            FailureError: the file cannot be read.
        """
        records = {}
        with self._connected() as connection:
            for key in keys:
                for text, checksum in connection.execute("SELECT record, checksum FROM answers WHERE key = ?", (key,)):
                    if _checksum(key, text) != checksum:
                        raise FormatError(_DAMAGED, self.path)
                    records[key] = json.loads(text)
        return records

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file; what SQLite complains of is an error of the file, or of the disk."""
        make_folder(self.path.parent)
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                connection.execute("PRAGMA synchronous = FULL")
                columns = "key TEXT PRIMARY KEY, record TEXT NOT NULL, checksum TEXT"
                connection.execute(f"CREATE TABLE IF NOT EXISTS answers ({columns})")
                yield connection
        except sqlite3.OperationalError as error:  # a full disk, no permission, another process for too long
            raise FailureError(f"cannot write {self.path}: {error}; what was finished is kept") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FormatError(f"{_DAMAGED} ({error})", self.path) from error


def _checksum(key: str, text: str) -> str:
    return xxhash.xxh3_64(f"{key}\0{text}".encode()).hexdigest()


def without_thoughts(text: str) -> str:
    """Return an answer without what stands between <think> and </think>.

    Where a </think> has no beginning, as under chat templates that open the thoughts in the prompt,
    all before it is thought; thoughts without an end are all that follows.
    """
    kept: list[str] = []
    *thoughts, rest = text.split("</think>")
    for part in thoughts:
        before, begun, _ = part.partition("<think>")
        kept = [*kept, before] if begun else []
    return "".join([*kept, rest.partition("<think>")[0]])


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON object or list that begins at each bracket, inner ones after those around them.

    Line breaks inside strings are taken as they are. Brackets that begin no JSON are passed over;
    after STARTS brackets no more are tried, so that a model that repeats itself stops no run.
    """
    decoder = json.JSONDecoder(strict=False)
    for start in islice((match.start() for match in _BRACKET.finditer(text)), STARTS):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value
