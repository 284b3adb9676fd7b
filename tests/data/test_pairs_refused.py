"""Pairs that are refused, each with its place; and pairs with judgements."""

import bz2
import json
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foils
from foils.runtime.errors import FormatError, InputError
from pair_files import write_csv, write_jsonl

pytestmark = pytest.mark.usefixtures("own_cache")

HEADER = "query,positive\n"


FILES: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("x.csv", "", "x.csv:1: the first line is ''; expected the columns' names"),
    "no pairs": ("x.csv", HEADER, "no pairs in it"),
    "utf-16": ("x.csv", (HEADER + "a,b\n").encode("utf-16"), "x.csv:1: not UTF-8 at byte 0 .* convert the file"),
    "latin-1": ("x.csv", HEADER.encode() + b"a,\xff\n", "x.csv:2: not UTF-8 at byte 2"),
    "latin-1 JSON": ("x.json", '[\n{"query":"\xe9"}]'.encode("latin-1"), "x.json:2: not UTF-8; expected text in UTF-8"),
    "carriage returns": ("x.csv", "query,positive\ra,b\r", "x.csv:1: malformed .* a line feed"),
    "no header": ("x.csv", "who?,me\n", ":1: no column is known as query; .* 'who[?]', 'me'; give"),
    "two queries": ("x.csv", "query,question,positive\n", "columns query and question could each be the query; say"),
    "a column twice": ("x.csv", "query,query\na,b\n", "the first line is 'query, query'; expected"),
    "a field too many": ("x.csv", "query;positive\na;b;c\n", "x.csv:2: 3 fields, expected 2; a text that holds"),
    "an open quote": ("x.csv", HEADER + '"a,b\n', "x.csv:2: malformed record"),
    "blank": ("x.csv", HEADER + "a,b\n ,b\n", "x.csv:3: the query [(]query[)] is ' '; expected a text"),
    "invisible": ("x.csv", HEADER + "\u200b\u200d,b\n", "x.csv:2: the query [(]query[)] is .*; expected a text"),
    "no positive": ("x.csv", HEADER + "a,\n", "x.csv:2: the positive [(]positive[)] is ''; expected a text, or a list"),
    "a share": ("x.csv", "query,positive,score\na,b,0.87\n", ":2: the score .* is '0.87'; expected a whole number"),
    "two grades": ("x.csv", "query,positive,score\na,b,1\na,b,0\n", ":3: the pair has another relevance on line 2"),
    "two queries of an id": ("x.csv", f"qid,{HEADER}1,a,b\n1,c,d\n", "x.csv:3: the query '1' has another text before"),
    "two documents of an id": ("x.csv", "query,positive,pid\na,b,1\nc,d,1\n", ":3: the document '1' has another text"),
    "columns of lists": ("x.json", '{"query": ["a", "b"]}', "no column is known as positive"),
    "a list for a query": ("x.json", '{"query": ["a", "c"], "positive": "b"}', "query[)] is .*; expected a text"),
    "lists for records": ("x.jsonl", '[["a", "b"],\n["c", "d"]]', "x.jsonl: expected a list of JSON objects"),
    "a cut last line": ("x.jsonl", '{"query": "a", "positive": "b"}\n{"q', "x.jsonl:2: malformed JSON .* character 2"),
    "another dictionary": ("x.jsonl", '{"query": "a", "positive": {"content": "b"}}', "is {'content': 'b'}; expected"),
    "half a surrogate": ("x.jsonl", '{"query": "\\ud800", "positive": "b"}', ":1: the query .* is .*; expected a text"),
    "an id with a fraction": ("x.jsonl", '{"qid": 1.5, "query": "a", "positive": "b"}', "query_id .* is 1.5; expected"),
    "a truth for an id": ("x.jsonl", '{"qid": true, "query": "a", "positive": "b"}', "query_id .* is True"),
    "a record of a line": (
        "x.json",
        json.dumps([{"query": "a", "positive": "b"}, {"query": "c", "positive": ""}]),
        r"x.json \(record\):2: the positive",
    ),
    "a cut list": ("x.json", '[{"query": "a",\n"positive": "b"},\n', "x.json:2: malformed JSON"),
    "no Parquet": ("x.parquet", HEADER + "a,b\n", "x.parquet: not a readable Parquet file"),
    "bzip2": ("x.csv", bz2.compress(b"query"), "x.csv:1: not UTF-8 .* plain or gzipped"),
    "no table": ("x.txt", "a", "not a table by its name; expected .csv, .tsv, .json"),
    "a split that is a path": ("x.csv", "query,positive,split\na,b,../up\n", "a split called '../up'; expected"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "message"), FILES.values(), ids=FILES)
