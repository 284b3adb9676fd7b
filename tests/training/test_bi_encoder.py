"""Encoders in training: settings, steps, kills, the choice on dev; and a curriculum by learning progress."""

import re
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler

from foils.batching.sampler import BatchHook, BatchPlanner
from foils.data import Negatives
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, InputError, UnknownNameError
from foils.selection import LearningProgress
from foils.training.data import training_set
from foils.training.fit import LOSS_STATE, WHOLE, Steps, last_whole_checkpoint, train_model
from foils.training.losses import ContrastiveLoss, make_loss
from foils.training.settings import TrainSettings
from foils.training.tiers import CURRICULUM, DANGER, UNRATED, TierCurriculum, by_progress, outside_danger
from refusals import refused
from train_models import (
    Kill,
    KilledError,
    bert_model,
    features,
    made_up,
    resumed_exactly,
    rows_of,
    second_gradients,
    static_model,
    table,
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

    def on_train_begin(self, *_, **__): ...
    def on_epoch_begin(self, *_, **__): ...


@pytest.mark.parametrize("processes", [1, 4])
def test_warm_up_and_progress_go_by_the_steps_that_are_taken(processes, tmp_path):
    tasks, advanced, data = [], [], rows_of()

    @contextmanager
    def reporter(*task):
        tasks.append(task)
        yield advanced.append

    with progress.reporting(reporter):
        how = {"batch_size": 4, "trainer": {"warmup_steps": 0.5, "logging_steps": 1}, "batches": Share(processes)}
        found = trained(tmp_path, data, **how)
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
        ("weighted", {"learn_temperature": True}, {}, True),
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

    refused(f"{LOSS_STATE}: damaged state of the loss", begin, Learning(3))
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


# A curriculum by learning progress


STEPS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})
TIERS = np.repeat(np.arange(3), (9, 20, 4))
TWO = np.arange(80) % 2


def with_gap(gap, **how):
    made = table(made_up(), rated=True).table.slice(0, len(gap))  # without the rows of positives
    at = made.column_names.index("gap")
    return training_set(made_up(), Negatives(made.set_column(at, "gap", pa.array(gap))), **how)


def led(tiers=TIERS, names="abc", kind=TierCurriculum, **more):
    return kind(tiers, LearningProgress(len(names), **more), names=names)


DATA = Dataset.from_dict({"anchor": ["x"] * len(TIERS)})


@pytest.mark.parametrize(("drop_last", "length"), [(False, 5), (True, 4)])
def test_an_epoch_has_its_exact_length_and_batches_of_one_tier(drop_last, length):
    sampler = led()(DATA, batch_size=8, drop_last=drop_last, seed=1)
    plain = list(sampler)  # of an evaluation set: its rows in order
    assert plain[0] == list(range(8))
    assert len(sampler) == len(plain) == length
    sampler.drawn = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == length
        assert batches == list(sampler)  # asked twice, the same epoch is the same
        for batch in batches:
            (tier,) = set(TIERS[batch].tolist())
            assert len(batch) == min(8, np.count_nonzero(tier == TIERS))


def test_a_pass_over_a_tier_has_each_row_once_and_another_order_each_time():
    sampler = led()(DATA, batch_size=8, drop_last=False, seed=1)
    passes = [[*sampler.batch_of(1, 2 * n), *sampler.batch_of(1, 2 * n + 1)] for n in range(5)]
    for rows in passes:  # two batches of 8 of the tier's 20 rows
        assert len(set(rows)) == 16
        assert (TIERS[rows] == 1).all()
    assert len({tuple(rows) for rows in passes}) == 5
    assert len({row for rows in passes for row in rows}) == 20
    assert sorted(sampler.batch_of(2, 0)) == sorted(sampler.batch_of(2, 1)) == np.flatnonzero(TIERS == 2).tolist()


def test_the_reward_is_the_drop_of_the_batch_s_loss():
    """w·x with w = 3 stepped to 2 on x = 4: loss 12, then 8."""
    weight = torch.nn.Parameter(torch.tensor(3.0))

    class Product(torch.nn.Module):
        def forward(self, features, labels):
            return weight * features[0]["x"].sum()

    curriculum, features = led(), [{"x": torch.tensor([1.0, 3.0])}]
    curriculum.wrapped(Product())(features, torch.tensor([0, 1])).backward()
    with torch.no_grad():
        weight -= 1
    before, after, labels = curriculum.recompute()
    assert (before, after, labels.tolist()) == (12.0, 8.0, [0, 1])


