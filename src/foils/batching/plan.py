"""A plan of an epoch: how hard and clean its batches are, and the door that makes it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, Conflicts, known_conflicts, random_order
from foils.batching.methods import METHODS
from foils.data import Collection
from foils.data.collection import DocumentTexts
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import RowSettings, SourceLike, TrainingRows, as_source, training_rows
from foils.data.tables import Provenance, provenance, write_table
from foils.encode.vectors import AT_128, EncodingSettings
from foils.runtime import progress
from foils.runtime.files import without_nan
from foils.runtime.options import Option, door, settings_option
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Result, Table, number

Vectors = NDArray[np.floating]
Values = NDArray[np.float64]


def measure_epoch(
    queries: Vectors, documents: Vectors, batches: Batches, *, conflicts: Conflicts, temperature: float = 0.05
) -> dict[str, float]:
    """Return what the batches of an epoch offer to the training, by the vectors that they were built from.

    A row whose positive is near has a low loss in any batch: compare batches of the same rows alone.

    Args:
        queries: (N, d) unit vectors of the pairs' queries.
        documents: (N, d) unit vectors of their documents.
        batches: of the N rows.
        conflicts: known positives, masked in the measures and counted.
        temperature: τ > 0 of the loss; divides.

    Returns:
        hardness, the mean over rows of max_j q_i·d_j over their in-batch negatives; loss, of
            InfoNCE at the temperature
        with known positives masked (a row without a negative is left out of both); contradictions,
            pairs (i, j), i ≠ j,
        of a batch with a known positive of q_i in d_j, which the loss must mask; rows; batches.
    """
    hardness, loss = list[Values](), list[Values]()
    contradictions = 0
    with progress.task("measuring batches", total=len(batches), unit="batches") as advance:
        for rows in batches:
            scores = np.asarray(queries[rows], np.float64) @ np.asarray(documents[rows], np.float64).T
            masked = conflicts.matrix(rows)
            contradictions += int(masked.sum())
            hidden = masked | np.eye(rows.size, dtype=bool)
            able = ~hidden.all(axis=1)
            logits = np.where(masked, -np.inf, scores) / temperature
            hardness.append(np.where(hidden, -np.inf, scores).max(axis=1)[able])
            loss.append((logsumexp(logits, axis=1) - np.diag(logits))[able])
            advance(1)
    means = [float(np.concatenate(each).mean()) if any(map(len, each)) else np.nan for each in (hardness, loss)]
    counts = {"contradictions": contradictions, "rows": batches.rows, "batches": len(batches)}
    return {"hardness": means[0], "loss": means[1], **counts}


@dataclass(frozen=True)
class BatchPlan(Result):
    """The batches of an epoch, beside random ones, with the rows that they are about.

    Attributes:
        collection: what the rows are from.
        rows: row i of the batches is row i of the training.
        batches: of the first epoch of a training.
        measures: of the batches (`measure_epoch`), and the `seconds` that they took.
        random: of random batches of the same rows that keep the same conflicts apart.
        negative_ids: (N,) ids of the negatives of triplets; None of pairs and lists.
        settings: of the method, as they were given.
        provenance: of the plan.
    """

    collection: Collection
    rows: TrainingRows
    batches: Batches
    measures: dict[str, float]
    random: dict[str, float]
    negative_ids: pa.ChunkedArray | None
    settings: Mapping[str, Any]
    provenance: Provenance

    def table(self) -> pa.Table:
        """Return a row for each training row, in the order of training.

        Columns: epoch (0, the first), batch, position, query_id, doc_id and, of triplets, negative_id.
        """
        size, order = self.batches.batch_size, self.batches.order
        place = np.arange(order.size)
        columns = {
            "epoch": pa.array(np.zeros(order.size), pa.int32()),
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
        write_table(path, self.table(), self.provenance)

    def to_json(self) -> dict[str, Any]:
        """Return the plan's measures, with null where there is no number, and what was left out."""
        return {
            "with": self.provenance["settings"]["with"],
            "settings": self.settings,
            "batch_size": self.batches.batch_size,
            "pairs": len(self.rows),
            "measures": without_nan(self.measures),
            "random": without_nan(self.random),
            "capped": self.rows.capped,
            "uncovered": self.rows.uncovered,
        }

    def tables(self) -> list[Table]:
        """Return how hard and clean the batches are, beside random ones."""
        settings = self.provenance["settings"]
        rows = [
            (label, number(each["hardness"]), number(each["loss"]), f"{each['contradictions']:,}")
            for label, each in ((settings["with"], self.measures), ("random", self.random))
        ]
        notes = [
            f"{len(self.rows):,} rows in {len(self.batches):,} batches of {self.batches.batch_size}, made of "
            f"{self.rows.pairs:,} pairs; pairs left out: {self.rows.capped:,} over "
            f"{settings['max_positives']} positives, {self.rows.uncovered:,} without a negative",
            f"built in {self.measures['seconds']:.1f} s",
        ]
        columns = ["batches", "hardness", "loss", "contradictions"]
        title = f"Batches of {self.collection.name} ({settings['split']})"
        return [Table(title, columns, rows, "\n".join(notes))]


