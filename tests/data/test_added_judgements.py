"""Relevant pairs of labels as more positives of a collection."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import foils
from foils.data import Collection, Labels
from foils.data.labels import with_judgements
from foils.runtime.errors import FormatError, InputError, UnknownNameError


def collection(splits: tuple[str, ...] = ("train", "test")) -> Collection:
    documents = {name: f"text {name}" for name in "abcd"}
    return Collection.from_dicts(
        "c",
        documents,
        {"q": "one", "r": "two"},
        {split: {query: {"a": 1}} for split, query in zip(splits, "qr", strict=True)},
    )


def labels(*rows: tuple[str, str, int, str]) -> Labels:
    return Labels(
        pa.Table.from_pylist([dict(zip(("query_id", "doc_id", "relevant", "judge"), row, strict=True)) for row in rows])
    )


def positives(of: Collection, split: str = "train") -> set[tuple[str, str]]:
    table = of.qrels[split]
    return set(zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True))


def test_relevant_pairs_join_the_split() -> None:
    before = collection()
    after = with_judgements(before, [labels(("q", "b", 1, "m:x"), ("q", "c", 0, "m:x"), ("q", "a", 1, "m:x"))])
    assert positives(after) == {("q", "a"), ("q", "b")}
    assert positives(before) == {("q", "a")}, "the given collection is as it was"
    assert after.digest != before.digest
    assert after.name == "c and 1 judgements more"
    assert after.known_positives.counts_of(after.query_rows(pa.array(["q"])))[0] == 2


def test_people_count_before_programs_and_a_majority_before_a_minority() -> None:
    one = labels(("q", "b", 0, "me"), ("q", "b", 1, "m:x"), ("q", "b", 1, "m:y"), ("q", "c", 1, "m:x"))
    two = labels(("q", "c", 0, "m:y"), ("q", "c", 1, "m:z"), ("q", "d", 0, "m:x"))
    assert positives(with_judgements(collection(), [one, two])) == {("q", "a"), ("q", "c")}


def test_a_split_that_measures_is_never_changed() -> None:
    given = labels(("r", "b", 1, "m:x"))
    assert with_judgements(collection(), [given]).qrels == collection().qrels


def test_a_query_that_nobody_judged_joins_too() -> None:
    documents, queries = {"a": "x", "b": "y"}, {"q": "one", "new": "three"}
    before = Collection.from_dicts("c", documents, queries, {"train": {"q": {"a": 1}}})
    assert positives(with_judgements(before, [labels(("new", "b", 1, "me"))])) == {("q", "a"), ("new", "b")}


def test_every_door_takes_them_and_names_what_is_wrong_by_line(tmp_path: Path) -> None:
    path = tmp_path / "found.tsv"
    labels(("q", "b", 1, "relabel:foils")).write(path)
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
        with_judgements(collection(("dev", "test")), [labels(("q", "b", 1, "me"))])
