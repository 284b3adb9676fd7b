"""Sources of negatives in every form: what is read, and where what is wrong stands."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.data import Collection, Negatives
from foils.data.negatives import EQUAL, POSITIVE, negatives_table
from foils.data.pairs import text_id
from foils.data.sources import as_source, as_sources
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest

D2 = "When a boat gybes, its stern turns through the wind."
D5 = "Baker's yeast makes dough rise within one or two hours."
D6 = "Flour, water and salt are all that a loaf of bread needs beside yeast."

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def lines(*records: object, name: str = "source.jsonl") -> Path:
        path = tmp_path / name
        text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path

    return lines


def rows(negatives: Negatives) -> list[tuple[object, ...]]:
    assert np.isnan(negatives.table["score"].to_numpy()).all()
    names = [name for name in ("query_id", "doc_id", "rank", "text") if name in negatives.table.column_names]
    return list(zip(*(negatives.table[name].to_pylist() for name in names), strict=True))


def refused(path: Path, collection: Collection) -> str:
    with pytest.raises(FormatError) as caught:
        as_source(str(path), collection)
    return str(caught.value)


# Names


@pytest.mark.parametrize(
    ("spec", "name", "path"),
    [
        ("bm25.trec", "bm25", "bm25.trec"),
        ("mine=runs/dense.trec", "mine", "runs/dense.trec"),
        ("runs/a=b.trec", "a=b", "runs/a=b.trec"),
    ],
)
def test_names(
    small: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, name: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("q1 Q0 d2 1 1.0 x\n")
    source = as_source(spec, small)
    assert (source.name, source.digest) == (name, file_digest(path))


def test_several_sources(small: Collection, write: Write) -> None:
    one = write({"query": "how does a boat tack", "negative": D2}, name="one.jsonl")
    two = write("q1 Q0 d2 1 1.0 x", name="two.trec")
    sources = as_sources([str(one), f"second={two}"], small)
    assert [source.name for source in sources] == ["one", "second"]
    assert [source.digest for source in sources] == [file_digest(one), file_digest(two)]
    assert [source.negatives.table["source"].to_pylist() for source in sources] == [["one"], ["second"]]
    with pytest.raises(InputError, match=r"one: given twice; leave one out, or name them apart, as in NAME=PATH"):
        as_sources([str(one), f"one={two}"], small)


# Tevatron's JSONL


def test_tevatron(small: Collection, write: Write) -> None:
    path = write(
        {
            "query_id": "q1",
            "query": "how does a boat tack",
            "positive_passages": [{"docid": "d1", "title": "Sailing", "text": "A sailing boat turns ..."}],
            "negative_passages": [
                {"docid": "d2", "title": "Sailing", "text": f"  {D2}\n"},  # white space makes no other text
                {"docid": "d6"},
                {"docid": "new", "title": "Kites", "text": "A kite has no keel."},
                {"docid": "d2"},  # named twice: the first counts
                {"docid": 12, "text": "an integer id"},
            ],
        },
        {"query_id": "q2", "negative_passages": []},
        {"query_id": "q3", "negative_passages": [{"docid": "d6", "title": "", "text": D6}]},
        {"query_id": "q1", "negative_passages": [{"docid": "d5"}, {"docid": "d6"}]},
    )
    read = as_source(str(path), small)
    assert rows(read.negatives) == [
        ("q1", "d2", 0, None),
        ("q1", "d6", 1, None),
        ("q1", "new", 2, "Kites A kite has no keel."),
        ("q1", "12", 3, "an integer id"),
        ("q3", "d6", 0, None),
        ("q1", "d5", 4, None),
    ]
    assert read.name == "source"
    assert read.negatives.provenance["settings"] == {"file": "source.jsonl", "repeated": 2}
    assert read.negatives.provenance["inputs"] == {"collection": small.digest}


# Triplets and n-tuples


def test_tuples(small: Collection, write: Write) -> None:
    path = write(
        {"query": " how does a boat  tack", "positive": "...", "negative": D2},
        {"anchor": "what makes sourdough bread rise", "positive": "...", "negative_1": D6, "negative_2": f"Bread {D5}"},
        {"anchor": "how does a boat tack", "positive": "...", "negative": [D5, "Kites have no keel.", D2]},
        name="x.jsonl.gz",
    )
    found = rows(as_source(str(path), small).negatives)
    own = found[4][1]
    assert found == [
        ("q1", "d2", 0, None),  # known by its text alone
        ("q2", "d6", 0, None),
        ("q2", "d5", 1, None),  # or with its title
        ("q1", "d5", 1, None),
        ("q1", own, 2, "Kites have no keel."),
    ]
    assert own == text_id("Kites have no keel.")


def test_numbered_negatives_come_in_the_order_of_numbers(small: Collection, write: Write) -> None:
    record = {f"negative_{n}": f"text {n}" for n in (10, 2, 1)}
    read = as_source(str(write({"query": "eggs of a queen bee", "positive": "", **record})), small)
    assert [row[3] for row in rows(read.negatives)] == ["text 1", "text 2", "text 10"]


Q5, OF_Q1 = "eggs of a queen bee", {"query_id": "q1"}
TRIPLET = {"anchor": Q5, "positive": "x", "negative": "y"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"positive": "x", "negative": "y"}, "unknown query_id None: the collection small has no such query"),
        ({"query_id": "q9"}, "unknown query_id 'q9': the collection small has no such query"),
        (
            {"query": "never asked", "negative": "y"},
            "unknown query 'never asked': the collection small has no such query",
        ),
        (
            {"query": Q5, "negative": " "},
            "the negative (negative_passages, negative) is ' '; expected a text, or a list",
        ),
        ({"query": Q5, "negative": ["y", {"title": 1.5}]}, "the negative (negative_passages, negative) is {'title'"),
        ({**TRIPLET, "scores": [1.0]}, "expected as many scores as"),
        ({**TRIPLET, "scores": [1.0, "2"]}, "the scores (scores) is '2'; expected finite numbers"),
        ({**TRIPLET, "scores": [1.0, float("nan")]}, "the scores (scores) is nan; expected finite numbers"),
        ({"query": Q5, "pos": ["x"], "neg": ["y", "z"], "pos_scores": [1.0], "neg_scores": [1.0]}, "expected as many"),
        (
            {**OF_Q1, "negative_passages": [{"docid": "d99"}]},
            "the document 'd99' is neither in the collection nor given",
        ),
        (
            {**OF_Q1, "negative_passages": [{"docid": "d2", "text": "x"}]},
            "the document 'd2' has another text elsewhere",
        ),
        ({**OF_Q1, "negative_passages": [{"docid": "d2", "score": "2"}]}, "the negative (negative_passages"),
    ],
)
def test_what_is_wrong_in_a_record(small: Collection, write: Write, record: object, message: str) -> None:
    path = write({"query_id": "q1", "negative_passages": []}, record, {"query_id": "q9", "negative_passages": []})
    first, second = refused(path, small).splitlines()
    assert first.startswith(f"{path}:2: {message}")
    assert second.startswith(f"{path}:3: unknown query_id"), "every complaint at once"


# TREC runs


def test_run(small: Collection, write: Write) -> None:
    path = write(
        "q1 Q0 d1 1 9 x",  # labelled relevant: no negative
        "q1 Q0 d2 2 8 x",
        "q1 Q0 d7 3 7 x",  # judged, but not relevant
        "q1 Q0 d3 4 6 x",  # labelled relevant
        "q1 Q0 d6 5 5.5 x",
        "q4 Q0 d2 1 3 x",  # labelled relevant in another split
        "q4 Q0 d1 2 4 x",
        name="run.trec",
    )
    table = as_source(f"mine={path}", small).negatives.table
    assert table.select(["query_id", "doc_id", "source", "rank", "score"]).to_pylist() == [
        {"query_id": query, "doc_id": document, "source": "mine", "rank": rank, "score": score}
        for query, document, rank, score in [
            ("q1", "d2", 0, 8.0), ("q1", "d7", 1, 7.0), ("q1", "d6", 2, 5.5), ("q4", "d1", 0, 4.0),
        ]
    ]  # fmt: skip


def test_unknown_ids_in_a_run(small: Collection, write: Write) -> None:
    path = write("q1 Q0 d2 1 9 x", "q9 Q0 d2 1 8 x", "", "q1 Q0 d99 2 7 x", name="run.trec")
    assert refused(path, small).startswith(f"{path}: 1 query_ids are not in the collection small (first: 'q9')")


# Parquet


def test_parquet(small: Collection, tmp_path: Path) -> None:
    table = negatives_table(pa.array(["q1"]), pa.array(["d2"]), "bm25", [0], [1.5])
    Negatives(table, {"stage": "mine"}).write(tmp_path / "a.parquet")
    read = as_source(f"mine={tmp_path / 'a.parquet'}", small)
    assert (read.name, read.negatives.provenance) == ("mine", {"stage": "mine"})
    assert read.negatives.table.equals(table)


def test_parquet_that_does_not_fit(small: Collection, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    Negatives(negatives_table(pa.array(["q1"]), pa.array(["d99"]), "bm25", [0], [1.5])).write(path)
    assert refused(path, small).startswith(f"{path}: 1 doc_ids are not in the collection small (first: 'd99')")
    pq.write_table(pa.table({"x": [1]}), path)
    assert refused(path, small).startswith(f"{path}: no column query_id")


# Anything else


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty; a source is a Parquet table"),
        (b"query_id\tdoc_id\n", "x:1: expected 6 fields (query Q0 document rank score tag), found 2"),
        (b'[{"query": "x"}]', "no column is known as negative; the columns are 'query'; give one such a name"),
    ],
)
def test_what_is_no_source(small: Collection, tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)
    assert message in refused(tmp_path / "x", small)


# What could get lost


def test_one_id_with_two_texts(small: Collection, write: Write) -> None:
    one, other = ({"docid": "new", "text": text} for text in ("one", "another"))
    path = write({"query_id": "q1", "negative_passages": [one]}, {"query_id": "q2", "negative_passages": [other]})
    assert refused(path, small) == (
        f"{path}:2: the document 'new' has another text elsewhere; give it an id of its own"
    )
    without = {"query_id": "q2", "negative_passages": [{"docid": "new"}]}
    again = write({"query_id": "q1", "negative_passages": [one]}, without)
    assert as_source(str(again), small).negatives.table["text"].to_pylist() == ["one", "one"]


# What is no negative

QUERY, POSITIVE_TEXT = "how does a boat tack", "A sailing boat turns its bow through the wind to change tack."
MISTAKEN = {
    "NeMo": {"question": QUERY, "pos_doc": [], "neg_doc": [{"id": "d1", "text": POSITIVE_TEXT}]},
    "Tevatron": {"query_id": "q1", "negative_passages": [{"docid": "d1"}]},
    "Tevatron, own text": {"query_id": "q1", "negative_passages": [{"docid": "x", "text": f"Sailing {POSITIVE_TEXT}"}]},
}


@pytest.mark.parametrize("form", MISTAKEN)
def test_a_positive_among_the_negatives_is_rejected(
    form: str, small: Collection, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    harmless = {"query_id": "q2", "negative_passages": [{"docid": "d6"}]}
    path = write(harmless if "Tevatron" in form else {"query": QUERY, "negative": D5}, MISTAKEN[form])
    read = as_source(str(path), small).negatives
    assert read.keep.tolist() == [True] * (len(read) - 1) + [False]
    assert read.rejected() == {EQUAL if "own" in form else POSITIVE: 1}
    assert caplog.messages == [f"{path}: negatives that are positives of the same query: 1; rejected"]


def test_a_copy_of_a_positive_is_no_negative(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    texts = {"copy": "Paris", "own": "Paris", "other": "Rome"}
    collection = Collection.from_dicts("copies", texts, {"q": "capital"}, {"train": {"q": {"own": 1}}})
    path = write(*[{"query": "capital", "negative": text} for text in ("Rome", " Paris\n", "Paris", "PARIS!")])
    read = as_source(str(path), collection).negatives
    assert read.table["doc_id"].to_pylist()[:2] == ["other", "copy"]
    assert (read.keep.tolist(), read.rejected()) == ([True, False, False], {EQUAL: 2})


@pytest.mark.parametrize("stored", [True, False])
def test_a_labelled_positive_in_a_table_of_negatives(
    stored: bool, small: Collection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = Negatives(negatives_table(["q1", "q1", "q1"], ["d2", "d3", "d1"], "mine", [0, 1, 2], [3.0, 2.0, 1.0]))
    table.write(path := tmp_path / "mine.parquet")
    read = as_source(path if stored else table, small).negatives
    assert (read.keep.tolist(), read.rejected()) == ([True, False, False], {POSITIVE: 2})
    where = path if stored else "mine"
    assert caplog.messages == [f"{where}: negatives that are positives of the same query: 2; rejected"]
    assert not as_source(read, small).negatives.keep[1:].any()
    assert len(caplog.messages) == 1  # nothing new
