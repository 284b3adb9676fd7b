"""How well ratings say what was answered."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.special import ndtr

from foils.rating import Pairs, all_pairs, deviance, deviance_explained, intransitive_triples, regular_pairs, thurstone
from foils.runtime import memory


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


def by_counting(pairs: Pairs, w: np.ndarray) -> tuple[int, int]:
    wins = {(i, j) for i, j, p in zip(pairs.first, pairs.second, w, strict=True) if p > 0.5}
    wins |= {(j, i) for i, j, p in zip(pairs.first, pairs.second, w, strict=True) if p < 0.5}
    circles = triples = 0
    for a, b, c in combinations(range(pairs.candidates), 3):
        sides = [(a, b), (b, c), (c, a)]
        if all(side in wins or side[::-1] in wins for side in sides):
            triples += 1
            circles += len({side in wins for side in sides}) == 1
    return circles, triples


def test_triples_in_a_circle_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    pairs = regular_pairs([9, 4, 9, 1, 0, 12], degree=6, rng=rng)
    w = rng.choice([0.0, 0.2, 0.5, 0.9, np.nan], len(pairs))
    expected = by_counting(pairs, w)
    assert 0 < expected[0] < expected[1]
    assert intransitive_triples(pairs, w) == expected
    monkeypatch.setattr(memory, "rows_at_once", lambda bytes_each, most: 1)
    assert intransitive_triples(pairs, w) == expected


def test_an_order_has_no_circle_and_coins_have_a_quarter() -> None:
    pairs = all_pairs([30] * 20)
    assert intransitive_triples(pairs, np.where(pairs.first < pairs.second, 1.0, 0.0)) == (0, 20 * 4060)
    circles, triples = intransitive_triples(pairs, np.random.default_rng(3).integers(0, 2, len(pairs)).astype(float))
    assert circles / triples == pytest.approx(0.25, abs=0.01)
    assert intransitive_triples(Pairs.of_one(3, [0, 1, 2], [1, 2, 0]), [0.6, 0.7, 0.8]) == (1, 1)
    assert intransitive_triples(Pairs.of_one(3, [], []), []) == (0, 0)
