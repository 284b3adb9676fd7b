"""Training a reranker (cross-encoder) on sentence-transformers' trainer. Needs torch and sentence-transformers.

ANMI's main target: pointwise regression on ratings is zELO's baseline; listwise losses learn the order; the hybrid does
both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.cross_encoder import losses as theirs
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
from torch import Tensor, nn
from transformers import TrainerCallback

from foils.encode.cross_encoders import check_one_output
from foils.errors import InputError, UnknownNameError, require
from foils.train.catalogue import make_mixing
from foils.train.data import TrainingSet
from foils.train.mixing import Mixing, describe_mixing
from foils.train.objectives import rating_regression, weighted_infonce
from foils.train.settings import TrainSettings
from foils.train.trainer import Trained, arguments, fit

if TYPE_CHECKING:
    from datasets import Dataset


class RerankerHybridLoss(nn.Module):  # type: ignore[misc]
    """α·weighted InfoNCE over each list's scores + (1 − α)·regression of the scores on ratings (ANMI 2.0 eq. 37).

    The score of a pair is the model's logit; the regression's prediction is the logit itself, so that a reranker
    trained with it scores in units of standardised ratings. A list is a query, its positive first, its negatives; its
    label is (2, 1 + k): ratings (NaN: none) and weights.

    Args:
        model: a CrossEncoder with one output.
        mixing: how the two join.
        temperature: τ of InfoNCE over logits, above 0; 1 is the logits' own scale.
        mini_batch_size: pairs scored at once; None: all.
    """

    def __init__(
        self, model: Any, *, mixing: Mixing, temperature: float = 1.0, mini_batch_size: int | None = None
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"temperature {temperature}; expected above 0")
        self.model, self.mixing = model, mixing
        self.temperature, self.mini_batch_size = temperature, mini_batch_size

    def set_epoch(self, epoch: int) -> None:
        """Tell the loss its epoch, counted from 1."""
        self.mixing.set_epoch(epoch)

    def forward(
        self,
        inputs: Sequence[Any],
        labels: Sequence[Tensor],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Return the loss of a batch of queries and their lists of documents."""
        queries, lists = inputs
        scores = self._scores([(q, d) for q, of in zip(queries, lists, strict=True) for d in of], prompt, task)
        contrast, regression, rated = [], [], 0
        start = 0
        for label in labels:
            ratings, weights = label.to(scores)
            own = scores[None, start : start + len(ratings)]
            start += len(ratings)
            positive = torch.zeros(1, dtype=torch.int64, device=scores.device)
            contrast.append(weighted_infonce(own, positive, weights.log()[None], temperature=self.temperature))
            if torch.isfinite(ratings).any():
                regression.append(rating_regression(own, ratings[None]))
                rated += 1
        zero = scores.sum() * 0
        means = [torch.cat(contrast).mean(), torch.cat(regression).mean() if rated else zero]
        norms = None
        if self.mixing.needs_norms and torch.is_grad_enabled():
            norms = torch.stack([torch.autograd.grad(m, scores, retain_graph=True)[0].norm() for m in means])
        return self.mixing(torch.stack(means), norms)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"temperature": self.temperature, **describe_mixing(self.mixing)}

    def _scores(self, pairs: list[tuple[str, str]], prompt: str | None, task: str | None) -> Tensor:
        size, found = self.mini_batch_size or len(pairs), []
        for start in range(0, len(pairs), size):
            tokens = self.model.preprocess(pairs[start : start + size], prompt=prompt, task=task)
            device = self.model.device
            tokens = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in tokens.items()}
            found.append(self.model(tokens)["scores"].view(-1))
        return torch.cat(found).float()


@dataclass(frozen=True)
class RerankerLoss:
    """A reranker's loss and the shape of data that it takes.

    Attributes:
        make: (model, mini_batch_size, **settings) → loss.
        pointwise: a row for each pair instead of each list.
        ratings: it learns from ratings; else from labels, 1 for the positive and 0 for negatives.
    """

    make: Callable[..., Any]
    pointwise: bool
    ratings: bool

    @property
    def settings(self) -> list[str]:
        """Names of the loss' own settings."""
        return [name for name in inspect.signature(self.make).parameters if name not in ("model", "mini_batch_size")]


def _regression(model: Any, mini_batch_size: int | None) -> Any:
    return theirs.MSELoss(model)


def _binary(model: Any, mini_batch_size: int | None) -> Any:
    return theirs.BinaryCrossEntropyLoss(model)


def _listnet(model: Any, mini_batch_size: int | None) -> Any:
    return theirs.ListNetLoss(model, mini_batch_size=mini_batch_size)


def _lambda(model: Any, mini_batch_size: int | None) -> Any:
    return theirs.LambdaLoss(model, mini_batch_size=mini_batch_size)


