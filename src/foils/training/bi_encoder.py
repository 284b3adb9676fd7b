"""Training a bi-encoder on sentence-transformers' trainer. Needs torch and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.losses.gradcache import has_static_embedding_input
from sentence_transformers.base.sampler import BatchSamplers
from transformers import TrainerCallback

from foils.batching.caching import CachingLoss
from foils.batching.conflicts import known_conflicts
from foils.batching.hobit_c import EmbeddingCache
from foils.batching.sampler import BatchPlanner
from foils.encode.similarity import OF_COSINES, check_temperature_of, similarity_of
from foils.runtime.errors import InputError, UnknownNameError
from foils.selection.curriculum import stage_of
from foils.training.catalogue import make_loss
from foils.training.data import TrainingSet
from foils.training.gaps import by_progress
from foils.training.models import with_defaults
from foils.training.refresh import NegativesRefresh, Refresh, live
from foils.training.settings import CURRICULA, NO_DUPLICATES, TrainSettings, check_batches
from foils.training.trainer import TrainingRun, arguments, fit

BATCHES: dict[str, Any] = {
    "random": BatchSamplers.BATCH_SAMPLER,
    NO_DUPLICATES: BatchSamplers.NO_DUPLICATES_HASHED,
}
"""sentence-transformers' own ways to fill batches; others come as a sampler and its callback."""


def train_bi_encoder(
    model: Any,
    data: TrainingSet,
    output: str | Path,
    *,
    settings: TrainSettings | None = None,
    sampler: Any = None,
    callbacks: Sequence[TrainerCallback] = (),
    wrap_loss: Callable[[Any], Any] | None = None,
    score: Callable[[Any], float] | None = None,
    prompts: Mapping[str, str] | None = None,
    refresh: Refresh | None = None,
    resume: bool = False,
) -> TrainingRun:
    """Train a model on a data set; checkpoints go to `output`.

    Resuming goes on from the last checkpoint there and ends with the weights of a training that was not interrupted.

    Args:
        model: a SentenceTransformer, on the device to train on; it is changed, and its maximum length set.
        data: of `foils.training.data.training_set`.
        output: folder for checkpoints.
        settings: how; the mini-batch size is not used where the model is a static embedding, which needs none.
        sampler: as sentence-transformers' `batch_sampler`: one of `BATCHES`, or a planner's; None: random.
        callbacks: of transformers, a planner's among them.
        wrap_loss: puts another loss around it, as HOBIT-C's.
        score: model → score on dev, higher is better: chooses the model and stops the training early.
        prompts: "query" and "document": put before texts; None: the model's own prompts of these names.
        refresh: makes negatives anew with the model as it is; None: they stay.
        resume: go on where an earlier call with the same arguments stopped.

    Raises:
        InputError: settings that do not fit the data, or `output` holds checkpoints and is not to be resumed.
        UnknownNameError: no such loss, or setting of it.
        FailureError: the loss is no finite number, or mining anew gave other rows.
    """
    settings = with_defaults(settings or TrainSettings(), model)
    check_temperature_of(similarity_of(model), settings.loss_settings.get("temperature", OF_COSINES))
    static = has_static_embedding_input(model)
    if settings.max_length is not None and not static:
        model.max_seq_length = settings.max_length
    mini_batch = (
        None if static or settings.mini_batch_size is None else min(settings.mini_batch_size, settings.batch_size)
    )
    loss = make_loss(settings.loss, model, data, mini_batch_size=mini_batch, settings=settings.loss_settings)
    if refresh is not None:
        data, texts = live(data)
        callbacks = [*callbacks, NegativesRefresh(refresh, texts, loss)]
    own = {name: text for name, text in (prompts or prompts_of(model)).items() if text}
    kinds = {name: "query" if name == "anchor" else "document" for name in data.dataset.column_names if name != "label"}
    args = arguments(
        SentenceTransformerTrainingArguments,
        model,
        Path(output),
        settings=settings,
        evaluated=score is not None,
        batch_sampler=BATCHES["random"] if sampler is None else sampler,
        prompts={column: own[kind] for column, kind in kinds.items() if kind in own} or None,
    )
    return fit(
        SentenceTransformerTrainer,
        model,
        args,
        dataset=data.dataset,
        loss=wrap_loss(loss) if wrap_loss else loss,
        inner=loss,
        settings=settings,
        score=score,
        callbacks=callbacks,
        resume=resume,
    )


def prompts_of(model: Any) -> dict[str, str]:
    """Return the model's own prompts for queries and documents, "" where it has none."""
    own = dict(model.prompts or {})
    document = next((own[name] for name in ("document", "passage", "corpus") if own.get(name)), "")
    return {"query": own.get("query") or "", "document": document}


def train_encoder(
    model: Any,
    data: TrainingSet,
    checkpoints: Path,
    *,
    settings: TrainSettings,
    batches: str = "random",
    batch_settings: Mapping[str, Any] | None = None,
    curriculum: str | None = None,
    score: Callable[[Any], float] | None = None,
    refresh: Refresh | None = None,
    resume: bool = False,
) -> TrainingRun:
    """Train a bi-encoder with any way of filling batches.

    Args:
        model: a SentenceTransformer; it is changed.
        data: of `training_set`.
        checkpoints: folder for them.
        settings: how to train.
        batches: one of `foils.training.settings.ways_of_batching`.
        batch_settings: of that way.
        curriculum: None; or `fixed`: harder negatives are let in by epoch, by their rating gaps (ANMI Table 3), which
            needs a loss with weights; or `progress`: batches of one tier each, drawn by what the model learns from them
            (Graves et al. 2017), of triplets as `foils.training.gaps.outside_danger` gives them.
        score: model → score on dev, higher is better.
        refresh: makes negatives anew while the model trains, as `foils.training.refresh.ance_refresh` does.
        resume: go on from the last checkpoint in the folder.

    Raises:
        InputError: settings that do not go together.
        UnknownNameError: no such way of batching.
    """
    check_batches(batches, batch_settings)
    if curriculum is not None and curriculum not in CURRICULA:
        raise UnknownNameError("curriculum", curriculum, CURRICULA)
    if curriculum == "fixed":
        if settings.loss == "mnrl":
            raise InputError("a curriculum weighs negatives by epoch, which mnrl cannot; take the loss weighted")
        own = {**settings.loss_settings, "least_gap": lambda epoch: stage_of(epoch)[0]}
        settings = replace(settings, loss_settings=own)
    fit = partial(
        train_bi_encoder, model, data, checkpoints, settings=settings, score=score, refresh=refresh, resume=resume
    )
    if curriculum == "progress":
        if batches != "random" or refresh is not None:
            raise InputError(
                "a curriculum by progress makes its own batches of negatives whose ratings are known; leave out "
                f"{'the refresh' if refresh else f'batches {batches}'}"
            )
        led = by_progress(data)
        return fit(sampler=led.sampler, callbacks=[led], wrap_loss=led.measured)
    scaled = similarity_of(model) == "cosine"
    cache = EmbeddingCache(len(data), scaled=scaled) if batches == "hobit-c" else None
    planner = None
    if batches != NO_DUPLICATES:
        known = known_conflicts(data.lookup.collection, data.rows[:, 0], data.rows[:, 1])
        planner = BatchPlanner(batches, dict(batch_settings or {}), cache=cache, known=known)
    return fit(
        sampler=planner.sampler if planner else BATCHES[NO_DUPLICATES],
        callbacks=[planner] if planner else [],
        wrap_loss=(lambda loss: CachingLoss(loss, model=model, cache=cache)) if cache is not None else None,
    )
