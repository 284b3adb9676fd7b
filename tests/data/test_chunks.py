"""Work on tables of texts piece by piece: the same rows, however the table is cut, and few bytes at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data import tables
from foils.data.collection import DOCUMENTS, QRELS
from foils.data.tables import batches_of, pieces, take, take_in

TEXTS = st.lists(st.text(max_size=8), max_size=30)
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


def chunked(values: list[str], cuts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
    ends = sorted({0, len(values), *(cut % (len(values) + 1) for cut in cuts)})
    parts = [values[a:b] for a, b in pairwise(ends)]
    return pa.chunked_array([pa.array(part, pa.string()).cast(kind) for part in parts], kind)


@given(TEXTS.filter(bool), st.lists(st.integers(0, 30)), st.data())
def test_rows_are_those_that_arrow_takes(values: list[str], cuts: list[int], data: st.DataObject) -> None:
    column = chunked(values, cuts, pa.large_string())
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))), np.int64)
    assert take(column, rows).to_pylist() == [values[row] for row in rows]
    assert take(column.combine_chunks(), rows).to_pylist() == [values[row] for row in rows]
    for row in (-1, len(values)):
        with pytest.raises(IndexError):
            take(column, np.array([0, row]))


def test_taking_rows_copies_these_alone() -> None:
    column = pa.chunked_array([pa.array([f"{i}" * 1_000 for i in range(100)], pa.large_string())] * 20)
    before = pa.total_allocated_bytes()
    taken = take(column, np.array([3, 1_999]))
    assert pa.total_allocated_bytes() - before < 20_000
    assert [text[:2] for text in taken.to_pylist()] == ["33", "99"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pieces_are_bounded_by_bytes_and_hold_every_row(monkeypatch: pytest.MonkeyPatch, kind: pa.DataType) -> None:
    monkeypatch.setattr(tables, "BYTES", 1_000)
    monkeypatch.setattr(tables, "MOST", 20)
    values = [f"{i} " * (1 + 40 * (i % 7 == 0)) for i in range(200)] + ["long " * 1_000]
    table = pa.table({"text": chunked(values, [3, 50], kind)})
    cut = list(pieces(table.to_batches()))
    assert [text for batch in cut for text in batch.column(0).to_pylist()] == values
    assert max(len(batch) for batch in cut) <= 20
    assert all(batch.nbytes <= 1_000 or len(batch) == 1 for batch in cut)
    assert len(cut) < len(values)


@pytest.mark.parametrize("name", ["BATCH", "CHARACTERS"])
def test_stored_batches_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(tables, name, 10)
    rows = [(str(i), "", "text" * (i % 3)) for i in range(50)]
    batches = list(batches_of(rows, DOCUMENTS))
    assert pa.Table.from_batches(batches).to_pylist() == [dict(zip(DOCUMENTS.names, row, strict=True)) for row in rows]
    size: Callable[[pa.RecordBatch], int] = len if name == "BATCH" else lambda b: sum(map(len, b["text"].to_pylist()))
    assert all(size(batch) <= 10 or len(batch) == 1 for batch in batches)
    assert len(batches) < 50


def test_a_digest_is_the_same_however_the_table_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(table: pa.Table) -> str:
        hasher = hashlib.blake2b(digest_size=16)
        take_in(table, hasher)
        return hasher.hexdigest()

    rows = [(str(i), f"d{i % 5}", i % 2) for i in range(60)]
    whole = pa.Table.from_batches(batches_of(rows, QRELS))
    first = digest(whole)
    hasher = hashlib.blake2b(digest_size=16)
    for column in zip(*rows, strict=True):
        hasher.update("\x1f".join(map(str, column)).encode() + b"\x1e")
    assert hasher.hexdigest() == first, "of each 20,000 rows one column after the other"
    monkeypatch.setattr(tables, "BYTES", 50)
    assert digest(pa.concat_tables([whole.slice(0, 7), whole.slice(7)])) == first
    assert digest(whole.slice(1)) != first
