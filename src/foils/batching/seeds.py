"""In which order rows are drawn as seeds of batches (HOBIT A.11).

Each strategy returns a permutation of the rows and, where seeds of a batch should differ in some way, a group for each
row. A batch's seeds are the first unused rows of the permutation, of different groups while there is a choice. Since
which rows are used does not depend on how the rest is permuted, the uniform order draws uniformly from the unused.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Rows

POOL = 256
"""Rows that one facility-location ranking represents."""

SAMPLED, NEAREST = 1024, 16
"""Random queries that a document's isolation is judged by, and how many of them, the nearest, count."""


class SeedOrder(Protocol):
    """Orders the rows as seeds."""

    def __call__(
        self,
        queries: NDArray[np.floating],
        documents: NDArray[np.floating],
        *,
        seeds: int,
        rng: np.random.Generator,
    ) -> tuple[Rows, Rows]:
        """Return a permutation of the rows, and the group of each row (empty: no groups)."""
        ...


def uniform_seeds(
    queries: NDArray[np.floating], documents: NDArray[np.floating], *, seeds: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw seeds uniformly from the unused rows (HOBIT Algorithm 2, line 5)."""
    return rng.permutation(queries.shape[0]).astype(np.int64), np.empty(0, np.int64)


def kmeans_seeds(
    queries: NDArray[np.floating], documents: NDArray[np.floating], *, seeds: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw seeds uniformly, each of a batch's `seeds` from another cluster of the queries (HOBIT A.11, K-means).

    The clusters, as many as a batch has seeds, are those of mini-batch k-means.
    """
    from sklearn.cluster import MiniBatchKMeans

    n = queries.shape[0]
    model = MiniBatchKMeans(
        min(seeds, n), random_state=int(rng.integers(2**31)), n_init=1, batch_size=4096, max_iter=20
    )
    step = max(1, n // 65536)
    model.fit(np.asarray(queries[::step], np.float32))
    groups = np.concatenate([model.predict(np.asarray(queries[i : i + 16384], np.float32)) for i in range(0, n, 16384)])
    return rng.permutation(n).astype(np.int64), groups.astype(np.int64)


def facility_location_seeds(
    queries: NDArray[np.floating], documents: NDArray[np.floating], *, seeds: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw first the seeds that best represent random pools of rows (HOBIT A.11, facility location).

    The rows are split at random into pools of 256. Within a pool, rows are ranked by greedy maximisation of the
    coverage Σ_i max_{j ∈ chosen} max(0, q_i·q_j). The order takes the first `seeds` of every pool, then the next ones.
    Pools instead of the whole keep the cost linear in N.
    """
    n = queries.shape[0]
    shuffle = rng.permutation(n)
    rank, pool_of = np.empty(n, np.int64), np.empty(n, np.int64)
    for pool, start in enumerate(range(0, n, POOL)):
        rows = shuffle[start : start + POOL]
        rank[rows[coverage_order(np.asarray(queries[rows], np.float64))]] = np.arange(rows.size)
        pool_of[rows] = pool
    return np.lexsort((rank, pool_of, rank // seeds)).astype(np.int64), np.empty(0, np.int64)


def isolated_first_seeds(
    queries: NDArray[np.floating], documents: NDArray[np.floating], *, seeds: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw first the rows whose document is furthest from the queries: nobody else would call for them.

    A document that no query finds near is in no seed's candidates, so under uniform seeds such rows are left for the
    last batches, which are the easiest. Here each is the seed of a batch of its own neighbours while those are still
    unused. A document's nearness is the mean of its 16 highest products with 1,024 queries drawn by `rng`, its own
    left out; rows come by rising nearness, ties by position. Not in the paper.
    """
    n = queries.shape[0]
    sampled = np.sort(rng.choice(n, size=min(SAMPLED, n), replace=False))
    right, count = queries[sampled].astype(np.float32), min(NEAREST, sampled.size)
    nearness = np.empty(n, np.float32)
    for start in range(0, n, 8192):
        scores = documents[start : start + 8192].astype(np.float32) @ right.T
        own = np.flatnonzero((sampled >= start) & (sampled < start + len(scores)))
        scores[sampled[own] - start, own] = -1.0
        nearness[start : start + len(scores)] = np.sort(np.partition(scores, -count, axis=1)[:, -count:], axis=1).mean(
            1
        )
    return np.argsort(nearness, kind="stable").astype(np.int64), np.empty(0, np.int64)


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
    "isolated-first": isolated_first_seeds,
}
