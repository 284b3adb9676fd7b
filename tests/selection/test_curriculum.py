import numpy as np
import pytest

from foils.runtime.errors import InputError
from foils.selection import LearningProgress, RatedRows, adapted_gap, curriculum, simans, stage_of
from foils.selection.curriculum import tier_max


def test_table_3():
    assert [stage_of(epoch) for epoch in (1, 2, 3, 4, 5, 6, 7, 50)] == [
        (300, 0.5), (300, 0.5), (200, 0.6), (200, 0.6), (150, 0.7), (150, 0.7), (100, 0.8), (100, 0.8)
    ]  # fmt: skip
    with pytest.raises(InputError, match="counted from 1"):
        stage_of(0)


def test_harder_ones_come_later():
    rows = RatedRows.of_gaps([100.0, 101.0, 151.0, 201.0, 300.0, 301.0, 700.0])
    assert curriculum(rows, epoch=1).keep.tolist() == [False] * 5 + [True] * 2
    assert curriculum(rows, epoch=3).keep.tolist() == [False] * 3 + [True] * 4
    assert curriculum(rows, epoch=5).keep.tolist() == [False] * 2 + [True] * 5
    assert curriculum(rows, epoch=7).keep.tolist() == [False] + [True] * 6
    assert curriculum(rows, epoch=1).reason.tolist()[:2] == ["danger zone", "too hard for this epoch"]
    np.testing.assert_array_equal(curriculum(rows, epoch=7).weight, [0, 0.5, 0.5, 1, 1, 1, 0.3])


def test_the_first_update_by_hand():
    bandit = LearningProgress(tiers=2, rate=1.0, exploration=0.0)
    np.testing.assert_allclose(bandit.probabilities, [0.5, 0.5])
    # one reward has no spread to be scaled by: 0, so t = 2 mixes two equal weights
    np.testing.assert_allclose(bandit.updated(0, 1.0, 0.5).probabilities, [0.5, 0.5])
    known = LearningProgress(tiers=2, rate=1.0, exploration=0.0, history=(0.0, 1.0), steps=2)
    # rewards 0, 1, 1: percentiles 0.4 and 1 scale the last to 1, and 1/0.5 = 2 is added; then t = 4
    a, b = 0.75 * np.exp(2) + 0.25, 0.75 + 0.25 * np.exp(2)
    np.testing.assert_allclose(known.updated(0, 1.0, 0.0).probabilities, [a / (a + b), b / (a + b)])


def drawn(rewards, *, steps=1500, **settings):
    rng = np.random.default_rng(0)
    bandit = LearningProgress(tiers=4, **settings)
    counts = np.zeros(4)
    for step in range(steps):
        tier = int(rng.choice(4, p=bandit.probabilities))
        counts[tier] += step >= steps // 2
        gained = rewards(step)[tier] + 0.1 * rng.normal()
        bandit = bandit.updated(tier, 1.0, 1.0 - gained)
    return counts / counts.sum()


def test_it_draws_what_teaches_most_and_follows_when_that_changes():
    assert drawn(lambda step: [0.0, 0.1, 0.8, 0.1]).argmax() == 2
    assert drawn(lambda step: [0.8, 0, 0, 0] if step < 500 else [0, 0, 0, 0.8]).argmax() == 3


def test_settings_of_the_bandit_count():
    steady = lambda step: [0.0, 0.1, 0.8, 0.1]  # noqa: E731
    assert drawn(steady, exploration=1.0).max() < 0.3
    assert drawn(steady, rate=1e-6).max() < 0.3 < drawn(steady).max()
    slow = LearningProgress(tiers=2, history=(0.0, 1.0))
    assert slow.updated(0, 1, 0, duration=10).history[-1] == 0.1


def test_the_state_is_not_changed_in_place_and_forgets_old_rewards():
    bandit = LearningProgress(tiers=2, history=tuple(range(1000)))
    after = bandit.updated(1, 1.0, 0.0)
    assert len(after.history) == 1000
    assert after.history[0] == 1
    assert bandit.steps == 0
    assert after.steps == 1


@pytest.mark.parametrize("given", [(4, 1.0, 0.0, 1.0), (0, np.nan, 0.0, 1.0), (0, 1.0, 0.0, 0.0)])
def test_faulty_updates_are_refused(given):
    tier, before, after, duration = given
    with pytest.raises(InputError):
        LearningProgress().updated(tier, before, after, duration=duration)


def test_faulty_settings_are_refused():
    for settings in ({"tiers": 1}, {"rate": 0.0}, {"exploration": 1.5}):
        with pytest.raises(InputError, match=next(iter(settings))):
            LearningProgress(**settings)


def test_tiers_up_to_the_one_of_algorithm_3():
    assert [tier_max(epoch) for epoch in (1, 2, 3, 4, 9)] == [1.5, 2, 2.5, 3, 3]
    gaps = RatedRows.of_gaps([150.0, 300.0, 500.0, 700.0])
    kept = [curriculum(gaps, epoch=epoch, schedule="algorithm3").keep.sum() for epoch in (1, 2, 3, 4, 9)]
    assert kept == [1, 2, 2, 3, 3]


def test_simans_aims_at_the_adapted_gap_of_section_8_3():
    rows = RatedRows.of_gaps(np.arange(0.0, 900.0, 10))
    assert simans(rows, rate=0.2).thresholds["target"] == adapted_gap(0.2) == pytest.approx(280)
