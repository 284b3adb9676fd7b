from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

from foils.data import Negatives
from foils.runtime.errors import FailureError, InputError, UnknownNameError
from foils.selection import LearningProgress
from foils.training.data import training_set
from foils.training.settings import TrainSettings
from foils.training.tiers import (
    CURRICULUM,
    DANGER,
    UNRATED,
    Decks,
    MeasuredLoss,
    TierBatchSampler,
    TierCurriculum,
    by_progress,
    outside_danger,
)  # fmt: skip
from foils.training.train import train_model
from train_models import bert_model, made_up, static_model, table

SETTINGS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})
LOGGED = {"trainer": {"logging_steps": 1}}
TIERS = np.repeat(np.arange(3), (9, 20, 4))


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def rated():
    collection = made_up()
    return collection, table(collection, rated=True), training_set(collection, table(collection, rated=True))


def with_gap(negatives, gap):
    at = negatives.table.column_names.index("gap")
    return Negatives(negatives.table.set_column(at, "gap", pa.array(gap)))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def bandit(names=3, **more):
    return LearningProgress(names, **more)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 12), st.integers(0, 99))
def test_decks_deal_every_row_of_a_tier_equally_often(sizes, size, seed):
    starts = np.cumsum([0, *sizes])
    decks, rng = Decks([np.arange(a, b) for a, b in pairwise(starts)]), np.random.default_rng(seed)
    counts = np.zeros(starts[-1], int)
    for tier in rng.integers(len(sizes), size=25):
        hand = decks.deal(int(tier), size, rng=rng)
        own = np.arange(starts[tier], starts[tier + 1])
        assert np.isin(hand, own).all()
        assert len(set(hand.tolist())) == len(hand) == min(size, sizes[tier])
        counts[hand] += 1
        assert np.ptp(counts[own]) <= 1


@pytest.mark.parametrize(("drop_last", "length"), [(False, 5), (True, 4)])
def test_an_epoch_has_its_exact_length_and_batches_of_one_tier(drop_last, length):
    led = TierCurriculum(TIERS, bandit(), names="abc")
    data = Dataset.from_dict({"anchor": ["x"] * len(TIERS)})
    sampler = led(data, batch_size=8, drop_last=drop_last, seed=1)
    assert len(sampler) == length
    plain = list(sampler)  # of an evaluation set: its rows in order
    assert plain[0] == list(range(8))
    assert len(plain) == length
    sampler.start()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == length
        assert batches == list(sampler)  # asked twice, the same epoch is the same
        for batch in batches:
            (tier,) = set(TIERS[batch].tolist())
            assert len(batch) == min(8, np.count_nonzero(tier == TIERS))


def test_the_sampler_pickles_and_the_seed_decides():
    led = TierCurriculum(TIERS, bandit(), names="abc")
    data = Dataset.from_dict({"anchor": ["x"] * len(TIERS)})
    again = pickle.loads(pickle.dumps(led))

    def drawn(sampler, seed):
        made = sampler(data, batch_size=4, drop_last=False, seed=seed)
        made.start()
        return list(made)

    assert isinstance(again(data, batch_size=4, drop_last=False), TierBatchSampler)
    assert drawn(led, 3) == drawn(again, 3) != drawn(led, 4)


def test_the_reward_is_the_drop_of_the_batch_s_loss():
    """w·x with w = 3 stepped to 2 on x = 4: loss 12, then 8."""
    weight = torch.nn.Parameter(torch.tensor(3.0))

    class Product(torch.nn.Module):
        def forward(self, features, labels):
            return weight * features[0]["x"].sum()

    loss = MeasuredLoss(Product())
    features = [{"x": torch.tensor([1.0, 3.0])}]
    loss(features, torch.tensor([0, 1])).backward()
    with torch.no_grad():
        weight -= 1
    before, after, labels = loss.recompute()
    assert (before, after, labels.tolist()) == (12.0, 8.0, [0, 1])
    with pytest.raises(InputError, match="no batch"):
        loss.recompute()
    loss.eval()
    loss(features, None)
    with pytest.raises(InputError, match="no batch"):
        loss.recompute()


