"""Splits of queries: deterministic, of the wanted sizes, near-twins together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data import Collection, Negatives
from foils.data.description import expected_recurrence, recurrence
from foils.data.negatives import TOP, negatives_table
from foils.data.pairs import TWINS, split_queries, twin_pairs
from foils.data.sources import training_rows
from foils.data.tokens import alphanumeric
from foils.runtime.errors import InputError, UnknownNameError

WORDS = st.sampled_from(["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"])
QUERIES = st.lists(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=40)


def similarity(a: str, b: str) -> float:
    x, y = set(alphanumeric(a)), set(alphanumeric(b))
    return len(x & y) / len(x | y)


@given(QUERIES, st.integers(0, 2**32 - 1))
def test_near_twins_of_a_document_stay_together(texts: list[str], seed: int) -> None:
    rows = np.arange(len(texts))
    documents = np.random.default_rng(seed).integers(0, 5, len(texts))
    splits = split_queries(texts, rows, documents)
    twins = {
        (i, j)
        for i in rows
        for j in rows[i + 1 :]
        if documents[i] == documents[j] and similarity(texts[i], texts[j]) >= TWINS - 1e-9
    }
    assert {tuple(pair) for pair in twin_pairs(texts, rows, documents).tolist()} == twins
    assert all(splits[i] == splits[j] for i, j in twins)
    same = {frozenset(alphanumeric(text)): split for text, split in zip(texts, splits, strict=True)}
    assert all(same[frozenset(alphanumeric(text))] == split for text, split in zip(texts, splits, strict=True))


def test_sizes() -> None:
    texts = [f"query number {i}" for i in range(1000)]
    splits = split_queries(texts, np.arange(1000), np.arange(1000))
    assert Counter(splits) == {"train": 800, "dev": 100, "test": 100}
    back = split_queries(texts[::-1], np.arange(1000), np.arange(1000))
    assert splits == back[::-1]


def test_a_group_larger_than_a_split_is_trained_on() -> None:
    texts = ["the same query"] * 50 + [f"other {i}" for i in range(50)]
    splits = split_queries(texts, np.arange(100), np.arange(100))
    assert set(splits[:50]) == {"train"}
    assert Counter(splits) == {"train": 50, "dev": 20, "test": 30}


Judged = dict[str, dict[str, int]]

TRAIN: Judged = {"q1": {"d1": 1}, "q2": {"d1": 2, "d2": 1}, "q3": {"d3": 0, "d4": 1}}
TEST: Judged = {"q5": {"d1": 1, "d3": 1}, "q6": {"d4": 1, "d5": 1, "d2": 0}}


def judged(**splits: Judged) -> Collection:
    documents = {f"d{number}": f"document {number}" for number in range(1, 9)}
    queries = {f"q{number}": f"query {number}" for number in range(1, 10)}
    return Collection.from_dicts("judged", documents, queries, splits)


def test_pairs_are_counted_whose_document_is_relevant_to_a_training_query() -> None:
    collection = judged(train=TRAIN, test=TEST)
    assert recurrence(collection, "test") == 0.5  # d1 and d4 of d1, d3, d4, d5; d3 is judged not relevant in train
    assert recurrence(collection, "train", "test") == 0.75  # d1 twice, and d4, of four
    with pytest.raises(UnknownNameError, match="test, train"):
        recurrence(collection, "dev")


def test_a_split_of_which_nothing_is_relevant_says_nothing() -> None:
    collection = judged(train=TRAIN, dev={"q4": {"d1": 0}}, test=TEST)
    assert recurrence(collection, "dev") is None
    assert expected_recurrence(collection) == 0.5  # as without dev


def test_dev_stands_for_the_queries_to_come() -> None:
    dev: Judged = {"q4": {"d1": 1, "d2": 1, "d4": 1, "d8": 1}}
    assert expected_recurrence(judged(train=TRAIN, dev=dev, test=TEST)) == 0.75


def test_without_dev_it_is_the_estimate_of_good_and_turing() -> None:
    """Of n pairs whose documents are drawn with probabilities p, the next one's is known with about 1 − n₁/n."""
    documents = {f"d{number}": f"document {number}" for number in range(300)}
    queries = {f"q{number}": f"query {number}" for number in range(400)}
    expected, known = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        probabilities = rng.dirichlet(np.full(300, 0.5))
        drawn = rng.choice(300, 400, p=probabilities)
        train = {f"q{number}": {f"d{at}": 1} for number, at in enumerate(drawn)}
        expected.append(expected_recurrence(Collection.from_dicts("drawn", documents, queries, {"train": train})))
        known.append(probabilities[np.unique(drawn)].sum())
    assert np.mean(expected) == pytest.approx(np.mean(known), abs=0.02)
    assert expected_recurrence(judged(train=TRAIN)) == 0.5, "1 − 2/4"
    assert expected_recurrence(judged(train=TRAIN, test={"q6": {"d1": 1}})) == 0.5, "test is not looked at"
    assert expected_recurrence(judged(train={"q1": {"d1": 0}})) == 1.0


