"""The rerankers' losses with weights: a pair of weight w counts as w pairs. Needs torch and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from foils.training.known_pairs import LeastGap
from foils.training.loss_weighting import (
    LearnableTemperature,
    Mixing,
    checked_temperature,
    describe_mixing,
    described_temperature,
    tau_of,
)
from foils.training.losses import gradients_of
from foils.training.objectives import (
    check_debiasing,
    debiased_infonce,
    rating_regression,
    weighted_infonce,
    weighted_lambda,
    weighted_listnet,
)


class PairLoss(nn.Module):  # type: ignore[misc]
    """A loss over a cross-encoder's logits of (query, document) pairs.

    Args:
        model: a CrossEncoder with one output.
        mini_batch_size: pairs whose activations are in memory at once; None: all.
    """

    def __init__(self, model: Any, *, mini_batch_size: int | None = None) -> None:
        super().__init__()
        self.model, self.mini_batch_size = model, mini_batch_size

    def scores(self, pairs: Sequence[tuple[str, str]], prompt: str | None, task: str | None) -> Tensor:
        """Return (n,) float32 logits of the pairs."""
        size, parts = self.mini_batch_size or len(pairs), []
        for start in range(0, len(pairs), size):
            tokens = self.model.preprocess(pairs[start : start + size], prompt=prompt, task=task)
            device = self.model.device
            tokens = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in tokens.items()}
            if self.mini_batch_size is None or not torch.is_grad_enabled():
                parts.append(self.model(tokens)["scores"].view(-1))
            else:  # activations of one mini-batch at a time: they are computed again in the backward pass
                parts.append(checkpoint(self._score, tokens, use_reentrant=False))
        return torch.cat(parts).float()

    def _score(self, tokens: dict[str, Any]) -> Any:
        return self.model(dict(tokens))["scores"].view(-1)

    def lists(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None, task: str | None
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield (n,) logits, and each row of the label, (n,), of each query's list of documents."""
        pairs = [(query, document) for query, of in zip(*inputs, strict=True) for document in of]
        parts = self.scores(pairs, prompt, task).split([label.shape[1] for label in labels])
        for own, label in zip(parts, labels, strict=True):
            yield own, *label.to(own)


class PointwiseLoss(PairLoss):
    """Mean over a batch's pairs of w·l(s, y): a pair of weight w moves the model w times as far as one of weight 1.

    With all weights 1 it is sentence-transformers' MSELoss or BinaryCrossEntropyLoss. A pair's label is (2,): y and w.

    Args:
        model: a CrossEncoder with one output.
        objective: (scores, targets) → (n,) losses.
        mini_batch_size: pairs whose activations are in memory at once; None: all.
    """

    def __init__(
        self, model: Any, *, objective: Callable[[Tensor, Tensor], Tensor], mini_batch_size: int | None = None
    ) -> None:
        super().__init__(model, mini_batch_size=mini_batch_size)
        self.objective = objective

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Return the loss of a batch of queries and documents."""
        scores = self.scores(list(zip(*inputs, strict=True)), prompt, task)
        targets, weights = torch.stack(list(labels)).to(scores).unbind(1)
        return (weights * self.objective(scores, targets)).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"weighted": True}


class ListNetLoss(PairLoss):
    """Mean over a batch's lists of `weighted_listnet`; with all weights 1, sentence-transformers' ListNetLoss.

    A list is a query and its documents; its label is (2, n): how relevant each is, and its weight.
    """

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Return the loss of a batch of queries and their lists of documents."""
        lists = self.lists(inputs, labels, prompt, task)
        return torch.stack([weighted_listnet(scores, relevance, w.log()) for scores, relevance, w in lists]).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"weighted": True, "mini_batch_size": self.mini_batch_size}


