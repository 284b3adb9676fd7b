"""Batches that join several data sets, as sentence-transformers' sampler over them (HOBIT A.8).

    planner = BatchPlanner("hobit")
    args = SentenceTransformerTrainingArguments(
        ..., batch_sampler=planner.sampler, multi_dataset_batch_sampler=partial(MixedBatchSampler, parts=4)
    )

Needs torch and sentence-transformers: import this module where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler

from foils.batching.batches import Batches
from foils.batching.mixture import mixed_batches
from foils.batching.sampler import PlannedBatchSampler
from foils.runtime.errors import InputError


class MixedBatchSampler(MultiDatasetDefaultBatchSampler):  # type: ignore[misc]
    """Each batch joins `parts` pieces, of different data sets while there is a choice; the data sets share columns.

    Args:
        dataset: the data sets laid end to end (a `ConcatDataset`).
        batch_samplers: a `PlannedBatchSampler` for each; their batches become the pieces.
        generator: not used: the batches depend on (seed, epoch) and the model alone.
        seed: of every epoch's generator.
        parts: pieces per batch; the batch size must be a multiple of it.

    Raises:
        InputError: `parts` does not divide the batch size, or a sampler is of another kind.
    """

    def __init__(
        self,
        dataset: Any,
        batch_samplers: Sequence[Any],
        generator: Any = None,
        seed: int | None = 0,
        *,
        parts: int = 4,
    ) -> None:
        super().__init__(dataset, list(batch_samplers), generator, seed or 0)
        if parts < 1 or self.batch_size % parts:
            raise InputError(f"parts must divide the batch size {self.batch_size}; got {parts}")
        if not all(isinstance(sampler, PlannedBatchSampler) for sampler in batch_samplers):
            raise InputError("mixed batches are joined from planned ones; pass batch_sampler=planner.sampler too")
        self.parts = parts
        for sampler in batch_samplers:
            sampler.batch_size = self.batch_size // parts

    def __len__(self) -> int:
        rows = sum(map(len, self.dataset.datasets))
        return int(rows // self.batch_size if self.drop_last else -(-rows // self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in islice(self.batches(), len(self)))

    def batches(self) -> Batches:
        """Return this epoch's batches over all data sets; plain order where no model was handed over."""
        sizes = [len(part) for part in self.dataset.datasets]
        if not any(sampler.attached for sampler in self.batch_samplers):
            return Batches(np.arange(sum(sizes)), self.batch_size)
        begins = np.cumsum([0, *sizes[:-1]])
        sources = {
            str(k): (begin + np.arange(size), sampler.batches())
            for k, (begin, size, sampler) in enumerate(zip(begins, sizes, self.batch_samplers, strict=True))
        }
        rng = np.random.default_rng([self.seed, self.epoch, len(sizes)])
        return mixed_batches(sources, parts=self.parts, rng=rng)
