import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from foils.runtime.errors import InputError
from foils.training.objectives import (
    MIXINGS,
    GradNormMixing,
    LearnableMixing,
    Mixing,
    UncertaintyMixing,
    debiased_infonce,
    infonce_gradient,
    make_mixing,
    rating_regression,
    weighted_infonce,
)

T = torch.tensor


def case(b: int = 4, c: int = 7, seed: int = 0):
    rng = np.random.default_rng(seed)
    similarities = torch.tensor(rng.uniform(-1, 1, (b, c)), dtype=torch.float64)
    positives = torch.tensor(rng.integers(0, c, b))
    weights = torch.tensor(rng.uniform(0.1, 2, (b, c)), dtype=torch.float64)
    weights[0, (positives[0] + 1) % c] = 0.0
    return similarities, positives, weights.scatter(1, positives[:, None], 1.0)


def plain(similarities, positives, weights, tau, prior=0.0, beta=0.0):
    """The formulas as printed, in loops."""
    losses = []
    for s, p, w in zip(similarities.tolist(), positives.tolist(), weights.tolist(), strict=True):
        others = [i for i in range(len(s)) if i != p]
        count = sum(w[i] for i in others)
        e = sum(w[i] * math.exp((1 + beta) * s[i] / tau) for i in others)
        e /= sum(w[i] * math.exp(beta * s[i] / tau) for i in others)
        g = max((e - prior * math.exp(s[p] / tau)) / (1 - prior), math.exp(-1 / tau))
        losses.append(-math.log(math.exp(s[p] / tau) / (math.exp(s[p] / tau) + count * g)))
    return torch.tensor(losses, dtype=torch.float64)


def test_by_hand():
    # e^2 / (e^2 + 0.5 e^1 + 1 e^0) with τ = 0.5
    value = weighted_infonce(T([[1.0, 0.5, 0.0]]), T([0]), T([[0.0, math.log(0.5), 0.0]]), temperature=0.5)
    assert value.item() == pytest.approx(-math.log(math.e**2 / (math.e**2 + 0.5 * math.e + 1)), rel=1e-6)


@pytest.mark.parametrize("tau", [0.05, 0.2, 1.0])
def test_weighted_equals_plain_loops(tau):
    s, p, w = case()
    assert torch.allclose(weighted_infonce(s, p, w.log(), temperature=tau), plain(s, p, w, tau), atol=1e-10)


@pytest.mark.parametrize(("prior", "beta"), [(0.1, 0.0), (0.0, 1.0), (0.2, 0.5), (0.9, 2.0)])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_debiased_equals_plain_loops(prior, beta, tau):
    s, p, w = case(seed=1)
    found = debiased_infonce(s, p, w.log(), temperature=tau, prior=prior, concentration=beta)
    assert torch.allclose(found, plain(s, p, w, tau, prior, beta), atol=1e-9)


def test_without_prior_and_concentration_debiased_is_weighted():
    s, p, w = case(seed=2)
    assert torch.allclose(debiased_infonce(s, p, w.log()), weighted_infonce(s, p, w.log()), atol=1e-12)
    assert torch.allclose(debiased_infonce(s, p), weighted_infonce(s, p), atol=1e-12)


def test_gradient_is_autograds_and_equation_39():
    s, p, w = case(seed=4)
    leaf = s.clone().requires_grad_()
    weighted_infonce(leaf, p, w.log(), temperature=0.1).sum().backward()
    assert torch.allclose(infonce_gradient(s, p, w.log(), temperature=0.1), leaf.grad, atol=1e-10)
    z = (w * torch.exp(s / 0.1)).sum(1)
    row, column = 1, int((p[1] + 2) % 7)
    by_hand = w[row, column] * math.exp(s[row, column] / 0.1) / (0.1 * z[row])
    assert leaf.grad[row, column].item() == pytest.approx(by_hand.item(), rel=1e-9)


def test_gradients_by_finite_differences():
    s, p, w = case(3, 5, seed=5)
    s, tau = s.requires_grad_(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, t: weighted_infonce(x, p, w.log(), temperature=t), (s, tau))
    assert gradcheck(
        lambda x, t: debiased_infonce(x, p, w.log(), temperature=t, prior=0.1, concentration=0.7), (s, tau)
    )