@door
def batch(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with", names=METHODS)] = "hobit",
    source: Annotated[SourceLike | None, Option(metavar="SOURCE")] = None,
    *,
    batch_size: Annotated[int, Option(least=1)] = 128,
    settings: Annotated[Mapping[str, Any] | None, settings_option()] = None,
    seed: Annotated[int, Option(least=0)] = 0,
    rows: RowSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> BatchPlan:
    """Plan batches whose pairs are hard negatives for each other, and show how hard and clean they are.

    The plan is a table of epoch, batch, position, query_id, doc_id and, of triplets, negative_id.
    Training builds batches anew from the current model in each epoch. A plan shows the first epoch
    of a training with the same rows, batch size and seed, and what other methods would do.

    Args:
        method: How batches are filled.
        source: Negatives to train on, [NAME=]PATH. Triplets and lists leave out queries without
            one. In Python also a table of negatives or a DataFrame.
        batch_size: Rows per batch.
        settings: A setting of the method, as alpha=0.5; may be given several times. In Python a dictionary.
        seed: Seed of the batches; the same seed gives the same bytes.

    Example:
        foils batch scifact/ bm25.parquet --with hobit --batch-size 32 -o plan.parquet

    Raises:
        InputError: a collection or source that cannot be read, or options that have no effect together.
        UnknownNameError: no such method, or no such setting of it.
    """
    from foils.batching.sampler import BatchPlanner  # loads torch

    method_settings = dict(settings or {})
    planner = BatchPlanner(method, method_settings)  # before anything is read
    rows = rows.completed("pairs" if source is None else "triplets")
    loaded = reading.open(collection)
    negatives = None if source is None else as_source(source, loaded)
    trained = training_rows(loaded, negatives.negatives if negatives else None, **vars(rows))
    encoder, store = encoding.open(loaded)
    queries = store.embed(encoder, loaded.query_texts(trained.query_rows), "query").take(slice(None))
    documents = store.embed(encoder, DocumentTexts(loaded, trained.doc_rows), "document").take(slice(None))
    known = known_conflicts(loaded, trained.query_rows, trained.doc_rows)
    begin, pairs = time.perf_counter(), len(queries)
    planned = planner.build(0, (queries, documents), batch_size, rows=pairs, conflicts=known, seed=seed)
    seconds = time.perf_counter() - begin
    random = random_order(pairs, batch_size=batch_size, rng=np.random.default_rng([seed, 0]), conflicts=known)
    measured, beside = (measure_epoch(queries, documents, each, conflicts=known) for each in (planned, random))
    chosen = {"with": method, **method_settings, "batch_size": batch_size, **vars(rows)}
    inputs = {"collection": loaded.digest, **({"negatives": negatives.digest} if negatives else {})}
    named = {"name": encoder.name, "fingerprint": encoder.fingerprint}
    history = provenance("batch", chosen, inputs=inputs, seed=seed, encoder=named)
    negative_ids = None
    if negatives is not None and rows.form == "triplets":
        negative_ids = negatives.negatives.table["doc_id"].take(pa.array(trained.negatives[:, 0]))
    return BatchPlan(
        collection=loaded, rows=trained, batches=planned, measures={**measured, "seconds": seconds}, random=beside,
        negative_ids=negative_ids, settings=method_settings, provenance=history,
    )  # fmt: skip
