"""Tables that people have, read record by record: CSV, TSV, JSON, JSONL, Parquet, DataFrames and data sets."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foils.data.chunks import BYTES, MOST, pieces
from foils.data.json_lists import first_character, listed_objects
from foils.data.lines import LONGEST_LINE, Complaints, every_line, json_objects, magic, numbered_lines
from foils.runtime.errors import FormatError, InputError

Fields = Mapping[str, Any]
DELIMITERS = {".csv": ",", ".tsv": "\t"}
MARKS = (",", ";", "\t", "|")  # that divide columns
ENDINGS = (*DELIMITERS, ".json", ".jsonl", ".ndjson", ".parquet")
BUFFER = 1 << 20  # bytes of a column of Parquet that are read at once
FIRST = 1_000  # records of JSON whose keys are the columns
csv.field_size_limit(LONGEST_LINE)
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True)
class Records:
    """The records of a table, each a dictionary of its fields.

    Attributes:
        where: the file's path, or what the table is, for complaints.
        columns: their names; of JSON those of the first records.
        read: opens the stream of (line or row from 1, fields); malformed records are added to the complaints.
        files: where it lies; none: in memory.
        counted: what complaints number besides the line, where there can be several on one: records; empty: nothing.
    """

    where: str
    columns: tuple[str, ...]
    read: Callable[[Complaints], Iterator[tuple[int, Fields]]]
    files: tuple[Path, ...] = ()
    counted: str = ""


def arrow_table(given: Any) -> pa.Table:
    """Return an Arrow table of what offers one: pyarrow's own, a DataFrame, or a data set of `datasets`.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(given, pa.Table):
        return given
    try:
        table = _offered(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = " ".join(map(str, error.args))[:300]
        raise InputError(
            f"{type(given).__name__} is no table that Arrow can hold ({said}); give each column a name of its own, and "
            "values of one kind"
        ) from error
    if table is None:
        raise InputError(
            f"{type(given).__name__} is no table; expected a DataFrame, an Arrow table, or a data set that is no stream"
        )
    return table


def _offered(given: Any) -> pa.Table | None:
    if _is_data_set(given):
        return given.with_format("arrow")[:]
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    if hasattr(given, "__dataframe__") or type(given).__module__.startswith("pandas"):
        return pa.Table.from_pandas(given, preserve_index=False)
    return None


def records_of(given: Any) -> Records:
    """Return the records of a file, or of a table in memory.

    Raises:
        InputError: no such file, or no table.
    """
    if isinstance(given, Records):
        return given
    if isinstance(given, (str, Path)):
        return records_of_file(given)
    if _is_data_set(given):
        return _data_set(given)
    return records_in_memory(arrow_table(given), type(given).__name__)


def parts_of(given: Any) -> dict[str, Records]:
    """Return the records of each split of a dictionary of tables, as a `DatasetDict` is one; of another table by "".

    Raises:
        InputError: no such file, no table, or a dictionary of something else.
    """
    if not isinstance(given, Mapping):
        return {"": records_of(given)}
    if not given or any(isinstance(part, (list, tuple)) for part in given.values()):
        raise InputError(
            f"{type(given).__name__} of {', '.join(map(str, given)) or 'nothing'}; expected split -> table. Make "
            "columns of lists a table, as pyarrow.table(…) or pandas.DataFrame(…) do"
        )
    parts = {split: records_of(part) for split, part in given.items()}
    return {
        split: each if each.files else replace(each, where=f"{each.where} ({split})") for split, each in parts.items()
    }


def is_data_set_of_splits(given: Any) -> bool:
    """Tell whether this is a `DatasetDict`: one data set, and no dictionary of several."""
    return isinstance(given, Mapping) and hasattr(given, "with_format")


def _is_data_set(given: Any) -> bool:
    return hasattr(given, "with_format") and hasattr(given, "__len__") and not isinstance(given, Mapping)


def _data_set(given: Any) -> Records:
    """The records of a data set of `datasets`, which may lie on the disk, with its rows chosen or in another order."""

    def read(_: Complaints) -> Iterator[tuple[int, Fields]]:
        return _rows(batch for table in given.with_format("arrow").iter(MOST) for batch in table.to_batches())

    return Records(type(given).__name__, tuple(given.column_names), read)


def records_in_memory(table: pa.Table, where: str) -> Records:
    """Return the records of an Arrow table."""
    return Records(where, tuple(table.column_names), lambda _: _rows(table.to_batches()))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Fields]]:
    return enumerate((row for batch in pieces(batches) for row in batch.to_pylist()), start=1)


