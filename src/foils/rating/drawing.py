"""Edges of random graphs drawn by keys: the same keys give the same edges, whatever else is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foils.rating.candidates import Candidates
from foils.rating.pairs import Rows

Keys = npt.NDArray[np.uint64]
_HASHED = 2**18  # candidates whose ids are hashed together
_ATTEMPTS = 40  # at cycles without a repeated edge, each by other keys


def candidate_keys(candidates: Candidates, seed: int) -> Keys:
    """Return (N,) a hash of query id, document id and seed for each candidate."""
    keys = np.empty(int(candidates.offsets[-1]), np.uint64)
    of_query = np.array([_hash(f"{seed} {key}") for key in candidates.query_ids], np.uint64)
    for start in range(0, len(keys), _HASHED):
        rows = np.arange(start, min(start + _HASHED, len(keys)))
        ids = candidates.ids(rows).dictionary_encode()
        of_document = np.array([_hash(key) for key in ids.dictionary.to_pylist()], np.uint64)
        keys[rows] = mixed(of_query[candidates.query_of(rows)] ^ mixed(of_document[ids.indices.to_numpy()]))
    return keys


def query_keys(query_ids: Sequence[str], seed: int) -> Keys:
    """Return (Q,) a hash of id and seed for each query."""
    return mixed(np.array([_hash(f"{seed} {key}") for key in query_ids], np.uint64))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


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


def least(keys: Keys, most: int) -> Rows:
    """Return (count, m, 2) the edges with the smallest hash of both keys; the end with the smaller key comes first."""
    one, other = np.triu_indices(keys.shape[1], 1)
    of_pair = mixed(mixed(keys)[:, one] + mixed(keys)[:, other])
    chosen = np.argsort(of_pair, axis=1, kind="stable")[:, :most]
    ends = np.stack([one[chosen], other[chosen]], axis=-1)
    turned = np.take_along_axis(keys, ends[..., 0], 1) > np.take_along_axis(keys, ends[..., 1], 1)
    return np.where(turned[..., None], ends[..., ::-1], ends)


def cycles(keys: Keys, degree: int) -> Rows:
    """Return (count, n·degree/2, 2) edges of edge-disjoint Hamiltonian cycles, by (count, n) keys of vertices."""
    count, n = keys.shape
    found, pending = np.empty((count, degree // 2, n), np.int64), np.arange(count)
    for attempt in range(_ATTEMPTS):
        found[pending], done = _drawn(keys[pending], degree, attempt)
        pending = pending[~done]
        if not len(pending):
            break
    order = np.argsort(keys[pending], axis=1, kind="stable")
    found[pending] = order[:, walecki(n)[: degree // 2]]
    return np.stack([found, np.roll(found, -1, axis=2)], axis=-1).reshape(count, -1, 2)


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
        found = free.any(axis=1)
        done[rows[~found]] = False
        rows, at, turned = rows[found], at[found], turned[found]
        last = free[found].argmax(axis=1)[:, None] + 2  # the place of x
        inside = (place >= 1) & (place <= last)
        cycle[rows[:, None], at] = np.take_along_axis(turned, np.where(inside, last + 1 - place, place), 1)
    return done


def walecki(n: int) -> Rows:
    """Return ((n − 1)//2, n) edge-disjoint Hamiltonian cycles of the complete graph on n vertices (Walecki, 1890s).

    Cycle i is the vertex n − 1, then the zigzag i, i + 1, i − 1, i + 2, … modulo n − 1. For even n a perfect matching
    is left over.
    """
    steps = np.arange(1, n - 1)
    zigzag = np.concatenate([[0], np.cumsum(np.where(steps % 2, steps, -steps))])
    paths = (zigzag + np.arange((n - 1) // 2)[:, None]) % (n - 1)
    return np.concatenate([np.full((len(paths), 1), n - 1), paths], axis=1)
