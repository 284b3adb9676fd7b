"""Queries without a labelled positive are rated, too: their gaps are against the candidate rated best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judging import NumberJudge, rate_negatives

from foils.data import Collection, Negatives
from foils.data.collection import ALL_QUERIES
from foils.data.negatives import TOP, negatives_table
from foils.rating import ELO_PER_LOGIT
from foils.runtime.errors import InputError, UnknownNameError
from foils.selection.doors import select

DOCUMENTS = {f"d{i}": str(float(i)) for i in range(12)}
EXACT: dict[str, Any] = {"degree": 10, "model": "bradley-terry", "prior_sd": 1e4}  # all pairs, and next to no prior


def collection(qrels: dict[str, dict[str, dict[str, int]]]) -> Collection:
    return Collection.from_dicts("numbers", DOCUMENTS, {f"q{i}": f"query {i}" for i in range(3)}, qrels)


def table(*pairs: tuple[str, str]) -> Negatives:
    queries, documents = zip(*pairs, strict=True)
    return Negatives(negatives_table(list(queries), list(documents), "s", range(len(pairs)), [0.5] * len(pairs)))


def test_the_top_candidate_is_what_gaps_are_held_against() -> None:
    """Document i has the strength i: q0 has a labelled positive, d11, q1 has none, and d9 is its best."""
    given = table(("q0", "d4"), ("q1", "d2"), ("q1", "d9"), ("q0", "d1"), ("q1", "d6"))
    rated = rate_negatives(collection({"train": {"q0": {"d11": 1}}}), given, NumberJudge(), validate="all", **EXACT)
    rows = rated.table.to_pylist()
    np.testing.assert_allclose([row["gap"] / ELO_PER_LOGIT for row in rows], [7, 7, np.nan, 10, 3, np.nan], rtol=1e-3)
    np.testing.assert_allclose(rows[4]["preference"], 1 / (1 + np.exp(-3)))
    assert [row["reason"] for row in rows] == [None, None, TOP, None, None, "labelled positive"]
    assert all(np.isfinite([row["elo"], row["elo_se"]]).all() for row in rows)
    assert np.isnan(rows[2]["gap_se"])
    summary = rated.summary
    assert (summary.queries, summary.without_positive, summary.unrated, summary.skipped) == (2, 1, 0, {})
    assert "of them without a positive" in str(rated)


@pytest.mark.parametrize("split", ["train", ALL_QUERIES])
def test_a_collection_without_judgements_is_rated_with_any_split(split: str) -> None:
    given = table(*[(f"q{i % 3}", f"d{i}") for i in range(9)], ("q2", "d10"))
    rated = rate_negatives(collection({}), given, NumberJudge(), split=split, **EXACT)
    assert rated.summary.without_positive == 3
    assert sorted(zip(*rated.kept().select(["query_id", "doc_id"]).to_pydict().values(), strict=True)) == [
        ("q0", "d0"), ("q0", "d3"), ("q1", "d1"), ("q1", "d4"), ("q2", "d2"), ("q2", "d5"), ("q2", "d8"),
    ]  # fmt: skip
    chosen = select(Negatives(rated.table))
    assert chosen.keep.sum() == 7
    assert set(chosen.table["reason"].to_pylist()) == {None, TOP}


def test_all_splits_together_have_every_positive() -> None:
    judged = collection({"train": {"q0": {"d11": 1}}, "test": {"q1": {"d5": 1, "d6": 0}}})
    given = table(("q0", "d4"), ("q1", "d2"), ("q1", "d6"), ("q2", "d7"), ("q2", "d3"))
    alone = rate_negatives(judged, given, NumberJudge(), **EXACT)
    assert alone.summary.skipped == {"query whose positives are in other splits": 2}
    both = rate_negatives(judged, given, NumberJudge(), split=ALL_QUERIES, **EXACT)
    assert (both.summary.queries, both.summary.without_positive, both.summary.skipped) == (3, 1, {})
    np.testing.assert_allclose(both.table["gap"].to_numpy()[1:3] / ELO_PER_LOGIT, [3, -1], rtol=1e-3)


def test_a_collection_whose_judgements_are_of_the_test_alone_is_rated_without_them() -> None:
    judged = collection({"test": {"q1": {"d5": 1}}})
    given = table(("q0", "d4"), ("q1", "d2"), ("q0", "d6"), ("q1", "d3"))
    rated = rate_negatives(judged, given, NumberJudge(), **EXACT)
    assert rated.summary.skipped == {"query whose positives are in other splits": 2}
    np.testing.assert_array_equal(np.isfinite(rated.table["elo"].to_numpy()), [True, False, True, False])
    with pytest.raises(UnknownNameError, match="dev"):
        rate_negatives(judged, given, NumberJudge(), split="dev", **EXACT)


def test_a_query_of_one_candidate_has_no_rating_and_no_top() -> None:
    rated = rate_negatives(collection({}), table(("q0", "d1"), ("q1", "d1"), ("q1", "d2")), NumberJudge(), **EXACT)
    rows = rated.table.to_pylist()
    assert np.isnan(rows[0]["elo"])
    assert [row["reason"] for row in rows] == [None, None, TOP]
    assert rated.summary.unrated == 1


def test_what_stands_for_every_query_is_no_split_of_judgements() -> None:
    judged = collection({"train": {"q1": {"d1": 1}, "q0": {"d2": 1}}})
    np.testing.assert_array_equal(judged.queries_of("train"), [1, 0])
    np.testing.assert_array_equal(judged.queries_of(ALL_QUERIES), [0, 1, 2])
    with pytest.raises(InputError, match="name a split"):
        judged.positives(ALL_QUERIES)
    named = collection({ALL_QUERIES: {"q1": {"d1": 1}}})
    np.testing.assert_array_equal(named.queries_of(ALL_QUERIES), [1])
    assert len(named.labels(ALL_QUERIES)) == len(named.positives(ALL_QUERIES)) == 1
