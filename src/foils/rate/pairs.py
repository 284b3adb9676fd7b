"""Which candidates of which query are compared with each other: the edges of one graph per query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from foils.errors import InputError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs of candidates to compare, for many queries at once.

    The candidates of all queries are numbered through: those of query q are offsets[q] … offsets[q + 1] − 1.

    Attributes:
        offsets: (Q + 1,) int64, from 0, not decreasing.
        first: (m,) int64, a candidate.
        second: (m,) int64, another candidate of the same query. The pairs come query by query; a pair may repeat.

    Raises:
        InputError: offsets that fall, a candidate that does not exist or is paired with itself, a pair across
            queries, or pairs that are not ordered by query.
    """

    offsets: Rows
    first: Rows
    second: Rows

    def __post_init__(self) -> None:
        for name in ("offsets", "first", "second"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        _check(self)

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of_one(cls, candidates: int, first: npt.ArrayLike, second: npt.ArrayLike) -> Pairs:
        """Return the pairs of a single query with this many candidates."""
        return cls(np.array([0, candidates]), np.asarray(first, np.int64), np.asarray(second, np.int64))

    @property
    def queries(self) -> int:
        """How many queries, Q."""
        return len(self.offsets) - 1

    @property
    def candidates(self) -> int:
        """How many candidates all queries have together, N."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> Rows:
        """(Q,) how many candidates each query has."""
        return np.diff(self.offsets)

    @cached_property
    def query(self) -> Rows:
        """(m,) the query of each pair."""
        return np.searchsorted(self.offsets, self.first, side="right") - 1

    @cached_property
    def pair_offsets(self) -> Rows:
        """(Q + 1,) where the pairs of each query begin and end."""
        return np.searchsorted(self.query, np.arange(self.queries + 1))

    @property
    def degrees(self) -> Rows:
        """(N,) in how many pairs each candidate takes part."""
        return np.bincount(np.concatenate([self.first, self.second]), minlength=self.candidates)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Return the pairs at which `chosen` (m,) is true; the candidates stay."""
        return Pairs(self.offsets, self.first[chosen], self.second[chosen])

    def joined(self, other: Pairs) -> tuple[Pairs, Rows]:
        """Return the pairs of both, query by query, and the (m + m',) positions they had when laid end to end.

        Raises:
            InputError: the two are not over the same candidates.
        """
        if not np.array_equal(self.offsets, other.offsets):
            raise InputError("pairs over different candidates cannot be joined; make both from the same sizes")
        order = np.argsort(np.concatenate([self.query, other.query]), kind="stable")
        first, second = np.concatenate([self.first, other.first]), np.concatenate([self.second, other.second])
        return Pairs(self.offsets, first[order], second[order]), order

    def components(self) -> Rows:
        """Return (N,) labels of the connected components, 0, 1, …: only ratings within one can be compared."""
        ones, shape = np.ones(len(self), np.int8), (self.candidates, self.candidates)
        graph = sparse.coo_array((ones, (self.first, self.second)), shape=shape)
        return np.asarray(sparse.csgraph.connected_components(graph, directed=False)[1], np.int64)

    def blocks(self, limit: int, *, power: int = 1) -> Iterator[Block]:
        """Cut the queries, in order of size, into blocks that are padded to one size n each.

        Args:
            limit: a block of B queries has B·n^power ≤ limit, or B = 1.
            power: 1 limits the candidates of a block, 2 the cells of its (B, n, n) matrices.
        """
        sizes, pair_offsets = self.sizes, self.pair_offsets
        order = np.argsort(sizes, kind="stable")
        begin = 0
        while begin < len(order):
            end = begin + 1
            while end < len(order) and int(sizes[order[end]]) ** power * (end + 1 - begin) <= limit:
                end += 1
            yield _block(self, order[begin:end], sizes, pair_offsets)
            begin = end


@dataclass(frozen=True)
class Block:
    """Some queries of `Pairs`, laid out in a rectangle: candidate i of the block's query b is row b·n + i.

    Attributes:
        queries: (B,) which queries.
        n: candidates of the largest; smaller queries are padded with candidates that meet nobody.
        at: (B·n,) the candidate in `Pairs` of each row, −1 for padding.
        pairs: (p,) which pairs.
        first: (p,) rows.
        second: (p,) rows.
    """

    queries: Rows
    n: int
    at: Rows
    pairs: Rows
    first: Rows
    second: Rows


def _block(pairs: Pairs, queries: Rows, sizes: Rows, pair_offsets: Rows) -> Block:
    n = int(sizes[queries].max(initial=0))
    inside = np.arange(n) < sizes[queries, None]
    at = np.where(inside, pairs.offsets[queries, None] + np.arange(n), -1).ravel()
    counts = pair_offsets[queries + 1] - pair_offsets[queries]
    chosen = np.repeat(pair_offsets[queries] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    shift = np.repeat(np.arange(len(queries)) * n - pairs.offsets[queries], counts)
    return Block(queries, n, at, chosen, pairs.first[chosen] + shift, pairs.second[chosen] + shift)


def _check(pairs: Pairs) -> None:
    offsets, first, second = pairs.offsets, pairs.first, pairs.second
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise InputError(
            "offsets must be one row of numbers from 0 that never falls: where each query's candidates begin"
        )
    if first.ndim != 1 or first.shape != second.shape:
        raise InputError(f"first {first.shape} and second {second.shape} must be two rows of the same length")
    if not len(first):
        return
    faults = []
    outside = (np.minimum(first, second) < 0) | (np.maximum(first, second) >= offsets[-1])
    if outside.any():
        raise InputError(f"{int(outside.sum())} pairs name a candidate outside 0 … {offsets[-1] - 1}")
    query = pairs.query
    if (alone := first == second).any():
        faults.append(f"{int(alone.sum())} pairs compare a candidate with itself")
    if (across := query != np.searchsorted(offsets, second, side="right") - 1).any():
        faults.append(f"{int(across.sum())} pairs compare candidates of different queries")
    if (np.diff(query) < 0).any():
        faults.append("the pairs are not ordered by query")
    if faults:
        raise InputError("; ".join(faults))
