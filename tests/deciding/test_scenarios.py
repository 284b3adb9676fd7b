"""Decisions worked by hand: benefits that are given, and what is chosen, compared, asked for and said."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from foils.data import Negatives
from foils.data.negatives import negatives_table
from foils.deciding.benefit import FORM, Basis
from foils.deciding.decision import GRID, TAILS, Belief, Resampling, Weighed, choose
from foils.deciding.results import BeliefSettings, Candidate
from foils.deciding.unlabelled import Pooling
from foils.scoring import ScoreSettings

UNLABELLED = np.linspace(0.0, 4.0, GRID)
# Points of an able encoder are 1.68·√B: B of .64 is worth 1.344 points, .36 1.008, .25 .84, .09 .504, .01 .168.


def source(method: str, per_query: int = 4) -> Negatives:
    """A table that `method` mined, of two queries."""
    queries = pa.array([name for name in ("q1", "q2") for _ in range(per_query)])
    documents = pa.array([f"d{row}" for row in range(2 * per_query)])
    ranks = np.tile(np.arange(per_query), 2)
    return Negatives(negatives_table(queries, documents, method, ranks, np.zeros(2 * per_query)))


def weighed(name, benefits, *, rate=0.0, errors=(0.0, 0.0), drawn=None, shares=None, at_bound=False, starts="encoder"):
    """What a source is worth at o = 0, 2 and 4, straight lines between; `rate` is its share of answers for each o.

    It is judged at o = 2 or at the bound; after labels, by the benefits and `shares` of the draws.
    """
    on_grid = np.interp(UNLABELLED, [0, 2, 4], benefits)
    draws = np.repeat(on_grid[:, None], len(errors), axis=1) if drawn is None else np.array([drawn])
    benefit = on_grid[-1 if at_bound else GRID // 2] if shares is None else draws.mean()
    low, high = (0.0, 4 * rate) if shares is None else np.quantile(shares, TAILS)
    candidate = Candidate(
        name=name,
        records=2,
        benefit=benefit,
        benefit_low=draws.min(),
        benefit_high=draws.max(),
        strength=1.0,
        learnability=1.0,
        gain=float(FORM[starts].mean(benefit)),
        false_share=np.nan if shares is None else np.mean(shares),
        false_share_low=low,
        false_share_high=high,
    )
    gains = FORM[starts].drawn(draws, np.zeros(len(errors)), np.array(errors))
    return Weighed(candidate, on_grid, rate * UNLABELLED, draws, gains)


def decided(*candidates, queries=800, pooled="", ends=False, allowed=None, starts="encoder", methods=None):
    """Choose between candidates whose benefits are given, none among them, and say it."""
    labelled = not np.isnan(candidates[0].candidate.false_share)
    draws = candidates[0].drawn.shape[1]
    nothing = weighed(
        "none", (0, 0, 0), errors=[0.0] * draws, drawn=[0.0] * draws if labelled else None,
        shares=[0.0] * draws if labelled else None,
    )  # fmt: skip
    of = {each.candidate.name: each for each in (*candidates, nothing)}
    tables = {name: source((methods or {}).get(name, name)) for name in of if name != "none"}
    nobody = np.zeros(0, np.int64)
    records = SimpleNamespace(names=("random",), members=nobody, record=nobody)
    measured = SimpleNamespace(records=records, similarities=SimpleNamespace(s_n=nobody), s_p=nobody)
    belief = Belief(
        {}, np.zeros(0), UNLABELLED, Pooling(pooled, ends, depth=10 if pooled else 0),
        after=SimpleNamespace() if labelled else None, judged=60 if labelled else 0,
    )  # fmt: skip
    basis = Basis(measured, np.zeros(0), np.zeros(0), 0.05, 1.0)
    settings = BeliefSettings(starts=starts)
    drawn = SimpleNamespace(trained=queries, settings=settings, scoring=ScoreSettings(), sources=tables)
    return choose(drawn, of, belief, basis, allowed)


def test_the_largest_benefit_is_chosen_and_its_points_are_said():
    decision = decided(weighed("dense", (0.64, 0.64, 0.64), rate=0.01), weighed("far", (0.25, 0.25, 0.25)))
    assert (decision.source, decision.runner_up, decision.ties, decision.label_next) == ("dense", "far", (), 0)
    assert [round(each.gain, 3) for each in decision.candidates] == [1.344, 0.84, 0.0]
    assert [each.verdict for each in decision.candidates] == ["good", "worse", "worse"]
    assert decision.candidates[0].false_share_high == pytest.approx(0.04)
    assert decision.sentence == (
        "Train on dense: +1.3 points of nDCG@10 [1.3, 1.3] over in-batch negatives alone (800 queries), if the labels "
        "were not pooled: no possible share of unlabelled answers changes the choice."
    )
    assert decision.cautions == ()


@pytest.mark.parametrize(("cheap", "chosen"), [(0.61, "bm25"), (0.60, "dense")])
def test_a_cheaper_source_that_loses_less_than_a_twentieth_is_chosen(cheap, chosen):
    """0.95 · 0.64 = 0.608."""
    decision = decided(weighed("dense", (0.64,) * 3), weighed("bm25", (cheap,) * 3))
    assert decision.source == chosen


def test_a_choice_with_two_ends_says_both():
    """dense is worth .36 throughout, few .56 − .2·o up to o = 2, far .36·(o − 2) beyond it; φ of dense is .05·o.

    A loss of a twentieth is tolerated: few leads by that below o = .9, where it is worth .38, far beyond 3.1, by .396.
    """
    decision = decided(
        weighed("dense", (0.36, 0.36, 0.36), rate=0.05),
        weighed("few", (0.56, 0.16, 0.16), rate=0.01),
        weighed("far", (0.0, 0.0, 0.72), rate=0.001),
    )
    assert decision.source == "dense"
    below, above = decision.turns_below, decision.turns_at
    assert (below.source, below.unlabelled) == ("few", pytest.approx(0.9))
    assert (above.source, above.unlabelled) == ("far", pytest.approx(3.1))
    assert "as long as between 4.5 and 16 % of it are unlabelled answers; below that, few; beyond that, far." in (
        decision.sentence
    )
    # at o = 4 far is worth 1.426 points and dense 1.008: the choice may lose .42
    assert decision.label_next == 60


@pytest.mark.parametrize(
    ("last", "advice"),
    [
        (0.09, "Labels would hardly change that; more pairs would, or to train on both (foils study)."),
        (0.01, "To tell, judge 60 of the negatives (foils label, or --labels-by), or add pairs."),
    ],
)
def test_a_tie_does_not_say_train_on_and_says_what_to_do(last, advice):
    """The form errs by ±4 · .34 points for dense, whose gain is .504; far is worth .42."""
    dense, far = weighed("dense", (0.09, 0.09, last), errors=(-4.0, 4.0)), weighed("far", (0.0625,) * 3)
    decision = decided(dense, far)
    assert (decision.source, decision.ties, decision.tied) == ("dense", ("far", "none"), True)
    # quantiles .025 and .975 of two draws lie .95 of the way out: .504 ± .95 · 1.36, or .168 − .95 · 1.36 at the bound
    assert decision.candidates[0].gain_low == pytest.approx(1.68 * np.sqrt(last) - 1.292)
    low = {0.09: "-0.8", 0.01: "-1.1"}[last]
    assert decision.sentence.startswith(
        f"A tie: dense is expected to gain +0.5 points of nDCG@10 [{low}, 1.8] over in-batch negatives alone "
        "(800 queries)"
    )
    assert "Train on" not in decision.sentence
    assert decision.label_next == (60 if last == 0.01 else 0)  # far is worth .42 points, .252 more than dense there
    caution = "In-batch negatives alone are the simplest choice and may do as well as dense. "
    assert decision.cautions == (caution + advice,)
    assert decision.cautions[0] in decision.table().caption


@pytest.mark.parametrize(("queries", "few"), [(5, True), (49, True), (50, False)])
@pytest.mark.parametrize("errors", [(0.0, 0.0), (-4.0, 4.0)])
def test_few_pairs_are_a_guess_whatever_the_interval(queries, few, errors):
    sentence = decided(weighed("dense", (0.09,) * 3, errors=errors), queries=queries).sentence
    start = f"Too few pairs to tell ({queries} queries); as a guess, dense: +0.5 points of nDCG@10"
    assert sentence.startswith(start) == few
    assert few or f"({queries} queries)" in sentence


def test_sources_that_harm_are_left_out():
    decision = decided(weighed("dense", (0.01, -0.25, -0.64), rate=0.2), weighed("far", (0.0, -0.01, -0.09)))
    assert decision.source is None
    assert decision.candidates[0].name == "none"
    assert decision.sentence.startswith("Train without mined negatives, on in-batch negatives alone (800 queries)")
    assert "below that, dense" in decision.sentence
    assert {each.name: each.verdict for each in decision.candidates}["far"] != "good"
    certain = decided(weighed("dense", (-0.25, -0.25, -0.25)))
    assert certain.worths["dense"].verdict == "harmful"
    assert certain.worths["dense"].gain == pytest.approx(-0.84)


@pytest.mark.parametrize(("far", "last", "asked"), [(0.32, 0.30, 0), (0.36, 0.16, 60)])
def test_labels_are_asked_for_where_the_choice_may_lose_a_tenth_of_a_point(far, last, asked):
    """At the bound far is worth 1.68·(√.32 − √.30) = .030 points more than dense, or 1.68·(√.36 − √.16) = .336."""
    decision = decided(weighed("dense", (0.64, 0.64, last)), weighed("far", (far,) * 3))
    assert decision.label_next == asked
    pooled = decided(weighed("dense", (0.64,) * 3), pooled="Nine of ten")
    assert pooled.label_next == 60, "pooled labels always"
    assert "pooled" not in pooled.sentence, "then all shares are tried"
    assert any(each.startswith("Nine of ten: such labels say nothing") for each in pooled.cautions)
    judged = decided(weighed("dense", (0.64,) * 3, drawn=[0.64] * 2, shares=[0.1] * 2), pooled="Nine of ten")
    assert not any(each.startswith("Nine of ten") for each in judged.cautions), "labels do say something"


@pytest.mark.parametrize(
    ("far", "source", "below", "begins"),
    [
        (-0.01, None, "far", "The labels look pooled: until some negatives are judged, train on in-batch negatives"),
        (0.09, "far", "dense", "Train on far: +0.5 points of nDCG@10 [0.5, 0.8] over in-batch negatives alone"),
    ],
)
def test_where_labels_end_with_a_pool_sources_are_judged_as_if_all_were_answers(far, source, below, begins):
    """At half of the bound dense is the best; at the last o it loses 1.68·√.25 = .84 points."""
    sources = (
        weighed("dense", (0.64, 0.36, -0.25), rate=0.2, at_bound=True),
        weighed("far", (0.25, 0.25, far), rate=0.1, at_bound=True),
    )
    decision = decided(*sources, pooled="All of them", ends=True)
    assert (decision.source, decision.label_next) == (source, 60)
    assert decision.sentence.startswith(begins)
    assert f"below that, {below}" in decision.sentence
    assert decision.cautions[-1].endswith("judged and not labelled, which foils select --by benefit keeps.")
    assert decision.worths["dense"].gain == pytest.approx(-0.84)


def test_with_labels_the_best_is_counted_over_what_is_believed():
    """dense is best in three draws of four; φ of it is .1 to .4, of which quantiles are .1075 and .3925."""
    dense = weighed(
        "dense", (0, 0, 0), errors=(0.0,) * 4, drawn=(0.64, 0.64, 0.64, 0.04), shares=(0.1, 0.2, 0.3, 0.4), rate=0.1
    )
    far = weighed("far", (0, 0, 0), errors=(0.0,) * 4, drawn=(0.25,) * 4, shares=(0.0,) * 4)
    decision = decided(dense, far)
    assert decision.source == "dense"
    assert decision.candidates[0].benefit == pytest.approx(0.49)
    assert [each.best_with_probability for each in decision.candidates] == [0.75, 0.25, 0.0]
    assert decision.candidates[0].false_share == pytest.approx(0.25)
    assert decision.candidates[0].false_share_low == pytest.approx(0.1075)
    assert decision.candidates[0].false_share_high == pytest.approx(0.3925)
    assert "best with probability 0.75; 11–39 % of it are unlabelled answers." in decision.sentence
    # it may lose 1.68·(√.25 − √.04) = .504 in one draw of four: .126 on average
    assert decision.label_next == 60


def test_only_what_may_be_chosen_is_compared():
    sources = weighed("dense", (0.64,) * 3), weighed("far", (0.25,) * 3)
    assert decided(*sources, allowed=["far", "none"]).source == "far"
    assert decided(*sources, allowed=["none"]).source is None
    assert decided(*sources, allowed=["far"]).runner_up is None


def test_a_model_that_starts_from_nothing_has_points_of_its_own():
    """9.6 points for each B."""
    decision = decided(weighed("dense", (0.09,) * 3, starts="nothing"), starts="nothing")
    assert decision.candidates[0].gain == pytest.approx(0.864)


def test_lists_of_other_lengths_are_said():
    decision = decided(weighed("dense", (0.64,) * 3), weighed("far", (0.25,) * 3))
    assert not any("a longer list" in each for each in decision.cautions)
    tables = {"dense": source("dense", 7), "far": source("bm25", 4)}
    longer = replace(decision, negatives=tables)
    assert any("4 to 7 negatives a query" in each for each in longer.cautions)


def test_few_blocks_are_known_to_vary_more():
    """Means 1, 2, 3, 4 and 5 of five blocks: a draw of the first block alone lies 2 below the mean of 3.

    That is widened by √(5/4) and by Student's t at .975 with 4 degrees, 2.7764 over 1.9600: to −.1676.
    """
    weights = np.array([[5.0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1]])
    resampling = Resampling(np.arange(5), np.ones(5), weights, np.zeros(2))
    means = resampling.means(np.array([[1.0, 2, 3, 4, 5]]))
    np.testing.assert_allclose(means, [[3 - 2 * np.sqrt(5 / 4) * 2.7764 / 1.9600, 3.0]], atol=2e-4)
    of_draws = resampling.means(np.array([[1.0, 2, 3, 4, 5], [2.0, 4, 6, 8, 10]]), of_draws=True)
    np.testing.assert_allclose(of_draws, [[means[0, 0], 6.0]])
    single = Resampling(np.zeros(1, int), np.ones(1), np.ones((2, 1)), np.zeros(2))
    np.testing.assert_array_equal(single.means(np.array([[0.5]])), [[0.5, 0.5]])
