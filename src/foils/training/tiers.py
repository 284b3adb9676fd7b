"""A curriculum by learning progress: batches of one tier each, the next drawn by a bandit handed in.

    curriculum = TierCurriculum(tiers, LearningProgress(2), names=("soft", "goldilocks"))
    train_model(..., batches=curriculum)

After a batch's step the same batch is passed through the loss once more, with the same dropout and
without gradients. The drop is the bandit's reward. The trainer reads one batch ahead, so a tier is
drawn before the reward of the running step is known. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.losses.gradcache import RandContext
from torch import Tensor, nn

from foils.batching.batches import Rows
from foils.batching.sampler import BatchHook, EpochBatchSampler, checkpoint_of
from foils.data.records import whole_json
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import write_json
from foils.selection.rules import BOUNDS, TIERS, LearningProgress, tier_of
from foils.training.data import TrainingSet, rated
from foils.training.settings import CHANCE

CURRICULUM = "foils_curriculum.json"
DANGER = "negatives in the danger zone, left out"
UNRATED = "negatives without a rating gap, left out"


def outside_danger(data: TrainingSet) -> TrainingSet:
    """Return the triplets whose negative's rating gap is not in the danger zone, below 100 (ANMI Table 2).

    Raises:
        InputError: no triplets, no negative with a rating gap, or none outside the danger zone.
    """
    gaps = _gaps(data)
    if np.isnan(gaps).any():
        data = data.without(np.isnan(gaps), reason=UNRATED)
    return data.without(gaps[np.isfinite(gaps)] < BOUNDS[0], reason=DANGER)


def by_progress(data: TrainingSet) -> TierCurriculum:
    """Return the curriculum over the tiers that have rows.

    Args:
        data: triplets, as `outside_danger` leaves them.

    Raises:
        InputError: no triplets, a negative without a rating gap or in the danger zone, or fewer
            than two tiers.
    """
    gaps = _gaps(data)
    tiers, numbers = np.unique(tier_of(gaps), return_inverse=True)
    names = [TIERS[i] for i in tiers]
    if np.isnan(gaps).any() or TIERS[0] in names or len(names) < 2:
        raise InputError(
            f"a curriculum by progress needs rows as outside_danger leaves them, of two tiers or more among "
            f"{', '.join(TIERS[1:])}; these are of {', '.join(names)}"
        )
    return TierCurriculum(numbers.astype(np.int64), LearningProgress(len(names)), names=names)


def _gaps(data: TrainingSet) -> NDArray[np.float64]:
    """Return (N,) the rating gap of each triplet's negative, NaN where it has none."""
    if data.rows.shape[1] != 3:
        raise InputError(f"progress goes by a row's one negative; these have {data.rows.shape[1] - 2}")
    return rated("a curriculum by progress", data.facts.own_gaps()[:, 0])


