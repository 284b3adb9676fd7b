"""Labels: what spreadsheets and programs give back is read, what is wrong is named by line, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foils
from foils.data import Collection, Labels
from foils.data.labels import LABEL_COLUMNS, is_program, with_judgements
from foils.runtime.errors import FormatError, InputError, UnknownNameError
from foils.runtime.files import LABEL_FILES


def labels(*rows: dict[str, Any]) -> Labels:
    return Labels(pa.Table.from_pylist(list(rows), LABEL_COLUMNS))


ROWS = (
    {"query_id": "q1", "doc_id": "d2", "relevant": 1, "judge": "anna", "probability": 0.25, "sources": "a|b"},
    {"query_id": "q1", "doc_id": "d4", "probability": 0.5, "sources": "a"},
    {"query_id": "q2", "doc_id": "x", "text": '=1+1 "said"\n she', "relevant": 0, "judge": "llm:m", "probability": 1.0},
    {"query_id": "q2", "doc_id": "y", "text": "'=quoted", "relevant": None, "judge": "anna", "probability": 0.125},
)


@pytest.mark.parametrize("ending", LABEL_FILES)
def test_what_is_written_is_read_again(tmp_path: Path, ending: str) -> None:
    path, written = tmp_path / f"labels{ending}", labels(*ROWS)
    written.write(path)
    assert Labels.of(path).table.equals(written.table)
    before = path.read_bytes()
    written.write(path)
    assert path.read_bytes() == before


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_text_comes_back_but_for_its_white_space(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    texts = [f"a{text}", text]
    written = labels(*({"query_id": "q", "doc_id": str(at), "text": each} for at, each in enumerate(texts)))
    for ending in LABEL_FILES:
        path = tmp_path_factory.mktemp("any") / f"labels{ending}"
        written.write(path)
        back = Labels.of(path).table["text"].to_pylist()
        assert [(each or "").split() for each in back] == [each.split() for each in texts]


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbfrelevant;query_id;note;doc_id;probability\r\n1;q1;"a;\nb";d2;0,25\r\n;q1;;d4;0,5\r\n;;;;\r\n',
        b'"doc_id","query_id","relevant","probability"\nd2,q1,Yes,0.25\n"d4",q1,,0.5\n',
        b"qid\tdocid\tlabel\tprobability\nq1\td2\tTRUE\t2.5e-1\nq1\td4\tskip\t.5\n",
    ],
)
def test_what_spreadsheets_give_back(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    rows = Labels.of(path).table.select(["query_id", "doc_id", "relevant", "judge", "probability"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("q1", "d2", 1, "person", 0.25), ("q1", "d4", None, None, 0.5)]


HEADER = "query_id,doc_id,relevant,probability,judge\n"


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (f"{HEADER}q1,d1,maybe,,\nq1,d2,2,,", ["csv:2: the relevant (relevant) is 'maybe'; expected 1, 0", "is '2'"]),
        (f"{HEADER}q1,d1,1,,\nq1,d1,0,,", ["csv:3: person judged query 'q1', document 'd1' as 1 above, and as 0 here"]),
        (f"{HEADER}q1,d1,1,0,\nq1,d2,1,x,", ["csv:2: the probability (probability) is '0'", "csv:3: the probab"]),
        (f"{HEADER}q1,,1,,\n,d1,1,,", ["csv:2: a label needs a query_id", "csv:3: a label needs a query_id"]),
        ("query_id,relevant\nq1,1\n", ["csv:1: no column is known as doc_id; the columns are 'query_id', 'relevant'"]),
        ("query_id,doc_id\nq1,d1\n", ["no column is known as relevant"]),
        (f"{HEADER}q9,d1,1,,\nq1,d99,,,", ["csv:2: unknown query_id 'q9' (a spreadsheet",
                                           "csv:3: unknown doc_id 'd99'"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line(tmp_path: Path, small: Collection, content: str, messages: list[str]) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(content)
    with pytest.raises(FormatError) as caught:
        Labels.of(path, small)
    for message in messages:
        assert message in str(caught.value)


def test_tables_are_checked_as_files_are(small: Collection) -> None:
    one = {"query_id": "q1", "doc_id": "d1", "relevant": 1}
    assert len(labels(one, one)) == 1, "said twice is said once"
    assert labels({**one, "relevant": None, "judge": "person"}, one).table["relevant"].to_pylist() == [1]
    for wrong, message in (
        ([one, {**one, "relevant": 0}], "person judged query 'q1', document 'd1' as 1 above, and as 0 here"),
        ([{**one, "relevant": 2}], "relevant is 0, 1 or empty"),
        ([{**one, "probability": 0.0}], r"in \(0, 1\]"),
        ([{**one, "probability": 1.5}], r"in \(0, 1\]"),
        ([{**one, "doc_id": None}], "needs a query_id"),
    ):
        with pytest.raises(InputError, match=message):
            labels(*wrong)
    with pytest.raises(InputError, match="unknown doc_id 'd99'"):
        Labels.of(pa.table({"query_id": ["q1"], "doc_id": ["d99"], "relevant": [1]}), small)
    outside = labels({**one, "doc_id": "llm-1", "text": "a text of its own"})
    assert Labels.of(outside, small) is outside
    with pytest.raises(InputError, match=r"expected a name that ends in \.tsv"):
        outside.write("labels.xlsx")


def test_matching_takes_people_before_programs_and_counts_what_is_not_judged() -> None:
    given = labels(
        {"query_id": "q1", "doc_id": "d1", "relevant": 1, "judge": "a", "probability": 0.5},
        {"query_id": "q1", "doc_id": "d1", "relevant": 0, "judge": "llm:m", "probability": 0.5},
        {"query_id": "q1", "doc_id": "d2", "relevant": 1, "judge": "a", "probability": 0.2},
        {"query_id": "q1", "doc_id": "d2", "relevant": 0, "judge": "b"},
        {"query_id": "q2", "doc_id": "d1", "relevant": 0, "judge": "a"},
        {"query_id": "q3", "doc_id": "g", "text": "two words", "relevant": 1, "probability": 0.4},
        {"query_id": "q3", "doc_id": "h", "relevant": None, "probability": 0.4},
    )
    pairs = pa.table(
        {
            "query_id": ["q1", "q1", "q2", "q3", "q9"],
            "doc_id": ["d1", "d2", "d1", "g", "d1"],
        }
    )
    nan = np.nan
    relevant, probability = given.match(pairs)
    np.testing.assert_array_equal(relevant, [1, nan, 0, 1, nan])
    np.testing.assert_allclose(probability, [0.5 / 2, nan, nan, 0.4 / 2, nan])  # two of four drawn were judged
    relevant, probability = given.match(pairs, judge="llm:m")
    np.testing.assert_array_equal(relevant, [0, nan, nan, nan, nan])
    np.testing.assert_allclose(probability[0], 0.5 / 4)
    assert len(given.match(pairs.slice(0, 0))[0]) == 0
    np.testing.assert_array_equal(labels().match(pairs)[0], [nan] * 5)


def test_a_colon_makes_a_judge_a_program() -> None:
    assert [is_program(name) for name in ("anna", "llm:m", None)] == [False, True, False]


def collection(splits: tuple[str, ...] = ("train", "test")) -> Collection:
    documents = {name: f"text {name}" for name in "abcd"}
    return Collection.from_dicts(
        "c",
        documents,
        {"q": "one", "r": "two"},
        {split: {query: {"a": 1}} for split, query in zip(splits, "qr", strict=True)},
    )


def said(*rows: tuple[str, str, int, str]) -> Labels:
    return Labels(
        pa.Table.from_pylist([dict(zip(("query_id", "doc_id", "relevant", "judge"), row, strict=True)) for row in rows])
    )


def positives(of: Collection, split: str = "train") -> set[tuple[str, str]]:
    table = of.qrels[split]
    return set(zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True))


def test_relevant_pairs_join_the_split() -> None:
    before = collection()
    after = with_judgements(before, [said(("q", "b", 1, "m:x"), ("q", "c", 0, "m:x"), ("q", "a", 1, "m:x"))])
    assert positives(after) == {("q", "a"), ("q", "b")}
    assert positives(before) == {("q", "a")}, "the given collection is as it was"
    assert after.digest != before.digest
    assert after.name == "c and 1 judgements more"
    assert after.known_positives.counts_of(after.query_rows(pa.array(["q"])))[0] == 2


def test_people_count_before_programs_and_a_majority_before_a_minority() -> None:
    one = said(("q", "b", 0, "me"), ("q", "b", 1, "m:x"), ("q", "b", 1, "m:y"), ("q", "c", 1, "m:x"))
    two = said(("q", "c", 0, "m:y"), ("q", "c", 1, "m:z"), ("q", "d", 0, "m:x"))
    assert positives(with_judgements(collection(), [one, two])) == {("q", "a"), ("q", "c")}


def test_a_split_that_measures_is_never_changed_and_a_query_that_nobody_judged_joins() -> None:
    given, before = said(("r", "b", 1, "m:x")), collection()
    assert with_judgements(before, [given]).qrels == before.qrels
    alone = Collection(before.name, before.documents, before.queries, {"train": before.qrels["train"]})
    assert positives(with_judgements(alone, [given])) == {("q", "a"), ("r", "b")}


def test_every_door_takes_them_and_names_what_is_wrong_by_line(tmp_path: Path) -> None:
    path = tmp_path / "found.tsv"
    said(("q", "b", 1, "relabel:foils")).write(path)
    mined = foils.mine(collection(), "random", top=3, add_judgements=path)
    assert sorted(mined.kept()["doc_id"].to_pylist()) == ["c", "d"]
    assert sorted(foils.mine(collection(), "random", top=3).kept()["doc_id"].to_pylist()) == ["b", "c", "d"]
    path.write_text("query_id\tdoc_id\trelevant\nq\tnone\t1\n")
    with pytest.raises(FormatError, match=r"found.tsv.*2.*unknown doc_id 'none'"):
        foils.mine(collection(), "random", add_judgements=[path])
    with pytest.raises(InputError):
        foils.mine(collection(), "random", add_judgements=tmp_path / "not-there.tsv")


def test_a_collection_without_the_split_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="train"):
        with_judgements(collection(("dev", "test")), [said(("q", "b", 1, "me"))])