def test_files_that_are_refused(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(InputError, match=message):
        foils.load(path)


READ: dict[str, tuple[str, str | bytes, list[str]]] = {
    "windows line ends and a mark": ("x.csv", b"\xef\xbb\xbfquery,positive\r\na,b\r\n", ["a"]),
    "an index and blanks": ("x.csv", ", Query , Positive \n0,a,b\n", ["a"]),
    "an invisible mark in a name": ("x.csv", "\u200bquery,positive\na,b\n", ["a"]),
    "right to left": ("x.csv", HEADER + "\u05de\u05d4,\u202eb\n", ["\u05de\u05d4"]),
    "large whole ids": ("x.csv", f"qid,{HEADER}-3,a,b\n{10**30},c,d\n", ["a", "c"]),
    "one object": ("x.json", '{"query": "a", "positive": {"title": "t", "text": "b"}}', ["a"]),
}


@pytest.mark.parametrize(("name", "data", "queries"), READ.values(), ids=READ)
def test_files_that_are_read(tmp_path, name, data, queries):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    assert foils.load(path).queries["text"].to_pylist() == queries


def test_kinds_of_parquet_columns(tmp_path):
    texts = pa.array(["a", "b", "a"])
    for kind in (texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())):
        pq.write_table(pa.table({"query": kind, "positive": ["x", "y", "z"]}), tmp_path / "x.parquet")
        assert foils.load(tmp_path / "x.parquet").queries["text"].to_pylist() == ["a", "b"]
    pq.write_table(pa.table({"query": pa.array([b"a"]), "positive": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match=r"x.parquet:1: the query \(query\) is b'a'; expected a text"):
        foils.load(tmp_path / "x.parquet")


def test_paths_that_are_no_files(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in {
        tmp_path / "none.csv": "none.csv: no such file",
        tmp_path / "folder.csv": "is a folder, a pipe or a device, not a file",
        tmp_path / "pipe.csv": "a pipe or a device, not a file",
        "-": "-: no such folder or file; a BEIR folder",
        "/dev/null": "a pipe or a device, not a file",
    }.items():
        with pytest.raises(InputError, match=message):
            foils.load(name)


def pandas(*columns: Any, names: list[Any]) -> Any:
    made = pytest.importorskip("pandas").DataFrame(list(zip(*columns, strict=True)))
    made.columns = names
    return made


PAIRS = {"query": ["a", "b"], "positive": ["x", "y"]}
TABLES: dict[str, tuple[Callable[[], Any], str]] = {
    "mixed": (lambda: pandas(["a", 2], ["x", "y"], names=["query", "positive"]), "DataFrame is no table that"),
    "names twice": (lambda: pandas(["a"], ["b"], names=["query", "query"]), "DataFrame is no .*Duplicate column"),
    "missing": (lambda: pandas(["a"], [float("nan")], names=["query", "positive"]), ":1: the positive .* is None"),
    "numbers for names": (lambda: pandas(["a"], ["x"], names=[0, 1]), "the columns are '0', '1'"),
    "columns of lists": (lambda: PAIRS, "list is no table; expected a DataFrame, .* or a dictionary of these by split"),
    "nothing": (lambda: None, "NoneType is no table; expected a DataFrame"),
    "an empty split": (
        lambda: {"train": pa.table(PAIRS), "test": pa.table(PAIRS).slice(2)},
        r"Table \(test\): no pairs in it",
    ),
    "a query in two splits": (
        lambda: {"train": pa.table(PAIRS), "test": pa.table(PAIRS)},
        r"Table \(test\):1: the query 'a' is in train and in test; give it one split",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "message"), TABLES.values(), ids=TABLES)
def test_tables_that_are_refused(made, message):
    with pytest.raises(InputError, match=message):
        foils.load(made())


def test_tables_that_are_read():
    polars, datasets = pytest.importorskip("polars"), pytest.importorskip("datasets")
    frame = polars.DataFrame({"query": polars.Series(PAIRS["query"], dtype=polars.Categorical), "positive": ["x", "y"]})
    chosen = datasets.Dataset.from_dict(PAIRS).select([1, 0]).with_format("torch")
    assert foils.load(frame).queries["text"].to_pylist() == ["a", "b"]
    assert foils.load(chosen).queries["text"].to_pylist() == ["b", "a"]
    upper = {"Train": pa.table(PAIRS), "VALIDATION": pa.table({"query": ["c"], "positive": ["z"]})}
    assert foils.load(upper).splits == ["train", "dev"]


def test_options_of_pairs(beir_folder):
    with pytest.raises(InputError, match=r"columns .*: no effect with .*, which is not made of pairs"):
        foils.load(beir_folder(), columns={"query": "a"})


@given(st.lists(st.tuples(st.integers(0, 40).map(str), st.sampled_from("ab")), min_size=1, max_size=300))
def test_an_id_has_one_text(records):
    texts, wrong = dict[str, str](), list[int]()
    for line, (identifier, text) in enumerate(records, start=1):
        if texts.setdefault(identifier, text) != text:
            wrong.append(line)
    for what in ("query", "document"):
        rows = [{"query": "q", "positive": "p", f"{what}_id" if what == "query" else "doc_id": key,
                 {"query": "query", "document": "positive"}[what]: text} for key, text in records]  # fmt: skip
        table = pa.Table.from_pylist(rows)
        if wrong:
            with pytest.raises(FormatError, match=f"Table:{wrong[0]}: the {what} .* has another text before") as raised:
                foils.load(table)
            assert str(raised.value).count("another text") == min(len(wrong), 5)
        else:
            assert len(foils.load(table).documents) == (1 if what == "query" else len(texts))


def test_what_contradicts_another_file_is_said_of_the_file_where_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    rows = [{"query": "a", "positive": "x", "score": 1}, {"query": "b", "positive": "y", "score": 1}]
    first = write_csv(tmp_path / "first.csv", rows)
    other = [{"query": "c", "positive": "x", "score": 1}, {"query": "b", "positive": "z", "score": 1}]
    second = write_jsonl(tmp_path / "second.jsonl", other)
    with pytest.raises(FormatError, match=r"second.jsonl:2: the query 'b' is in train and in test"):
        foils.load({"train": first, "test": second})
    third = write_jsonl(tmp_path / "third.jsonl", [other[0], {**rows[1], "score": 0}])
    with pytest.raises(FormatError, match=r"third.jsonl:2: the pair has another relevance on line 3"):
        foils.load({"train": first, "training": third})
