"""Files and tables that nobody should make, and many do: each is read as it is, or refused with what to do about it."""

from __future__ import annotations

import bz2
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foils
from foils.runtime.errors import FormatError, InputError

HEADER = "query,positive\n"
UTF8 = "UTF-16 or UTF-32, by its first bytes; convert the file to UTF-8"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "utf-16 without a mark": ("x.csv", (HEADER + "a,b\n").encode("utf-16-le"), f"x.csv:1: {UTF8}"),
    "utf-32": ("x.csv", (HEADER + "a,b\n").encode("utf-32"), f"x.csv:1: {UTF8}"),
    "utf-16 JSON": ("x.json", '[{"query":"a"}]'.encode("utf-16"), f"x.json:1: {UTF8}"),
    "latin-1 JSON": ("x.json", '[\n{"query":"\xe9"}]'.encode("latin-1"), "x.json:2: not UTF-8; convert the file"),
    "carriage returns": ("x.csv", "query,positive\ra,b\r", "x.csv:1: a carriage return that"),
    "blank first line": ("x.csv", " \n" + HEADER + "a,b\n", "its first line is empty; expected the columns' names"),
    "no header": ("x.csv", "who?,me\n", "'who[?]', 'me' [(]of CSV and TSV the first line names them[)]"),
    "invisible text": ("x.csv", HEADER + "\u200b\u200d,b\n", "x.csv:2: the query .* is empty; expected a text"),
    "columns of lists": ("x.json", '{"query": ["a", "b"]}', "x.json: no column is known as positive"),
    "a list for a query": ("x.json", '{"query": ["a"], "positive": "b"}', "query[)] is list .'a'.; expected a text"),
    "an object over lines": ("x.json", '{\n "query": "a"\n}', "x.json:1: one JSON object over several lines; expected"),
    "nested records": ("x.json", '[{"pair": {"query": "a"}}]', "the columns are 'pair'"),
    "lists for records": ("x.jsonl", '["a", "b"]\n["c", "d"]\n', "x.jsonl:1: expected a list of JSON .*, found str"),
    "a cut last line": ("x.jsonl", '{"query": "a", "positive": "b"}\n{"q', "x.jsonl:2: malformed JSON .* character 2"),
    "another dictionary": ("x.jsonl", '{"query": "a", "positive": {"content": "b"}}', "is dict {'content': 'b'}"),
    "half a surrogate": ("x.jsonl", '{"query": "\\ud800", "positive": "b"}', ":1: the query .* is no valid Unicode"),
    "an id with a fraction": ("x.jsonl", '{"qid": 1.5, "query": "a", "positive": "b"}', "query_id .* is float 1.5"),
    "a truth for an id": ("x.jsonl", '{"qid": true, "query": "a", "positive": "b"}', "query_id .* is bool True"),
    "no Parquet": ("x.parquet", HEADER + "a,b\n", "x.parquet: not Parquet, by its first bytes; name"),
    "bzip2": ("x.csv", bz2.compress(b"query"), "x.csv: bzip2 by its first bytes, .* gzipped; unpack"),
    "zstd": ("x.csv", pa.compress(b"query" * 9, codec="zstd", asbytes=True), "x.csv: zstd by its first bytes"),
    "a workbook": ("x.csv", b"PK\x03\x04rest", "x.csv: a zip archive or a workbook of Excel.*save it as CSV in UTF-8"),
    "a split that is a path": ("x.csv", "query,positive,split\na,b,../up\n", "a split called '../up'; expected"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "message"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_refused(tmp_path: Path, name: str, data: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(InputError, match=message):
        foils.load(path)


READ: dict[str, tuple[str, str | bytes, list[str]]] = {
    "windows line ends and a mark": ("x.csv", b"\xef\xbb\xbfquery,positive\r\na,b\r\n", ["a"]),
    "an index and blanks": ("x.csv", ", Query , Positive \n0,a,b\n", ["a"]),
    "an invisible mark in a name": ("x.csv", "\u200bquery,positive\na,b\n", ["a"]),
    "right to left": ("x.csv", HEADER + "\u05de\u05d4,\u202eb\n", ["\u05de\u05d4"]),
    "lines in a text": ("x.csv", HEADER + '"a\n\nb",c\n', ["a\n\nb"]),
    "large whole ids": ("x.csv", f"qid,{HEADER}-3,a,b\n{10**30},c,d\n", ["a", "c"]),
    "one object": ("x.json", '{"query": "a", "positive": {"title": "t", "text": "b"}}', ["a"]),
}


@pytest.mark.parametrize(("name", "data", "queries"), READ.values(), ids=READ)
def test_files_that_are_read(tmp_path: Path, name: str, data: str | bytes, queries: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    assert foils.load(path).queries["text"].to_pylist() == queries


def test_kinds_of_parquet_columns(tmp_path: Path) -> None:
    texts = pa.array(["a", "b", "a"])
    for kind in (texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())):
        pq.write_table(pa.table({"query": kind, "positive": ["x", "y", "z"]}), tmp_path / "x.parquet")
        assert foils.load(tmp_path / "x.parquet").queries["text"].to_pylist() == ["a", "b"]
    pq.write_table(pa.table({"query": pa.array([b"a"]), "positive": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match=r"x.parquet:1: the query \(query\) is bytes b'a'; expected a text"):
        foils.load(tmp_path / "x.parquet")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "away.csv").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in {
        "folder": "is a folder, not a file",
        "loop": "is a link that leads to no file",
        "away": "is a link that leads to no file",
        "pipe": "is a pipe or a device; write it to a file first",
    }.items():
        with pytest.raises(InputError, match=message):
            foils.load(tmp_path / f"{name}.csv")
    for given, message in {"-": "more than once", "/dev/null": "is a pipe or a device"}.items():
        with pytest.raises(InputError, match=message):
            foils.load(given)


def pandas(*columns: Any, names: list[Any]) -> Any:
    made = pytest.importorskip("pandas").DataFrame(list(zip(*columns, strict=True)))
    made.columns = names
    return made


PAIRS = {"query": ["a", "b"], "positive": ["x", "y"]}
TABLES: dict[str, tuple[Callable[[], Any], str]] = {
    "mixed": (lambda: pandas(["a", 2], ["x", "y"], names=["query", "positive"]), "DataFrame is no table that"),
    "names twice": (lambda: pandas(["a"], ["b"], names=["query", "query"]), "DataFrame is no .*Duplicate column"),
    "fractions": (lambda: pandas([1.5], ["x"], names=["query", "positive"]), "DataFrame:1: the query .* is float 1.5"),
    "missing": (lambda: pandas([None], ["x"], names=["query", "positive"]), "DataFrame:1: the query .* is missing"),
    "numbers for names": (lambda: pandas(["a"], ["x"], names=[0, 1]), "the columns are '0', '1'"),
    "columns of lists": (lambda: PAIRS, "dict of query, positive; expected split -> table. Make columns of lists"),
    "nothing": (lambda: None, "None is no collection; expected a file, a folder, a table or a name"),
    "an empty dictionary": (dict, "dict of nothing; expected split -> table"),
    "an empty split": (
        lambda: {"train": pa.table(PAIRS), "test": pa.table(PAIRS).slice(2)},
        r"Table \(test\): no pairs in this split; leave it out",
    ),
    "other columns in a split": (
        lambda: {"train": pa.table(PAIRS), "test": pa.table({"q": ["a"]})},
        r"Table \(test\): no column is known as query or positive",
    ),
    "a query in two splits": (
        lambda: {"train": pa.table(PAIRS), "test": pa.table(PAIRS)},
        r"Table \(test\):1: the query 'a' is in train and in test; give it one split",
    ),
    "a path for a split": (
        lambda: {"train": pa.table(PAIRS), "a/b": pa.table({"query": ["c"], "positive": ["z"]})},
        "a split called 'a/b'; expected letters",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "message"), TABLES.values(), ids=TABLES)
def test_tables_that_are_refused(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        foils.load(made())


def test_tables_that_are_read() -> None:
    polars, datasets = pytest.importorskip("polars"), pytest.importorskip("datasets")
    frame = polars.DataFrame({"query": polars.Series(PAIRS["query"], dtype=polars.Categorical), "positive": ["x", "y"]})
    chosen = datasets.Dataset.from_dict(PAIRS).select([1, 0]).with_format("torch")
    assert foils.load(frame).queries["text"].to_pylist() == ["a", "b"]
    assert foils.load(chosen).queries["text"].to_pylist() == ["b", "a"]
    upper = {"Train": pa.table(PAIRS), "VALIDATION": pa.table({"query": ["c"], "positive": ["z"]})}
    assert foils.load(upper).splits == ["train", "dev"]


def test_a_column_is_one_thing_and_shares_are_numbers() -> None:
    with pytest.raises(InputError, match="columns: positive is given twice; a column is one thing"):
        foils.load(pa.table(PAIRS), columns={"query": "positive", "positive": "positive"})
    with pytest.raises(InputError, match=r"splits nan, 0\.5, 0\.5; expected three shares that sum to 1"):
        foils.load(pa.table(PAIRS), split_shares=(float("nan"), 0.5, 0.5))


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        (("12,x\n", "13,y\n"), "There is no letter in 2 of the queries; is their column one of ids or numbers?"),
        (("caf\ufffd,x\n",), "There are control characters, or letters of a wrong encoding, in 1 of the queries"),
        (("caf\u00c3\u00a9,x\n",), "letters of a wrong encoding, in 1 of the queries"),
        (("a,b\x00\n",), "There are control characters, or letters of a wrong encoding, in 1 of the documents"),
        (("same words,same words\n",), "The positive is the query, word for word, in 1 pairs."),
    ],
)
def test_what_describe_points_out(tmp_path: Path, rows: tuple[str, ...], warning: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(HEADER + "plain,words\n" * 2 * ("same" in rows[0]) + "".join(rows), "utf-8")
    assert any(warning in each for each in foils.describe(path).warnings)
    path.write_text(HEADER + "caf\u00e9 \u0441\u044b\u0440,na\u00efve\n", "utf-8")
    assert not any("letter" in each or "word for word" in each for each in foils.describe(path).warnings)


def test_a_split_without_a_relevant_document_is_pointed_out() -> None:
    table = pa.table({"query": ["a"], "positive": ["x"], "score": [0]})
    assert "No document of train is relevant: nothing can be" in " ".join(foils.describe(table).warnings)


def test_records_of_a_list_on_one_line_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"query": "a", "positive": "b"}, {"query": "c", "positive": ""}]))
    with pytest.raises(FormatError, match=r"x.json:1: record 2: the positive \(positive\) is empty"):
        foils.load(path)
