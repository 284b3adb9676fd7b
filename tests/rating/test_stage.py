import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from judging import NumberJudge, rate_negatives

from foils.data import Collection, Negatives
from foils.rating import ELO_PER_LOGIT
from foils.runtime.errors import InputError, UnknownNameError


def collection():
    documents = {f"d{i}": str(float(i)) for i in range(12)}
    qrels = {"train": {"q0": {"d11": 1, "d2": 1}, "q1": {"d5": 1}}, "test": {"q2": {"d3": 1}}}
    return Collection.from_dicts("numbers", documents, {f"q{i}": f"query {i}" for i in range(3)}, qrels)


def table(rows):
    queries, documents = zip(*rows, strict=True)
    return Negatives(
        pa.table(
            {
                "query_id": list(queries),
                "doc_id": list(documents),
                "source": ["s"] * len(rows),
                "rank": list(range(len(rows))),
                "score": [0.5] * len(rows),
            }
        )
    )


def rows():
    return [(f"q{i % 2}", f"d{d}") for d in (0, 1, 3, 4, 6, 7, 8, 9, 10) for i in (0, 1)]


def column(rated, name):
    """Of the rows that were given: those of positives come after them."""
    found = rated.table
    return found.filter(pc.not_equal(found["source"], "labels"))[name].to_numpy()


def test_gaps_are_the_planted_ones_in_elo_points():
    rated = rate_negatives(
        collection(), table(rows()), NumberJudge(), split="train", degree=4, model="bradley-terry", prior_sd=1e4
    )
    positive = {"q0": 11.0, "q1": 5.0}
    expected = [positive[q] - float(d[1:]) for q, d in rows()]
    np.testing.assert_allclose(column(rated, "gap"), np.array(expected) * ELO_PER_LOGIT, rtol=1e-3, atol=0.1)
    of_positive = column(rated, "elo") + column(rated, "gap")
    assert len(set(of_positive.round(6))) == 2
    everyone = np.append(column(rated, "elo")[::2], of_positive[0])
    assert everyone.mean() == pytest.approx(1500)
    assert (column(rated, "elo_se") > 0).all()
    assert (column(rated, "gap_se") > 0).all()
    assert (column(rated, "gap_se") != column(rated, "elo_se")).all()
    assert len(rated.pairs) == rated.summary.comparisons
    lead = np.array([float(text) for text in rated.candidates.texts(np.arange(20))])
    lead = lead[rated.pairs.first] - lead[rated.pairs.second]
    np.testing.assert_allclose(rated.preference, 1 / (1 + np.exp(-lead)))
    assert rated.summary.queries == 2
    assert rated.summary.comparisons == 2 * 10 * 4 // 2
    assert rated.summary.unrated == rated.summary.missing == 0
    assert rated.summary.connectivity > 0


def test_every_rated_positive_has_one_row_with_its_own_rating():
    """Document i has the strength i: with all pairs asked, its Elo is i logits and a constant of the query."""
    given = table([*rows(), ("q0", "d2")])  # q0's second positive was mined, too
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
    given = table([*rows(), ("q2", "d0"), ("q0", "d2")]).reject(np.arange(20) == 0, "too easy")
    rated = rate_negatives(collection(), given, NumberJudge(), split="train")
    assert rated.summary.skipped == {
        "rejected before": 2,  # the positive in the table is one
        "query whose positives are in other splits": 1,
    }
    np.testing.assert_array_equal(np.isnan(column(rated, "gap")), [i in (0, 18, 19) for i in range(20)])
    with pytest.raises(InputError, match="no row to rate: 1 query whose positives are in other splits; is 'train' the"):
        rate_negatives(collection(), table([("q2", "d0")]), NumberJudge(), split="train")
    with pytest.raises(InputError, match="no row to rate: the table has no rows; rate a table with negatives"):
        rate_negatives(collection(), Negatives(table(rows()).table.slice(0, 0)), NumberJudge(), split="train")


def test_a_text_of_its_own_is_what_the_judge_reads():
    base = table([("q0", "made up"), ("q0", "d3"), ("q0", "d4")])
    own = Negatives(base.table.append_column("text", pa.array(["20.0", None, None], pa.large_string())))
    rated = rate_negatives(collection(), own, NumberJudge(), split="train")
    gap = column(rated, "gap")
    assert gap[0] < 0 < gap[2] < gap[1]
    assert list(rated.candidates.doc_ids) == ["made up", "d3", "d4", "d11"] == list(rated.candidates.doc_ids[:])
    assert rated.candidates.texts(np.array([3, 0, 1])) == ["11.0", "20.0", "3.0"]
    assert rated.candidates.ids([1, 0]).to_pylist() == ["d3", "made up"]


