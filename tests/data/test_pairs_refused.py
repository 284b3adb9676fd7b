"""Tables of pairs that cannot be understood: what is wrong, by line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils
from foils.runtime.errors import FormatError, InputError
from pair_files import ROWS, write_csv


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "a", "question": "b", "positive": "c"}], "columns query and question could each be the query; say"),
        (
            [{"q": "a", "p": "b"}],
            r"no column is known as query or positive; the columns are 'q', 'p' .of CSV and TSV the first line",
        ),
        ([{"query": "a", "positive": "b"}, {"query": " ", "positive": "b"}], r"csv:3: the query \(query\) is empty"),
        ([{"query": "a", "positive": ""}], r"csv:2: the positive \(positive\) is empty; expected a text"),
        ([{"query": "a", "positive": "b", "score": "0.87"}], r"csv:2: score is '0.87'; expected a whole number"),
        (
            [{"query": "a", "positive": "b", "score": "1"}, {"query": "a", "positive": "b", "score": "0"}],
            "csv:3: the pair has another relevance on line 2",
        ),
        (
            [{"qid": "1", "query": "a", "positive": "b"}, {"qid": "1", "query": "c", "positive": "d"}],
            "csv:3: the query '1' has another text before",
        ),
        (
            [{"query": "a", "positive": "b", "doc_id": "1"}, {"query": "c", "positive": "d", "doc_id": "1"}],
            "csv:3: the document '1' has another text before",
        ),
    ],
)
def test_what_is_wrong_is_told_by_line(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        foils.load(write_csv(tmp_path / "wrong.csv", rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file or its first line is empty; expected the columns"),
        (b"query,positive\n", "no pairs in it"),
        (b"query;positive\na;b;c\n", "csv:2: 3 fields, expected 2 as in the header; a text that holds ';' is quoted"),
        (b"query,positive\na,b,c\n", "csv:2: 3 fields, expected 2 as in the header; a text that holds ',' is quoted"),
        (b'query,positive\n"a,b\n', "csv:2: malformed record"),
        (b"query,positive\na,\xff\n", "csv:2: not UTF-8 at byte 2"),
        (b"query,query\na,b\n", "column query is there more than once"),
        ("\ufeffquery,positive\nä,b\n".encode("utf-16"), "csv:1: UTF-16"),
    ],
)
def test_malformed_files(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_bytes(text)
    with pytest.raises(FormatError, match=message):
        foils.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: no such file"):
        foils.load(tmp_path / "none.csv")
    (tmp_path / "pairs.txt").write_text("a")
    with pytest.raises(InputError, match=r"not a table by its name; expected .csv, .tsv, .json"):
        foils.load(tmp_path / "pairs.txt")


def test_options_of_pairs_are_refused_with_other_collections(beir_folder: Callable[..., Path]) -> None:
    folder = beir_folder()
    with pytest.raises(InputError, match=r"columns .*: no effect with .*, which is not made of pairs"):
        foils.load(folder, columns={"query": "a"})
    with pytest.raises(InputError, match="expected three shares that sum to 1"):
        foils.load(pa.Table.from_pylist(ROWS), split_shares=(0.5, 0.1, 0.1))


def test_missing_values_of_data_frames() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"query": ["a", "b"], "positive": ["x", float("nan")]})
    with pytest.raises(FormatError, match=r"DataFrame:2: the positive \(positive\) is missing; expected a text"):
        foils.load(frame)
