"""Training a reranker (cross-encoder) on sentence-transformers' trainer. Needs torch and sentence-transformers.

ANMI's main target: pointwise regression on ratings is zELO's baseline; listwise losses learn the order; the hybrid does
both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
from torch import Tensor
from torch.nn import functional
from transformers import TrainerCallback

from foils.data.collection import Rows
from foils.encode.cross_encoders import check_one_output
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.options import refuse, spelled
from foils.selection.curriculum import least_gap
from foils.selection.rules import BOUNDS, tier_of
from foils.statistics.elo_scale import ELO_PER_LOGIT
from foils.training.data import TrainingSet
from foils.training.fit import TrainingRun, fit
from foils.training.known_pairs import Floats
from foils.training.loss_registry import refuse_positives, st_reranker_loss
from foils.training.loss_weighting import make_mixing, make_temperature
from foils.training.models import with_defaults
from foils.training.reranker_losses import ListContrastiveLoss, ListNetLoss, PointwiseLoss, WeightedLambdaLoss
from foils.training.settings import NO_MASK, ST, TrainSettings

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

GRADES, LABELS, ZONES, RATINGS = "grades", "labels", "zones", "ratings"
CURRICULUM, OFFSET = "curriculum", "offset"
LEARNED = 0.98
"""Share of its first value to which the loss of a reranker that learned something falls: a guess stays above."""


@dataclass(frozen=True)
class RerankerLoss:
    """A reranker's loss and the shape of data that it takes.

    Attributes:
        make: (model, *, mini_batch_size, **settings) → loss.
        pointwise: a row for each pair instead of each list.
        ratings: it learns from ratings; else from labels, 1 for the positive and 0 for negatives.
        weighted: it heeds the table's weights, which come with the labels.
        settings: names of its own settings.
        grades: what relevance listwise labels are: labels, or, by ratings, zones or ratings.
        gaps: its labels hold rating gaps, too.
        curriculum: it goes by these gaps, so that there must be some.
    """

    make: Callable[..., Any]
    pointwise: bool
    ratings: bool
    weighted: bool = True
    settings: tuple[str, ...] = ()
    grades: str = LABELS
    gaps: bool = False
    curriculum: bool = False


def _contrast(
    model: Any,
    *,
    mini_batch_size: int | None,
    mixing: str | None = None,
    alpha: float = 0.5,
    temperature: float = 1.0,
    learn_temperature: bool = False,
    prior: float = 0.0,
    concentration: float = 0.0,
    curriculum: bool = False,
) -> ListContrastiveLoss:
    return ListContrastiveLoss(
        model,
        mixing=None if mixing is None else make_mixing(mixing, alpha),
        temperature=make_temperature(temperature, learned=learn_temperature),
        prior=prior,
        concentration=concentration,
        mini_batch_size=mini_batch_size,
        least_gap=least_gap if curriculum else None,
    )


def _listwise(*more: str, ratings: bool = False, **defaults: Any) -> RerankerLoss:
    """A contrast over lists with these settings beside the temperature and the curriculum, and other defaults."""
    return RerankerLoss(
        partial(_contrast, **defaults),
        pointwise=False,
        ratings=ratings,
        settings=("temperature", "learn_temperature", CURRICULUM, *more),
        gaps=True,
    )


def _pointwise(objective: Callable[..., Tensor]) -> Callable[..., PointwiseLoss]:
    return partial(PointwiseLoss, objective=partial(objective, reduction="none"))


RERANKER_LOSSES: dict[str, RerankerLoss] = {
    "regression": RerankerLoss(_pointwise(functional.mse_loss), pointwise=True, ratings=True),
    "binary": RerankerLoss(_pointwise(functional.binary_cross_entropy_with_logits), pointwise=True, ratings=False),
    "listnet": RerankerLoss(ListNetLoss, pointwise=False, ratings=False, settings=(GRADES,)),
    "lambda": RerankerLoss(WeightedLambdaLoss, pointwise=False, ratings=False, settings=(GRADES,)),
    "weighted": _listwise(),
    "debiased": _listwise("prior", "concentration", prior=0.1),
    "hard-weighted": _listwise("prior", "concentration", prior=0.1, concentration=1.0),
    "hybrid": _listwise("mixing", "alpha", "prior", "concentration", ratings=True, mixing="fixed"),
}
GRADES_OF = {"listnet": (LABELS, ZONES, RATINGS), "lambda": (LABELS, ZONES)}
"""What the relevance of a listwise loss may be: the labels, 1 and 0; zones of gaps (Table 2), 4 for the positive and in
the danger zone to 0 in the easy one; ratings in logits, whose softmax is the chance to be the best (Plackett–Luce)."""


def reranker_loss(name: str, settings: Mapping[str, Any]) -> RerankerLoss:
    """Return the loss of this name, or with `st:NAME` one of sentence-transformers, having checked its settings.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
    """
    if name.startswith(ST):
        make = st_reranker_loss(name, settings)
        return RerankerLoss(make, pointwise=False, ratings=False, weighted=False, settings=tuple(settings))
    check_names("loss of a reranker", [name], RERANKER_LOSSES)
    check_names(f"setting of the loss {name}", settings, RERANKER_LOSSES[name].settings)
    loss = replace(RERANKER_LOSSES[name], curriculum=bool(settings.get(CURRICULUM)))
    if GRADES not in settings:
        return loss
    check_names(f"grades of the loss {name}", [settings[GRADES]], GRADES_OF[name])
    return replace(loss, grades=settings[GRADES])


def reranker_set(data: TrainingSet, loss: RerankerLoss) -> Dataset:
    """Return the rows of a data set of lists in the form that a reranker's loss takes; absent documents left out.

    Like the given set it holds row numbers, and looks texts up when a batch is read.

    Pointwise: query, document, label; pairs without a rating are left out where ratings are learned. Listwise: query,
    documents, label, a number a document. A loss that heeds weights has them after the numbers: labels are (2,), or
    (2, 1 + k); those of contrasts hold gaps as well, (3, 1 + k). With grades by ratings, documents without one are left
    out, and lists that are left with fewer than two.

    Raises:
        InputError: ratings or gaps are wanted and there are none, or there are weights that the loss cannot heed.
    """
    datasets = require("datasets", "train")
    ratings, weights = data.facts.ratings, np.exp(data.facts.own_log_weights())
    if loss.ratings and not np.isfinite(ratings).any():
        raise InputError("this loss learns from ratings, and there are none; rate the negatives first, or use listnet")
    if (
        loss.pointwise
        and loss.ratings
        and data.negatives is not None
        and OFFSET not in data.negatives.table.column_names
    ):
        log.warning(
            "the ratings have the mean 1500 in each query, whatever its candidates are worth, and a regression learns "
            "them so; rate with comparisons between queries (foils rate --rating-args between=6), or train with "
            "listnet and grades=ratings, which compares documents of one query alone"
        )
    if loss.curriculum and not np.isfinite(data.facts.own_gaps()).any():
        raise InputError("a curriculum goes by gaps of ratings, and there are none; rate the negatives first")
    weighed, positives = data.weighed()
    if positives.any() and not loss.weighted:
        refuse_positives("this loss", data)
    if weighed.any() and not loss.weighted:
        heeding = ", ".join(name for name, known in RERANKER_LOSSES.items() if known.weighted)
        raise InputError(
            f"{int(weighed.sum())} negatives have a weight other than 1, which this loss cannot heed; take one of "
            f"{heeding}, or negatives that are not weighted"
        )
    there = data.rows[:, 1:] >= 0
    labelled = np.zeros(there.shape)
    labelled[:, 0] = 1
    target = ratings if loss.ratings else labelled if loss.grades == LABELS else _grades(data, loss.grades)
    if loss.pointwise or loss.grades != LABELS:
        there &= np.isfinite(target)
    rows = np.ones(len(data), bool)
    if loss.grades != LABELS:
        rows = there.sum(1) > 1
        if not rows.all():
            log.warning(
                "%d of %d lists have fewer than two rated documents, and are left out", (~rows).sum(), len(rows)
            )
        there &= rows[:, None]
    queries, documents, lengths = data.rows[:, 0], data.rows[:, 1:][there], there.sum(1)
    gaps = [np.concatenate([np.full((len(data), 1), np.nan), data.facts.own_gaps()], 1)] if loss.gaps else []
    facts = np.stack([target, weights, *gaps], 1)
    if loss.pointwise:
        query = np.repeat(queries, lengths)  # a negative stands once, however many positives its query has
        first = np.sort(np.unique(np.stack([query, documents]), axis=1, return_index=True)[1])
        label = _lists(facts.swapaxes(1, 2)[there][first].ravel(), np.full(len(first), 2))
        columns = {"query": query[first], "document": documents[first], "label": label}
    else:
        queries, lengths, wide = queries[rows], lengths[rows], facts.shape[1]
        label = _lists(target[there], lengths)
        if loss.weighted:
            every = _lists(facts[np.repeat(there[:, None], wide, 1)], np.repeat(lengths, wide))
            label = _lists(every, np.full(len(queries), wide))
        columns = {"query": queries, "documents": _lists(documents, lengths), "label": label}
    texts = replace(data.texts, documents=frozenset({"document", "documents"}))
    return datasets.Dataset(pa.table(columns)).with_transform(texts)


def _grades(data: TrainingSet, kind: str) -> Floats:
    """(N, 1 + k) relevance by ratings of each row's documents; NaN where there is none."""
    if kind == RATINGS:
        return data.scores_of("elo") / ELO_PER_LOGIT
    gaps = data.facts.own_gaps()
    if not np.isfinite(gaps).any():
        raise InputError("grades by zones go by gaps of ratings, and there are none; rate the negatives first")
    zones = len(BOUNDS) - tier_of(gaps.ravel()).reshape(gaps.shape)
    return np.concatenate([np.full((len(data), 1), float(len(BOUNDS))), np.where(np.isnan(gaps), np.nan, zones)], 1)


