"""A curriculum by learning progress: batches of one tier each, the next tier drawn by a bandit that is handed in.

    curriculum = TierCurriculum(tiers, bandit, names=("soft", "goldilocks"))
    train_bi_encoder(..., sampler=curriculum.sampler, wrap_loss=curriculum.measured, callbacks=[curriculum])

Before a batch's step the loss is the training's own; after it, the same batch is passed through once more, with the
same dropout and without gradients. The drop is the bandit's reward. The trainer reads one batch ahead, so a tier is
drawn before the reward of the running step is known. Needs torch and sentence-transformers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import nn
from transformers import TrainerCallback

from foils.runtime.errors import FailureError, FormatError, InputError
from foils.training.callbacks import CHANCE
from foils.training.decks import Decks
from foils.training.measured import MeasuredLoss

CURRICULUM = "foils_curriculum.npz"

Tiers = NDArray[np.int64]


class Bandit(Protocol):
    """Draws tiers by what the learner gains from them; a frozen dataclass, as `foils.selection.LearningProgress`."""

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Chance of each tier, summing to 1."""
        ...

    def updated(self, tier: int, loss_before: float, loss_after: float) -> Bandit:
        """Return the bandit after training on a batch of a tier."""
        ...


class TierCurriculum(TrainerCallback):  # type: ignore[misc]
    """What a trainer takes to be led by learning progress: a sampler, a loss that is measured, and this callback.

    An epoch is as many batches as it would be without; within it each tier deals its rows in a random order, anew when
    all were dealt, so that a tier that is drawn often is seen more than once. A tier with fewer rows than a batch
    fills a smaller one.

    Args:
        tiers: (N,) tier of each row of the data set, 0 … number of names − 1.
        bandit: draws from as many tiers as `names` has.
        names: of the tiers.

    Raises:
        InputError: tiers that have no name, a tier without rows, or a bandit of another number of tiers.

    Source: Graves et al. 2017, section 3; the reward is "prediction gain".
    """

    def __init__(self, tiers: Tiers, bandit: Any, *, names: Sequence[str]) -> None:
        counts = np.bincount(tiers, minlength=len(names)) if len(tiers) and tiers.min() >= 0 else np.zeros(0, int)
        if len(counts) != len(names) or not counts.all() or len(bandit.probabilities) != len(names):
            raise InputError(
                f"rows of tiers {sorted({int(tier) for tier in tiers})} and a bandit over {len(bandit.probabilities)} "
                f"for the {len(names)} names {', '.join(names)}; expected rows of each"
            )
        self.tiers, self.bandit, self.names = tiers, bandit, tuple(names)
        self._sampler: TierBatchSampler | None = None
        self._loss: MeasuredLoss | None = None

    @property
    def sampler(self) -> Callable[..., TierBatchSampler]:
        """What to pass as `batch_sampler`; it pickles with the training arguments."""
        return partial(TierBatchSampler, curriculum=self)

    def measured(self, loss: nn.Module) -> MeasuredLoss:
        """Return the loss, so wrapped that it can be measured again after a step."""
        self._loss = MeasuredLoss(loss)
        return self._loss

    def __getstate__(self) -> dict[str, Any]:
        """Leave sampler and loss out of the pickled training arguments."""
        return {**self.__dict__, "_sampler": None, "_loss": None}

    def draw(self, rng: np.random.Generator) -> int:
        """Return the tier of the next batch."""
        chances = self.bandit.probabilities
        return int(rng.choice(len(self.names), p=chances / chances.sum()))

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Find the training set's sampler; on resuming, restore what was drawn and learned.

        Raises:
            InputError: sampler or loss are not this curriculum's, several processes, or a checkpoint without it.
        """
        if args.world_size > 1 or args.n_gpu > 1 or args.gradient_accumulation_steps > 1:
            raise InputError(
                "a curriculum by learning progress needs one process, one device and a step for each batch"
            )
        self._sampler = _find_sampler(given["train_dataloader"])
        if self._loss is None or self._sampler.curriculum is not self:
            raise InputError("a curriculum needs sampler=curriculum.sampler and wrap_loss=curriculum.measured")
        self._sampler.start()
        if state.global_step:
            self._restore(_saved(args, state))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the sampler its epoch."""
        if self._sampler is not None:
            self._sampler.set_epoch(math.floor((state.epoch or 0) + 1e-6))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reward the tier of the batch by the drop of its loss.

        Raises:
            FailureError: the loss is no finite number.
        """
        if self._loss is None or self._sampler is None:
            return
        before, after, labels = self._loss.again()
        if not (math.isfinite(before) and math.isfinite(after)):
            raise FailureError(
                f"the loss is {before} before step {state.global_step} and {after} after it; lower the learning rate, "
                "or train in float32"
            )
        self.bandit = self.bandit.updated(int(self.tiers[labels[0]]), before, after)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Put the chances of the tiers beside the loss in the history."""
        if state.log_history and "loss" in (logs or {}):
            chances = self.bandit.probabilities.tolist()
            state.log_history[-1].update({CHANCE + n: c for n, c in zip(self.names, chances, strict=True)})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the bandit and what was drawn into the checkpoint."""
        if self._sampler is not None and state.is_world_process_zero:
            path = _saved(args, state)
            aside = path.with_suffix(".part.npz")
            np.savez(aside, bandit=np.array(json.dumps(asdict(self.bandit))), **self._sampler.state())
            aside.replace(path)

    def _restore(self, path: Path) -> None:
        if self._sampler is None or not path.is_file():
            raise InputError(f"resuming needs what the curriculum had learned, {path}, which is not there; start anew")
        try:
            with np.load(path, allow_pickle=False) as saved:
                arrays = dict(saved)
            fields = json.loads(str(arrays["bandit"]))
            self.bandit = replace(
                self.bandit, **{name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
            )
            self._sampler.take(arrays)
        except InputError:
            raise
        except Exception as error:  # NumPy's, zip's and JSON's readers raise what the damage leads them to
            raise FormatError(
                f"damaged state of a curriculum ({error}); resume from another checkpoint", path
            ) from error


class TierBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of one tier each; made by the trainer through `TierCurriculum.sampler`.

    Args:
        dataset: a `datasets.Dataset` with the curriculum's rows in their order.
        batch_size: rows per batch.
        drop_last: an epoch is then ⌊N/size⌋ batches in the place of ⌈N/size⌉.
        valid_label_columns: not used.
        generator: not used: what is drawn depends on the seed and the rewards alone.
        seed: of tiers and orders.
        curriculum: whose tiers are drawn.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: Any = None,
        seed: int = 0,
        *,
        curriculum: TierCurriculum,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed or 0)
        self.rows, self.curriculum = len(dataset), curriculum
        self._rng = np.random.default_rng(self.seed)
        self._decks: Decks | None = None
        self._dealt: list[NDArray[np.int64]] = []
        self._epoch_dealt = -1

    def __len__(self) -> int:
        return int(self.rows // self.batch_size if self.drop_last else -(-self.rows // self.batch_size))

    def start(self) -> None:
        """Make this the training set's sampler: from now on it draws tiers; others keep plain order.

        Raises:
            InputError: the curriculum is of another number of rows.
        """
        tiers = self.curriculum.tiers
        if len(tiers) != self.rows:
            raise InputError(f"the curriculum is of {len(tiers)} rows, the data set has {self.rows}")
        self._decks = Decks([np.flatnonzero(tiers == tier) for tier in range(len(self.curriculum.names))])

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the epoch's batches: those already drawn, where training resumes within it, then new ones."""
        if self._decks is None:
            for i in range(len(self)):
                yield list(range(i * self.batch_size, min((i + 1) * self.batch_size, self.rows)))
            return
        if self._epoch_dealt != self.epoch:
            self._epoch_dealt, self._dealt = self.epoch, []
        for i in range(len(self)):
            if i == len(self._dealt):
                tier = self.curriculum.draw(self._rng)
                self._dealt.append(self._decks.deal(tier, self.batch_size, rng=self._rng))
            yield self._dealt[i].tolist()

    def state(self) -> dict[str, Any]:
        """Return what was drawn in the epoch, and all that later draws depend on."""
        decks = [] if self._decks is None else self._decks.left
        return {
            "epoch": np.asarray(self._epoch_dealt),
            "dealt": np.concatenate([np.zeros(0, np.int64), *self._dealt]),
            "dealt_sizes": np.array([len(batch) for batch in self._dealt], np.int64),
            "left": np.concatenate([np.zeros(0, np.int64), *decks]),
            "left_sizes": np.array([len(deck) for deck in decks], np.int64),
            "generator": np.array(json.dumps(self._rng.bit_generator.state)),
            "tiers": self.curriculum.tiers,
        }

    def take(self, arrays: dict[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            InputError: it is of other tiers.
        """
        if self._decks is None or not np.array_equal(arrays["tiers"], self.curriculum.tiers):
            raise InputError("the checkpoint's curriculum is of other rows or tiers; start anew")
        self._epoch_dealt = int(arrays["epoch"])
        self._dealt = _pieces(arrays["dealt"], arrays["dealt_sizes"])
        self._decks.left = _pieces(arrays["left"], arrays["left_sizes"])
        self._rng.bit_generator.state = json.loads(str(arrays["generator"]))


def _pieces(joined: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    if sizes.sum() != len(joined):
        raise ValueError(f"{len(joined)} rows for {sizes.sum()}")
    return np.split(joined, np.cumsum(sizes)[:-1]) if len(sizes) else []


def _saved(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}" / CURRICULUM


def _find_sampler(loader: Any) -> TierBatchSampler:
    """Return the training's sampler from under accelerate's wrappers."""
    sampler = getattr(loader, "batch_sampler", None)
    while sampler is not None and not isinstance(sampler, TierBatchSampler):
        sampler = getattr(sampler, "batch_sampler", None)
    if sampler is None:
        raise InputError("the trainer's batches do not come from a curriculum; pass sampler=curriculum.sampler")
    return sampler
