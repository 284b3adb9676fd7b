"""Agreement of a predictor with an outcome: published figures, scipy, hand-worked cases."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from foils.runtime import memory
from foils.runtime.errors import InputError
from foils.statistics.agreement import agreement, kendall_tau, pearson_r, rank_stability, spearman_rho

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published.json").read_text(encoding="utf-8"))
NUMBERS = st.integers(-4, 4).map(float)
PAIRS = st.integers(2, 9).flatmap(
    lambda n: st.tuples(arrays(float, n, elements=NUMBERS), arrays(float, n, elements=NUMBERS))
)


def rng():
    return np.random.default_rng(3)


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
        if np.ptp(a) and np.ptp(b):
            np.testing.assert_allclose(spearman_rho(a, b), stats.spearmanr(a, b).statistic, atol=1e-12)
            np.testing.assert_allclose(pearson_r(a, b), stats.pearsonr(a, b).statistic, atol=1e-12)


@pytest.mark.parametrize("coefficient", [kendall_tau, spearman_rho, pearson_r])
def test_no_coefficient_where_all_values_are_equal(coefficient):
    assert np.isnan(coefficient([1, 1, 1], [1, 2, 3]))


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


def test_agreement_draws_replicates_where_there_are_some():
    truth = np.arange(6.0)
    noisy = truth[:, None] + rng().normal(0, 2.0, (6, 5))
    clear = truth[:, None] + rng().normal(0, 0.01, (6, 5))
    wide, narrow = (agreement(truth, outcome, rng=rng()) for outcome in (noisy, clear))
    assert wide.kendall == pytest.approx(kendall_tau(truth, noisy.mean(axis=1)))
    assert (narrow.low, narrow.high) == (1.0, 1.0)
    assert wide.low < wide.high


def test_draws_without_a_coefficient_are_left_out():
    """Half of the draws of two sources take one of them twice."""
    found = agreement([1, 2], [1, 2], rng=rng(), resamples=400)
    assert (found.low, found.high) == (1.0, 1.0)
    alike = agreement([1, 2], [1, 1], rng=rng())
    assert np.isnan([alike.kendall, alike.low, alike.high, alike.spearman, alike.pearson]).all()


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("budget", [2**20, 2**30])
def test_the_bootstrap_is_that_of_one_draw_after_the_other(replicates, budget):
    x = np.array([1.0, 2, 2, 5, 3, 8])
    results = np.array([1.0, 3, 2, 2, 6, 5])[:, None] + rng().integers(-2, 3, (6, replicates))
    with memory.limited(budget):
        found = agreement(x, results, rng=rng(), resamples=200)
    draws, draw = [], rng()
    for _ in range(200):
        taken = draw.integers(replicates if replicates > 1 else 6, size=replicates if replicates > 1 else 6)
        pair = (x, results[:, taken].mean(axis=1)) if replicates > 1 else (x[taken], results[taken, 0])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draws.append(stats.kendalltau(*pair).statistic)
    ends = np.nanquantile(draws, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "settings"),
    [
        ([1], [1], {}),
        ([1, 2], [1, 2, 3], {}),
        ([1, np.nan], [1, 2], {}),
        ([1, 2], [[1, 2], [np.inf, 2]], {}),
        ([1, 2], [1, 2], {"level": 0}),
        ([1, 2], [1, 2], {"resamples": 0}),
    ],
)
def test_unusable_input_is_refused(a, b, settings):
    with pytest.raises(InputError):
        agreement(a, b, rng=rng(), **settings)
