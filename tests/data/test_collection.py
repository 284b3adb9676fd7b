"""Collections in memory, their judgements as ragged arrays, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data import Collection, Positives
from foils.data.collection import PairIndex
from foils.runtime.errors import FormatError, InputError, UnknownNameError

# By hand: the small collection


def test_rows(small: Collection) -> None:
    assert small.document_rows(["d3", "q1", "d1", "d3", ""]).tolist() == [2, -1, 0, 2, -1]
    assert small.query_rows(pa.array(["q5", "nobody"])).tolist() == [4, -1]
    assert small.query_rows([]).tolist() == []
    assert small.document_rows(["d1"]).dtype == np.int64


def test_positives(small: Collection) -> None:
    train = small.positives("train")
    assert (train.query_rows.tolist(), train.offsets.tolist()) == ([0, 1, 2], [0, 2, 3, 4])
    assert train.doc_rows.tolist() == [0, 2, 3, 6]  # d7, judged 0 for q1, is none
    assert (train.first.tolist(), train.counts.tolist(), train.of(0).tolist()) == ([0, 3, 6], [2, 1, 1], [0, 2])
    assert [rows.tolist() for rows in train.pairs()] == [[0, 0, 1, 2], [0, 2, 3, 6]]
    assert train.contain([0, 0, 0, 2, -1, 0, -1], [2, 6, 0, 6, 0, -1, -1]).tolist() == [
        True, False, True, True, False, False, False,
    ]  # fmt: skip
    assert len(train) == 3
    assert small.positives("test").first.tolist() == [1, 7]
    assert small.known_positives.pairs()[0].tolist() == [0, 0, 1, 2, 3, 4]


def test_splits(small: Collection) -> None:
    assert small.splits == ["train", "test"]
    for read in (small.judgements, small.positives):
        with pytest.raises(UnknownNameError, match=r"split of the collection small 'tset'; .*Did you mean 'test'"):
            read("tset")


def test_a_split_without_a_relevant_document() -> None:
    collection = Collection.from_dicts("x", {"d": "text"}, {"q": "text"}, {"test": {"q": {"d": 0}}, "dev": {}})
    for split in ("test", "dev"):
        with pytest.raises(InputError, match=f"the split '{split}' of x judges no document relevant"):
            collection.positives(split)
    assert len(collection.known_positives) == 0
    assert collection.known_positives.contain([0], [0]).tolist() == [False]
    assert collection.judgements("dev").num_rows == 0


def test_a_pair_in_two_splits_is_one_known_positive() -> None:
    judged = {"train": {"q": {"d": 1, "e": 1}}, "test": {"q": {"f": 1, "d": 1}}}
    collection = Collection.from_dicts("x", {"d": "1", "e": "2", "f": "3"}, {"q": "text"}, judged)
    assert collection.known_positives.doc_rows.tolist() == [0, 1, 2]
    assert collection.positives("test").doc_rows.tolist() == [2, 0]


# Against plain dictionaries

grades = st.dictionaries(
    st.sampled_from(["q3", "q1", "q2"]),
    st.dictionaries(st.sampled_from(["d5", "d1", "d4", "d2", "d3"]), st.integers(-1, 2)),
)


@given(st.dictionaries(st.sampled_from(["train", "dev", "test"]), grades, min_size=1))
def test_positives_equal_dictionaries(qrels: dict[str, dict[str, dict[str, int]]]) -> None:
    documents, queries = [f"d{n}" for n in range(1, 6)], ["q1", "q2", "q3"]
    collection = Collection.from_dicts("x", dict.fromkeys(documents, "t"), dict.fromkeys(queries, "t"), qrels)

    def plain(judged: dict[str, dict[str, int]]) -> dict[str, list[str]]:
        relevant = {q: [d for d, grade in of.items() if grade > 0] for q, of in judged.items()}
        return {q: of for q, of in relevant.items() if of}

    def named(positives: Positives) -> dict[str, list[str]]:
        return {
            queries[row]: [documents[of] for of in positives.of(index)]
            for index, row in enumerate(positives.query_rows)
        }

    known: dict[str, list[str]] = {}
    for split, judged in qrels.items():
        if expected := plain(judged):
            found = collection.positives(split)
            assert list(named(found).items()) == list(expected.items())  # orders too
            assert [documents[row] for row in found.first] == [of[0] for of in expected.values()]
            assert found.counts.tolist() == [len(of) for of in expected.values()]
        for query, of in plain(judged).items():
            known.setdefault(query, []).extend(d for d in of if d not in known[query])
    assert list(named(collection.known_positives).items()) == list(known.items())
    grid = [(q, d) for q in range(-1, 3) for d in range(-1, 5)]
    asked = collection.known_positives.contain(*np.array(grid).T)
    assert asked.tolist() == [q >= 0 and d >= 0 and documents[d] in known.get(queries[q], []) for q, d in grid]


# What is refused

GOOD = {"name": "x", "documents": {"d": "text"}, "queries": {"q": "text"}, "qrels": {"test": {"q": {"d": 1}}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": {}}, r"x \(documents\): no documents in it"),
        ({"documents": {"d": " \n"}}, r"x \(documents\): no documents in it; expected at least one record with a text"),
        ({"documents": {"d": "t", 1: "t", "1": "u"}}, "duplicate id '1'"),
        ({"documents": {"d": ("title", 1.5)}}, "expected _id, title, text as text in valid Unicode"),
        ({"queries": {"q": "\ud800"}}, "expected _id, text as text in valid Unicode"),
        (
            {"qrels": {"test": {"p": {"d": 1}}}},
            r"x \(qrels test\):1: unknown query_id 'p': it is not among the queries",
        ),
        ({"qrels": {"test": {"q": {"e": 1}}}}, "unknown doc_id 'e': it is not among the documents"),
        ({"qrels": {"test": {"q": {"d": 1.5}}}}, "the relevance as a whole number"),
    ],
)
def test_what_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Collection.from_dicts(**{**GOOD, **change})  # type: ignore[arg-type]


def test_the_digest_is_of_the_contents(small: Collection) -> None:
    def digest(**change: object) -> str:
        return Collection.from_dicts(**{**GOOD, **change}).digest  # type: ignore[arg-type]

    assert digest() == digest(name="y") != small.digest
    others = [
        digest(documents={"d": "texts"}),
        digest(documents={"d": ("text", "")}),
        digest(queries={"q": "texts"}),
        digest(qrels={"test": {"q": {"d": 2}}}),
        digest(qrels={"train": {"q": {"d": 1}}}),
    ]
    assert len({digest(), *others}) == 6


def test_what_a_collection_shows_of_itself_is_one_line(small: Collection) -> None:
    judged = {split: len(table) for split, table in small.qrels.items()}
    shown = ", ".join(f"{split} {count}" for split, count in judged.items())
    counts = f"{len(small.documents)} documents, {len(small.queries)} queries"
    assert repr(small) == str(small) == f"Collection('small': {counts}; judgements: {shown})"
    bare = Collection.from_dicts("bare", {"d": "one"}, {"q": "two"}, {})
    assert repr(bare) == "Collection('bare': 1 documents, 1 queries; judgements: none)"


PAIRS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [query for query, _ in pairs], [document for _, document in pairs]


@given(PAIRS, PAIRS)
def test_as_lists_find_pairs(pairs: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    index = PairIndex(*columns(pairs))
    expected = [pairs.index(pair) if pair in pairs else -1 for pair in wanted]
    assert index.places(*columns(wanted)).tolist() == expected
    assert index.contain(*columns(wanted)).tolist() == [pair in pairs for pair in wanted]
    assert index.first.tolist() == [pairs.index(pair) for pair in pairs]
    assert np.array_equal(index.distinct, np.unique(index.first))
