"""The first dimensions of vectors are trained, too: the loss by hand, and what it does to vectors that are cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foils.evaluation import measure_encoder
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.loss_registry import matryoshka_loss
from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss
from foils.training.objectives import Temperature
from foils.training.settings import DIMENSIONS, TrainSettings
from foils.training.train import train_model
from train_models import bert_model, made_up, static_model, table

TEXTS = [["ba be bi", "fo fu", "ga"], ["bi bo", "fu fa", "gi ge"], ["lo la", "ma mi", "no"]]


def test_the_loss_is_that_of_the_parts_added_up() -> None:
    model = static_model()
    columns = [torch.tensor(model.encode(texts)) for texts in TEXTS]
    wanted = 0.0
    for size in (16, 8, 3):
        queries, *others = (torch.nn.functional.normalize(each[:, :size]) for each in columns)
        wanted += torch.nn.functional.cross_entropy(queries @ torch.cat(others).T / 0.05, torch.arange(3)).item()
    features = [model.preprocess(texts) for texts in TEXTS]
    loss = matryoshka_loss(model, ContrastiveLoss(model), [3, 8])
    assert loss(features, None).item() == pytest.approx(wanted, rel=1e-5)


def test_the_cached_loss_is_the_same(tmp_path: Path) -> None:
    found = []
    for kind, how in ((ContrastiveLoss, {}), (CachedContrastiveLoss, {"mini_batch_size": 2})):
        model = bert_model(tmp_path / kind.__name__).eval()
        loss = matryoshka_loss(model, kind(model, **how), [4])
        value = loss([model.preprocess(texts) for texts in TEXTS], None)
        value.backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        found.append((value.item(), torch.cat([each.flatten() for each in gradients])))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert torch.allclose(found[0][1], found[1][1], atol=5e-5)


@pytest.mark.parametrize("batches", ["random", "hobit-c"])
def test_vectors_that_are_cut_are_better_for_it(batches: str, tmp_path: Path) -> None:
    collection = made_up(queries=80, documents=160)
    settings = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, max_length=None)
    found = []
    for dimensions in (None, (4,)):
        data = training_set(collection, table(collection))
        how = replace(settings, matryoshka=dimensions)
        folder = tmp_path / str(dimensions)
        model = train_model(static_model(), data, folder, settings=how, batches=batches).model
        model.truncate_dim = 4
        found.append(measure_encoder(model, collection, "train", ["nDCG@10"]).means["nDCG@10"])
    assert found[1] > found[0] + 0.1


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    model = static_model()
    with pytest.raises(InputError, match="matryoshka 32: the model has 16 dimensions"):
        matryoshka_loss(model, ContrastiveLoss(model), [8, 32])
    model.similarity_fn_name = "dot"
    with pytest.raises(InputError, match="compares vectors by inner products"):
        matryoshka_loss(model, ContrastiveLoss(model), [8])
    bert = bert_model(tmp_path)
    with pytest.raises(InputError, match="a loss that learns beside the model"):
        matryoshka_loss(bert, CachedContrastiveLoss(bert, temperature=Temperature(0.07, learned=True)), [8])
    with pytest.raises(InputError, match="matryoshka 8,a; expected whole numbers"):
        DIMENSIONS("8,a")
    with pytest.raises(InputError, match="matryoshka 0; expected at least 1"):
        TrainSettings(matryoshka=(0,))
