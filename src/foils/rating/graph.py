"""Which pairs to ask about: sparse random graphs that are regular, simple and connected (ANMI 2.0, section 6.3).

A graph is drawn by the keys of its query's candidates alone (`candidate_keys`: a hash of query, document and seed), as
rings of consistent hashing are: another query changes nothing, and another candidate takes its place in each cycle,
where it breaks one pair. Answers cost money; those that were given are asked for again by the same pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from threadpoolctl import threadpool_limits

from foils.rating.pairs import Candidates, Floats, Pairs, Rows
from foils.runtime import memory
from foils.runtime.errors import InputError

Keys = npt.NDArray[np.uint64]
_HASHED = 2**18  # candidates whose ids are hashed together
_ATTEMPTS = 40  # at cycles without a repeated edge, each by other keys


def candidate_keys(candidates: Candidates, seed: int) -> Keys:
    """Return (N,) a hash of query id, document id and seed for each candidate."""
    keys = np.empty(int(candidates.offsets[-1]), np.uint64)
    of_query = _hashed(candidates.query_ids, f"{seed} ")
    for start in range(0, len(keys), _HASHED):
        rows = np.arange(start, min(start + _HASHED, len(keys)))
        keys[rows] = mixed(of_query[candidates.query_of(rows)] ^ mixed(hashed_ids(candidates.ids(rows))))
    return keys


def query_keys(query_ids: Sequence[str], seed: int) -> Keys:
    """Return (Q,) a hash of id and seed for each query."""
    return mixed(_hashed(query_ids, f"{seed} "))


def _hashed(ids: Iterable[str], prefix: str = "") -> Keys:
    digests = (hashlib.blake2b(f"{prefix}{key}".encode(), digest_size=8).digest() for key in ids)
    return np.array([int.from_bytes(each, "little") for each in digests], np.uint64)


def hashed_ids(ids: pa.Array, prefix: str = "") -> Keys:
    """Return (k,) the first 64 bits of BLAKE2b of each id, after a prefix."""
    coded = ids.dictionary_encode()
    return np.asarray(_hashed(coded.dictionary.to_pylist(), prefix)[coded.indices.to_numpy()])


def mixed(values: Keys) -> Keys:
    """Return other numbers, evenly spread: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def ringed(keys: Keys) -> Rows:
    """Return (count, n(n − 1)/2, 2) all edges, by (count, n) keys of vertices.

    The vertices lie in a ring by their keys: first come the edges of neighbours, then of the next but one, and so on.
    """
    n = keys.shape[1]
    steps = [np.arange(n if 2 * step < n else n // 2) for step in range(1, n // 2 + 1)]
    ends = [(at, (at + step) % n) for step, at in enumerate(steps, 1)]
    first, second = (np.concatenate([each[end] for each in ends] or [np.zeros(0, np.int64)]) for end in (0, 1))
    order = np.argsort(mixed(keys), axis=1, kind="stable")
    return np.stack([order[:, first], order[:, second]], axis=-1)


def cycles(keys: Keys, degree: int) -> Rows:
    """Return (count, n·degree/2, 2) edges of edge-disjoint Hamiltonian cycles, by (count, n) keys of vertices.

    Where no attempt finds such cycles, the edges are those of the nearest neighbours in a ring (`ringed`).
    """
    count, n = keys.shape
    edges, pending = np.empty((count, degree * n // 2, 2), np.int64), np.arange(count)
    for attempt in range(_ATTEMPTS):
        drawn, done = _drawn(keys[pending], degree, attempt)
        ends = np.stack([drawn, np.roll(drawn, -1, axis=2)], axis=-1)
        edges[pending[done]] = ends[done].reshape(-1, degree * n // 2, 2)
        pending = pending[~done]
        if not len(pending):
            return edges
    edges[pending] = ringed(keys[pending])[:, : degree * n // 2]
    return edges


def _drawn(keys: Keys, degree: int, attempt: int) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Cycles (count, degree/2, n) by an attempt's hashes of the keys, and (count,) which repeat no edge."""
    count, n = keys.shape
    used, done = np.zeros((count, n, n), bool), np.ones(count, bool)
    cycles = np.empty((count, degree // 2, n), np.int64)
    for c in range(degree // 2):
        salt = mixed(np.array([attempt * degree + c + 1], np.uint64))
        cycle = np.argsort(mixed(keys ^ salt), axis=1, kind="stable")
        done &= _repair(cycle, used)
        rows, following = np.arange(count)[:, None], np.roll(cycle, -1, axis=1)
        used[rows, cycle, following] = used[rows, following, cycle] = True
        cycles[:, c] = cycle
    return cycles, done


def _repair(cycle: Rows, used: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Reverse parts of each row of `cycle`, in place, until no edge is used; tell which rows got there.

    A used edge (a, b) and the edge (x, y) give way to (a, x) and (b, y), which are not used: each step lessens them.
    """
    rows, n, done = np.arange(len(cycle)), cycle.shape[1], np.ones(len(cycle), bool)
    place = np.arange(n)
    while len(rows):
        repeated = used[rows[:, None], cycle[rows], np.roll(cycle[rows], -1, axis=1)]
        rows, repeated = rows[repeated.any(axis=1)], repeated[repeated.any(axis=1)]
        at = (repeated.argmax(axis=1)[:, None] + place) % n
        turned = np.take_along_axis(cycle[rows], at, 1)  # begins with a, b
        free = (
            ~used[rows[:, None], turned[:, :1], turned[:, 2:-1]] & ~used[rows[:, None], turned[:, 1:2], turned[:, 3:]]
        )
        mended = free.any(axis=1)
        done[rows[~mended]] = False
        rows, at, turned = rows[mended], at[mended], turned[mended]
        last = free[mended].argmax(axis=1)[:, None] + 2  # the place of x
        inside = (place >= 1) & (place <= last)
        cycle[rows[:, None], at] = np.take_along_axis(turned, np.where(inside, last + 1 - place, place), 1)
    return done


_DRAWN = 2**22  # cells of the adjacencies of graphs drawn together
_CELLS = 2**20  # cells of the adjacencies looked at together
_CELL = 24  # bytes a cell takes: Laplacian and its copies


def all_pairs(sizes: npt.ArrayLike) -> Pairs:
    """Return every pair of each query's candidates; `sizes` is (Q,) how many each has."""
    offsets = np.cumsum([0, *np.asarray(sizes, np.int64)])
    ends = [start + np.stack(np.triu_indices(end - start, 1)) for start, end in pairwise(offsets)]
    return Pairs(offsets, *np.concatenate([np.zeros((2, 0), np.int64), *ends], axis=1))


def regular_pairs(sizes: npt.ArrayLike, *, degree: int = 6, keys: Keys | np.random.Generator) -> Pairs:
    """Return for each query the union of degree/2 random Hamiltonian cycles over its candidates.

    Cycle c goes through a query's candidates in the order of hash(key, c). The union of independent cycles (eq. 32,
    Algorithm 2) can repeat an edge, which then leaves a candidate with fewer neighbours. Here a cycle that meets an
    edge (a, b) of an earlier one has the part from b to the next place x with no edge (a, x) or (b, y) reversed, y
    being the one after x, until none is repeated: the graph is simple, connected and exactly `degree`-regular,
    degree·n/2 pairs. Such a place is always there for n ≥ 2·degree. Where n is smaller and none is found, other keys
    are tried, and at last each candidate is compared with its nearest neighbours in a ring, by their keys. Where
    n ≤ degree + 1, all pairs are compared.

    Another candidate takes its place in each cycle: all pairs are kept but one a cycle, and those that repairs change.

    Args:
        sizes: (Q,) int, how many candidates each query has; 0 and 1 give no pair.
        degree: k, even, at least 2: comparisons per candidate.
        keys: (N,) of all candidates, as `candidate_keys` makes them; or what draws them.

    Returns:
        The pairs of all queries, of each query cycle by cycle; the order inside a pair is random.

    Raises:
        InputError: an odd degree, one below 2, a negative size, or not one key for each candidate.

    Source: ANMI 2.0 eq. 32 and Algorithm 2.
    """
    if degree < 2 or degree % 2:
        raise InputError(
            f"degree {degree}: a union of cycles has an even degree of at least 2; take {degree + degree % 2}"
        )

    numbers = np.asarray(sizes, np.int64)
    counts, offsets = numbers * np.clip(numbers - 1, 0, degree) // 2, np.cumsum([0, *numbers])
    if isinstance(keys, np.random.Generator):
        keys = keys.integers(2**64, size=int(numbers.sum()), dtype=np.uint64)
    if keys.shape != (int(numbers.sum()),):
        raise InputError(f"keys have shape {keys.shape}; expected one for each of {int(numbers.sum())} candidates")
    begins, (first, second) = np.cumsum(counts) - counts, np.empty((2, counts.sum()), np.int64)
    for n in np.unique(numbers).tolist():
        queries = np.flatnonzero(numbers == n)
        for chosen in np.array_split(queries, -(-len(queries) * n * n // _DRAWN) or 1):
            of_queries = keys[offsets[chosen, None] + np.arange(n)]
            edges = ringed(of_queries) if n <= degree + 1 else cycles(of_queries, degree)
            at = begins[chosen, None] + np.arange(edges.shape[1])
            first[at], second[at] = (edges[..., end] + offsets[chosen, None] for end in (0, 1))
    return Pairs(offsets, first, second)


def first_pairs(pairs: Pairs, most: int) -> Pairs:
    """Return at most `most` pairs: of each query its first, as many as go with its candidates.

    Fewer are among those of more: answers to the first are never lost.
    """
    place = np.arange(len(pairs)) - pairs.pair_offsets[pairs.query]
    order = np.argsort((place + 1) / pairs.sizes[pairs.query], kind="stable")
    return pairs.at(np.sort(order[:most]))


def algebraic_connectivity(pairs: Pairs) -> Floats:
    """Return (Q,) the second smallest eigenvalue of each query's graph Laplacian D − A, repeated pairs counted once.

    It is 0 where the graph is not connected; larger means that errors spread less (Var ≤ 1/λ₂, eq. A.6); a random
    k-regular graph has about k − 2√(k − 1) (Friedman). NaN for queries with fewer than two candidates.
    """
    result = np.full(pairs.queries, np.nan)
    for block in pairs.blocks(memory.rows_at_once(_CELL, most=_CELLS)):
        count, n = block.at.shape
        if n < 2:
            continue
        laplacian, places = np.zeros((count, n, n)), np.arange(n)
        laplacian[block.query, block.first, block.second] = laplacian[block.query, block.second, block.first] = -1.0
        laplacian[:, places, places] = -laplacian.sum(axis=2)
        with threadpool_limits(1, user_api="blas"):
            result[block.queries] = np.maximum(np.linalg.eigvalsh(laplacian)[:, 1], 0.0)
    return result
