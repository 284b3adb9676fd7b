from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import TrainerCallback

from foils.data.read import CollectionSettings
from foils.data.training_rows import RowSettings
from foils.mining import BM25Retriever, mine_negatives
from foils.runtime.errors import FailureError
from foils.training.data import read_data_sets, training_set
from foils.training.refresh import Refresh
from foils.training.settings import MethodSettings, TrainSettings
from foils.training.train import train_model
from train_models import made_up, static_model

SETTINGS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def world():
    collection = made_up()
    negatives = mine_negatives(collection, BM25Retriever(collection), split="train", top=4)
    return collection, negatives, training_set(collection, negatives, per_query=4)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(world, folder, *, refresh, settings=SETTINGS, **more):
    return train_model(static_model(), world[2], folder, settings=settings, refresh=refresh, **more)


def ance(world, every=2, per_query=4, kind=Refresh):
    sets = read_data_sets(world[0], None, MethodSettings(), CollectionSettings())
    return kind(sets, RowSettings(per_query=per_query).completed("triplets"), every)


def test_negatives_are_mined_anew_with_the_model_as_it_is(world, tmp_path):
    seen = []

    class Spying(Refresh):
        def mined(self, collections, model):
            seen.append(weights(model).clone())
            return super().mined(collections, model)

    model = trained(world, tmp_path / "a", refresh=ance(world, kind=Spying)).model
    (at_refresh,) = seen  # after two of four epochs
    assert not torch.equal(at_refresh, weights(model))
    assert not torch.equal(at_refresh, weights(static_model()))
    assert not torch.equal(weights(model), weights(trained(world, tmp_path / "b", refresh=None).model))
    seen.clear()
    trained(world, tmp_path / "c", refresh=ance(world, every=1, kind=Spying))
    assert len(seen) == 3


def test_batches_hold_the_new_negatives(world):
    collection, _, data = world
    refresh = ance(world)
    followed = refresh.following(data, None)
    assert followed.dataset[:3] == data.dataset[:3]
    fresh = refresh.mined({"made-up": collection}, static_model(seed=5))["made-up"]
    refresh.take(fresh)
    after, assembled = followed.dataset[:], training_set(collection, fresh, per_query=4)
    assert after["anchor"] == data.dataset[:]["anchor"]
    assert after["positive"] == data.dataset[:]["positive"]
    assert after["negative"] == assembled.dataset[:]["negative"] != data.dataset[:]["negative"]


@pytest.mark.parametrize(("loss", "step"), [("mnrl", 7), ("weighted", 11), ("mnrl", 16)])
def test_it_resumes_exactly_before_and_after_a_refresh(world, tmp_path, loss, step):
    settings = replace(SETTINGS, loss=loss)

    def run(folder, *callbacks, resume=False):
        return train_model(
            static_model(),
            world[2],
            tmp_path / folder,
            settings=settings,
            refresh=ance(world),
            callbacks=callbacks,
            resume=resume,
        )

    whole = weights(run("whole").model)
    with pytest.raises(KeyboardInterrupt):
        run("cut", StopAt(step))
    assert torch.equal(weights(run("cut", resume=True).model), whole)


def test_a_refresh_that_gives_fewer_negatives_is_refused(world, tmp_path):
    fewer = ance(world, every=1, per_query=3)
    with pytest.raises(FailureError, match="a list became shorter"):
        trained(world, tmp_path / "out", refresh=fewer)
