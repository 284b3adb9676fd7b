"""Losses of encoders with sentence-transformers' signature, for what its own lack, and all of them by name.

    loss = ContrastiveLoss(model, facts=facts)  # weighted InfoNCE with known positives left out
    loss = ContrastiveLoss(model, facts=facts, mini_batch_size=64)  # the same in small memory

The labels are row numbers, by which the loss looks up weights, known positives and ratings; without facts all
negatives weigh 1, and the default is sentence-transformers' MultipleNegativesRankingLoss.

The cached loss is GradCache around the same pure loss (Gao et al. 2021). (1) Embed the batch in
pieces, without gradients. (2) Compute the loss in blocks of queries, and its gradients up to the
embeddings and the loss's own parameters. (3) In the backward pass, embed each piece again and pass
its gradients on. Steps 1 and 3 are sentence-transformers'; step 2 is here.

Each of W processes has b rows of a batch of B = W·b, in the order of the processes, and computes the
loss of the whole batch from all their vectors. The gradient of a vector is the sum of what all W
say of it; torch averages gradients of the model over processes, which leaves that of one loss. With
one process nothing is exchanged. Needs torch and sentence-transformers: import this module where it
is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather as gather_with_gradients
from torch.utils.checkpoint import checkpoint

from foils.batching.vectors import rank_and_count
from foils.data.collection import Rows
from foils.data.sources import ABSENT
from foils.encode import EmbeddingSettings, Vectors
from foils.encode.models import similarity_of
from foils.encode.vectors import EncoderLike
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import Option, settings_checked, spelled
from foils.selection.rules import least_gap
from foils.training import objectives
from foils.training.data import LeastGap, PairFacts, TrainingSet, rated

log = logging.getLogger(__name__)

Regression = Callable[[Tensor, Tensor], Tensor]
"""((b, 1 + k) similarities, numbers of a row's own documents, NaN where there is none) → one loss a query."""


def gathered(rows: Tensor) -> Tensor:
    """Return all processes' rows of a batch, (B, …) of (b, …); own ones get their gradients from all processes."""
    return rows if rank_and_count()[1] == 1 else torch.cat(gather_with_gradients(rows))


def average_gradients(parameters: Sequence[Tensor]) -> None:
    """Replace the gradients of parameters that torch does not share by their mean over processes."""
    _, count = rank_and_count()
    for parameter in parameters if count > 1 else ():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= count


@dataclass(frozen=True)
class GuideVectors:
    """A guide's vectors of the N rows of a data set.

    Attributes:
        queries: (N,) of each row's query; of unit length where the guide compares by the cosine.
        documents: ((1 + k)·N,) of the rows' documents, column after column; in the place of an
            absent one stands the row's positive.
    """

    queries: Vectors
    documents: Vectors

    def of_rows(self, rows: Rows) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (b, d) vectors of rows' queries and ((1 + k)·b, d) of documents, column after column."""
        columns = np.arange(0, len(self.documents), len(self.queries))
        return self.queries.take(rows), self.documents.take((columns[:, None] + rows).ravel())

    def of_pairs(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (N, d) vectors of all rows' queries, and (N, d) of their positives."""
        rows = slice(len(self.queries))
        return self.queries.take(rows), self.documents.take(rows)


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
    documents = np.where(data.rows[:, 1:] == ABSENT, data.rows[:, 1:2], data.rows[:, 1:]).T.ravel()
    asked, listed = data.texts.texts("anchor", data.rows[:, 0]), data.texts.documents_of(documents)
    queries = store.embed(encoder, asked, "query", task="embedding queries (guide)")
    answers = store.embed(encoder, listed, "document", task="embedding documents (guide)")
    return GuideVectors(queries, answers)


class ContrastiveLoss(CachedLossMixin, nn.Module):  # type: ignore[misc]
    """Mean of an objective over a batch's queries, against all its documents; with `mixing`, the hybrid.

    Similarity is the model's own, cosine or inner product, computed in float32 whatever the model's
    precision. The hybrid adds the regression of the own documents' ratings on gain·similarity +
    offset, the two learned with the model: the head g_ψ of eq. 40.

    Args:
        model: a SentenceTransformer.
        objective: of `foils.training.objectives`; with settings, as a `functools.partial`.
        temperature: τ, or one that is learned.
        facts: of the data set whose row numbers come as labels; None: nothing is known, labels are
            not looked at.
        mixing: how the regression joins; None: no regression.
        regression: in the place of the hybrid's, of the own documents' similarities and what the
            facts have as their ratings; None: the hybrid's.
        least_gap: curriculum: epoch → gap that a negative must exceed to count; needs facts.
        guide: leaves out candidates whose similarity to a query exceeds its positive's by more than
            `margin`, as probable positives; needs facts. None: nothing is left out.
        margin: of the guide.
        mini_batch_size: texts embedded at once, and queries in a block of the loss: memory for
            their activations alone, whatever the batch size, and the same value and gradients
            beyond rounding, at about a fifth more time. It needs a transformer: a static embedding
            cannot be cut into pieces, and need not be. None: all at once.

    Raises:
        InputError: a temperature not above 0, a mini-batch size below 1 or of a static embedding,
            or a mixing, a curriculum or a guide without what it needs.
    """

    def __init__(
        self,
        model: Any,
        *,
        objective: objectives.Objective = objectives.weighted_infonce,
        temperature: float | objectives.Temperature = 0.05,
        facts: PairFacts | None = None,
        mixing: objectives.Mixing | None = None,
        regression: Regression | None = None,
        least_gap: LeastGap | None = None,
        guide: GuideVectors | None = None,
        margin: float = 0.0,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if mixing is not None:
            rated("the hybrid loss", np.zeros(0) if facts is None else facts.ratings)
        if least_gap is not None:
            rated("a curriculum", np.zeros(0) if facts is None else facts.known_gap)
        if guide is not None and facts is None:
            raise InputError("a guide's vectors are looked up by row number, which needs the facts")
        Option(least=1).check("mini_batch_size", mini_batch_size)
        self.mini_batch_size, self.uses_gradient_cache = mini_batch_size, mini_batch_size is not None
        if self.uses_gradient_cache and has_static_embedding_input(model):
            raise InputError("a static embedding cannot be embedded in pieces; leave the mini-batch size out")
        self.model, self.similarity = model, similarity_of(model)
        self.objective, self.facts, self.least_gap = objective, facts, least_gap
        self.temperature = (
            temperature if isinstance(temperature, objectives.Temperature) else objectives.Temperature(temperature)
        )
        self.mixing, self.regression, self.guide, self.margin = mixing, regression, guide, margin
        self.epoch = 1
        if mixing is not None and regression is None:
            self.gain, self.offset = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self._own_gradients: Sequence[Tensor] = ()

    def compared(self, vectors: Tensor) -> Tensor:
        """Return the vectors as float32 (or wider), of length 1 where the similarity is the cosine."""
        wide = vectors if vectors.dtype == torch.float64 else vectors.float()
        return nn.functional.normalize(wide, dim=1) if self.similarity == "cosine" else wide

    def own_parameters(self) -> list[Tensor]:
        """Return what is learned beside the model."""
        return [p for name, p in self.named_parameters() if not name.startswith("model.") and p.requires_grad]

    def set_epoch(self, epoch: int) -> None:
        """Tell the loss its epoch, counted from 1: a curriculum goes by it; `mixing` is told by itself."""
        self.epoch = epoch

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; where it is cached, gradients follow in the backward pass.

        Args:
            sentence_features: of anchors, positives, and any number of columns of negatives.
            labels: (b,) row numbers; None without facts.

        Raises:
            InputError: fewer than two columns, or labels that are no row numbers of the facts.
        """
        features = list(sentence_features)
        if not self.uses_gradient_cache:
            gather = self.training and torch.is_grad_enabled()
            return self.of_columns(embed_columns(self.model, features), labels, gather=gather)
        loss = self.forward_cached(features, labels)
        if torch.is_grad_enabled():
            for parameter, gradient in zip(self.own_parameters(), self._own_gradients, strict=True):
                passed_on = (parameter * gradient).sum()  # whose gradient it is; its value is taken off again
                loss = loss + (passed_on - passed_on.detach())
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of embeddings in pieces; `with_backward` leaves each piece's gradient in `grad`.

        That is step 2. The gradients of what is learned beside the model wait for the backward pass.
        """
        vectors = [torch.cat(column) for column in reps]
        loss = self.of_columns(vectors, labels, gather=with_backward)
        if not with_backward:
            return loss
        gradients = torch.autograd.grad(loss, (*vectors, *self.own_parameters()))
        torch.autograd.backward(vectors, gradients[: len(vectors)])
        self._own_gradients = gradients[len(vectors) :]
        return loss.detach()

    def of_columns(self, columns: Sequence[Tensor], labels: Tensor | None, *, gather: bool) -> Tensor:
        """Return the loss of a batch of these vectors, of all processes where `gather`.

        It is summed over blocks of queries, whose similarities are computed again in the backward
        pass where a mini-batch size bounds the memory.
        """
        if len(columns) < 2:
            raise InputError(f"the loss needs anchors and positives; the data set has {len(columns)} columns")
        with torch.autocast(columns[0].device.type, enabled=False):
            vectors = list(map(self.compared, columns))
            if gather:
                vectors, labels = list(map(gathered, vectors)), None if labels is None else gathered(labels)
            queries, documents = vectors[0], torch.cat(vectors[1:])
            rows = None if self.facts is None else self.rows_of(labels, len(columns) - 2)
            of_guide = None
            if self.guide is not None and rows is not None:
                of_guide = [torch.from_numpy(each).to(queries.device) for each in self.guide.of_rows(rows)]
            size = self.mini_batch_size or len(queries)
            sums: Callable[..., Tensor] = self.sums
            if size < len(queries):
                sums = partial(checkpoint, self.sums, use_reentrant=False, preserve_rng_state=False)
            starts = range(0, len(queries), size)
            blocks = [sums(queries[start : start + size], documents, start, rows, of_guide) for start in starts]
            counts = [len(queries)]
            if self.mixing is not None and self.facts is not None:
                counts.append(max(1, np.isfinite(self.facts.ratings[rows]).any(1).sum()))
            sums_of_all = torch.stack(blocks).sum(0)
            losses = sums_of_all / torch.tensor(counts).to(sums_of_all)
            if self.mixing is None:
                return losses[0]
            norms = None
            if self.mixing.needs_norms and torch.is_grad_enabled():
                norms = gradient_norms(losses, (queries, documents))
            return self.mixing(losses, norms)

    def rows_of(self, labels: Tensor | None, negatives: int) -> Rows:
        """Return (B,) the row numbers of a batch with this many negatives a row, for the facts."""
        facts: Any = self.facts
        rows: Rows = np.zeros(0, np.int64) if labels is None else labels.cpu().numpy()
        expected = facts.documents.shape[1] - 1
        whole = rows.dtype.kind == "i" and rows.ndim == 1 and len(rows) > 0
        if not whole or negatives != expected or rows.min() < 0 or rows.max() >= len(facts):
            raise InputError(
                f"the loss looks facts up by the numbers of the rows, 0 to {len(facts) - 1} in column label, of "
                f"{expected} negatives a row; the batch has labels {labels}, {negatives} negatives a row"
            )
        return rows

    def sums(
        self,
        queries: Tensor,
        documents: Tensor,
        begin: int,
        rows: Rows | None,
        of_guide: Sequence[Tensor] | None,
    ) -> Tensor:
        """Return the summed losses of consecutive queries, (1,), with the regression (2,).

        Args:
            queries: (n, d) vectors, as `compared` returns them.
            documents: ((1 + k)·B, d) vectors of the whole batch, column after column.
            begin: row of the first query in the whole batch.
            rows: (B,) numbers of all its rows in the data set; None: nothing is known about them.
            of_guide: (B, d) queries and ((1 + k)·B, d) documents of the guide; None: there is none.
        """
        end = begin + len(queries)
        similarities = queries @ documents.T
        positives = torch.arange(begin, end, device=queries.device)
        weights = None
        if self.facts is not None and rows is not None:
            least = None if self.least_gap is None else self.least_gap(self.epoch)
            known = self.facts.log_weights(rows, begin, end, least_gap=least)
            weights = None if known is None else torch.from_numpy(known).to(queries.device)
        if of_guide is not None:
            nearness = of_guide[0][begin:end] @ of_guide[1].T
            masked = objectives.mask_log_weights(nearness, positives, margin=self.margin)
            weights = masked if weights is None else masked + weights
        per_query = self.objective(similarities, positives, weights, temperature=self.temperature())
        if self.mixing is None or self.facts is None or rows is None:
            return per_query.sum()[None]
        ratings = torch.from_numpy(self.facts.ratings[rows[begin:end]]).to(similarities)
        columns = positives[:, None] + len(rows) * torch.arange(ratings.shape[1], device=queries.device)
        has_rating = torch.isfinite(ratings).any(1)
        predicted, ratings = similarities.gather(1, columns)[has_rating], ratings[has_rating]
        if self.regression is not None:
            return torch.stack([per_query.sum(), self.regression(predicted, ratings).sum()])
        errors = objectives.rating_regression(self.gain * predicted + self.offset, ratings)
        return torch.stack([per_query.sum(), errors.sum()])


def gradient_norms(losses: Iterable[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """Return the length of each loss' gradient with respect to these tensors, taken as one vector."""
    norms = []
    for loss in losses:
        gradients = torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True)
        squares = (gradient.square().sum() for gradient in gradients if gradient is not None)
        norms.append(sum(squares, torch.zeros_like(loss)).sqrt())
    return torch.stack(norms)


_WEIGHTED = {"temperature": 0.05, "learn_temperature": False, "curriculum": False}
_DEBIASED = {**_WEIGHTED, "prior": 0.1, "concentration": 0.0}
_OF_TEACHERS = {"temperature": 0.05, "teacher_temperature": 1.0, "alpha": 0.0}
TEACHER_LOSSES = {"margin-mse": objectives.margin_mse, "distil": objectives.list_distillation}

LOSSES: dict[str, dict[str, Any]] = {
    "mnrl": {"temperature": 0.05},
    "weighted": _WEIGHTED,
    "debiased": _DEBIASED,
    "hard-weighted": {**_DEBIASED, "concentration": 1.0},
    "hybrid": {**_DEBIASED, "prior": 0.0, "mixing": "fixed", "alpha": 0.5},
    **dict.fromkeys(TEACHER_LOSSES, _OF_TEACHERS),
}
"""Loss → its settings and their defaults; all leave known positives out.

- mnrl: the multiple-negatives ranking loss (ECI_sem eq. 13). Where no known positive of a query is
  among the other documents of the batch and all weights are 1, value and gradients are those of
  sentence-transformers' (Cached)MultipleNegativesRankingLoss, which knows neither.
- weighted: weighted InfoNCE (ANMI 2.0 eq. 38). With a curriculum, here and in those below, harder
  negatives are let in by epoch, by their rating gaps (Table 3).
- debiased: the debiased loss (Chuang et al. 2020), with concentration > 0 hard-negative-weighted.
- hard-weighted: the hard-negative-weighted debiased loss (Robinson et al. 2021).
- hybrid: α·(debiased, weighted) InfoNCE + (1 − α)·regression on ratings (ANMI 2.0 eq. 37).
- margin-mse: α·weighted InfoNCE + (1 − α)·the error of margins to a teacher's (Hofstätter et al.
  2020), the table's column teacher; `temperature` divides similarities in both,
  `teacher_temperature` the scores. Rows without scores of positive and negatives have the contrast
  alone.
- distil: likewise, with the Kullback–Leibler divergence of the two softmaxes over the list (Hinton
  et al. 2015)."""


def parts_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return objective, temperature, curriculum and mixing of a loss with these settings, in which some may lack.

    Raises:
        InputError: a setting out of range.
    """
    return {
        "objective": objectives.contrast(settings.get("prior", 0.0), settings.get("concentration", 0.0)),
        "temperature": objectives.Temperature(
            settings["temperature"], learned=settings.get("learn_temperature", False)
        ),
        "least_gap": least_gap if settings.get("curriculum") else None,
        "mixing": objectives.make_mixing(settings["mixing"], settings["alpha"]) if "mixing" in settings else None,
    }


def make_loss(
    name: str,
    model: Any,
    data: TrainingSet,
    *,
    mini_batch_size: int | None = None,
    masked: bool = False,
    settings: Mapping[str, Any],
) -> ContrastiveLoss:
    """Return a loss by name, cached where `mini_batch_size` is given; `masked`: it is to get a mask.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: a setting out of range or of another type, one that needs ratings or a teacher's
            scores where there are none, or weights or a mask that the loss would ignore.
    """
    check_names("loss", [name], LOSSES)
    chosen = settings_checked(f"the loss {name}", LOSSES[name], settings)
    parts = {**parts_of(chosen), "facts": data.facts}
    if name in TEACHER_LOSSES:
        alpha, softened = chosen["alpha"], chosen["teacher_temperature"]
        Option(above=0).check("teacher_temperature", softened)
        if alpha == 0 and (data.weighed or masked):
            idle = spelled("mask") if masked else "weights other than 1"
            raise InputError(
                f"{idle}: no effect on {name} with alpha=0 (with no contrast); set alpha, or leave them out"
            )
        scores = data.teacher_scores()
        unknown = int(np.isnan(scores[:, 0]).sum())
        if unknown:
            log.warning("%d of %d rows have no teacher's scores to learn from", unknown, len(data))
        parts |= {"facts": replace(data.facts, ratings=scores), "mixing": objectives.make_mixing("fixed", alpha)}
        temperatures = {"temperature": chosen["temperature"], "teacher_temperature": softened}
        parts["regression"] = partial(TEACHER_LOSSES[name], **temperatures)
    return ContrastiveLoss(model, mini_batch_size=mini_batch_size, **parts)


def matryoshka_loss(model: Any, loss: ContrastiveLoss, dimensions: Sequence[int]) -> Any:
    """Return the sum of a loss of whole vectors and of those cut to first dimensions, each of length 1.

    It is sentence-transformers' MatryoshkaLoss, all weights 1; the whole vector is always among the
    dimensions.

    Args:
        model: a SentenceTransformer that compares vectors by their cosine.
        loss: of it, cached or not.
        dimensions: at which vectors are cut, each below the model's own, or it.

    Raises:
        InputError: a dimension beyond the model's, a model that compares by inner products, or a
            cached loss that learns something beside the model.

    Source: Kusupati et al. 2022, "Matryoshka representation learning", eq. 1.
    """
    whole, given = model.get_embedding_dimension(), spelled("matryoshka", ",".join(map(str, dimensions)))
    if max(dimensions) > whole or similarity_of(model) != "cosine":
        raise InputError(f"{given}: needs a model that compares by the cosine, of as many dimensions, not {whole}")
    if loss.uses_gradient_cache and loss.own_parameters():
        cached = spelled("mini_batch_size")
        raise InputError(f"{given} with {cached}, and a loss that learns beside the model: leave one out")
    return MatryoshkaLoss(model, loss, sorted({*dimensions, whole}, reverse=True))
