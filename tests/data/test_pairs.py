"""Tables of pairs as collections and as sources of negatives: whatever form they have, the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foils
from foils.data import Collection, Negatives
from foils.data.sources import as_source, as_sources
from foils.runtime.errors import FormatError, InputError
from pair_files import ROWS, TABLES, judged, pair_files, write_csv, write_jsonl

pytestmark = pytest.mark.usefixtures("own_cache")

TRIPLETS = [{**row, "negative": f"not {row['answer']}"} for row in ROWS]
RENAMED = [{"q": row["question"], "a": row["answer"], "n": row["negative"]} for row in TRIPLETS]
COLUMNS = {"query": "q", "positive": "a", "negative": "n"}


def of_train(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "split": "train"} for row in rows]


@pytest.fixture
def pairs() -> Collection:
    return foils.load(pa.Table.from_pylist(ROWS))


def rows(negatives: Negatives) -> pa.Table:
    return negatives.table.drop_columns(["source", "score"])  # it has no scores: NaN


def data_set(**splits: list[dict[str, Any]]) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.DatasetDict({split: datasets.Dataset.from_list(part) for split, part in splits.items()})


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
    with pytest.raises(InputError, match="columns query=c; expected one of query, positive"):
        foils.load(path, columns={"query": "c"})
    with pytest.raises(InputError, match="columns quest=a; expected one of query, positive"):
        foils.load(path, columns={"quest": "a"})


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "p.csv", ROWS)
    first = foils.load(path)
    with monkeypatch.context() as patched:
        patched.setattr("foils.data.pairs.Columns.example", None)
        assert foils.load(path).digest == first.digest
    write_csv(path, ROWS[:5])
    assert len(foils.load(path).queries) == 5


# Splits


def test_splits_of_a_data_set_are_one_source(pairs: Collection) -> None:
    whole = as_source(TABLES["arrow"](TRIPLETS), pairs)
    for given in (data_set(train=TRIPLETS), data_set(train=TRIPLETS[:7], test=TRIPLETS[7:])):
        (source,) = as_sources({"own": given}, pairs)
        assert source.name == "own"
        assert rows(source.negatives).equals(rows(whole.negatives))
        (alone,) = as_sources(given, pairs)  # one source, and no dictionary of several
        assert rows(alone.negatives).equals(rows(whole.negatives))
    files = {"train": TABLES["pandas"](TRIPLETS[:7]), "test": TABLES["polars"](TRIPLETS[7:])}
    assert rows(as_source(files, pairs).negatives).equals(rows(whole.negatives))


WRONG: dict[str, Callable[[], Any]] = {
    r"Dataset \(test\):1: unknown query 'who\?'": lambda: data_set(
        train=TRIPLETS[:9], test=[{**TRIPLETS[9], "question": "who?"}]
    ),
    r"Dataset \(dev\): no column is known as query or query_id; the columns are 'q', 'a', 'n'; give": lambda: data_set(
        train=TRIPLETS, dev=RENAMED
    ),
    "list is no table; expected a DataFrame, .* or a dictionary of these by split": lambda: {
        "question": ["a"],
        "negative": ["b"],
    },
}


@pytest.mark.parametrize(("message", "made"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_in_a_split_names_it(pairs: Collection, message: str, made: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=message):
        as_source(made(), pairs)


# The hub


def test_a_data_set_of_the_hub_is_a_source(tmp_path: Path) -> None:
    """Here a folder, which is read as a repository is: by configuration and split, or whole."""
    pytest.importorskip("datasets")
    (tmp_path / "triplets").mkdir()
    for split, part in (("train", slice(0, 7)), ("test", slice(7, None))):
        write_csv(tmp_path / "triplets" / f"{split}.csv", RENAMED[part])
    given = f"hf:{tmp_path / 'triplets'}"
    collection = foils.load(given, columns=COLUMNS)
    assert {split: len(table) for split, table in collection.qrels.items()} == {"train": 7, "test": 3}
    assert foils.load(f"{given}::train", columns=COLUMNS).queries.num_rows == 7
    whole = as_source(TABLES["arrow"](RENAMED), collection)
    for source in (given, f"{given}:default", f"own={given}"):
        assert rows(as_source(source, collection).negatives).equals(rows(whole.negatives))
    assert [each.name for each in as_sources([given, f"own={given}::test"], collection)] == ["triplets", "own"]
    assert len(as_source(f"{given}::test", collection).negatives) == 3
    with pytest.raises(InputError, match=r"unknown split of hf:.*'dev'; expected one of: test, train"):
        as_source(f"{given}::dev", collection)
    with pytest.raises(FormatError, match=r"hf:.*triplets \(train\):1: .* are 'q', 'a', 'n'; give"):
        as_source(given, foils.load(TABLES["arrow"](ROWS)))


# Columns


@pytest.mark.parametrize(("triplets", "columns"), [(TRIPLETS, None), (RENAMED, COLUMNS)])
def test_a_source_of_any_form_with_the_columns_of_the_collection_is_read_by_the_same_names(tmp_path, triplets, columns):
    whole = as_source(TABLES["arrow"](TRIPLETS), foils.load(TABLES["arrow"](TRIPLETS)))
    for given in [*pair_files(tmp_path, triplets), *(make(triplets) for make in TABLES.values())]:
        read = as_source(given, foils.load(given, columns=columns))
        assert rows(read.negatives).equals(rows(whole.negatives)), given


def test_tables_of_negatives_are_none_of_pairs_whatever_the_columns_of_the_collection() -> None:
    numbered = [{"doc_id": f"d{at}", **row} for at, row in enumerate(RENAMED)]
    collection = foils.load(TABLES["arrow"](numbered), columns={"query": "q", "positive": "a", "doc_id": "doc_id"})
    mined = foils.mine(collection, top=1)
    assert as_source(mined.table, collection).negatives.table.equals(mined.table)
