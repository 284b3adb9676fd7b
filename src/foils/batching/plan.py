"""A plan of several epochs, and how hard, clean and varied its batches are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, Rows, check_vectors
from foils.batching.conflicts import Conflicts, random_order, warn_of_classes
from foils.batching.methods import BatchChoice
from foils.batching.objective import hardness, smooth_hardness
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan

Vectors = NDArray[np.floating]
Values = NDArray[np.float64]
CURVE = 10
"""Points of the curve over an epoch."""


@dataclass(frozen=True)
class RowMeasures:
    """What its batch offers to each row, by the vectors that the batches were built from.

    A row without a negative, alone in its batch or among known positives only, has NaN and companion −1.

    Attributes:
        hardness: (N,) max_j q_i·d_j over the row's in-batch negatives.
        weight: (N,) max_j w_ij (HOBIT eq. 6 at α = 1): hard, and apart from the positive.
        loss: (N,) InfoNCE at the temperature with known positives masked.
        companion: (N,) the row whose document is the hardest negative.
        contradictions: (batches,) how many (i, j), i ≠ j, of a batch have in d_j a known positive of q_i; what the
            loss must mask. None of the measures above looks at them.
    """

    hardness: Values
    weight: Values
    loss: Values
    companion: Rows
    contradictions: Rows


@dataclass(frozen=True)
class EpochMeasures:
    """What the batches of an epoch offer to the training.

    Rows differ: one whose positive is near has a low loss in any batch. So batches are compared with random ones by
    the *same rows*: a gain is the mean over a batch's rows of what they have here less what they have in random
    batches.

    Attributes:
        hardness, weight, loss: means over rows (see `RowMeasures`; loss at τ = 0.05).
        contradictions: pairs that the loss must mask.
        hardness_worst_tenth: mean hardness of the tenth of the batches that has least.
        hardness_curve, contradictions_curve: by tenths of the epoch in the order of training.
        hardness_by_batch, contradictions_by_batch: in the order of training.
        hardness_gain, loss_gain: mean over rows, against the same rows in random batches.
        hardness_gain_by_batch, loss_gain_by_batch: of each batch, in the order of training.
        easier: share of the batches whose hardness gain is below 0; about a half for random batches.
        rows: pairs visited. batches: how many there are.
        seconds: it took to build.
    """

    hardness: float
    weight: float
    loss: float
    contradictions: int
    hardness_worst_tenth: float
    hardness_curve: list[float]
    contradictions_curve: list[int]
    hardness_by_batch: list[float]
    contradictions_by_batch: list[int]
    hardness_gain: float
    loss_gain: float
    hardness_gain_by_batch: list[float]
    loss_gain_by_batch: list[float]
    easier: float
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
    hardness, weight, loss = (np.full(batches.rows, np.nan) for _ in range(3))
    companion, contradictions = np.full(batches.rows, -1, np.int64), np.zeros(len(batches), np.int64)
    with progress.task("measuring batches", total=len(batches), unit="batches") as advance:
        for k, rows in enumerate(batches):
            q, d = (np.asarray(side[rows], np.float64) for side in (queries, documents))
            scores, masked = q @ d.T, conflicts.matrix(rows)
            hidden = masked | np.eye(rows.size, dtype=bool)
            contradictions[k] = masked.sum()
            able = ~hidden.all(axis=1)
            negatives = np.where(hidden, -np.inf, scores)
            logits = np.where(masked, -np.inf, scores) / temperature
            hardness[rows[able]] = negatives.max(axis=1)[able]
            weight[rows[able]] = np.where(hidden, -np.inf, scores - d @ d.T).max(axis=1)[able]
            loss[rows[able]] = (logsumexp(logits, axis=1) - np.diag(logits))[able]
            companion[rows[able]] = rows[negatives.argmax(axis=1)][able]
            advance(1)
    return RowMeasures(hardness, weight, loss, companion, contradictions)


def epoch_measures(batches: Batches, rows: RowMeasures, *, random: RowMeasures, seconds: float = 0.0) -> EpochMeasures:
    """Sum an epoch up (see `EpochMeasures`).

    Args:
        batches: of the epoch.
        rows: what its rows meet.
        random: what the same rows meet in random batches.
        seconds: the batches took to build.
    """
    hardness, contradictions = by_batch(batches, rows.hardness), rows.contradictions
    hardness_gain, loss_gain = rows.hardness - random.hardness, rows.loss - random.loss
    gains = by_batch(batches, hardness_gain)
    tenths = [part for part in np.array_split(np.arange(len(batches)), CURVE) if part.size]
    able = ~np.isnan(hardness)
    lowest = np.sort(hardness[able])[: max(1, int(able.sum()) // 10)]
    return EpochMeasures(
        hardness=_mean(rows.hardness),
        weight=_mean(rows.weight),
        loss=_mean(rows.loss),
        contradictions=int(contradictions.sum()),
        hardness_worst_tenth=_mean(lowest),
        hardness_curve=[_mean(hardness[part]) for part in tenths if able[part].any()],
        contradictions_curve=[int(contradictions[part].sum()) for part in tenths],
        hardness_by_batch=hardness.tolist(),
        contradictions_by_batch=contradictions.tolist(),
        hardness_gain=_mean(hardness_gain),
        loss_gain=_mean(loss_gain),
        hardness_gain_by_batch=gains.tolist(),
        loss_gain_by_batch=by_batch(batches, loss_gain).tolist(),
        easier=_mean((gains[~np.isnan(gains)] < 0).astype(float)),
        rows=batches.rows,
        batches=len(batches),
        seconds=seconds,
    )


def by_batch(batches: Batches, values: Values) -> Values:
    """Return (batches,) means over the rows of each batch; NaN rows do not count, and a batch of them has NaN."""
    return np.asarray([_mean(values[rows]) for rows in batches])


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
