"""Arrow tables: typed, worked on piece by piece, and written as Parquet that says where it comes from.

A table is written with its provenance in the schema's metadata: stage, settings, seed, model fingerprint, versions,
digests of the inputs. No time and no path goes in, so the same work gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import existing_file, write_whole

BYTES = 1 << 24  # of texts that become Python's at once


MOST = 1_000  # rows that become Python's at once, however short


BATCH = 20_000  # rows of an Arrow batch that is stored


CHARACTERS = 1 << 22  # of an Arrow batch that is stored


DIGESTED = 20_000  # rows of which a digest takes in one column after the other


def pieces(batches: Iterable[pa.RecordBatch], *, most: int = MOST) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in order, cut into batches of at most 16 MiB, or of one row.

    Args:
        batches: of any size.
        most: rows of a batch.
    """
    for batch in batches:
        for start in range(0, len(batch), most):
            yield from _halves(_own_bytes(batch.slice(start, most)))


def _halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BYTES or len(batch) == 1:
        yield batch
        return
    half = len(batch) // 2
    yield from _halves(batch.slice(0, half))
    yield from _halves(batch.slice(half))


def _own_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with values of its own where it has views or keys, whose size would be that of all they stand for."""
    for at, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type) or pa.types.is_string_view(column.type):
            batch = batch.set_column(at, batch.schema.names[at], pa.array(column.to_pylist()))
    return batch


def take(column: pa.Array | pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values of a column at these rows, (n,), copying these alone.

    Raises:
        IndexError: a row that there is not (`pyarrow.ArrowIndexError`).
    """
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    if column.num_chunks == 1:
        return take(column.chunk(0), rows)
    if not len(rows):
        return pa.array([], column.type)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    ends = np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64)
    of = np.searchsorted(ends, rows, side="right")
    if not len(ends) or rows.min() < 0 or rows.max() >= ends[-1]:
        raise pa.ArrowIndexError(f"rows {rows.min()} to {rows.max()} of a column of {len(column)}")
    order = np.argsort(of, kind="stable")
    used, begins = np.unique(of[order], return_index=True)
    parts = [
        chunks[at].take(pa.array(rows[chosen] - (ends[at] - len(chunks[at]))))
        for at, chosen in zip(used, np.split(order, begins[1:]), strict=True)
    ]
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(back))


def batches_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of rows whose last column, where it has texts, has `CHARACTERS` of them at most, or one row."""
    texts = pa.types.is_large_string(schema.types[-1])
    chunk: list[tuple[Any, ...]] = []
    characters = 0

    def batch() -> pa.RecordBatch:
        columns = zip(*chunk, strict=True)
        return pa.record_batch(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
        )

    for row in rows:
        size = len(row[-1]) if texts else 0
        if chunk and (len(chunk) == BATCH or characters + size > CHARACTERS):
            yield batch()
            chunk, characters = [], 0
        chunk.append(row)
        characters += size
    if chunk:
        yield batch()


def take_in(table: pa.Table, hasher: Any) -> None:
    """Take in a table: of each 20,000 rows one column after the other, however the table is cut."""
    for start in range(0, len(table), DIGESTED):
        for name in table.column_names:
            mark = b""
            for batch in pieces(table.slice(start, DIGESTED).select([name]).to_batches()):
                hasher.update(mark + "\x1f".join(map(str, batch.column(0).to_pylist())).encode())
                mark = b"\x1f"
            hasher.update(b"\x1e")


def with_types(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the table with its columns of these names in these types; other columns stay.

    Texts come from texts, dictionaries of texts or integers (never from 1.0: is it "1" or "1.0"?), numbers from
    numbers (ranks from whole ones), truth values from truth values. Nulls stay nulls.

    Raises:
        InputError: every column whose values another type cannot hold, and names that are there twice.
    """
    if repeated := [name for name, count in Counter(table.column_names).items() if count > 1]:
        raise InputError(f"column {', '.join(repeated)} is there more than once; a column has one name")
    wrong = []
    for at, field in enumerate(table.schema):
        expected = types.get(field.name, field.type)
        if field.type == expected:
            continue
        try:
            if not _holds(expected, field.type):
                raise pa.ArrowInvalid(f"{field.type} is no {expected}")
            table = table.set_column(at, field.name, table[at].cast(expected))
        except pa.ArrowException:
            wrong.append(f"column {field.name} is {field.type}, expected {expected}")
    if wrong:
        raise InputError("; ".join(wrong))
    return table


def _holds(expected: pa.DataType, given: pa.DataType) -> bool:
    """Tell whether values of the given type mean something as the expected one."""
    if kinds.is_dictionary(given):
        given = given.value_type
    if kinds.is_null(given):
        return True
    if kinds.is_string(expected) or kinds.is_large_string(expected):
        text = kinds.is_string(given) or kinds.is_large_string(given) or given == pa.string_view()
        return bool(text or kinds.is_integer(given))
    if kinds.is_boolean(expected):
        return bool(kinds.is_boolean(given))
    return bool(kinds.is_integer(given) or kinds.is_floating(given) or kinds.is_decimal(given))


Provenance = dict[str, Any]


_KEY = b"foils"


_VERSIONED = ("foils", "numpy", "pyarrow", "bm25s", "sentence-transformers", "torch")


OTHER_FORMS = (".csv", ".tsv", ".json", ".jsonl", ".trec", ".txt")
"""Endings of file names that promise something else than Parquet."""


def check_parquet_name(path: str | Path) -> None:
    """Raise an InputError where a file's name promises another form than the Parquet that is written."""
    ending = Path(str(path).lower().removesuffix(".gz")).suffix
    if ending in OTHER_FORMS:
        raise InputError(
            f"{path}: this table is written as Parquet, and the name promises {ending[1:]}; call the file "
            f"{Path(path).name.partition('.')[0]}.parquet, and write another form with foils export"
        )


def write_table(path: str | Path, table: pa.Table, provenance: Provenance) -> None:
    """Write an Arrow table as Parquet (zstd) with its provenance in the metadata, whole.

    Raises:
        InputError: the name promises another form, as x.csv does.
    """
    check_parquet_name(path)
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


def read_table(path: str | Path, required: Sequence[str] = ()) -> tuple[pa.Table, Provenance]:
    """Read a Parquet table and its provenance ({} where the file carries none).

    Args:
        path: of the file.
        required: names of columns; they are looked for before anything is unpacked, since a small file can hold many
            gigabytes of one value.

    Raises:
        InputError: there is no such file.
        FormatError: the file is not Parquet, damaged, or without a required column.
    """
    existing_file(path)
    try:
        opened = pq.ParquetFile(path, page_checksum_verification=True)
        names = opened.schema_arrow.names
        table = opened.read() if {*required} <= {*names} else None
        if table is None:
            missing = ", ".join(name for name in required if name not in names)
            raise FormatError(f"no column {missing}; a table of negatives has {', '.join(required)}", path)
        table.validate(full=True)
        provenance = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    except FormatError:
        raise
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


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
