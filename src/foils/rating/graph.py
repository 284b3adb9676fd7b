"""Which pairs to ask about: sparse random graphs that are regular, simple and connected (ANMI 2.0, section 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from foils.rating.pairs import Floats, Pairs, Rows, by_size, rectangle
from foils.runtime import memory
from foils.runtime.errors import InputError

_REPAIRS = 200
_DRAWN = 2**22  # cells of the adjacencies of graphs drawn together; another number draws other graphs
_CELLS = 2**20  # cells of the adjacencies looked at together
_CELL = 40  # bytes a cell takes: Laplacian, its copy and the powers of the adjacency


def all_pairs(sizes: npt.ArrayLike) -> Pairs:
    """Return every pair of each query's candidates; `sizes` is (Q,) how many each has."""
    return _assemble(_sizes(sizes), lambda n, count: [_complete(n, count)])


def regular_pairs(sizes: npt.ArrayLike, *, degree: int = 6, rng: np.random.Generator) -> Pairs:
    """Return for each query the union of degree/2 random Hamiltonian cycles over its candidates.

    The union of independent cycles (eq. 32, Algorithm 2) can repeat an edge, which then leaves a candidate with
    fewer neighbours. Here a cycle that meets an edge of an earlier one has an end of that edge exchanged with a random
    place until none is repeated, so the graph is simple, connected and exactly `degree`-regular: degree·n/2 pairs.
    Where that random search does not end (n close to the degree), the cycles are those of Walecki's decomposition of
    the complete graph, under a random numbering. Where n ≤ degree + 1, all pairs are compared.

    Args:
        sizes: (Q,) int, how many candidates each query has; 0 and 1 give no pair.
        degree: k, even, at least 2: comparisons per candidate.
        rng: draws the cycles.

    Returns:
        The pairs of all queries; the order inside a pair is random.

    Raises:
        InputError: an odd degree, one below 2, or a negative size.

    Source: ANMI 2.0 eq. 32 and Algorithm 2; Alspach (2008) for Walecki's construction.
    """
    if degree < 2 or degree % 2:
        raise InputError(
            f"degree {degree}: a union of cycles has an even degree of at least 2; take {degree + degree % 2}"
        )

    def edges(n: int, count: int) -> Iterable[Rows]:
        if n <= degree + 1:
            return [_complete(n, count)]
        block = max(1, _DRAWN // (n * n))
        return (_cycles(n, degree, min(block, count - start), rng) for start in range(0, count, block))

    return _assemble(_sizes(sizes), edges, degree=degree)


def algebraic_connectivity(pairs: Pairs) -> Floats:
    """Return (Q,) the second smallest eigenvalue of each query's graph Laplacian D − A.

    It is 0 where the graph is not connected; larger means that errors spread less (Var ≤ 1/λ₂, eq. A.6); a random
    k-regular graph has about k − 2√(k − 1) (Friedman). NaN for queries with fewer than two candidates.
    """
    result = np.full(pairs.queries, np.nan)
    for queries, adjacency in _adjacency(pairs):
        laplacian = -adjacency
        diagonal = np.arange(laplacian.shape[1])
        laplacian[:, diagonal, diagonal] = adjacency.sum(axis=2)
        with threadpool_limits(1, user_api="blas"):
            result[queries] = np.maximum(np.linalg.eigvalsh(laplacian)[:, 1], 0.0)
    return result


def diameter(pairs: Pairs) -> Floats:
    """Return (Q,) the longest shortest path of each query's graph, in pairs; inf where it is not connected.

    NaN for queries with fewer than two candidates.
    """
    result = np.full(pairs.queries, np.nan)
    for queries, adjacency in _adjacency(pairs):
        n = adjacency.shape[1]
        step = (adjacency > 0) | np.eye(n, dtype=bool)
        reached, length = step, np.where(step.all(axis=(1, 2)), 1.0, np.inf)
        for steps in range(2, n):
            with threadpool_limits(1, user_api="blas"):
                before, reached = reached, (reached.astype(np.float32) @ step.astype(np.float32)) > 0
            if np.array_equal(before, reached):
                break
            length[np.isinf(length) & reached.all(axis=(1, 2))] = steps
        result[queries] = length
    return result


def _sizes(sizes: npt.ArrayLike) -> Rows:
    numbers = np.asarray(sizes, np.int64)
    if numbers.ndim != 1 or (numbers < 0).any():
        raise InputError("sizes must be one row of numbers of candidates, none negative")
    return numbers


def _assemble(sizes: Rows, edges: Callable[[int, int], Iterable[Rows]], *, degree: int | None = None) -> Pairs:
    """Put edges(n, count), parts (c, m, 2) that cover the queries of each size n, at their queries' places."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    counts = sizes * (sizes - 1) // 2 if degree is None else sizes * np.minimum(sizes - 1, degree) // 2
    begins = np.cumsum(counts) - counts
    first, second = np.empty((2, counts.sum()), np.int64)
    for n, queries in by_size(sizes):
        done = 0
        for part in edges(n, len(queries)):
            chosen = queries[done : done + len(part)]
            at = begins[chosen, None] + np.arange(part.shape[1])
            first[at], second[at] = (part[..., end] + offsets[chosen, None] for end in (0, 1))
            done += len(part)
    return Pairs(offsets, first, second)


def _complete(n: int, count: int) -> Rows:
    """(count, n(n − 1)/2, 2) all edges, the same for every query."""
    ends = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)
    return np.broadcast_to(ends, (count, *ends.shape))


def _cycles(n: int, degree: int, count: int, rng: np.random.Generator) -> Rows:
    """(count, n·degree/2, 2) edges of `count` unions of edge-disjoint Hamiltonian cycles on n vertices."""
    used = np.zeros((count, n, n), bool)
    stuck = np.zeros(count, bool)
    cycles = np.empty((count, degree // 2, n), np.int64)
    for c in range(degree // 2):
        cycle = rng.permuted(np.broadcast_to(np.arange(n), (count, n)), axis=1)
        stuck |= ~_repair(cycle, used, rng)
        rows, following = np.arange(count)[:, None], np.roll(cycle, -1, axis=1)
        used[rows, cycle, following] = used[rows, following, cycle] = True
        cycles[:, c] = cycle
    for query in np.flatnonzero(stuck):
        cycles[query] = rng.permutation(n)[_walecki(n)[rng.permutation((n - 1) // 2)[: degree // 2]]]
    return np.stack([cycles, np.roll(cycles, -1, axis=2)], axis=-1).reshape(count, -1, 2)


def _repair(cycle: Rows, used: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Exchange places in each row of `cycle`, in place, until no edge is used; tell which rows got there."""
    rows, n = np.arange(len(cycle)), cycle.shape[1]
    for _ in range(_REPAIRS):
        repeated = used[rows[:, None], cycle[rows], np.roll(cycle[rows], -1, axis=1)]
        rows, repeated = rows[repeated.any(axis=1)], repeated[repeated.any(axis=1)]
        if not len(rows):
            break
        here, there = (repeated.argmax(axis=1) + 1) % n, rng.integers(n, size=len(rows))
        cycle[rows, here], cycle[rows, there] = cycle[rows, there], cycle[rows, here]
    done = np.ones(len(cycle), bool)
    done[rows] = ~used[rows[:, None], cycle[rows], np.roll(cycle[rows], -1, axis=1)].any(axis=1)
    return done


def _walecki(n: int) -> Rows:
    """((n − 1)//2, n) edge-disjoint Hamiltonian cycles of the complete graph on n vertices (Walecki, 1890s).

    Cycle i is the vertex n − 1, then the zigzag i, i + 1, i − 1, i + 2, … modulo n − 1. For even n a perfect matching
    is left over.
    """
    steps = np.arange(1, n - 1)
    zigzag = np.concatenate([[0], np.cumsum(np.where(steps % 2, steps, -steps))])
    paths = (zigzag + np.arange((n - 1) // 2)[:, None]) % (n - 1)
    return np.concatenate([np.full((len(paths), 1), n - 1), paths], axis=1)


def _adjacency(pairs: Pairs) -> Iterator[tuple[Rows, Floats]]:
    """Yield (B,) queries of one size n ≥ 2 and their (B, n, n) adjacency, repeated pairs counted once."""
    for n, of_size in by_size(pairs.sizes):
        size = max(1, memory.rows_at_once(_CELL, most=_CELLS) // max(n, 1) ** 2)
        for start in range(0, len(of_size) if n >= 2 else 0, size):
            block = rectangle(pairs, of_size[start : start + size])
            query, first, second = block.first // n, block.first % n, block.second % n
            adjacency = np.zeros((len(block.queries), n, n))
            adjacency[query, first, second] = adjacency[query, second, first] = 1.0
            yield block.queries, adjacency
