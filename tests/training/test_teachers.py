"""Losses that learn from a teacher: by hand, by finite differences, against sentence-transformers, in training."""

import logging
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
from sentence_transformers.util import pairwise_cos_sim

import foils
from foils.data import Negatives
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.losses import TEACHER_LOSSES, make_loss
from foils.training.objectives import list_distillation, margin_mse
from foils.training.refresh import Refresh
from foils.training.settings import TrainSettings
from foils.training.train import train_model
from train_models import evaluated, features, made_up, rows_of, same, static_model, table

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
        (lambda scored: rows_of(rated=False), {}, r"no numbers in a column teacher; foils\.score_pairs"),
        (lambda scored: training_set(made_up()), {}, "pairs alone have no scores"),
        (lambda scored: without_some(scored, "positives"), {}, "no row has a number in teacher for its positive"),
        (None, {"teacher_temperature": 0.0}, r"teacher_temperature 0\.0; expected above 0"),
        (
            lambda scored: training_set(made_up(), scored.with_columns({"weight": np.full(len(scored), 0.5)})),
            {},
            "weights other than 1: no effect on distil with alpha=0",
        ),
    ],
)
def test_what_cannot_work_is_refused(of, settings, said, scored, data):
    with pytest.raises(InputError, match=said):
        make_loss("distil", static_model(), data if of is None else of(scored), settings=settings)


def test_trainings_that_cannot_work_are_refused(data, tmp_path):
    settings = replace(BASE, loss="margin-mse")
    with pytest.raises(InputError, match="mask: no effect on margin-mse with alpha=0"):
        train_model(static_model(), data, tmp_path, settings=replace(settings, mask="self"))
    with pytest.raises(InputError, match="have no teacher's scores"):
        train_model(static_model(), data, tmp_path, settings=settings, refresh=Refresh(None, None, 1))
