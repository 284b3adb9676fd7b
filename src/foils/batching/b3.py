"""B3: batches from communities of a teacher's rank graph, found once (Thirukovalluru et al., NeurIPS 2025).

Checked against the paper (arXiv 2505.11293: ranks p..p + m of each query make an undirected graph, METIS cuts it into
communities of K, a batch joins |B| / K of them) and the settings in the authors' code (raghavlite/B3: communities of
32; 30 and 130 in the name of the published model): p = 30, m = 100, K = 32 are the defaults here. The code that builds
the graph is not published. Ours weighs an edge found from both sides 2 (the paper's graph is a plain one), keeps rows
that conflict apart on request, and joins communities as METIS makes them, about K rows each, where the authors'
training reads chunks of exactly K.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix

from foils.batching.batches import Batches, Rows, check_batch_size, check_vectors, joined
from foils.batching.conflicts import Conflicts
from foils.batching.nearest import nearest
from foils.batching.repair import dealt
from foils.runtime.errors import InputError, require


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

    The communities depend on the vectors alone: with a teacher's vectors, kept fixed, they are the same in every
    epoch and only their order is new. `rank_communities` computes them once for many epochs.

    Args:
        queries: (N, d) the *teacher's* query vectors.
        documents: (N, d) the teacher's vectors of the documents paired with them.
        batch_size: rows per batch.
        rng: draws the order of communities.
        conflicts: rows to keep apart (B3 relies on `skip` instead).
        skip: p, top ranks left out of the graph because they may be unlabelled positives.
        ranks: m, how many of the next ranks become edges; more of them make easier, larger-meshed communities.
        community_size: K, rows per community, about; a batch joins batch_size / K of them, and harder batches come
            with larger communities.
    """
    check_vectors(queries, documents)
    check_batch_size(batch_size)
    communities = rank_communities(queries, documents, community_size=community_size, skip=skip, ranks=ranks)
    return community_batches(communities, batch_size=batch_size, rng=rng, conflicts=conflicts)


def community_batches(
    communities: list[Rows],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
) -> Batches:
    """Shuffle communities, join them and cut batches; with `conflicts`, keep rows in conflict apart."""
    batches = joined(communities, batch_size=batch_size, rng=rng)
    return batches if conflicts is None else dealt(batches.order, conflicts, batch_size=batch_size, rng=rng)


def rank_communities(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    community_size: int = 32,
    skip: int = 30,
    ranks: int = 100,
) -> list[Rows]:
    """Partition the rows into communities of about `community_size` in the teacher's rank graph, by METIS.

    Row i has an edge to each row j whose document holds rank `skip`..`skip + ranks − 1` (0-based, i's own document
    left out) by q_i·d_j; an edge found from both sides weighs 2.
    METIS minimises the weight of the edges cut between ⌈N / size⌉ parts of nearly equal size; its seed is fixed.

    Raises:
        InputError: `community_size` < 1, `skip` < 0 or `ranks` < 1.
        MissingExtraError: pymetis is not installed.
    """
    bad = [
        f"{name} must be at least {least}, got {given}"
        for name, given, least in (("community_size", community_size, 1), ("skip", skip, 0), ("ranks", ranks, 1))
        if given < least
    ]
    if bad:
        raise InputError("; ".join(bad))
    n = queries.shape[0]
    parts = -(-n // community_size)
    if parts <= 1:
        return [np.arange(n, dtype=np.int64)]
    pymetis = require("pymetis", "batch")
    starts, ends, weights = _rank_graph(queries, documents, skip, ranks)
    _, part = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(starts, ends),
        eweights=weights,
        options=pymetis.Options(seed=0),
        recursive=False,
    )
    part = np.asarray(part)
    order = np.argsort(part, kind="stable").astype(np.int64)
    groups = np.split(order, np.cumsum(np.bincount(part, minlength=parts))[:-1])
    return [group for group in groups if group.size]


def _rank_graph(
    queries: NDArray[np.floating], documents: NDArray[np.floating], skip: int, ranks: int, block: int = 1024
) -> tuple[Rows, Rows, Rows]:
    """Return the symmetric rank graph as compressed rows: starts, ends, weights."""
    n = queries.shape[0]
    everybody = np.arange(n, dtype=np.int64)
    tails, heads = [], []
    for start in range(0, n, block):
        rows = everybody[start : start + block]
        nearby, _ = nearest(queries[rows], documents, everybody, k=min(skip + ranks + 1, n))
        own = nearby == rows[:, None]
        own[~own.any(axis=1), -1] = True
        kept = nearby[~own].reshape(rows.size, -1)[:, skip:]
        tails.append(np.repeat(rows, kept.shape[1]))
        heads.append(kept.ravel())
    tail, head = np.concatenate(tails), np.concatenate(heads)
    graph = coo_matrix((np.ones(tail.size, np.int64), (tail, head)), shape=(n, n)).tocsr()
    graph = (graph + graph.T).tocsr()
    graph.sort_indices()
    return graph.indptr.astype(np.int64), graph.indices.astype(np.int64), graph.data.astype(np.int64)
