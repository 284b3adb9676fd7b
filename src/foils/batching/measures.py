"""How hard, clean and varied the batches of an epoch are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, Rows
from foils.batching.conflicts import Conflicts
from foils.runtime import progress

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