@pytest.mark.parametrize("cached", [False, True])
def test_measuring_again_has_the_same_dropout_and_leaves_random_numbers_alone(cached, tmp_path):
    from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss

    model = bert_model(tmp_path, dropout=0.5)
    plain = CachedContrastiveLoss(model, mini_batch_size=2) if cached else ContrastiveLoss(model)
    loss = MeasuredLoss(plain).train()
    columns = [model.preprocess(texts) for texts in (["ba be bi", "fo fu", "ga"], ["ba", "fo", "ga ge"])]
    torch.manual_seed(3)
    value = loss(columns, torch.arange(3))
    value.backward()
    state = torch.get_rng_state()
    before, after, _ = loss.recompute()
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


def test_the_tier_that_can_be_learned_is_drawn_more(rated, tmp_path):
    data = rated[2]
    tiers = np.arange(len(data)) % 4
    led = OfPlanted(tiers, bandit(4, rate=0.3), names=("noise a", "real", "noise b", "noise c"))
    trained = train_model(
        static_model(),
        data,
        tmp_path,
        settings=replace(SETTINGS, batch_size=4, epochs=6, learning_rate=0.01, **LOGGED),
        batches=led,
    )
    chances = [entry["chance of real"] for entry in trained.history]
    assert chances[0] == pytest.approx(0.25, abs=0.1)
    assert np.mean(chances[60:]) > 0.5
    assert led.bandit.steps == trained.steps == 6 * 20
    assert all(
        sum(v for name, v in entry.items() if name.startswith("chance")) == pytest.approx(1)
        for entry in trained.history
    )


@pytest.mark.parametrize(("loss", "step"), [("mnrl", 4), ("weighted", 7), ("weighted", 16)])
def test_it_resumes_exactly(rated, tmp_path, loss, step):
    data = rated[2]
    settings = replace(SETTINGS, loss=loss)

    def run(folder, *more, resume=False):
        tiers = np.searchsorted([200.0, 400.0], data.facts.own_gaps()[:, 0])
        led = TierCurriculum(tiers, bandit(rate=0.5), names="abc")
        trained = train_model(
            static_model(),
            data,
            tmp_path / folder,
            settings=settings,
            batches=led,
            callbacks=more,
            resume=resume,
        )
        return weights(trained.model), led.bandit, trained.history

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("cut", StopAt(step))
    again = run("cut", resume=True)
    assert torch.equal(again[0], whole[0])
    assert again[1:] == whole[1:]


def test_resuming_refuses_what_is_missing_damaged_or_of_other_rows(rated, tmp_path):
    def run(tiers, *more, **options):
        led = TierCurriculum(tiers, bandit(2), names="ab")
        train_model(
            static_model(),
            rated[2],
            tmp_path,
            settings=SETTINGS,
            batches=led,
            callbacks=more,
            **options,
        )

    tiers = np.arange(len(rated[2])) % 2
    with pytest.raises(KeyboardInterrupt):
        run(tiers, StopAt(5))
    with pytest.raises(InputError, match="other rows or tiers"):
        run(tiers[::-1].copy(), resume=True)
    file = tmp_path / "checkpoint-3" / CURRICULUM
    held = file.read_bytes()
    file.write_bytes(held[:100].ljust(len(held), b" "))
    with pytest.raises(InputError, match="malformed JSON"):
        run(tiers, resume=True)


def test_train_encoder_goes_by_the_gaps_of_ratings(rated, tmp_path):
    data = outside_danger(rated[2])
    trained = train_model(static_model(), data, tmp_path / "a", settings=SETTINGS, batches="progress")
    plain = train_model(static_model(), data, tmp_path / "b", settings=SETTINGS)
    assert trained.steps == plain.steps
    assert not torch.equal(weights(trained.model), weights(plain.model))
    names = {name for name in trained.history[-1] if name.startswith("chance")}
    assert names == {f"chance of {tier}" for tier in ("soft", "goldilocks", "medium", "easy")}
    assert not any(name.startswith("chance") for name in plain.history[-1])


