"""A probe: train something cheap on each source for a short while, and see what it learns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data import Collection, Negatives
from foils.evaluation import measure_encoder
from foils.runtime import progress
from foils.studies.settings import StudySettings

HELD_OUT = 0.2
PROBED = "probe"


def probe(
    collection: Collection,
    sources: Mapping[str, Negatives],
    settings: StudySettings,
    model: str,
    *,
    device: str | None = None,
) -> dict[str, float]:
    """Return source → the first measure of a cheap model that was trained on it, on training queries held out.

    A fifth of the training queries is held out, the same for all sources; the others train one epoch, or as many
    queries of it as fill `probe_rows` rows. No test query is looked at.

    Args:
        collection: with the judgements to train on.
        sources: name → negatives.
        settings: of the study.
        model: what to train; a static embedding (`static:NAME`) takes seconds.
        device: as torch names it.
    """
    from foils.training.bi_encoder import train_bi_encoder
    from foils.training.data import training_set
    from foils.training.models import load_trainable
    from foils.training.settings import TrainSettings

    trained_on, held_out = split_queries(collection, settings.split)
    wanted = max(1, settings.probe_rows // (settings.per_query or 10))
    shortened = _judged(collection, settings.split, trained_on[:wanted])
    measured_on = replace(
        collection, qrels={PROBED: _judged(collection, settings.split, held_out).qrels[settings.split]}
    )
    training = TrainSettings(
        batch_size=256, learning_rate=2e-3, loss_settings={"temperature": settings.temperature}, max_length=128
    )
    measured = {}
    with progress.task("probing", total=len(sources), unit="sources") as advance, progress.quiet():
        for name, negatives in sources.items():
            trainable = load_trainable(model, device=device)
            data = training_set(
                shortened, negatives, split=settings.split, per_query=settings.per_query, max_positives=1
            )
            with tempfile.TemporaryDirectory() as folder:
                train_bi_encoder(trainable, data, Path(folder), settings=training)
            measure = settings.measured[0]
            measured[name] = measure_encoder(trainable, measured_on, PROBED, [measure]).means[measure]
            advance(1)
    return measured


def split_queries(collection: Collection, split: str) -> tuple[list[str], list[str]]:
    """Return the ids of the training queries to probe with and to measure on, drawn with a fixed seed."""
    rows = collection.positives(split).query_rows
    order = np.random.default_rng(12).permutation(len(rows))
    ids = collection.queries["query_id"].take(pa.array(rows[order])).to_pylist()
    held = max(1, round(HELD_OUT * len(ids)))
    return ids[held:], ids[:held]


def _judged(collection: Collection, split: str, queries: list[str]) -> Collection:
    table = collection.qrels[split]
    chosen = pc.is_in(table["query_id"], value_set=pa.array(queries, table["query_id"].type))
    return replace(collection, qrels={**collection.qrels, split: table.filter(chosen)})
