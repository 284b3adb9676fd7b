"""Leaving out negatives that are probably positives while a model trains: by its own similarities, or by a guide's.

Known positives are left out by what is known of pairs (`foils.training.known_pairs`); a mask is of those that nobody
labelled. Both are log-weights of a block of queries and candidates, and add up. A tally counts what a mask takes. Needs
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import TrainerCallback

from foils.data.training_rows import ABSENT
from foils.encode import EmbeddingSettings, Vectors
from foils.encode.models import similarity_of
from foils.encode.opening import EncoderLike, description
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.training.data import TrainingSet
from foils.training.settings import GUIDE, SELF, TrainSettings


@dataclass(frozen=True)
class GuideVectors:
    """A guide's vectors of the rows of a data set.

    Attributes:
        queries: (N,) of each row's query; of unit length where the guide compares by the cosine.
        documents: of the documents of `places`.
        places: (N, 1 + k) where the vectors of a row's documents lie; those of absent ones are some document's.
        encoder: what provenance says of the guide.
        guide: an encoder, or the name of one.
        settings: how it is used, and where its vectors are kept.
    """

    queries: Vectors
    documents: Vectors
    places: NDArray[np.int64]
    encoder: Mapping[str, Any]
    guide: EncoderLike
    settings: EmbeddingSettings

    def of_rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (b, d) vectors of these rows' queries and ((1 + k)·b, d) of their documents, column after column."""
        return self.queries.take(rows), self.documents.take(self.places[rows].T.ravel())

    def of_pairs(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (N, d) vectors of all rows' queries, and (N, d) of their positives."""
        return self.queries.take(np.arange(len(self.places))), self.documents.take(self.places[:, 0])

    def on(self, data: TrainingSet) -> GuideVectors:
        """Return the same guide's vectors of another training set."""
        return guide_vectors(self.guide, data, settings=self.settings)


def guide_vectors(guide: EncoderLike, data: TrainingSet, *, settings: EmbeddingSettings) -> GuideVectors:
    """Embed the texts of a training set that the store does not hold yet; the model is let go afterwards.

    Args:
        guide: an encoder, or the name of one.
        data: whose queries, positives and negatives.
        settings: how the guide is used, and where its vectors are kept.

    Raises:
        InputError: a model that cannot be loaded.
    """
    encoder, store = settings.open_encoder(guide, data.texts.collection), settings.open_store()
    query_rows, query_places = np.unique(data.rows[:, 0], return_inverse=True)
    rows = data.rows[:, 1:]
    rows = np.where(rows == ABSENT, data.rows[:, 1:2], rows)
    document_rows, places = np.unique(rows, return_inverse=True)
    queries = store.embed(encoder, data.texts.texts("anchor", query_rows), "query", task="embedding queries (guide)")
    documents = store.embed(
        encoder, data.texts.documents_of(document_rows), "document", task="embedding documents (guide)"
    )
    places = places.reshape(rows.shape)
    return GuideVectors(queries.select(query_places), documents, places, description(encoder), guide, settings)


MASKED = "masked"


class MaskTally(TrainerCallback):  # type: ignore[misc]
    """Counts what a mask leaves out, and puts the share since the entry before beside the loss in the history.

    Shares are of the pairs of a query and a candidate negative that the facts leave in; those of each loss, where
    Matryoshka training has several.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, NDArray[np.int64]] = {}  # pairs, and those left out
        self._recent = np.zeros(2, np.int64)

    def add(self, masked: Tensor, counted: Tensor, epoch: int) -> None:
        """Count a block of a batch.

        Args:
            masked: (m, c) True where the mask leaves a candidate out.
            counted: (m, c) True for candidate negatives that the facts leave in.
            epoch: counted from 1.
        """
        sums = torch.stack([counted.sum(), (masked & counted).sum()]).cpu().numpy()
        self._recent = self._recent + sums
        self._epochs[epoch] = self._epochs.get(epoch, 0) + sums

    def shares(self) -> dict[int, float]:
        """Return the share that was left out in each epoch of this run, counted from 1; those without a pair lack."""
        return {epoch: float(taken / pairs) for epoch, (pairs, taken) in sorted(self._epochs.items()) if pairs}

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Add the share since the entry before."""
        pairs, taken = self._recent
        if state.log_history and "loss" in (logs or {}) and pairs:
            state.log_history[-1][MASKED], self._recent = float(taken / pairs), np.zeros(2, np.int64)


MARGINS = {SELF: 0.1, GUIDE: 0.0}
"""The published margins: Qwen3-Embedding's, by the model's own similarities, and GISTEmbed's, by a guide's."""
FARTHEST = 2
"""Difference of two cosines at most."""


def mask_log_weights(similarities: Tensor, own: Tensor, positives: Tensor, *, margin: float) -> Tensor:
    """Return (b, c) log w: −inf where s_ij > s_i₊ + margin, else 0; the positives' own log-weights are 0.

    Args:
        similarities: (b, c) s, higher is nearer.
        own: (b,) s₊, of each query and its positive.
        positives: (b,) int64, each query's positive among the candidates.
        margin: in units of s; larger leaves out fewer.

    Source: Qwen3-Embedding (Zhang et al. 2025, eq. 1, where the margin is 0.1); GISTEmbed (Solatorio 2024, where it is
    0 and s is a guide's).
    """
    weights = torch.zeros_like(similarities).masked_fill(similarities > (own + margin)[:, None], -math.inf)
    return weights.scatter(1, positives[:, None], 0.0)


@dataclass(frozen=True)
class FalseNegativeMask:
    """Which candidates of a batch are probably positives of a query, in-batch and mined negatives alike.

    Attributes:
        margin: a candidate is left out where its similarity to the query exceeds the positive's by more than this.
        guide: whose similarities; None: those of the model that trains, as it is, without gradients.
        tally: what counts what the mask does; None: nothing is counted.

    Raises:
        InputError: a margin that is not finite.
    """

    margin: float = MARGINS[SELF]
    guide: GuideVectors | None = None
    tally: MaskTally | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.margin):
            raise InputError(f"a mask of margin {self.margin}; expected a finite number")

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
        return BatchMask(self, queries.detach(), documents.detach(), epoch)

    def on(self, data: TrainingSet) -> FalseNegativeMask:
        """Return the same mask for another training set, whose texts a guide embeds; it counts on."""
        return replace(self, guide=None if self.guide is None else self.guide.on(data))

    def describe(self) -> dict[str, Any]:
        """Return what the model's card and the result say of it."""
        by = SELF if self.guide is None else GUIDE.rstrip(":")
        guide = {} if self.guide is None else {"guide": self.guide.encoder}
        return {"by": by, **guide, "margin": self.margin}


@dataclass(frozen=True)
class BatchMask:
    """The mask of one batch.

    Attributes:
        mask: its settings.
        queries: (b, d) vectors that are compared, the model's or the guide's.
        documents: ((1 + k)·b, d) likewise.
        epoch: counted from 1.
    """

    mask: FalseNegativeMask
    queries: Tensor
    documents: Tensor
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
            weights = mask_log_weights(similarities, own, positives, margin=mask.margin)
            if counting and mask.tally is not None:
                counted = torch.ones_like(weights, dtype=torch.bool) if known is None else ~torch.isneginf(known)
                mask.tally.add(torch.isneginf(weights), counted.scatter(1, positives[:, None], False), self.epoch)
            return weights if known is None else weights + known


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
    return FalseNegativeMask(margin, guide, MaskTally())
