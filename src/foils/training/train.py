"""Training an encoder or a reranker on sentence-transformers' trainers. Needs torch and sentence-transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers import CrossEncoder
from sentence_transformers.base.losses.gradcache import has_static_embedding_input
from sentence_transformers.base.sampler import BatchSamplers
from transformers import TrainerCallback

from foils.batching.conflicts import known_conflicts
from foils.batching.methods import METHODS, TEACHER
from foils.batching.sampler import BatchHook, BatchPlanner
from foils.encode import EmbeddingSettings
from foils.encode.cross_encoders import check_one_output
from foils.encode.encoder import PROMPT_NAMES
from foils.encode.models import OF_COSINES, check_temperature_of, similarity_of
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, spelled
from foils.training.data import TrainingSet
from foils.training.fit import TrainingRun, fit
from foils.training.losses import TEACHER_LOSSES, make_loss, matryoshka_loss
from foils.training.masks import BM25Partner, FalseNegativeMask, guide_vectors, make_mask
from foils.training.models import with_defaults
from foils.training.settings import NO_DUPLICATES, PROGRESS, TrainSettings, check_batches

if TYPE_CHECKING:
    from foils.training.refresh import Refresh

log = logging.getLogger(__name__)


def train_model(
    model: Any,
    data: TrainingSet,
    output: str | Path,
    *,
    settings: TrainSettings | None = None,
    batches: str | BatchHook = "random",
    batch_settings: Mapping[str, Any] | None = None,
    score: Callable[[Any], float] | None = None,
    refresh: Refresh | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    resume: bool = False,
) -> TrainingRun:
    """Train a model on a data set; checkpoints go to `output`.

    Resuming goes on from the last checkpoint there and ends with the weights of a training that was not interrupted.
    The model's own prompts for queries and documents go before the texts.

    Args:
        model: a SentenceTransformer, or a CrossEncoder with one output, on the device to train on; it is changed, and
            its maximum length set.
        data: of `foils.training.data.training_set`, for a reranker of the form `lists`.
        output: folder for checkpoints.
        settings: how; the mini-batch size is not used where the model is a static embedding, which needs none. A batch
            of a reranker has `batch_size` pairs (pointwise losses) or lists.
        batches: one of `foils.training.settings.ways_of_batching`, or a hook of your own, as a `BatchPlanner`;
            `progress` needs rows as `foils.training.tiers.outside_danger` leaves them. Rerankers, whose lists do not
            meet, have random ones.
        batch_settings: of that way.
        score: model → score on dev, higher is better: chooses the model and stops the training early.
        refresh: makes negatives anew while the model trains, as `foils.training.refresh.Refresh` says.
        callbacks: further ones of transformers.
        resume: go on where an earlier call with the same arguments stopped.

    Raises:
        InputError: settings that do not go together or do not fit the model or the data, or `output` holds checkpoints
            and is not to be resumed.
        UnknownNameError: no such loss or way of batching, or setting of it.
        FailureError: the loss is no finite number, or mining anew gave other rows.
    """
    settings = with_defaults(settings or TrainSettings(), model)
    static = has_static_embedding_input(model)
    if settings.max_length is not None and not static:
        model.max_seq_length = settings.max_length
    how: dict[str, Any] = {"settings": settings, "score": score, "resume": resume}
    if isinstance(model, CrossEncoder):
        return _train_reranker(model, data, Path(output), **how, callbacks=callbacks)
    if batches == PROGRESS:
        refuse({"refresh": refresh}, f"with batches {PROGRESS}, which go by the ratings of the negatives there are")
    name, of_loss = str(settings.loss), settings.loss_settings
    if name in TEACHER_LOSSES:
        refuse({"refresh": refresh}, f"with loss {name}: negatives that are mined anew have no teacher's scores")
    check_temperature_of(similarity_of(model), of_loss.get("temperature", OF_COSINES))
    if settings.beside is not None:
        refuse({"refresh": refresh}, f"with {spelled('beside')}, whose scores are of the negatives there are")
        data = replace(data, facts=replace(data.facts, partner=BM25Partner(data)))
    size = None if static or settings.mini_batch_size is None else min(settings.mini_batch_size, settings.batch_size)
    # a teacher's and a guide's texts are cut as the model's are
    use = EmbeddingSettings(max_length=settings.max_length, device=str(model.device))
    mask = None if settings.mask is None else FalseNegativeMask()
    loss = make_loss(name, model, data, mini_batch_size=size, mask=mask, settings=of_loss)
    if settings.mask is not None:  # a guide embeds once all else is known to fit
        mask = loss.mask = make_mask(model, data, settings, use)
    outer = matryoshka_loss(model, loss, settings.matryoshka) if settings.matryoshka else loss
    hook = _hook(data, batches, batch_settings, settings=settings, use=use)
    callbacks = [*([] if hook is None else [hook]), *callbacks]
    if refresh is not None:
        data = refresh.following(data, loss)
        callbacks.append(refresh)
    document = next((text for each in PROMPT_NAMES["document"] if (text := (model.prompts or {}).get(each))), None)
    prompts = {each: document for each in data.dataset.column_names if each not in ("anchor", "label")}
    prompts["anchor"] = (model.prompts or {}).get("query")
    run = fit(
        model,
        Path(output),
        dataset=data.dataset,
        loss=outer if hook is None else hook.wrapped(outer, model),
        callbacks=callbacks,
        batch_sampler=BatchSamplers.NO_DUPLICATES_HASHED if hook is None else hook,
        prompts={column: text for column, text in prompts.items() if text} or None,
        **how,
    )
    return run if mask is None else replace(run, masked={"mask": mask.describe(), "shares": mask.shares()})


def _train_reranker(
    model: CrossEncoder, data: TrainingSet, output: Path, *, settings: TrainSettings, **how: Any
) -> TrainingRun:
    from foils.training.reranker import reranker_loss, reranker_set, warn_of_nothing_learned

    own = {"mask": settings.mask, "beside": settings.beside}
    refuse(own, "on a reranker, whose loss compares no vectors; leave it out")
    check_one_output(model, "the reranker")
    kind = reranker_loss(str(settings.loss), settings.loss_settings, settings.target)
    if kind.settings is None:
        why = f"with {spelled('loss')} {settings.loss}, which keeps the activations of all; take a loss of foils"
        refuse({"mini_batch_size": settings.mini_batch_size}, why)
    dataset, loss = reranker_set(data, kind), kind.make(model, mini_batch_size=settings.mini_batch_size)
    steps = -(-len(dataset) // settings.batch_size) * settings.epochs
    log.info("%d %s, %d steps of %d", len(dataset), "pairs" if kind.pointwise else "lists", steps, settings.batch_size)
    prompt = (model.prompts or {}).get(model.default_prompt_name) or None  # what it is served with
    run = fit(model, output, dataset=dataset, loss=loss, settings=settings, prompts=prompt, **how)
    warn_of_nothing_learned(run.history)
    return run


def _hook(
    data: TrainingSet,
    batches: str | BatchHook,
    batch_settings: Mapping[str, Any] | None,
    *,
    settings: TrainSettings,
    use: EmbeddingSettings,
) -> BatchHook | None:
    """Return what fills the batches; None where sentence-transformers does.

    Where the method has a τ_h that is not set, it is the temperature of the loss.
    """
    if isinstance(batches, BatchHook):
        return batches
    check_batches(batches, batch_settings)
    if data.mixture is not None and batches not in METHODS:
        raise InputError(f"batches {batches}, and several data sets; expected one of {', '.join(METHODS)}")
    if batches == PROGRESS:
        from foils.training.tiers import by_progress

        return by_progress(data)
    if batches == NO_DUPLICATES:
        return None
    own, temperature = dict(batch_settings or {}), settings.loss_settings.get("temperature")
    named = own.pop(TEACHER, None)
    if "tau" in METHODS[batches].settings and isinstance(temperature, (int, float)) and temperature > 0:
        own.setdefault("tau", float(temperature))
    known = known_conflicts(data.texts.collection, data.rows[:, 0], data.rows[:, 1])
    teacher = None if named is None else guide_vectors(named, data, settings=use).of_pairs()
    return BatchPlanner(batches, own, known=known, teacher=teacher, mixture=data.mixture)