def test_a_candidate_left_out_is_as_if_it_were_not_there():
    s, p = T([[0.9, 0.3, 0.8]]), T([0])
    mask = T([[0.0, 0.0, -math.inf]])
    for loss in (weighted_infonce, debiased_infonce):
        leaf = s.clone().requires_grad_()
        value = loss(leaf, p, mask, temperature=0.1)
        value.sum().backward()
        assert value.item() == pytest.approx(loss(s[:, :2], p, None, temperature=0.1).item(), rel=1e-5)
        assert leaf.grad[0, 2] == 0
        assert torch.isfinite(leaf.grad).all()


def test_a_query_without_a_negative_has_no_loss():
    s = T([[0.5], [0.2]]).requires_grad_()
    for loss in (weighted_infonce, debiased_infonce):
        value = loss(s, T([0, 0]), None, temperature=0.05)
        (gradient,) = torch.autograd.grad(value.sum(), s)
        assert value.tolist() == [0, 0]
        assert gradient.tolist() == [[0], [0]]


def test_small_temperatures_stay_finite():
    s, p, w = case(seed=6)
    for loss in (weighted_infonce, debiased_infonce):
        leaf = s.float().requires_grad_()
        value = loss(leaf, p, w.float().log(), temperature=0.002).sum()
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(leaf.grad).all()


@given(st.integers(0, 1000), st.floats(0.02, 1))
def test_invariances(seed, tau):
    s, p, w = case(seed=seed)
    value = weighted_infonce(s, p, w.log(), temperature=tau)
    assert (value >= -1e-12).all()
    order = torch.tensor(np.random.default_rng(seed).permutation(7))
    place = torch.argsort(order)
    assert torch.allclose(weighted_infonce(s[:, order], place[p], w[:, order].log(), temperature=tau), value)
    assert torch.allclose(weighted_infonce(s + 0.3, p, w.log(), temperature=tau), value, atol=1e-9)


def test_regression_by_hand_and_over_rated_entries_only():
    predictions, ratings = T([[1.0, 2.0, 0.0], [1.0, 1.0, 1.0]]), T([[0.0, math.nan, 2.0], [math.nan] * 3])
    found = rating_regression(predictions, ratings)
    assert found[0].item() == pytest.approx((1 + 4) / 2)
    assert torch.isnan(found[1])
    leaf = predictions[:1].clone().requires_grad_()
    rating_regression(leaf, ratings[:1]).sum().backward()
    assert leaf.grad.tolist() == [[1.0, 0.0, -2.0]]


LOSSES = torch.tensor([2.0, 0.5])


def test_fixed_by_hand_and_its_ends():
    assert Mixing(0.7)(LOSSES).item() == pytest.approx(0.7 * 2 + 0.3 * 0.5)
    assert Mixing(1.0)(LOSSES).item() == 2
    assert Mixing(0.0)(LOSSES).item() == 0.5


@pytest.mark.parametrize(
    ("name", "alphas"),
    [
        ("staged", [0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.8]),  # Table 3
        ("scheduled", [0.56, 0.62, 0.68, 0.74, 0.8, 0.8, 0.8]),  # Algorithm 3
    ],
)
def test_alpha_follows_the_epoch(name, alphas):
    mixing = MIXINGS[name]()
    for epoch, alpha in enumerate(alphas, 1):
        mixing.set_epoch(epoch)
        assert mixing.shares() == pytest.approx((alpha, 1 - alpha))
        assert mixing(LOSSES).item() == pytest.approx(alpha * 2 + (1 - alpha) * 0.5)


def test_learnable_begins_where_told_and_moves_to_the_smaller_loss():
    mixing = LearnableMixing(0.7)
    assert mixing(LOSSES).item() == pytest.approx(0.7 * 2 + 0.3 * 0.5)
    mixing(LOSSES).backward()
    assert mixing.logit.grad.item() == pytest.approx(0.7 * 0.3 * (2 - 0.5))


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


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Mixing, {"alpha": 1.2}), (LearnableMixing, {"alpha": 1.0}), (GradNormMixing, {"asymmetry": -1}),
        (GradNormMixing, {"rate": 0}),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(kind, settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        kind(**settings)


@pytest.mark.parametrize("name", MIXINGS)
def test_every_way_says_what_it_is(name):
    mixing = make_mixing(name, 0.5)
    assert mixing.describe()["mixing"] == name
    assert mixing(LOSSES).ndim == 0
