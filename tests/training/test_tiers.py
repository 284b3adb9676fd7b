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

from foils.data import Negatives
from foils.runtime.errors import FailureError, InputError
from foils.selection import LearningProgress
from foils.training.data import training_set
from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss
from foils.training.settings import TrainSettings
from foils.training.tiers import CURRICULUM, DANGER, UNRATED, Decks, TierCurriculum, by_progress, outside_danger
from foils.training.train import train_model
from refusals import refused
from train_models import Kill, KilledError, bert_model, made_up, resumed_exactly, rows_of, static_model, table, weights

SETTINGS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})
TIERS = np.repeat(np.arange(3), (9, 20, 4))
TWO = np.arange(80) % 2


def with_gap(gap, **how):
    made = table(made_up(), rated=True).table
    at = made.column_names.index("gap")
    return training_set(made_up(), Negatives(made.set_column(at, "gap", pa.array(gap))), **how)


def led(tiers=TIERS, names="abc", kind=TierCurriculum, **more):
    return kind(tiers, LearningProgress(len(names), **more), names=names)


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


DATA = Dataset.from_dict({"anchor": ["x"] * len(TIERS)})


@pytest.mark.parametrize(("drop_last", "length"), [(False, 5), (True, 4)])
def test_an_epoch_has_its_exact_length_and_batches_of_one_tier(drop_last, length):
    sampler = led()(DATA, batch_size=8, drop_last=drop_last, seed=1)
    plain = list(sampler)  # of an evaluation set: its rows in order
    assert plain[0] == list(range(8))
    assert len(sampler) == len(plain) == length
    sampler.start()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == length
        assert batches == list(sampler)  # asked twice, the same epoch is the same
        for batch in batches:
            (tier,) = set(TIERS[batch].tolist())
            assert len(batch) == min(8, np.count_nonzero(tier == TIERS))


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
    plain = CachedContrastiveLoss(model, mini_batch_size=2) if cached else ContrastiveLoss(model)
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
    how = replace(SETTINGS, batch_size=4, epochs=6, learning_rate=0.01, trainer={"logging_steps": 1})
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
        settings = replace(SETTINGS, loss=loss)
        found = train_model(static_model(), rows_of(), folder, settings=settings, batches=curriculum, **more)
        bandits.append(curriculum.bandit)
        return found

    resumed_exactly(train, tmp_path, step)
    assert bandits[0] == bandits[1]


def test_resuming_refuses_what_is_damaged_or_of_other_rows(tmp_path):
    def run(tiers, **options):
        train_model(static_model(), rows_of(), tmp_path, settings=SETTINGS, batches=led(tiers, "ab"), **options)

    with pytest.raises(KilledError):
        run(TWO, callbacks=[Kill(5)])
    refused("other rows or tiers", run, TWO[::-1].copy(), resume=True)
    file = tmp_path / "checkpoint-3" / CURRICULUM
    held = file.read_bytes()
    file.write_bytes(held[:100].ljust(len(held), b" "))
    refused("malformed JSON", run, TWO, resume=True)


def test_training_by_progress_goes_by_the_gaps_of_ratings(tmp_path):
    data = outside_danger(rows_of())
    trained = train_model(static_model(), data, tmp_path / "a", settings=SETTINGS, batches="progress")
    plain = train_model(static_model(), data, tmp_path / "b", settings=SETTINGS)
    assert trained.steps == plain.steps
    assert not torch.equal(weights(trained.model), weights(plain.model))
    names = {name for name in trained.history[-1] if name.startswith("chance")}
    assert names == {f"chance of {tier}" for tier in ("soft", "goldilocks", "medium", "easy")}


def test_rows_without_a_gap_or_in_danger_are_left_out_and_counted():
    gap = table(made_up(), rated=True).table["gap"].to_numpy().copy()
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
        (by_progress, lambda: with_gap(gaps(np.nan)), "1 of these have no rating gap"),
    ],
)
def test_rows_that_a_curriculum_by_progress_refuses(made, data, said):
    with pytest.raises(InputError, match=said):
        made(data())


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
    with pytest.raises(error, match=said):
        train_model(static_model(), rows_of(), tmp_path, settings=SETTINGS, batches=curriculum)


def test_what_the_curriculum_refuses():
    refused("expected rows of each", led, np.zeros(4, int), "ab")
    two = SimpleNamespace(world_size=2, n_gpu=1, gradient_accumulation_steps=1)
    refused("one process", led().on_train_begin, two, None, None)
