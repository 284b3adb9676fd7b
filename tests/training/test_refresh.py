from dataclasses import replace
from functools import partial

import pytest
import torch

from foils.data.read import CollectionSettings
from foils.data.training_rows import RowSettings
from foils.mining import BM25Retriever, mine_negatives
from foils.runtime.errors import FailureError
from foils.training.data import read_data_sets, training_set
from foils.training.refresh import Refresh
from foils.training.settings import MethodSettings, TrainSettings
from foils.training.train import train_model
from train_models import made_up, resumed_exactly, static_model, weights

SETTINGS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})


@pytest.fixture(scope="module")
def data():
    collection = made_up()
    negatives = mine_negatives(collection, BM25Retriever(collection), split="train", top=4)
    return training_set(collection, negatives, per_query=4)


def ance(every=2, per_query=4, kind=Refresh):
    sets = read_data_sets(made_up(), None, MethodSettings(), CollectionSettings())
    return kind(sets, RowSettings(per_query=per_query).completed("triplets"), every)


def test_negatives_are_mined_anew_with_the_model_as_it_is(data, tmp_path):
    seen = []

    class Spying(Refresh):
        def mined(self, collections, model):
            seen.append(weights(model).clone())
            return super().mined(collections, model)

    train = partial(train_model, data=data, settings=SETTINGS)
    model = train(static_model(), output=tmp_path / "a", refresh=ance(kind=Spying)).model
    (at_refresh,) = seen  # after two of four epochs
    assert not torch.equal(at_refresh, weights(model))
    assert not torch.equal(at_refresh, weights(static_model()))
    assert not torch.equal(weights(model), weights(train(static_model(), output=tmp_path / "b").model))
    seen.clear()
    train(static_model(), output=tmp_path / "c", refresh=ance(every=1, kind=Spying))
    assert len(seen) == 3


def test_batches_hold_the_new_negatives(data):
    collection, refresh = made_up(), ance()
    followed = refresh.following(data, None)
    assert followed.dataset[:3] == data.dataset[:3]
    fresh = refresh.mined({"made-up": collection}, static_model(seed=5))["made-up"]
    refresh.take(fresh)
    before, after, assembled = data.dataset[:], followed.dataset[:], training_set(collection, fresh, per_query=4)
    assert (after["anchor"], after["positive"]) == (before["anchor"], before["positive"])
    assert after["negative"] == assembled.dataset[:]["negative"] != before["negative"]


@pytest.mark.parametrize(("loss", "step"), [("mnrl", 7), ("weighted", 11), ("mnrl", 16)])
def test_it_resumes_exactly_before_and_after_a_refresh(data, tmp_path, loss, step):
    def train(folder, **more):
        settings = replace(SETTINGS, loss=loss)
        return train_model(static_model(), data, folder, settings=settings, refresh=ance(), **more)

    resumed_exactly(train, tmp_path, step)


def test_a_refresh_that_gives_fewer_negatives_is_refused(data, tmp_path):
    with pytest.raises(FailureError, match="a list became shorter"):
        train_model(static_model(), data, tmp_path, settings=SETTINGS, refresh=ance(every=1, per_query=3))
