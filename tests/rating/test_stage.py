from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from foils.data import Negatives
from foils.data.collection import ALL_QUERIES
from foils.data.negatives import TOP
from foils.rating import Rated, session
from foils.rating.judges import Judge
from foils.runtime.errors import InputError
from foils.selection.doors import select
from foils.statistics.elo_scale import ELO_PER_LOGIT
from judging import NumberJudge, listed, numbers, rate_negatives

JUDGED = {"train": {"q0": {"d11": 1, "d2": 1}, "q1": {"d5": 1}}, "test": {"q2": {"d3": 1}}}
EXACT = {"degree": 10, "model": "bradley-terry", "prior_sd": 1e4}  # all pairs, and next to no prior


def collection(qrels=JUDGED):
    return numbers({f"d{i}": i for i in range(12)}, 3, qrels)


def rows():
    return [(f"q{i % 2}", f"d{d}") for d in (0, 1, 3, 4, 6, 7, 8, 9, 10) for i in (0, 1)]


def column(rated, name):
    """Of the rows that were given: those of positives come after them."""
    found = rated.table
    return found.filter(pc.not_equal(found["source"], "labels"))[name].to_numpy()


def test_gaps_are_the_planted_ones_in_elo_points():
    rated = rate_negatives(
        collection(), listed(rows()), NumberJudge(), split="train", degree=4, model="bradley-terry", prior_sd=1e4
    )
    positive = {"q0": 11.0, "q1": 5.0}
    expected = [positive[q] - float(d[1:]) for q, d in rows()]
    np.testing.assert_allclose(column(rated, "gap"), np.array(expected) * ELO_PER_LOGIT, rtol=1e-3, atol=0.1)
    assert (column(rated, "gap_se") > 0).all()
    assert len(rated.pairs) == rated.summary["comparisons"]
    lead = np.array([float(text) for text in rated.candidates.texts(np.arange(20))])
    lead = lead[rated.pairs.first] - lead[rated.pairs.second]
    np.testing.assert_allclose(rated.judgements.preference, 1 / (1 + np.exp(-lead)))
    assert rated.summary["queries"] == 2
    assert rated.summary["comparisons"] == 2 * 10 * 4 // 2
    assert rated.summary["unrated"] == rated.summary["missing"] == 0
    assert rated.summary["connectivity"] > 0


def test_every_rated_positive_has_one_row_with_its_own_rating():
    """Document i has the strength i: with all pairs asked, its Elo is i logits and a constant of the query."""
    given = listed([*rows(), ("q0", "d2")])  # q0's second positive was mined, too
    rated = rate_negatives(
        collection(), given, NumberJudge(), split="train", degree=10, model="bradley-terry",
        prior_sd=1e4,
    )  # fmt: skip
    made = rated.table.to_pylist()
    assert rated.table.select(given.table.column_names).slice(0, len(given)).equals(given.table)
    mined, *added = made[len(given) - 1 :]
    assert [(row["query_id"], row["doc_id"]) for row in added] == [("q0", "d11"), ("q1", "d5")]
    assert {(row["source"], row["keep"], row["reason"]) for row in added} == {("labels", False, "labelled positive")}
    assert np.isnan(mined["elo"])
    assert np.isnan([row[name] for row in [mined, *added] for name in ("gap", "gap_se")]).all()
    for query in ("q0", "q1"):
        of = [row for row in made if row["query_id"] == query and np.isfinite(row["elo"])]
        strengths, elo = np.array([(float(row["doc_id"][1:]), row["elo"]) for row in of]).T
        np.testing.assert_allclose(elo - 1500, ELO_PER_LOGIT * (strengths - strengths.mean()), atol=0.5)
        assert all(row["elo_se"] > 0 for row in of)


def test_rejected_rows_other_splits_and_positives_are_not_rated():
    given = listed([*rows(), ("q2", "d0"), ("q0", "d2")]).reject(np.arange(20) == 0, "too easy")
    rated = rate_negatives(collection(), given, NumberJudge(), split="train")
    assert rated.summary["skipped"] == {
        "rejected before": 2,  # the positive in the table is one
        "query whose positives are in other splits": 1,
    }
    np.testing.assert_array_equal(np.isnan(column(rated, "gap")), [i in (0, 18, 19) for i in range(20)])
    with pytest.raises(InputError, match="no row to rate: 1 query whose positives are in other splits; is 'train' the"):
        rate_negatives(collection(), listed([("q2", "d0")]), NumberJudge(), split="train")
    with pytest.raises(InputError, match="no row to rate: the table has no rows; rate a table with negatives"):
        rate_negatives(collection(), Negatives(listed(rows()).table.slice(0, 0)), NumberJudge(), split="train")


