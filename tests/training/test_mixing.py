from __future__ import annotations

import math

import pytest
import torch

from foils.runtime.errors import InputError
from foils.training.loss_weighting import (
    MIXINGS,
    GradNormMixing,
    LearnableMixing,
    Mixing,
    UncertaintyMixing,
    make_mixing,
    scheduled_alpha,
)

LOSSES = torch.tensor([2.0, 0.5])


def test_algorithm_3():
    assert [scheduled_alpha(e) for e in (0, 1, 2, 3, 4, 5, 6, 40)] == pytest.approx(
        [0.5, 0.56, 0.62, 0.68, 0.74, 0.8, 0.8, 0.8]
    )


def test_fixed_by_hand_and_its_ends():
    assert Mixing(0.7)(LOSSES).item() == pytest.approx(0.7 * 2 + 0.3 * 0.5)
    assert Mixing(1.0)(LOSSES).item() == 2
    assert Mixing(0.0)(LOSSES).item() == 0.5
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        Mixing(1.2)


def test_staged_follows_table_3():
    mixing = MIXINGS["staged"]()
    found = []
    for epoch in range(1, 10):
        mixing.set_epoch(epoch)
        found.append(mixing.shares()[0])
    assert found == [0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.8]


def test_scheduled_follows_the_epoch():
    mixing = MIXINGS["scheduled"]()
    mixing.set_epoch(5)
    assert mixing(LOSSES).item() == pytest.approx(0.8 * 2 + 0.2 * 0.5)
    mixing.set_epoch(1)
    assert mixing(LOSSES).item() == pytest.approx(0.56 * 2 + 0.44 * 0.5)


def test_learnable_begins_where_told_and_moves_to_the_smaller_loss():
    mixing = LearnableMixing(0.7)
    assert mixing(LOSSES).item() == pytest.approx(0.7 * 2 + 0.3 * 0.5)
    mixing(LOSSES).backward()
    assert mixing.logit.grad.item() == pytest.approx(0.7 * 0.3 * (2 - 0.5))
    with pytest.raises(InputError, match="inside"):
        LearnableMixing(1.0)


def test_uncertainty_by_hand_and_at_its_minimum():
    mixing = UncertaintyMixing()
    with torch.no_grad():
        mixing.log_variances.copy_(torch.tensor([math.log(4.0), math.log(0.25)]))  # σ = 2, ½
    assert mixing(LOSSES).item() == pytest.approx(2 / 8 + 0.5 / 0.5 + math.log(2 * 0.5))
    assert mixing.shares().tolist() == pytest.approx([1 / 8, 2.0])
    with torch.no_grad():
        mixing.log_variances.copy_(LOSSES.log())  # the best σ² is the loss itself
    mixing(LOSSES).backward()
    assert mixing.log_variances.grad.tolist() == pytest.approx([0, 0], abs=1e-7)


def test_gradnorm_evens_out_the_norms():
    mixing, norms = GradNormMixing(asymmetry=0.0, rate=0.01), torch.tensor([3.0, 1.0])
    assert mixing(LOSSES, norms).item() == pytest.approx(2.5)  # under the weights before the step
    for _ in range(400):
        mixing(LOSSES, norms)
    first, second = mixing.shares()
    assert float(first + second) == pytest.approx(2)
    assert float(first * 3) == pytest.approx(float(second), rel=0.1)


def test_gradnorm_by_hand_for_one_step_and_pulls_back_the_slow_loss():
    mixing = GradNormMixing(asymmetry=0.0, rate=0.1)
    mixing(LOSSES, torch.tensor([3.0, 1.0]))  # Ḡ = 2: w = 1 − 0.1·3/2, 1 + 0.1·1/2, then to sum 2
    assert mixing.shares().tolist() == pytest.approx([2 * 0.85 / 1.9, 2 * 1.05 / 1.9])
    mixing = GradNormMixing(asymmetry=2.0, rate=0.1)
    mixing(LOSSES, torch.tensor([1.0, 1.0]))
    mixing(torch.tensor([0.2, 0.5]), torch.tensor([1.0, 1.0]))  # the first fell to a tenth, the second not at all
    assert mixing.shares()[1] > 1 > mixing.shares()[0]


def test_gradnorm_rests_in_evaluation():
    mixing = GradNormMixing().eval()
    mixing(LOSSES, torch.tensor([3.0, 1.0]))
    assert mixing.shares().tolist() == [1, 1]


@pytest.mark.parametrize("settings", [{"asymmetry": -1}, {"rate": 0}])
def test_gradnorm_refuses_settings_out_of_range(settings):
    with pytest.raises(InputError, match="expected"):
        GradNormMixing(**settings)


@pytest.mark.parametrize("name", MIXINGS)
def test_every_way_says_what_it_is(name):
    mixing = make_mixing(name, 0.5)
    assert mixing.describe()["mixing"] == name
    assert mixing(LOSSES).ndim == 0
