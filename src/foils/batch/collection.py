"""A plan of a collection's training pairs: embed them, build the batches, write them by ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.batch.methods import method
from foils.batch.pairs import Pairs, known_conflicts, training_pairs
from foils.batch.plan import Plan, plan_epochs
from foils.data import Collection, Negatives
from foils.data.store import Provenance, provenance, write_table
from foils.encode import DocumentTexts, Encoder, VectorStore


@dataclass(frozen=True)
class CollectionPlan:
    """A plan with the pairs it is about.

    Attributes:
        collection: what the pairs are from.
        pairs: row i of the plan's batches is pair i.
        plan: batches and measures.
        made: the provenance.
    """

    collection: Collection
    pairs: Pairs
    plan: Plan
    made: Provenance

    def table(self) -> pa.Table:
        """Return a row per epoch and pair, in the order of training: epoch, batch, position, query_id, doc_id."""
        size = self.plan.batch_size
        order = np.concatenate([batches.order for batches in self.plan.epochs])
        place = np.tile(np.arange(len(self.pairs)), len(self.plan.epochs))
        queries = self.collection.queries["query_id"].take(pa.array(self.pairs.query_rows[order]))
        documents = self.collection.documents["doc_id"].take(pa.array(self.pairs.doc_rows[order]))
        return pa.table(
            {
                "epoch": pa.array(np.repeat(np.arange(len(self.plan.epochs)), len(self.pairs)), pa.int32()),
                "batch": pa.array(place // size, pa.int32()),
                "position": pa.array(place % size, pa.int32()),
                "query_id": queries,
                "doc_id": documents,
            }
        )

    def write(self, path: str | Path) -> None:
        """Write the table as Parquet with its provenance."""
        write_table(path, self.table(), self.made)

    def to_json(self) -> dict[str, Any]:
        """Return the plan's measures and what was left out."""
        return {**self.plan.to_json(), "capped": self.pairs.capped, "uncovered": self.pairs.uncovered}


def plan_collection(
    collection: Collection,
    encoder: Encoder,
    store: VectorStore,
    *,
    negatives: Negatives | None = None,
    negatives_digest: str = "",
    name: str = "hobit",
    settings: Mapping[str, Any] | None = None,
    batch_size: int = 128,
    epochs: int = 1,
    max_positives: int = 64,
    split: str = "train",
    seed: int = 0,
) -> CollectionPlan:
    """Plan batches of a collection's training pairs with the vectors of an encoder.

    Args:
        collection: with judgements of the split.
        encoder: the model that training starts from (for B3: the teacher).
        store: where vectors are kept.
        negatives: if given, only queries with a kept negative take part.
        negatives_digest: of the negatives' file, for the provenance.
        name: one of `METHODS`.
        settings: the method's own.
        batch_size: pairs per batch.
        epochs: how many to plan.
        max_positives: pairs per query, at most.
        split: whose judgements.
        seed: epoch e uses the generator of (seed, e).
    """
    method(name, settings or {})  # before any text is embedded
    pairs = training_pairs(
        collection,
        split=split,
        negatives=negatives,
        max_positives=max_positives,
        rng=np.random.default_rng([seed, 2**31]),
    )
    queries = store.embed(encoder, collection.query_texts(pairs.query_rows), "query").take(slice(None))
    documents = store.embed(encoder, DocumentTexts(collection, pairs.doc_rows), "document").take(slice(None))
    plan = plan_epochs(
        queries,
        documents,
        name=name,
        settings=settings,
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        conflicts=known_conflicts(collection, pairs),
    )
    given = {"with": name, **plan.settings, "batch_size": batch_size, "epochs": epochs, "split": split}
    inputs = {"collection": collection.digest, **({"negatives": negatives_digest} if negatives_digest else {})}
    made = provenance(
        "batch",
        {**given, "max_positives": max_positives},
        inputs=inputs,
        seed=seed,
        encoder={"name": encoder.name, "fingerprint": encoder.fingerprint},
    )
    return CollectionPlan(collection, pairs, plan, made)
