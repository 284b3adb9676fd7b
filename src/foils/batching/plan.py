"""A plan of several epochs, and how hard, clean and varied its batches are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Batches, check_vectors
from foils.batching.conflicts import Conflicts, random_order, warn_of_classes
from foils.batching.measures import EpochMeasures, RowMeasures, epoch_measures, measure_rows, overlap
from foils.batching.methods import BatchChoice
from foils.batching.objective import hardness, smooth_hardness
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan

Vectors = NDArray[np.floating]
REFERENCE = 2**31
"""In place of an epoch's number: the generator of the random batches that gains are taken against."""


@dataclass(frozen=True)
class PlannedEpochs:
    """The batches of some epochs, beside random ones.

    Attributes:
        name: the method. settings: what was given to it. batch_size: rows per batch.
        epochs: the batches of each.
        rows: what each row of the first epoch meets.
        measures: of each epoch; gains are against one epoch of random batches that keep the same conflicts apart.
        random: of another epoch of such random batches: its gains are what chance alone makes.
        unguarded: contradictions of random batches that keep nothing apart.
        overlap: mean share of a row's companions that are its companions again in the next epoch; NaN for one epoch.
        overlap_random: what random batches would have, (b − 1) / (N − 1).
        objective: of HOBIT, the mean over the first epoch's full batches and their seeds of H̃ (eq. 10) / s; None of
            other methods.
        objective_random: the same of random batches, their first rows as seeds.
    """

    name: str
    settings: dict[str, Any]
    batch_size: int
    epochs: list[Batches]
    rows: RowMeasures
    measures: list[EpochMeasures]
    random: EpochMeasures
    unguarded: int
    overlap: float
    overlap_random: float
    objective: float | None = None
    objective_random: float | None = None

    def labelled(self) -> list[tuple[str, EpochMeasures]]:
        """Return the measures of each epoch, and of random batches, with their names."""
        return [
            *((f"{self.name}, epoch {number}", epoch) for number, epoch in enumerate(self.measures)),
            ("random", self.random),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the batches and rows themselves, for `--json`, with null where there is no number."""
        return {
            "with": self.name,
            "settings": self.settings,
            "batch_size": self.batch_size,
            "pairs": self.epochs[0].rows,
            "epochs": [without_nan(asdict(m)) for m in self.measures],
            "random": without_nan(asdict(self.random)),
            "unguarded": self.unguarded,
            "overlap": without_nan(self.overlap),
            "overlap_random": self.overlap_random,
            "objective": self.objective,
            "objective_random": self.objective_random,
        }


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

    def measured(build: Callable[[], Batches]) -> tuple[Batches, RowMeasures, EpochMeasures]:
        begin = time.perf_counter()
        batches = build()
        seconds = time.perf_counter() - begin
        rows = measure(batches)
        return batches, rows, epoch_measures(batches, rows, random=reference, seconds=seconds)

    plans = [measured(partial(choice.build, epoch, (queries, documents), batch_size, **how)) for epoch in range(epochs)]
    planned = [batches for batches, _, _ in plans]
    return PlannedEpochs(
        name,
        settings,
        batch_size,
        planned,
        rows=plans[0][1],
        measures=[measures for _, _, measures in plans],
        random=measured(partial(shuffled, rng=_rng(seed, 0), conflicts=conflicts))[2],
        unguarded=sum(int(conflicts.matrix(rows).sum()) for rows in shuffled(rng=_rng(seed, 0))),
        overlap=overlap(planned),
        overlap_random=(min(batch_size, len(queries)) - 1) / max(len(queries) - 1, 1),
        objective=seeds_objective(queries, documents, planned[0], choice),
        objective_random=seeds_objective(queries, documents, shuffled(rng=_rng(seed, 0), conflicts=conflicts), choice),
    )


def seeds_objective(queries: Vectors, documents: Vectors, batches: Batches, choice: BatchChoice) -> float | None:
    """Return the mean of H̃ / s (eq. 10) over the full batches, whose first s rows are the seeds; None without seeds."""
    own = {**choice.method.settings, **choice.settings}
    if "seeds" not in own:
        return None
    values = []
    for rows in (batch for batch in batches if batch.size == min(batches.batch_size, batches.rows)):
        seeds = rows[: own["seeds"]]
        weights = hardness(queries[seeds], documents[seeds], documents[rows], alpha=own["alpha"])
        values.append(smooth_hardness(weights, tau=own["tau"]) / seeds.size)
    return float(np.mean(values))


def _rng(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed, epoch])
