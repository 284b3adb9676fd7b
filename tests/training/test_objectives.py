"""Losses as pure functions, ways of mixing them, and those that learn from a teacher."""

import logging
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
from sentence_transformers.util import pairwise_cos_sim
from torch.autograd import gradcheck

import foils
from foils.data import Negatives
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.fit import train_model
from foils.training.losses import TEACHER_LOSSES, make_loss
from foils.training.objectives import (
    MIXINGS,
    GradNormMixing,
    LearnableMixing,
    Mixing,
    UncertaintyMixing,
    debiased_infonce,
    list_distillation,
    margin_mse,
    rating_regression,
    weighted_infonce,
)
from foils.training.settings import TrainSettings
from refusals import refused
from train_models import evaluated, features, made_up, rows_of, same, static_model, table

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
    shares = w * torch.exp(s / 0.1) / (w * torch.exp(s / 0.1)).sum(1, keepdim=True)
    expected = (shares - torch.zeros_like(shares).scatter(1, p[:, None], 1.0)) / 0.1
    assert torch.allclose(leaf.grad, expected, atol=1e-10)


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


def gradnorm(*, asymmetry: float, rate: float) -> GradNormMixing:
    mixing = GradNormMixing()
    mixing.asymmetry, mixing.rate = asymmetry, rate
    return mixing


def test_gradnorm_evens_out_the_norms():
    mixing, norms = gradnorm(asymmetry=0.0, rate=0.01), torch.tensor([3.0, 1.0])
    assert mixing(LOSSES, norms).item() == pytest.approx(2.5)  # under the weights before the step
    for _ in range(400):
        mixing(LOSSES, norms)
    first, second = mixing.shares()
    assert float(first + second) == pytest.approx(2)
    assert float(first * 3) == pytest.approx(float(second), rel=0.1)


def test_gradnorm_by_hand_for_one_step_and_pulls_back_the_slow_loss():
    mixing = gradnorm(asymmetry=0.0, rate=0.1)
    mixing(LOSSES, torch.tensor([3.0, 1.0]))  # Ḡ = 2: w = 1 − 0.1·3/2, 1 + 0.1·1/2, then to sum 2
    assert mixing.shares().tolist() == pytest.approx([2 * 0.85 / 1.9, 2 * 1.05 / 1.9])
    mixing = gradnorm(asymmetry=2.0, rate=0.1)
    mixing(LOSSES, torch.tensor([1.0, 1.0]))
    mixing(torch.tensor([0.2, 0.5]), torch.tensor([1.0, 1.0]))  # the first fell to a tenth, the second not at all
    assert mixing.shares()[1] > 1 > mixing.shares()[0]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Mixing, {"alpha": 1.2}),
        (LearnableMixing, {"alpha": 1.0}),
    ],
)
def test_settings_out_of_range_are_refused(kind, settings):
    refused(next(iter(settings)), kind, **settings)


# Losses that learn from a teacher


NAN = math.nan
BASE = TrainSettings(batch_size=16, epochs=1, learning_rate=0.05, max_length=32)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Scored by an encoder, so that what is learned from can be computed again."""
    vectors = str(tmp_path_factory.mktemp("vectors"))
    return foils.score_pairs(made_up(), table(made_up()), teacher=static_model(seed=3), vectors=vectors)


@pytest.fixture(scope="module")
def data(scored):
    return training_set(made_up(), scored, form="lists")


def test_margins_by_hand():
    similarities, teacher = torch.tensor([[0.9, 0.4, 0.1]]), torch.tensor([[5.0, 2.0, 4.0]])
    assert margin_mse(similarities, teacher).item() == pytest.approx(((0.5 - 3) ** 2 + (0.8 - 1) ** 2) / 2)
    warm = margin_mse(similarities, teacher, temperature=0.1, teacher_temperature=2)
    assert warm.item() == pytest.approx(((5 - 1.5) ** 2 + (8 - 0.5) ** 2) / 2)
    assert margin_mse(similarities, torch.tensor([[5.0, NAN, 4.0]])).item() == pytest.approx(0.04, rel=1e-4)
    assert margin_mse(similarities, torch.tensor([[NAN, 2.0, 4.0]])).isnan().all()


def test_lists_by_hand():
    similarities, teacher = torch.tensor([[0.2, 0.1, 0.4]]), torch.tensor([[math.log(9), 0.0, NAN]])
    p, q = np.array([0.9, 0.1]), np.exp([2, 1]) / np.exp([2, 1]).sum()
    wanted = (p * np.log(p / q)).sum()
    assert list_distillation(similarities, teacher, temperature=0.1).item() == pytest.approx(wanted, abs=1e-6)
    flat = list_distillation(similarities, teacher, temperature=0.1, teacher_temperature=1e6).item()
    assert flat == pytest.approx(-np.log(2 * np.sqrt(q.prod())), rel=1e-4)  # of even shares
    assert list_distillation(teacher[:, :2], teacher[:, :2]).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("objective", [margin_mse, list_distillation])
def test_gradients_are_those_of_finite_differences(objective):
    torch.manual_seed(0)
    similarities, teacher = torch.rand(3, 5, dtype=torch.float64), 4 * torch.rand(3, 5, dtype=torch.float64)
    teacher[0, 2] = teacher[2, 4] = NAN
    settings = {"temperature": 0.3, "teacher_temperature": 1.7}
    similarities.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: objective(s, teacher, **settings), similarities)
    objective(similarities, teacher, **settings).sum().backward()
    assert similarities.grad[0, 2] == similarities.grad[2, 4] == 0


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_they_are_those_of_sentence_transformers(temperature, data, model):
    """Its DistillKLDivLoss is multiplied by the student's temperature, squared; its MarginMSELoss has none."""
    rows = [0, 3, 5, 8]
    batch, labels = data.dataset[rows], torch.tensor(data.teacher_scores()[rows], dtype=torch.float32)
    settings = {"temperature": temperature, "teacher_temperature": 0.2}
    ours = make_loss("distil", model, data, settings=settings)(features(model, batch), torch.tensor(rows))
    theirs = DistillKLDivLoss(
        model, similarity_fct=pairwise_cos_sim, student_temperature=temperature, teacher_temperature=0.2
    )
    wanted = theirs(features(model, batch), labels) / temperature**2
    assert ours.item() == pytest.approx(wanted.item(), rel=1e-4)
    scaled = MarginMSELoss(model, similarity_fct=lambda a, b: pairwise_cos_sim(a, b) / temperature)
    ours = make_loss("margin-mse", model, data, settings=settings)(features(model, batch), torch.tensor(rows))
    assert ours.item() == pytest.approx(scaled(features(model, batch), labels / 0.2).item(), rel=1e-4)