def test_a_text_of_its_own_is_what_the_judge_reads():
    base = listed([("q0", "made up"), ("q0", "d3"), ("q0", "d4")])
    own = Negatives(base.table.append_column("text", pa.array(["20.0", None, None], pa.large_string())))
    rated = rate_negatives(collection(), own, NumberJudge(), split="train")
    gap = column(rated, "gap")
    assert gap[0] < 0 < gap[2] < gap[1]
    assert rated.candidates.doc_ids.to_pylist() == ["made up", "d3", "d4", "d11"]
    assert rated.candidates.texts(np.array([3, 0, 1])) == ["11.0", "20.0", "3.0"]
    assert rated.candidates.ids([1, 0]).to_pylist() == ["d3", "made up"]


def test_a_negative_that_never_met_its_positive_has_no_gap():
    # degree 2 on four candidates is a cycle; every judgement of the positive fails
    pairs = [(a, b) for a in ("d0", "d1", "d3") for b in ("d11",)]
    judge = NumberJudge(fail=[*pairs, *[(b, a) for a, b in pairs]])
    rated = rate_negatives(collection(), listed([("q0", "d0"), ("q0", "d1"), ("q0", "d3")]), judge, split="train")
    assert np.isnan(column(rated, "gap")).all()
    assert np.isfinite(column(rated, "elo")).all()
    assert rated.summary["unrated"] == 3
    assert rated.summary["missing"] == 3


def test_direct_preferences_of_the_positive():
    near = listed([("q0", "d10"), ("q0", "d9"), ("q0", "d0"), ("q0", "d1")])
    plain, some, every = (
        rate_negatives(collection(), near, NumberJudge(), validate=how, model="bradley-terry")
        for how in ("none", "borderline", "all")
    )
    assert "preference" not in plain.table.column_names
    borderline = (column(plain, "gap") >= 80) & (column(plain, "gap") <= 150)
    np.testing.assert_array_equal(np.isfinite(column(some, "preference")), borderline)
    np.testing.assert_allclose(column(every, "preference"), 1 / (1 + np.exp(-(11 - np.array([10, 9, 0, 1.0])))))


def test_direct_answers_enter_the_fit_and_none_is_asked_twice():
    """The positive's pairs that the graph left out are asked; ratings come nearer to those of all pairs."""

    class Rough(NumberJudge):
        def judge(self, candidates, pairs):
            return np.round(super().judge(candidates, pairs), 1)

    few = [("q1", f"d{i}") for i in (0, 1, 3, 4, 6, 7)]
    fixed = {"prior_sd": 1.0, "split": "train"}
    judge, every = Rough(antisymmetric=True), Rough(antisymmetric=True)
    direct = rate_negatives(collection(), listed(few), judge, degree=4, validate="all", **fixed)
    whole = rate_negatives(collection(), listed(few), every, degree=6, **fixed)
    graph = rate_negatives(collection(), listed(few), Rough(), degree=4, **fixed)
    assert len(direct.pairs) == judge.asked == 14 + 2  # four of the positive's six pairs are in the graph
    asked = {frozenset(pair) for pair in zip(direct.pairs.first.tolist(), direct.pairs.second.tolist(), strict=True)}
    assert len(asked) == 16
    error = [np.abs(column(one, "gap") - column(whole, "gap")).mean() for one in (direct, graph)]
    assert error[0] < error[1]
    assert (column(direct, "gap_se") < column(graph, "gap_se")).all()
    np.testing.assert_allclose(
        column(direct, "preference"), np.round(1 / (1 + np.exp(np.array([0, 1, 3, 4, 6, 7]) - 5)), 1)
    )


def test_the_top_candidate_is_what_gaps_are_held_against():
    """Document i has the strength i: q0 has a labelled positive, d11, q1 has none, and d9 is its best."""
    given = listed([("q0", "d4"), ("q1", "d2"), ("q1", "d9"), ("q0", "d1"), ("q1", "d6")])
    rated = rate_negatives(collection({"train": {"q0": {"d11": 1}}}), given, NumberJudge(), validate="all", **EXACT)
    rows = rated.table.to_pylist()
    np.testing.assert_allclose([row["gap"] / ELO_PER_LOGIT for row in rows], [7, 7, np.nan, 10, 3, np.nan], rtol=1e-3)
    np.testing.assert_allclose(rows[4]["preference"], 1 / (1 + np.exp(-3)))
    assert [row["reason"] for row in rows] == [None, None, TOP, None, None, "labelled positive"]
    assert all(np.isfinite([row["elo"], row["elo_se"]]).all() for row in rows)
    assert np.isnan(rows[2]["gap_se"])
    summary = rated.summary
    assert (summary["queries"], summary["without_positive"]) == (2, 1)
    assert (summary["unrated"], summary["skipped"]) == (0, {})
    assert "of them without a positive" in str(rated)


