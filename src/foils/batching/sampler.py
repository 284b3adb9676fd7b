"""The hook into sentence-transformers' trainer: a batch sampler that plans each epoch, and its callback.

    planner = BatchPlanner("hobit")
    args = SentenceTransformerTrainingArguments(..., batch_sampler=planner.sampler)
    trainer = SentenceTransformerTrainer(..., args=args, callbacks=[planner])

The trainer calls `planner.sampler` for the training set and for every evaluation set. When training begins the
callback hands the model to the training set's sampler, which from then on builds each epoch's batches; the others
keep plain order. Under several processes each embeds its share, one builds the batches, all get the same ones;
`accelerator_config={"split_batches": True}` shares each batch out. Each distinct text is embedded once an epoch, in the
precision of the training, `per_device_eval_batch_size` at once (8 by default: give more on a GPU). Needs torch and
sentence-transformers: import this module where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers import TrainerCallback

from foils.batching.batches import Batches, Rows
from foils.batching.caching import CachingLoss
from foils.batching.conflicts import Conflicts
from foils.batching.encoding import Encode, encoder_of, with_rows
from foils.batching.epochs import EpochBuilder
from foils.batching.methods import BatchChoice
from foils.batching.processes import share_cache
from foils.encode.similarity import similarity_of
from foils.runtime.errors import InputError

__all__ = ["SAVED", "BatchHook", "BatchPlanner", "EpochBatchSampler", "PlannedBatchSampler", "with_rows"]
SAVED = "foils_batches.npz"


class EpochBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of an epoch, in plain order until they are made by what the training set is given.

    Args:
        dataset: a `datasets.Dataset`.
        batch_size: rows per batch.
        drop_last: leave out a short last batch.
        valid_label_columns: names that mark the label column; it is neither query nor positive.
        generator: not used: what is drawn depends on the seed, the epoch and the model alone.
        seed: of every epoch's generator.
        planner: the hook that makes the batches.
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
        planner: Any,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed or 0)
        self.dataset, self.planner = dataset, planner
        aside = {*(valid_label_columns or ()), "dataset_name"}
        self.columns = [name for name in dataset.column_names if name not in aside]

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise: the trainer calls what it is given, and this is an instance instead of `planner.sampler`."""
        raise InputError(
            "batch_sampler was given a sampler that is already made; pass planner.sampler, which makes one for each "
            "data set"
        )

    @property
    def rows(self) -> int:
        """How many rows an epoch has."""
        return len(self.dataset)

    def __len__(self) -> int:
        rows, size = self.rows, self.batch_size
        return int(rows // size if self.drop_last else -(-rows // size))

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in islice(self.batches(), len(self)))

    def batches(self) -> Iterable[Rows]:
        """Return this epoch's batches, a short one last."""
        return Batches(np.arange(len(self.dataset)), self.batch_size)