@pytest.mark.parametrize("name", TEACHER_LOSSES)
def test_cached_is_the_same_and_alpha_adds_the_contrast(name, data, model):
    rows, found = [0, 3, 5, 8, 11], {}
    for alpha in (0.0, 0.3, 1.0):
        plain, cached = (
            make_loss(name, model, data, mini_batch_size=size, settings={"alpha": alpha}) for size in (None, 2)
        )
        found[alpha] = evaluated(plain, data.dataset[rows], rows)
        same(found[alpha], evaluated(cached, data.dataset[rows], rows), atol=2e-4)
    contrast = evaluated(make_loss("mnrl", model, data, settings={}), data.dataset[rows], rows)[0]
    assert found[1.0][0] == pytest.approx(contrast, rel=1e-5)
    assert found[0.3][0] == pytest.approx(0.3 * contrast + 0.7 * found[0.0][0], rel=1e-5)


@pytest.mark.parametrize("name", TEACHER_LOSSES)
def test_a_student_comes_nearer_to_its_teacher(name, data, tmp_path):
    settings = {"temperature": 1.0} if name == "margin-mse" else {"temperature": 0.1, "teacher_temperature": 0.1}
    how = replace(BASE, loss=name, loss_settings=settings, epochs=6, learning_rate=0.1)
    run = train_model(static_model(), data, tmp_path, settings=how)
    losses = [entry["loss"] for entry in run.history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]


def test_scores_are_looked_up_for_each_row(data, scored):
    found = data.teacher_scores()
    encode = partial(static_model(seed=3).encode, normalize_embeddings=True, show_progress_bar=False)
    for row in (0, 7):
        batch = data.dataset[row]
        query = encode(batch["anchor"])
        texts = [batch["positive"], *(batch[f"negative_{i}"] for i in range(1, 5))]
        assert found[row].tolist() == pytest.approx([float(query @ encode(text)) for text in texts], abs=1e-4)
    triplets = training_set(made_up(), scored)
    without = triplets.without(np.arange(len(triplets)) < 4, reason="test")
    assert np.array_equal(without.teacher_scores(), triplets.teacher_scores()[4:])


def without_some(scored, how):
    """The rows of a table of which q0, or every positive, has no teacher's scores."""
    teacher, queries = (np.array(scored.table[name].to_pylist()) for name in ("teacher", "query_id"))
    teacher[queries == "q0" if how == "q0" else ~scored.keep] = NAN
    at = scored.table.column_names.index("teacher")
    changed = Negatives(scored.table.set_column(at, "teacher", pa.array(teacher.astype(float))))
    return training_set(made_up(), changed, form="lists")


def test_rows_without_scores_are_told_and_have_the_contrast_alone(scored, caplog):
    data, model = without_some(scored, "q0"), static_model()
    with caplog.at_level(logging.WARNING):
        loss = make_loss("distil", model, data, settings={})
    assert "1 of 20 rows have no teacher's scores" in caplog.text
    both, one = (evaluated(loss, data.dataset[rows], rows)[0] for rows in ([0, 1], [1]))
    assert both == pytest.approx(one, rel=1e-5)  # the mean over those that have scores


@pytest.mark.parametrize(
    ("of", "settings", "said"),
    [
        (lambda scored: rows_of(rated=False), {}, r"no row has a number .* foils\.score_pairs"),
        (lambda scored: training_set(made_up()), {}, "no row has a number in a column teacher"),
        (lambda scored: without_some(scored, "positives"), {}, "no row has a number in a column teacher"),
        (None, {"teacher_temperature": 0.0}, "teacher_temperature 0; expected above 0"),
        (
            lambda scored: training_set(made_up(), scored.with_columns({"weight": np.full(len(scored), 0.5)})),
            {},
            "weights other than 1: no effect on distil with alpha=0",
        ),
    ],
)
def test_what_cannot_work_is_refused(of, settings, said, scored, data):
    refused(said, make_loss, "distil", static_model(), data if of is None else of(scored), settings=settings)


def test_trainings_that_cannot_work_are_refused(data, tmp_path):
    settings = replace(BASE, loss="margin-mse")
    with pytest.raises(InputError, match="mask: no effect on margin-mse with alpha=0"):
        train_model(static_model(), data, tmp_path, settings=replace(settings, mask="guide"))
