"""BatchSampler: random walks with restart on a proximity graph of the queries (Yang et al., KDD 2023).

Checked against the authors' code (THUDM/BatchSampler: `build_graph`, `random_walk`, train.sh): M = 1,000 random
candidates a row, its K = 100 nearest of them as edges, uniform steps, restart probability 0.2: the defaults here.
There the restart probability then falls by 0.02 an epoch to 0.05, the first epoch is random, and the graph is built
anew every 100 batches from the vectors of the passes in between; here the restart probability is a constant and the
graph is of one epoch's vectors (`warmup` and `refresh` of the planner). Their set of rows already visited is emptied
before each walk, so rows come twice in an epoch and others first in its last batches; here every row comes once.
Candidates are drawn with replacement there, row by row; here without, and shared by the 256 rows of a random group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Batches, Rows, check_batch_size, check_vectors
from foils.batching.conflicts import Conflicts, no_conflicts
from foils.batching.nearest import nearest
from foils.batching.repair import repaired
from foils.runtime.errors import InputError, require


def walks_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    candidates: int = 1000,
    neighbours: int = 100,
    restart: float = 0.2,
) -> Batches:
    """Return batches visited by random walks with restart on a proximity graph of the queries (BatchSampler).

    A walk passes through used rows but collects only unused ones. After 10 · `batch_size` steps without a new row it
    moves to another start.

    Args:
        queries: (N, d) current query vectors.
        documents: (N, d); not looked at.
        batch_size: rows per batch.
        rng: draws the candidates, the starts and the walks.
        conflicts: rows to keep apart (BatchSampler itself has none).
        candidates: M, random rows of which each row's neighbours are the nearest; fewer make batches easier.
        neighbours: K ≤ M, edges per row.
        restart: probability of going back to the start, in [0, 1); more of it stays nearer to the start.
    """
    check_vectors(queries, documents)
    check_batch_size(batch_size)
    if not 0 <= restart < 1:
        raise InputError(f"restart is a probability below 1; got {restart}")
    graph = proximity_graph(queries, candidates=candidates, neighbours=neighbours, rng=rng)
    require("numba", "batch")
    from foils.batching import kernels

    n = queries.shape[0]
    known = no_conflicts(n) if conflicts is None else conflicts
    order = np.empty(n, np.int64)
    start = rng.permutation(n).astype(np.int64)
    kernels.walk(start, graph, batch_size, float(restart), 10 * batch_size, known.state(), order, rng)
    batches = Batches(order, batch_size)
    return batches if conflicts is None else repaired(batches, conflicts, rng=rng)


def proximity_graph(
    vectors: NDArray[np.floating],
    *,
    candidates: int,
    neighbours: int,
    rng: np.random.Generator,
    block: int = 256,
) -> Rows:
    """Return each row's `neighbours` nearest among `candidates` random rows, (N, min(neighbours, N − 1)).

    Rows are taken in random groups of `block` that share their candidates: every row's candidates are still uniform,
    and the products are matrix products. A row is not its own neighbour.
    """
    if not 1 <= neighbours <= candidates:
        raise InputError(f"neighbours is between 1 and candidates {candidates}; got {neighbours}")
    n = vectors.shape[0]
    draw, keep = min(candidates + 1, n), min(neighbours, n - 1)
    graph = np.empty((n, keep), np.int64)
    shuffle = rng.permutation(n)
    for start in range(0, n if keep else 0, block):
        rows = shuffle[start : start + block]
        among = np.sort(rng.choice(n, size=draw, replace=False))
        nearby, _ = nearest(vectors[rows], vectors, among, k=min(keep + 1, draw))
        own = nearby == rows[:, None]
        own[~own.any(axis=1), -1] = True
        graph[rows] = nearby[~own].reshape(rows.size, -1)[:, :keep]
    return graph
