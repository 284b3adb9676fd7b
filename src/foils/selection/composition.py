"""Composing one source of several: for each query the negatives that together are most informative."""

from __future__ import annotations

from collections.abc import Sequence

from foils.data.collection import Collection
from foils.data.sources import NamedSource
from foils.data.store import provenance
from foils.encode import Encoder, VectorStore
from foils.encode.opening import description
from foils.mining.fusion import fuse_sources
from foils.scoring import compose, composed, measure, prepare
from foils.scoring.gates import WEIGHTINGS
from foils.selection.results import Composed
from foils.selection.settings import CompositionSettings


def compose_sources(
    collection: Collection,
    sources: Sequence[NamedSource],
    encoder: Encoder,
    store: VectorStore,
    settings: CompositionSettings,
    *,
    split: str,
) -> Composed:
    """Unite sources, and keep for each query the negatives that together are most informative (`scoring.compose`).

    Args:
        collection: texts and judgements.
        sources: to choose from, at least one.
        encoder: embeds the texts.
        store: keeps the vectors.
        settings: how many are chosen, and how; its own sources are not looked at.
        split: whose positives.

    Raises:
        InputError: no record of the split has a negative.
    """
    united = fuse_sources({each.name: each.negatives for each in sources}) if len(sources) > 1 else sources[0].negatives
    prepared = prepare(collection, {"union": united}, split=split, control=False)
    measured = measure(prepared, encoder, store, settings.temperature)
    weights = WEIGHTINGS[settings.weight](measured.similarities, settings.temperature)
    chosen = compose(measured.geometry, weights, count=settings.top, regularization=settings.regularization)
    used = {"by": "composition", "top": settings.top, "lambda": settings.regularization, "weight": settings.weight,
            "split": split, "temperature": settings.temperature, "encoder": description(encoder)}  # fmt: skip
    history = provenance("select", used, inputs={each.name: each.digest for each in sources})
    return Composed.of(
        composed(united, measured.records, chosen, weights), provenance=history,
        title=f"composition of {len(sources)} sources", settings=used, queries=len(measured.records),
        collection=collection, split=split,
    )  # fmt: skip
