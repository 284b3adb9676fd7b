"""Batches whose rows are all hard negatives for each other: HOBIT's greedy step with the whole batch as its seeds.

HOBIT counts what a batch offers to a few seeds (eq. 10). Counted for every row of the batch, Σ_{i∈B} max_j w_ij and its
smooth form are not submodular, for a row that joins brings a term of its own, and greedy has no guarantee. Here the
batch grows in rounds, each of which is HOBIT's problem: the rows that are in it are the seeds S, and up to |S| further
rows are chosen for them. So the increase of H̃ over S in a round is at least 1 − 1/e of the largest that as many
candidates reach (HOBIT Theorem 5.11). Not in the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import Batches, Rows, check_vectors, shuffled
from foils.batching.conflicts import Conflicts, no_conflicts
from foils.batching.hobit import NO_ROWS, WIDER, Filler, check_setting, finder
from foils.batching.nearest import Unused
from foils.batching.repair import repaired
from foils.runtime.errors import InputError


def mutual_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    alpha: float = 0.0,
    tau: float = 0.05,
    candidates: int = 512,
    search: str = "exact",
    shuffle: bool = True,
) -> Batches:
    """Return the batches of one epoch, each grown from one row by doubling, with all its rows as seeds.

    Until every row is used: draw an unused row; collect its `candidates` nearest unused rows; while the batch is not
    full, take its rows as the seeds S and add |S| candidates, or as many as still fit, each time the one of highest
    gain Σ_{i∈S} τ_h log(1 + exp(w_iv/τ_h) / Σ_j exp(w_ij/τ_h)) (HOBIT eq. 16). Weights are symmetric,
    w_ij = (q_i·d_j + q_j·d_i)/2 − α d_i·d_j: a row that joins is a hard negative for the batch, and the batch for it.
    Nearness is w at α = 0. Where candidates run dry, and in the short last batch, it goes on as HOBIT does.

    Args:
        queries: (N, d) unit vectors q_i, row i the i-th training pair.
        documents: (N, d) unit vectors d_i.
        batch_size: b.
        rng: draws the first rows, and everything else that is random. Same state, same batches.
        conflicts: rows that may not meet; None lets everybody meet.
        alpha: α ≥ 0; more of it keeps near-duplicates of positives away.
        tau: τ_h > 0; towards 0 only each row's hardest negative counts (facility location), above it their mean. At
            α = 0 and the temperature of the training, H̃ over all rows is τ_h times the InfoNCE loss, a constant of
            each row aside.
        candidates: nearest rows of the first row that are considered; at least b fills a batch.
        search: "exact" or "cells", as HOBIT's.
        shuffle: shuffle the batches, so that those built from leftovers are not all trained on last.

    Raises:
        InputError: vectors of different shapes or with NaN, a setting out of range, `conflicts` of other rows.
        MissingExtraError: numba is not installed.
    """
    check_vectors(queries, documents)
    check_setting(batch_size, 1, candidates, search, alpha=alpha, tau=tau)
    n = queries.shape[0]
    known = no_conflicts(n) if conflicts is None else conflicts
    if known.rows != n:
        raise InputError(f"conflicts speak of {known.rows} rows, the vectors of {n}")
    state, line = known.state(), rng.permutation(n).astype(np.int64)
    asking, answering = Joined(queries, documents, 0.5), Joined(documents, queries)
    unused = Unused(finder(search, asking, answering, rng), state[0], candidates)
    batches = _Grower(asking, answering, unused, state, line, NO_ROWS, alpha, tau, rng).epoch(batch_size, 1)
    batches = batches if conflicts is None else repaired(batches, conflicts, rng=rng)
    return shuffled(batches, rng=rng) if shuffle else batches


@dataclass(frozen=True)
class Joined:
    """Rows scale · [a_i, b_i] of two matrices (N, d), joined as they are read.

    With x = [q, d] / 2 and y = [d, q], x_i·y_j = (q_i·d_j + d_i·q_j) / 2.
    """

    first: NDArray[np.floating]
    second: NDArray[np.floating]
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(N, 2 d)."""
        return self.first.shape[0], 2 * self.first.shape[1]

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        """Return these rows, (m, 2 d)."""
        pair = [np.asarray(side[rows], np.float32) for side in (self.first, self.second)]
        return np.concatenate(pair, axis=-1) * np.float32(self.scale)


@dataclass
class _Grower(Filler):
    """Grows one batch after the other; `queries` are x = [q, d] / 2, `documents` y = [d, q]."""

    def batch(self, size: int, seeds: int) -> Rows:
        """Return the next batch of `size` rows in the order in which they joined."""
        batch = np.empty(size, np.int64)
        self.stamp += 1
        filled = self.take(self.line, batch, 0, seeds, NO_ROWS)
        first = batch[:filled].copy()
        for factor in WIDER:
            rows = self.unused.candidates(first, factor=factor) if filled < size else NO_ROWS
            while filled < size and (grown := self._round(rows, batch, filled)) > filled:
                filled = grown
        return batch if filled == size else self.at_random(batch, filled)

    def _round(self, rows: Rows, batch: Rows, filled: int) -> int:
        """Add as many candidates as the batch has rows, or as still fit; return its size."""
        seeds = batch[:filled].copy()
        toward = self.toward(seeds)
        totals = logsumexp(self.weights(toward, seeds), axis=1)
        return self.greedy(toward, totals, rows, batch[: 2 * filled], filled)

    def toward(self, seeds: Rows) -> NDArray[np.float32]:
        """Return x_i − α [d_i, 0], whose products with y_j are w_ij."""
        vectors = self.queries[seeds].astype(np.float32)
        half = vectors.shape[1] // 2
        vectors[:, :half] -= np.float32(2 * self.alpha) * vectors[:, half:]
        return vectors
