"""Learning a teacher's vectors: against a plain implementation, with short lists and other widths, and to the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import foils
from foils.encode import EmbeddingSettings
from foils.runtime.errors import InputError, UnknownNameError
from foils.training.data import training_set
from foils.training.fit import Steps
from foils.training.loss_registry import make_loss
from foils.training.settings import TrainSettings
from foils.training.train import train_model
from train_models import made_up, static_model, table

LABELS = [3, 0, 12]


@pytest.fixture(scope="module")
def collection():
    return made_up()


@pytest.fixture(scope="module")
def data(collection):
    short = table(collection).reject(np.arange(80) % 7 == 0, "looks wrong")
    made = training_set(collection, short, form="lists")
    assert (made.rows[LABELS] < 0).any(), "a list is short"
    return made


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A teacher as wide as the student, and its folder."""
    folder = tmp_path_factory.mktemp("teacher")
    static_model(seed=3).save_pretrained(str(folder))
    return str(folder)


@pytest.fixture
def use(tmp_path):
    return EmbeddingSettings(vectors=str(tmp_path / "vectors"))


def batch_of(model, data, rows):
    batch = data.dataset[rows]
    names = [name for name in batch if name != "label"]
    return [model.preprocess(batch[name]) for name in names], torch.tensor(batch["label"]), [batch[n] for n in names]


def apart(distance, ours, wanted):
    """The distance of one text, written down."""
    if distance == "cosine":
        return 1 - ours @ wanted / (ours.norm() * wanted.norm())
    return ((ours - wanted) ** 2).mean() if distance == "mse" else ((ours - wanted) ** 2).sum().sqrt()


@pytest.mark.parametrize("distance", ["cosine", "l2", "mse"])
def test_value_and_gradients_are_those_of_a_plain_loop(data, teacher, use, distance):
    settings = {"teacher": teacher, "distance": distance}
    model = static_model()
    loss = make_loss("embed-distil", model, data, embedding=use, settings=settings)
    features, labels, columns = batch_of(model, data, LABELS)
    value = loss(features, labels)
    value.backward()
    found = model[0].embedding.weight.grad.clone()
    model.zero_grad()
    knows, means = static_model(seed=3), []
    for number, column in enumerate(columns):
        there = [at for at, row in enumerate(LABELS) if data.rows[row, number] >= 0]
        if there:
            ours = [model(model.preprocess([column[at]]))["sentence_embedding"][0] for at in there]
            wanted = [torch.tensor(knows.encode(column[at], normalize_embeddings=True)) for at in there]
            means.append(sum(apart(distance, *pair) for pair in zip(ours, wanted, strict=True)) / len(there))
    plain = sum(means) / len(means)
    plain.backward()
    assert value.item() == pytest.approx(plain.item(), rel=1e-5)
    assert found.numpy() == pytest.approx(model[0].embedding.weight.grad.numpy(), abs=1e-6)


def test_a_teacher_of_another_width_is_reached_by_a_learned_map(data, use, tmp_path):
    model, wide = static_model(), static_model(seed=3, dimension=24)
    wide.save_pretrained(str(tmp_path / "wide"))
    loss = make_loss("embed-distil", model, data, embedding=use, settings={"teacher": str(tmp_path / "wide")})
    assert set(Steps(loss, None).own_state()) == {"loss.projection.weight", "loss.projection.bias"}
    features, labels, columns = batch_of(model, data, LABELS)
    value = loss(features, labels)
    value.backward()
    assert loss.loss.projection.weight.grad.abs().max() > 0
    means = []
    for number, column in enumerate(columns):
        there = [at for at, row in enumerate(LABELS) if data.rows[row, number] >= 0]
        if there:
            texts = [column[at] for at in there]
            mapped = loss.loss.projection(model(model.preprocess(texts))["sentence_embedding"])
            means.append((1 - torch.cosine_similarity(mapped, torch.tensor(wide.encode(texts)))).mean())
    assert value.item() == pytest.approx(torch.stack(means).mean().item(), rel=1e-5)


def test_what_is_learned_are_the_teachers_vectors(collection, data, teacher, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    model, knows = static_model(), static_model(seed=3)
    texts = collection.document_texts(np.unique(data.rows[:, 1]))

    def near():
        return (model.encode(texts, normalize_embeddings=True) * knows.encode(texts, normalize_embeddings=True)).sum(1)

    before = near().mean()
    settings = TrainSettings(
        loss="embed-distil", loss_settings={"teacher": teacher}, batch_size=4, epochs=20, learning_rate=0.1,
        max_length=32,
    )  # fmt: skip
    train_model(model, data, tmp_path / "out", settings=settings)
    assert near().mean() > max(0.9, before + 0.2)


def test_what_it_would_ignore_is_refused(collection, data, teacher, use):
    model = static_model()
    weighed = training_set(collection, table(collection, rated=True), form="lists")
    with pytest.raises(InputError, match="weight other than 1, which embed-distil cannot heed"):
        make_loss("embed-distil", model, weighed, embedding=use, settings={"teacher": teacher})
    with pytest.raises(InputError, match="learns the vectors of a teacher: set teacher=MODEL"):
        make_loss("embed-distil", model, data, embedding=use, settings={})
    with pytest.raises(UnknownNameError, match="distance"):
        make_loss("embed-distil", model, data, embedding=use, settings={"teacher": teacher, "distance": "dot"})
    for idle in ({"mask": "self"}, {"matryoshka": (8,)}, {"mini_batch_size": 4}):
        with pytest.raises(InputError, match=f"{next(iter(idle))} .*: no effect with loss embed-distil"):
            foils.train(collection, model="m", output="x", loss="embed-distil", **idle)
