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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from foils.data.tables import BYTES, MOST, longest_text, opened_parquet, pieces
from foils.runtime import memory, progress
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import CHANGED, existing_file, unsealed

LONGEST_MESSAGE = 500
"""Characters of one complaint; of longer ones, which quote long ids, the beginning is shown."""


PIECE = 1 << 20  # bytes that are unpacked at once


LONGEST_LINE = 1 << 26
"""Bytes of a line, unpacked: what a reader holds in memory at most, whatever a small gzip file unpacks to."""


CONVERT = "expected text in UTF-8, plain or gzipped; convert the file, or save it as Parquet"


DAMAGE = (EOFError, zlib.error, OSError)  # what reading a cut or damaged gzip file, or a bad disk, raises


class Complaints:
    """Collects what is wrong with a file and raises it all at once.

    Collecting stops at 1,000 complaints (the file is then plainly of another kind).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._found: list[tuple[int | None, str]] = []

    def add(self, message: str, line: int | None = None) -> None:
        """Note one complaint."""
        message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
        self._found.append((line, message))
        if len(self._found) >= 1000:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raise a FormatError if anything was noted: the first in full, then the next few by line."""
        if not self._found:
            return
        (line, message), *others = self._found
        if others:
            listed = [f"{self.path}:{at}: {text}" if at else text for at, text in others[:4]]
            rest = f"\n(and {len(others) - len(listed)} more)" if len(others) > len(listed) else ""
            message += "\n" + "\n".join(listed) + rest
        raise FormatError(message, self.path, line)


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file for reading bytes, unpacking gzip where the file is gzip (by its first bytes).

    Raises:
        InputError: there is no such file, or it may not be read.
    """
    return cast("IO[bytes]", gzip.open(path)) if magic(path, 2) == b"\x1f\x8b" else Path(path).open("rb")


def magic(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a file as they are, by which its kind is known.

    Raises:
        InputError: there is no such file, or it may not be read.
    """
    try:
        with existing_file(path).open("rb") as opened:
            return opened.read(size)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _unpacked(path: str | Path) -> Iterator[bytes]:
    """Yield a text file's bytes, unpacked, in pieces."""
    with open_binary(path) as opened:
        try:
            while piece := opened.read(PIECE):
                yield piece
        except DAMAGE as error:
            raise FormatError(f"damaged data ({error}); get the file again", path, 1) from error


def first_character(path: Path) -> str:
    """Return the first character of a text file that is no white space, "" where its first 64 KiB have none.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged.
    """
    return next(_unpacked(path), b"")[: 1 << 16].decode("utf-8-sig", "replace").lstrip()[:1]


