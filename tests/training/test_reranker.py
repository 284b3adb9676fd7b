from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers.cross_encoder import losses

from foils.data import Collection, Negatives
from foils.runtime.errors import InputError, UnknownNameError
from foils.training.data import training_set
from foils.training.mixing import Mixing
from foils.training.reranker import (
    RERANKER_LOSSES,
    RerankerHybridLoss,
    reranker_loss,
    reranker_set,
    train_reranker,
)
from foils.training.settings import TrainSettings
from train_models import cross_encoder, made_up, table

BASE = TrainSettings(loss="hybrid", batch_size=8, epochs=2, learning_rate=0.01, max_length=32, precision="float32")


@pytest.fixture(scope="module")
def data():
    collection = made_up()
    return training_set(collection, table(collection, rated=True), form="lists")


@pytest.fixture(scope="module")
def unweighted():
    """The same lists and ratings, of a table without weights."""
    collection = made_up()
    rated = table(collection, rated=True)
    return training_set(collection, Negatives(rated.table.drop_columns("weight")), form="lists")


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_every_loss_trains(name, data, unweighted, tmp_path):
    model = cross_encoder(tmp_path / "bert")
    before = weights(model).clone()
    taken = data if RERANKER_LOSSES[name].weighted else unweighted
    found = train_reranker(model, taken, tmp_path / "out", settings=replace(BASE, loss=name))
    assert np.isfinite([entry["loss"] for entry in found.history]).all()
    assert not torch.equal(before, weights(found.model))


def test_regression_learns_the_ratings(tmp_path):
    collection = made_up(queries=4)
    few = training_set(collection, table(collection, rated=True), form="lists")
    settings = replace(BASE, loss="regression", epochs=60, learning_rate=0.01, checkpoint_steps=1000)
    found = train_reranker(cross_encoder(tmp_path / "bert"), few, tmp_path / "out", settings=settings)
    by_step = [entry["loss"] for entry in found.history]
    assert np.mean(by_step[-10:]) < 0.3 * np.mean(by_step[:10])


def loss_of(name, model, data):
    """The loss of the first rows of a data set, without training."""
    kind = RERANKER_LOSSES[name]
    columns = list(reranker_set(data, kind)[:8].values())
    return kind.make(model, mini_batch_size=None)(columns[:-1], [torch.tensor(label) for label in columns[-1]])


@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_every_loss_heeds_weights_or_refuses_them(name, data, unweighted, tmp_path):
    model = cross_encoder(tmp_path).eval()
    if RERANKER_LOSSES[name].weighted:
        assert loss_of(name, model, data).item() != pytest.approx(loss_of(name, model, unweighted).item(), rel=1e-4)
    else:
        assert name == "lambda"
        assert torch.isfinite(loss_of(name, model, unweighted))
        with pytest.raises(InputError, match="take one of regression, binary, listnet, hybrid"):
            loss_of(name, model, data)


