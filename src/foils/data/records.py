"""Records of files and tables, read one by one, with the line on which each stands.

Every reader in foils goes through here, so that each complaint names file and line, and a file's
complaints are raised together.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from foils.data.tables import BYTES, MOST, bytes_of_row, opened_parquet, pieces
from foils.runtime import memory, progress
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import CHANGED, existing_file, unsealed

# characters of one complaint; of longer ones, which quote long ids, the beginning is shown
LONGEST_MESSAGE = 500
PIECE = 1 << 20  # bytes that are unpacked at once
# bytes of a line, unpacked: what a reader holds in memory at most, whatever a small gzip file unpacks to
LONGEST_LINE = 1 << 26
CONVERT = "expected text in UTF-8, plain or gzipped; convert the file, or save it as Parquet"


class Complaints:
    """Collects what is wrong with a file and raises it all at once.

    Collecting stops at 1,000 complaints (the file is then plainly of another kind).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._noted: list[tuple[int | None, str]] = []

    def add(self, message: str, line: int | None = None) -> None:
        """Note one complaint."""
        self._noted.append((line, message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"))
        if len(self._noted) >= 1000:
            self.raise_if_any()

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Note an InputError that is raised in the context as a complaint about this line."""
        try:
            yield
        except InputError as error:
            self.add(str(error), line)

    def raise_if_any(self) -> None:
        """Raise a FormatError if anything was noted: the first, then the next four with their lines."""
        if self._noted:
            (line, message), *others = self._noted
            listed = [message, *(f"{self.path}:{at}: {text}" if at else text for at, text in others[:4])]
            if len(others) > 4:
                listed.append(f"(and {len(others) - 4} more)")
            raise FormatError("\n".join(listed), self.path, line)


@contextmanager
def open_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, unpacking gzip where the file is gzip (by its first bytes).

    Raises:
        InputError: there is no such file.
        FormatError: it may not be read, or what is read of it is damaged.
    """
    try:
        with existing_file(path).open("rb") as opened:
            packed = opened.peek(2).startswith(b"\x1f\x8b")
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=opened)) if packed else opened
    except (EOFError, zlib.error, OSError) as error:  # the gzip is cut or damaged, or the disk is bad
        raise FormatError(f"cannot be read ({error}); get the file again", path) from error


def beginning(path: Path) -> bytes:
    """Return the first 64 KiB of a file, unpacked, without a byte order mark and white space before them.

    Raises:
        InputError: there is no such file.
        FormatError: it may not be read, or is damaged.
    """
    with open_binary(path) as opened:
        return opened.read(1 << 16).removeprefix(BOM_UTF8).lstrip()


def whole_text(path: str | Path) -> str:
    """Return a text file's contents, UTF-8 with or without a byte order mark, less a line's end at the end.

    Args:
        path: of the file, plain or gzipped; unpacked it has the memory budget's bytes at most.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, too long, or not UTF-8, with the line; or a text in it is above 64 MiB.
    """
    raw, most = bytearray(), memory.budget()
    with open_binary(path) as opened:
        while piece := opened.read(PIECE):
            raw += piece
            if len(raw) > most or len(raw) - raw.rfind(b'"') > LONGEST_LINE:
                problem = f"a text of more than {LONGEST_LINE >> 20} MiB, or in all more than {most >> 20:,} MiB"
                raise FormatError(f"{problem}; save it as JSON lines, or set FOILS_MEMORY to more", path)
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8; {CONVERT}", path, 1 + raw.count(b"\n", 0, error.start)) from error


def whole_json(path: str | Path) -> Any:
    """Return what a JSON file says.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is not JSON, not UTF-8, or nested too deep.
    """
    text = whole_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = str(error).partition("\n")[0][:LONGEST_MESSAGE]
        line = getattr(error, "lineno", None)
        raise FormatError(f"malformed JSON ({problem}); make it again", path, line) from error


def read_sealed(path: str | Path) -> dict[str, Any]:
    """Read a JSON object that `write_sealed` wrote, without its checksum.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, has no checksum, or says something else than was written.
    """
    value = whole_json(path)
    try:
        return unsealed(value)
    except (ValueError, RecursionError) as error:  # also a number that no checksum can be taken of
        raise FormatError(f"{CHANGED}; remove it, and it will be made again", path) from error


