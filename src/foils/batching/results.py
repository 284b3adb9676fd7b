"""What a plan of a collection's training rows shows, and its table by ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.batching.plan import PlannedEpochs
from foils.data import Collection
from foils.data.tables import Provenance, write_table
from foils.data.training_rows import TrainingRows
from foils.runtime.files import write_text
from foils.runtime.results import Result, Table, number, signed


@dataclass(frozen=True)
class BatchPlan(Result):
    """A plan of batches, with the rows it is about.

    Attributes:
        collection: what the rows are from.
        rows: row i of the plan's batches is row i of the training.
        plan: batches and measures.
        negative_ids: (N,) ids of the negatives of triplets; None of pairs and lists.
        provenance: of the plan.
    """

    collection: Collection
    rows: TrainingRows
    plan: PlannedEpochs
    negative_ids: pa.ChunkedArray | None
    provenance: Provenance

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
        write_table(path, self.table(), self.provenance)

    def to_json(self) -> dict[str, Any]:
        """Return the plan's measures and what was left out."""
        return {**self.plan.to_json(), "capped": self.rows.capped, "uncovered": self.rows.uncovered}

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.batching.page import batch_report

        write_text(path, batch_report(self))

    def tables(self) -> list[Table]:
        """Return how hard, clean and varied the batches of each epoch are, beside random ones."""
        plan, settings = self.plan, self.provenance["settings"]
        rows = [
            (
                label,
                number(epoch.hardness),
                signed(epoch.hardness_gain),
                number(epoch.hardness_worst_tenth),
                f"{100 * epoch.easier:.0f} %",
                number(epoch.weight),
                number(epoch.loss),
                signed(epoch.loss_gain),
                f"{epoch.contradictions:,}",
                f"{epoch.seconds:.1f} s",
            )
            for label, epoch in plan.labelled()
        ]
        notes = [
            f"{len(self.rows):,} rows in {len(plan.epochs[0]):,} batches of {plan.batch_size}, made of "
            f"{self.rows.pairs:,} pairs; pairs left out: {self.rows.capped:,} over {settings['max_positives']} "
            f"positives, {self.rows.uncovered:,} without a negative",
            "hardness over the epoch: " + " ".join(number(value, 2) for value in plan.measures[0].hardness_curve),
            "gain: against the same pairs in random batches; easier: share of the batches that are easier than those",
            f"contradictions in a plain shuffle: {plan.unguarded:,}",
        ]
        if plan.objective is not None and plan.objective_random is not None:
            notes.append(
                f"HOBIT's objective a seed (eq. 10): {number(plan.objective)}, of random batches "
                f"{number(plan.objective_random)}"
            )
        if len(plan.epochs) > 1:
            notes.append(
                f"companions met again in the next epoch: {100 * plan.overlap:.1f} %, "
                f"at random {100 * plan.overlap_random:.1f} %"
            )
        columns = ["batches", "hardness", "gain", "worst tenth", "easier", "weight", "loss", "loss gain",
                   "contradictions", "time"]  # fmt: skip
        title = f"Batches of {self.collection.name} ({settings['split']})"
        return [Table(title, columns, rows, "\n".join(notes))]
