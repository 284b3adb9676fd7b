"""Rerankers: the data sets that they learn from, and their losses. Needs torch and sentence-transformers.

Losses are over lists of documents with weights: a pair of weight w counts as w pairs. What each
learns from are targets, a number a document: `foils.training.settings.TARGETS` says what these may
be. ANMI's main target: pointwise regression on ratings is zELO's baseline; listwise losses learn
the order; the hybrid does both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from foils.runtime.errors import InputError, check_names, require
from foils.runtime.options import settings_checked, spelled
from foils.statistics.elo_scale import ELO_PER_LOGIT
from foils.training import objectives
from foils.training.data import Floats, LeastGap, TrainingSet, features_of, rated
from foils.training.losses import LOSSES, gradient_norms, parts_of
from foils.training.settings import ELO, LABELS, TARGETS, TEACHER

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

AT_ONCE = 32  # pairs that a processor reads together

Terms = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(n,) logits, targets, weights and rating gaps of a list → (m, 2): each loss's sum, and of how many."""


class RerankerLoss(nn.Module):  # type: ignore[misc]
    """Mean over a batch's lists of what `terms` says of each; with `mixing`, of its two losses, mixed.

    A list is a query and its documents, and its label (3, n): targets, weights, and rating gaps.
    Pairs of a query and a document, with labels (3, 1), are one list together.

    Args:
        model: a CrossEncoder with one output.
        terms: of a list; a module has settings that it learns.
        mixing: how two losses become one; None: there is one.

    Attributes:
        negatives: of each list in a step, `drawn` anew; None: all.
    """

    negatives: int | None = None

    def __init__(self, model: Any, terms: Terms, *, mixing: objectives.Mixing | None = None) -> None:
        super().__init__()
        self.model, self.terms, self.mixing = model, terms, mixing

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Return the loss of a batch of queries and their lists of documents, or one document each."""
        lists = [[listed] if isinstance(listed, str) else listed for listed in inputs[1]]
        if self.negatives is not None:
            lists, labels = drawn(lists, labels, self.negatives)
        pairs = [(query, document) for query, listed in zip(inputs[0], lists, strict=True) for document in listed]
        scores = self._scores(pairs, prompt, task)
        if isinstance(inputs[1][0], str):
            labels, parts = [torch.cat(list(labels), 1)], (scores,)
        else:
            parts = scores.split([len(listed) for listed in lists])
        terms = [self.terms(logits, *label.to(logits)) for logits, label in zip(parts, labels, strict=True)]
        sums, counts = torch.stack(terms).sum(0).unbind(1)
        means = sums / counts.clamp(min=1)
        if self.mixing is None:
            return means[0]
        norms = None
        if self.mixing.needs_norms and torch.is_grad_enabled():
            norms = gradient_norms(means, parts)
        return self.mixing(means, norms)

    def _scores(self, pairs: Sequence[tuple[str, str]], prompt: str | None, task: str | None) -> Tensor:
        """(n,) float32 logits of pairs; on a processor those of one length together, for little padding."""
        device, parts = self.model.device, []
        size = AT_ONCE if device.type == "cpu" else len(pairs)
        longest = sorted(range(len(pairs)), key=lambda pair: -sum(map(len, pairs[pair])))
        for start in range(0, len(pairs), size):
            part = [pairs[pair] for pair in longest[start : start + size]]
            tokens = features_of(self.model, part, prompt=prompt, task=task, pairs=True)
            tokens = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in tokens.items()}
            parts.append(self.model(tokens)["scores"].view(-1))
        return torch.cat(parts)[torch.tensor(longest).argsort().to(device)].float()


def drawn(lists: Sequence[Sequence[str]], labels: Sequence[Tensor], count: int) -> tuple[list[list[str]], list[Tensor]]:
    """Return lists with fewer documents, drawn anew in every step with torch's generator, and their labels.

    So a model sees in time all of the documents that it is to order, at the price of a few.

    Args:
        lists: of documents, the positive first, which stays.
        labels: (3, n) of each list.
        count: negatives of a list that are drawn, at least 1; of a shorter list all.

    Source: Gao et al. 2021 ("Rethink training of BERT rerankers"), who draw from what the first
    stage ranks high.
    """
    places = [[0, *(1 + torch.randperm(len(listed) - 1)[:count]).tolist()] for listed in lists]
    shorter = [[listed[place] for place in kept] for listed, kept in zip(lists, places, strict=True)]
    return shorter, [label[..., kept] for label, kept in zip(labels, places, strict=True)]


def _term(total: Tensor, count: float | Tensor = 1) -> Tensor:
    return torch.stack([total.reshape(()), torch.as_tensor(count).to(total)])[None]


def _pointwise(objective: Callable[..., Tensor]) -> Terms:
    """w·l(s, y): a pair of weight w moves the model w times as far as one of weight 1."""
    return lambda scores, targets, weights, gaps: _term(
        (weights * objective(scores, targets, reduction="none")).sum(), len(scores)
    )


class Contrast(nn.Module):  # type: ignore[misc]
    """Weighted InfoNCE over a list's logits, positive first; with `regresses`, also regression on targets.

    The regression's prediction is the logit itself, so that a reranker trained with it scores in
    units of standardised ratings; targets of NaN are left out. Weights are of the contrast alone,
    as published. With a prior or a concentration the contrast is `debiased_infonce`. Its bound, the
    least that a similarity can be, is the least score of the list, since logits have no least value
    (ours; like the rest of the contrast it does not change where all scores of a list grow alike).

    Args:
        objective: of `foils.training.objectives`.
        temperature: τ of InfoNCE over logits; 1 is the logits' own scale.
        least_gap: curriculum: epoch → gap that a negative must exceed to count in the contrast.
        regresses: whether there are two losses.
    """

    def __init__(
        self,
        objective: objectives.Objective,
        temperature: objectives.Temperature,
        least_gap: LeastGap | None,
        *,
        regresses: bool,
    ) -> None:
        super().__init__()
        self.objective, self.temperature, self.least_gap = objective, temperature, least_gap
        self.regresses, self.epoch = regresses, 1

    def set_epoch(self, epoch: int) -> None:
        """Take note of the epoch, counted from 1."""
        self.epoch = epoch

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor, gaps: Tensor) -> Tensor:
        """Return the sums of a list, as `Terms` says."""
        positive, log_weights = torch.zeros(1, dtype=torch.int64, device=scores.device), weights.log()
        if self.least_gap is not None:
            log_weights = log_weights.masked_fill(gaps <= self.least_gap(self.epoch), -torch.inf)
        least = {} if self.objective is objectives.weighted_infonce else {"least": scores.detach().min()[None]}
        losses = self.objective(scores[None], positive, log_weights[None], temperature=self.temperature(), **least)
        contrasted = _term(losses)
        if not self.regresses:
            return contrasted
        has_target = torch.isfinite(targets).any()
        errors = objectives.rating_regression(scores[None], targets[None]) if has_target else scores.sum() * 0
        return torch.cat([contrasted, _term(errors, has_target)])


@dataclass(frozen=True)
class RerankerKind:
    """A reranker's loss by name, and what it learns from.

    Attributes:
        targets: what it can learn from; the first is the default.
        terms: of a list; None: a `Contrast`, for which documents without a target stay in the list.
        settings: its own settings, as they are by default or chosen.
        pointwise: a row for each pair instead of each list.
        numbers: it learns ratings or a teacher's scores themselves, standardised, and not their order.
        target: the chosen one.
    """

    targets: Sequence[str]
    terms: Terms | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    pointwise: bool = False
    numbers: bool = False
    target: str = ""

    def make(self, model: Any) -> RerankerLoss:
        """Return the loss of a CrossEncoder with one output.

        Raises:
            InputError: a setting out of range.
        """
        if self.terms is not None:
            return RerankerLoss(model, self.terms)
        parts = parts_of(self.settings)
        mixing = parts.pop("mixing")
        return RerankerLoss(model, Contrast(**parts, regresses=mixing is not None), mixing=mixing)


#: The losses of rerankers by name.
RERANKER_LOSSES: dict[str, RerankerKind] = {
    "regression": RerankerKind((ELO, TEACHER, LABELS), _pointwise(functional.mse_loss), pointwise=True, numbers=True),
    "binary": RerankerKind((LABELS,), _pointwise(functional.binary_cross_entropy_with_logits), pointwise=True),
    "listnet": RerankerKind(TARGETS, lambda s, y, w, _: _term(objectives.weighted_listnet(s, y, w.log()))),
}
for _name in ("weighted", "debiased", "hard-weighted", "hybrid"):
    _settings, _numbers = {**LOSSES[_name], "temperature": 1.0}, _name == "hybrid"  # 1 is the scale of logits
    RERANKER_LOSSES[_name] = RerankerKind((ELO, TEACHER) if _numbers else (LABELS,), None, _settings, numbers=_numbers)
"""With all weights 1 and the target labels the first three are sentence-transformers' MSELoss,
BinaryCrossEntropyLoss and ListNetLoss, which know no weights."""


def reranker_loss(name: str, settings: Mapping[str, Any] | None = None, target: str | None = None) -> RerankerKind:
    """Return the loss of this name, and what it learns from.

    Args:
        name: of `RERANKER_LOSSES`.
        settings: of the loss.
        target: one of `foils.training.settings.TARGETS`; None: the loss's own.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: a target that the loss cannot learn from.
    """
    check_names("loss of a reranker", [name], RERANKER_LOSSES)
    loss = RERANKER_LOSSES[name]
    chosen = settings_checked(f"the loss {name}", loss.settings, settings or {})
    target = target or loss.targets[0]
    if target not in loss.targets:
        raise InputError(
            f"{spelled('loss', name)} cannot learn from {spelled('target', target)}; it takes {', '.join(loss.targets)}"
        )
    return replace(loss, settings=chosen, target=target)


def learned_activation(loss: RerankerKind) -> nn.Module | None:
    """Return what makes of logits the numbers that a loss taught: nothing for numbers, σ for labels.

    None where it taught an order alone.
    """
    if loss.numbers:
        return nn.Identity()
    return nn.Sigmoid() if loss.pointwise else None


def targets_of(data: TrainingSet, target: str, *, numbers: bool) -> Floats:
    """Return (N, 1 + k) what is learned of each row's documents; NaN where nothing is known.

    - labels: 1 for the positive and 0 for negatives.
    - elo: ratings; teacher: the numbers of `foils score-pairs`.

    Where the numbers themselves are learned they are standardised. Else ratings are logits, whose
    softmax is the chance to be the best (Plackett–Luce).

    Raises:
        InputError: there are none.
    """
    if target == LABELS:
        return np.repeat(np.eye(1, data.rows.shape[1] - 1), len(data), 0)
    if target == ELO:
        values = rated("the target elo", data.facts.ratings if numbers else data.ratings_within())
        return values if numbers else values * data.elo_sd / ELO_PER_LOGIT
    values = data.teacher_scores()
    return (values - np.nanmean(values)) / (np.nanstd(values) or 1.0) if numbers else values


def reranker_set(data: TrainingSet, loss: RerankerKind) -> Dataset:
    """Return a data set of lists' rows in the form that a reranker's loss takes; absent documents left out.

    Like the given set it holds row numbers, and looks texts up when a batch is read.

    Pointwise: query, document, label, each pair once. Listwise: query, documents, label. Labels are
    (3, n): targets, weights and rating gaps. Documents without a target are left out, but of
    contrasts, and lists that are left with fewer than two.

    Raises:
        InputError: targets or gaps are wanted and there are none.
    """
    datasets = require("datasets", "train")
    target, gaps = targets_of(data, loss.target, numbers=loss.numbers), data.facts.own_gaps()
    if loss.pointwise and loss.target == ELO and not data.table.offsets:
        log.warning(
            "the ratings have the mean 1500 in each query, whatever its candidates are worth, and a "
            "regression learns them so; rate with comparisons between queries (foils rate --between 6), or train with "
            "listnet and the target elo, which compares documents of one query alone"
        )
    if loss.settings.get("curriculum"):
        rated("a curriculum", gaps)
    present = data.rows[:, 1:] >= 0
    if loss.terms is not None:
        lost, query = present & np.isnan(target), np.broadcast_to(data.rows[:, :1], present.shape)
        if lost.any():
            count = len(np.unique(np.stack([query[lost], data.rows[:, 1:][lost]]), axis=1).T)
            apart, why = lost & np.isfinite(data.ratings_within()), ""
            if loss.target == ELO and apart.any():
                why = (
                    f"; {len(np.unique(query[apart]))} queries have no offset: no comparison with other queries was "
                    "answered for these (listnet, which compares documents of one query alone, keeps them)"
                )
            log.warning("%d pairs of a query and a document have no %s and are left out%s", count, loss.target, why)
        present &= np.isfinite(target)
    kept = np.flatnonzero(present.sum(1) > (0 if loss.pointwise else 1))
    if len(kept) < len(present) and not loss.pointwise:
        left_out = len(present) - len(kept)
        log.warning("%d of %d lists have fewer than two rated documents: left out", left_out, len(present))
    facts = np.stack([target, np.exp(data.facts.own_log_weights()), np.insert(gaps, 0, np.nan, 1)], axis=1)
    queries = data.rows[kept, 0].tolist()
    documents = [data.rows[row, 1:][present[row]].tolist() for row in kept]
    labels = [facts[row][:, present[row]].tolist() for row in kept]
    columns = {"query": queries, "documents": documents, "label": labels}
    if loss.pointwise:  # a negative stands once, however many positives its query has
        pairs: dict[tuple[int, int], list[list[float]]] = {}
        for query, listed, label in zip(queries, documents, labels, strict=True):
            for document, *values in zip(listed, *label, strict=True):
                pairs.setdefault((query, document), [[each] for each in values])
        columns = {name: [pair[at] for pair in pairs] for at, name in enumerate(("query", "document"))}
        columns["label"] = [*pairs.values()]
    return datasets.Dataset(pa.table(columns)).with_transform(data.texts)
