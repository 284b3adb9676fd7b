"""Shares from labelled samples, and from labels that err."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import binomtest, kstest
from sklearn.linear_model import LogisticRegression

from foils.runtime.errors import InputError
from foils.statistics.survey import Answers, draw, estimate_share, learn, permanent_numbers, threshold

Floats = npt.NDArray[np.float64]
SIZES = np.array([8.0, 1.0, 2.0, 4.0, 0.0, 1.0, 3.0])


# Permanent numbers


def test_numbers_belong_to_keys_and_are_even():
    keys = [f"q{i}\0d{i % 7}" for i in range(5_000)]
    numbers = permanent_numbers(keys, seed=3)
    np.testing.assert_array_equal(permanent_numbers(keys[::-1], seed=3), numbers[::-1])
    assert kstest(numbers, "uniform").pvalue > 0.001
    other = permanent_numbers(keys, seed=4)
    assert abs(np.corrcoef(numbers, other)[0, 1]) < 0.06
    assert ((numbers > 0) & (numbers < 1)).all()


# Draws


@given(st.integers(1, 40), st.integers(0, 1_000))
def test_a_larger_draw_begins_with_the_smaller_one(n, seed):
    rng = np.random.default_rng(seed)
    sizes, numbers = rng.gamma(0.5, size=50) * (rng.random(50) < 0.9), rng.random(50)
    smaller, larger = draw(sizes, numbers, n), draw(sizes, numbers, n + 5)
    np.testing.assert_array_equal(larger.rows[: len(smaller.rows)], smaller.rows)
    assert (larger.probability[: len(smaller.rows)] >= smaller.probability).all()


def test_probabilities_are_exact():
    """Given the numbers of the others, a unit is drawn where its own lies below its probability."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        numbers, n = rng.random(len(SIZES)), int(rng.integers(1, 6))
        drawn = draw(SIZES, numbers, n)
        for row, p in zip(drawn.rows, drawn.probability, strict=True):
            for number in (p * 0.999, min(p * 1.001, 1)):
                moved = numbers.copy()
                moved[row] = number
                assert (row in draw(SIZES, moved, n).rows) == (number < p or p == 1)


def test_weighted_totals_are_unbiased_and_uncorrelated():
    rng = np.random.default_rng(1)
    weights = np.zeros((20_000, len(SIZES)))
    for each in weights:
        drawn = draw(SIZES, rng.random(len(SIZES)), 3)
        each[drawn.rows] = 1 / drawn.probability
    errors = weights.std(axis=0) / np.sqrt(len(weights))
    assert weights[:, 4].max() == 0, "a unit of size 0 is never drawn"
    kept = SIZES > 0
    assert (np.abs(weights.mean(axis=0) - 1)[kept] <= 4 * errors[kept] + 1e-12).all()
    correlation = np.corrcoef(weights[:, kept & (errors > 0)].T)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 0.08, "their tails are heavy"


def test_a_census_is_certain():
    drawn = draw(SIZES, np.full(len(SIZES), 0.5), 6)
    np.testing.assert_array_equal(drawn.probability, 1)
    assert len(drawn.rows) == 6
    share = estimate_share([1, 0, 0, 1, 0, 0], drawn.probability)
    assert (share.low, share.share, share.high) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


# Shares


@pytest.mark.parametrize(("hits", "of"), [(0, 20), (10, 30), (30, 30)])
def test_equal_draws_from_many_give_the_exact_binomial_interval(hits, of):
    y = np.arange(of) < hits
    share = estimate_share(y, np.full(of, 1e-9))
    exact = binomtest(hits, of).proportion_ci(0.95, "exact")
    assert share.share == pytest.approx(hits / of)
    assert (share.low, share.high) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_by_hand():
    share = estimate_share([1, 0, 0], [0.5, 0.25, 0.25])
    assert share.share == pytest.approx(2 / 10)  # weights 2, 4, 4
    nothing = estimate_share([], [])
    assert np.isnan(nothing.share)
    assert (nothing.low, nothing.high, nothing.judged) == (0, 1, 0)


