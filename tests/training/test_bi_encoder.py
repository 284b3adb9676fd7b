from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

from foils.batching.sampler import BatchHook, BatchPlanner
from foils.data import Negatives
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError, UnknownNameError
from foils.training.data import training_set
from foils.training.fit import WHOLE, last_whole_checkpoint
from foils.training.loss_registry import make_loss
from foils.training.settings import RECIPES, TrainSettings
from foils.training.train import train_model
from train_models import bert_model, made_up, static_model, table

CONTRASTS = ("mnrl", "weighted", "debiased", "hard-weighted", "hybrid")
BASE = TrainSettings(batch_size=16, epochs=2, learning_rate=0.05, max_length=32)


@pytest.fixture(scope="module")
def collection():
    return made_up()


@pytest.fixture(scope="module")
def rated(collection):
    return table(collection, rated=True)


@pytest.fixture(scope="module")
def data(collection, rated):
    return training_set(collection, rated)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    """The weights after training with the usual loss."""
    return weights(train_model(static_model(), data, tmp_path_factory.mktemp("plain"), settings=BASE).model)


def test_training_lowers_the_loss_and_repeats_with_the_seed(data, tmp_path):
    found = [
        train_model(static_model(), data, tmp_path / str(i), settings=replace(BASE, epochs=4, seed=seed))
        for i, seed in enumerate((1, 1, 2))
    ]
    losses = [entry["loss"] for entry in found[0].history]
    assert losses[-1] < 0.8 * losses[0]
    assert found[0].steps == 5 * 4
    assert [entry["step"] for entry in found[0].history] == list(range(1, 21))
    same, other = (torch.equal(weights(found[0].model), weights(run.model)) for run in found[1:])
    assert same
    assert not other


@pytest.mark.parametrize(("name", "kind"), [("debiased", "static"), ("hybrid", "static"), ("hybrid", "bert")])
def test_losses_train(name, kind, data, tmp_path):
    model = static_model() if kind == "static" else bert_model(tmp_path / "bert")
    settings = replace(BASE, loss=name, mini_batch_size=4, epochs=1, learning_rate=0.01)
    found = train_model(model, data, tmp_path / "out", settings=settings)
    assert np.isfinite([entry["loss"] for entry in found.history]).all()


@pytest.mark.parametrize("name", CONTRASTS)
def test_every_loss_heeds_weights(name, collection, rated):
    found = []
    for source in (rated, Negatives(rated.table.drop_columns("weight"))):
        data, model = training_set(collection, source), static_model()
        rows = data.dataset[:16]
        features = [model.preprocess(rows[column]) for column in ("anchor", "positive", "negative")]
        found.append(make_loss(name, model, data, settings={})(features, torch.tensor(rows["label"])).item())
    assert found[0] != pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("mnrl", {"temperature": 0.2}),
        ("weighted", {"temperature": 0.2}),
        ("weighted", {"learn_temperature": True}),
        ("weighted", {"curriculum": True}),
        ("debiased", {"prior": 0.3}),
        ("debiased", {"concentration": 1.0}),
        ("hard-weighted", {"concentration": 0.2}),
        ("hybrid", {"alpha": 0.9}),
        ("hybrid", {"mixing": "scheduled"}),
        ("hybrid", {"mixing": "uncertainty"}),
        ("hybrid", {"mixing": "gradnorm"}),
        ("hybrid", {"mixing": "learnable"}),
        ("hybrid", {"prior": 0.2}),
    ],
)
def test_every_setting_of_a_loss_changes_its_gradients(name, setting, data):
    rows, gradients = data.dataset[:64], []
    for settings in ({}, setting):
        model = static_model()
        loss = make_loss(name, model, data, settings=settings).train()
        for _ in range(2):  # GradNorm moves its weights after a step
            model.zero_grad()
            features = [model.preprocess(rows[column]) for column in ("anchor", "positive", "negative")]
            loss(features, torch.tensor(rows["label"])).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in loss.parameters() if p.grad is not None]))
    assert len(gradients[0]) != len(gradients[1]) or not torch.allclose(*gradients)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 8},
        {"epochs": 1},
        {"learning_rate": 0.01},
        {"trainer": {"warmup_steps": 0.5}},
        {"trainer": {"weight_decay": 0.5}},
        {"trainer": {"max_grad_norm": 0.01}},
        {"seed": 5},
    ],
)
def test_every_setting_of_training_changes_the_weights(changed, plain, data, tmp_path):
    found = train_model(static_model(), data, tmp_path, settings=replace(BASE, **changed))
    assert not torch.equal(weights(found.model), plain)


