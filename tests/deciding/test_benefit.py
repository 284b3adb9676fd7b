"""What negatives are worth: the added loss by hand, its limits, how answers spread, recurrence, and points."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from foils.deciding.benefit import FORM, MOST, Odds, added_losses

NONE = np.array([-np.inf])


def test_one_negative_as_near_as_the_positive_adds_ln_2():
    assert added_losses(np.array([0]), np.array([0.3]), np.array([0.3]), NONE, 0.05) == pytest.approx([np.log(2)])


def test_the_parts_add_up_to_what_the_list_adds_to_the_loss():
    rng = np.random.default_rng(1)
    record = np.sort(rng.integers(5, size=40))
    s_n, s_p, in_batch = rng.normal(size=40), rng.normal(size=5), rng.normal(size=5)
    parts = added_losses(record, s_n, s_p, in_batch, 0.2)
    for each in range(5):
        own = np.concatenate([[0.0, in_batch[each]], (s_n[record == each] - s_p[each]) / 0.2])
        assert parts[record == each].sum() == pytest.approx(logsumexp(own) - logsumexp(own[:2]))
    assert (parts > 0).all()


def test_the_more_there_is_in_the_batch_the_less_a_negative_adds():
    alone, among = (
        added_losses(np.zeros(2, int), np.array([0.2, 0.1]), np.array([0.3]), np.array([odds]), 0.05)
        for odds in (-np.inf, 3.0)
    )
    assert (among < alone).all()
    assert among[0] / among[1] == pytest.approx(alone[0] / alone[1])


def test_extreme_similarities_neither_overflow_nor_vanish():
    parts = added_losses(np.zeros(2, int), np.array([1.0, -1.0]), np.array([-1.0]), NONE, 0.001)
    assert np.isfinite(parts).all()
    assert parts[0] == pytest.approx(2_000)


@pytest.mark.parametrize("share", [1e-6, 0.03, 0.5, 0.9, MOST])
def test_the_mean_over_a_source_is_its_share(share):
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    constant, slope = Odds(logs).line(share)
    assert slope == 1
    assert expit(constant + logs).mean() == pytest.approx(share, rel=0.01)


def test_another_slope_turns_the_line_about_the_answers():
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    odds = Odds(logs)
    (a, _), (b, slope) = odds.line(0.2), odds.line(0.2, 0.5)
    weights = expit(a + logs)
    mean = weights @ logs / weights.sum()
    assert b + slope * mean == pytest.approx(a + mean, abs=0.02)


def test_points_rise_with_the_benefit_and_err_with_heavy_tails():
    rng = np.random.default_rng(0)
    for form in FORM.values():
        assert form.mean(0.0) == 0
        assert form.mean(-0.4) == -form.mean(0.4)
        assert form.mean(0.5) > form.mean(0.2) > 0
        errors = rng.standard_t(3, 20_000), rng.standard_t(3, (20_000, 2))
        drawn = form.drawn(np.tile([0.5, 0.0], (20_000, 1)), errors)
        gain = drawn[:, 0] - drawn[:, 1]
        assert np.median(gain) == pytest.approx(float(form.mean(0.5)), abs=0.02)
        low, high = np.quantile(gain, [0.001, 0.999])
        assert high - low > 1.5 * 2 * 3.09 * (np.quantile(gain, 0.84) - np.median(gain)), "wider than a normal's"
