"""Which rows are trained on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from foils.data import Collection, Negatives
from foils.data.negatives import TOP, negatives_table
from foils.data.training_rows import training_rows
from foils.runtime.errors import InputError

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
    with pytest.raises(InputError, match="no query of small's split 'train' has a kept negative"):
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