def _lists(values: Any, lengths: Rows) -> pa.ListArray:
    """Return consecutive values as lists of these lengths."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), values)


def train_reranker(
    model: Any,
    data: TrainingSet,
    output: str | Path,
    *,
    settings: TrainSettings,
    score: Callable[[Any], float] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    resume: bool = False,
) -> TrainingRun:
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
        InputError: a model with several outputs, a mask, no ratings where the loss needs them, weights where it cannot
            heed them, checkpoints in the way.
        UnknownNameError: no such loss, or setting of it.
        FailureError: the loss is no finite number.
    """
    refuse({"mask": settings.mask}, NO_MASK)
    check_one_output(model, "the reranker")
    settings = with_defaults(settings, model)
    kind = reranker_loss(settings.loss, settings.loss_settings)
    of_data = (GRADES,) if settings.loss in GRADES_OF else ()
    own = {name: value for name, value in settings.loss_settings.items() if name not in of_data}
    if settings.loss.startswith(ST):
        why = f"with {spelled('loss')} {settings.loss}, which keeps the activations of all; take a loss of foils"
        refuse({"mini_batch_size": settings.mini_batch_size}, why)
    if settings.max_length is not None:
        model.max_seq_length = settings.max_length
    dataset = reranker_set(data, kind)
    steps = -(-len(dataset) // settings.batch_size) * settings.epochs
    log.info("%d %s, %d steps of %d", len(dataset), "pairs" if kind.pointwise else "lists", steps, settings.batch_size)
    run = fit(
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
        model,
        Path(output),
        dataset=dataset,
        loss=kind.make(model, mini_batch_size=settings.mini_batch_size, **own),
        settings=settings,
        score=score,
        callbacks=callbacks,
        resume=resume,
        prompts=prompt_of_reranker(model),
    )
    warn_of_nothing_learned(run.history)
    return run


def prompt_of_reranker(model: Any) -> str | None:
    """Return the prompt that a CrossEncoder is served with, so that it is trained with it; None without one."""
    name = getattr(model, "default_prompt_name", None)
    return (model.prompts or {}).get(name) or None if name else None


def with_prompt(model: Any, prompt: str | None) -> Any:
    """Return a CrossEncoder that is trained and served with this prompt, or `@NAME`, its own of that name.

    Raises:
        UnknownNameError: it has no prompt of that name.
    """
    if prompt is None:
        return model
    own = model.prompts or {}
    if prompt.startswith("@"):
        check_names("prompt of the model", [prompt[1:]], own)
        model.default_prompt_name = prompt[1:]
    else:
        model.prompts, model.default_prompt_name = {**own, "query": prompt}, "query"
    return model


def warn_of_nothing_learned(history: Sequence[Mapping[str, float]]) -> None:
    """Say so where the loss hardly fell: the last tenth of its entries against the first one."""
    losses = [entry["loss"] for entry in history if "loss" in entry]
    last = losses[-max(1, len(losses) // 10) :]
    if len(losses) > 1 and losses[0] > 0 and sum(last) / len(last) > LEARNED * losses[0]:
        log.warning(
            "the loss hardly fell, from %.3f to %.3f: the reranker learned next to nothing; train for more steps, at "
            "a higher learning rate, or from a model that knows more",
            losses[0], sum(last) / len(last),
        )  # fmt: skip
