"""Judges that err and features, learned together."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.linear_model import LogisticRegression

from foils.statistics.noisy_labels import Answers, learn, threshold


def test_without_answers_the_offset_is_what_is_known():
    crowd = learn(np.ones((3, 2)), [-1.0, 0.0, 2.0], [])
    assert np.allclose(crowd.prior, expit([-1.0, 0.0, 2.0]))
    assert np.allclose(crowd.posterior, crowd.prior)
    assert not crowd.weights.any()


def test_one_answer_by_hand():
    """Odds of the offset, of the constant that was learned, and of the answer: 1/3 · e^w · .8/.1."""
    crowd = learn(np.zeros((2, 0)), np.log([1 / 3, 1 / 3]), [Answers(np.array([1]), np.array([1.0]), 0.8, 0.9)])
    odds = np.exp(crowd.weights[0]) / 3
    assert crowd.posterior[1] == pytest.approx(8 * odds / (1 + 8 * odds), abs=1e-5)
    assert crowd.posterior[0] == crowd.prior[0] == crowd.prior[1] == pytest.approx(odds / (1 + odds))
    assert odds > 1 / 3


def test_a_judge_who_never_errs_makes_it_a_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 2))
    y = (rng.random(400) < expit(0.5 + x @ [1.5, -1.0])).astype(float)
    crowd = learn(x, np.zeros(400), [Answers(np.arange(400), y)], spread=2.0)
    # scikit-learn has no penalty on the constant and one alone for the rest; ours on it is weak
    other = LogisticRegression(C=4.0, tol=1e-8).fit(x, y)
    assert np.allclose(crowd.weights, [other.intercept_[0], *other.coef_[0]], atol=2e-3)
    assert np.allclose(crowd.posterior, y, atol=1e-9)


def test_it_is_the_maximum_of_what_it_says():
    """The log posterior of the weights, the truth summed out, by a general optimiser."""
    rng = np.random.default_rng(1)
    x, offset = rng.standard_normal((300, 1)), rng.standard_normal(300)
    truth = rng.random(300) < expit(offset + x[:, 0])
    given = [np.where(rng.random(300) < right, truth, ~truth).astype(float) for right in (0.85, 0.7)]
    rows = [np.arange(0, 300, 2), np.arange(0, 300, 3)]
    errors = [(0.9, 0.8), (0.75, 0.65)]
    answers = [Answers(r, g[r], *e) for r, g, e in zip(rows, given, errors, strict=True)]
    crowd = learn(x, offset, answers, spread=1.5)

    def loss(w):
        z = offset + w[0] + x[:, 0] * w[1]
        relevant, other = log_expit(z), log_expit(-z)
        for r, g, (se, sp) in zip(rows, given, errors, strict=True):
            relevant[r] += np.log(np.where(g[r] == 1, se, 1 - se))
            other[r] += np.log(np.where(g[r] == 1, 1 - sp, sp))
        judged = np.union1d(*rows)
        return -(np.logaddexp(relevant, other)[judged].sum() - 0.5 * (0.01 * w[0] ** 2 + w[1] ** 2 / 1.5**2))

    best = minimize(loss, np.zeros(2), method="BFGS")
    assert np.allclose(crowd.weights, best.x, atol=1e-3)
    assert loss(crowd.weights) <= best.fun + 1e-6


def test_planted_weights_come_back_from_judges_that_err():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6_000, 2))
    truth = rng.random(6_000) < expit(-0.5 + x @ [2.0, -1.0])
    judges = []
    for se, sp, asked in ((0.9, 0.8, 3_000), (0.95, 0.97, 1_500)):
        rows = np.sort(rng.choice(6_000, asked, replace=False))
        right = rng.random(asked) < np.where(truth[rows], se, sp)
        judges.append(Answers(rows, np.where(right, truth[rows], ~truth[rows]).astype(float), se, sp))
    crowd = learn(x, np.zeros(6_000), judges)
    assert np.allclose(crowd.weights, [-0.5, 2.0, -1.0], atol=0.25)
    sure = crowd.posterior >= threshold(crowd.posterior, 0.95)
    assert truth[sure].mean() == pytest.approx(0.95, abs=0.02)


def test_the_threshold_is_the_lowest_that_keeps_the_precision():
    assert threshold([0.75, 0.5, 1.0, 0.25], 0.75) == 0.5
    assert threshold([0.75, 0.5, 1.0, 0.25], 1.0) == 1.0
    assert threshold([0.9, 0.5], 0.95) > 1
    assert threshold([], 0.5) > 1
