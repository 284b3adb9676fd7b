"""The methods of batching by name, and HOBIT's rivals NGAME, BatchSampler, B3, checked against authors' code.

All methods take the same arguments; each has settings of its own, with defaults.

NGAME: batches from balanced clusters of the current queries (Dahiya et al., WSDM 2023).

Checked against the authors' code (Extreme-classification/ngame: `ClusteringIndex`,
`indices_permutation`, the configuration for LF-AmazonTitles-131K): recursive balanced 2-means,
clusters shuffled, joined and cut into batches. There the first epochs are random, clusters are made
anew every 5 epochs, and their size starts at 1 and doubles at epochs 10, 20, 25, 50, 75, 100, 125,
150 and 200, up to a third of its batches of 1,600: a curriculum for hundreds of epochs. Here the
clusters have one size for the whole training, by default a whole batch (HOBIT's comparison does not
give its size); they are made anew in each epoch, and `warmup` of the planner is the random epochs.
Theirs clusters documents that bring sampled labels, ours queries that bring their documents; ours
also shuffles inside a cluster, and keeps rows that conflict apart on request.

BatchSampler: random walks with restart on a proximity graph of the queries (Yang et al., KDD 2023).

Checked against the authors' code (THUDM/BatchSampler: `build_graph`, `random_walk`, train.sh): M =
1,000 random candidates a row, its K = 100 nearest of them as edges, uniform steps, restart
probability 0.2: the defaults here. There the restart probability then falls by 0.02 an epoch to
0.05, the first epoch is random, and the graph is built anew every 100 batches from the vectors of
the passes in between; here the restart probability is a constant and the graph is of one epoch's
vectors (`warmup` of the planner is the random epochs). Their set of rows already visited is emptied
before each walk, so rows come twice in an epoch and others first in its last batches; here every
row comes once. Candidates are drawn with replacement there, row by row; here without, and shared by
the 256 rows of a random group.

B3: batches from communities of a teacher's rank graph, found once (Thirukovalluru et al., NeurIPS 2025).

Checked against the paper (arXiv 2505.11293: ranks p..p + m of each query make an undirected graph,
METIS cuts it into communities of K, a batch joins |B| / K of them) and the settings in the authors'
code (raghavlite/B3: communities of 32; 30 and 130 in the name of the published model): p = 30, m =
100, K = 32 are the defaults here. The code that builds the graph is not published. Ours weighs an
edge found from both sides 2 (the paper's graph is a plain one), keeps rows that conflict apart on
request, and joins communities as METIS makes them, about K rows each, where the authors' training
reads chunks of exactly K.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from foils.batching.batches import (
    Batches,
    Conflicts,
    Matrix,
    Rows,
    check_batch_size,
    check_vectors,
    nearest,
    no_conflicts,
    random_batches,
    separate_conflicts,
    swap_conflicts,
)
from foils.batching.hobit import hobit_batches
from foils.data.run import grouped
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.options import Option, settings_checked


def ngame_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    cluster_size: int = 0,
) -> Batches:
    """Return batches joined from balanced clusters of the queries (NGAME, section 3).

    The queries are clustered by recursive balanced 2-means; the clusters are shuffled, joined and
    cut into batches.

    Args:
        queries: (N, d) current query vectors.
        documents: (N, d); not looked at.
        batch_size: rows per batch.
        rng: draws the starts of the clustering and the order of the clusters.
        conflicts: rows to keep apart (NGAME itself has none).
        cluster_size: largest cluster; at `batch_size` (0) a batch is about one cluster, below it a
            batch joins several and is more varied.
    """
    check_vectors(queries, documents)
    clusters = balanced_clusters(queries, size=cluster_size or batch_size, rng=rng)
    return joined(clusters, batch_size=batch_size, rng=rng, conflicts=conflicts)


def joined(
    groups: Sequence[Rows], *, batch_size: int, rng: np.random.Generator, conflicts: Conflicts | None = None
) -> Batches:
    """Shuffle groups of rows, join them end to end and cut the line into batches.

    A group stays together as far as the cuts and the conflicts allow, so neighbours in a group meet
    in a batch.

    Args:
        groups: disjoint vectors of row numbers that together are 0..N-1; empty ones are fine.
        batch_size: rows per batch.
        rng: draws the order of the groups, and of the rows inside each.
        conflicts: rows to keep apart.
    """
    parts = [rng.permutation(groups[g]) for g in rng.permutation(len(groups))]
    line = np.concatenate([np.empty(0, np.int64), *parts])
    return separate_conflicts(line, conflicts, batch_size=batch_size, rng=rng)


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
    Option(least=1).check("cluster_size", size)
    todo, done = [np.arange(vectors.shape[0], dtype=np.int64)], []
    while todo:
        rows = todo.pop()
        if rows.size <= size:
            done.append(rows)
        else:
            left = _half(vectors, rows, rng, rounds)
            todo += [rows[~left], rows[left]]
    return done


def _half(vectors: Matrix, rows: Rows, rng: np.random.Generator, rounds: int) -> NDArray[np.bool_]:
    """Say which rows go to the first of two equal clusters.

    With both sizes fixed, Σ x·c(x) is largest when the rows are sorted by x·(c_0 − c_1) and cut in
    the middle.
    """
    first, second = vectors[rng.choice(rows, size=2, replace=False)].astype(np.float32)
    axis, left = first - second, np.zeros(rows.size, bool)
    for _ in range(rounds):
        along = np.concatenate([block.astype(np.float32) @ axis for block in _blocks(vectors, rows)])
        before, left = left, np.zeros(rows.size, bool)
        left[np.argsort(-along, kind="stable")[: (rows.size + 1) // 2]] = True
        if np.array_equal(left, before):
            break
        axis = _centre(vectors, rows[left]) - _centre(vectors, rows[~left])
    return left


def _blocks(vectors: Matrix, rows: Rows) -> Iterator[NDArray[np.floating]]:
    return (vectors[rows[start : start + 8192]] for start in range(0, rows.size, 8192))


def _centre(vectors: Matrix, rows: Rows) -> NDArray[np.float32]:
    total = np.sum([block.sum(axis=0, dtype=np.float64) for block in _blocks(vectors, rows)], axis=0)
    norm = np.linalg.norm(total)
    return np.asarray(total / norm if norm > 0 else total, np.float32)


def batchsampler_batches(
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

    A walk passes through used rows but collects only unused ones. After 10 · `batch_size` steps
    without a new row it moves to another start.

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
    from foils.batching import kernels

    n = queries.shape[0]
    known = no_conflicts(n) if conflicts is None else conflicts
    order = np.empty(n, np.int64)
    start = rng.permutation(n).astype(np.int64)
    kernels.walk(start, graph, batch_size, float(restart), 10 * batch_size, known.state(), order, rng)
    return swap_conflicts(Batches(order, batch_size), known, rng=rng)


def proximity_graph(
    vectors: NDArray[np.floating],
    *,
    candidates: int,
    neighbours: int,
    rng: np.random.Generator,
    block: int = 256,
) -> Rows:
    """Return each row's `neighbours` nearest among `candidates` random rows, (N, min(neighbours, N − 1)).

    Rows are taken in random groups of `block` that share their candidates: every row's candidates
    are still uniform, and the products are matrix products. A row is not its own neighbour.
    """
    Option(least=1, most=candidates).check("neighbours", neighbours)
    n = vectors.shape[0]
    draw, keep = min(candidates + 1, n), min(neighbours, n - 1)
    graph = np.empty((n, keep), np.int64)
    shuffle = rng.permutation(n)
    for start in range(0, n if keep else 0, block):
        rows = shuffle[start : start + block]
        among = np.sort(rng.choice(n, size=draw, replace=False))
        nearby, _ = nearest(vectors[rows], vectors, among, k=min(keep + 1, draw))
        graph[rows] = _others(nearby, rows)[:, :keep]
    return graph


def _others(nearby: Rows, rows: Rows) -> Rows:
    """Leave each row itself, or else the last, out of those near it: (m, k) → (m, k − 1)."""
    itself = nearby == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(nearby[~itself].reshape(rows.size, -1))


def b3_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
    skip: int = 30,
    ranks: int = 100,
    community_size: int = 32,
) -> Batches:
    """Return batches joined from communities of the teacher's rank graph (B3).

    The communities depend on the vectors alone: with a teacher's vectors, kept fixed, they are the
    same in every epoch and only their order is new. `rank_communities` computes them once for many
    epochs.

    Args:
        queries: (N, d) the *teacher's* query vectors.
        documents: (N, d) the teacher's vectors of the documents paired with them.
        batch_size: rows per batch.
        rng: draws the order of communities.
        conflicts: rows to keep apart (B3 relies on `skip` instead).
        skip: p, top ranks left out of the graph because they may be unlabelled positives.
        ranks: m, how many of the next ranks become edges; more of them make easier, larger-meshed
            communities.
        community_size: K, rows per community, about; a batch joins batch_size / K of them, and
            harder batches come with larger communities.
    """
    check_vectors(queries, documents)
    community = rank_communities(queries, documents, community_size=community_size, skip=skip, ranks=ranks)
    return joined(grouped(community), batch_size=batch_size, rng=rng, conflicts=conflicts)


def rank_communities(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    community_size: int = 32,
    skip: int = 30,
    ranks: int = 100,
) -> Rows:
    """Return (N,) each row's community, of about `community_size` in the teacher's rank graph, by METIS.

    Row i has an edge to each row j whose document holds rank `skip`..`skip + ranks − 1` (0-based,
    i's own document left out) by q_i·d_j; an edge found from both sides weighs 2.
    METIS minimises the weight of the edges cut between ⌈N / size⌉ parts of nearly equal size; its
    seed is fixed.

    Raises:
        InputError: `community_size` < 1, `skip` < 0 or `ranks` < 1.
        MissingExtraError: pymetis is not installed.
    """
    for name, value, least in (("community_size", community_size, 1), ("skip", skip, 0), ("ranks", ranks, 1)):
        Option(least=least).check(name, value)
    n = queries.shape[0]
    parts = -(-n // community_size)
    if parts <= 1:
        return np.zeros(n, np.int64)
    pymetis = require("pymetis", "batch")
    starts, ends, weights = _rank_graph(queries, documents, skip, ranks)
    how = {"eweights": weights, "options": pymetis.Options(seed=0), "recursive": False}
    _, part = pymetis.part_graph(parts, pymetis.CSRAdjacency(starts, ends), **how)
    return np.asarray(part, np.int64)


def _rank_graph(queries: Matrix, documents: Matrix, skip: int, ranks: int) -> tuple[Rows, Rows, Rows]:
    """Return the symmetric rank graph as compressed rows: starts, ends, weights."""
    n, edges = queries.shape[0], list[Rows]()
    everybody = np.arange(n, dtype=np.int64)
    for rows in np.split(everybody, range(1024, n, 1024)):
        nearby, _ = nearest(queries[rows], documents, everybody, k=min(skip + ranks + 1, n))
        edges.append(_others(nearby, rows)[:, skip:])
    heads = np.concatenate(edges)
    starts = np.arange(n + 1) * heads.shape[1]
    graph = csr_matrix((np.ones(heads.size, np.int64), heads.ravel(), starts), shape=(n, n))
    graph = (graph + graph.T).tocsr()
    graph.sort_indices()
    return graph.indptr.astype(np.int64), graph.indices.astype(np.int64), graph.data.astype(np.int64)


COMMON = frozenset({"queries", "documents", "batch_size", "rng", "conflicts"})


@dataclass(frozen=True)
class BatchingMethod:
    """A way to build the batches of an epoch.

    Attributes:
        build: `(queries, documents, *, batch_size, rng, conflicts, **settings)` → Batches.
        vectors: whose vectors it looks at: "none", "current" (embedded anew for each epoch),
            "cached" (left by the previous epoch's own forward passes) or "teacher" (fixed before
            training).
    """

    build: Callable[..., Batches]
    vectors: str

    @property
    def settings(self) -> dict[str, Any]:
        """Its own settings and their defaults."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in COMMON and p.kind != p.VAR_KEYWORD}


#: The methods of batching by name.
METHODS: dict[str, BatchingMethod] = {
    "random": BatchingMethod(random_batches, "none"),
    "hobit": BatchingMethod(hobit_batches, "current"),
    "hobit-c": BatchingMethod(hobit_batches, "cached"),
    "ngame": BatchingMethod(ngame_batches, "current"),
    "walks": BatchingMethod(batchsampler_batches, "current"),
    "b3": BatchingMethod(b3_batches, "teacher"),
}


SCHEDULE = {"warmup": 0, "anneal": 0}
"""Settings that every method has beside its own, in epochs, as `BatchPlanner` takes them."""
TEACHER = "teacher"
"""A setting of B3 in a training alone: the name of its teacher."""


def method_named(name: str, settings: Mapping[str, Any]) -> BatchingMethod:
    """Return the method of this name, having checked that it has these settings.

    Raises:
        UnknownNameError: no such method, or no such setting of it.
        InputError: a setting of another type than its default.
    """
    check_names("batching method", [name], METHODS)
    method = METHODS[name]
    more = {TEACHER: ""} if method.vectors == "teacher" else {}
    settings_checked(name, {**method.settings, **SCHEDULE, **more}, settings)
    return method