def test_a_negative_that_never_met_its_positive_has_no_gap():
    # degree 2 on four candidates is a cycle; every judgement of the positive fails
    pairs = [(a, b) for a in ("d0", "d1", "d3") for b in ("d11",)]
    judge = NumberJudge(fail=[*pairs, *[(b, a) for a, b in pairs]])
    rated = rate_negatives(collection(), table([("q0", "d0"), ("q0", "d1"), ("q0", "d3")]), judge, split="train")
    assert np.isnan(column(rated, "gap")).all()
    assert np.isfinite(column(rated, "elo")).all()
    assert rated.summary.unrated == 3
    assert rated.summary.missing == 3


@pytest.mark.parametrize("validate", ["borderline", "all"])
def test_direct_preferences_of_the_positive(validate):
    judge = NumberJudge()
    near = [("q0", "d10"), ("q0", "d9"), ("q0", "d0"), ("q0", "d1")]
    rated = rate_negatives(collection(), table(near), judge, split="train", validate=validate, model="bradley-terry")
    preference, plain = (
        column(rated, "preference"),
        rate_negatives(collection(), table(near), judge, model="bradley-terry"),
    )
    known = [True] * 4 if validate == "all" else ((column(plain, "gap") >= 80) & (column(plain, "gap") <= 150)).tolist()
    np.testing.assert_array_equal(np.isfinite(preference), known)
    assert sum(known) in (0, 4) or validate == "borderline"
    if validate == "all":
        np.testing.assert_allclose(preference, 1 / (1 + np.exp(-(11 - np.array([10, 9, 0, 1.0])))))
    plain = rate_negatives(collection(), table(near), judge, split="train")
    assert "preference" not in plain.table.column_names


def test_direct_answers_enter_the_fit_and_none_is_asked_twice():
    """The positive's pairs that the graph left out are asked; ratings come nearer to those of all pairs."""

    class Rough(NumberJudge):
        def judge(self, candidates, pairs):
            return np.round(super().judge(candidates, pairs), 1)

    few = [("q1", f"d{i}") for i in (0, 1, 3, 4, 6, 7)]
    fixed = {"prior_sd": 1.0, "split": "train"}
    judge, every = Rough(antisymmetric=True), Rough(antisymmetric=True)
    direct = rate_negatives(collection(), table(few), judge, degree=4, validate="all", **fixed)
    whole = rate_negatives(collection(), table(few), every, degree=6, **fixed)
    graph = rate_negatives(collection(), table(few), Rough(), degree=4, **fixed)
    assert len(direct.pairs) == judge.asked == 14 + 2  # four of the positive's six pairs are in the graph
    asked = {frozenset(pair) for pair in zip(direct.pairs.first.tolist(), direct.pairs.second.tolist(), strict=True)}
    assert len(asked) == 16
    error = [np.abs(column(one, "gap") - column(whole, "gap")).mean() for one in (direct, graph)]
    assert error[0] < error[1]
    assert (column(direct, "gap_se") < column(graph, "gap_se")).all()
    np.testing.assert_allclose(
        column(direct, "preference"), np.round(1 / (1 + np.exp(np.array([0, 1, 3, 4, 6, 7]) - 5)), 1)
    )


@pytest.mark.parametrize(
    "setting", [{"model": "bradley-terry"}, {"degree": 4}, {"prior_sd": 0.3}, {"rounds": 2}, {"seed": 1}]
)
def test_every_setting_changes_the_ratings(setting):
    class Rough(NumberJudge):
        def judge(self, candidates, pairs):
            return np.round(super().judge(candidates, pairs), 1)

    base = {"split": "train", "degree": 2}
    plain = rate_negatives(collection(), table(rows()), Rough(), **base)
    other = rate_negatives(
        collection(),
        table(rows()),
        Rough(),
        **{**base, "degree": 4, **setting} if "rounds" in setting else {**base, **setting},
    )
    assert np.abs(column(plain, "gap") - column(other, "gap")).max() > 1


def test_a_record_is_resumed_and_gives_the_same_table(tmp_path):
    judge = NumberJudge()
    first = rate_negatives(collection(), table(rows()), judge, judgements=tmp_path)
    asked = judge.asked
    again = rate_negatives(collection(), table(rows()), judge, judgements=tmp_path)
    assert judge.asked == asked
    anew = rate_negatives(collection(), table(rows()), NumberJudge())
    assert repr(first.table.to_pylist()) == repr(again.table.to_pylist()) == repr(anew.table.to_pylist())


def test_unknown_names_are_listed():
    with pytest.raises(UnknownNameError, match="bradley-terry, thurstone"):
        rate_negatives(collection(), table(rows()), NumberJudge(), split="train", model="elo")
    with pytest.raises(UnknownNameError, match="borderline"):
        rate_negatives(collection(), table(rows()), NumberJudge(), split="train", validate="some")