def numbered_lines(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text without its end) for each line that is not blank.

    A byte order mark at the start is dropped, CRLF is accepted, bytes that are not UTF-8 are a complaint.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: a gzip stream that is cut off or damaged, or a line above 64 MiB.
    """
    return ((number, text) for number, text in every_line(path, complaints) if text.strip())


def every_line(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text without its end) for each line; otherwise as `numbered_lines`."""
    with open_binary(path) as opened:
        for number in count(1):
            raw = opened.readline(LONGEST_LINE + 1)
            if not raw:
                return
            if len(raw) > LONGEST_LINE:
                raise FormatError(f"a line of more than {LONGEST_LINE >> 20} MiB; cut its text", path, number)
            try:
                yield number, (raw.decode("utf-8-sig") if number == 1 else raw.decode()).rstrip("\r\n")
            except UnicodeDecodeError as error:
                complaints.add(f"not UTF-8 at byte {error.start} of the line; {CONVERT}", number)


def json_objects(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line of a JSONL file.

    Lines that are no JSON object are complaints.
    """
    for number, text in numbered_lines(path, complaints):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            where = f"{error.msg}, character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
            complaints.add(f"malformed JSON ({where}); each line must be one JSON object", number)
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            complaints.add(f"expected a JSON object, found {type(value).__name__}", number)


def text_field(value: object) -> str | None:
    """Return a JSON value as text that Arrow can hold, or None: strings without lone surrogates; integers as ids."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    text = str(value)
    return text if text.isascii() or not SURROGATE.search(text) else None


def whole_number(value: Any) -> int | None:
    """Return a value as the whole number of 32 bits that it says, whatever its type, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**31 and "_" not in str(value) else None


Fields = Mapping[str, Any]


DELIMITERS = {".csv": ",", ".tsv": "\t"}


ENDINGS = (*DELIMITERS, ".json", ".jsonl", ".ndjson", ".parquet")


SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no Unicode text holds


csv.field_size_limit(LONGEST_LINE)


@dataclass(frozen=True)
class Records:
    """The records of a table, each a dictionary of its fields.

    Attributes:
        where: the file's path, or what the table is, for complaints.
        columns: their names; of JSON those of the first records.
        read: opens the stream of (line or row from 1, fields); malformed records are added to the complaints.
        files: where it lies; none: in memory.
    """

    where: str
    columns: tuple[str, ...]
    read: Callable[[Complaints], Iterator[tuple[int, Fields]]]
    files: tuple[Path, ...] = ()

    def counted(self, kind: str, complaints: Complaints) -> Iterator[tuple[int, Fields]]:
        """Yield what `read` does, under a progress bar that says what kind of records they are."""
        with progress.task(f"reading {kind}", unit=kind) as advance:
            for each in self.read(complaints):
                advance(1)
                yield each


def listed_rows(source: Any) -> list[Fields] | None:
    """Return the rows of a list of dictionaries or of tuples, as dictionaries; None: it is no such list.

    Tuples are a query, a positive and, where they have more, negatives.
    """
    if not isinstance(source, list) or not source:
        return None
    if all(type(row) is dict for row in source):  # the splits of a data set are a subclass
        return list(source)
    if not all(isinstance(row, tuple) for row in source):
        return None
    names = ("query", "positive", *(f"negative_{at}" for at in range(1, max(map(len, source)) - 1)))
    return [dict(zip(names, row, strict=False)) for row in source]


def arrow_table(source: Any) -> pa.Table:
    """Return an Arrow table of what offers one: pyarrow's own, a DataFrame, a data set of `datasets`, a list of rows.

    Raises:
        InputError: it is none of these.
    """
    try:
        rows = listed_rows(source)
        if rows is not None:
            return pa.Table.from_pylist(rows)
        if hasattr(source, "with_format") and hasattr(source, "__len__") and not isinstance(source, Mapping):
            return source.with_format("arrow")[:]
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = " ".join(map(str, error.args))[:300]
        raise InputError(f"{type(source).__name__} is no table that Arrow can hold ({problem})") from error
    expected = "a DataFrame, an Arrow table, a data set that is no stream, a list of tuples or dictionaries"
    raise InputError(f"{type(source).__name__} is no table; expected {expected}, or a dictionary of these by split")


def table_form(path: Path) -> str:
    """Return which table a file is, as the ending of its form; empty: it is none.

    Texts may be gzipped. CSV and TSV are known by the ends of their names, Parquet and JSON by
    their first bytes, too.

    Raises:
        InputError: there is no such file.
        FormatError: it may not be read, or is damaged.
    """
    begin, ending = beginning(path), Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".parquet" or begin.startswith(b"PAR1"):
        return ".parquet"
    if ending in DELIMITERS:
        return ending
    return ".json" if ending in ENDINGS or begin.startswith((b"{", b"[")) else ""


def records_of(source: Any) -> Records:
    """Return the records of a table in memory, or of a CSV, TSV, JSON, JSONL or Parquet file, read piece by piece.

    Columns of CSV and TSV are divided by what the first line has most of: commas, semicolons, tabs
    or bars.

    Args:
        source: the path of a file, or a table.

    Raises:
        InputError: no such file, another kind of file, or no table.
        FormatError: the file is empty, or damaged.
    """
    if isinstance(source, Records):
        return source
    if isinstance(source, (str, Path)):
        path = Path(source)
        form = table_form(path)
        if form == ".parquet":
            return _parquet(path)
        if form in DELIMITERS:
            return _delimited(path, DELIMITERS[form])
        if form:
            return _json(path)
        raise InputError(f"{path}: not a table by its name; expected {', '.join(ENDINGS)}, texts also gzipped")
    rows = listed_rows(source)
    if rows is not None:
        return records_in("list", rows)
    table = arrow_table(source)
    return Records(type(source).__name__, tuple(table.column_names), lambda _: _rows(table.to_batches()))


@contextmanager
def fetching(where: str) -> Iterator[None]:
    """Turn what the libraries raise when they cannot fetch or parse a data set into an InputError."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, RuntimeError, ValueError, KeyError) as error:
        problem = f"{type(error).__name__}: {str(error).strip():.300}".partition("\n")[0]
        raise InputError(f"cannot read {where} ({problem}); check the name, the network, HF_HUB_OFFLINE") from error


def records_in(where: str, rows: Iterable[Fields], files: tuple[Path, ...] = ()) -> Records:
    """Return records of rows that a list or another library has, counted from 1; their columns are those of a list."""

    def read(_: Complaints) -> Iterator[tuple[int, Fields]]:
        with fetching(where):
            yield from enumerate(rows, start=1)

    names = dict.fromkeys(key for row in rows for key in row) if isinstance(rows, list) else ()
    return Records(where, tuple(names), read, files)


def parts_of(source: Any) -> dict[str, Records]:
    """Return the records of each split of a dictionary of tables, as a `DatasetDict` is one; of another table by "".

    Raises:
        InputError: no such file, no table, or a dictionary of something else.
    """
    if not isinstance(source, Mapping):
        return {"": records_of(source)}
    parts = {split: records_of(part) for split, part in source.items()}
    return {
        split: each if each.files else replace(each, where=f"{each.where} ({split})") for split, each in parts.items()
    }


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Fields]]:
    return enumerate((row for batch in pieces(batches) for row in batch.to_pylist()), start=1)