@pytest.mark.parametrize(("n", "shape"), [(20, (0.05, 0.95)), (60, (0.5, 0.5)), (60, (10.0, 10.0))])
def test_intervals_hold_the_share(n, shape):
    """A coverage of .93 at least where .95 is meant, however unequal the draw; a third of the units is a source."""
    trials, covered = 100, []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        pi = rng.beta(*shape, 1_500)
        y = rng.random(len(pi)) < pi
        drawn = draw(rng.choice([0.2, 1.0], len(pi)), rng.random(len(pi)), n)
        for source in (np.ones(len(pi), bool), np.arange(len(pi)) % 3 == 0):
            inside = source[drawn.rows]
            share = estimate_share(y[drawn.rows[inside]], drawn.probability[inside])
            covered.append(share.low <= y[source].mean() <= share.high)
    assert np.mean(covered) >= 0.95 - 1.64 * np.sqrt(0.95 * 0.05 / trials)


def test_what_cannot_be_estimated_is_refused():
    for given_, p in (([2], [0.5]), ([1], [0.0]), ([1, 0], [0.5])):
        with pytest.raises(InputError):
            estimate_share(given_, p)


# Judges that err


def test_without_answers_nothing_is_known():
    crowd = learn(np.ones((3, 2)), [])
    assert crowd.prior.tolist() == crowd.posterior.tolist() == [0.5, 0.5, 0.5]
    assert not crowd.weights.any()


def test_one_answer_by_hand():
    """Odds of the constant that was learned, and of the answer: e^w · .8/.1."""
    crowd = learn(np.zeros((2, 0)), [Answers(np.array([1]), np.array([1.0]), 0.8, 0.9)])
    odds = np.exp(crowd.weights[0])
    assert crowd.posterior[1] == pytest.approx(8 * odds / (1 + 8 * odds), abs=1e-5)
    assert crowd.posterior[0] == crowd.prior[0] == crowd.prior[1] == pytest.approx(odds / (1 + odds))
    assert odds > 1


def test_a_judge_who_never_errs_makes_it_a_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 2))
    y = (rng.random(400) < expit(0.5 + x @ [1.5, -1.0])).astype(float)
    crowd = learn(x, [Answers(np.arange(400), y)], spread=2.0)
    # scikit-learn has no penalty on the constant and one alone for the rest; ours on it is weak
    other = LogisticRegression(C=4.0, tol=1e-8).fit(x, y)
    assert np.allclose(crowd.weights, [other.intercept_[0], *other.coef_[0]], atol=2e-3)
    assert np.allclose(crowd.posterior, y, atol=1e-9)


def test_it_is_the_maximum_of_what_it_says():
    """The log posterior of the weights, the truth summed out, by a general optimiser."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 1))
    truth = rng.random(300) < expit(x[:, 0] - 0.5)
    given = [np.where(rng.random(300) < right, truth, ~truth).astype(float) for right in (0.85, 0.7)]
    rows = [np.arange(0, 300, 2), np.arange(0, 300, 3)]
    errors = [(0.9, 0.8), (0.75, 0.65)]
    answers = [Answers(r, g[r], *e) for r, g, e in zip(rows, given, errors, strict=True)]
    crowd = learn(x, answers, spread=1.5)

    def loss(w):
        z = w[0] + x[:, 0] * w[1]
        relevant, other = log_expit(z), log_expit(-z)
        for r, g, (se, sp) in zip(rows, given, errors, strict=True):
            relevant[r] += np.log(np.where(g[r] == 1, se, 1 - se))
            other[r] += np.log(np.where(g[r] == 1, 1 - sp, sp))
        judged = np.union1d(*rows)
        return -(np.logaddexp(relevant, other)[judged].sum() - 0.5 * (0.01 * w[0] ** 2 + w[1] ** 2 / 1.5**2))

    best = minimize(loss, np.zeros(2), method="BFGS")
    assert np.allclose(crowd.weights, best.x, atol=1e-3)
    assert loss(crowd.weights) <= best.fun + 1e-6


def test_the_threshold_is_the_lowest_that_keeps_the_precision():
    assert threshold([0.75, 0.5, 1.0, 0.25], 0.75) == 0.5
    assert threshold([0.75, 0.5, 1.0, 0.25], 1.0) == 1.0
    assert threshold([0.9, 0.5], 0.95) > 1
    assert threshold([], 0.5) > 1
    assert threshold([1.0, 0.8, 0.8], 0.89) == 1.0, "those of .8 are all called so, or none is"
