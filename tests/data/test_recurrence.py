"""How often documents recur, against cases counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from foils.data import Collection
from foils.data.splitting import expected_recurrence, recurrence
from foils.runtime.errors import UnknownNameError

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