@pytest.mark.parametrize("cached", [False, True])
def test_measuring_again_has_the_same_dropout_and_leaves_random_numbers_alone(cached, tmp_path):
    model = bert_model(tmp_path, dropout=0.5)
    plain = ContrastiveLoss(model, mini_batch_size=2 if cached else None)
    curriculum = led()
    loss = curriculum.wrapped(plain).train()
    columns = [model.preprocess(texts) for texts in (["ba be bi", "fo fu", "ga"], ["ba", "fo", "ga ge"])]
    torch.manual_seed(3)
    value = loss(columns, torch.arange(3))
    value.backward()
    state = torch.get_rng_state()
    before, after, _ = curriculum.recompute()
    assert before == value.item() == pytest.approx(after, rel=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert float(plain(columns, None)) != pytest.approx(before, rel=1e-3)  # other dropout, other loss


class Planted(torch.nn.Module):
    """Rows of tier 1 can be learned; the loss of the others is noise."""

    def __init__(self, model, tiers):
        super().__init__()
        self.model, self.tiers = model, torch.from_numpy(tiers)
        self.noise = torch.Generator().manual_seed(0)

    def forward(self, features, labels):
        mean = self.model(dict(features[0]))["sentence_embedding"].mean()
        if self.tiers[labels[0]] == 1:
            return mean
        return 0.0 * mean + torch.randn((), generator=self.noise) * 1e-4


class OfPlanted(TierCurriculum):
    def wrapped(self, loss, model):
        return super().wrapped(Planted(model, self.tiers), model)


def test_the_tier_that_can_be_learned_is_drawn_more(tmp_path):
    curriculum = led(np.arange(80) % 4, ("noise a", "real", "noise b", "noise c"), OfPlanted, rate=0.3)
    how = replace(STEPS, batch_size=4, epochs=6, learning_rate=0.01, trainer={"logging_steps": 1})
    trained = train_model(static_model(), rows_of(), tmp_path, settings=how, batches=curriculum)
    chances = [entry["chance of real"] for entry in trained.history]
    assert chances[0] == pytest.approx(0.25, abs=0.1)
    assert np.mean(chances[60:]) > 0.5
    assert curriculum.bandit.steps == trained.steps == 6 * 20
    sums = [sum(v for name, v in entry.items() if name.startswith("chance")) for entry in trained.history]
    assert sums == pytest.approx([1] * len(sums))


@pytest.mark.parametrize(("loss", "step"), [("mnrl", 4), ("weighted", 7), ("weighted", 16)])
def test_it_resumes_exactly(tmp_path, loss, step):
    bandits = []

    def train(folder, **more):
        curriculum = led(np.searchsorted([200.0, 400.0], rows_of().facts.own_gaps()[:, 0]), rate=0.5)
        settings = replace(STEPS, loss=loss)
        found = train_model(static_model(), rows_of(), folder, settings=settings, batches=curriculum, **more)
        bandits.append(curriculum.bandit)
        return found

    resumed_exactly(train, tmp_path, step)
    assert bandits[0] == bandits[1]


def test_resuming_refuses_what_is_damaged_or_of_other_rows(tmp_path):
    def run(tiers, **options):
        train_model(static_model(), rows_of(), tmp_path, settings=STEPS, batches=led(tiers, "ab"), **options)

    with pytest.raises(KilledError):
        run(TWO, callbacks=[Kill(5)])
    refused("other rows or tiers", run, TWO[::-1].copy(), resume=True)
    file = tmp_path / "checkpoint-3" / CURRICULUM
    held = file.read_bytes()
    file.write_bytes(held[:100].ljust(len(held), b" "))
    refused("malformed JSON", run, TWO, resume=True)


def test_training_by_progress_goes_by_the_gaps_of_ratings(tmp_path):
    data = outside_danger(rows_of())
    trained = train_model(static_model(), data, tmp_path / "a", settings=STEPS, batches="progress")
    plain = train_model(static_model(), data, tmp_path / "b", settings=STEPS)
    assert trained.steps == plain.steps
    assert not torch.equal(weights(trained.model), weights(plain.model))
    names = {name for name in trained.history[-1] if name.startswith("chance")}
    assert names == {f"chance of {tier}" for tier in ("soft", "goldilocks", "medium", "easy")}


def test_rows_without_a_gap_or_in_danger_are_left_out_and_counted():
    gap = rows_of().facts.own_gaps()[:, 0].copy()
    gap[0], gap[1:4] = np.nan, 50.0
    data = with_gap(gap)
    left = outside_danger(data)
    assert (left.counts[UNRATED], left.counts[DANGER], left.counts["rows"], len(left)) == (1, 3, 76, 76)
    assert left.dataset[:]["label"] == list(range(76))
    assert left.dataset[:]["negative"] == data.dataset[:]["negative"][4:]
    assert np.allclose(left.facts.own_gaps()[:, 0], gap[4:])
    assert data.counts["rows"] == 80


def gaps(first, rest=300.0):
    return np.array([first, *np.resize([rest, 500.0], 79)])


@pytest.mark.parametrize(
    ("made", "data", "said"),
    [
        (outside_danger, lambda: rows_of(rated=False), "there are none; rate"),
        (outside_danger, lambda: rows_of("lists"), "one negative; these have 4"),
        (outside_danger, lambda: with_gap(np.full(80, 10.0)), "all 80 rows are left out"),
        (by_progress, lambda: with_gap(np.full(80, 300.0)), "two tiers or more"),
        (by_progress, lambda: with_gap(gaps(10.0)), "of danger"),
        (by_progress, lambda: with_gap(gaps(np.nan)), "rows as outside_danger leaves them"),
    ],
)
def test_rows_that_a_curriculum_by_progress_refuses(made, data, said):
    refused(said, made, data())


class OfInfinite(TierCurriculum):
    def wrapped(self, loss, model):
        loss.forward = lambda features, labels: model(dict(features[0]))["sentence_embedding"].sum() * torch.inf
        return super().wrapped(loss, model)


@pytest.mark.parametrize(
    ("curriculum", "error", "said"),
    [
        (led(np.array([0, 1]), "ab"), InputError, "of 2 rows, the data set has 80"),
        (led(TWO, "ab", OfInfinite), FailureError, "lower the learning rate"),
    ],
)
def test_curricula_that_cannot_lead_are_refused(curriculum, error, said, tmp_path):
    refused(said, train_model, static_model(), rows_of(), tmp_path, error=error, settings=STEPS, batches=curriculum)


def test_what_the_curriculum_refuses():
    two = SimpleNamespace(world_size=2, n_gpu=1, gradient_accumulation_steps=1)
    refused("one process", led().on_train_begin, two, None, None)
