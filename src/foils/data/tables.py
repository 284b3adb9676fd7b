"""Arrow tables: typed, worked on piece by piece, and written as Parquet that says where it comes from.

A table is written with its provenance in the schema's metadata: stage, settings, seed, model
fingerprint, versions, digests of the inputs. No time and no path goes in, so the same work gives
the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from foils.runtime import memory
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import existing_file, write_whole

BYTES = 1 << 24  # of texts that become Python's at once


MOST = 1_000  # rows that become Python's at once, however short


BATCH = 20_000  # rows of an Arrow batch that is stored


CHARACTERS = 1 << 22  # of an Arrow batch that is stored


MOST_UNPACKED = 1_000  # times a Parquet file's size; ordinary ones have up to a hundred


DIGESTED = 20_000  # rows of which a digest takes in one column after the other


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in order, in batches of at most 1,000 rows and 16 MiB, or of one row."""
    for batch in batches:
        piece = batch
        for at, column in enumerate(batch.columns if len(batch) <= MOST else ()):
            # views and keys have no values of their own, and their size would be that of all they stand for
            if kinds.is_dictionary(column.type) or kinds.is_string_view(column.type):
                piece = piece.set_column(at, piece.schema.names[at], pa.array(column.to_pylist()))
        if len(piece) > MOST or (piece.nbytes > BYTES and len(piece) > 1):
            yield from pieces((batch.slice(0, len(batch) // 2), batch.slice(len(batch) // 2)))
        elif len(piece):
            yield piece


def take(column: pa.Array | pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values of a column at these rows, (n,), copying these alone.

    Raises:
        IndexError: a row that there is not (`pyarrow.ArrowIndexError`).
    """
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    if column.num_chunks == 1 or not len(rows):
        return take(column.chunk(0), rows) if len(rows) else pa.array([], column.type)
    starts = np.cumsum([0, *map(len, column.chunks)])
    chunk_of = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(chunk_of, kind="stable")
    used, begins = np.unique(chunk_of[order], return_index=True)
    parts = [
        column.chunk(at).take(pa.array(rows[chosen] - starts[at]))
        for at, chosen in zip(used.tolist(), np.split(order, begins[1:]), strict=True)
    ]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order)))


def codes(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return (n,) a number for each value of a column, from 0 on as values first come; −1 for null."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(pc.fill_null(whole.dictionary_encode().indices, -1), np.int64)


def column_or_nulls(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of a table; where it has none, one of nulls."""
    return table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(table), kind)])


def batches_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of rows whose last column, where it has texts, has `CHARACTERS` of them at most, or one row."""
    texts, width = pa.types.is_large_string(schema.types[-1]), len(schema)
    values: list[Any] = []  # of all columns in turns: a list of rows would keep the garbage collector busy
    characters = 0

    def batch() -> pa.RecordBatch:
        columns = [pa.array(values[at::width], kind) for at, kind in enumerate(schema.types)]
        return pa.record_batch(columns, schema=schema)

    for row in rows:
        size = len(row[-1]) if texts else 0
        if values and (len(values) == BATCH * width or characters + size > CHARACTERS):
            yield batch()
            values, characters = [], 0
        values += row
        characters += size
    if values:
        yield batch()


class ArrowTable(Protocol):
    """A table of another library, as of pandas (2.2 and newer), polars, pyarrow and DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return its columns as an Arrow stream."""


class DataSet(Protocol):
    """A data set of the library `datasets`, or the splits of one."""

    @property
    def column_names(self) -> Any:
        """Its columns, or those of each split."""


def update_digest(table: pa.Table, hasher: Any) -> None:
    """Update a digest by a table: of each 20,000 rows one column after the other, however it is cut."""
    for start in range(0, len(table), DIGESTED):
        for name in table.column_names:
            mark = b""
            for batch in pieces(table.slice(start, DIGESTED).select([name]).to_batches()):
                hasher.update(mark + "\x1f".join(map(str, batch.column(0).to_pylist())).encode())
                mark = b"\x1f"
            hasher.update(b"\x1e")


def with_types(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the table with its columns of these names in these types; other columns stay.

    Texts come from texts, dictionaries of texts or integers (never from 1.0: is it "1" or "1.0"?),
    numbers from numbers (ranks from whole ones), truth values from truth values. Nulls stay nulls.

    Raises:
        InputError: every column whose values another type cannot hold, and names that are there twice.
    """
    repeated = [name for name, count in Counter(table.column_names).items() if count > 1]
    if repeated:
        raise InputError(f"column {', '.join(repeated)} is there more than once; a column has one name")
    wrong = []
    for at, field in enumerate(table.schema):
        expected = types.get(field.name, field.type)
        if field.type == expected:
            continue
        values = field.type.value_type if kinds.is_dictionary(field.type) else field.type
        fits = _kind(values) in (_kind(expected), "null") or (expected in TEXTS and kinds.is_integer(values))
        try:
            if not fits:
                raise pa.ArrowInvalid(f"{values} is no {expected}")
            table = table.set_column(at, field.name, table[at].cast(expected))
        except pa.ArrowException:
            wrong.append(f"column {field.name} is {field.type}, expected {expected}")
    if wrong:
        raise InputError("; ".join(wrong))
    return table


TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def _kind(kind: pa.DataType) -> str:
    if kind in TEXTS:
        return "text"
    return "number" if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) else str(kind)


