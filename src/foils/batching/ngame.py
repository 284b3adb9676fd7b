"""NGAME: batches from balanced clusters of the current queries (Dahiya et al., WSDM 2023).

Checked against the authors' code (Extreme-classification/ngame: `ClusteringIndex`, `indices_permutation`, the
configuration for LF-AmazonTitles-131K): recursive balanced 2-means, clusters shuffled, joined and cut into batches.
There the first epochs are random, clusters are made anew every 5 epochs, and their size starts at 1 and doubles at
epochs 10, 20, 25, 50, 75, 100, 125, 150 and 200, up to a third of its batches of 1,600: a curriculum for hundreds of
epochs. Here the clusters have one size for the whole training, by default a whole batch (HOBIT's comparison does not
give its size); `warmup` and `refresh` of the planner are the random epochs and the interval. Theirs clusters
documents that bring sampled labels, ours queries that bring their documents; ours also shuffles inside a cluster, and
keeps rows that conflict apart on request.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Batches, Rows, check_vectors, joined
from foils.batching.conflicts import Conflicts
from foils.batching.repair import dealt
from foils.runtime.errors import InputError


def ngame_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    cluster_size: int | None = None,
) -> Batches:
    """Return batches joined from balanced clusters of the queries (NGAME, section 3).

    The queries are clustered by recursive balanced 2-means; the clusters are shuffled, joined and cut into batches.

    Args:
        queries: (N, d) current query vectors.
        documents: (N, d); not looked at.
        batch_size: rows per batch.
        rng: draws the starts of the clustering and the order of the clusters.
        conflicts: rows to keep apart (NGAME itself has none).
        cluster_size: largest cluster; at `batch_size` (None) a batch is about one cluster, below it a batch joins
            several and is more varied.
    """
    check_vectors(queries, documents)
    clusters = balanced_clusters(queries, size=batch_size if cluster_size is None else cluster_size, rng=rng)
    batches = joined(clusters, batch_size=batch_size, rng=rng)
    return batches if conflicts is None else dealt(batches.order, conflicts, batch_size=batch_size, rng=rng)


def balanced_clusters(
    vectors: NDArray[np.floating], *, size: int, rng: np.random.Generator, rounds: int = 10
) -> list[Rows]:
    """Halve the rows by balanced spherical 2-means until every cluster has at most `size` rows.

    Args:
        vectors: (N, d) unit vectors.
        size: ≥ 1.
        rng: draws two rows of a cluster as its first centres.
        rounds: at most this many assignments per halving; it ends earlier when nobody moves.

    Returns:
        disjoint clusters whose sizes differ by at most one within a level, together all rows.
    """
    if size < 1:
        raise InputError(f"a cluster has at least 1 row; got cluster_size {size}")
    todo, done = [np.arange(vectors.shape[0], dtype=np.int64)], []
    while todo:
        rows = todo.pop()
        if rows.size <= size:
            done.append(rows)
        else:
            left = _half(vectors, rows, rng, rounds)
            todo += [rows[~left], rows[left]]
    return done


def _half(
    vectors: NDArray[np.floating], rows: Rows, rng: np.random.Generator, rounds: int, block: int = 8192
) -> NDArray[np.bool_]:
    """Say which rows go to the first of two equal clusters.

    With both sizes fixed, Σ x·c(x) is largest when the rows are sorted by x·(c_0 − c_1) and cut in the middle.
    """
    first, second = vectors[rng.choice(rows, size=2, replace=False)].astype(np.float32)
    axis, left = first - second, np.zeros(rows.size, bool)
    for _ in range(rounds):
        along = np.concatenate(
            [vectors[rows[i : i + block]].astype(np.float32) @ axis for i in range(0, rows.size, block)]
        )
        before = left
        left = np.zeros(rows.size, bool)
        left[np.argsort(-along, kind="stable")[: (rows.size + 1) // 2]] = True
        if np.array_equal(left, before):
            break
        axis = _centre(vectors, rows[left], block) - _centre(vectors, rows[~left], block)
    return left


def _centre(vectors: NDArray[np.floating], rows: Rows, block: int) -> NDArray[np.float32]:
    total = np.zeros(vectors.shape[1])
    for i in range(0, rows.size, block):
        total += vectors[rows[i : i + block]].sum(axis=0, dtype=np.float64)
    norm = np.linalg.norm(total)
    centre: NDArray[np.float32] = (total / norm if norm > 0 else total).astype(np.float32)
    return centre
