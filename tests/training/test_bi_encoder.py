import re
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler

from foils.batching.sampler import BatchHook, BatchPlanner
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, UnknownNameError
from foils.training.fit import LOSS_STATE, WHOLE, Steps, last_whole_checkpoint
from foils.training.losses import make_loss
from foils.training.settings import RECIPES, TrainSettings
from foils.training.train import train_model
from refusals import refused
from train_models import (
    Kill,
    KilledError,
    bert_model,
    features,
    resumed_exactly,
    rows_of,
    second_gradients,
    static_model,
    weights,
)

BASE = TrainSettings(batch_size=16, epochs=2, learning_rate=0.05, max_length=32)


def trained(folder, data=None, model=None, **settings):
    how = {name: settings.pop(name) for name in ("batches", "batch_settings", "callbacks", "resume", "score")
           if name in settings}  # fmt: skip
    return train_model(model or static_model(), data or rows_of(), folder, settings=replace(BASE, **settings), **how)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The weights after training with the usual loss."""
    return weights(trained(tmp_path_factory.mktemp("plain")).model)


def test_training_lowers_the_loss_and_repeats_with_the_seed(tmp_path):
    found = [trained(tmp_path / str(i), epochs=4, seed=seed) for i, seed in enumerate((1, 1, 2))]
    losses = [entry["loss"] for entry in found[0].history]
    assert losses[-1] < 0.8 * losses[0]
    assert [entry["step"] for entry in found[0].history] == list(range(1, found[0].steps + 1)) == list(range(1, 21))
    assert [torch.equal(weights(found[0].model), weights(run.model)) for run in found[1:]] == [True, False]


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
        ("hybrid", {"prior": 0.2}),
        *(("hybrid", {"mixing": way}) for way in ("scheduled", "uncertainty", "gradnorm", "learnable")),
    ],
)
def test_every_setting_of_a_loss_changes_its_gradients(name, setting):
    rows, model = rows_of().dataset[:64], static_model()
    given = features(model, rows), torch.tensor(rows["label"])
    found = [
        second_gradients(make_loss(name, model, rows_of(), settings=settings).train(), *given)
        for settings in ({}, setting)
    ]
    assert len(found[0]) != len(found[1]) or not torch.allclose(*found)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 8},
        {"epochs": 1},
        {"learning_rate": 0.01},
        {"trainer": {"warmup_steps": 0.5}},
        {"trainer": {"max_grad_norm": 0.01}},
        {"seed": 5},
    ],
)
def test_every_setting_of_training_changes_the_weights(changed, plain, tmp_path):
    assert not torch.equal(weights(trained(tmp_path, **changed).model), plain)


def test_precision_and_length_change_the_weights_and_mini_batches_do_not(tmp_path):
    base = {"epochs": 1, "learning_rate": 1e-3, "mini_batch_size": 5}
    changes = ({}, {"mini_batch_size": None}, {"mini_batch_size": 11}, {"max_length": 4}, {"trainer": {"bf16": True}})
    first, *others = (
        trained(tmp_path / str(i), model=bert_model(tmp_path / f"m{i}"), **{**base, **change})
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


@pytest.mark.parametrize("processes", [1, 4])
def test_warm_up_and_progress_go_by_the_steps_that_are_taken(processes, tmp_path):
    tasks, advanced = [], []

    @contextmanager
    def reporter(*task):
        tasks.append(task)
        yield advanced.append

    with progress.reporting(reporter):
        how = {"batch_size": 4, "trainer": {"warmup_steps": 0.5, "logging_steps": 1}, "batches": Share(processes)}
        found = trained(tmp_path, **how)
    steps = 2 * 80 // (4 * processes)
    assert tasks == [("training", steps, "steps")]
    assert found.steps == sum(advanced) == steps
    rates = [entry["learning_rate"] / BASE.learning_rate for entry in found.history if "loss" in entry]
    half = steps // 2
    assert rates == pytest.approx([*(i / half for i in range(half)), *(1 - i / half for i in range(half))])


HOBIT = {"batches": "hobit", "batch_settings": {"seeds": 2, "candidates": 8}}


@pytest.mark.parametrize(
    ("loss", "settings", "how", "bert"),
    [
        ("mnrl", {}, {}, True),
        ("weighted", {"learn_temperature": True}, {"batches": "no-duplicates"}, True),
        ("hybrid", {"mixing": "gradnorm"}, HOBIT, False),
        ("hybrid", {"mixing": "uncertainty"}, {}, False),
    ],
)
def test_a_killed_training_resumes_exactly(loss, settings, how, bert, tmp_path):
    more = {"loss": loss, "loss_settings": settings, "epochs": 3, "mini_batch_size": 4, "learning_rate": 0.01, **how}

    def train(folder, **given):
        model = bert_model(tmp_path / "bert", dropout=0.1) if bert else static_model()
        return trained(folder, model=model, trainer={"save_steps": 3}, **more, **given)

    assert resumed_exactly(train, tmp_path, 8).steps == 15


@pytest.mark.parametrize(("torn", "gone"), [("optimizer.pt", False), ("model.safetensors", True), (WHOLE, True)])
def test_a_checkpoint_that_a_kill_cut_short_is_passed_over(torn, gone, plain, tmp_path):
    how = {"trainer": {"save_steps": 3, "save_total_limit": 3}}
    with pytest.raises(KilledError):
        trained(tmp_path, callbacks=[Kill(8)], **how)
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-6"
    (path,) = (tmp_path / "checkpoint-6").rglob(torn)
    if gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert last_whole_checkpoint(tmp_path).name == "checkpoint-3"
    assert torch.equal(weights(trained(tmp_path, resume=True, **how).model), plain)


def test_dev_chooses_the_model_and_stops_early(tmp_path):
    scores, seen = iter([0.2, 0.5, 0.4, 0.3, 0.9]), []

    def score(model):
        seen.append(weights(model).clone())
        return next(scores)

    found = trained(tmp_path, epochs=9, patience=2, score=score)
    assert (found.best, len(seen)) == (0.5, 4)
    assert torch.equal(weights(found.model), seen[1])
    assert [entry["dev"] for entry in found.history if "dev" in entry] == [0.2, 0.5, 0.4, 0.3]


class Broken(BatchPlanner):
    def wrapped(self, loss, model):
        original = loss.forward
        loss.forward = lambda *given: original(*given) * float("nan")
        return loss


def test_what_cannot_go_on_is_refused(tmp_path):
    refused("patience", trained, tmp_path / "a", patience=1)
    refused("finite", trained, tmp_path / "b", error=FailureError, score=lambda model: float("nan"))
    refused("learning rate", trained, tmp_path / "c", error=FailureError, batches=Broken("random"))
    (tmp_path / "d" / "checkpoint-5").mkdir(parents=True)  # of another training
    refused("resume", trained, tmp_path / "d")


def test_names_and_ranges_are_checked_at_once():
    for name, settings, said in (
        ("wieghted", {}, "weighted"),
        ("weighted", {"temprature": 1}, "temperature"),
        ("hybrid", {"mixing": "mean"}, "gradnorm"),
    ):
        refused(said, make_loss, name, None, rows_of(), error=UnknownNameError, settings=settings)
    refused("prior", make_loss, "debiased", None, rows_of(), settings={"prior": 1.0})
    refused(re.escape("batch_size 0") + ".*epochs", TrainSettings, batch_size=0, epochs=0)


def test_the_recipes_are_the_papers():
    ours, hobit = (RECIPES[name].training for name in ("eci-sem", "hobit"))
    assert (ours.loss, ours.batch_size, ours.mini_batch_size, ours.epochs) == ("mnrl", 4096, 2048, 1)
    assert (ours.learning_rate, ours.max_length, ours.loss_settings["temperature"]) == (2e-5, 128, 0.05)
    assert (hobit.batch_size, hobit.epochs, hobit.patience, hobit.trainer) == (128, 40, 5, {"weight_decay": 0.01})
    assert hobit.learning_rate == 1e-5


# What a loss learned comes back with its checkpoint, or is refused by name


class Learning(torch.nn.Module):
    """A loss that learns numbers of its own."""

    def __init__(self, size: int, name: str = "mix") -> None:
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.arange(float(size))))


def test_what_a_loss_learned_comes_back_or_is_refused_by_name(tmp_path):
    args = SimpleNamespace(output_dir=tmp_path)
    state = SimpleNamespace(global_step=7, max_steps=9, is_world_process_zero=True)
    path = tmp_path / "checkpoint-7" / LOSS_STATE
    path.parent.mkdir()

    def begin(loss):
        Steps(loss, ExitStack()).on_train_begin(args, state, None)

    refused(f"{LOSS_STATE}, which is not there", begin, Learning(3))
    Steps(Learning(3), ExitStack()).on_save(args, state, None)
    again = Learning(3)
    torch.nn.init.zeros_(again.mix)
    begin(again)
    assert again.mix.tolist() == [0, 1, 2]
    for other in (Learning(4), Learning(3, "scale")):
        refused(f"{LOSS_STATE}: .*of another training", begin, other, error=FormatError)
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:20], b"\xff" * 8 + whole, whole.replace(b"F32", b"F99"), b"[" * 9_000):
        path.write_bytes(data)
        refused(f"{LOSS_STATE}: damaged state of the loss", begin, Learning(3), error=FormatError)
