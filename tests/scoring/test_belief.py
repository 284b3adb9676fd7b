"""The belief on false negatives: its limits, Bayes' rule against numerical integration, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from foils.data.recapture import Recapture
from foils.scoring.answers import Labelled
from foils.scoring.belief import MOST, Belief, Evidence
from foils.scoring.evidence import COUNTED, rate_of, shared


def belief(rates: list[float], *, most: float = 2.0, spread: float = 1e-6) -> Belief:
    rng = np.random.default_rng(3)
    return Belief([Evidence(rng.lognormal(-2, 0.5, 400), rate, spread) for rate in rates], most)


def test_shares_grow_with_o_as_counting_says_and_stop_below_1() -> None:
    counted = belief([0.1, 0.9])
    assert counted.shares(0.5) == pytest.approx([0.05, 0.45])
    assert counted.shares(1e-7) == pytest.approx([1e-8, 9e-8])
    assert counted.shares(2.0) == pytest.approx([0.2, MOST])


def test_without_a_rate_the_share_is_the_mean_over_the_pairs() -> None:
    ratios = np.array([0.1, 0.2, 3.0])
    pairs = Belief([Evidence(ratios, np.nan, 1e-6)], 1.0)
    assert pairs.shares(0.5)[0] == pytest.approx(np.minimum(MOST, 0.5 * ratios).mean(), rel=5e-3)


def test_the_negatives_probabilities_average_to_the_share() -> None:
    each = belief([0.2])
    for share in (0.01, 0.3, 0.9):
        assert each.odds[0].probabilities(share).mean() == pytest.approx(share, rel=5e-3)


def test_before_labels_o_is_even() -> None:
    draws = belief([0.2]).draw(Labelled.none(1), np.random.default_rng(0), draws=4_000)
    assert np.quantile(draws.unlabelled / 2.0, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.05)


def test_labels_change_the_belief_as_integration_says() -> None:
    each = belief([0.3])
    relevant = np.array([1.0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    labelled = Labelled(relevant, np.ones((10, 1)), each.odds[0].logs[:10])
    draws = each.draw(labelled, np.random.default_rng(1), draws=4_000)
    grid = np.linspace(1e-3, 2.0, 2_001)
    logits = np.array([labelled.logits(each.lines(each.shares(o))) for o in grid])
    weight = np.prod(np.where(relevant == 1, expit(logits), expit(-logits)), axis=1)
    mean = (weight * grid).sum() / weight.sum()
    error = np.sqrt((weight * grid**2).sum() / weight.sum() - mean**2)
    assert draws.unlabelled.mean() == pytest.approx(mean, abs=0.1 * error)
    assert draws.unlabelled.std() == pytest.approx(error, rel=0.1)


def test_a_label_in_two_sources_says_something_of_both() -> None:
    both = belief([0.1, 0.1], spread=1.0)
    membership = np.full((30, 2), 0.5)
    logs = np.zeros(30) + both.odds[0].logs.mean()
    before = both.draw(Labelled.none(2), np.random.default_rng(2), draws=500).shares.mean(axis=0)
    after = both.draw(Labelled(np.ones(30), membership, logs), np.random.default_rng(2), draws=500)
    assert (after.shares.mean(axis=0) > 2 * before).all()


def test_sources_err_alike_as_far_as_they_share_negatives() -> None:
    first, second = np.repeat([[1, 0], [0, 1]], 50, axis=0).T
    membership = np.column_stack([first, second, first | second, first])
    assert shared(membership) == pytest.approx(np.array(
        [[1, 0, 0.5**0.5, 1], [0, 1, 0.5**0.5, 0], [0.5**0.5, 0.5**0.5, 1, 0.5**0.5], [1, 0, 0.5**0.5, 1]]
    ))  # fmt: skip
    evidence = [Evidence(np.full(50, 0.05), 0.05, 0.3) for _ in range(4)]
    draws = Belief(evidence, 2.0, shared(membership)).draw(Labelled.none(4), np.random.default_rng(0), draws=4_000)
    errors = np.log(draws.shares / (0.05 * draws.unlabelled[:, None]))
    assert errors.std(axis=0) == pytest.approx(0.3, rel=0.1)
    assert np.corrcoef(errors.T) == pytest.approx(shared(membership), abs=0.06)
    assert draws.shares[:, 0] == pytest.approx(draws.shares[:, 3])


@pytest.mark.parametrize("spread", [0.05, 0.6])
def test_the_interval_after_60_labels_holds_the_truth(spread: float) -> None:
    held, rng = [], np.random.default_rng(4)
    for _ in range(40):
        ratios = rng.lognormal(-1.5, 1.0, (3, 300))
        rates = ratios.mean(axis=1)
        truth = 1.5 * rng.random() * rates * np.exp(spread * rng.standard_normal(3))
        each = Belief([Evidence(r, rate, spread) for r, rate in zip(ratios, rates, strict=True)], 1.5)
        constants = each.lines(np.minimum(MOST, truth))[:, 0]
        source = rng.integers(3, size=60)
        pair = rng.integers(300, size=60)
        logs = np.array([each.odds[s].logs[p] for s, p in zip(source, pair, strict=True)])
        relevant = (rng.random(60) < expit(constants[source] + logs)).astype(float)
        draws = each.draw(Labelled(relevant, np.eye(3)[source], logs), rng, draws=200)
        low, high = np.quantile(draws.shares, [0.025, 0.975], axis=0)
        held.append((low <= np.minimum(MOST, truth)) & (np.minimum(MOST, truth) <= high))
    assert np.mean(held) > 0.88


@pytest.mark.parametrize(
    ("returned", "error", "rate", "spread"),
    [
        (100, None, 0.1, 0.1),  # √100 of 100
        (0, None, 0.0005, 1.0),  # half a positive
        (0, 175.0, 0.175, 1.0),  # none of three planted ones: an error of half of one, made that of all 1,050
        (0, 0.26, 0.0005, 1.0),  # none of two thousand
        (350, 250.0, 0.35, 250 / 350),
    ],
)
def test_few_recaptured_positives_are_no_fewer_than_they_may_be_wrong_by(returned, error, rate, spread) -> None:
    found = rate_of(Recapture(returned, 1050, 1000, standard_error=error))
    assert found == pytest.approx((rate, np.hypot(spread, COUNTED)))


def test_a_source_of_whose_few_planted_positives_none_came_back_is_not_believed_surely() -> None:
    rate, spread = rate_of(Recapture(0, 1050, 1000, "planted", 3, 175.0))
    each = Belief([Evidence(np.full(50, 0.1), rate, spread)], 0.6)
    for answers in (0, 14):  # none of the judged negatives is relevant
        labelled = Labelled(np.zeros(answers), np.ones((answers, 1)), np.full(answers, np.log(0.1)))
        with np.errstate(over="raise"):
            shares = each.draw(labelled, np.random.default_rng(0)).shares[:, 0]
        low, high = np.quantile(shares, [0.025, 0.975])
        assert 0.01 < high < 0.6
        assert low > 1e-4
