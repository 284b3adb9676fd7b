"""A plan of a collection's training rows: embed them, build the batches, write them by ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.batching.hobit_c import unit
from foils.batching.methods import method
from foils.batching.pairs import known_conflicts
from foils.batching.plan import Plan, plan_epochs
from foils.data import Collection, Negatives
from foils.data.store import Provenance, provenance, write_table
from foils.data.training_rows import MAX_POSITIVES, Form, TrainingRows, training_rows
from foils.encode import DocumentTexts, Encoder, VectorStore


@dataclass(frozen=True)
class CollectionPlan:
    """A plan with the rows it is about.

    Attributes:
        collection: what the rows are from.
        rows: row i of the plan's batches is row i of the training.
        plan: batches and measures.
        negative_ids: (N,) ids of the negatives of triplets; None of pairs and lists.
        made: the provenance.
    """

    collection: Collection
    rows: TrainingRows
    plan: Plan
    negative_ids: pa.ChunkedArray | None
    made: Provenance

    def table(self) -> pa.Table:
        """Return a row per epoch and training row, in the order of training.

        Columns: epoch, batch, position, query_id, doc_id and, of triplets, negative_id.
        """
        size = self.plan.batch_size
        order = np.concatenate([batches.order for batches in self.plan.epochs])
        place = np.tile(np.arange(len(self.rows)), len(self.plan.epochs))
        columns = {
            "epoch": pa.array(np.repeat(np.arange(len(self.plan.epochs)), len(self.rows)), pa.int32()),
            "batch": pa.array(place // size, pa.int32()),
            "position": pa.array(place % size, pa.int32()),
            "query_id": self.collection.queries["query_id"].take(pa.array(self.rows.query_rows[order])),
            "doc_id": self.collection.documents["doc_id"].take(pa.array(self.rows.doc_rows[order])),
        }
        if self.negative_ids is not None:
            columns["negative_id"] = self.negative_ids.take(pa.array(order))
        return pa.table(columns)

    def write(self, path: str | Path) -> None:
        """Write the table as Parquet with its provenance."""
        write_table(path, self.table(), self.made)

    def to_json(self) -> dict[str, Any]:
        """Return the plan's measures and what was left out."""
        return {**self.plan.to_json(), "capped": self.rows.capped, "uncovered": self.rows.uncovered}


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
    form: Form | None = None,
    per_query: int | None = None,
    max_positives: int = MAX_POSITIVES,
    split: str = "train",
    seed: int = 0,
) -> CollectionPlan:
    """Plan batches of a collection's training rows with the vectors of an encoder.

    The first epoch is the one that training on the same rows with the same seed begins with.

    Args:
        collection: with judgements of the split.
        encoder: the model that training starts from (for B3: the teacher); its vectors are taken at length 1.
        store: where vectors are kept.
        negatives: what is trained on beside the pairs; None: pairs alone.
        negatives_digest: of the negatives' file, for the provenance.
        name: one of `METHODS`.
        settings: the method's own.
        batch_size: rows per batch.
        epochs: how many to plan.
        form: of the rows, as in training (`foils.data.training_rows`); None: triplets with negatives, pairs without.
        per_query: negatives of a query at most; None: all.
        max_positives: positives of a query at most.
        split: whose judgements.
        seed: epoch e uses the generator of (seed, e).
    """
    method(name, settings or {})  # before any text is embedded
    form = form or ("pairs" if negatives is None else "triplets")
    rows = training_rows(
        collection, negatives, split=split, form=form, per_query=per_query, max_positives=max_positives
    )
    queries = unit(store.embed(encoder, collection.query_texts(rows.query_rows), "query").take(slice(None)))
    documents = unit(store.embed(encoder, DocumentTexts(collection, rows.doc_rows), "document").take(slice(None)))
    plan = plan_epochs(
        queries,
        documents,
        name=name,
        settings=settings,
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        conflicts=known_conflicts(collection, rows.query_rows, rows.doc_rows),
    )
    given = {"with": name, **plan.settings, "batch_size": batch_size, "epochs": epochs, "split": split}
    given |= {"form": form, "per_query": per_query, "max_positives": max_positives}
    inputs = {"collection": collection.digest, **({"negatives": negatives_digest} if negatives_digest else {})}
    made = provenance(
        "batch",
        given,
        inputs=inputs,
        seed=seed,
        encoder={"name": encoder.name, "fingerprint": encoder.fingerprint},
    )
    negative_ids = None
    if negatives is not None and form == "triplets":
        negative_ids = negatives.table["doc_id"].take(pa.array(rows.negatives[:, 0]))
    return CollectionPlan(collection, rows, plan, negative_ids, made)
