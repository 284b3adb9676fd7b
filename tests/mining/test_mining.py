"""What becomes a negative, against a plain loop over each query's ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.data import Collection
from foils.data.negatives import EQUAL
from foils.mining import Mined, RandomRetriever, candidates, mine_negatives
from foils.mining.rules import NEAR
from foils.runtime.errors import InputError, UnknownNameError


@dataclass
class Listed:
    """Ranks what it is given: query row -> document rows, best first."""

    rankings: Mapping[int, Sequence[int]]
    name: str = "listed"
    short: str = "the list is over"
    searched: list[tuple[int, int]] = field(default_factory=list)

    def search(self, query_rows: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        self.searched.append((len(query_rows), depth))
        rows = np.full((len(query_rows), depth), -1, np.int64)
        for at, query in enumerate(query_rows.tolist()):
            ranked = list(self.rankings.get(query, ()))[:depth]
            rows[at, : len(ranked)] = ranked
        return rows, np.where(rows >= 0, 1 / (2.0 + np.arange(depth)), np.nan)


def words(text: str) -> list[str]:
    cleaned = "".join(char if char.isalnum() else " " for char in text.casefold())
    return cleaned.split()


@dataclass
class Plain:
    rows: list[tuple[str, str, int, bool, str | None]]
    passed: int
    short: int


def plain_mine(
    collection: Collection, rankings: Mapping[int, Sequence[int]], split: str, top: int, near: float
) -> Plain:
    """One query, one document at a time."""
    documents = {row["doc_id"]: f"{row['title']} {row['text']}" for row in collection.documents.to_pylist()}
    ids = list(documents)
    queries = collection.queries["query_id"].to_pylist()
    labelled: dict[str, set[str]] = {}
    asked: dict[str, None] = {}
    for name, table in collection.qrels.items():
        for row in table.to_pylist():
            if row["relevance"] > 0:
                labelled.setdefault(row["query_id"], set()).add(row["doc_id"])
                if name == split:
                    asked[row["query_id"]] = None
    found = Plain([], 0, 0)
    for query in asked:
        usable, rank = 0, 0
        for index in rankings.get(queries.index(query), ()):
            if usable == top:
                break
            document = ids[index]
            if document in labelled[query]:
                found.passed += 1
                continue
            ours, reason = words(documents[document]), None
            for positive in (words(documents[key]) for key in labelled[query]):
                shared, either = len(set(ours) & set(positive)), len(set(ours) | set(positive))
                if ours == positive:
                    reason = EQUAL
                elif reason is None and shared / either >= near:
                    reason = NEAR
            found.rows.append((query, document, rank, reason is None, reason))
            rank, usable = rank + 1, usable + (reason is None)
        found.short += usable < top
    return found


def rows_of(mined: Mined) -> list[tuple[str, str, int, bool, str | None]]:
    table = mined.table.to_pylist()
    return [(row["query_id"], row["doc_id"], row["rank"], row.get("keep", True), row.get("reason")) for row in table]


VOCABULARY = ["wind", "boat", "bee", "yeast", "nest"]
texts = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=5).map(" ".join)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Collection, dict[int, list[int]]]:
    documents = draw(st.lists(texts, min_size=2, max_size=25))
    noise = draw(st.lists(st.sampled_from(["", "!", "UP"]), min_size=len(documents), max_size=len(documents)))
    written = [text.upper() if how == "UP" else text + how for text, how in zip(documents, noise, strict=True)]
    queries = draw(st.integers(1, 6))
    qrels: dict[str, dict[str, dict[str, int]]] = {"train": {}, "test": {}}
    for query in draw(st.permutations(range(queries))):
        judged = draw(st.dictionaries(st.integers(0, len(documents) - 1), st.integers(0, 2), min_size=1, max_size=4))
        split = draw(st.sampled_from(["train", "test", "both"]))
        for name in ("train", "test"):
            if split in (name, "both"):
                qrels[name][f"q {query}"] = {f"d{key}": grade for key, grade in judged.items()}
    qrels["train"].setdefault("q 0", {})["d0"] = 1
    collection = Collection.from_dicts(
        "drawn",
        {f"d{i}": text for i, text in enumerate(written)},
        {f"q {i}": f"query {i}" for i in range(queries)},
        qrels,
    )
    rankings = {
        query: draw(st.permutations(range(len(documents))))[: draw(st.integers(0, len(documents)))]
        for query in range(queries)
    }
    return collection, rankings


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(1, 6), st.sampled_from([0.3, 0.5, 0.75, 0.9, 1.0, 2.0]))
def test_negatives_equal_those_of_the_plain_loop(
    world: tuple[Collection, dict[int, list[int]]], top: int, near: float
) -> None:
    collection, rankings = world
    found = mine_negatives(collection, Listed(rankings), split="train", top=top, near_duplicate=near)
    expected = plain_mine(collection, rankings, "train", top, near)
    assert rows_of(found) == expected.rows
    assert found.positives_left_out == expected.passed
    assert sum(found.short.values()) == expected.short
    reasons = [reason for *_, reason in expected.rows if reason]
    assert found.rejected() == {reason: reasons.count(reason) for reason in set(reasons)}
    assert found.queries == len(collection.positives("train"))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_number_of_queries_ranked_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    rng = np.random.default_rng(0)
    documents = {f"d{i}": " ".join(rng.choice(VOCABULARY, 3)) for i in range(60)}
    judged = {f"q{i}": {f"d{rng.integers(60)}": 1} for i in rng.permutation(9)}
    collection = Collection.from_dicts("c", documents, {f"q{i}": "?" for i in range(9)}, {"train": judged})
    rankings = {query: rng.permutation(60).tolist() for query in range(9)}
    whole = mine_negatives(collection, Listed(rankings), split="train", top=20)
    monkeypatch.setattr(candidates, "QUERIES", at_once)
    parts = mine_negatives(collection, Listed(rankings), split="train", top=20)
    assert parts.table.equals(whole.table)
    assert (parts.short, parts.rejected(), parts.positives_left_out) == (
        whole.short, whole.rejected(), whole.positives_left_out,
    )  # fmt: skip


def test_a_deeper_search_is_made_for_the_short_lists_alone() -> None:
    """Of 100 documents the first 30 repeat the positive of q0; q1 is full at once."""
    documents = {f"d{i}": "the positive text" if i < 31 else f"text {i}" for i in range(100)}
    collection = Collection.from_dicts(
        "deep", documents, {"q0": "a", "q1": "b"}, {"train": {"q0": {"d0": 1}, "q1": {"d99": 1}}}
    )
    retriever = Listed({0: range(100), 1: range(100)})
    found = mine_negatives(collection, retriever, split="train", top=3)
    assert retriever.searched == [(2, 11), (1, 44)]
    kept = [row for row in rows_of(found) if row[3]]
    assert [row[1] for row in kept] == ["d31", "d32", "d33", "d0", "d1", "d2"]
    assert [row[2] for row in kept] == [30, 31, 32, 0, 1, 2]
    assert found.rejected() == {EQUAL: 30}
    assert found.short == {}
    assert found.positives_left_out == 1


def test_short_lists_say_why() -> None:
    collection = Collection.from_dicts(
        "short", {f"d{i}": f"text {i}" for i in range(4)}, {"q": "a"}, {"train": {"q": {"d0": 1}}}
    )
    ended = mine_negatives(collection, Listed({0: [0, 3]}), split="train", top=3)
    assert ended.short == {"the list is over": 1}
    assert [row[1] for row in rows_of(ended)] == ["d3"]
    through = mine_negatives(collection, Listed({0: [3, 0, 1, 2]}), split="train", top=4)
    assert through.short == {"the collection has no further document": 1}
    assert mine_negatives(collection, Listed({0: [3, 0, 1, 2]}), split="train", top=3).short == {}


def test_a_collection_of_positives_alone_gives_an_empty_table() -> None:
    collection = Collection.from_dicts("full", {"a": "x", "b": "y"}, {"q": "?"}, {"train": {"q": {"a": 1, "b": 1}}})
    found = mine_negatives(collection, RandomRetriever(collection), split="train", top=2)
    assert len(found) == 0
    assert found.positives_left_out == 2
    assert sum(found.short.values()) == 1


def test_a_positive_of_any_split_is_left_out_and_a_judged_irrelevant_document_is_not() -> None:
    collection = Collection.from_dicts(
        "splits", {f"d{i}": f"text {i}" for i in range(5)}, {"q": "a", "r": "b"},
        {"train": {"q": {"d0": 1, "d3": 0}}, "test": {"q": {"d1": 2}, "r": {"d2": 1}}},
    )  # fmt: skip
    found = mine_negatives(collection, Listed({0: range(5), 1: range(5)}), split="train", top=5)
    assert [row[:2] for row in rows_of(found)] == [("q", "d2"), ("q", "d3"), ("q", "d4")]


def test_texts_of_no_letter_or_digit_are_compared_as_they_are() -> None:
    collection = Collection.from_dicts(
        "marks", {"p": "?!", "same": " ?! ", "other": "!!", "word": "word"}, {"q": "?"}, {"train": {"q": {"p": 1}}}
    )
    found = mine_negatives(collection, Listed({0: [1, 2, 3]}), split="train", top=3)
    assert [row[4] for row in rows_of(found)] == [EQUAL, None, None]


def test_the_title_is_part_of_the_text() -> None:
    collection = Collection.from_dicts(
        "titles", {"p": ("Wind", "turns the boat"), "n": ("", "wind turns the boat")}, {"q": "?"},
        {"train": {"q": {"p": 1}}},
    )  # fmt: skip
    assert rows_of(mine_negatives(collection, Listed({0: [1]}), split="train", top=1))[0][4] == EQUAL


def test_scores_and_provenance_come_through(small: Collection) -> None:
    made = {"stage": "mine", "settings": {"top": 2}}
    found = mine_negatives(small, Listed({0: [1, 4, 5]}, name="mine"), split="train", top=2, made=made)
    recapture = found.provenance["recapture"]
    assert found.provenance == {**made, "recapture": recapture}
    counts = {name: recapture[name] for name in ("way", "labelled", "kept", "queries")}
    assert counts == {"way": "counted", "labelled": 4, "kept": 2, "queries": 3}
    first = found.table.slice(0, 1).to_pylist()[0]
    assert (first["query_id"], first["source"], first["score"]) == ("q1", "mine", 0.5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"top": 0}, "top 0; expected at least 1"),
        ({"near_duplicate": 0.0}, "near-duplicate"),
        ({"near_duplicate": -0.5}, "near-duplicate"),
        ({"near_duplicate": float("nan")}, "near-duplicate"),
        ({"split": "tran"}, "Did you mean 'train'"),
    ],
)
def test_settings_out_of_range(small: Collection, bad: dict[str, object], message: str) -> None:
    given = {"split": "train", "top": 2, **bad}
    with pytest.raises(InputError, match=message):
        mine_negatives(small, RandomRetriever(small), **given)  # type: ignore[arg-type]


def test_a_split_without_a_positive_is_an_error() -> None:
    collection = Collection.from_dicts("none", {"a": "x"}, {"q": "?"}, {"train": {"q": {"a": 0}}, "dev": {}})
    for split in ("train", "dev"):
        with pytest.raises(InputError, match="judges no document relevant"):
            mine_negatives(collection, RandomRetriever(collection), split=split, top=1)
    with pytest.raises(UnknownNameError):
        mine_negatives(collection, RandomRetriever(collection), split="test", top=1)
