"""Measures of rankings, of vectors and of agreement; paired tests, Holm's correction, bootstrap intervals."""

import json
import subprocess
import sys
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from foils.runtime.errors import InputError, UnknownNameError
from foils.statistics import (
    bootstrap_interval,
    compare_systems,
    holm,
    measure_rankings,
    paired_test,
    parse_measures,
    significance,
)
from foils.statistics.significance import kendall_tau, randomisation_p
from refusals import refused


def rng():
    return np.random.default_rng(7)


def test_normal_differences_take_the_t_test():
    b = rng().random(60)
    a = b + rng().normal(0.05, 0.1, 60)
    result = paired_test(a, b)
    d = a - b
    t = d.mean() / (d.std(ddof=1) / np.sqrt(60))
    assert result.test == "t"
    assert result.p == pytest.approx(2 * stats.t.sf(abs(t), 59))
    assert result.difference == pytest.approx(d.mean())


def test_other_differences_take_wilcoxon_worked_by_hand():
    """d = 1..6 without their signs but for −1: W⁻ = 1; P(W ≤ 1) = 2/2⁶, and twice that two-sided."""
    d = np.array([-1, 2, 3, 4, 5, 600.0])
    assert paired_test(d, np.zeros(6)).test == "wilcoxon"
    assert paired_test(d, np.zeros(6)).p == pytest.approx(4 / 64)


def test_queries_without_a_difference_are_dropped_before_the_ranks_are_taken():
    """4 of 300 queries differ, all upwards: 1 of 2⁴ signings is as extreme, which the normal limit of 300 misses."""
    d = np.zeros(300)
    d[[7, 90, 91, 250]] = [0.1, 0.2, 0.3, 0.4]
    result = paired_test(d, np.zeros(300))
    assert result.test == "wilcoxon"
    assert result.p == pytest.approx(2 / 16)


def test_what_differs_by_rounding_alone_does_not_differ(monkeypatch):
    """0.1 + 0.2 is not 0.3, yet no query differs; and the differences 0.3 − 0.2 and 0.2 − 0.1 share a rank."""
    assert paired_test([0.1 + 0.2, 0.5], [0.3, 0.5]).test == "identical"
    a, b = np.array([0.3, 0.2, 0.1, 0.5, 0.4]), np.array([0.2, 0.1, 0.0, 0.4, 0.5])
    monkeypatch.setattr(significance, "NORMALITY", 1.1)  # never normal
    assert paired_test(a, b).p == pytest.approx(12 / 32)


@pytest.mark.parametrize(
    ("a", "b", "normality", "test", "p"),
    [
        ([0.5, 0.2, 0.1], [0.5, 0.2, 0.1], 0.05, "identical", 1.0),
        (np.arange(8) + 1.0, np.arange(8.0), 0.05, "wilcoxon", 2 / 2**8),  # constant: not called normal
        ([1.0], [0.0], 0.05, "wilcoxon", 1.0),
        ([1.0, 2.0, 3.0, 4.0], np.zeros(4), 1.1, "wilcoxon", 2 / 2**4),
        ([1.0, 2.0, 3.0, 4.0], np.zeros(4), 0.0, "t", stats.ttest_1samp([1.0, 2.0, 3.0, 4.0], 0).pvalue),
    ],
)
def test_which_test_is_taken(a, b, normality, test, p, monkeypatch):
    monkeypatch.setattr(significance, "NORMALITY", normality)
    result = paired_test(a, b)
    assert (result.test, result.p) == (test, pytest.approx(p))