TABLE = Negatives(negatives_table(["q1", "q1", "q2", "q1"], ["d4", "d7", "d1", "d9"], "s", [1, 0, 0, 2], np.zeros(4)))


def named(rows, small):
    """The rows by ids; the table's negatives by document."""
    documents = TABLE.table["doc_id"].to_pylist()
    asked, ids = small.queries["query_id"].to_pylist(), small.documents["doc_id"].to_pylist()
    return [
        (asked[q], ids[d], *(documents[n] if n >= 0 else None for n in of))
        for q, d, of in zip(rows.query_rows, rows.doc_rows, rows.negatives.tolist(), strict=True)
    ]


def test_pairs_in_the_order_of_the_judgements(small):
    rows = training_rows(small, form="pairs")
    assert named(rows, small) == [("q1", "d1"), ("q1", "d3"), ("q2", "d4"), ("q3", "d7")]
    assert (rows.queries, rows.pairs, rows.capped, rows.uncovered) == (3, 4, 0, 0)


def test_triplets_by_rank(small):
    rows = training_rows(small, TABLE, per_query=2)
    expected = [("q1", "d1", "d7"), ("q1", "d1", "d4"), ("q1", "d3", "d7"), ("q1", "d3", "d4"), ("q2", "d4", "d1")]
    assert named(rows, small) == expected
    assert (len(rows), rows.pairs, rows.capped, rows.uncovered) == (5, 3, 0, 1)


def test_lists_and_what_they_lack(small):
    rows = training_rows(small, TABLE.reject(np.array([True, False, False, False]), "near"), form="lists")
    assert named(rows, small) == [("q1", "d1", "d7", "d9"), ("q1", "d3", "d7", "d9"), ("q2", "d4", "d1", None)]


def test_what_is_refused(small):
    with pytest.raises(InputError, match="triplets need a table"):
        training_rows(small, form="triplets")
    with pytest.raises(InputError, match="no query of the split 'train' has a kept negative"):
        training_rows(small, TABLE.reject(np.ones(4, bool), "all"))


RATED = Negatives(
    negatives_table(
        ["q4", "q4", "q5", "q2", "q5", "q1"], ["d1", "d3", "d8", "d1", "d9", "d4"], "s", [1, 0, 1, 0, 0, 0], np.zeros(6)
    )
)


def test_the_candidate_rated_best_stands_for_the_positive_of_a_query_without_a_label(small):
    """q4's d1 and q5's d8 were rated best: with the judgements of train alone both queries are unlabelled."""
    unlabelled = Collection(small.name, small.documents, small.queries, {"train": small.qrels["train"]})
    rated = RATED.reject(np.isin(np.arange(6), [0, 2]), TOP)
    rows = training_rows(unlabelled, rated, max_positives=1)
    ids, documents = small.queries["query_id"].to_pylist(), small.documents["doc_id"].to_pylist()
    of = rated.table["doc_id"].to_pylist()
    shown = [
        (ids[q], documents[d], of[n])
        for q, d, n in zip(rows.query_rows, rows.doc_rows, rows.negatives[:, 0], strict=True)
    ]
    assert shown == [("q1", "d1", "d4"), ("q2", "d4", "d1"), ("q4", "d1", "d3"), ("q5", "d8", "d9")]
    assert (rows.queries, rows.pairs, rows.unlabelled, rows.outside) == (5, 4, 2, 0)
    without = training_rows(Collection("none", small.documents, small.queries, {}), rated, form="lists", split="all")
    assert without.doc_rows.tolist() == [documents.index("d1"), documents.index("d8")]
    assert len(training_rows(small, rated, max_positives=1)) == 2, "both have labels in test, and are not trained on"


def test_a_best_candidate_outside_the_collection_is_left_out_and_counted(small):
    table = negatives_table(["q4", "q4", "q5", "q5"], ["new", "d3", "d8", "d9"], "s", [0, 1, 0, 1], np.zeros(4))
    own = table.append_column("text", pa.array(["a text of its own", None, None, None], pa.large_string()))
    rated = Negatives(own).reject(np.isin(np.arange(4), [0, 2]), TOP)
    rows = training_rows(Collection("none", small.documents, small.queries, {}), rated)
    assert (len(rows), rows.unlabelled, rows.outside) == (1, 1, 1)
