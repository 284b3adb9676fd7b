"""HOBIT: batches whose rows are hard negatives for a few seeds, by lazy greedy (HOBIT Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, Matrix, Rows, check_batch_size, check_vectors, shuffled
from foils.batching.cells import Cells
from foils.batching.conflicts import Conflicts, no_conflicts
from foils.batching.nearest import Unused, nearest
from foils.batching.objective import check_alpha, check_tau
from foils.batching.repair import repaired
from foils.batching.seeds import SEEDS
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names, require

SEARCHES = ("exact", "cells")
NO_ROWS: Rows = np.empty(0, np.int64)
AHEAD = 16
"""Seeds are searched for as many batches at once as use up 1/16 of the unused rows, at most 64."""
WIDER = (1, 4, 16)
"""Times the candidates that are looked at, one after the other, while a batch is not full."""


def hobit_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    alpha: float = 1.0,
    tau: float = 0.05,
    seeds: int = 8,
    candidates: int = 128,
    seed_order: str = "uniform",
    search: str = "exact",
    shuffle: bool = True,
) -> Batches:
    """Return the batches of one epoch by HOBIT (Algorithm 2).

    Until every row is used: draw `seeds` unused rows S; collect C, the union over S of the `candidates` unused rows
    of highest q_i·d_j; add the row of C with the highest gain of H̃ (eq. 16) until the batch is full. If C runs dry
    (conflicts), the search widens to 4 and 16 times as many neighbours, then takes unused rows at random, then rows
    in conflict, which a last pass tries to swap away.

    Where `batch_size` does not divide N, the batch that is shorter comes last in the epoch, but `rng` draws when it is
    built, so that other rows fill it in each epoch. If it were built last, it would hold the rows that are left over in
    every epoch, and a training that drops short batches would never see them.

    Args:
        queries: (N, d) unit vectors q_i, row i the i-th training pair.
        documents: (N, d) unit vectors d_i.
        batch_size: b (128 in the paper).
        rng: draws the seeds, and everything else that is random. Same state, same batches.
        conflicts: rows that may not meet; None lets everybody meet, as in the paper.
        alpha: α ≥ 0 of w_ij = q_i·d_j − α d_i·d_j (eq. 6); more of it keeps near-duplicates of positives away.
        tau: τ_h > 0 of H̃ (eq. 10); towards 0 only each seed's hardest row counts, above it their mean.
        seeds: s, at most `batch_size`; fewer leave more of the batch to be chosen.
        candidates: k_cand; at least (b − s) / s fills a batch. The paper does not give it.
        seed_order: "uniform" (Algorithm 2), "k-means" or "facility-location" (A.11), or "isolated-first", which keeps
            the last batches of an epoch from being made of what no seed called for (ours).
        search: "exact" looks at every unused document, O(N²) in all; "cells" into a sixteenth of ~√N clusters of
            documents, and pays off beyond some hundred thousand pairs.
        shuffle: shuffle the batches, so that those built from leftovers are not all trained on last.

    Raises:
        InputError: vectors of different shapes or with NaN, a setting out of range, `conflicts` of other rows.
        MissingExtraError: numba is not installed.
    """
    check_vectors(queries, documents)
    check_setting(batch_size, seeds, candidates, search, alpha=alpha, tau=tau)
    check_names("seed order", [seed_order], SEEDS)
    n = queries.shape[0]
    known = no_conflicts(n) if conflicts is None else conflicts
    if known.rows != n:
        raise InputError(f"conflicts speak of {known.rows} rows, the vectors of {n}")
    line, groups = SEEDS[seed_order](queries, documents, seeds=seeds, rng=rng)
    state = known.state()
    unused = Unused(finder(search, queries, documents, rng), state[0], candidates)
    batches = Filler(queries, documents, unused, state, line, groups, alpha, tau, rng).epoch(batch_size, seeds)
    batches = batches if conflicts is None else repaired(batches, conflicts, rng=rng)
    return shuffled(batches, rng=rng) if shuffle else batches


def _cuts(rows: int, batch_size: int, rng: np.random.Generator) -> tuple[list[int], slice]:
    """Return where batches begin and end as they are built, and which rows of that order are the short batch."""
    begin = batch_size * int(rng.integers(rows // batch_size + 1)) if rows % batch_size else rows
    short = slice(begin, begin + rows % batch_size)
    return sorted({*range(0, begin + 1, batch_size), *range(short.stop, rows + 1, batch_size)}), short


@dataclass
class Filler:
    """Builds one batch after the other; `state` is that of the compiled loops (`Conflicts.state`)."""

    queries: Matrix
    documents: Matrix
    unused: Unused
    state: tuple[Any, ...]
    line: Rows
    groups: Rows
    alpha: float
    tau: float
    rng: np.random.Generator
    stamp: int = 0

    def __post_init__(self) -> None:
        self.group_stamp = np.zeros(int(self.groups.max(initial=0)) + 1, np.int32)

    def epoch(self, batch_size: int, seeds: int) -> Batches:
        """Return the batches of an epoch in the order of building, the short one last."""
        n, prepared_until = self.queries.shape[0], 0
        order = np.empty(n, np.int64)
        starts, short = _cuts(n, batch_size, self.rng)
        with progress.task("building batches", total=n, unit="rows") as advance:
            for k, (start, end) in enumerate(pairwise(starts)):
                if k >= prepared_until:
                    self.line = self.line[~self.state[0][self.line]]
                    ahead = int(np.clip((n - start) // (AHEAD * batch_size), 1, 64))
                    prepared_until = k + ahead
                    self.unused.prepare(self.line[: ahead * seeds])
                order[start:end] = self.batch(end - start, seeds)
                advance(end - start)
        return Batches(np.concatenate([np.delete(order, short), order[short]]), batch_size)

    def batch(self, size: int, seeds: int) -> Rows:
        """Return the next batch of `size` rows, its seeds first."""
        batch = np.empty(size, np.int64)
        self.stamp += 1
        filled = 0
        for groups in (self.groups, NO_ROWS) if self.groups.size else (NO_ROWS,):
            filled = self.take(self.line, batch, filled, min(seeds, size), groups)
        seed_rows = batch[:filled].copy()
        toward = self.toward(seed_rows)
        totals = logsumexp(self.weights(toward, seed_rows), axis=1)
        for factor in WIDER:
            if filled == size:
                return batch
            filled = self.greedy(toward, totals, self.unused.candidates(seed_rows, factor=factor), batch, filled)
        return self.at_random(batch, filled)

    def greedy(
        self, toward: NDArray[np.float32], totals: NDArray[np.float64], rows: Rows, batch: Rows, filled: int
    ) -> int:
        """Add the rows of highest gain to the batch until it is full or no row fits; return its size."""
        from foils.batching import greedy_loops

        weights = self.weights(toward, rows)
        above = np.maximum(weights.max(axis=1, initial=-np.inf) - totals, 0.0).sum()
        fill = greedy_loops.dense_greedy if above < greedy_loops.FINITE else greedy_loops.lazy_greedy
        return fill(weights, totals, rows, self.stamp, self.state, batch, filled)

    def take(self, line: Rows, batch: Rows, filled: int, until: int, groups: Rows) -> int:
        """Add the first unused rows of a line that conflict with nobody; return the batch's size."""
        from foils.batching import kernels

        return kernels.take(line, groups, self.group_stamp, self.stamp, self.state, batch, filled, until)

    def toward(self, seeds: Rows) -> NDArray[np.float32]:
        """Return q − α d of the seeds (s, d), whose products with documents are w (eq. 6)."""
        queries, documents = (side[seeds].astype(np.float32) for side in (self.queries, self.documents))
        return np.asarray(queries - np.float32(self.alpha) * documents, np.float32)

    def weights(self, toward: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """Return w_ij / τ_h of the seeds, as `toward` gives them, with `rows`."""
        weights = toward @ self.documents[rows].astype(np.float32, copy=False).T
        return weights.astype(np.float64) / self.tau

    def at_random(self, batch: Rows, filled: int) -> Rows:
        """Fill the batch with unused rows at random: first those without a conflict, then any."""
        used = self.state[0]
        line = self.rng.permutation(np.flatnonzero(~used))
        filled = self.take(line, batch, filled, batch.size, NO_ROWS)
        rest = line[~used[line]][: batch.size - filled]
        batch[filled:] = rest
        used[rest] = True
        return batch


def finder(
    search: str, queries: Matrix, documents: Matrix, rng: np.random.Generator
) -> Callable[[Rows, Rows, int], Rows]:
    """Return (seeds, unused rows, k) → the k unused rows nearest to each seed, best first."""
    if search == "exact":
        return lambda seeds, among, k: nearest(queries[seeds], documents, among, k=k)[0]
    cells = Cells.build(documents, rng=rng)
    return lambda seeds, among, k: cells.nearest(queries[seeds], documents, among, k=k)


def check_setting(batch_size: int, seeds: int, candidates: int, search: str, *, alpha: float, tau: float) -> None:
    """Raise InputError for a setting out of range, MissingExtraError without numba."""
    check_alpha(alpha)
    check_tau(tau)
    check_batch_size(batch_size)
    if not 1 <= seeds <= batch_size:
        raise InputError(
            f"{seeds} seeds for batches, or parts of a mixture's batches, of {batch_size} rows; expected 1 to "
            f"{batch_size}: give fewer seeds, or a larger batch size"
        )
    if candidates < 1:
        raise InputError(f"candidates is how many neighbours of each seed to consider, at least 1; got {candidates}")
    check_names("candidate search", [search], SEARCHES)
    require("numba", "batch")
