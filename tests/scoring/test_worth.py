"""What negatives are worth: the added loss by hand, its limits, and the sign that false negatives give it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from foils.scoring.decision import HARM_OF_ALL, HARM_OF_ONE, _factors
from foils.scoring.odds import Odds
from foils.scoring.worth import HARM, SHARES, Worth, added_losses, mistaken

NONE = np.array([-np.inf])


def test_one_negative_as_near_as_the_positive_adds_ln_2() -> None:
    assert added_losses(np.array([0]), np.array([0.3]), np.array([0.3]), NONE, 0.05) == pytest.approx([np.log(2)])


def test_the_parts_add_up_to_what_the_list_adds_to_the_loss() -> None:
    rng = np.random.default_rng(1)
    record = np.sort(rng.integers(5, size=40))
    s_n, s_p, in_batch = rng.normal(size=40), rng.normal(size=5), rng.normal(size=5)
    parts = added_losses(record, s_n, s_p, in_batch, 0.2)
    for each in range(5):
        own = np.concatenate([[0.0, in_batch[each]], (s_n[record == each] - s_p[each]) / 0.2])
        without, with_them = logsumexp(own[:2]), logsumexp(own)
        assert parts[record == each].sum() == pytest.approx(with_them - without)
    assert (parts > 0).all()


def test_the_more_there_is_in_the_batch_the_less_a_negative_adds() -> None:
    alone, among = (
        added_losses(np.zeros(2, int), np.array([0.2, 0.1]), np.array([0.3]), np.array([odds]), 0.05)
        for odds in (-np.inf, 3.0)
    )
    assert (among < alone).all()
    assert among[0] / among[1] == pytest.approx(alone[0] / alone[1])


def test_extreme_similarities_neither_overflow_nor_vanish() -> None:
    parts = added_losses(np.zeros(2, int), np.array([1.0, -1.0]), np.array([-1.0]), NONE, 0.001)
    assert np.isfinite(parts).all()
    assert parts[0] == pytest.approx(2_000)


def worth(logs: np.ndarray) -> Worth:
    record = np.repeat(np.arange(20), 5)
    parts = np.linspace(0.1, 1.0, 100)
    return Worth.of(parts, np.ones(100), Odds(logs), record, np.arange(20) % 4)


def test_without_false_negatives_the_benefit_is_the_strength_and_with_false_ones_alone_its_harm() -> None:
    each = worth(np.zeros(100))
    assert each.strength == pytest.approx(np.linspace(0.1, 1.0, 100).sum() / 20)
    low, half, most = each.benefit([0.0, 0.5, SHARES[-1]])
    assert low == pytest.approx(each.strength)
    assert half == pytest.approx(each.strength * (1 - (1 + HARM) * 0.5), rel=1e-3)
    assert most == pytest.approx(each.strength * (1 - (1 + HARM) * SHARES[-1]), rel=1e-3)


def test_false_negatives_that_pull_more_cost_more() -> None:
    hard_ones, easy_ones = worth(np.linspace(-4, 4, 100)), worth(np.linspace(4, -4, 100))
    assert hard_ones.benefit([0.3])[0] < worth(np.zeros(100)).benefit([0.3])[0] < easy_ones.benefit([0.3])[0]


def test_a_resampling_weighs_the_blocks() -> None:
    each = worth(np.zeros(100))
    only_last = each.benefit([0.0], np.array([[0.0, 0.0, 0.0, 2.0]]))
    assert only_last[0] == pytest.approx(each.sums[3, 0] / each.counts[3])


def test_a_benefit_that_is_the_difference_of_help_and_harm_may_have_the_wrong_sign() -> None:
    strengths, benefits = np.array([[1.0, 1.0]]), np.array([[1.0, -0.1]])
    factors = np.array([[[1.2, 1.2]], [[0.8, 0.8]]])
    assert mistaken(benefits, strengths, np.ones((2, 1, 2))) == pytest.approx(benefits)
    assert mistaken(benefits, strengths, factors) == pytest.approx(np.array([[1.2, 1.2 - 0.8 * 1.1]]))


def test_where_help_and_harm_nearly_cancel_the_better_of_two_is_not_sure() -> None:
    factors = _factors((8_000, 2), np.random.default_rng(0))
    strengths, benefits = (np.tile(each, (8_000, 1)) for each in ([0.06, 0.3], [0.06, -0.05]))
    values = mistaken(benefits, strengths, factors)
    assert 0.75 < (values[:, 0] > values[:, 1]).mean() < 0.95
    assert (benefits * factors[0])[:, 1].max() < 0, "an error of the whole benefit alone never changes its sign"
    of_harm = np.log(factors[1] / factors[0])
    assert of_harm.std(axis=0) == pytest.approx(np.hypot(HARM_OF_ALL, HARM_OF_ONE), rel=0.05)
    assert np.corrcoef(of_harm.T)[0, 1] == pytest.approx(0.5, abs=0.05), "half of its variance is common"