def test_rows_without_a_gap_or_in_danger_are_left_out_and_counted(rated):
    collection, negatives, _ = rated
    gap = negatives.table["gap"].to_numpy().copy()
    gap[0], gap[1:4] = np.nan, 50.0
    data = training_set(collection, with_gap(negatives, gap))
    left = outside_danger(data)
    assert (left.counts[UNRATED], left.counts[DANGER], left.counts["rows"], len(left)) == (1, 3, 76, 76)
    assert left.dataset[:]["label"] == list(range(76))
    assert left.dataset[:]["negative"] == data.dataset[:]["negative"][4:]
    assert np.allclose(left.facts.own_gaps()[:, 0], gap[4:])
    assert data.counts["rows"] == 80


def test_what_a_curriculum_by_progress_refuses(rated, tmp_path):
    collection, negatives, data = rated
    unrated = table(collection)

    def call(data, **more):
        train_model(static_model(), data, tmp_path / "out", settings=SETTINGS, batches="progress", **more)

    with pytest.raises(InputError, match="there are none; rate"):
        call(training_set(collection, unrated))
    with pytest.raises(InputError, match="there are none; rate"):
        outside_danger(training_set(collection, unrated))
    with pytest.raises(InputError, match="one negative; these have 4"):
        call(training_set(collection, negatives, form="lists"))
    alike = with_gap(negatives, np.full(len(negatives), 300.0))
    with pytest.raises(InputError, match="two tiers or more"):
        call(training_set(collection, alike))
    gap = negatives.table["gap"].to_numpy().copy()
    gap[0] = 10.0
    with pytest.raises(InputError, match="of danger"):
        by_progress(training_set(collection, with_gap(negatives, gap)))
    gap[0] = np.nan
    with pytest.raises(InputError, match="1 of these have no rating gap"):
        by_progress(training_set(collection, with_gap(negatives, gap)))
    with pytest.raises(InputError, match="all 80 rows are left out"):
        outside_danger(training_set(collection, with_gap(negatives, np.full(len(negatives), 10.0))))
    with pytest.raises(UnknownNameError, match="progress"):
        train_model(static_model(), data, tmp_path / "out", settings=SETTINGS, batches="progres")


def test_what_the_curriculum_refuses(rated, tmp_path):
    data = rated[2]
    with pytest.raises(InputError, match="expected rows of each"):
        TierCurriculum(np.zeros(4, int), bandit(2), names="ab")
    with pytest.raises(InputError, match="bandit over 3"):
        TierCurriculum(np.array([0, 1]), bandit(3), names="ab")
    short = TierCurriculum(np.array([0, 1]), bandit(2), names="ab")
    right = TierCurriculum(np.arange(len(data)) % 2, bandit(2), names="ab")

    def call(led, folder="out"):
        train_model(static_model(), data, tmp_path / folder, settings=SETTINGS, batches=led)

    class Unwrapped(TierCurriculum):
        def wrapped(self, loss, model):
            return loss

    class OfInfinite(TierCurriculum):
        def wrapped(self, loss, model):
            return super().wrapped(Infinite(model), model)

    with pytest.raises(InputError, match="of 2 rows, the data set has 80"):
        call(short)
    two = np.arange(len(data)) % 2
    with pytest.raises(InputError, match="its loss around the training's"):
        call(Unwrapped(two, bandit(2), names="ab"))
    with pytest.raises(InputError, match=r"batch_sampler=planner"):
        call(Elsewhere(two, bandit(2), names="ab"))
    with pytest.raises(FailureError, match="lower the learning rate"):
        call(OfInfinite(two, bandit(2), names="ab"))
    with pytest.raises(InputError, match="one process"):
        right.on_train_begin(SimpleNamespace(world_size=2, n_gpu=1, gradient_accumulation_steps=1), None, None)
    with pytest.raises(InputError, match="label"):
        MeasuredLoss(torch.nn.Identity())([], None)


class Elsewhere(TierCurriculum):
    """Its batches come from a sampler of sentence-transformers."""

    def __call__(self, dataset, batch_size, drop_last, *rest, **more):
        return DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)


class Infinite(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, features, labels):
        return self.model(dict(features[0]))["sentence_embedding"].sum() * torch.inf
