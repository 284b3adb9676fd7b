"""What is known about the pairs that meet in a batch: labelled positives, weights, ratings.

A data set's row carries its number as label; the loss looks up what is known of the rows of its batch. Queries and
documents are numbered by their texts, so equal texts are one document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foils.data.training_rows import ABSENT
from foils.runtime.errors import InputError

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
Partner = Callable[[Codes, int, int], NDArray[np.float32]]
"""Row numbers of a batch, the first query and the one after the last → (queries, candidates) logits."""


@dataclass(frozen=True)
class BatchFacts:
    """What the loss needs to know about b rows with 1 + k documents each.

    Candidate j·b + i is document j of row i: first all positives, then all first negatives, and so on.

    Attributes:
        labels: (b,) the rows' numbers in the data set.
        rows, columns: (m,) entries (query, candidate) of the (b, (1 + k)·b) matrix that have a log-weight of their own.
        log_weights: (m,) their log w: −inf leaves the candidate out for this query.
        absent: ((1 + k)·b,) candidates that are no document at all; nobody's negatives.
        ratings: (b, 1 + k) standardised ratings, NaN where there is none.
        sources: (b,) of a mixture, each row's data set: documents of another one are left out; None: there is one.
        partner: another retriever's part of the logits, the positives' too; None: there is none.
    """

    labels: Codes
    rows: Codes
    columns: Codes
    log_weights: Floats
    absent: NDArray[np.bool_]
    ratings: Floats
    sources: Codes | None = None
    partner: Partner | None = None

    def block(self, begin: int, end: int) -> NDArray[np.float32] | None:
        """Return the log-weights of queries begin … end − 1 as (end − begin, c), or None where all are 0."""
        inside = (self.rows >= begin) & (self.rows < end)
        if not inside.any() and not self.absent.any() and self.sources is None and self.partner is None:
            return None
        block = np.zeros((end - begin, len(self.absent)), np.float32)
        block[:, self.absent] = -np.inf
        block[self.rows[inside] - begin, self.columns[inside]] = self.log_weights[inside]
        if self.partner is not None:
            block += self.partner(self.labels, begin, end)
        if self.sources is not None:  # documents of another data set than the query's
            block[self.sources[begin:end, None] != np.resize(self.sources, len(self.absent))] = -np.inf
        return block


@dataclass(frozen=True)
class PairFacts:
    """What is known about the pairs of a data set of N rows.

    Attributes:
        queries: (N,) number of each row's query.
        documents: (N, 1 + k) number of its positive and its negatives; −1: absent.
        ratings: (N, 1 + k) standardised ratings; NaN where there is none.
        known_query, known_document: (m,) pairs that are no plain negatives.
        known_log_weight: (m,) their log w; −inf for labelled positives and rejected rows.
        known_gap: (m,) their rating gap, NaN where there is none: what a curriculum looks at.
        sources: (N,) of a mixture, the data set of each row; None: there is one.
        partner: see `BatchFacts`.

    Where a pair is given twice, the smaller weight counts.
    """

    queries: Codes
    documents: Codes
    ratings: Floats
    known_query: Codes
    known_document: Codes
    known_log_weight: Floats
    known_gap: Floats
    sources: Codes | None = None
    partner: Partner | None = None
    _offsets: Codes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.lexsort((self.known_log_weight, self.known_document, self.known_query))
        pairs = np.stack([self.known_query[order], self.known_document[order]])
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(pairs, axis=1) != 0).any(0)
        order = order[first]
        for name in ("known_query", "known_document", "known_log_weight", "known_gap"):
            object.__setattr__(self, name, getattr(self, name)[order])
        count = int(self.queries.max(initial=-1)) + 1
        object.__setattr__(self, "_offsets", np.searchsorted(self.known_query, np.arange(count + 1)))

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def negatives(self) -> int:
        """k, the negatives of a row."""
        return int(self.documents.shape[1]) - 1

    def batch(self, rows: Codes, *, least_gap: float | None = None) -> BatchFacts:
        """Return what is known about the pairs among these rows.

        A row's own positive keeps weight 1; any other candidate that is a known positive of its query (or equals one)
        is left out.

        Args:
            rows: (b,) row numbers.
            least_gap: of a curriculum: pairs whose gap is not above it are left out.

        Raises:
            InputError: rows that are not there.
        """
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise InputError(f"rows {rows.min()} to {rows.max()}; the data set has {len(self)}")
        size, queries = len(rows), self.queries[rows]
        documents = self.documents[rows].T.ravel()
        order = np.argsort(documents, kind="stable")
        begin, end = self._offsets[queries], self._offsets[queries + 1]
        asking, known = _expanded(begin, end)
        low = np.searchsorted(documents[order], self.known_document[known], "left")
        high = np.searchsorted(documents[order], self.known_document[known], "right")
        which, place = _expanded(low, high)
        row, column, pair = asking[which], order[place], known[which]
        weight = self.known_log_weight[pair]
        if least_gap is not None:
            weight = np.where(self.known_gap[pair] <= least_gap, -np.inf, weight)
        kept = (column != row) & (weight != 0)
        absent, ratings = documents == ABSENT, self.ratings[rows].reshape(size, -1)
        sources = None if self.sources is None else self.sources[rows]
        return BatchFacts(rows, row[kept], column[kept], weight[kept], absent, ratings, sources, self.partner)

    def own_log_weights(self) -> Floats:
        """Return (N, 1 + k) log w of each row's own documents; 0 at the positives, −inf where absent."""
        weights = self._own(self.known_log_weight, 0.0)
        weights[self.documents == ABSENT] = -np.inf
        weights[:, 0] = 0.0
        return weights

    def own_gaps(self) -> Floats:
        """Return (N, k) rating gap of each row's own negatives; NaN where there is none, or the negative is absent."""
        gaps = self._own(self.known_gap, np.nan)[:, 1:]
        gaps[self.documents[:, 1:] == ABSENT] = np.nan
        return gaps

    def _own(self, values: Floats, missing: float) -> Floats:
        """Return (N, 1 + k) the known pairs' values at each row's own documents."""
        rows = np.concatenate([self.queries[:, None], self.documents], 1)
        return own_values(rows, self.known_query, self.known_document, values, missing)


def own_values(rows: Codes, query: Codes, document: Codes, values: Floats, missing: float = np.nan) -> Floats:
    """Return (N, 1 + k) the values of pairs at each row's own documents.

    Args:
        rows: (N, 2 + k) each row's query, and its documents; −1: absent.
        query: (m,) of each pair; of one that is given twice the first counts.
        document: (m,) likewise.
        values: (m,) the pairs' own.
        missing: where a document is absent or no pair's.
    """
    if not len(values):
        return np.full((len(rows), rows.shape[1] - 1), missing)
    width = int(max(rows[:, 1:].max(initial=0), document.max())) + 1
    keys, first = np.unique(query * width + document, return_index=True)
    wanted = rows[:, :1] * width + rows[:, 1:]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[at] == wanted) & (rows[:, 1:] >= 0), values[first[at]], missing)


def _expanded(begin: Codes, end: Codes) -> tuple[Codes, Codes]:
    """Return (i, j) for every j of begin_i … end_i − 1."""
    counts = end - begin
    which = np.repeat(np.arange(len(begin)), counts)
    start = np.repeat(begin - np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(begin) else begin, counts)
    return which, start + np.arange(counts.sum())


LeastGap = Callable[[int], float]
"""Epoch, counted from 1 → the gap that a negative must exceed to take part."""
