"""How well ratings say what was answered."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from foils.rating import Pairs, deviance, deviance_explained, regular_pairs, thurstone


def test_deviance_by_hand() -> None:
    pairs = Pairs.of_one(3, [0, 1, 0], [1, 2, 2])
    w = [0.8, 1.0, np.nan]
    ratings = thurstone(pairs, w, prior_sd=1.0)
    p = ndtr(ratings.rating[[0, 1]] - ratings.rating[[1, 2]])
    expected = 2 * (0.8 * np.log(0.8 / p[0]) + 0.2 * np.log(0.2 / (1 - p[0])) - np.log(p[1]))
    assert deviance(pairs, w, ratings) == pytest.approx(expected)
    null = 2 * (0.8 * np.log(1.6) + 0.2 * np.log(0.4) + np.log(2))
    assert deviance(pairs, w) == pytest.approx(null)
    assert deviance_explained(pairs, w, ratings) == pytest.approx(1 - expected / null)


def test_ratings_that_say_every_answer_explain_all_and_ties_nothing() -> None:
    truth, pairs = (
        np.random.default_rng(0).normal(0, 0.7, 20),
        regular_pairs([20], degree=6, rng=np.random.default_rng(1)),
    )
    exact = ndtr(truth[pairs.first] - truth[pairs.second])
    assert deviance_explained(pairs, exact, thurstone(pairs, exact, prior_sd=1e4)) == pytest.approx(1, abs=1e-6)
    ties = np.full(len(pairs), 0.5)
    assert np.isnan(deviance_explained(pairs, ties, thurstone(pairs, ties)))
