"""Arrow tables of texts worked on piece by piece, so that no more than a few megabytes of them are in memory at once.

Tables that are mapped from a file cost memory only where they are copied. Arrow copies all chunks of a column to take
rows of it, and all of a slice to make Python's texts of it; here both are bounded by bytes, not by rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