def records_of_file(path: str | Path) -> Records:
    """Return the records of a CSV, TSV, JSON, JSONL or Parquet file, read piece by piece.

    Texts may be gzipped. Parquet is told by its first bytes, the others by the ends of their names. Columns of CSV and
    TSV are divided by what the first line has most of: commas, semicolons, tabs or bars.

    Args:
        path: of the file.

    Raises:
        InputError: no such file, or another kind.
        FormatError: it is empty, or damaged.
    """
    path = Path(path)
    if magic(path, 4) == b"PAR1":
        return _parquet(path)
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".parquet":
        raise FormatError("not Parquet, by its first bytes; name the file by what it is, or make it again", path)
    if ending in DELIMITERS:
        return _delimited(path, _mark(path, DELIMITERS[ending]))
    if ending in ENDINGS:
        return _json(path)
    raise InputError(f"{path}: not a table by its name; expected {', '.join(ENDINGS)}, texts also gzipped")


def _parquet(path: Path) -> Records:
    def read(_: Complaints) -> Iterator[tuple[int, Fields]]:
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as opened:
                groups = map(opened.metadata.row_group, range(opened.num_row_groups))
                longest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
                yield from _rows(opened.iter_batches(max(1, min(MOST, int(BYTES / max(longest, 1))))))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FormatError(f"not a readable Parquet file ({error}); make it again", path) from error

    try:
        with pq.ParquetFile(path) as opened:
            names = tuple(opened.schema_arrow.names)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"not a readable Parquet file ({error}); make it again", path) from error
    return Records(str(path), names, read, (path,))


def _delimited(path: Path, delimiter: str) -> Records:
    def rows(complaints: Complaints) -> Iterator[tuple[int, list[str]]]:
        line = 0

        def lines() -> Iterator[str]:
            nonlocal line
            for number, text in every_line(path, complaints):
                line = number
                yield f"{text}\n"

        reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        while True:
            begin = line + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                said = f"malformed record ({error}); a text with quotes in it is quoted, each quote twice"
                if "new-line" in str(error):
                    said = "a carriage return that ends no line; quote the text, or end lines with a line feed"
                complaints.add(said, begin)
                complaints.settle()
            if fields is None:
                return
            if fields:
                yield begin, fields

    def read(complaints: Complaints) -> Iterator[tuple[int, Fields]]:
        stream = rows(complaints)
        next(stream, None)
        for line, fields in stream:
            if len(fields) == len(header):
                yield line, dict(zip(header, fields, strict=True))
            else:
                complaints.add(
                    f"{len(fields)} fields, expected {len(header)} as in the header; a text that holds "
                    f"{delimiter!r} is quoted",
                    line,
                )

    complaints = Complaints(path)
    header = [name.strip() for name in next(rows(complaints), (0, []))[1]]
    complaints.settle()
    if not any(header):
        raise FormatError("the file or its first line is empty; expected the columns' names", path, 1)
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise FormatError(
            f"column {', '.join(repeated)} is there more than once; give each column its own name", path, 1
        )
    return Records(str(path), tuple(header), read, (path,))


def _mark(path: Path, by_name: str) -> str:
    """What divides the columns: what the first line has most of outside quotes, or what the name says."""
    _, header = next(every_line(path, Complaints(path)), (0, ""))
    unquoted = _QUOTED.sub("", header)
    return max((by_name, *MARKS), key=unquoted.count)


def _json(path: Path) -> Records:
    begin = first_character(path)
    if not begin:
        raise FormatError("the file is empty; expected a JSON object on each line, or one list of objects", path)
    read = listed_objects if begin == "[" else json_objects
    complaints = Complaints(path)
    if begin == "{" and next(numbered_lines(path, complaints))[1].strip() == "{":
        raise FormatError(
            "one JSON object over several lines; expected a list of objects, or one object on each line", path, 1
        )
    names = _keys(record for _, record in read(path, complaints))
    if not names:
        complaints.settle()
        raise FormatError("no JSON object with keys in it; expected a list of objects, one at least", path)
    return Records(str(path), names, partial(read, path), (path,), "record" if begin == "[" else "")


def _keys(records: Iterable[Fields]) -> tuple[str, ...]:
    """The keys of the first records: what a record does not have, another may."""
    return tuple(dict.fromkeys(key for record in islice(records, FIRST) for key in record))