@pytest.mark.parametrize("split", ["train", ALL_QUERIES])
def test_a_collection_without_judgements_is_rated_with_any_split(split):
    given = listed([*((f"q{i % 3}", f"d{i}") for i in range(9)), ("q2", "d10")])
    rated = rate_negatives(collection({}), given, NumberJudge(), split=split, **EXACT)
    assert rated.summary["without_positive"] == 3
    assert sorted(zip(*rated.kept().select(["query_id", "doc_id"]).to_pydict().values(), strict=True)) == [
        ("q0", "d0"), ("q0", "d3"), ("q1", "d1"), ("q1", "d4"), ("q2", "d2"), ("q2", "d5"), ("q2", "d8"),
    ]  # fmt: skip
    chosen = select(Negatives(rated.table))
    assert chosen.keep.sum() == 7
    assert set(chosen.table["reason"].to_pylist()) == {None, TOP}


def test_all_splits_together_have_every_positive():
    judged = collection({"train": {"q0": {"d11": 1}}, "test": {"q1": {"d5": 1, "d6": 0}}})
    given = listed([("q0", "d4"), ("q1", "d2"), ("q1", "d6"), ("q2", "d7"), ("q2", "d3")])
    alone = rate_negatives(judged, given, NumberJudge(), **EXACT)
    assert alone.summary["skipped"] == {"query whose positives are in other splits": 2}
    both = rate_negatives(judged, given, NumberJudge(), split=ALL_QUERIES, **EXACT)
    assert (both.summary["queries"], both.summary["without_positive"], both.summary["skipped"]) == (3, 1, {})
    np.testing.assert_allclose(both.table["gap"].to_numpy()[1:3] / ELO_PER_LOGIT, [3, -1], rtol=1e-3)


def test_a_query_of_one_candidate_has_no_rating_and_no_top():
    rated = rate_negatives(collection({}), listed([("q0", "d1"), ("q1", "d1"), ("q1", "d2")]), NumberJudge(), **EXACT)
    rows = rated.table.to_pylist()
    assert np.isnan(rows[0]["elo"])
    assert [row["reason"] for row in rows] == [None, None, TOP]
    assert rated.summary["unrated"] == 1


# What was answered is not asked for again when queries or candidates grow


COLLECTION = numbers({f"d{i}": i / 10 for i in range(40)}, 4)


def rated(judge: Judge | list[NumberJudge], sizes: dict[str, int], **settings: Any) -> Rated:
    pairs = [(query, f"d{i}") for query, n in sizes.items() for i in range(n)]
    return rate_negatives(COLLECTION, listed(pairs), judge, **settings)


def questions(judge: NumberJudge, sizes: dict[str, int], folder: Path, **settings: Any) -> int:
    before = judge.asked
    rated(judge, sizes, cache=folder, **settings)
    return judge.asked - before


def test_growth_costs_what_is_new(tmp_path):
    judge = NumberJudge(antisymmetric=True)
    assert questions(judge, {"q1": 20}, tmp_path) == 60
    assert questions(judge, {"q0": 20, "q1": 20, "q2": 12}, tmp_path) == 60 + 36
    assert questions(judge, {"q0": 21, "q1": 20, "q2": 12}, tmp_path) <= 15  # 63 pairs, six of them of the new one
    assert questions(judge, {"q2": 12, "q1": 20}, tmp_path, degree=4) == 0  # fewer cycles are the first ones


def test_a_stopped_run_ends_with_the_same_table(tmp_path, monkeypatch):
    sizes, settings = {"q0": 20, "q1": 15}, {"cache": tmp_path / "part"}
    monkeypatch.setattr(session, "BLOCK", 10)
    whole = rated(NumberJudge(), sizes, cache=tmp_path / "whole")
    first, second = NumberJudge(most=61), NumberJudge()
    with pytest.raises(KeyboardInterrupt):
        rated(first, sizes, **settings)
    again = rated(second, sizes, **settings)
    assert again.digest == whole.digest
    assert first.asked > 0
    assert first.asked + second.asked == 2 * len(whole.pairs), "nothing is asked twice"
