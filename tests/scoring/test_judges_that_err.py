"""Judges that err: the likelihood of answers by hand, what is believed of errors, and coverage in made-up worlds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from foils.scoring.answers import LATENT, Labelled, Programs
from foils.scoring.belief import Belief, Draws, Evidence

NAN = np.nan


def programs(*, positives: tuple[int, int] = (0, 0), random: tuple[int, int] = (0, 0)) -> Programs:
    return Programs(("llm:m",), np.array([positives], float), np.array([random], float))


def judged(relevant: list[float], answers: list[float], logs: list[float]) -> Labelled:
    membership, given = np.ones((len(relevant), 1)), np.array(answers)[:, None]
    return Labelled(np.array(relevant), membership, np.array(logs), programs(), given)


def test_the_likelihood_of_answers_by_hand() -> None:
    labelled = judged([NAN, NAN, 1, 0, NAN], [1, 0, 0, 1, NAN], [0.0, -1.0, 0.5, -2.0, 3.0])
    pi, se, sp = expit(np.array([0.3, -0.7, 0.8, -1.7])), 0.8, 0.9
    by_hand = [pi[0] * se + (1 - pi[0]) * (1 - sp), pi[1] * (1 - se) + (1 - pi[1]) * sp]
    by_hand += [pi[2] * (1 - se), (1 - pi[3]) * (1 - sp)]
    rates = (np.array([se]), np.array([sp]))
    assert labelled.likelihood(np.array([[0.3, 1.0]]), *rates) == pytest.approx(np.log(by_hand).sum())
    chances = labelled.probabilities(np.array([[0.3, 1.0]]), *rates)
    assert chances[:4] == pytest.approx([pi[0] * se / by_hand[0], pi[1] * (1 - se) / by_hand[1], 1, 0])
    assert chances[4] == pytest.approx(expit(3.3))


def test_what_is_believed_of_errors_before_pairs_are_judged() -> None:
    latent = np.random.default_rng(0).standard_normal((20_000, LATENT))
    unknown = np.array([programs().rates(each) for each in latent])[:, :, 0]
    assert (unknown.sum(axis=1) >= 1 - 1e-9).all(), "no judge is worse than chance"
    assert np.quantile(unknown[:, 0], [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.02)
    checked = programs(positives=(80, 20), random=(950, 50))
    known = np.array([checked.rates(each) for each in latent])[:, :, 0]
    assert known[:, 0].mean() == pytest.approx(81 / 102, abs=0.01)
    assert known[:, 1].max() < 0.99, "mined negatives are harder than random documents"
    assert known[:, 1].min() < 0.4
    useless = programs(positives=(100, 900), random=(500, 500))
    assert np.array([useless.rates(each) for each in latent[:500]]).sum(axis=1).max() < 1.02


class MadeUp:
    """Two sources whose negatives are false as a belief says, and a judge who errs at known rates."""

    def __init__(self, seed: int, sensitivity: float, specificity: float) -> None:
        self.rng = np.random.default_rng(seed)
        ratios = self.rng.lognormal(-1.5, 1.0, (2, 400))
        rates = ratios.mean(axis=1)
        self.belief = Belief([Evidence(r, rate, 0.6) for r, rate in zip(ratios, rates, strict=True)], 1.5)
        self.true = np.minimum(0.95, 1.5 * self.rng.random() * rates * np.exp(0.6 * self.rng.standard_normal(2)))
        self.sensitivity, self.specificity = sensitivity, specificity

    def labels(self, count: int, by_people: int, **checks: tuple[int, int]) -> Labelled:
        source, pair = self.rng.integers(2, size=count), self.rng.integers(400, size=count)
        logs = np.array([self.belief.odds[s].logs[p] for s, p in zip(source, pair, strict=True)])
        relevant = self.rng.random(count) < expit(self.belief.lines(self.true)[source, 0] + logs)
        yes = np.where(relevant, self.sensitivity, 1 - self.specificity)
        answers = (self.rng.random(count) < yes).astype(float)[:, None]
        known = np.where(np.arange(count) < by_people, relevant, NAN)
        return Labelled(known, np.eye(2)[source], logs, programs(**checks), answers)

    def draw(self, labelled: Labelled) -> Draws:
        return self.belief.draw(labelled, self.rng, draws=120)


def intervals(draws: Draws) -> np.ndarray:
    return np.quantile(draws.shares, [0.025, 0.975], axis=0)


@pytest.mark.parametrize("by_people", [0, 40])
def test_intervals_hold_the_truth_although_the_judge_errs(by_people: int) -> None:
    held, rates = [], []
    for seed in range(12):
        world = MadeUp(seed, 0.8, 0.9)
        draws = world.draw(world.labels(200, by_people, positives=(16, 4), random=(97, 3)))
        low, high = intervals(draws)
        held.append((low <= world.true) & (world.true <= high))
        rates.append([np.quantile(each, [0.025, 0.975]) for each in (draws.sensitivity, draws.specificity)])
    assert np.mean(held) > 0.8
    within = [low <= true <= high for both in rates for (low, high), true in zip(both, (0.8, 0.9), strict=True)]
    assert np.mean(within) > 0.8


def test_a_judge_taken_at_his_word_would_mislead() -> None:
    held = []
    for seed in range(8):
        world = MadeUp(seed, 0.6, 0.75)
        given = world.labels(200, 0)
        word = Labelled(given.answers[:, 0], given.membership, given.logs)
        held.append([(lambda ends, t: (ends[0] <= t) & (t <= ends[1]))(intervals(world.draw(each)), world.true)
                     for each in (given, word)])  # fmt: skip
    carried, word = np.mean(held, axis=(0, 2))
    assert carried > 0.8 > 0.7 > word


def test_the_better_the_judge_the_narrower_and_chance_leaves_it_wide() -> None:
    widths = []
    for sensitivity, specificity in ((0.5, 0.5), (0.98, 0.98)):
        of_worlds = []
        for seed in range(3):
            world = MadeUp(seed, sensitivity, specificity)
            before = intervals(world.draw(Labelled.none(2)))
            after = intervals(world.draw(world.labels(200, 30)))
            without = intervals(world.draw(world.labels(200, 0)))
            of_worlds.append([(ends[1] - ends[0]).mean() / (before[1] - before[0]).mean() for ends in (after, without)])
        widths.append(np.mean(of_worlds, axis=0))
    assert widths[0][1] > 0.8, "answers by chance alone say next to nothing"
    assert widths[1][0] < 0.7 * widths[0][0]
    assert widths[1][1] < 0.8 * widths[0][1]
