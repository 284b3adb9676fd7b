"""Which pairs to ask about: sparse random graphs that are regular, simple and connected (ANMI 2.0, section 6.3).

A graph is drawn by the keys of its query's candidates alone (`candidate_keys`: a hash of query, document and seed), as
rings of consistent hashing are: another query changes nothing, and another candidate takes its place in each cycle,
where it breaks one pair. Answers cost money; those that were given are asked for again by the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from foils.rating.drawing import Keys, cycles, least, ringed
from foils.rating.pairs import Floats, Pairs, Rows, by_size, rectangle
from foils.runtime import memory
from foils.runtime.errors import InputError

_DRAWN = 2**22  # cells of the adjacencies of graphs drawn together
_PAIRS = 2**22  # pairs whose keys are looked at together
_CELLS = 2**20  # cells of the adjacencies looked at together
_CELL = 40  # bytes a cell takes: Laplacian, its copy and the powers of the adjacency


def all_pairs(sizes: npt.ArrayLike) -> Pairs:
    """Return every pair of each query's candidates; `sizes` is (Q,) how many each has."""
    numbers = _sizes(sizes)
    counts, nothing = numbers * np.maximum(numbers - 1, 0) // 2, np.zeros(int(numbers.sum()), np.uint64)
    return _assemble(numbers, counts, lambda n, keys: [_complete(n, len(keys))], nothing)


def regular_pairs(
    sizes: npt.ArrayLike, *, degree: int = 6, keys: Keys | None = None, rng: np.random.Generator | None = None
) -> Pairs:
    """Return for each query the union of degree/2 random Hamiltonian cycles over its candidates.

    Cycle c goes through a query's candidates in the order of hash(key, c). The union of independent cycles (eq. 32,
    Algorithm 2) can repeat an edge, which then leaves a candidate with fewer neighbours. Here a cycle that meets an
    edge (a, b) of an earlier one has the part from b to the next place x with no edge (a, x) or (b, y) reversed, y
    being the one after x, until none is repeated: the graph is simple, connected and exactly `degree`-regular,
    degree·n/2 pairs. Such a place is always there for n ≥ 2·degree. Where n is smaller and none is found, other keys
    are tried, and at last the cycles of Walecki's decomposition of the complete graph, numbered by the keys. Where
    n ≤ degree + 1, all pairs are compared.

    Another candidate takes its place in each cycle: all pairs are kept but one a cycle, and those that repairs change.

    Args:
        sizes: (Q,) int, how many candidates each query has; 0 and 1 give no pair.
        degree: k, even, at least 2: comparisons per candidate.
        keys: (N,) of all candidates, as `candidate_keys` makes them.
        rng: draws keys where none are given.

    Returns:
        The pairs of all queries, of each query cycle by cycle; the order inside a pair is random.

    Raises:
        InputError: an odd degree, one below 2, a negative size, or not one key for each candidate.

    Source: ANMI 2.0 eq. 32 and Algorithm 2; Alspach (2008) for Walecki's construction.
    """
    if degree < 2 or degree % 2:
        raise InputError(
            f"degree {degree}: a union of cycles has an even degree of at least 2; take {degree + degree % 2}"
        )

    def edges(n: int, of_queries: Keys) -> Iterable[Rows]:
        if n <= degree + 1:
            return [ringed(of_queries)]
        block = max(1, _DRAWN // (n * n))
        return (cycles(of_queries[start : start + block], degree) for start in range(0, len(of_queries), block))

    numbers = _sizes(sizes)
    counts = numbers * np.minimum(numbers - 1, degree) // 2
    return _assemble(numbers, np.maximum(counts, 0), edges, _checked_keys(keys, numbers, rng))


def random_pairs(
    sizes: npt.ArrayLike, most: int, *, keys: Keys | None = None, rng: np.random.Generator | None = None
) -> Pairs:
    """Return `most` random pairs of each query, all pairs where there are fewer.

    A query's are those with the smallest hash of both keys, so that another candidate takes the place of few. With one
    pair for each of many queries, answers are as different as can be: what a judge is distilled from.

    Args:
        sizes: (Q,) int, how many candidates each query has.
        most: pairs of a query, at least 1.
        keys: (N,) of all candidates.
        rng: draws keys where none are given.

    Raises:
        InputError: fewer than one pair, a negative size, or not one key for each candidate.
    """
    if most < 1:
        raise InputError(f"{most} pairs of a query; expected at least 1")

    def edges(n: int, of_queries: Keys) -> Iterable[Rows]:
        block = max(1, _PAIRS // max(n * n, 1))
        return (least(of_queries[start : start + block], most) for start in range(0, len(of_queries), block))

    numbers = _sizes(sizes)
    counts = np.minimum(numbers * np.maximum(numbers - 1, 0) // 2, most)
    return _assemble(numbers, counts, edges, _checked_keys(keys, numbers, rng))


def first_pairs(pairs: Pairs, most: int) -> Pairs:
    """Return at most `most` pairs: of each query its first, as many as go with its candidates.

    Fewer are among those of more: answers to the first are never lost.
    """
    place = np.arange(len(pairs)) - pairs.pair_offsets[pairs.query]
    order = np.argsort((place + 1) / pairs.sizes[pairs.query], kind="stable")
    return pairs.at(np.sort(order[:most]))


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


def _assemble(sizes: Rows, counts: Rows, edges: Callable[[int, Keys], Iterable[Rows]], keys: Keys) -> Pairs:
    """Put edges(n, keys), parts (c, m, 2) that cover the queries of each size n, at their queries' places."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    begins = np.cumsum(counts) - counts
    first, second = np.empty((2, counts.sum()), np.int64)
    for n, queries in by_size(sizes):
        done = 0
        for part in edges(n, keys[offsets[queries, None] + np.arange(n)]):
            chosen = queries[done : done + len(part)]
            at = begins[chosen, None] + np.arange(part.shape[1])
            first[at], second[at] = (part[..., end] + offsets[chosen, None] for end in (0, 1))
            done += len(part)
    return Pairs(offsets, first, second)


def _checked_keys(keys: Keys | None, sizes: Rows, rng: np.random.Generator | None) -> Keys:
    if (keys is None) == (rng is None):
        raise InputError("a graph is drawn by the keys of its candidates or by a generator; give one of them")
    if keys is None and rng is not None:
        keys = rng.integers(2**64, size=int(sizes.sum()), dtype=np.uint64)
    numbers = np.asarray(keys, np.uint64)
    if numbers.shape != (int(sizes.sum()),):
        raise InputError(f"keys have shape {numbers.shape}; expected one for each of {int(sizes.sum())} candidates")
    return numbers


def _complete(n: int, count: int) -> Rows:
    """(count, n(n − 1)/2, 2) all edges, the same for every query."""
    ends = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)
    return np.broadcast_to(ends, (count, *ends.shape))


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
