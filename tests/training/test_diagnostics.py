from __future__ import annotations

import numpy as np
import pytest
import torch

from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.diagnostics import batch_diagnostics, gradient_ratio, loss_curves
from foils.training.objectives import infonce_gradient, weighted_infonce
from train_models import made_up, static_model, table


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_theorem_1():
    assert gradient_ratio(0.3, temperature=0.07) == pytest.approx(72.6, abs=0.1)
    assert gradient_ratio(0.0) == 1
    s = torch.tensor([[0.9, 0.6, 0.3]], dtype=torch.float64)
    gradient = infonce_gradient(s, torch.tensor([0]), temperature=0.07)[0]
    assert (gradient[1] / gradient[2]).item() == pytest.approx(gradient_ratio(0.3, temperature=0.07), rel=1e-9)
    with pytest.raises(InputError, match="above 0"):
        gradient_ratio(0.3, temperature=0.0)


def test_a_batch_against_autograd():
    rng = np.random.default_rng(0)
    q, d = unit(rng, 5, 8), unit(rng, 12, 8)
    mask = np.zeros((5, 12), bool)
    mask[0, 7] = mask[3, 1] = True
    found = batch_diagnostics(q, d, mask=mask, temperature=0.2)
    leaf = torch.tensor(q, requires_grad=True)
    logs = torch.where(torch.tensor(mask), -torch.inf, 0.0).double()
    losses = weighted_infonce(leaf @ torch.tensor(d).T, torch.arange(5), logs, temperature=0.2)
    losses.sum().backward()
    assert found.losses == pytest.approx(losses.detach().numpy())
    assert found.gradient_norms == pytest.approx(leaf.grad.norm(dim=1).numpy())
    assert ((found.dominance > 1 / 11) & (found.dominance <= 1)).all()


def test_dominance_by_hand():
    d = np.eye(3)
    q = np.array([[0.0, 1.0, 0.0]])
    found = batch_diagnostics(q, d, temperature=0.5)
    assert found.dominance[0] == pytest.approx(np.exp(2) / (np.exp(2) + 1))
    assert np.isnan(batch_diagnostics(q, d[:1]).dominance[0])


def test_a_masked_positive_or_shapes_that_do_not_fit_are_refused():
    q = np.eye(2)
    with pytest.raises(InputError, match="own positive"):
        batch_diagnostics(q, q, mask=np.eye(2, dtype=bool))
    with pytest.raises(InputError, match="c ≥ b"):
        batch_diagnostics(q, q[:1])


def test_curves_follow_the_batches():
    collection = made_up()
    data = training_set(collection, table(collection))
    curves = loss_curves(static_model(), data, [[0, 4, 8], [12, 16, 20, 24]])
    assert [set(point) for point in curves] == [{"losses", "gradient_norms", "dominance"}] * 2
    assert curves[0]["losses"] != curves[1]["losses"]
    hotter = loss_curves(static_model(), data, [[0, 4, 8]], temperature=1.0)
    assert hotter[0]["gradient_norms"] < curves[0]["gradient_norms"]
