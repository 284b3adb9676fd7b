"""A plan of several epochs, and how hard, clean and varied its batches are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils import progress
from foils.batch.b3 import community_batches, rank_communities
from foils.batch.batches import Batches
from foils.batch.conflicts import Conflicts
from foils.batch.methods import method
from foils.batch.random import random_order
from foils.errors import InputError

Vectors = NDArray[np.floating]
CURVE = 10
"""Points of the curve over an epoch."""


@dataclass(frozen=True)
class EpochMeasures:
    """What the batches of an epoch offer to the training, by the vectors they were built from.

    Attributes:
        hardness: mean over rows of max_j q_i·d_j, the hardest negative of each query in its batch.
        weight: mean over rows of max_j w_ij (HOBIT eq. 6 at α = 1): hard, and apart from the positive.
        loss: mean InfoNCE of the rows at τ = 0.05 with known positives masked.
        contradictions: (i, j) with i ≠ j in a batch where d_j is a known positive of q_i; what the loss must mask.
            None of the measures above looks at them.
        hardness_worst_tenth: mean hardness of the tenth of the batches that has least.
        hardness_curve, contradictions_curve: by tenths of the epoch in the order of training.
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
    rows: int
    batches: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The batches of some epochs, beside random ones.

    Attributes:
        name: the method. settings: what was given to it. batch_size: rows per batch.
        epochs: the batches of each.
        measures: of each epoch. random: of one epoch of random batches that keep the same conflicts apart.
        overlap: mean share of a row's companions that are its companions again in the next epoch; NaN for one epoch.
        overlap_random: what random batches would have, (b − 1) / (N − 1).
    """

    name: str
    settings: dict[str, Any]
    batch_size: int
    epochs: list[Batches]
    measures: list[EpochMeasures]
    random: EpochMeasures
    overlap: float
    overlap_random: float

    def to_json(self) -> dict[str, Any]:
        """Return everything but the batches themselves, for `--json`; an overlap of a single epoch is null."""
        return {
            "with": self.name,
            "settings": self.settings,
            "batch_size": self.batch_size,
            "pairs": self.epochs[0].rows,
            "epochs": [asdict(m) for m in self.measures],
            "random": asdict(self.random),
            "overlap": None if np.isnan(self.overlap) else self.overlap,
            "overlap_random": self.overlap_random,
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
) -> Plan:
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
    chosen = method(name, settings)
    if epochs < 1:
        raise InputError(f"a plan has at least 1 epoch; got {epochs}")
    communities = None
    planned, measures = [], []
    for epoch in range(epochs):
        rng, begin = np.random.default_rng([seed, epoch]), time.perf_counter()
        if chosen.vectors == "teacher":
            if communities is None:
                communities = rank_communities(queries, documents, **settings)
            batches = community_batches(communities, batch_size=batch_size, rng=rng, conflicts=conflicts)
        else:
            batches = chosen.build(queries, documents, batch_size=batch_size, rng=rng, conflicts=conflicts, **settings)
        seconds = time.perf_counter() - begin
        planned.append(batches)
        measures.append(measure_epoch(queries, documents, batches, conflicts=conflicts, seconds=seconds))
    begin, rng = time.perf_counter(), np.random.default_rng([seed, 0])
    plain = random_order(len(queries), batch_size=batch_size, rng=rng, conflicts=conflicts)
    seconds = time.perf_counter() - begin
    return Plan(
        name,
        settings,
        batch_size,
        planned,
        measures,
        measure_epoch(queries, documents, plain, conflicts=conflicts, seconds=seconds),
        overlap(planned),
        (min(batch_size, len(queries)) - 1) / max(len(queries) - 1, 1),
    )


def measure_epoch(
    queries: Vectors,
    documents: Vectors,
    batches: Batches,
    *,
    conflicts: Conflicts,
    temperature: float = 0.05,
    seconds: float = 0.0,
) -> EpochMeasures:
    """Measure an epoch's batches (see `EpochMeasures`). A batch of one row, or without a negative, adds nothing."""
    per_batch: list[tuple[float, float, float, int]] = []
    with progress.task("measuring batches", total=len(batches), unit="batches") as advance:
        for rows in batches:
            per_batch.append(_measure(queries, documents, rows, conflicts, temperature))
            advance(1)
    table = np.asarray(per_batch).reshape(-1, 4)
    sizes = np.asarray([rows.size for rows in batches])
    able = ~np.isnan(table[:, 0])
    tenths = [part for part in np.array_split(np.arange(len(table)), CURVE) if part.size]
    lowest = np.sort(table[able, 0])[: max(1, int(able.sum()) // 10)]

    def mean(column: int) -> float:
        return float(np.average(table[able, column], weights=sizes[able])) if able.any() else float("nan")

    return EpochMeasures(
        mean(0),
        mean(1),
        mean(2),
        int(table[:, 3].sum()),
        float(lowest.mean()) if lowest.size else float("nan"),
        [float(np.nanmean(table[part, 0])) for part in tenths if able[part].any()],
        [int(table[part, 3].sum()) for part in tenths],
        int(sizes.sum()),
        len(batches),
        seconds,
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


def _measure(
    queries: Vectors, documents: Vectors, rows: NDArray[np.int64], conflicts: Conflicts, temperature: float
) -> tuple[float, float, float, int]:
    q, d = (np.asarray(side[rows], np.float64) for side in (queries, documents))
    scores, likeness = q @ d.T, d @ d.T
    masked = conflicts.matrix(rows)
    hidden = masked | np.eye(rows.size, dtype=bool)
    contradictions = int(masked.sum())
    with_negative = ~hidden.all(axis=1)
    if not with_negative.any():
        return float("nan"), float("nan"), float("nan"), contradictions
    hardest = np.where(hidden, -np.inf, scores).max(axis=1)[with_negative].mean()
    weight = np.where(hidden, -np.inf, scores - likeness).max(axis=1)[with_negative].mean()
    logits = np.where(masked, -np.inf, scores) / temperature
    loss = (logsumexp(logits, axis=1) - np.diag(logits))[with_negative].mean()
    return float(hardest), float(weight), float(loss), contradictions
