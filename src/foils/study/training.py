"""Training as the parts together make it: a loss of one stage, batches of another, a curriculum of a third."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.data import Collection, Negatives
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.train.data import TrainingSet
    from foils.train.refresh import Refresh
    from foils.train.settings import TrainSettings
    from foils.train.trainer import Trained

NO_DUPLICATES = "no-duplicates"


def ways_of_batching() -> list[str]:
    """Return the names that `train_encoder` takes for its batches."""
    from foils.batch import METHODS

    return [*METHODS, NO_DUPLICATES]


def train_encoder(
    model: Any,
    data: TrainingSet,
    checkpoints: Path,
    *,
    settings: TrainSettings,
    batches: str = "random",
    batch_settings: Mapping[str, Any] | None = None,
    curriculum: bool = False,
    score: Callable[[Any], float] | None = None,
    refresh: Refresh | None = None,
    resume: bool = False,
) -> Trained:
    """Train a bi-encoder with any way of filling batches.

    Args:
        model: a SentenceTransformer; it is changed.
        data: of `foils.train.data.training_set`.
        checkpoints: folder for them.
        settings: how to train.
        batches: one of `ways_of_batching`.
        batch_settings: of that way.
        curriculum: let harder negatives in by epoch, by their rating gaps (ANMI Table 3); needs a loss with weights.
        score: model → score on dev, higher is better.
        refresh: makes negatives anew while the model trains, as `ance_refresh` does.
        resume: go on from the last checkpoint in the folder.

    Raises:
        InputError: settings that do not go together.
        UnknownNameError: no such way of batching.
    """
    from foils.batch.caching import CachingLoss
    from foils.batch.hobit_c import EmbeddingCache
    from foils.batch.sampler import BatchPlanner
    from foils.select.curriculum import stage_of
    from foils.train.bi_encoder import BATCHES, train_bi_encoder

    if batches not in ways_of_batching():
        raise UnknownNameError("way of batching", batches, ways_of_batching())
    if batches == NO_DUPLICATES and batch_settings:
        raise InputError(f"{NO_DUPLICATES} has no settings; settings of batches go with the others")
    if curriculum:
        if settings.loss == "mnrl":
            raise InputError("a curriculum weighs negatives by epoch, which mnrl cannot; take the loss weighted")
        own = {**settings.loss_settings, "least_gap": lambda epoch: stage_of(epoch)[0]}
        settings = replace(settings, loss_settings=own)
    cache = EmbeddingCache(len(data)) if batches == "hobit-c" else None
    planner = None if batches == NO_DUPLICATES else BatchPlanner(batches, dict(batch_settings or {}), cache=cache)
    return train_bi_encoder(
        model,
        data,
        checkpoints,
        settings=settings,
        sampler=planner.sampler if planner else BATCHES[NO_DUPLICATES],
        callbacks=[planner] if planner else [],
        wrap_loss=(lambda loss: CachingLoss(loss, model=model, cache=cache)) if cache is not None else None,
        score=score,
        refresh=refresh,
        resume=resume,
    )


def ance_refresh(
    collection: Collection,
    *,
    every: int,
    split: str,
    top: int,
    form: str = "triplets",
    max_positives: int = 1,
    ranks: tuple[int, int | None] = (0, None),
) -> Refresh:
    """Return how to mine negatives anew with the model that trains, every so many epochs (ANCE).

    Args:
        collection: whose documents are embedded and searched at each refresh.
        every: epochs between refreshes.
        split: whose queries.
        top: negatives of a query.
        form: of the training set: triplets or lists.
        max_positives: labelled positives of a query.
        ranks: window that negatives are taken from.
    """
    from foils.mine.ance import refresh
    from foils.train.data import training_set
    from foils.train.refresh import Refresh

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