class WeightedLambdaLoss(PairLoss):
    """Mean over all pairs of a batch's lists of `weighted_lambda`; without weights sentence-transformers' LambdaLoss.

    A list is a query and its documents; its label is (2, n): how relevant each is, and its weight.
    """

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Return the loss of a batch of queries and their lists of documents."""
        lists = self.lists(inputs, labels, prompt, task)
        sums = [weighted_lambda(scores, relevance, w.log()) for scores, relevance, w in lists]
        losses, counts = (torch.stack(parts) for parts in zip(*sums, strict=True))
        return losses.sum() / counts.sum().clamp(min=1)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"weighted": True, "mini_batch_size": self.mini_batch_size}


class ListContrastiveLoss(PairLoss):
    """Weighted InfoNCE over each list's scores; with `mixing`, α·that + (1 − α)·regression on ratings (eq. 37).

    The score of a pair is the model's logit; the regression's prediction is the logit itself, so that a reranker
    trained with it scores in units of standardised ratings. A list is a query, its positive first, its negatives; its
    label is (3, 1 + k): ratings (NaN: none; not looked at without mixing), weights, and rating gaps (NaN: none). The
    weights are of the contrast alone, as published.

    With a prior or a concentration the contrast is `debiased_infonce`. Its bound, the least a similarity can be, is
    the least score of the list, since logits have no least value (ours; like the rest of the contrast it does not
    change where all scores of a list grow alike).

    Args:
        model: a CrossEncoder with one output.
        mixing: how the two join; None: no regression.
        temperature: τ of InfoNCE over logits, above 0, or one that is learned; 1 is the logits' own scale.
        prior: π in [0, 1), the chance that a negative of a list is a positive.
        concentration: β, at least 0; more attends to harder negatives.
        mini_batch_size: pairs whose activations are in memory at once; None: all.
        least_gap: curriculum: epoch → gap that a negative must exceed to take part in the contrast; None: all do.

    Raises:
        InputError: a setting out of range.
    """

    def __init__(
        self,
        model: Any,
        *,
        mixing: Mixing | None = None,
        temperature: float | LearnableTemperature = 1.0,
        prior: float = 0.0,
        concentration: float = 0.0,
        mini_batch_size: int | None = None,
        least_gap: LeastGap | None = None,
    ) -> None:
        super().__init__(model, mini_batch_size=mini_batch_size)
        check_debiasing(prior, concentration)
        self.temperature = checked_temperature(temperature)
        self.prior, self.concentration = prior, concentration
        self.mixing, self.least_gap, self.epoch = mixing, least_gap, 1

    def set_epoch(self, epoch: int) -> None:
        """Tell the loss its epoch, counted from 1."""
        self.epoch = epoch
        if self.mixing is not None:
            self.mixing.set_epoch(epoch)

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor], prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """Return the loss of a batch of queries and their lists of documents."""
        contrast, regression, parts = [], [], []
        for scores, ratings, weights, gaps in self.lists(inputs, labels, prompt, task):
            contrast.append(self._contrast(scores, weights, gaps))
            if self.mixing is not None and torch.isfinite(ratings).any():
                regression.append(rating_regression(scores[None], ratings[None]))
            parts.append(scores)
        contrasted = torch.cat(contrast).mean()
        if self.mixing is None:
            return contrasted
        means = [contrasted, torch.cat(regression).mean() if regression else torch.cat(parts).sum() * 0]
        norms = None
        if self.mixing.needs_norms and torch.is_grad_enabled():
            squares = [sum(g.square().sum() for g in each if g is not None) for each in gradients_of(means, parts)]
            norms = torch.stack([torch.as_tensor(square).to(contrasted) for square in squares]).sqrt()
        return self.mixing(torch.stack(means), norms)

    def _contrast(self, scores: Tensor, weights: Tensor, gaps: Tensor) -> Tensor:
        """(1,) of one list."""
        positive, log_weights = torch.zeros(1, dtype=torch.int64, device=scores.device), weights.log()
        if self.least_gap is not None:
            log_weights = log_weights.masked_fill(gaps <= self.least_gap(self.epoch), -torch.inf)
        shared: Any = scores[None], positive, log_weights[None]
        if not (self.prior or self.concentration):
            return weighted_infonce(*shared, temperature=tau_of(self.temperature))
        return debiased_infonce(
            *shared,
            temperature=tau_of(self.temperature),
            prior=self.prior,
            concentration=self.concentration,
            least=scores.detach().min()[None],
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {
            **described_temperature(self.temperature),
            **({"prior": self.prior, "concentration": self.concentration} if self.prior or self.concentration else {}),
            **({} if self.mixing is None else describe_mixing(self.mixing)),
        }
