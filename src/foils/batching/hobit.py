"""HOBIT: batches of hard negatives for a few seeds, by greedy (HOBIT Algorithm 2).

The objective and its greedy maximisation stand first as plain NumPy: the specification of the fast
code. For a seed set S, a batch B = S ∪ X and weights w (s × b, one row per seed, one column per
member of B): hardness (eq. 6), batch hardness H (eq. 7), its smooth form H̃ (eq. 10), the marginal
gain Δ (eq. 16).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.batching.batches import (
    Batches,
    Conflicts,
    Matrix,
    Rows,
    check_batch_size,
    check_rows,
    check_vectors,
    nearest,
    no_conflicts,
    shuffled,
    swap_conflicts,
)
from foils.runtime import progress
from foils.runtime.errors import check_names
from foils.runtime.options import Option

Weights = NDArray[np.float64]
ALPHA, TAU = Option(least=0), Option(above=0)


def hardness(
    queries: NDArray[np.floating],
    positives: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    alpha: float = 1.0,
) -> Weights:
    """Return w_ij = q_i·d_j − α d_i·d_j (HOBIT eq. 6): hard for the query, apart from its positive.

    Args:
        queries: (s, d) unit vectors q_i.
        positives: (s, d) unit vectors d_i, the document paired with each query.
        documents: (n, d) unit vectors d_j.
        alpha: ≥ 0; more of it keeps near-duplicates of the positive further away. 0 is plain hardness.

    Returns:
        (s, n) float64 in [−1 − α, 1 + α]; higher is a more useful negative.
    """
    ALPHA.check("alpha", alpha)
    q, p, d = (np.asarray(x, np.float64) for x in (queries, positives, documents))
    return np.asarray((q - alpha * p) @ d.T)


def batch_hardness(weights: Weights) -> float:
    """Return H(B) = Σ_i max_j w_ij (HOBIT eq. 7) for weights (s, b)."""
    return float(np.max(weights, axis=1).sum())


def smooth_hardness(weights: Weights, *, tau: float = 0.05) -> float:
    """Return H̃(B) = τ_h Σ_i log Σ_j exp(w_ij / τ_h) (HOBIT eq. 10) for weights (s, b).

    H ≤ H̃ ≤ H + s τ_h log b (eq. 11); τ_h → 0 gives H (eq. 12); for large τ_h it orders batches of equal size
    by their mean weight (eq. 14–15).
    """
    TAU.check("tau", tau)
    return float(tau * logsumexp(weights / tau, axis=1).sum())


def marginal_gain(weights: Weights, candidates: Weights, *, tau: float = 0.05) -> Weights:
    """Return Δ(v) = Σ_i τ_h log(1 + exp(w_iv/τ_h) / Σ_j exp(w_ij/τ_h)) (HOBIT eq. 16) for each candidate v.

    Coded as Σ_i τ_h softplus(w_iv/τ_h − log Σ_j exp(w_ij/τ_h)), which neither overflows nor cancels.

    Args:
        weights: (s, b) of the batch so far (seeds included).
        candidates: (s, n) of the candidates.
        tau: τ_h > 0.

    Returns:
        (n,) non-negative gains.
    """
    TAU.check("tau", tau)
    total = logsumexp(weights / tau, axis=1)
    return np.asarray(tau * np.logaddexp(0.0, candidates / tau - total[:, None]).sum(axis=0))


def greedy(
    weights: Weights,
    candidates: Weights,
    *,
    size: int,
    tau: float = 0.05,
    admits: Callable[[int], bool] = lambda _: True,
) -> NDArray[np.int64]:
    """Choose up to `size` candidates, each time the one of highest gain (HOBIT Algorithm 2, lines 8–11).

    H̃ is monotone and submodular (Theorem 5.11), so the result reaches 1 − 1/e of the best
    achievable increase. Ties go to the candidate of lowest position.

    Args:
        weights: (s, s) of the seeds among themselves.
        candidates: (s, n).
        size: how many to choose.
        tau: τ_h > 0.
        admits: whether the candidate at a position may join what was chosen so far; asked about the
            best one left.

    Returns:
        (min(size, n),) or fewer positions among the candidates in the order chosen.
    """
    left, chosen = np.ones(candidates.shape[1], bool), list[int]()
    while len(chosen) < size and left.any():
        batch = np.concatenate([weights, candidates[:, chosen]], axis=1)
        best = int(np.argmax(np.where(left, marginal_gain(batch, candidates, tau=tau), -np.inf)))
        left[best] = False
        if admits(best):
            chosen.append(best)
    return np.asarray(chosen, np.int64)


POOL = 256
"""Rows that one facility-location ranking represents."""


SeedOrder = Callable[..., tuple[Rows, Rows]]
"""(queries, *, seeds, rng) → a permutation of the rows, and the group of each row (empty: no groups)."""


def uniform_seeds(queries: Matrix, *, seeds: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw seeds uniformly from the unused rows (HOBIT Algorithm 2, line 5)."""
    return rng.permutation(queries.shape[0]).astype(np.int64), np.empty(0, np.int64)


