"""Contrastive losses with sentence-transformers' signature, for what its own do not have.

    loss = ContrastiveLoss(model, facts=facts)  # weighted InfoNCE with known positives left out
    loss = CachedContrastiveLoss(model, facts=facts, mini_batch_size=64)  # the same in small memory

The labels are row numbers, by which the loss looks up weights, known positives and ratings; without facts all
negatives weigh 1, and the default is sentence-transformers' MultipleNegativesRankingLoss. Needs torch and
sentence-transformers: import this module where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn

from foils.encode.models import similarity_of
from foils.runtime.errors import InputError
from foils.training.data import TrainingSet
from foils.training.gathering import Share
from foils.training.known_pairs import BatchFacts, LeastGap, PairFacts
from foils.training.loss_weighting import Mixing, Temperature
from foils.training.masks import BatchMask, FalseNegativeMask
from foils.training.objectives import rating_regression, weighted_infonce

Objective = Callable[..., Tensor]
"""(similarities, positives, log-weights, temperature=) → one loss a query, as those of `foils.training.objectives`."""
Regression = Callable[[Tensor, Tensor], Tensor]
"""((b, 1 + k) similarities, numbers of a row's own documents, NaN where there is none) → one loss a query."""


@dataclass(frozen=True)
class Batch:
    """What is known about a batch, and what a mask finds.

    Attributes:
        facts: of its rows; None: nothing is known.
        mask: None: nothing is masked.
    """

    facts: BatchFacts | None
    mask: BatchMask | None

    def log_weights(self, begin: int, end: int, device: torch.device) -> Tensor | None:
        """Return (end − begin, c) log-weights of queries begin … end − 1; None where all are 0."""
        block = None if self.facts is None else self.facts.block(begin, end)
        known = None if block is None else torch.from_numpy(block).to(device)
        return known if self.mask is None else self.mask.log_weights(begin, end, known)


class ContrastiveLoss(nn.Module):  # type: ignore[misc]
    """Mean of an objective over the batch's queries, against all documents of the batch; with `mixing`, the hybrid.

    Similarity is the model's own, cosine or inner product, computed in float32 whatever the model's precision. The
    hybrid adds the regression of the own documents' ratings on gain·similarity + offset, the two learned with the
    model: the head g_ψ of eq. 40.

    Args:
        model: a SentenceTransformer.
        objective: of `foils.training.objectives`; with settings, as a `functools.partial`.
        temperature: τ, or one that is learned.
        facts: of the data set whose row numbers come as labels; None: nothing is known, labels are not looked at.
        mixing: how the regression joins; None: no regression.
        regression: in the place of the hybrid's, of the own documents' similarities and what the facts have as their
            ratings; None: the hybrid's.
        least_gap: curriculum: epoch → gap that a negative must exceed to count; needs facts.
        mask: leaves out candidates that are probably positives; a guide's needs facts. None: none.

    Raises:
        InputError: a temperature not above 0, or a mixing or curriculum without what it needs.
    """

    def __init__(
        self,
        model: Any,
        *,
        objective: Objective = weighted_infonce,
        temperature: float | Temperature = 0.05,
        facts: PairFacts | None = None,
        mixing: Mixing | None = None,
        regression: Regression | None = None,
        least_gap: LeastGap | None = None,
        mask: FalseNegativeMask | None = None,
    ) -> None:
        super().__init__()
        if mixing is not None and (facts is None or not np.isfinite(facts.ratings).any()):
            raise InputError("the hybrid loss regresses on ratings, and there are none; rate the negatives first")
        if least_gap is not None and (facts is None or not np.isfinite(facts.known_gap).any()):
            raise InputError("a curriculum goes by gaps of ratings, and there are none; rate the negatives first")
        self.model, self.similarity = model, similarity_of(model)
        self.objective, self.facts, self.least_gap = objective, facts, least_gap
        self.temperature = temperature if isinstance(temperature, Temperature) else Temperature(temperature)
        self.mixing, self.regression, self.mask = mixing, regression, mask
        self.epoch = 1
        if mixing is not None and regression is None:
            self.gain, self.offset = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def compared(self, vectors: Tensor) -> Tensor:
        """Return the vectors as float32 (or wider), of length 1 where the similarity is the cosine."""
        wide = vectors if vectors.dtype == torch.float64 else vectors.float()
        return nn.functional.normalize(wide, dim=1) if self.similarity == "cosine" else wide

    def own_parameters(self) -> list[Tensor]:
        """Return what is learned beside the model."""
        return [p for name, p in self.named_parameters() if not name.startswith("model.") and p.requires_grad]

    def set_epoch(self, epoch: int) -> None:
        """Tell the loss its epoch, counted from 1: schedules go by it."""
        self.epoch = epoch
        if self.mixing is not None:
            self.mixing.set_epoch(epoch)

    def learn_from(self, data: TrainingSet) -> None:
        """Take another training set, whose row numbers come as labels from now on."""
        self.facts = data.facts
        self.mask = None if self.mask is None else self.mask.on(data)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: of anchors, positives, and any number of columns of negatives.
            labels: (b,) row numbers; None without facts.

        Raises:
            InputError: fewer than two columns, or labels that are no row numbers of the facts.
        """
        columns = embed_columns(self.model, list(sentence_features))
        share = Share.of(len(columns[0]), gather=self.training and torch.is_grad_enabled())
        facts = self.facts_of(columns, labels, share)
        with torch.autocast(columns[0].device.type, enabled=False):
            queries, *columns = map(self.compared, columns)
            documents = share.columns(columns)
            batch = self.batch_of(queries, documents, facts, share)
            losses = self.sums(queries, documents, share.begin, share.begin + share.rows, batch)
            losses = losses * share.count / self.counts(share.size, batch).to(losses)
            norms = None
            if self.mixing is not None and self.mixing.needs_norms and torch.is_grad_enabled():
                norms = torch.stack([share.norm(*each) for each in gradients_of(losses, (queries, documents))])
            return self.total(share.averaged(losses), norms)

    def facts_of(self, columns: list[Tensor], labels: Tensor | None, share: Share) -> BatchFacts | None:
        """Return what is known about the rows of the whole batch."""
        if len(columns) < 2:
            raise InputError(f"the loss needs anchors and positives; the data set has {len(columns)} columns of texts")
        if self.facts is None:
            return None
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            raise InputError("the loss looks up what is known by each row's number; expected them in the column label")
        if len(columns) != 2 + self.facts.negatives:
            raise InputError(
                f"the facts are about {self.facts.negatives} negatives a row, the batch has {len(columns) - 2}"
            )
        least = None if self.least_gap is None else self.least_gap(self.epoch)
        return self.facts.batch(share.gathered(labels).cpu().numpy().astype(np.int64), least_gap=least)

    def batch_of(self, queries: Tensor, documents: Tensor, facts: BatchFacts | None, share: Share) -> Batch:
        """Return what is known about a batch of these vectors, the own queries and all documents, and its mask."""
        if self.mask is None:
            return Batch(facts, None)
        labels = None if facts is None else facts.labels
        return Batch(facts, self.mask.of_batch(share.gathered(queries.detach()), documents, labels, epoch=self.epoch))

    def sums(self, queries: Tensor, documents: Tensor, begin: int, end: int, batch: Batch) -> Tensor:
        """Return the summed losses of queries begin … end − 1, (1,), with the regression (2,).

        Args:
            queries: (end − begin, d) vectors, as `compared` returns them.
            documents: ((1 + k)·b, d) vectors of the whole batch, column after column.
            begin: first row of the batch.
            end: the row after the last.
            batch: what is known, and masked.
        """
        similarities = queries @ documents.T
        positives = torch.arange(begin, end, device=queries.device)
        weights = batch.log_weights(begin, end, queries.device)
        per_query = self.objective(similarities, positives, weights, temperature=self.temperature())
        if self.mixing is None or batch.facts is None:
            return per_query.sum()[None]
        return torch.stack([per_query.sum(), self._regression(similarities, begin, end, batch.facts)])

    def counts(self, size: int, batch: Batch) -> Tensor:
        """Return of how many queries each of the sums is, which makes them means: all, and those with a rating."""
        if self.mixing is None or batch.facts is None:
            return torch.tensor([float(size)])
        return torch.tensor([float(size), max(1.0, float(np.isfinite(batch.facts.ratings).any(1).sum()))])

    def total(self, losses: Tensor, norms: Tensor | None) -> Tensor:
        """Return the loss that is minimised, from the means (1,) or (2,) and the norms of their gradients."""
        return losses[0] if self.mixing is None else self.mixing(losses, norms)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        objective: Any = self.objective
        settings = dict(getattr(objective, "keywords", {}))
        return {
            "objective": getattr(objective, "func", objective).__name__,
            **settings,
            **self.temperature.describe(),
            "similarity": self.similarity,
            "known_positives_left_out": self.facts is not None,
            **({} if self.mask is None else {"mask": self.mask.describe()}),
            **({} if self.mixing is None else self.mixing.describe()),
            **({} if self.regression is None else _described(self.regression)),
        }

    def _regression(self, similarities: Tensor, begin: int, end: int, facts: BatchFacts) -> Tensor:
        size, width = facts.ratings.shape
        rows = torch.arange(begin, end, device=similarities.device)
        own = rows[:, None] + size * torch.arange(width, device=similarities.device)
        ratings = torch.from_numpy(facts.ratings[begin:end]).to(similarities)
        rated = torch.isfinite(ratings).any(1)
        own_similarities = similarities.gather(1, own)[rated]
        if self.regression is not None:
            return self.regression(own_similarities, ratings[rated]).sum()
        return rating_regression(self.gain * own_similarities + self.offset, ratings[rated]).sum()


def _described(regression: Any) -> dict[str, Any]:
    return {"regression": getattr(regression, "func", regression).__name__, **getattr(regression, "keywords", {})}


def gradients_of(losses: Iterable[Tensor], of: Sequence[Tensor]) -> list[tuple[Tensor | None, ...]]:
    """Return each loss' gradients with respect to these tensors; None where it does not depend on one."""
    return [torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True) for loss in losses]