def _parquet(path: Path) -> Records:
    def read(_: Complaints) -> Iterator[tuple[int, Fields]]:
        # bytes of a column, at once
        with opened_parquet(path, pre_buffer=False, buffer_size=1 << 20) as opened:
            yield from _rows(opened.iter_batches(max(1, min(MOST, BYTES // bytes_of_row(opened, path)))))

    with opened_parquet(path) as opened:
        return Records(str(path), tuple(opened.schema_arrow.names), read, (path,))


def _delimited(path: Path, by_name: str) -> Records:
    complaints = Complaints(path)
    first_line, first = next(numbered_lines(path, complaints), (1, ""))
    complaints.raise_if_any()
    delimiter = max((by_name, ",", ";", "\t", "|"), key=re.sub(r'"[^"]*"', "", first).count)
    header = [name.strip() for name in next(csv.reader(first.splitlines(), delimiter=delimiter), [])]
    if not any(header) or len({*header}) < len(header):
        raise FormatError(f"the first line is {', '.join(header)!r:.150}; expected the columns' names", path, 1)

    def read(complaints: Complaints) -> Iterator[tuple[int, Fields]]:
        lines = (f"{text}\n" for _, text in every_line(path, complaints))
        reader, begin = csv.reader(lines, delimiter=delimiter, strict=True), 1
        try:
            for fields in reader:
                if begin > first_line and len(fields) == len(header):
                    yield begin, dict(zip(header, fields, strict=True))
                elif begin > first_line and fields:
                    problem = f"{len(fields)} fields, expected {len(header)}; a text that holds {delimiter!r} is quoted"
                    complaints.add(problem, begin)
                begin = reader.line_num + 1
        except csv.Error as error:
            complaints.add(f"malformed record ({error}); quote texts with quotes; end lines by a line feed", begin)

    return Records(str(path), tuple(header), read, (path,))


def _json(path: Path) -> Records:
    if beginning(path).startswith(b"["):
        listed = whole_json(path)
        if not all(isinstance(each, dict) for each in listed):
            raise FormatError("expected a list of JSON objects; something in it is none", path)
        return records_in(f"{path} (record)", listed, (path,))
    complaints = Complaints(path)
    first = islice(json_objects(path, complaints), 1_000)  # records whose keys are the columns
    names = tuple(dict.fromkeys(key for _, record in first for key in record))
    if not names:
        complaints.raise_if_any()
        raise FormatError("no JSON object with keys in it; expected a list of objects, or one on each line", path)
    return Records(str(path), names, partial(json_objects, path), (path,))