class BatchHook(TrainerCallback):  # type: ignore[misc]
    """What fills a trainer's batches: handed to it as sampler, as callback, and around the loss.

    Attributes:
        kind: the sampler that it makes for each data set.
        file: in which a checkpoint keeps its state.
    """

    kind: type[EpochBatchSampler] = EpochBatchSampler
    file = SAVED
    _top: Any = None

    @property
    def sampler(self) -> Callable[..., Any]:
        """What to pass as `batch_sampler`; it pickles with the training arguments."""
        return partial(self.kind, planner=self)

    def wrapped(self, loss: Any, model: Any) -> Any:
        """Return the loss to train with, which tells the hook what it needs to know of each step."""
        return loss

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the sampler its epoch, which does not reach it through every wrapper of data loaders."""
        if self._top is not None:
            self._top.set_epoch(math.floor((state.epoch or 0) + 1e-6))

    def find_samplers(self, loader: Any) -> list[Any]:
        """Return the training's samplers, one for each data set, from under accelerate's and mixing wrappers.

        Raises:
            InputError: the batches do not come from a sampler of this kind.
        """
        top = getattr(loader, "batch_sampler", None)
        while top is not None and not all(isinstance(each, self.kind) for each in _below(top)):
            top = getattr(top, "batch_sampler", None)
        if top is None:
            raise InputError(
                "the trainer's batches do not come from this planner; pass batch_sampler=planner.sampler in its "
                "arguments"
            )
        self._top = top
        return _below(top)

    def saved(self, args: Any, state: Any, k: int = 0) -> Path:
        """Return where the state of the k-th training set is saved with the checkpoint of this step."""
        name = f"{k}-{self.file}" if k else self.file
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / name


def _below(sampler: Any) -> list[Any]:
    return list(getattr(sampler, "batch_samplers", [sampler]))


class PlannedBatchSampler(EpochBatchSampler):
    """Batches of a data set whose first column is the query and whose second is the positive.

    Made by the trainer through `BatchPlanner.sampler`, with the arguments of `EpochBatchSampler`. Without a trainer:
    make one, `attach` an encoder, call `set_epoch` before each epoch.
    """

    _builder: EpochBuilder | None = None

    @property
    def rows(self) -> int:
        """How many rows an epoch has: all, or what a mixture takes."""
        return int(self.planner.epoch_rows(len(self.dataset)))

    @property
    def attached(self) -> bool:
        """Whether this is a training set's sampler, which builds batches."""
        return self._builder is not None

    @property
    def conflicts(self) -> Conflicts | None:
        """The known positives among the rows, where they are kept apart and an encoder is attached."""
        return None if self._builder is None else self._builder.conflicts

    def attach(self, encode: Encode, *, scaled: bool = True) -> None:
        """Make this the sampler of the training set: from now on it builds batches.

        Args:
            encode: (texts, column) → (n, d) vectors by the current model.
            scaled: whether the model compares them by cosine, so that they are scaled to length 1.

        Raises:
            InputError: the data set lacks a query and a positive column, or the cache is of another size.
        """
        self._builder = EpochBuilder(self.dataset, self.columns, encode, self.planner, seed=self.seed, scaled=scaled)

    def batches(self) -> Batches:
        """Return this epoch's batches: built on first use, plain order where no model was handed over.

        Raises:
            InputError: the planner is not among the trainer's callbacks.
        """
        if self._builder is not None:
            return self._builder.batches(self.epoch, self.batch_size)
        if not self.planner.registered:
            raise InputError(
                "the batch sampler was given no model; pass the planner to the trainer too: callbacks=[planner]"
            )
        return Batches(np.arange(len(self.dataset)), self.batch_size)

    def save(self, path: Path) -> None:
        """Write the epoch's order, and the vectors that later epochs depend on, to `path`."""
        self._attached().save(path, self.epoch, self.batch_size)

    def restore(self, path: Path) -> None:
        """Take the order of the running epoch, and what later epochs depend on, from a checkpoint.

        Raises:
            InputError: there is no such file, or it is of another data set.
        """
        self._attached().restore(path, self.batch_size)

    def _attached(self) -> EpochBuilder:
        if self._builder is None:
            raise InputError("only the sampler of a training set has an order of its own; attach an encoder")
        return self._builder


class BatchPlanner(BatchChoice, BatchHook):
    """What batches to build, handed to the trainer as sampler and as callback; arguments are those of `BatchChoice`."""

    kind = PlannedBatchSampler

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(name, settings, **more)
        self.registered = False
        self._training: list[PlannedBatchSampler] = []

    def wrapped(self, loss: Any, model: Any) -> Any:
        """Return the loss, for HOBIT-C one that leaves the vectors it computes in the cache."""
        return loss if self.cache is None else CachingLoss(loss, model=model, cache=self.cache)

    @property
    def conflicts(self) -> Conflicts | None:
        """The known positives among the rows of a single training set, once training began: for the loss to mask."""
        return self._training[0].conflicts if len(self._training) == 1 else None

    def __getstate__(self) -> dict[str, Any]:
        """Leave vectors and samplers out of the pickled training arguments."""
        left_out = dict.fromkeys(("_top", "cache", "teacher", "known", "mixture"))
        return {**self.__dict__, **left_out, "_training": [], "registered": False}

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that the trainer knows this callback."""
        self.registered = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Hand the model to the training set's sampler; on resuming, restore the saved order."""
        self.registered, model = True, given["model"]
        self._training = self.find_samplers(given["train_dataloader"])
        for k, sampler in enumerate(self._training):
            sampler.attach(encoder_of(model, args), scaled=similarity_of(model) == "cosine")
            if state.global_step:
                sampler.restore(self.saved(args, state, k))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the order with the checkpoint."""
        if self.cache is not None:
            share_cache(self.cache)
        if state.is_world_process_zero:
            for k, sampler in enumerate(self._training):
                sampler.save(self.saved(args, state, k))
