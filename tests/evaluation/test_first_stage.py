"""Runs of a first stage: BM25's of a split, and the first documents of any."""

from __future__ import annotations

import numpy as np
import pytest

from foils.data import Collection, Run
from foils.evaluation import bm25_run, first_documents, rankings_of
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError

TEXTS = {"d0": "red apple", "d1": "green apple tree", "d2": "blue sky", "q1": "apple apple", "d3": "stone"}
WORLD = Collection.from_dicts(
    "w", TEXTS, {"q0": "red apple", "q1": "apple tree", "q2": "nothing alike"},
    {"train": {"q0": {"d0": 1}}, "test": {"q1": {"d1": 1}, "q0": {"d0": 1}, "q2": {"d2": 1}}},
)  # fmt: skip


def test_a_bm25_run_has_the_retrievers_order_and_scores_for_the_queries_of_the_split():
    run = bm25_run(WORLD, "test")
    assert list(rankings_of(run)) == ["q1", "q0"]  # q2 shares no term with any document
    rows, scores = BM25Retriever(WORLD).search(np.array([0]), 5)
    there = rows[0] >= 0
    own = [row for row in run.table.to_pylist() if row["query_id"] == "q0"]
    assert [each["doc_id"] for each in own] == WORLD.documents["doc_id"].take(rows[0][there]).to_pylist()
    assert [each["score"] for each in own] == pytest.approx(scores[0][there])


def test_the_document_of_the_querys_own_id_is_left_out_before_the_first_are_counted():
    assert "q1" not in rankings_of(bm25_run(WORLD, "test"))["q1"]
    assert len(rankings_of(bm25_run(WORLD, "test", depth=2))["q1"]) == 2
    with pytest.raises(InputError, match="depth 0"):
        bm25_run(WORLD, "test", depth=0)


def test_first_documents_are_those_of_the_split():
    run = Run.from_dict({"q0": {"d0": 3.0, "d1": 2.0, "d2": 1.0}, "q1": {"q1": 3.0, "d1": 2.0, "d2": 1.0}})
    assert rankings_of(first_documents(run, WORLD, 2)) == {"q0": ["d0", "d1"], "q1": ["d1", "d2"]}
    assert list(rankings_of(first_documents(run, WORLD, 2, split="train"))) == ["q0"]
    with pytest.raises(InputError, match="no query of the split 'train'"):
        first_documents(Run.from_dict({"q1": {"d1": 1.0}}), WORLD, 2, split="train")
