"""Measures of vectors and of agreement."""

import json
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fakes import unit
from foils.runtime import memory
from foils.runtime.errors import InputError
from foils.statistics import measure_rankings, parse_measures
from foils.statistics.agreement import kendall_tau, rank_stability, resampled_taus
from foils.statistics.measures import alignment, uniformity

QRELS = {"a": {"d1": 1, "d2": 2}, "b": {"d3": 1}}


def test_values_worked_by_hand_with_grades():
    measured = measure_rankings(
        {"a": ["d1", "x", "d2"], "b": ["y", "d3"]}, QRELS, ["nDCG@10", "nDCG@1", "RR@10", "AP", "P@2", "R@2"]
    )
    ideal = 2 / log2(2) + 1 / log2(3)
    expected = {
        "nDCG@10": [(1 / log2(2) + 2 / log2(4)) / ideal, 1 / log2(3)],
        "nDCG@1": [1 / 2, 0.0],
        "RR@10": [1.0, 0.5],
        "AP": [(1 + 2 / 3) / 2, 0.5],
        "P@2": [0.5, 0.5],
        "R@2": [0.5, 1.0],
    }
    assert list(measured.per_query) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(measured.per_query[name], values, rtol=1e-12)
        assert measured.means[name] == pytest.approx(np.mean(values))


def test_an_unanswered_query_counts_as_zero_and_is_named():
    measured = measure_rankings({"a": ["d2", "d1"], "b": [], "unjudged": ["d1"]}, QRELS, ["nDCG@10"])
    assert measured.query_ids == ("a", "b")
    assert measured.unanswered == ("b",)
    assert measured.means["nDCG@10"] == pytest.approx(0.5)


def test_a_grade_of_zero_or_below_is_not_relevant():
    measured = measure_rankings({"q": ["bad", "none", "good"]}, {"q": {"bad": -1, "none": 0, "good": 1}}, ["RR"])
    assert measured.means["RR"] == pytest.approx(1 / 3)


def test_bad_names_are_listed_together_with_examples():
    with pytest.raises(InputError, match=r"(?s)'ndcg@10'.*'wrong'.*'R'.*cut-off.*nDCG@10"):
        parse_measures(["ndcg@10", "AP", "wrong", "R"])


@pytest.mark.parametrize(
    ("rankings", "qrels", "said"),
    [({}, {}, "no judged query"), ({"a": ["d1", "d1"]}, QRELS, "twice")],
)
def test_unusable_input_is_refused(rankings, qrels, said):
    with pytest.raises(InputError, match=said):
        measure_rankings(rankings, qrels)


def test_alignment_and_uniformity_worked_by_hand():
    """Uniformity of three points with squared distances 2, 2 and 4; of points spread evenly over a sphere."""
    a, b = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0], [1, 0]])
    assert alignment(a, b) == pytest.approx((0 + 2) / 2)
    assert alignment(a, b, exponent=1) == pytest.approx(np.sqrt(2) / 2)
    x = np.array([[1.0, 0], [0, 1], [-1, 0]])
    assert uniformity(x) == pytest.approx(np.log((2 * np.exp(-4) + np.exp(-8)) / 3))
    assert uniformity(x, t=1) == pytest.approx(np.log((2 * np.exp(-2) + np.exp(-4)) / 3))
    assert uniformity(unit(3000, 3)) == pytest.approx(np.log((1 - np.exp(-8)) / 8), abs=0.01)


def test_alignment_and_uniformity_do_not_depend_on_order_or_rotation():
    x, rotation = unit(70, 6), np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    order = np.random.default_rng(2).permutation(70)
    for value in (uniformity(x[order]), uniformity(x @ rotation)):
        assert value == pytest.approx(uniformity(x))
    assert alignment(x @ rotation, x[order] @ rotation) == pytest.approx(alignment(x, x[order]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: alignment(np.ones((2, 2)), unit(2, 2)),
        lambda: alignment(unit(2, 2), unit(3, 2)),
        lambda: uniformity(unit(1, 2)),
        lambda: uniformity(np.full((2, 2), np.nan)),
    ],
)
def test_vectors_that_are_not_unit_are_refused(call):
    with pytest.raises(InputError):
        call()


PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published.json").read_text(encoding="utf-8"))
NUMBERS = st.integers(-4, 4).map(float)
PAIRS = st.integers(2, 9).flatmap(
    lambda n: st.tuples(arrays(float, n, elements=NUMBERS), arrays(float, n, elements=NUMBERS))
)


def published(encoder):
    scores, results = (PUBLISHED["eci_sem"][table][encoder] for table in ("table1_eci_sem", "table2_ndcg10"))
    names = list(scores)
    return (
        [scores[name]["eci_sem"] for name in names],
        [results[name]["mean"] for name in names],
        ["hybrid" if "+" in name else "single" for name in names],
    )


@pytest.mark.parametrize(("encoder", "tau"), [("DistilBERT", 0.867), ("E5-base", 0.467), ("Contriever", 0.733)])
def test_the_published_tables_give_the_published_agreement(encoder, tau):
    """Over six sources the order agrees in part; inside the blocks of three it agrees fully."""
    eci_sem, ndcg, settings = published(encoder)
    assert kendall_tau(eci_sem, ndcg) == pytest.approx(tau, abs=5e-4)
    assert rank_stability(eci_sem, ndcg, settings=settings) == 1.0
    for block in ("single", "hybrid"):
        rows = [i for i, setting in enumerate(settings) if setting == block]
        assert kendall_tau(np.take(eci_sem, rows), np.take(ndcg, rows)) == pytest.approx(1.0)


@given(PAIRS)
def test_coefficients_agree_with_scipy_ties_included(pair):
    a, b = pair
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kendall_tau(a, b), stats.kendalltau(a, b).statistic, atol=1e-12)


def test_rank_stability_worked_by_hand():
    assert rank_stability([1, 2, 3], [1, 3, 2]) == pytest.approx(2 / 3)
    assert rank_stability([1, 2, 3], [3, 2, 1]) == 0.0
    assert rank_stability([1, 1, 3], [1, 2, 3]) == pytest.approx(2 / 3), "a tie does not agree with an order"
    assert rank_stability([1, 2, 1, 2], [1, 2, 9, 8], settings=list("aabb")) == pytest.approx(1 / 2)
    assert rank_stability([1, 2, 1, 2], [1, 2, 9, 8]) == pytest.approx(2 / 6)
    assert np.isnan(rank_stability([1, 2], [1, 2], settings=["a", "b"]))
    with pytest.raises(InputError, match="one setting for each of 2"):
        rank_stability([1, 2], [1, 2], settings=["a"])


@given(PAIRS)
def test_without_ties_stability_is_kendall_on_another_scale(pair):
    a, b = (np.argsort(np.argsort(x, kind="stable"), kind="stable") for x in pair)
    assert rank_stability(a, b) == pytest.approx((kendall_tau(a, b) + 1) / 2)


@pytest.mark.parametrize("budget", [2**20, 2**30])
def test_the_bootstrap_is_that_of_one_draw_after_the_other(budget):
    x, draw = np.array([1.0, 2, 2, 5, 3, 8]), np.random.default_rng(3)
    results = np.array([1.0, 3, 2, 2, 6, 5])[:, None] + draw.integers(-2, 3, (6, 3))
    sources, replicates = draw.integers(6, size=(200, 6)), draw.integers(3, size=(200, 3))
    with memory.limited(budget):
        found = resampled_taus(x, results, sources, replicates)
    pairs = zip(sources, replicates, strict=True)
    plain = [stats.kendalltau(x[rows], results[:, taken].mean(axis=1)[rows]).statistic for rows, taken in pairs]
    np.testing.assert_allclose(found, plain, atol=1e-12)


@pytest.mark.parametrize(("a", "b"), [([1], [1]), ([1, 2], [1, 2, 3]), ([1, np.nan], [1, 2])])
def test_agreement_of_unusable_input_is_refused(a, b):
    with pytest.raises(InputError):
        kendall_tau(a, b)
