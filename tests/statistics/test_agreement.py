"""Rank correlation of a predictor with an outcome: published figures, scipy, hand-worked cases."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from foils.runtime import memory
from foils.runtime.errors import InputError
from foils.statistics.agreement import kendall_tau, rank_stability, resampled_taus

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
def test_unusable_input_is_refused(a, b):
    with pytest.raises(InputError):
        kendall_tau(a, b)
