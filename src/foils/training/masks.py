"""Leaving out negatives that are probably positives while a model trains: by its own similarities, or by a guide's.

Known positives are left out by the facts (`foils.training.facts`); a mask is of those that nobody labelled. Both are
log-weights of a block of queries and candidates, and add up. Needs torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foils.encode import EmbeddingSettings
from foils.encode.similarity import similarity_of
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.training.data import TrainingSet
from foils.training.guides import GuideVectors, guide_vectors
from foils.training.masked import HALF, MaskTally
from foils.training.settings import GUIDE, SELF, TrainSettings

MARGINS = {SELF: 0.1, GUIDE: 0.0}
"""The published margins: Qwen3-Embedding's, by the model's own similarities, and GISTEmbed's, by a guide's."""
FARTHEST = 2
"""Difference of two cosines at most."""


def mask_log_weights(
    similarities: Tensor, own: Tensor, positives: Tensor, *, margin: float, softness: float = 0.0
) -> Tensor:
    """Return (b, c) log w: −inf where s_ij > s_i₊ + margin, else 0; softly, log σ((s_i₊ + margin − s_ij) / softness).

    The weight of a soft mask is 1/2 where the similarity exceeds the positive's by the margin, near 1 far below and
    near 0 far above. The positives' own log-weights are 0.

    Args:
        similarities: (b, c) s, higher is nearer.
        own: (b,) s₊, of each query and its positive.
        positives: (b,) int64, each query's positive among the candidates.
        margin: in units of s; larger leaves out fewer.
        softness: in units of s; 0: candidates are left out or kept whole.

    Source: Qwen3-Embedding (Zhang et al. 2025, eq. 1, where the margin is 0.1); GISTEmbed (Solatorio 2024, where it is
    0 and s is a guide's). The soft form is ours.
    """
    threshold = (own + margin)[:, None]
    if softness:
        weights = torch.nn.functional.logsigmoid((threshold - similarities) / softness)
    else:
        weights = torch.zeros_like(similarities).masked_fill(similarities > threshold, -math.inf)
    return weights.scatter(1, positives[:, None], 0.0)


@dataclass(frozen=True)
class FalseNegativeMask:
    """Which candidates of a batch are probably positives of a query, in-batch and mined negatives alike.

    Attributes:
        margin: a candidate is left out where its similarity to the query exceeds the positive's by more than this.
        softness: 0, or the width of a soft mask (`mask_log_weights`).
        near_positive: whether its similarity to the positive counts as well: the larger of the two is compared.
        guide: whose similarities; None: those of the model that trains, as it is, without gradients.
        tally: what counts what the mask does; None: nothing is counted.

    Raises:
        InputError: a softness below 0, or a number that is not finite.
    """

    margin: float = MARGINS[SELF]
    softness: float = 0.0
    near_positive: bool = False
    guide: GuideVectors | None = None
    tally: MaskTally | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and math.isfinite(self.softness) and self.softness >= 0):
            raise InputError(
                f"a mask of margin {self.margin} and softness {self.softness}; expected a finite margin, and a "
                "softness of at least 0"
            )

    def of_batch(
        self, queries: Tensor, documents: Tensor, labels: NDArray[np.int64] | None, *, epoch: int = 1
    ) -> BatchMask:
        """Return the mask of a batch.

        Args:
            queries: (b, d) the model's vectors, as they are compared.
            documents: ((1 + k)·b, d) likewise, column after column.
            labels: (b,) the rows' numbers in the data set; None where they are not known.
            epoch: counted from 1, for the tally.

        Raises:
            InputError: a guide, and no labels.
        """
        if self.guide is not None:
            if labels is None:
                raise InputError("a guide's vectors are looked up by each row's number; expected them in the labels")
            queries, documents = (torch.from_numpy(each).to(documents.device) for each in self.guide.of_rows(labels))
        return BatchMask(self, queries.detach(), documents.detach(), labels, epoch)

    def on(self, data: TrainingSet) -> FalseNegativeMask:
        """Return the same mask for another training set, whose texts a guide embeds; it counts on."""
        if self.tally is not None:
            self.tally.data = data
        return replace(self, guide=None if self.guide is None else self.guide.on(data))

    def describe(self) -> dict[str, Any]:
        """Return what the model's card and the result say of it."""
        by = SELF if self.guide is None else GUIDE.rstrip(":")
        guide = {} if self.guide is None else {"guide": self.guide.encoder}
        return {"by": by, **guide, "margin": self.margin, "softness": self.softness,
                "near_positive": self.near_positive}  # fmt: skip


@dataclass(frozen=True)
class BatchMask:
    """The mask of one batch.

    Attributes:
        mask: its settings.
        queries: (b, d) vectors that are compared, the model's or the guide's.
        documents: ((1 + k)·b, d) likewise.
        labels: (b,) the rows' numbers in the data set, or None.
        epoch: counted from 1.
    """

    mask: FalseNegativeMask
    queries: Tensor
    documents: Tensor
    labels: NDArray[np.int64] | None
    epoch: int

    def log_weights(self, begin: int, end: int, known: Tensor | None) -> Tensor:
        """Return (end − begin, c) log-weights of queries begin … end − 1, those that are known added.

        Args:
            begin: first row.
            end: the row after the last.
            known: (end − begin, c) log-weights of the facts; None: all 0. What they leave out is not counted as masked.
        """
        counting, mask = torch.is_grad_enabled(), self.mask
        with torch.no_grad():
            positives = torch.arange(begin, end, device=self.queries.device)
            similarities = self.queries[begin:end] @ self.documents.T
            own = similarities.gather(1, positives[:, None]).squeeze(1)
            if mask.near_positive:
                similarities = torch.maximum(similarities, self.documents[begin:end] @ self.documents.T)
            weights = mask_log_weights(similarities, own, positives, margin=mask.margin, softness=mask.softness)
            if counting and mask.tally is not None:
                counted = torch.ones_like(weights, dtype=torch.bool) if known is None else ~torch.isneginf(known)
                counted = counted.scatter(1, positives[:, None], False)
                self._count(mask.tally, weights, counted, (similarities, own), begin)
            return weights if known is None else weights + known

    def _count(
        self, tally: MaskTally, weights: Tensor, counted: Tensor, compared: tuple[Tensor, Tensor], begin: int
    ) -> None:
        rows = torch.arange(weights.shape[1], device=weights.device) % len(self.queries)
        own_rows = torch.arange(begin, begin + len(weights), device=weights.device)
        tally.add(weights, counted, rows == own_rows[:, None], self.epoch)
        if self.labels is not None:
            places = (counted & (weights < HALF)).nonzero()
            tally.keep(places, *compared, begin, self.labels, self.epoch)


def make_mask(model: Any, data: TrainingSet, settings: TrainSettings) -> FalseNegativeMask | None:
    """Return the mask of a training, None without one; of a guide, all texts are embedded first.

    A guide is used as other stages use an encoder: its own prompts, texts cut as the training's are, its vectors kept.

    Args:
        model: the SentenceTransformer that trains.
        data: what it trains on.
        settings: of the training.

    Raises:
        InputError: a guide that cannot be loaded, a margin that no cosines can differ by, or none for a model that
            compares by inner products.
    """
    if settings.mask is None:
        return None
    guide, similarity = None, similarity_of(model)
    if settings.mask != SELF:
        use = EmbeddingSettings(max_length=settings.max_length, device=str(model.device))
        guide = guide_vectors(settings.mask.removeprefix(GUIDE), data, settings=use)
        similarity = str(guide.encoder.get("similarity", similarity))
    margin, named = settings.mask_margin, spelled("mask_margin")
    if margin is None:
        if guide is None and similarity != "cosine":
            raise InputError(
                f"{spelled('mask', SELF)}: the margin of {MARGINS[SELF]:g} is made for cosines, and the model compares "
                f"by inner product; give {named} in its units (0: what is nearer to the query than the positive is)"
            )
        margin = MARGINS[SELF if guide is None else GUIDE]
    if similarity == "cosine" and abs(margin) >= FARTHEST:
        raise InputError(f"{named} {margin:g}: cosines differ by at most {FARTHEST}; give less, as 0.1")
    return FalseNegativeMask(margin, settings.mask_softness, settings.mask_near_positive, guide, MaskTally(data))