def test_the_randomisation_test_worked_by_hand_and_by_scipy():
    """Means of 1, 2, 3 with all signs: 6/3 is reached once above and once below, of eight."""
    assert randomisation_p([1.0, 2.0, 3.0], rng=rng()) == 2 / 8
    assert randomisation_p([0.0, 0.0], rng=rng()) == 1.0
    d = rng().normal(0.1, 0.3, 40)
    other = stats.permutation_test(
        (d,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True, rng=rng()
    )
    assert randomisation_p(d, rng=rng()) == pytest.approx(other.pvalue, abs=0.03)


def test_of_drawn_signings_the_one_that_was_seen_counts():
    """Thirty equal gains: two of 2³⁰ signings are as extreme, so none of 99 draws is, and p = 1/100, not 0."""
    assert randomisation_p(np.ones(30), rng=np.random.default_rng(0), draws=99) == 1 / 100


def test_holm_worked_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([]).shape == (0,)


def test_the_interval_is_that_of_one_draw_after_the_other():
    values, draws = rng().gamma(2.0, size=80), rng()
    plain = np.quantile([values[draws.integers(80, size=80)].mean() for _ in range(10_000)], [0.025, 0.975])
    assert bootstrap_interval(values, rng=rng()) == pytest.approx(plain)
    assert bootstrap_interval([0.25], rng=rng()) == (0.25, 0.25)


def systems():
    base = rng().random(50)
    return {
        "base": {"AP": base, "P@5": base},
        "better": {"AP": base + rng().normal(0.2, 0.05, 50), "P@5": base},
        "same": {"AP": base + np.random.default_rng(1).normal(0, 0.1, 50), "P@5": base},
    }


SKEWED = {
    "few large gains": [0.05] * 20 + [-0.01] * 80,
    "few large losses": [-0.05] * 20 + [0.01] * 80,
    "one answer found": [1.0] + [-0.005] * 60,
    "half a point": [0.3] * 3 + [-0.01] * 60,
}


@pytest.mark.parametrize("differences", SKEWED.values(), ids=SKEWED)
def test_a_claim_about_means_is_no_surer_than_signs_that_fall_otherwise(differences):
    """Wilcoxon's is sure of the other sign; scipy's own permutation test of the mean is not sure of any."""
    d = np.array(differences)
    test = paired_test(d, np.zeros(len(d)))
    assert test.p < 0.05
    ranks = stats.rankdata(np.abs(d))
    assert (ranks @ np.sign(d)) * d.mean() < 0
    how = {"permutation_type": "samples", "n_resamples": 9_999, "rng": np.random.default_rng(3)}
    other = stats.permutation_test((d,), np.mean, **how)
    assert test.p_randomised == pytest.approx(other.pvalue, abs=0.03)
    assert test.p_randomised > 0.05
    (compared,) = compare_systems({"base": {"AP": np.zeros(len(d))}, "new": {"AP": d}}, rng=rng())
    assert compared.p_randomised == pytest.approx(other.pvalue, abs=0.03)


def test_a_gain_that_is_sure_stays_so():
    test = paired_test(rng().normal(0.02, 0.05, 300), np.zeros(300))
    assert test.p_randomised < 1e-3


NEGATIVE = """
import random
from foils.statistics import measure_rankings

random.seed(0)
for _ in range(200):
    ids = [f"d{at}" for at in range(random.choice([5, 20, 100]))]
    grades = {query: {each: random.choice({grades}) for each in ids} for query in "abcdefghij"}
    rankings = {query: random.sample(ids, len(ids)) for query in grades}
    found = measure_rankings(rankings, grades, ["nDCG", "AP", "RR", "P@5", "R@10", "nDCG@10"])
clipped = {query: {each: max(0, grade) for each, grade in of.items()} for query, of in grades.items()}
assert found.means == measure_rankings(rankings, clipped, [*found.means]).means
"""


@pytest.mark.parametrize("grades", ["[-1, 1]", "[-2, -1, 0, 2]", "[-5, -3, 0, 1, 3]"])
def test_grades_below_0_count_as_0(grades):
    """In trec_eval's nDCG they never end, or end the process: so another one is asked."""
    ended = subprocess.run([sys.executable, "-c", NEGATIVE.replace("{grades}", grades)], timeout=120, check=False)
    assert ended.returncode == 0


def test_all_pairs_are_compared_and_corrected_within_a_measure():
    table = compare_systems(systems(), rng=rng())
    assert [(c.a, c.b, c.measure) for c in table[:3]] == [
        ("better", "base", "AP"),
        ("same", "base", "AP"),
        ("same", "better", "AP"),
    ]
    assert len(table) == 6
    np.testing.assert_allclose([c.p_holm for c in table[:3]], holm([c.p for c in table[:3]]))
    np.testing.assert_allclose([c.p_randomised_holm for c in table[:3]], holm([c.p_randomised for c in table[:3]]))
    assert all(c.test == "identical" and c.p_holm == 1 for c in table[3:])
    first = table[0]
    assert first.difference == pytest.approx(0.2, abs=0.03)
    assert first.low < first.difference < first.high
    assert first.p_holm < 1e-6


def test_against_chooses_the_comparisons_and_so_the_correction():
    table = compare_systems(systems(), rng=rng(), against=["base"])
    assert [(c.a, c.b) for c in table] == [("better", "base"), ("same", "base")] * 2
    both = compare_systems(systems(), rng=rng(), against=["base", "better"])
    assert [(c.a, c.b) for c in both[:3]] == [("better", "base"), ("same", "base"), ("same", "better")]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: paired_test([], []), InputError),
        (lambda: paired_test([1, 2, 3], [1, 2]), InputError),
        (lambda: paired_test([1, 2, np.nan], [1, 2, 3]), InputError),
        (lambda: randomisation_p([np.inf], rng=rng()), InputError),
        (lambda: holm([0.1, 1.2]), InputError),
        (lambda: bootstrap_interval([], rng=rng()), InputError),
        (lambda: compare_systems({"one": {"AP": [1, 2, 3]}, "two": {"P@5": [1, 2, 3]}}, rng=rng()), InputError),
        (lambda: compare_systems(systems(), rng=rng(), against=["bettr"]), UnknownNameError),
    ],
)
def test_unusable_input_is_refused(call, error):
    with pytest.raises(error):
        call()


# Measures of vectors and of agreement


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
    refused(r"(?s)'ndcg@10'.*'wrong'.*'R'.*cut-off.*nDCG@10", parse_measures, ["ndcg@10", "AP", "wrong", "R"])


@pytest.mark.parametrize(
    ("rankings", "qrels", "said"),
    [({}, {}, "no judged query"), ({"a": ["d1", "d1"]}, QRELS, "twice")],
)
def test_unusable_rankings_are_refused(rankings, qrels, said):
    refused(said, measure_rankings, rankings, qrels)


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
    for block in ("single", "hybrid"):
        rows = [i for i, setting in enumerate(settings) if setting == block]
        assert kendall_tau(np.take(eci_sem, rows), np.take(ndcg, rows)) == pytest.approx(1.0)


@given(PAIRS)
def test_coefficients_agree_with_scipy_ties_included(pair):
    a, b = pair
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kendall_tau(a, b), stats.kendalltau(a, b).statistic, atol=1e-12)
