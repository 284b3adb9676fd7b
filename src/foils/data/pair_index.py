"""Pairs of a query and a document, by rows of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Positives:
    """The relevant documents of each judged query, by rows: a ragged array.

    Attributes:
        query_rows: (n,) rows of the queries that have a positive, in the order in which the judgements name them.
        offsets: (n + 1,) where each query's positives begin and end in `doc_rows`.
        doc_rows: (m,) rows of the positives, in the order of the judgements; a query's first is its *first
            labelled positive*.
    """

    query_rows: Rows
    offsets: Rows
    doc_rows: Rows

    def __len__(self) -> int:
        return len(self.query_rows)

    @property
    def first(self) -> Rows:
        """(n,) the first labelled positive of each query."""
        return self.doc_rows[self.offsets[:-1]]

    @property
    def counts(self) -> Rows:
        """(n,) how many positives each query has."""
        return np.diff(self.offsets)

    def places(self, query_rows: Rows) -> Rows:
        """Return the position of each query in `query_rows`, (n,); −1 where it has no positive."""
        if not len(self):
            return np.full(len(query_rows), -1, np.int64)
        order, ascending = self._in_order
        at = order[np.minimum(np.searchsorted(ascending, query_rows), len(order) - 1)]
        return np.where(self.query_rows[at] == query_rows, at, -1)

    @cached_property
    def _in_order(self) -> tuple[Rows, Rows]:
        """Positions in `query_rows`, by row, and the rows."""
        order = np.argsort(self.query_rows)
        return order, self.query_rows[order]

    def counts_of(self, query_rows: Rows) -> Rows:
        """Return how many positives each query has, (n,)."""
        at = self.places(query_rows)
        return np.where(at < 0, 0, np.r_[self.counts, 0][at])

    def of(self, index: int) -> Rows:
        """Return the positives of the query at position `index` of `query_rows`."""
        return self.doc_rows[self.offsets[index] : self.offsets[index + 1]]

    def pairs(self) -> tuple[Rows, Rows]:
        """Return (query row, document row) of every positive pair, each (m,)."""
        return np.repeat(self.query_rows, self.counts), self.doc_rows

    def contain(self, query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.bool_]:
        """Tell for each (query, document) pair whether it is labelled relevant; rows below 0 are not."""
        there = self._index.contain(query_rows, doc_rows)
        return there & (np.asarray(doc_rows) >= 0) & (np.asarray(query_rows) >= 0)

    @cached_property
    def _index(self) -> PairIndex:
        return PairIndex(*self.pairs())


class PairIndex:
    """Finds pairs (query, document) among n pairs, by two numbers each: rows of a collection, or any other.

    A pair is one 64-bit code, the query's number above the document's lower 32 bits, so that codes ascend by query,
    then by document, and one binary search finds a pair. Numbers go from −1 to 2³¹ − 1.

    Args:
        queries: (n,) numbers of the queries.
        documents: (n,) numbers of the documents.
    """

    def __init__(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> None:
        self.codes = pair_codes(queries, documents)
        self._order = np.argsort(self.codes, kind="stable")
        self._ascending = self.codes[self._order]

    def __len__(self) -> int:
        return len(self.codes)

    def places(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> Rows:
        """Return the place of each pair among the n, (m,): the first of equal ones; −1 where it is not there."""
        wanted = pair_codes(queries, documents)
        if not len(self):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._ascending, wanted), len(self) - 1)
        return np.where(self._ascending[at] == wanted, self._order[at], -1)

    def contain(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tell for each pair whether it is among the n, (m,)."""
        return self.places(queries, documents) >= 0

    @cached_property
    def first(self) -> Rows:
        """(n,) the place of the first pair that equals each of the n: its own, unless it repeats an earlier one."""
        begins = np.r_[True, self._ascending[1:] != self._ascending[:-1]][: len(self)]
        first = np.empty(len(self), np.int64)
        first[self._order] = self._order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
        return first

    @property
    def distinct(self) -> Rows:
        """(k,) places of the distinct pairs, each where it comes first, ascending."""
        return np.flatnonzero(self.first == np.arange(len(self)))


def pair_codes(queries: npt.ArrayLike, documents: npt.ArrayLike) -> Rows:
    """Return a number for each (query, document) pair, the same for the same pair."""
    queries, documents = np.asarray(queries, np.int64), np.asarray(documents, np.int64)
    return (queries << 32) | (documents & 0xFFFFFFFF)
