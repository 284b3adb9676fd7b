"""Tables of pairs as collections: whatever form they have, the same collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foils
from foils.data.sources import as_source, as_sources
from foils.runtime.errors import FormatError, InputError
from pair_files import ROWS, TABLES, judged, pair_files, write_csv, write_jsonl

GIVEN = {"columns": {"query": "question", "positive": "answer"}}


def of_train(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "split": "train"} for row in rows]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_file_is_the_same_collection(tmp_path: Path) -> None:
    collections = [foils.load(path) for path in pair_files(tmp_path, ROWS)]
    assert len(collections) == 7
    assert len({each.digest for each in collections}) == 1
    assert {each.name for each in collections} == {"pairs"}
    pairs = [pair for split in judged(collections[0]).values() for pair in split]
    assert sorted(pairs) == sorted((row["question"], row["answer"], 1) for row in ROWS)
    assert {split: len(table) for split, table in collections[0].qrels.items()} == {"train": 5, "dev": 2, "test": 3}


@pytest.mark.parametrize("form", TABLES)
def test_every_table_is_the_collection_that_a_file_is(tmp_path: Path, form: str) -> None:
    assert foils.load(TABLES[form](ROWS)).digest == foils.load(write_csv(tmp_path / "p.csv", ROWS)).digest


def test_the_splits_do_not_depend_on_the_order_of_the_rows() -> None:
    there, back = (judged(foils.load(pa.Table.from_pylist(rows))) for rows in (ROWS, ROWS[::-1]))
    assert {split: sorted(pairs) for split, pairs in there.items()} == {s: sorted(pairs) for s, pairs in back.items()}


def test_equal_texts_are_one_document_and_a_query_may_have_several_positives() -> None:
    rows = [{"query": "a?", "positive": "x"}, {"query": "a?", "positive": "y"}, {"query": "b?", "positive": "x"}]
    collection = foils.load(pa.Table.from_pylist(of_train([*rows, rows[0]])))
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


def test_a_document_judged_irrelevant_binds_no_queries_together() -> None:
    """Two queries alike are near-twins where they share a positive; a shared negative judgement is none."""
    other = [{"query": f"number {i} of many things", "positive": f"d{i}", "score": 1} for i in range(14)]
    alike = [{"query": f"where is the old red boat {end}", "positive": f"p{end}", "score": 1} for end in "xy"]
    shared = [{**row, "positive": "same"} for row in alike]

    def sides(grade: int) -> set[bool]:
        """Whether both stay in one split, beside several numbers of other queries."""
        both = [*alike, *({**row, "score": grade} for row in shared)]
        collections = (foils.load(pa.Table.from_pylist([*other[:count], *both])) for count in range(8, 15))
        places = [{q: s for s, pairs in judged(each).items() for q, _, _ in pairs} for each in collections]
        return {place[alike[0]["query"]] == place[alike[1]["query"]] for place in places}

    assert sides(1) == {True}
    assert False in sides(0)


def test_ids_titles_and_grades() -> None:
    rows = [
        {"query-id": 1, "query": "a?", "corpus-id": 7.0, "title": "T", "text": "x", "score": 2},
        {"query-id": 1, "query": "a?", "corpus-id": 8.0, "title": None, "text": "y", "score": 0},
    ]
    collection = foils.load(pa.Table.from_pylist(of_train(rows)))
    assert collection.documents.to_pylist() == [
        {"doc_id": "7", "title": "T", "text": "x"}, {"doc_id": "8", "title": "", "text": "y"},
    ]  # fmt: skip
    judgements = [("1", "7", 2), ("1", "8", 0)]
    assert [tuple(row.values()) for row in collection.qrels["train"].to_pylist()] == judgements


def test_a_corpus_adds_documents(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"text": ROWS[0]["answer"]}, {"title": "A", "text": "another"}])
    path = write_csv(tmp_path / "pairs.csv", ROWS)
    collection = foils.load(path, corpus=corpus)
    assert len(collection.documents) == 11
    assert collection.document_texts([0, 1]) == [ROWS[0]["answer"], "A another"], "they come first"
    assert foils.load(path, corpus=pa.Table.from_pylist([{"text": "another"}])).documents.num_rows == 11


@pytest.mark.parametrize("key", ["_id", "id", "doc_id"])
def test_a_corpus_in_beirs_form_names_the_documents_of_the_pairs_too(tmp_path: Path, key: str) -> None:
    """A positive that is a document of the corpus is that document, and no second one: a false negative."""
    documents = [{key: 7, "title": "", "text": ROWS[0]["answer"]}, {key: "8", "title": "Rope", "text": "hemp"}]
    rows = [*ROWS, {"question": "of what?", "answer": "hemp"}]
    for corpus in (write_jsonl(tmp_path / "corpus.jsonl", documents), pa.Table.from_pylist(documents[1:])):
        collection = foils.load(write_csv(tmp_path / "pairs.csv", rows), corpus=corpus)
        assert len(collection.documents) == len(collection.documents["text"].unique()) == 11
        known = {row["doc_id"]: row["text"] for row in collection.documents.to_pylist()}
        assert known["8"] == "hemp"
        assert ("7" in known) == isinstance(corpus, Path)
        assert judged(collection)["train"][-1] == ("of what?", "hemp", 1)
        assert collection.document_texts(collection.document_rows(["8"])) == ["Rope hemp"]


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


def test_triplets_are_the_same_source_in_every_form(tmp_path: Path) -> None:
    rows = [{**row, "negative": f"not {row['answer']}"} for row in ROWS]
    collection = foils.load(TABLES["arrow"](rows))
    given = [*pair_files(tmp_path, rows), *(table(rows) for table in TABLES.values())]
    sources = [as_source(each, collection).negatives.table for each in given]
    assert len(sources[0]) == len(ROWS)
    columns = ["query_id", "doc_id", "rank"]
    assert all(each.select(columns) == sources[0].select(columns) for each in sources)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_columns_are_divided_by_what_the_first_line_has_most_of(tmp_path: Path, mark: str) -> None:
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    plain.write_text('query,positive,title\n"a, b",c;d|e\tf,T\n')
    other.write_text(f'query{mark}positive{mark}"title"\na, b{mark}"c;d|e\tf"{mark}T\n')
    of_plain, of_other = foils.load(plain), foils.load(other)
    assert of_other.documents.equals(of_plain.documents)
    assert of_other.queries.equals(of_plain.queries)


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "p.csv", [{"a": "q", "b": "d", "text": "other"}])
    collection = foils.load(path, columns={"query": "a", "positive": "b"})
    assert collection.documents["text"].to_pylist() == ["d"]
    with pytest.raises(InputError, match="has no column c; it has a, b, text"):
        foils.load(path, columns={"query": "c"})
    with pytest.raises(InputError, match="columns quest: a column is one of query, positive"):
        foils.load(path, columns={"quest": "a"})


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "p.csv", ROWS)
    first = foils.load(path)
    with monkeypatch.context() as patched:
        patched.setattr("foils.data.pairs.Columns.pairs", None)
        assert foils.load(path).digest == first.digest
    write_csv(path, ROWS[:5])
    assert len(foils.load(path).queries) == 5


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