Provenance = dict[str, Any]


_KEY = b"foils"


_VERSIONED = ("foils", "numpy", "pyarrow", "bm25s", "sentence-transformers", "torch")


def write_table(path: str | Path, table: pa.Table, provenance: Provenance) -> None:
    """Write an Arrow table as Parquet (zstd) with its provenance in the metadata, whole."""
    with write_whole(path) as aside:
        aside.write_bytes(table_bytes(table, provenance))


def table_bytes(table: pa.Table, provenance: Provenance) -> bytes:
    """Return the bytes of the file that `write_table` writes."""
    table = table.replace_schema_metadata({_KEY: json.dumps(provenance, sort_keys=True).encode()})
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd", write_page_checksum=True)
    return bytes(written.getvalue())


def read_table(path: str | Path) -> tuple[pa.Table, Provenance]:
    """Read a Parquet table and its provenance ({} where the file carries none).

    Raises:
        InputError: there is no such file.
        FormatError: the file is not Parquet, damaged, or stands for too much (`bytes_of_row`).
    """
    with opened_parquet(existing_file(path), page_checksum_verification=True) as opened:
        bytes_of_row(opened, Path(path))
        table = opened.read()
        table.validate(full=True)
        provenance = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    return table.replace_schema_metadata(None), provenance


def bytes_of_row(opened: pq.ParquetFile, path: Path) -> int:
    """Return the bytes of a Parquet file's rows, unpacked: of an average one, with the longest text of each dictionary.

    A text that stands for many rows lies there once, in a dictionary.

    Raises:
        FormatError: the file unpacks to more than the memory budget and a thousand times its size,
            or a row does to more than the budget.
    """
    limit, total, longest = max(memory.budget(), MOST_UNPACKED * path.stat().st_size), 0, 1.0
    texts = [column.path for column in opened.schema if column.physical_type == "BYTE_ARRAY"]
    with opened_parquet(path, read_dictionary=texts, pre_buffer=False, buffer_size=1 << 20) as keyed:
        for at in range(keyed.num_row_groups):
            group, of_group = keyed.metadata.row_group(at), 0
            for chunk in map(group.column, range(group.num_columns)):
                of_group += 8 * chunk.num_values + chunk.total_uncompressed_size
                if chunk.path_in_schema in texts and total + of_group <= limit and group.num_rows:
                    first = next(keyed.iter_batches(1, row_groups=[at], columns=[chunk.path_in_schema]))
                    of_group += chunk.num_values * _longest_key(first.column(0))
            total += of_group
            longest = max(longest, of_group / max(group.num_rows, 1))
    if total > limit or longest > memory.budget():
        problem = f"its {path.stat().st_size:,} bytes unpack to more than {limit >> 20:,} MiB"
        raise FormatError(f"{problem}; make it again, or set FOILS_MEMORY to more", path)
    return int(longest)


def _longest_key(column: Any) -> int:
    """The bytes of the longest text of a column's dictionary, which may lie in lists and records."""
    while hasattr(column, "flatten"):
        children = column.flatten()
        column = children[0] if isinstance(children, list) else children
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0) if kinds.is_dictionary(column.type) else 0


@contextmanager
def opened_parquet(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; what is wrong in it, while it is read, too, is a FormatError."""
    try:
        with pq.ParquetFile(path, **options) as opened:
            yield opened
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, RecursionError) as error:  # KeyError: a damaged schema
        problem = str(error).partition("\n")[0]
        raise FormatError(f"not a readable Parquet file ({problem}); make it again", path) from error


def provenance(
    stage: str, settings: Mapping[str, Any], *, inputs: Mapping[str, str] | None = None, **more: Any
) -> Provenance:
    """Return what a written table says of itself: stage, settings, inputs' digests, versions, `more`."""
    versions = {}
    for name in _VERSIONED:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {"stage": stage, "settings": dict(settings), "inputs": dict(inputs or {}), "versions": versions, **more}