def kmeans_seeds(queries: Matrix, *, seeds: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw seeds uniformly, a batch's `seeds` from different clusters of the queries (HOBIT A.11, K-means).

    The clusters, as many as a batch has seeds, are those of mini-batch k-means.
    """
    from sklearn.cluster import MiniBatchKMeans

    n = queries.shape[0]
    model = MiniBatchKMeans(
        min(seeds, n), random_state=int(rng.integers(2**31)), n_init=1, batch_size=4096, max_iter=20
    )
    step = max(1, n // 65536)
    model.fit(np.asarray(queries[::step], np.float32))
    groups = [model.predict(np.asarray(queries[i : i + 16384], np.float32)) for i in range(0, n, 16384)]
    return rng.permutation(n).astype(np.int64), np.concatenate(groups).astype(np.int64)


def facility_location_seeds(queries: Matrix, *, seeds: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Draw first the seeds that best represent random pools of rows (HOBIT A.11, facility location).

    The rows are split at random into pools of 256. Within a pool, rows are ranked by greedy
    maximisation of the coverage Σ_i max_{j ∈ chosen} max(0, q_i·q_j). The order takes the first
    `seeds` of every pool, then the next ones. Pools instead of the whole keep the cost linear in N.
    """
    n = queries.shape[0]
    shuffle = rng.permutation(n)
    rank, pool_of = np.empty(n, np.int64), np.empty(n, np.int64)
    for pool, start in enumerate(range(0, n, POOL)):
        rows = shuffle[start : start + POOL]
        rank[rows[coverage_order(np.asarray(queries[rows], np.float64))]] = np.arange(rows.size)
        pool_of[rows] = pool
    return np.lexsort((rank, pool_of, rank // seeds)).astype(np.int64), np.empty(0, np.int64)


def coverage_order(vectors: NDArray[np.float64]) -> Rows:
    """Rank rows by greedy facility location: each next one adds most to Σ_i max_j max(0, v_i·v_j).

    Ties go to the lower row. Rows (n, d); returns a permutation (n,).
    """
    similarity = np.maximum(vectors @ vectors.T, 0.0)
    covered, free = np.zeros(vectors.shape[0]), np.ones(vectors.shape[0], bool)
    order = []
    for _ in range(vectors.shape[0]):
        gains = np.where(free, np.maximum(similarity - covered[:, None], 0.0).sum(axis=0), -1.0)
        best = int(np.argmax(gains))
        order.append(best)
        free[best] = False
        covered = np.maximum(covered, similarity[:, best])
    return np.asarray(order, np.int64)


SEEDS: dict[str, SeedOrder] = {
    "uniform": uniform_seeds,
    "k-means": kmeans_seeds,
    "facility-location": facility_location_seeds,
}


NO_ROWS: Rows = np.empty(0, np.int64)
AHEAD = 16
"""Seeds are searched for as many batches at once as use up 1/16 of the unused rows, at most 64."""
SPARE = 2
"""Times the candidates that are searched for: a list survives the rows spent before its turn."""
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
) -> Batches:
    """Return the batches of one epoch by HOBIT (Algorithm 2).

    Until every row is used: draw `seeds` unused rows S; collect C, the union over S of the
    `candidates` unused rows of highest q_i·d_j; add the row of C with the highest gain of H̃ (eq.
    16) until the batch is full. If C runs dry (conflicts), the search widens to 4 and 16 times as
    many neighbours, then takes unused rows at random, then rows in conflict, which a last pass
    tries to swap away.

    Where `batch_size` does not divide N, the batch that is shorter comes last in the epoch, but
    `rng` draws when it is built, so that other rows fill it in each epoch. If it were built last,
    it would hold the rows that are left over in every epoch, and a training that drops short
    batches would never see them.

    Args:
        queries: (N, d) unit vectors q_i, row i the i-th training pair.
        documents: (N, d) unit vectors d_i.
        batch_size: b (128 in the paper).
        rng: draws the seeds, and everything else that is random. Same state, same batches.
        conflicts: rows that may not meet; None lets everybody meet, as in the paper.
        alpha: α ≥ 0 of w_ij = q_i·d_j − α d_i·d_j (eq. 6); more of it keeps near-duplicates of
            positives away.
        tau: τ_h > 0 of H̃ (eq. 10); towards 0 only each seed's hardest row counts, above it their mean.
        seeds: s, at most `batch_size`; fewer leave more of the batch to be chosen.
        candidates: k_cand; at least (b − s) / s fills a batch. The paper does not give it.
        seed_order: "uniform" (Algorithm 2), "k-means" or "facility-location" (A.11).

    Raises:
        InputError: vectors of different shapes or with NaN, a setting out of range, `conflicts` of
            other rows.
        MissingExtraError: numba is not installed.
    """
    check_vectors(queries, documents)
    check_names("seed order", [seed_order], SEEDS)
    filler = Filler(
        queries=queries, documents=documents, batch_size=batch_size, seeds=seeds, candidates=candidates,
        conflicts=conflicts, alpha=alpha, tau=tau, rng=rng,
    )  # fmt: skip
    return filler.epoch(*SEEDS[seed_order](queries, seeds=seeds, rng=rng))


@dataclass
class Filler:
    """Builds one batch after the other; `state` is that of the compiled loops (`Conflicts.state`).

    Its `lists` are the unused rows nearest to seeds, searched for many coming seeds in one pass.
    """

    queries: Matrix
    documents: Matrix
    batch_size: int
    seeds: int
    candidates: int
    conflicts: Conflicts | None
    alpha: float
    tau: float
    rng: np.random.Generator
    stamp: int = 0

    def __post_init__(self) -> None:
        ALPHA.check("alpha", self.alpha)
        TAU.check("tau", self.tau)
        check_batch_size(self.batch_size)
        Option(least=1, most=self.batch_size).check("seeds", self.seeds)
        Option(least=1).check("candidates", self.candidates)
        rows = self.queries.shape[0]
        self.known = no_conflicts(rows) if self.conflicts is None else self.conflicts
        check_rows(rows, self.known)
        self.state, self.classes = self.known.state(), self.known.classes or rows
        self.used, self.lists = self.state[0], dict[int, Rows]()

    def epoch(self, line: Rows, groups: Rows) -> Batches:
        """Return the batches of an epoch, shuffled: those built from leftovers are not all trained on last.

        The short one is the last.

        Args:
            line: the rows, in the order in which they become seeds.
            groups: of each row; the seeds of a batch are of different ones, as far as that goes.
                Empty: no groups.
        """
        n, size, prepared_until = line.size, self.batch_size, 0
        self.line, self.groups, order = line, groups, np.empty(n, np.int64)
        self.group_stamp = np.zeros(int(groups.max(initial=0)) + 1, np.int32)
        begin = size * int(self.rng.integers(n // size + 1)) if n % size else n
        short = slice(begin, begin + n % size)  # the rows, as they are built, of the batch that is shorter
        starts = sorted({*range(0, begin + 1, size), *range(short.stop, n + 1, size)})
        with progress.task("building batches", total=n, unit="rows") as advance:
            for k, (start, end) in enumerate(pairwise(starts)):
                if k >= prepared_until:
                    self.line = self.line[~self.used[self.line]]
                    ahead = int(np.clip((n - start) // (AHEAD * size), 1, 64))
                    prepared_until = k + ahead
                    self.lists.clear()
                    self.search(self.line[: ahead * self.seeds], self.candidates)
                order[start:end] = self.batch(end - start)
                advance(end - start)
        batches = Batches(np.concatenate([np.delete(order, short), order[short]]), size)
        return shuffled(swap_conflicts(batches, self.known, rng=self.rng), rng=self.rng)

    def batch(self, size: int) -> Rows:
        """Return the next batch of `size` rows, its seeds first."""
        batch = np.empty(size, np.int64)
        self.stamp += 1
        filled = 0
        for groups in (self.groups, NO_ROWS) if self.groups.size else (NO_ROWS,):
            filled = self.take(self.line, batch, filled, min(self.seeds, size), groups)
        seed_rows = batch[:filled].copy()
        queries, documents = (side[seed_rows].astype(np.float32) for side in (self.queries, self.documents))
        toward = queries - np.float32(self.alpha) * documents  # whose products with documents are w (eq. 6)
        totals = logsumexp(self.weights(toward, seed_rows), axis=1)
        for factor in WIDER:
            if filled >= min(size, self.classes):
                break
            filled = self.greedy(toward, totals, self.near(seed_rows, factor), batch, filled)
        unused = self.rng.permutation(np.flatnonzero(~self.used)) if filled < size else NO_ROWS
        while filled < size:  # in rounds without inner conflicts: classes in turn
            filled = self.take(unused, batch, filled, size, NO_ROWS)
            self.stamp += 1
        return batch

    def search(self, seeds: Rows, k: int) -> None:
        """List the unused rows nearest to each seed, `SPARE` times k."""
        rows, _ = nearest(self.queries[seeds], self.documents, np.flatnonzero(~self.used), k=k * SPARE)
        self.lists.update(zip(seeds.tolist(), rows, strict=True))

    def near(self, seeds: Rows, factor: int) -> Rows:
        """Return the union over `seeds` of each one's `factor`·candidates nearest unused rows, ascending.

        As exact as `nearest`: a list with too few rows left is searched again.
        """
        want = min(self.candidates * factor, int(np.count_nonzero(~self.used)))
        lists = {seed: self.lists.get(seed, NO_ROWS) for seed in seeds.tolist()}
        left = {seed: rows[~self.used[rows]] for seed, rows in lists.items()}
        short = [seed for seed, rows in left.items() if rows.size < want]
        if short:
            self.search(np.asarray(short, np.int64), self.candidates * factor)
            left.update({seed: self.lists[seed] for seed in short})
        return np.unique(np.concatenate([rows[:want] for rows in left.values()]))

    def greedy(
        self, toward: NDArray[np.float32], totals: NDArray[np.float64], rows: Rows, batch: Rows, filled: int
    ) -> int:
        """Add the rows of highest gain to the batch until it is full or no row fits; return its size."""
        from foils.batching import kernels

        weights = self.weights(toward, rows)
        above = np.maximum(weights.max(axis=1, initial=-np.inf) - totals, 0.0).sum()
        if above < kernels.FINITE:
            return kernels.greedy(weights, totals, rows, self.stamp, self.state, batch, filled)
        one = np.empty(1, np.int64)  # a very small τ_h: the plain form, which no weight makes infinite
        chosen = greedy(
            totals[:, None], weights, size=batch.size - filled, tau=1.0,
            admits=lambda at: self.take(rows[at : at + 1], one, 0, 1, NO_ROWS) == 1,
        )  # fmt: skip
        batch[filled : filled + chosen.size] = rows[chosen]
        totals[:] = logsumexp(np.column_stack([totals, weights[:, chosen]]), axis=1)
        return filled + chosen.size

    def take(self, line: Rows, batch: Rows, filled: int, until: int, groups: Rows) -> int:
        """Add the first unused rows of a line that conflict with nobody; return the batch's size."""
        from foils.batching import kernels

        return kernels.take(line, groups, self.group_stamp, self.stamp, self.state, batch, filled, until)

    def weights(self, toward: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """Return w_ij / τ_h of the seeds, as `toward` gives them, with `rows`."""
        documents: NDArray[np.float32] = self.documents[rows].astype(np.float32, copy=False)
        return (toward @ documents.T).astype(np.float64) / self.tau