@pytest.mark.parametrize(
    ("name", "peer"),
    [("regression", losses.MSELoss), ("binary", losses.BinaryCrossEntropyLoss), ("listnet", losses.ListNetLoss)],
)
def test_without_weights_a_loss_is_that_of_sentence_transformers(name, peer, unweighted, tmp_path):
    model = cross_encoder(tmp_path).eval()
    columns = list(reranker_set(unweighted, RERANKER_LOSSES[name])[:8].values())
    of_pairs = RERANKER_LOSSES[name].pointwise
    labels = [torch.tensor(label)[0] for label in columns[-1]]
    expected = peer(model)(columns[:-1], torch.stack(labels) if of_pairs else labels)
    assert loss_of(name, model, unweighted).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_weight_counts_as_so_many_documents(tmp_path):
    model = cross_encoder(tmp_path).eval()
    once = torch.tensor([[1.0, 0.0, 0.0], [1.0, 3.0, 1.0]])
    thrice = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0], [1.0] * 5])
    loss = RERANKER_LOSSES["listnet"].make(model, mini_batch_size=None)
    few = loss([["ba be"], [["ba", "ce ci", "da"]]], [once])
    many = loss([["ba be"], [["ba", "ce ci", "ce ci", "ce ci", "da"]]], [thrice])
    assert few.item() == pytest.approx(many.item(), rel=1e-5)
    for name in ("regression", "binary"):
        loss = RERANKER_LOSSES[name].make(model, mini_batch_size=None)
        few = loss([["ba", "ba"], ["be", "ce ci"]], [torch.tensor([0.3, 1.0]), torch.tensor([0.7, 2.0])])
        many = loss([["ba"] * 3, ["be", "ce ci", "ce ci"]], [torch.tensor([y, 1.0]) for y in (0.3, 0.7, 0.7)])
        assert few.item() * 2 == pytest.approx(many.item() * 3, rel=1e-5)


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
    rows = reranker_set(data, RERANKER_LOSSES["hybrid"])[:3]
    labels = [torch.tensor(label) for label in rows["label"]]
    inputs = [rows["query"], rows["documents"]]
    each = []
    for query, documents, (ratings, own) in zip(*inputs, labels, strict=True):
        s = model.predict([(query, d) for d in documents], activation_fn=torch.nn.Identity(), convert_to_tensor=True)
        e = own * torch.exp(s / 0.5)
        each.append(0.7 * -torch.log(e[0] / e.sum()) + 0.3 * ((s - ratings) ** 2).mean())
    for size in (None, 1, 4):
        loss = RerankerHybridLoss(model, mixing=Mixing(0.7), temperature=0.5, mini_batch_size=size)
        assert loss(inputs, labels).item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)


def test_alpha_1_and_no_weights_is_listnets_loss_on_one_positive(data, tmp_path):
    model = cross_encoder(tmp_path).eval()
    rows = reranker_set(data, RERANKER_LOSSES["hybrid"])[:4]
    inputs = [rows["query"], rows["documents"]]
    labels = [torch.stack([torch.tensor(r), torch.ones(len(w))]) for r, w in rows["label"]]
    ours = RerankerHybridLoss(model, mixing=Mixing(1.0))(inputs, labels)
    hard = [torch.tensor([1e4] + [0.0] * (len(d) - 1)) for d in inputs[1]]  # softmax: all on the positive
    assert ours.item() == pytest.approx(losses.ListNetLoss(model)(inputs, hard).item(), abs=1e-5)


def test_data_sets_leave_absent_documents_and_unrated_pairs_out():
    collection = made_up()
    source = table(collection, rated=True)
    source = source.reject(np.arange(len(source)) == 2, "cut")
    lists = training_set(collection, source, form="lists")
    assert lists.counts["short lists"] == 1
    listwise = reranker_set(lists, RERANKER_LOSSES["listnet"])
    assert [len(d) for d in listwise["documents"]] == [4] + [5] * 19
    own = source.table["weight"].to_pylist()
    assert listwise["label"][0][0] == [1, 0, 0, 0]
    assert listwise["label"][0][1] == pytest.approx([1, own[0], own[1], own[3]])
    pointwise = reranker_set(lists, RERANKER_LOSSES["regression"])
    assert len(pointwise) == 4 + 5 * 19
    assert pointwise["label"][1][1] == pytest.approx(own[0])
    weighted = reranker_set(lists, RERANKER_LOSSES["hybrid"])
    assert weighted["label"][0][1] == pytest.approx([1, own[0], own[1], own[3]])


@pytest.mark.parametrize("name", RERANKER_LOSSES)
def test_texts_are_looked_up_when_a_batch_is_read(name, data, unweighted, monkeypatch):
    looked_up, whole = [], Collection.document_texts

    def counted(collection, rows):
        looked_up.extend(rows)
        return whole(collection, rows)

    monkeypatch.setattr(Collection, "document_texts", counted)
    kind = RERANKER_LOSSES[name]
    rows = reranker_set(data if kind.weighted else unweighted, kind)
    assert not looked_up, "the data set itself holds no text"
    batch = rows[2:4]
    assert len(looked_up) == (2 if kind.pointwise else sum(len(of) for of in batch["documents"]))


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
