"""A plan of several epochs, and how hard, clean and varied its batches are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, check_vectors
from foils.batching.conflicts import Conflicts, random_order, warn_of_classes
from foils.batching.methods import BatchChoice
from foils.data import Collection
from foils.data.tables import Provenance, write_table
from foils.data.training_rows import TrainingRows
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan
from foils.runtime.results import Result, Table, number, signed

Vectors = NDArray[np.floating]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class RowMeasures:
    """What its batch offers to each row, by the vectors that the batches were built from.

    A row without a negative, alone in its batch or among known positives only, has NaN.

    Attributes:
        hardness: (N,) max_j q_i·d_j over the row's in-batch negatives.
        loss: (N,) InfoNCE at the temperature with known positives masked.
        contradictions: how many (i, j), i ≠ j, of a batch have in d_j a known positive of q_i; what the loss must
            mask. None of the measures above looks at them.
    """

    hardness: Values
    loss: Values
    contradictions: int


@dataclass(frozen=True)
class EpochMeasures:
    """What the batches of an epoch offer to the training.

    Rows differ: one whose positive is near has a low loss in any batch. So batches are compared with random ones by
    the *same rows*: a gain is the mean over rows of what they have here less what they have in random batches.

    Attributes:
        hardness, loss: means over rows (see `RowMeasures`; loss at τ = 0.05).
        hardness_gain, loss_gain: the same, against the same rows in random batches.
        contradictions: pairs that the loss must mask.
        rows: pairs visited. batches: how many there are.
        seconds: it took to build.
    """

    hardness: float
    hardness_gain: float
    loss: float
    loss_gain: float
    contradictions: int
    rows: int
    batches: int
    seconds: float


def measure_rows(
    queries: Vectors, documents: Vectors, batches: Batches, *, conflicts: Conflicts, temperature: float = 0.05
) -> RowMeasures:
    """Measure what every row of the epoch meets in its batch.

    Args:
        queries: (N, d) unit vectors of the pairs' queries.
        documents: (N, d) unit vectors of their documents.
        batches: of the N rows.
        conflicts: known positives, masked in the measures and counted.
        temperature: τ > 0 of the loss; divides.
    """
    hardness, loss = (np.full(batches.rows, np.nan) for _ in range(2))
    contradictions = 0
    with progress.task("measuring batches", total=len(batches), unit="batches") as advance:
        for rows in batches:
            scores = np.asarray(queries[rows], np.float64) @ np.asarray(documents[rows], np.float64).T
            masked = conflicts.matrix(rows)
            contradictions += int(masked.sum())
            hidden = masked | np.eye(rows.size, dtype=bool)
            able = ~hidden.all(axis=1)
            logits = np.where(masked, -np.inf, scores) / temperature
            hardness[rows[able]] = np.where(hidden, -np.inf, scores).max(axis=1)[able]
            loss[rows[able]] = (logsumexp(logits, axis=1) - np.diag(logits))[able]
            advance(1)
    return RowMeasures(hardness, loss, contradictions)


def epoch_measures(batches: Batches, rows: RowMeasures, *, random: RowMeasures, seconds: float = 0.0) -> EpochMeasures:
    """Sum an epoch up (see `EpochMeasures`).

    Args:
        batches: of the epoch.
        rows: what its rows meet.
        random: what the same rows meet in random batches.
        seconds: the batches took to build.
    """
    return EpochMeasures(
        hardness=_mean(rows.hardness),
        hardness_gain=_mean(rows.hardness - random.hardness),
        loss=_mean(rows.loss),
        loss_gain=_mean(rows.loss - random.loss),
        contradictions=rows.contradictions,
        rows=batches.rows,
        batches=len(batches),
        seconds=seconds,
    )


def overlap(epochs: Sequence[Batches]) -> float:
    """Return the mean share of a row's companions in a batch that it meets again in the next epoch.

    For rows i of epoch e in a batch of b rows: |companions_e(i) ∩ companions_{e+1}(i)| / (b − 1), averaged over the
    rows and successive epochs. 1: the same batches each epoch; NaN for fewer than two epochs.
    """
    shares = []
    for before, after in pairwise(epochs):
        place = np.empty(before.rows, np.int64)
        place[before.order] = np.arange(before.rows) // before.batch_size
        met, possible = 0, 0
        for rows in after:
            counts = np.unique(place[rows], return_counts=True)[1]
            met += int((counts * (counts - 1)).sum())
            possible += rows.size * (rows.size - 1)
        shares.append(met / possible if possible else 0.0)
    return float(np.mean(shares)) if shares else float("nan")


def _mean(values: Values) -> float:
    """The mean of what is not NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


REFERENCE = 2**31
"""In place of an epoch's number: the generator of the random batches that gains are taken against."""


