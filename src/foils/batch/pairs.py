"""The training pairs of a collection: what batches are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foils.batch.batches import Rows
from foils.batch.conflicts import Conflicts, cap_positives, find_conflicts
from foils.data import Collection, Negatives
from foils.errors import InputError


@dataclass(frozen=True)
class Pairs:
    """Training pairs by rows of their collection.

    Attributes:
        query_rows, doc_rows: (N,) row i is the i-th pair.
        capped: pairs left out because their query has more positives than allowed.
        uncovered: pairs left out because the source has no negative for their query.
    """

    query_rows: Rows
    doc_rows: Rows
    capped: int = 0
    uncovered: int = 0

    def __len__(self) -> int:
        return int(self.query_rows.size)


def training_pairs(
    collection: Collection,
    *,
    split: str = "train",
    negatives: Negatives | None = None,
    max_positives: int = 64,
    rng: np.random.Generator,
) -> Pairs:
    """Return the (query, positive) pairs of a split.

    Args:
        collection: with judgements of the split.
        split: its name.
        negatives: if given, only queries with a kept negative there take part, as in training on it.
        max_positives: at most so many pairs of a query, drawn by `rng` (64 in HOBIT).
        rng: draws which positives stay.

    Raises:
        InputError: no pair is left.
    """
    queries, documents = collection.positives(split).pairs()
    covered = np.ones(queries.size, bool)
    if negatives is not None:
        of_source, _ = negatives.rows_in(collection)
        covered = np.isin(queries, of_source[negatives.keep])
    queries, documents = queries[covered], documents[covered]
    if not queries.size:
        raise InputError(f"no query of {collection.name}'s split {split!r} has a negative in the source")
    kept = cap_positives(queries.tolist(), at_most=max_positives, rng=rng)
    return Pairs(queries[kept], documents[kept], int(queries.size - kept.size), int((~covered).sum()))


def known_conflicts(collection: Collection, pairs: Pairs) -> Conflicts:
    """Return which pairs may not meet: by the collection's judgements of all splits, and by equal texts."""
    queries, documents = collection.query_texts(pairs.query_rows), collection.document_texts(pairs.doc_rows)
    text_of_query = dict(zip(pairs.query_rows.tolist(), queries, strict=True))
    text_of_document = dict(zip(pairs.doc_rows.tolist(), documents, strict=True))
    known: tuple[NDArray[np.int64], NDArray[np.int64]] = collection.known_positives.pairs()
    positives = [
        (text_of_query[q], text_of_document[d])
        for q, d in zip(known[0].tolist(), known[1].tolist(), strict=True)
        if q in text_of_query and d in text_of_document
    ]
    return find_conflicts(queries, documents, positives=positives)
