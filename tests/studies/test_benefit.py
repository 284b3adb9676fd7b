from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from foils.studies.benefit import false_probabilities, net_pull


def measured(s_p, s_n, record):
    """What the forms of B read of a scoring: one source, its triplets by record."""
    record = np.asarray(record)
    return SimpleNamespace(
        s_p=np.asarray(s_p, float),
        similarities=SimpleNamespace(s_n=np.asarray(s_n, float)),
        records=SimpleNamespace(record=record, names=("a",), members=np.ones(len(record), np.int64)),
    )


def test_net_pull_is_minus_the_slope_of_the_loss_in_the_positives_logit():
    # with no false ones, sum of P_j = 1 - P_+ = -d(loss)/d(s_p/tau), mean over records
    rng = np.random.default_rng(0)
    s_p, s_n, record = rng.uniform(0, 1, 3), rng.uniform(0, 1, 7), [0, 0, 0, 1, 1, 2, 2]
    own = torch.tensor(s_p / 0.1, requires_grad=True)
    loss = sum(
        torch.logsumexp(torch.cat([own[i : i + 1], torch.tensor(s_n[np.asarray(record) == i] / 0.1)]), 0) - own[i]
        for i in range(3)
    )
    loss.backward()
    found = net_pull(measured(s_p, s_n, record), np.ones(7, bool), np.zeros(7), 0.1)
    assert found == pytest.approx(float(-own.grad.mean()))


def test_net_pull_turns_with_what_is_false():
    world, every = measured([0.5], [0.5, 0.5], [0, 0]), np.ones(2, bool)
    assert net_pull(world, every, np.zeros(2), 0.05) == pytest.approx(2 / 3)
    assert net_pull(world, every, np.ones(2), 0.05) == pytest.approx(-2 / 3)
    assert net_pull(world, every, np.array([1.0, 0.0]), 0.05) == pytest.approx(0)


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_false_probabilities_have_the_rate_as_their_mean_and_rise_with_similarity(rate):
    rng = np.random.default_rng(1)
    world = measured(rng.normal(0.7, 0.1, 50), rng.normal(0.4, 0.1, 200), np.repeat(np.arange(50), 4))
    found = false_probabilities(world, np.ones(200, bool), rate)
    assert found.mean() == pytest.approx(rate)
    order = np.argsort(world.similarities.s_n)
    assert (np.diff(found[order]) >= 0).all()
    assert found.max() > found.min()


def test_known_rates_at_the_ends():
    world = measured([0.5], [0.3, 0.4], [0, 0])
    assert false_probabilities(world, np.ones(2, bool), 0.0).tolist() == [0, 0]
    assert false_probabilities(world, np.ones(2, bool), 1.0).tolist() == [1, 1]
    assert np.isnan(false_probabilities(world, np.ones(2, bool), float("nan"))).all()
