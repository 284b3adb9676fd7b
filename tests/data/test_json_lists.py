"""JSON files that are one list: read object by object as `json` reads them whole, and what is wrong in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foils.data import records
from foils.data.records import Complaints, first_character, listed_objects
from foils.runtime.errors import FormatError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), VALUES, max_size=3), max_size=6)


def read(path: Path) -> list[tuple[int, dict[str, Any]]]:
    complaints = Complaints(path)
    records = list(listed_objects(path, complaints))
    complaints.settle()
    return records


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OBJECTS, st.sampled_from([None, 0, 2]), st.booleans())
def test_any_list_is_read_as_json_reads_it(
    tmp_path: Path, objects: list[dict[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(objects, indent=indent, ensure_ascii=ascii_only), "utf-8")
    assert [record for _, record in read(path)] == objects
    assert first_character(path) == "["


def test_records_know_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'\xef\xbb\xbf\r\n[\r\n {"a": 1},\r\n {"a":\r\n 2}, {"a": 3}\r\n]\r\n')
    assert read(path) == [(3, {"a": 1}), (4, {"a": 2}), (5, {"a": 3})]
    with gzip.open(tmp_path / "list.json.gz", "wb") as file:
        file.write(path.read_bytes())
    assert read(tmp_path / "list.json.gz") == read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'[\n{"a": 1},\n{"a": 2\n', r"json:3: malformed JSON \(Expecting ',' delimiter\)"),
        (b'[{"a": 1},\n{"a": "2}]', r"json:2: malformed JSON \(Unterminated string"),
        (b'[{"a": 1}\n{"a": 2}]', r"json:2: malformed JSON: found '{\"a\": 2}]', expected , or ]"),
        (b'[{"a": 1},]', r"json:1: malformed JSON \(Expecting value\)"),
        (b'[{"a": 1}', "json:1: malformed JSON: found '', expected , or ]"),
        (b'[{"a": 1}]\n{"a": 2}', r"json:1: malformed JSON: found .*, expected , or \] and nothing after it"),
        (b'[{"a": 1, "a": 2}]', "json:1: malformed JSON .*'a' is there more than once"),
        (
            b'[\n1, "two",\n{"a": 2}]',
            r"json:2: expected a list of JSON objects, found int in it\n.*found str",
        ),
        (b'[{"a": "\xff"}]', "json:1: not UTF-8"),
        ("[{}]".encode("utf-16"), "json:1: UTF-16"),
        (b"[" * 100_000, r"json:1: malformed JSON"),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(text)
    with pytest.raises(FormatError, match=message):
        read(path)


def test_a_list_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"a": "x" * 5_000}, {"a": "y"}]))
    assert [len(record["a"]) for _, record in read(path)] == [5_000, 1]
    monkeypatch.setattr(records, "LONGEST_TEXT", 1_000)
    with pytest.raises(FormatError, match="more than 0 MiB"):
        read(path)