class TierBatchSampler(EpochBatchSampler):
    """Batches of one tier each; made by the trainer through a `TierCurriculum`.

    With `drop_last` an epoch is ⌊N/size⌋ batches in the place of ⌈N/size⌉.

    Attributes:
        drawn: the tier of each batch of the training so far; None: this is not the training set's
            sampler, and keeps plain order.
    """

    drawn: list[int] | None = None

    def batches(self) -> Iterable[Rows]:
        """Yield the epoch's batches; a tier that was drawn already stays, so that a training resumes exactly."""
        if self.drawn is None:
            yield from super().batches()
            return
        for number in range(self.epoch * len(self), (self.epoch + 1) * len(self)):
            if number == len(self.drawn):
                self.drawn.append(self.planner.draw(np.random.default_rng([self.seed, number])))
            tier = self.drawn[number]
            yield self.batch_of(tier, self.drawn[:number].count(tier))

    def batch_of(self, tier: int, number: int) -> Rows:
        """Return a tier's batch number 0, 1, …: its rows are shuffled anew for each pass over them.

        A pass has whole batches alone. A tier with fewer rows than a batch fills a smaller one.
        """
        rows = np.flatnonzero(self.planner.tiers == tier)
        batches_in_pass = max(1, len(rows) // self.batch_size)
        shuffled = np.random.default_rng([self.seed, tier, number // batches_in_pass]).permutation(rows)
        start = number % batches_in_pass * self.batch_size
        return shuffled[start : start + self.batch_size]


class TierCurriculum(BatchHook):
    """What a trainer takes to be led by learning progress: a sampler, hooks on the loss, and this callback.

    An epoch is as many batches as it would be without. A tier that is drawn often is seen more than
    once, each time in another order (`TierBatchSampler.batch_of`).

    Args:
        tiers: (N,) tier of each row of the data set, 0 … number of names − 1, each with rows.
        bandit: draws from as many tiers as `names` has.
        names: of the tiers.

    Source: Graves et al. 2017, section 3; the reward is "prediction gain".
    """

    made, file = TierBatchSampler, CURRICULUM
    unpickled = ("_loss", "_batch", "_before")
    _loss: Any = None
    _batch: Any = None
    _before: Any = None

    def __init__(self, tiers: Rows, bandit: LearningProgress, *, names: Sequence[str]) -> None:
        self.tiers, self.bandit, self.names = tiers, bandit, tuple(names)

    def draw(self, rng: np.random.Generator) -> int:
        """Return the tier of the next batch."""
        chances = self.bandit.probabilities
        return int(rng.choice(len(self.names), p=chances / chances.sum()))

    def wrapped(self, loss: nn.Module, model: Any = None) -> nn.Module:
        """Return the loss; each batch in training is kept from now on, to be computed again."""

        def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            if torch.is_grad_enabled():
                features, labels = inputs
                kind = labels.device.type
                precision = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
                # copies, since models write into what they read
                self._batch = [dict(column) for column in features], labels, RandContext(labels), precision

        def note(_: nn.Module, inputs: Any, value: Tensor) -> None:
            if torch.is_grad_enabled():
                self._before = value.detach()

        self._loss = loss
        loss.register_forward_pre_hook(keep)
        loss.register_forward_hook(note)
        return loss

    def recompute(self) -> tuple[float, float, Rows]:
        """Return the last batch's loss as it was, as it is now with the same dropout, and its labels."""
        features, labels, random, (enabled, kind) = self._batch
        with torch.no_grad(), random, torch.autocast(labels.device.type, enabled=enabled, dtype=kind):
            after = self._loss(features, labels)
        return float(self._before), float(after), labels.cpu().numpy()

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Find the training set's sampler; on resuming, restore what was drawn and learned.

        Raises:
            InputError: the sampler is not a curriculum's or of another number of rows, several processes, or
                a checkpoint of other rows.
        """
        if args.world_size > 1 or args.n_gpu > 1 or args.gradient_accumulation_steps > 1:
            raise InputError(
                "a curriculum by learning progress needs one process, one device and a step for each batch"
            )
        super().on_train_begin(args, state, control, **more)
        rows = len(self.sampler.dataset)
        if len(self.tiers) != rows:
            raise InputError(f"the curriculum is of {len(self.tiers)} rows, the data set has {rows}")
        self.sampler.drawn = []
        if not state.global_step:
            return
        saved = whole_json(checkpoint_of(args, state) / self.file)
        if saved["tiers"] != self.tiers.tolist():
            raise InputError("the checkpoint's curriculum is of other rows or tiers; start anew")
        lists = {name: tuple(saved["bandit"][name]) for name in ("log_weights", "history")}
        self.bandit = LearningProgress(**{**saved["bandit"], **lists})
        self.sampler.drawn = saved["drawn"]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reward the tier of the batch by the drop of its loss.

        Raises:
            FailureError: the loss is no finite number.
        """
        before, after, labels = self.recompute()
        if not (math.isfinite(before) and math.isfinite(after)):
            raise FailureError(
                f"the loss is {before} before step {state.global_step} and {after} after it; lower the "
                "learning rate, or train in float32"
            )
        self.bandit = self.bandit.updated(int(self.tiers[labels[0]]), before, after)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Put the chances of the tiers beside the loss in the history."""
        if state.log_history and "loss" in (logs or {}):
            chances = self.bandit.probabilities.tolist()
            state.log_history[-1].update({CHANCE + n: c for n, c in zip(self.names, chances, strict=True)})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the bandit and what was drawn into the checkpoint."""
        if state.is_world_process_zero:
            saved = {"bandit": asdict(self.bandit), "drawn": self.sampler.drawn, "tiers": self.tiers.tolist()}
            write_json(checkpoint_of(args, state) / self.file, saved)
