"""Training as the parts together make it: a loss of one stage, batches of another, a curriculum of a third."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foils.data import Collection, Negatives
from foils.data.training_rows import MAX_POSITIVES
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.encode.similarity import similarity_of
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.refresh import Refresh
    from foils.training.settings import TrainSettings
    from foils.training.tiers import TierCurriculum
    from foils.training.trainer import Trained

NO_DUPLICATES = "no-duplicates"
CURRICULA = ("fixed", "progress")
DANGER = "negatives in the danger zone, left out"
UNRATED = "negatives without a rating gap, left out"


def ways_of_batching() -> list[str]:
    """Return the names that `train_encoder` takes for its batches."""
    from foils.batching import METHODS

    return [*METHODS, NO_DUPLICATES]


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
) -> Trained:
    """Train a bi-encoder with any way of filling batches.

    Args:
        model: a SentenceTransformer; it is changed.
        data: of `foils.training.data.training_set`.
        checkpoints: folder for them.
        settings: how to train.
        batches: one of `ways_of_batching`.
        batch_settings: of that way.
        curriculum: None; or `fixed`: harder negatives are let in by epoch, by their rating gaps (ANMI Table 3), which
            needs a loss with weights; or `progress`: batches of one tier each, drawn by what the model learns from them
            (Graves et al. 2017), of triplets as `outside_danger` gives them.
        score: model → score on dev, higher is better.
        refresh: makes negatives anew while the model trains, as `ance_refresh` does.
        resume: go on from the last checkpoint in the folder.

    Raises:
        InputError: settings that do not go together.
        UnknownNameError: no such way of batching.
    """
    from foils.batching.caching import CachingLoss
    from foils.batching.hobit_c import EmbeddingCache
    from foils.batching.pairs import known_conflicts
    from foils.batching.sampler import BatchPlanner
    from foils.selection.curriculum import stage_of
    from foils.training.bi_encoder import BATCHES, train_bi_encoder

    if batches not in ways_of_batching():
        raise UnknownNameError("way of batching", batches, ways_of_batching())
    if batches == NO_DUPLICATES and batch_settings:
        raise InputError(f"{NO_DUPLICATES} has no settings; settings of batches go with the others")
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
        led = _by_progress(data)
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


def outside_danger(data: TrainingSet) -> TrainingSet:
    """Return the triplets whose negative has a rating gap that is not in the danger zone, below 100 (ANMI Table 2).

    Raises:
        InputError: no triplets, no negative with a rating gap, or none outside the danger zone.
    """
    from foils.selection.rules import BOUNDS

    gaps = _gaps(data)
    if np.isnan(gaps).any():
        data = data.without(np.isnan(gaps), reason=UNRATED)
    return data.without(gaps[np.isfinite(gaps)] < BOUNDS[0], reason=DANGER)


def _gaps(data: TrainingSet) -> NDArray[np.float64]:
    """Return (N,) the rating gap of each triplet's negative, NaN where it has none."""
    if data.rows.shape[1] != 3:
        raise InputError(f"a curriculum by progress goes by a row's one negative; these have {data.rows.shape[1] - 2}")
    gaps: NDArray[np.float64] = data.facts.own_gaps()[:, 0]
    if np.isnan(gaps).all():
        raise InputError("a curriculum by progress goes by gaps of ratings, and there are none; rate the negatives")
    return gaps


def _by_progress(data: TrainingSet) -> TierCurriculum:
    """Return the curriculum over the tiers that have rows."""
    from foils.selection.curriculum import LearningProgress
    from foils.selection.rules import TIERS, tier_of
    from foils.training.tiers import TierCurriculum

    gaps = _gaps(data)
    if np.isnan(gaps).any():
        raise InputError(f"{int(np.isnan(gaps).sum())} rows have no rating gap; leave them out with outside_danger")
    tier = tier_of(gaps)
    there, numbers = np.unique(tier, return_inverse=True)
    names = [TIERS[i] for i in there]
    if TIERS[0] in names or len(names) < 2:
        raise InputError(
            f"a curriculum by progress needs two tiers or more among {', '.join(TIERS[1:])}, and nothing in the danger "
            f"zone; these rows are of {', '.join(names)}"
        )
    return TierCurriculum(numbers.astype(np.int64), LearningProgress(len(names)), names=names)


def ance_refresh(
    collection: Collection,
    *,
    every: int,
    split: str,
    top: int,
    form: str = "triplets",
    max_positives: int = MAX_POSITIVES,
    ranks: tuple[int, int | None] = (0, None),
) -> Refresh:
    """Return how to mine negatives anew with the model that trains, every so many epochs (ANCE).

    Args:
        collection: whose documents are embedded and searched at each refresh.
        every: epochs between refreshes.
        split: whose queries.
        top: negatives of a query.
        form: of the training set: triplets or lists.
        max_positives: labelled positives of a query, at most.
        ranks: window that negatives are taken from.
    """
    from foils.mining.ance import refresh
    from foils.training.data import training_set
    from foils.training.refresh import Refresh

    def mine(model: Any) -> Negatives:
        encoder = SentenceEncoder(model, EncoderSettings(), name="checkpoint")
        with tempfile.TemporaryDirectory() as folder:  # vectors of weights that nobody meets again
            store = VectorStore(folder)
            return refresh(collection, encoder, store, split=split, top=top, ranks=ranks).negatives

    def assemble(negatives: Negatives) -> TrainingSet:
        return training_set(
            collection,
            negatives,
            split=split,
            form=form,  # type: ignore[arg-type]  # checked by training_set
            per_query=top,
            max_positives=max_positives,
        )

    return Refresh(every, mine, assemble)