def test_precision_and_length_change_the_weights_and_mini_batches_do_not(data, tmp_path):
    base = replace(BASE, epochs=1, learning_rate=1e-3, mini_batch_size=5)
    changes = ({}, {"mini_batch_size": None}, {"mini_batch_size": 11}, {"max_length": 4}, {"trainer": {"bf16": True}})
    first, *others = (
        train_model(bert_model(tmp_path / f"m{i}"), data, tmp_path / str(i), settings=replace(base, **change))
        for i, change in enumerate(changes)
    )
    near = [torch.allclose(weights(first.model), weights(run.model), atol=2e-5) for run in others]
    assert near == [True, True, False, False]
    assert others[-1].precision == "bfloat16"


def share_of(processes, dataset, batch_size, drop_last, **_):
    """The batches that accelerate deals out to the first of several processes."""
    whole = DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)
    return BatchSamplerShard(whole, num_processes=processes, process_index=0)


class Share(BatchHook):
    """Gives each process its share of the batches."""

    def __init__(self, processes):
        self.made = partial(share_of, processes)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_warm_up_and_progress_go_by_the_steps_that_are_taken(processes, data, tmp_path):
    tasks, advanced = [], []

    class Reporter:
        @contextmanager
        def task(self, description, total, unit):
            tasks.append((description, total, unit))
            yield advanced.append

    settings = replace(BASE, batch_size=4, epochs=2, trainer={"warmup_steps": 0.5, "logging_steps": 1})

    with progress.reporting(Reporter()):
        found = train_model(static_model(), data, tmp_path, settings=settings, batches=Share(processes))
    steps = 2 * 80 // (4 * processes)
    assert found.steps == steps
    assert tasks == [("training", steps, "steps")]
    assert sum(advanced) == steps
    rates = [entry["learning_rate"] / BASE.learning_rate for entry in found.history if "loss" in entry]
    half = steps // 2
    assert rates == pytest.approx([*(i / half for i in range(half)), *(1 - i / half for i in range(half))])


class KilledError(Exception):
    pass


