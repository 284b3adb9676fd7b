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
        known = np.sort(pair_codes(*self.pairs()))
        asked = pair_codes(np.asarray(query_rows, np.int64), np.asarray(doc_rows, np.int64))
        if not len(known):
            return np.zeros(len(asked), bool)
        at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        labelled: npt.NDArray[np.bool_] = known[at] == asked
        return labelled & (np.asarray(doc_rows) >= 0) & (np.asarray(query_rows) >= 0)


def pair_codes(query_rows: Rows, doc_rows: Rows) -> Rows:
    """Return a number for each (query, document) pair, the same for the same pair."""
    return (query_rows << 32) | (doc_rows & 0xFFFFFFFF)
