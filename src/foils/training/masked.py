"""What a mask took out of a training: shares by epoch, and examples with their texts. Needs torch and transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import TrainerCallback

from foils.data.tokens import mixed
from foils.training.data import TrainingSet

EXAMPLES = 5
MASKED = "masked"
IN_BATCH, MINED = 0, 1
HALF = float(np.log(0.5))


@dataclass(frozen=True)
class MaskedPair:
    """A candidate negative that a mask left out, or gave less than half of its weight.

    Attributes:
        query, positive, document: their texts.
        similarity: of query and document (with `near_positive`, of positive and document where that is larger), when
            the pair was met first.
        positive_similarity: of query and positive, then.
        mined: whether it is a negative of the query's own row; else it is another row's document.
        epoch: in which the pair was met first, counted from 1.
    """

    query: str
    positive: str
    document: str
    similarity: float
    positive_similarity: float
    mined: bool
    epoch: int


@dataclass(frozen=True)
class EpochShares:
    """What a mask took away in an epoch, as shares of the candidate negatives that the facts leave in.

    Attributes:
        epoch: counted from 1.
        share: mean of 1 − w over all pairs of a query and a candidate negative: of a hard mask, the share of the pairs
            that are left out. NaN: there was no pair.
        in_batch: the same, over documents of other rows alone.
        mined: the same, over negatives of the query's own row alone.
        pairs: how many pairs there were; those of each loss, where Matryoshka training has several.
    """

    epoch: int
    share: float
    in_batch: float
    mined: float
    pairs: int


@dataclass(frozen=True)
class Masked:
    """What a mask took out of a training.

    Attributes:
        mask: its settings, and of a guide what it is.
        epochs: of this run, in their order.
        examples: drawn uniformly from the distinct pairs of this run.
    """

    mask: Mapping[str, Any]
    epochs: tuple[EpochShares, ...]
    examples: tuple[MaskedPair, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON; a share of no pairs is None."""
        epochs = [
            {name: None if value != value else value for name, value in vars(each).items()} for each in self.epochs
        ]
        return {"mask": dict(self.mask), "epochs": epochs, "examples": [vars(each) for each in self.examples]}


class MaskTally:
    """Counts what a mask does, and keeps a few of the pairs that it leaves out.

    The pairs kept are those whose hashed row numbers are the smallest: a uniform draw from all distinct pairs, which
    depends neither on their order nor on the size of the blocks.

    Args:
        data: where texts are looked up; None: no examples are kept.
        examples: how many to keep.
    """

    def __init__(self, data: TrainingSet | None = None, *, examples: int = EXAMPLES) -> None:
        self.data, self.examples = data, examples
        self._epochs: dict[int, NDArray[np.float64]] = {}  # (2, 2): pairs and weight taken, in-batch and mined
        self._recent = np.zeros((2, 2))
        self._kept: dict[int, MaskedPair] = {}  # by the hash of the rows of query and document

    def add(self, weights: Tensor, counted: Tensor, mined: Tensor, epoch: int) -> None:
        """Count a block of a batch.

        Args:
            weights: (m, c) the mask's log-weights.
            counted: (m, c) True for candidate negatives that the facts leave in.
            mined: (m, c) True for negatives of the query's own row.
            epoch: counted from 1.
        """
        taken, parts = -torch.expm1(weights), (counted & ~mined, counted & mined)
        both = [torch.stack([part.sum(), (taken * part).sum(dtype=torch.float64)]) for part in parts]
        sums = torch.stack(both).cpu().numpy()
        self._recent = self._recent + sums
        self._epochs[epoch] = self._epochs.get(epoch, 0.0) + sums

    def keep(
        self, places: Tensor, similarities: Tensor, own: Tensor, begin: int, labels: NDArray[np.int64], epoch: int
    ) -> None:
        """Keep a block's masked pairs among the examples, where their turn comes.

        Args:
            places: (p, 2) query of the block and candidate of each masked pair.
            similarities: (m, c) what was compared.
            own: (m,) similarity of each query to its positive.
            begin: row of the batch of the block's first query.
            labels: (b,) the rows' numbers in the data set.
            epoch: counted from 1.
        """
        if self.data is None or not len(places):
            return
        at, candidate = places.cpu().numpy().T
        rows, texts, size = self.data.rows, self.data.texts, len(labels)
        query, positive = rows[labels[begin + at], :2].T
        document = rows[labels[candidate % size], 1 + candidate // size]
        hashes = mixed((query.astype(np.uint64) << np.uint64(32)) ^ document.astype(np.uint64))
        keys, first = np.unique(hashes, return_index=True)
        for key, i in zip(keys[: self.examples].tolist(), first, strict=False):
            if key in self._kept or (len(self._kept) == self.examples and key > max(self._kept)):
                continue
            row, column = int(at[i]), int(candidate[i])
            self._kept[key] = MaskedPair(
                query=texts.texts("anchor", query[[i]])[0],
                positive=texts.document_texts([positive[i]])[0],
                document=texts.document_texts([document[i]])[0],
                similarity=float(similarities[row, column]),
                positive_similarity=float(own[row]),
                mined=bool(column % size == begin + row),
                epoch=epoch,
            )
            if len(self._kept) > self.examples:
                del self._kept[max(self._kept)]

    def recent(self) -> float | None:
        """Return the share of the weight taken since the last call; None where there was no pair."""
        pairs, taken = self._recent.sum(0)
        self._recent = np.zeros((2, 2))
        return float(taken / pairs) if pairs else None

    def result(self, mask: Mapping[str, Any]) -> Masked:
        """Return what was counted."""
        epochs = []
        for epoch, sums in sorted(self._epochs.items()):
            share, in_batch, mined = (
                float(taken / pairs) if pairs else float("nan") for pairs, taken in (sums.sum(0), *sums)
            )
            epochs.append(EpochShares(epoch, share, in_batch, mined, int(sums[:, 0].sum())))
        return Masked(mask, tuple(epochs), tuple(self._kept[key] for key in sorted(self._kept)))


class MaskHistory(TrainerCallback):  # type: ignore[misc]
    """Puts the share that a mask took away beside the loss in the history."""

    def __init__(self, tally: MaskTally) -> None:
        self.tally = tally

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Add the share since the entry before."""
        if state.log_history and "loss" in (logs or {}) and (share := self.tally.recent()) is not None:
            state.log_history[-1][MASKED] = share