def _hybrid(
    model: Any, mini_batch_size: int | None, *, mixing: str = "fixed", alpha: float = 0.5, temperature: float = 1.0
) -> Any:
    way = make_mixing(mixing, alpha)
    return RerankerHybridLoss(model, mixing=way, temperature=temperature, mini_batch_size=mini_batch_size)


RERANKER_LOSSES: dict[str, RerankerLoss] = {
    "regression": RerankerLoss(_regression, pointwise=True, ratings=True),
    "binary": RerankerLoss(_binary, pointwise=True, ratings=False),
    "listnet": RerankerLoss(_listnet, pointwise=False, ratings=False),
    "lambda": RerankerLoss(_lambda, pointwise=False, ratings=False),
    "hybrid": RerankerLoss(_hybrid, pointwise=False, ratings=True),
}


def reranker_loss(name: str, settings: Mapping[str, Any]) -> RerankerLoss:
    """Return the loss of this name, having checked its settings.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
    """
    if name not in RERANKER_LOSSES:
        raise UnknownNameError("loss of a reranker", name, RERANKER_LOSSES)
    for setting in settings:
        if setting not in RERANKER_LOSSES[name].settings:
            raise UnknownNameError(f"setting of the loss {name}", setting, RERANKER_LOSSES[name].settings)
    return RERANKER_LOSSES[name]


def reranker_set(data: TrainingSet, loss: RerankerLoss, *, weighted: bool = False) -> Dataset:
    """Return the rows of a data set of lists in the form that a reranker's loss takes; absent documents left out.

    Pointwise: query, document, label. Listwise: query, documents, label, a number a document. For the hybrid
    (`weighted`): label (2, 1 + k), ratings and weights.

    Raises:
        InputError: ratings are wanted and there are none.
    """
    datasets = require("datasets", "train")
    ratings = data.facts.ratings
    if loss.ratings and not np.isfinite(ratings).any():
        raise InputError("this loss learns from ratings, and there are none; rate the negatives first, or use listnet")
    weights = np.exp(data.facts.own_log_weights())
    texts = data.dataset[:]
    columns = [texts[name] for name in texts if name not in ("anchor", "label")]
    queries, lists, labels = texts["anchor"], [], []
    for i in range(len(data)):
        there = np.flatnonzero(data.rows[i, 1:] >= 0)
        lists.append([columns[j][i] for j in there])
        if weighted:
            labels.append([ratings[i, there].tolist(), weights[i, there].tolist()])
        else:
            labels.append((ratings[i, there] if loss.ratings else (there == 0).astype(float)).tolist())
    if not loss.pointwise:
        return datasets.Dataset.from_dict({"query": queries, "documents": lists, "label": labels})
    flat = [
        (query, document, label)
        for query, of, values in zip(queries, lists, labels, strict=True)
        for document, label in zip(of, values, strict=True)
        if np.isfinite(label)
    ]
    names = ("query", "document", "label")
    return datasets.Dataset.from_dict({name: [row[i] for row in flat] for i, name in enumerate(names)})


def train_reranker(
    model: Any,
    data: TrainingSet,
    output: str | Path,
    *,
    settings: TrainSettings,
    score: Callable[[Any], float] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    resume: bool = False,
) -> Trained:
    """Train a cross-encoder; checkpoints go to `output`. As `train_bi_encoder`, with the losses of `RERANKER_LOSSES`.

    Args:
        model: a CrossEncoder with one output; changed.
        data: of `training_set(form="lists")`.
        output: folder for checkpoints.
        settings: how; a batch has `batch_size` pairs (pointwise) or lists.
        score: model → score on dev, higher is better.
        callbacks: of transformers.
        resume: go on where an earlier call with the same arguments stopped.

    Raises:
        InputError: a model with several outputs, no ratings where the loss needs them, checkpoints in the way.
        UnknownNameError: no such loss, or setting of it.
        FailureError: the loss is no finite number.
    """
    check_one_output(model, "the reranker")
    kind = reranker_loss(settings.loss, settings.loss_settings)
    if settings.max_length is not None:
        model.max_seq_length = settings.max_length
    loss = kind.make(model, settings.mini_batch_size, **settings.loss_settings)
    dataset = reranker_set(data, kind, weighted=isinstance(loss, RerankerHybridLoss))
    args = arguments(
        CrossEncoderTrainingArguments,
        model,
        Path(output),
        settings=settings,
        evaluated=score is not None,
    )
    return fit(
        CrossEncoderTrainer,
        model,
        args,
        dataset=dataset,
        loss=loss,
        settings=settings,
        score=score,
        callbacks=callbacks,
        resume=resume,
    )
