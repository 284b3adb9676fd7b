from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers.cross_encoder.losses import ListNetLoss

from foils.errors import InputError, UnknownNameError
from foils.train.data import training_set
from foils.train.mixing import Mixing
from foils.train.reranker import (
    RERANKER_LOSSES,
    RerankerHybridLoss,
    reranker_loss,
    reranker_set,
    train_reranker,
)
from foils.train.settings import TrainSettings
from train_models import cross_encoder, made_up, table

BASE = TrainSettings(loss="hybrid", batch_size=8, epochs=2, learning_rate=0.01, max_length=32, precision="float32")


@pytest.fixture(scope="module")
def data():
    collection = made_up()
    return training_set(collection, table(collection, rated=True), form="lists")


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_every_loss_trains(name, data, tmp_path):
    model = cross_encoder(tmp_path / "bert")
    before = weights(model).clone()
    found = train_reranker(model, data, tmp_path / "out", settings=replace(BASE, loss=name))
    assert np.isfinite([entry["loss"] for entry in found.history]).all()
    assert not torch.equal(before, weights(found.model))


def test_regression_learns_the_ratings(tmp_path):
    collection = made_up(queries=4)
    few = training_set(collection, table(collection, rated=True), form="lists")
    settings = replace(BASE, loss="regression", epochs=60, learning_rate=0.01, checkpoint_steps=1000)
    found = train_reranker(cross_encoder(tmp_path / "bert"), few, tmp_path / "out", settings=settings)
    losses = [entry["loss"] for entry in found.history]
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:10])


@pytest.fixture(scope="module")
def base(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    return weights(train_reranker(cross_encoder(folder / "bert"), data, folder / "out", settings=BASE).model)


@pytest.mark.parametrize(
    "changed",
    [{"alpha": 0.9}, {"temperature": 0.2}, *({"mixing": m} for m in ("scheduled", "uncertainty", "gradnorm"))],
)
def test_every_setting_of_the_hybrid_changes_the_training(changed, base, data, tmp_path):
    settings = replace(BASE, loss_settings=changed)
    found = train_reranker(cross_encoder(tmp_path / "bert"), data, tmp_path / "out", settings=settings)
    assert not torch.equal(base, weights(found.model))


def test_the_hybrid_equals_plain_loops_whatever_the_mini_batch(data, tmp_path):
    model = cross_encoder(tmp_path).eval()
    rows = reranker_set(data, RERANKER_LOSSES["hybrid"], weighted=True)[:3]
    labels = [torch.tensor(label) for label in rows["label"]]
    inputs = [rows["query"], rows["documents"]]
    losses = []
    for query, documents, (ratings, own) in zip(*inputs, labels, strict=True):
        s = model.predict([(query, d) for d in documents], activation_fn=torch.nn.Identity(), convert_to_tensor=True)
        e = own * torch.exp(s / 0.5)
        losses.append(0.7 * -torch.log(e[0] / e.sum()) + 0.3 * ((s - ratings) ** 2).mean())
    for size in (None, 1, 4):
        loss = RerankerHybridLoss(model, mixing=Mixing(0.7), temperature=0.5, mini_batch_size=size)
        assert loss(inputs, labels).item() == pytest.approx(torch.stack(losses).mean().item(), abs=1e-5)


def test_alpha_1_and_no_weights_is_listnets_loss_on_one_positive(data, tmp_path):
    model = cross_encoder(tmp_path).eval()
    rows = reranker_set(data, RERANKER_LOSSES["hybrid"], weighted=True)[:4]
    inputs = [rows["query"], rows["documents"]]
    labels = [torch.stack([torch.tensor(r), torch.ones(len(w))]) for r, w in rows["label"]]
    ours = RerankerHybridLoss(model, mixing=Mixing(1.0))(inputs, labels)
    hard = [torch.tensor([1e4] + [0.0] * (len(d) - 1)) for d in inputs[1]]  # softmax: all on the positive
    assert ours.item() == pytest.approx(ListNetLoss(model)(inputs, hard).item(), abs=1e-5)


def test_data_sets_leave_absent_documents_and_unrated_pairs_out():
    collection = made_up()
    source = table(collection, rated=True)
    source = source.reject(np.arange(len(source)) == 2, "cut")
    lists = training_set(collection, source, form="lists")
    assert lists.counts["short lists"] == 1
    listwise = reranker_set(lists, RERANKER_LOSSES["listnet"])
    assert [len(d) for d in listwise["documents"]] == [4] + [5] * 19
    assert listwise["label"][0] == [1, 0, 0, 0]
    pointwise = reranker_set(lists, RERANKER_LOSSES["regression"])
    assert len(pointwise) == 4 + 5 * 19
    weighted = reranker_set(lists, RERANKER_LOSSES["hybrid"], weighted=True)
    own = source.table["weight"].to_pylist()
    assert weighted["label"][0][1] == pytest.approx([1, own[0], own[1], own[3]])


def test_what_cannot_be_trained_is_refused(tmp_path):
    collection = made_up()
    unrated = training_set(collection, table(collection), form="lists")
    with pytest.raises(InputError, match="rate the negatives"):
        reranker_set(unrated, RERANKER_LOSSES["regression"])
    with pytest.raises(UnknownNameError, match="listnet"):
        reranker_loss("listnett", {})
    with pytest.raises(UnknownNameError, match="alpha"):
        reranker_loss("hybrid", {"alfa": 1})
    with pytest.raises(InputError, match="temperature"):
        RerankerHybridLoss(None, mixing=Mixing(), temperature=0)


def test_dev_chooses_the_reranker(data, tmp_path):
    scores = iter([0.4, 0.1])
    found = train_reranker(
        cross_encoder(tmp_path / "bert"), data, tmp_path / "out", settings=BASE, score=lambda model: next(scores)
    )
    assert found.best == 0.4
