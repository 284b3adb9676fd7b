"""The rows that a model is trained on: which positives, with which negatives.

Training takes its rows from here, and so does the plan of batches that is shown beforehand, so that the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.runtime.errors import InputError, UnknownNameError

Form = Literal["triplets", "lists", "pairs"]

MAX_POSITIVES = 64
"""Positives of a query that are trained on, at most (HOBIT)."""


@dataclass(frozen=True)
class TrainingRows:
    """Rows to train on, in the order of the judgements, then of the ranks of the negatives.

    Attributes:
        query_rows: (N,) the query of each row, by its row in the collection.
        doc_rows: (N,) the positive of each row, by its row in the collection.
        negatives: (N, k) the negatives of each row, by their rows in the table; −1 where a list is short. Pairs have
            k = 0, triplets k = 1.
        queries: how many queries of the split have a positive.
        pairs: how many (query, positive) pairs the rows are made of.
        capped: pairs left out because their query has more positives than allowed.
        uncovered: pairs left out because their query has no kept negative.
    """

    query_rows: Rows
    doc_rows: Rows
    negatives: Rows
    queries: int
    pairs: int
    capped: int
    uncovered: int

    def __len__(self) -> int:
        return len(self.query_rows)


def training_rows(
    collection: Collection,
    negatives: Negatives | None = None,
    *,
    split: str = "train",
    form: Form = "triplets",
    per_query: int | None = None,
    max_positives: int = MAX_POSITIVES,
) -> TrainingRows:
    """Return the rows of a split's positives and the kept rows of a table.

    Args:
        collection: with judgements of the split.
        negatives: a table of negatives; pairs need none, and do not look at it.
        split: whose judgements.
        form: `triplets`: a row for each (query, positive, negative), the flattened form of ECI_sem eq. 13; `lists`: a
            row for each (query, positive) with `per_query` negatives, short lists marked −1; `pairs`: a row for each
            (query, positive).
        per_query: negatives of a query at most, by rank; None: all (for lists: the longest list's length).
        max_positives: positives of a query at most: the first ones, in the order of the judgements.

    Raises:
        InputError: no table for triplets or lists, a number below 1, or no row is left.
        UnknownNameError: no such form or split.
    """
    if form not in get_args(Form):
        raise UnknownNameError("form of training data", form, get_args(Form))
    if max_positives < 1 or (per_query is not None and per_query < 1):
        raise InputError(f"max_positives {max_positives}, per_query {per_query}; expected at least 1")
    positives = collection.positives(split)
    place = np.arange(len(positives.doc_rows)) - np.repeat(positives.offsets[:-1], positives.counts)
    allowed = place < max_positives
    queries, documents = (rows[allowed] for rows in positives.pairs())
    covered: NDArray[np.bool_] = np.ones(len(queries), bool)
    lists = np.empty((len(queries), 0), np.int64)
    if form != "pairs":
        if negatives is None:
            raise InputError(f"{form} need a table of negatives; give one, or train on pairs")
        lists = _lists(negatives, collection, queries, per_query)
        covered = np.asarray((lists >= 0).any(1))
        if not covered.any():
            raise InputError(
                f"nothing to train on: no query of {collection.name}'s split {split!r} has a kept negative"
            )
        queries, documents, lists = queries[covered], documents[covered], lists[covered]
    counts = (len(positives), len(queries), int((~allowed).sum()), int((~covered).sum()))
    if form == "triplets":
        at, column = np.nonzero(lists >= 0)
        queries, documents, lists = queries[at], documents[at], lists[at, column][:, None]
    return TrainingRows(queries, documents, lists, *counts)


def _lists(negatives: Negatives, collection: Collection, queries: Rows, per_query: int | None) -> Rows:
    """Return (n, k) kept rows of the table for each query by rank, −1 where a list is short."""
    of_query, _ = negatives.rows_in(collection)
    rank, kept = np.asarray(negatives.table["rank"].to_numpy(), np.int64), np.flatnonzero(negatives.keep)
    order = kept[np.lexsort((rank[kept], of_query[kept]))]
    begin, end = (np.searchsorted(of_query[order], queries, side) for side in ("left", "right"))
    longest = int((end - begin).max(initial=0))
    at = begin[:, None] + np.arange(min(longest, per_query or longest))
    inside = at < end[:, None]
    return np.where(inside, order[np.where(inside, at, 0)] if len(order) else -1, -1)