def whole_text(path: str | Path) -> str:
    """Return a text file's contents, UTF-8 with or without a byte order mark, less a line's end at the end.

    Args:
        path: of the file, plain or gzipped; unpacked it has the memory budget's bytes at most.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, too long, or not UTF-8, with the line; or a text in it is above 64 MiB.
    """
    raw, most, unquoted = bytearray(), memory.budget(), 0
    for piece in _unpacked(path):
        raw += piece
        unquoted = len(piece) - piece.rfind(b'"') if b'"' in piece else unquoted + len(piece)
        if unquoted > LONGEST_LINE:
            raise FormatError(f"a text of more than {LONGEST_LINE >> 20} MiB; cut it", path)
        if len(raw) > most:
            raise FormatError(f"more than {most >> 20:,} MiB; save it as JSON lines, or set FOILS_MEMORY to more", path)
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
        number = 0
        while True:
            try:
                raw = opened.readline(LONGEST_LINE + 1)
            except DAMAGE as error:
                raise FormatError(f"damaged data ({error}); get the file again", path, number + 1) from error
            if not raw:
                return
            number += 1
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
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return text


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

    Raises:
        InputError: tuples of several lengths, or of one text.
    """
    if not isinstance(source, list) or not source:
        return None
    if all(type(row) is dict for row in source):  # the splits of a data set are a subclass
        return list(source)
    if not all(isinstance(row, tuple) and all(each is None or isinstance(each, str) for each in row) for row in source):
        return None
    widths = {len(row) for row in source}
    if len(widths) > 1 or min(widths) < 2:
        raise InputError(f"tuples of {sorted(widths)} texts; expected (query, positive, negatives …), all as long")
    names = ("query", "positive", *(f"negative_{at}" for at in range(1, min(widths) - 1)))
    return [dict(zip(names, row, strict=True)) for row in source]


def arrow_table(source: Any) -> pa.Table:
    """Return an Arrow table of what offers one: pyarrow's own, a DataFrame, a data set of `datasets`, a list of rows.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(source, pa.Table):
        return source
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

    Texts may be gzipped. Parquet is told by its first bytes, CSV and TSV by the ends of their
    names, JSON by either.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, or called Parquet and is none.
    """
    if magic(path, 4) == b"PAR1":
        return ".parquet"
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".parquet":
        raise FormatError("not Parquet, by its first bytes; name the file by what it is, or make it again", path)
    if ending in DELIMITERS:
        return ending
    return ".json" if ending in ENDINGS or first_character(path) in ("{", "[") else ""


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


def records_in(where: str, rows: Iterable[Fields], files: tuple[Path, ...] = ()) -> Records:
    """Return records that are there already, counted from 1; their columns are those of a list."""
    names = dict.fromkeys(key for row in rows for key in row) if isinstance(rows, list) else ()
    return Records(where, tuple(names), lambda _: enumerate(rows, start=1), files)


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
            groups = map(opened.metadata.row_group, range(opened.num_row_groups))
            average = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
            longest = max(average, longest_text(opened, path), 1)
            yield from _rows(opened.iter_batches(max(1, min(MOST, int(BYTES / longest)))))

    with opened_parquet(path) as opened:
        return Records(str(path), tuple(opened.schema_arrow.names), read, (path,))


def _delimited(path: Path, by_name: str) -> Records:
    _, first = next(every_line(path, Complaints(path)), (0, ""))
    delimiter = max((by_name, ",", ";", "\t", "|"), key=re.sub(r'"[^"]*"', "", first).count)

    def rows(complaints: Complaints) -> Iterator[tuple[int, list[str]]]:
        lines = (f"{text}\n" for _, text in every_line(path, complaints))
        reader, begin = csv.reader(lines, delimiter=delimiter, strict=True), 1
        try:
            for fields in reader:
                if fields:
                    yield begin, fields
                begin = reader.line_num + 1
        except csv.Error as error:
            complaints.add(f"malformed record ({error}); quote texts with quotes; end lines by a line feed", begin)

    def read(complaints: Complaints) -> Iterator[tuple[int, Fields]]:
        for line, fields in islice(rows(complaints), 1, None):
            if len(fields) == len(header):
                yield line, dict(zip(header, fields, strict=True))
            else:
                problem = f"{len(fields)} fields, expected {len(header)}; a text that holds {delimiter!r} is quoted"
                complaints.add(problem, line)

    complaints = Complaints(path)
    header = [name.strip() for name in next(rows(complaints), (0, []))[1]]
    complaints.raise_if_any()
    if not any(header) or len({*header}) < len(header):
        raise FormatError(f"the first line is {', '.join(header)!r:.150}; expected the columns' names", path, 1)
    return Records(str(path), tuple(header), read, (path,))


def _json(path: Path) -> Records:
    if first_character(path) == "[":
        listed = whole_json(path)
        wrong = {type(each).__name__ for each in listed} - {"dict"}
        if wrong:
            raise FormatError(f"expected a list of JSON objects, found {', '.join(sorted(wrong))} in it", path)
        return records_in(f"{path} (record)", listed, (path,))
    complaints = Complaints(path)
    first = islice(json_objects(path, complaints), 1_000)  # records whose keys are the columns
    names = tuple(dict.fromkeys(key for _, record in first for key in record))
    if not names:
        complaints.raise_if_any()
        raise FormatError("no JSON object with keys in it; expected a list of objects, or one on each line", path)
    return Records(str(path), names, partial(json_objects, path), (path,))
