"""Masks of negatives that are probably positives, which are added to the logits of a batch.

Known positives are left out by what is known of pairs (`foils.training.data.PairFacts`); a mask is of those that nobody
labelled, by the similarities of the model that trains or of a guide. A mask is log-weights of a block of queries
and candidates, and adds to those of the facts. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foils.encode import EmbeddingSettings, Vectors
from foils.encode.models import similarity_of
from foils.encode.opening import EncoderLike, description
from foils.runtime.errors import InputError
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
    """

    queries: Vectors
    documents: Vectors
    places: NDArray[np.int64]
    encoder: Mapping[str, Any]

    def of_rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (b, d) vectors of these rows' queries and ((1 + k)·b, d) of their documents, column after column."""
        return self.queries.take(rows), self.documents.take(self.places[rows].T.ravel())

    def of_pairs(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (N, d) vectors of all rows' queries, and (N, d) of their positives."""
        return self.queries.take(np.arange(len(self.places))), self.documents.take(self.places[:, 0])


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
    query_rows, query_places, document_rows, places = data.distinct()
    queries = store.embed(encoder, data.texts.texts("anchor", query_rows), "query", task="embedding queries (guide)")
    documents = store.embed(
        encoder, data.texts.documents_of(document_rows), "document", task="embedding documents (guide)"
    )
    return GuideVectors(queries.select(query_places), documents, places, description(encoder))


MARGINS = {SELF: 0.1, GUIDE: 0.0}
"""The published margins: Qwen3-Embedding's, by the model's own similarities, and GISTEmbed's, by a guide's."""


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


class FalseNegativeMask:
    """Which candidates of a batch are probably positives of a query, in-batch and mined negatives alike.

    It counts what it leaves out in training, as a share of the pairs of a query and a candidate negative that the facts
    leave in; those of each loss, where Matryoshka training has several.

    Args:
        margin: a candidate is left out where its similarity to the query exceeds the positive's by more than this.
        guide: whose similarities; None: those of the model that trains, as it is, without gradients.

    Raises:
        InputError: a margin that is not finite.
    """

    def __init__(self, margin: float = MARGINS[SELF], guide: GuideVectors | None = None) -> None:
        if not math.isfinite(margin):
            raise InputError(f"a mask of margin {margin}; expected a finite number")
        self.margin, self.guide = margin, guide
        self._epochs: dict[int, NDArray[np.int64]] = {}  # pairs, and those left out

    def compared(self, queries: Tensor, documents: Tensor, labels: NDArray[np.int64] | None) -> tuple[Tensor, Tensor]:
        """Return the vectors by which a batch is masked: the model's own, which are given, or the guide's.

        Args:
            queries: (b, d) the model's vectors, as they are compared.
            documents: ((1 + k)·b, d) likewise, column after column.
            labels: (b,) the rows' numbers in the data set; None where they are not known.

        Raises:
            InputError: a guide, and no labels.
        """
        if self.guide is None:
            return queries, documents
        if labels is None:
            raise InputError("a guide's vectors are looked up by each row's number; expected them in the labels")
        of_queries, of_documents = (torch.from_numpy(each).to(queries.device) for each in self.guide.of_rows(labels))
        return of_queries, of_documents

    def log_weights(
        self, queries: Tensor, documents: Tensor, begin: int, end: int, known: Tensor | None, *, epoch: int = 1
    ) -> Tensor:
        """Return (end − begin, c) log-weights of queries begin … end − 1, those that are known added.

        Args:
            queries: (b, d) as `compared` returns them.
            documents: ((1 + k)·b, d) likewise.
            begin: first row.
            end: the row after the last.
            known: (end − begin, c) log-weights of the facts; None: all 0. What they leave out is not counted as masked.
            epoch: counted from 1, under which pairs are counted where gradients are computed.
        """
        positives = torch.arange(begin, end, device=queries.device)
        similarities = queries[begin:end] @ documents.T
        of_positives = similarities.gather(1, positives[:, None]).squeeze(1)
        weights = mask_log_weights(similarities, of_positives, positives, margin=self.margin)
        if torch.is_grad_enabled():
            counted = torch.ones_like(weights, dtype=torch.bool) if known is None else ~torch.isneginf(known)
            counted = counted.scatter(1, positives[:, None], False)
            sums = torch.stack([counted.sum(), (torch.isneginf(weights) & counted).sum()]).cpu().numpy()
            self._epochs[epoch] = self._epochs.get(epoch, 0) + sums
        return weights if known is None else weights + known

    def shares(self) -> dict[int, float]:
        """Return the share that was left out in each epoch of this run, counted from 1; those without a pair lack."""
        return {epoch: float(taken / pairs) for epoch, (pairs, taken) in sorted(self._epochs.items()) if pairs}

    def describe(self) -> dict[str, Any]:
        """Return what the model's card and the result say of it."""
        by = SELF if self.guide is None else GUIDE.rstrip(":")
        guide = {} if self.guide is None else {"guide": self.guide.encoder}
        return {"by": by, **guide, "margin": self.margin}


def make_mask(model: Any, data: TrainingSet, settings: TrainSettings, use: EmbeddingSettings) -> FalseNegativeMask:
    """Return the mask of a training that has one; of a guide, all texts are embedded first.

    A guide is used as other stages use an encoder: its own prompts, texts cut as the training's are, its vectors kept.

    Args:
        model: the SentenceTransformer that trains.
        data: what it trains on.
        settings: of the training.
        use: how a guide embeds.

    Raises:
        InputError: a guide that cannot be loaded.
    """
    guide = None
    if settings.mask != SELF:
        guide = guide_vectors(str(settings.mask).removeprefix(GUIDE), data, settings=use)
    margin = settings.mask_margin
    if margin is None:  # the published one of the model itself is made for cosines
        margin = MARGINS[SELF if guide is None and similarity_of(model) == "cosine" else GUIDE]
    return FalseNegativeMask(margin, guide)