@dataclass(frozen=True)
class PlannedEpochs:
    """The batches of some epochs, beside random ones.

    Attributes:
        name: the method. settings: what was given to it. batch_size: rows per batch.
        epochs: the batches of each.
        measures: of each epoch; gains are against one epoch of random batches that keep the same conflicts apart.
        random: of another epoch of such random batches: its gains are what chance alone makes.
        unguarded: contradictions of random batches that keep nothing apart.
        overlap: mean share of a row's companions that are its companions again in the next epoch; NaN for one epoch.
        overlap_random: what random batches would have, (b − 1) / (N − 1).
    """

    name: str
    settings: dict[str, Any]
    batch_size: int
    epochs: list[Batches]
    measures: list[EpochMeasures]
    random: EpochMeasures
    unguarded: int
    overlap: float
    overlap_random: float


def plan_epochs(
    queries: Vectors,
    documents: Vectors,
    *,
    name: str,
    settings: Mapping[str, Any] | None = None,
    batch_size: int = 128,
    epochs: int = 1,
    seed: int = 0,
    conflicts: Conflicts,
) -> PlannedEpochs:
    """Build and measure the batches of some epochs from fixed vectors.

    Epoch e uses the generator of (seed, e), as the trainer's sampler does.

    Args:
        queries: (N, d) unit vectors of the pairs' queries.
        documents: (N, d) unit vectors of their documents.
        name: one of `METHODS`.
        settings: its own.
        batch_size: rows per batch.
        epochs: how many, at least 1.
        seed: of the generators.
        conflicts: rows to keep apart.

    Raises:
        InputError: an unknown method or setting, or a number out of range.
    """
    settings = dict(settings or {})
    choice = BatchChoice(name, settings)
    if epochs < 1:
        raise InputError(f"a plan has at least 1 epoch; got {epochs}")
    check_vectors(queries, documents)
    warn_of_classes(conflicts, batch_size)
    teacher = choice.communities((queries, documents)) if choice.method.vectors == "teacher" else None
    how: dict[str, Any] = {"rows": len(queries), "conflicts": conflicts, "seed": seed, "communities": teacher}
    shuffled = partial(random_order, len(queries), batch_size=batch_size)
    measure = partial(measure_rows, queries, documents, conflicts=conflicts)
    reference = measure(shuffled(rng=_rng(seed, REFERENCE), conflicts=conflicts))

    def measured(build: Callable[[], Batches]) -> tuple[Batches, EpochMeasures]:
        begin = time.perf_counter()
        batches = build()
        seconds = time.perf_counter() - begin
        return batches, epoch_measures(batches, measure(batches), random=reference, seconds=seconds)

    plans = [measured(partial(choice.build, epoch, (queries, documents), batch_size, **how)) for epoch in range(epochs)]
    planned = [batches for batches, _ in plans]
    _, random = measured(partial(shuffled, rng=_rng(seed, 0), conflicts=conflicts))
    return PlannedEpochs(
        name,
        settings,
        batch_size,
        planned,
        measures=[measures for _, measures in plans],
        random=random,
        unguarded=sum(int(conflicts.matrix(rows).sum()) for rows in shuffled(rng=_rng(seed, 0))),
        overlap=overlap(planned),
        overlap_random=(min(batch_size, len(queries)) - 1) / max(len(queries) - 1, 1),
    )


def _rng(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed, epoch])


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
        """Return the plan's measures, with null where there is no number, and what was left out."""
        plan = self.plan
        facts = "batch_size", "unguarded", "overlap", "overlap_random"
        return {
            "with": plan.name,
            "settings": plan.settings,
            "pairs": len(self.rows),
            "epochs": [without_nan(asdict(each)) for each in plan.measures],
            "random": without_nan(asdict(plan.random)),
            **{name: without_nan(getattr(plan, name)) for name in facts},
            "capped": self.rows.capped,
            "uncovered": self.rows.uncovered,
        }

    def tables(self) -> list[Table]:
        """Return how hard, clean and varied the batches of each epoch are, beside random ones."""
        plan, settings = self.plan, self.provenance["settings"]
        rows = [
            (
                label,
                number(epoch.hardness),
                signed(epoch.hardness_gain),
                number(epoch.loss),
                signed(epoch.loss_gain),
                f"{epoch.contradictions:,}",
                f"{epoch.seconds:.1f} s",
            )
            for label, epoch in [
                *((f"{plan.name}, epoch {k}", epoch) for k, epoch in enumerate(plan.measures)),
                ("random", plan.random),
            ]
        ]
        notes = [
            f"{len(self.rows):,} rows in {len(plan.epochs[0]):,} batches of {plan.batch_size}, made of "
            f"{self.rows.pairs:,} pairs; pairs left out: {self.rows.capped:,} over {settings['max_positives']} "
            f"positives, {self.rows.uncovered:,} without a negative",
            "gain: against the same pairs in random batches",
            f"contradictions in a plain shuffle: {plan.unguarded:,}",
        ]
        if len(plan.epochs) > 1:
            notes.append(
                f"companions met again in the next epoch: {100 * plan.overlap:.1f} %, "
                f"at random {100 * plan.overlap_random:.1f} %"
            )
        columns = ["batches", "hardness", "gain", "loss", "loss gain", "contradictions", "time"]
        title = f"Batches of {self.collection.name} ({settings['split']})"
        return [Table(title, columns, rows, "\n".join(notes))]
