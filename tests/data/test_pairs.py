"""Tables of pairs as collections: whatever form they have, the same collection; what is wrong is told by line."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foils
from foils.data import Collection, load_collection
from foils.data.resolve import as_sources
from foils.runtime.errors import FormatError, InputError

ROWS = [
    {"question": f"what is the {thing}?", "answer": f'the {thing} is {colour}, "quite" so'}
    for thing, colour in zip(
        ["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"],
        ["red", "blue", "green", "white", "grey"] * 2,
        strict=True,
    )
]
GIVEN = {"columns": {"query": "question", "positive": "answer"}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",", **how: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8", **how) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def forms(folder: Path, rows: list[dict[str, Any]]) -> Iterator[Any]:
    """The rows as each kind of file, and as each kind of table."""
    yield write_csv(folder / "pairs.csv", rows)
    yield write_csv(folder / "pairs.tsv", rows, "\t")
    yield write_jsonl(folder / "pairs.jsonl", rows)
    (folder / "pairs.json").write_text(json.dumps(rows, indent=1))
    yield folder / "pairs.json"
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet")
    yield folder / "pairs.parquet"
    with gzip.open(folder / "pairs.csv.gz", "wb") as file:
        file.write((folder / "pairs.csv").read_bytes())
    yield folder / "pairs.csv.gz"
    yield pa.Table.from_pylist(rows)
    yield pytest.importorskip("pandas").DataFrame(rows)
    yield pytest.importorskip("datasets").Dataset.from_list(rows)


def judged(collection: Collection) -> dict[str, list[tuple[str, str, int]]]:
    texts = dict(zip(*(collection.queries[name].to_pylist() for name in ("query_id", "text")), strict=True))
    answers = dict(zip(*(collection.documents[name].to_pylist() for name in ("doc_id", "text")), strict=True))
    return {
        split: [(texts[row["query_id"]], answers[row["doc_id"]], row["relevance"]) for row in table.to_pylist()]
        for split, table in collection.qrels.items()
    }


def test_every_form_is_the_same_collection(tmp_path: Path) -> None:
    collections = [foils.load(form) for form in forms(tmp_path, ROWS)]
    assert len({each.digest for each in collections}) == 1
    assert collections[0].name == "pairs"
    pairs = [pair for split in judged(collections[0]).values() for pair in split]
    assert sorted(pairs) == sorted((row["question"], row["answer"], 1) for row in ROWS)
    assert {split: len(table) for split, table in collections[0].qrels.items()} == {"train": 8, "dev": 1, "test": 1}


def test_polars(tmp_path: Path) -> None:
    frame = pytest.importorskip("polars").DataFrame(ROWS)
    assert foils.load(frame).digest == foils.load(write_csv(tmp_path / "p.csv", ROWS)).digest


def test_the_splits_do_not_depend_on_the_order_of_the_rows() -> None:
    there, back = (judged(foils.load(pa.Table.from_pylist(rows))) for rows in (ROWS, ROWS[::-1]))
    assert {split: sorted(pairs) for split, pairs in there.items()} == {s: sorted(pairs) for s, pairs in back.items()}


def test_equal_texts_are_one_document_and_a_query_may_have_several_positives() -> None:
    rows = [{"query": "a?", "positive": "x"}, {"query": "a?", "positive": "y"}, {"query": "b?", "positive": "x"}]
    collection = foils.load(pa.Table.from_pylist([*rows, rows[0]]), split_shares=(1, 0, 0))
    assert collection.documents["text"].to_pylist() == ["x", "y"]
    assert judged(collection) == {"train": [("a?", "x", 1), ("a?", "y", 1), ("b?", "x", 1)]}


def test_splits_that_are_given() -> None:
    rows = [{**row, "split": split} for row, split in zip(ROWS, ["train"] * 8 + ["validation", "test"], strict=True)]
    by_column = foils.load(pa.Table.from_pylist(rows))
    parts = {"train": ROWS[:8], "validation": ROWS[8:9], "test": ROWS[9:]}
    by_name = foils.load({split: pa.Table.from_pylist(part) for split, part in parts.items()})
    expected = {
        s: [(r["question"], r["answer"], 1) for r in part]
        for s, part in zip(("train", "dev", "test"), parts.values(), strict=True)
    }
    assert judged(by_column) == judged(by_name) == expected
    some = pa.Table.from_pylist([*rows[:5], *({**row, "split": ""} for row in rows[5:])])
    with pytest.raises(FormatError, match="5 queries have no split, others have"):
        foils.load(some)


def test_data_set_dictionaries() -> None:
    datasets = pytest.importorskip("datasets")
    parts = {"train": datasets.Dataset.from_list(ROWS[:8]), "test": datasets.Dataset.from_list(ROWS[8:])}
    assert foils.load(datasets.DatasetDict(parts)).splits == ["train", "test"]
    assert foils.load({"train": parts["train"]}).splits == ["train", "dev", "test"], "one split says nothing"


def test_ids_titles_and_grades() -> None:
    rows = [
        {"query-id": 1, "query": "a?", "corpus-id": 7.0, "title": "T", "text": "x", "score": 2},
        {"query-id": 1, "query": "a?", "corpus-id": 8.0, "title": None, "text": "y", "score": 0},
    ]
    collection = foils.load(pa.Table.from_pylist(rows), split_shares=(0, 0, 1))
    assert collection.documents.to_pylist() == [
        {"doc_id": "7", "title": "T", "text": "x"}, {"doc_id": "8", "title": "", "text": "y"},
    ]  # fmt: skip
    judgements = [("1", "7", 2), ("1", "8", 0)]
    assert [tuple(row.values()) for row in collection.qrels["test"].to_pylist()] == judgements


def test_a_corpus_adds_documents(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"text": ROWS[0]["answer"]}, {"title": "A", "text": "another"}])
    path = write_csv(tmp_path / "pairs.csv", ROWS)
    collection = foils.load(path, corpus=corpus)
    assert collection.document_texts(range(10, len(collection.documents))) == ["A another"]
    assert foils.load(path, corpus=pa.Table.from_pylist([{"text": "another"}])).documents.num_rows == 11


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        (["negative"], ["n 1"]),
        (["negative_1", "negative_2"], ["n 1", "n 2"]),
        (["neg"], [["n 1", "n 2"]]),
        (["negative_passages"], [[{"docid": "n1", "title": "", "text": "n 1"}]]),
    ],
)
def test_negatives_become_documents_and_a_source(tmp_path: Path, columns: list[str], values: list[Any]) -> None:
    rows = [
        {"anchor": "a?", "positive": "x", **dict(zip(columns, values, strict=True))},
        {"anchor": "b?", "positive": "y"},
    ]
    path = tmp_path / "tuples.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    for given in (path, pa.Table.from_pylist(rows)):
        collection = foils.load(given)
        (source,) = as_sources([f"own={path}"] if given is path else {"own": given}, collection)
        rows_of = source.negatives.rows_in(collection)
        texts = zip(collection.query_texts(rows_of[0]), collection.document_texts(rows_of[1]), strict=True)
        count = 2 if "2" in str(values) else 1
        assert list(texts) == [("a?", f"n {i + 1}") for i in range(count)]
        assert source.name == "own"


def test_triplets_in_csv_are_a_source(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", [{"query": "a?", "positive": "x", "negative": "z"}])
    collection = foils.load(write_csv(tmp_path / "p.csv", [{"query": "a?", "positive": "x"}]))
    (source,) = as_sources([str(path)], collection)
    assert source.negatives.table["text"].to_pylist() == ["z"]
    with pytest.raises(FormatError, match=r"t.csv:2: unknown query 'a\?'"):
        as_sources([str(path)], foils.load(pa.Table.from_pylist([{"query": "c?", "positive": "x"}])))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "a", "question": "b", "positive": "c"}], "columns query and question could each be the query; say"),
        ([{"q": "a", "p": "b"}], r"no column is known as query or positive; the columns are 'q', 'p'. The first line"),
        ([{"query": "a", "positive": "b"}, {"query": " ", "positive": "b"}], r"csv:3: the query \(query\) is empty"),
        ([{"query": "a", "positive": ""}], r"csv:2: the positive \(positive\) is empty or no text"),
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
        (b"", "the file is empty; expected a first line"),
        (b"query,positive\n", "no documents in it"),
        (
            b"query;positive\na;b\n",
            r"wrong.csv:1: one column 'query;positive', which holds ';'; expected columns divided",
        ),
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


def test_texts_over_several_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(b'\xef\xbb\xbfquery,positive\n"a\n\nb","x"\nc,\n')
    with pytest.raises(FormatError, match=r"pairs.csv:5: the positive"):
        foils.load(path)
    path.write_bytes(b'\xef\xbb\xbfquery,positive\n"a\n\nb","x"\n\nc,y\n')
    assert foils.load(path).queries["text"].to_pylist() == ["a\n\nb", "c"]


def test_missing_values_of_data_frames() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"query": ["a", "b"], "positive": ["x", float("nan")]})
    with pytest.raises(FormatError, match=r"DataFrame:2: the positive \(positive\) is empty or no text"):
        foils.load(frame)


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "p.csv", [{"a": "q", "b": "d", "text": "other"}])
    collection = foils.load(path, columns={"query": "a", "positive": "b"})
    assert collection.documents["text"].to_pylist() == ["d"]
    with pytest.raises(InputError, match="has no column c; it has a, b, text"):
        foils.load(path, columns={"query": "c"})
    with pytest.raises(InputError, match="columns quest: a column is one of query, positive"):
        foils.load(path, columns={"quest": "a"})


def test_options_of_pairs_are_refused_with_other_collections(beir_folder: Callable[..., Path]) -> None:
    folder = beir_folder()
    with pytest.raises(InputError, match=r"columns .*: no effect with .*, which is not made of pairs"):
        foils.load(folder, columns={"query": "a"})
    with pytest.raises(InputError, match="expected three shares that sum to 1"):
        foils.load(pa.Table.from_pylist(ROWS), split_shares=(0.5, 0.1, 0.1))


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "p.csv", ROWS)
    first = foils.load(path)
    with monkeypatch.context() as patched:
        patched.setattr("foils.data.pairs.PairTable.read", None)
        assert foils.load(path).digest == first.digest
    write_csv(path, ROWS[:5])
    assert len(foils.load(path).queries) == 5
    other = load_collection(path, columns=GIVEN["columns"], shares=(0.6, 0.2, 0.2))
    assert [len(table) for table in other.qrels.values()] == [3, 1, 1]


def test_hub_data_sets_of_two_columns(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "answers"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", ROWS[:8])
    write_jsonl(folder / "test.jsonl", ROWS[8:])
    collection = foils.load(f"hf:{folder}")
    assert {split: len(table) for split, table in collection.qrels.items()} == {"train": 8, "test": 2}
    assert foils.load(f"hf:{folder}::train").queries.num_rows == 8
    with pytest.raises(InputError, match=r"unknown split of hf:.* 'dev'; expected one of: test, train"):
        foils.load(f"hf:{folder}::dev")


def test_everything_of_a_row_of_a_labelled_list_is_read() -> None:
    """FlagEmbedding's form: lists of positives and of negatives."""
    rows = [{"query": "a?", "pos": ["x", "y"], "neg": ["z"]}]
    collection = foils.load(pa.Table.from_pylist(rows), split_shares=(1, 0, 0))
    assert judged(collection) == {"train": [("a?", "x", 1), ("a?", "y", 1)]}
    assert collection.documents["text"].to_pylist() == ["x", "y", "z"]
