"""Files read line by line and in chunks: ends, sizes, what is wrong and where."""

import gzip
import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data import tables
from foils.data.collection import DOCUMENTS, QRELS
from foils.data.records import Complaints, json_objects, numbered_lines, text_field, whole_json, whole_text
from foils.data.tables import batches_of, pieces, take, update_digest
from foils.runtime.errors import FormatError, InputError


def lines(path: Path) -> list[tuple[int, str]]:
    complaints = Complaints(path)
    found = list(numbered_lines(path, complaints))
    complaints.raise_if_any()
    return found


def objects(path: Path) -> list[tuple[int, dict[str, object]]]:
    complaints = Complaints(path)
    found = list(json_objects(path, complaints))
    complaints.raise_if_any()
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\r\nb\r\n", [(1, "a"), (2, "b")]),
        (b"\n  \na\n\n", [(3, "a")]),
        (b"a\n\xef\xbb\xbfb\n", [(1, "a"), (2, "\ufeffb")]),
        ("\u00fc\u2028x\n".encode(), [(1, "\u00fc\u2028x")]),
    ],
)
def test_lines(tmp_path, data, expected, packed):
    path = tmp_path / "no-ending-that-tells"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert lines(path) == expected


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\ncaf\xe9\nfine\n\xff\n")
    with pytest.raises(FormatError) as caught:
        lines(path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(
        f"{path}:2: not UTF-8 at byte 3 of the line; expected text in UTF-8, plain or gzipped; conv"
    )
    assert second.startswith(f"{path}:4: not UTF-8 at byte 0 of the line; ")
    assert (caught.value.path, caught.value.line) == (path, 2)


def test_a_gzip_file_that_is_damaged(tmp_path):
    path = tmp_path / "a.gz"
    whole = bytearray(gzip.compress(b"a\n" * 100))
    whole[-6] ^= 1  # in the checksum
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="cannot be read"):
        lines(path)
    path.write_bytes(b"\x1f\x8bx")
    with pytest.raises(FormatError, match=r"a\.gz: cannot be read"):
        lines(path)
    path.write_bytes(gzip.compress(b"a\n") + b"after its end")
    with pytest.raises(FormatError, match=r"a\.gz: cannot be read"):
        lines(path)


def test_a_line_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr("foils.data.records.LONGEST_LINE", 10)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"123456789\n1234567890"))
    assert lines(path) == [(1, "123456789"), (2, "1234567890")]
    path.write_bytes(gzip.compress(b"a\n" + bytes(1000)))
    with pytest.raises(FormatError, match=r"a\.gz:2: a line of more than 0 MiB"):
        lines(path)


def test_a_whole_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n\xc3\xbc\n")
    assert whole_text(path) == "one\n\n\u00fc"
    path.write_bytes(b"one\n\xff")
    with pytest.raises(FormatError, match=r"a\.txt:2: not UTF-8"):
        whole_text(path)


def test_several_complaints_come_in_one_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": \n[1]\n"x"\nnull\n5\n{}}\n')
    with pytest.raises(FormatError) as caught:
        objects(path)
    first, *others = str(caught.value).splitlines()
    assert first.startswith(f"{path}:2: malformed JSON (Expecting value")
    assert others == [
        f"{path}:3: expected a JSON object, found list",
        f"{path}:4: expected a JSON object, found str",
        f"{path}:5: expected a JSON object, found NoneType",
        f"{path}:6: expected a JSON object, found int",
        "(and 1 more)",
    ]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a": ' + "1" * 5_000 + "}"])
def test_json_that_is_too_much(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{{}}\n{line}\n")
    with pytest.raises(FormatError, match=r"a\.jsonl:2: malformed JSON"):
        objects(path)


def test_whole_json_tells_a_file_that_is_not_there_from_one_that_is_no_json(tmp_path):
    for path, message in ((tmp_path / "none", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=message) as caught:
            whole_json(path)
        assert not isinstance(caught.value, FormatError)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), ("", ""), (-1, "-1"), (True, None), (1.5, None), (None, None), ("\ud83d", None)],
)
def test_text_fields(value, text):
    assert text_field(value) == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"))))
def test_what_is_written_is_read(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    assert lines(path) == [(number, text) for number, text in enumerate(texts, 1) if text.strip()]


TEXTS = st.lists(st.text(max_size=8), max_size=30)
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


def chunked(values: list[str], cuts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
    ends = sorted({0, len(values), *(cut % (len(values) + 1) for cut in cuts)})
    parts = [values[a:b] for a, b in pairwise(ends)]
    return pa.chunked_array([pa.array(part, pa.string()).cast(kind) for part in parts], kind)


@given(TEXTS.filter(bool), st.lists(st.integers(0, 30)), st.data())
def test_rows_are_those_that_arrow_takes(values, cuts, data):
    column = chunked(values, cuts, pa.large_string())
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))), np.int64)
    assert take(column, rows).to_pylist() == [values[row] for row in rows]
    assert take(column.combine_chunks(), rows).to_pylist() == [values[row] for row in rows]
    for row in (-1, len(values)):
        with pytest.raises(IndexError):
            take(column, np.array([0, row]))


def test_taking_rows_copies_these_alone():
    column = pa.chunked_array([pa.array([f"{i}" * 1_000 for i in range(100)], pa.large_string())] * 20)
    before = pa.total_allocated_bytes()
    taken = take(column, np.array([3, 1_999]))
    assert pa.total_allocated_bytes() - before < 20_000
    assert [text[:2] for text in taken.to_pylist()] == ["33", "99"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pieces_are_bounded_by_bytes_and_hold_every_row(monkeypatch, kind):
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
def test_stored_batches_are_bounded(monkeypatch, name):
    monkeypatch.setattr(tables, name, 10)
    rows = [(str(i), "", "text" * (i % 3)) for i in range(50)]
    batches = list(batches_of(rows, DOCUMENTS))
    assert pa.Table.from_batches(batches).to_pylist() == [dict(zip(DOCUMENTS.names, row, strict=True)) for row in rows]
    size: Callable[[pa.RecordBatch], int] = len if name == "BATCH" else lambda b: sum(map(len, b["text"].to_pylist()))
    assert all(size(batch) <= 10 or len(batch) == 1 for batch in batches)
    assert len(batches) < 50


def test_a_digest_is_the_same_however_the_table_is_cut(monkeypatch):
    def digest(table: pa.Table) -> str:
        hasher = hashlib.blake2b(digest_size=16)
        update_digest(table, hasher)
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