class Kill(TrainerCallback):
    """Ends the process, as it were, after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KilledError


@pytest.mark.parametrize(
    ("loss", "settings", "batches", "bert"),
    [
        ("mnrl", {}, "random", False),
        ("mnrl", {}, "random", True),
        ("weighted", {"learn_temperature": True}, "no-duplicates", True),
        ("hybrid", {"mixing": "gradnorm"}, "hobit", False),
        ("hybrid", {"mixing": "uncertainty"}, "random", False),
    ],
)
def test_a_killed_training_resumes_exactly(loss, settings, batches, bert, data, tmp_path):
    how = replace(BASE, loss=loss, loss_settings=settings, epochs=3, mini_batch_size=4)
    how = replace(how, learning_rate=0.01, trainer={"save_steps": 3})

    def run(folder, *more, resume=False):
        return train_model(
            bert_model(tmp_path / "bert", dropout=0.1) if bert else static_model(),
            data,
            tmp_path / folder,
            settings=how,
            batches=batches,
            batch_settings={"seeds": 2, "candidates": 8} if batches == "hobit" else None,
            callbacks=more,
            resume=resume,
        )

    whole = run("whole")
    with pytest.raises(KilledError):
        run("broken", Kill(8))
    resumed = run("broken", resume=True)
    assert resumed.steps == whole.steps == 15
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert [e["loss"] for e in resumed.history] == [e["loss"] for e in whole.history]
    assert resumed.seconds > 0


@pytest.mark.parametrize(("torn", "gone"), [("optimizer.pt", False), ("model.safetensors", True), (WHOLE, True)])
def test_a_checkpoint_that_a_kill_cut_short_is_passed_over(torn, gone, data, tmp_path):
    how = replace(BASE, epochs=3, trainer={"save_steps": 3, "save_total_limit": 3})

    def run(folder, *more, resume=False):
        return train_model(static_model(), data, tmp_path / folder, settings=how, callbacks=list(more), resume=resume)

    whole = run("whole")
    with pytest.raises(KilledError):
        run("broken", Kill(8))
    assert last_whole_checkpoint(tmp_path / "broken").name == "checkpoint-6"
    (path,) = (tmp_path / "broken" / "checkpoint-6").rglob(torn)
    if gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert last_whole_checkpoint(tmp_path / "broken").name == "checkpoint-3"
    resumed = run("broken", resume=True)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert [e["loss"] for e in resumed.history] == [e["loss"] for e in whole.history]


def test_old_checkpoints_are_not_trained_over(data, tmp_path):
    train_model(static_model(), data, tmp_path, settings=replace(BASE, epochs=1))
    with pytest.raises(InputError, match="resume"):
        train_model(static_model(), data, tmp_path, settings=replace(BASE, epochs=1))


def test_dev_chooses_the_model_and_stops_early(data, tmp_path):
    scores, seen = iter([0.2, 0.5, 0.4, 0.3, 0.9]), []

    def score(model):
        seen.append(weights(model).clone())
        return next(scores)

    settings = replace(BASE, epochs=9, patience=2)
    found = train_model(static_model(), data, tmp_path, settings=settings, score=score)
    assert found.best == 0.5
    assert len(seen) == 4
    assert torch.equal(weights(found.model), seen[1])
    assert [entry["dev"] for entry in found.history if "dev" in entry] == [0.2, 0.5, 0.4, 0.3]


def test_patience_needs_a_score_and_a_score_must_be_a_number(data, tmp_path):
    with pytest.raises(InputError, match="patience"):
        train_model(static_model(), data, tmp_path / "a", settings=replace(BASE, patience=1))
    with pytest.raises(FailureError, match="finite"):
        train_model(static_model(), data, tmp_path / "b", settings=BASE, score=lambda model: float("nan"))


def test_a_loss_that_is_no_number_ends_the_training(data, tmp_path):
    class Broken(BatchPlanner):
        def wrapped(self, loss, model):
            original = loss.forward
            loss.forward = lambda *given: original(*given) * float("nan")
            return loss

    with pytest.raises(FailureError, match="learning rate"):
        train_model(static_model(), data, tmp_path, settings=BASE, batches=Broken("random"))


def test_prompts_go_before_texts_in_training(data, tmp_path):
    runs = []
    for i, prompts in enumerate(({}, {"query": "ba be "}, {"document": "ba be "})):
        model = static_model()
        model.prompts = prompts
        runs.append(train_model(model, data, tmp_path / str(i), settings=replace(BASE, epochs=1)))
    assert len({tuple(weights(run.model)[:200].tolist()) for run in runs}) == 3


def test_lists_with_gaps_train(collection, rated, tmp_path):
    short = rated.reject(np.arange(len(rated)) % 7 == 3, "cut")
    lists = training_set(collection, short, form="lists")
    assert lists.counts["short lists"] > 0
    for loss in ("mnrl", "weighted"):
        settings = replace(BASE, loss=loss, batch_size=5)
        found = train_model(static_model(), lists, tmp_path / loss, settings=settings)
        assert np.isfinite([entry["loss"] for entry in found.history]).all()


def test_no_duplicates_keeps_equal_texts_apart(data, tmp_path):
    batches = []

    class Note(TrainerCallback):
        def on_epoch_begin(self, args, state, control, train_dataloader=None, **_):
            batches.extend(map(list, train_dataloader.batch_sampler))

    train_model(
        static_model(),
        data,
        tmp_path,
        settings=replace(BASE, epochs=1),
        batches="no-duplicates",
        callbacks=[Note()],
    )
    for batch in batches:
        rows = data.dataset[batch]
        assert len(set(rows["anchor"])) == len(batch)
    assert sorted(row for batch in batches for row in batch) == list(range(len(data)))


def test_names_and_ranges_are_checked_at_once(data):
    with pytest.raises(UnknownNameError, match="weighted"):
        make_loss("wieghted", None, data, settings={})
    with pytest.raises(UnknownNameError, match="temperature"):
        make_loss("weighted", None, data, settings={"temprature": 1})
    with pytest.raises(UnknownNameError, match="gradnorm"):
        make_loss("hybrid", None, data, settings={"mixing": "mean"})
    with pytest.raises(InputError, match="prior"):
        make_loss("debiased", None, data, settings={"prior": 1.0})
    with pytest.raises(InputError, match=re.escape("batch_size 0")) as error:
        TrainSettings(batch_size=0, epochs=0)
    assert "epochs" in str(error.value)


def test_the_recipes_are_the_papers():
    ours = RECIPES["eci-sem"].training
    assert (ours.loss, ours.batch_size, ours.mini_batch_size, ours.epochs) == ("mnrl", 4096, 2048, 1)
    assert (ours.learning_rate, ours.max_length, ours.loss_settings["temperature"]) == (2e-5, 128, 0.05)
    hobit = RECIPES["hobit"].training
    assert (hobit.batch_size, hobit.epochs, hobit.patience, hobit.trainer) == (128, 40, 5, {"weight_decay": 0.01})
    assert hobit.learning_rate == 1e-5
