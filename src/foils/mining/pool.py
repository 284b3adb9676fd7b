"""Rankings that are there already, as retrievers: a source's own, or several retrievers' together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.mining.candidates import Retriever
from foils.mining.pairs import Scores
from foils.mining.planting import judged_anew
from foils.runtime.errors import InputError


class TableRetriever:
    """Ranks each query's documents as a table of negatives has them, less its rejected rows, with its scores.

    Args:
        collection: the table was made from.
        negatives: the table.
        name: of the source.

    Raises:
        InputError: ids that the collection does not know, or documents with a text of their own.
    """

    short = "the source has no further document"
    compares = False

    def __init__(self, collection: Collection, negatives: Negatives, *, name: str = "source") -> None:
        self.name = name
        queries, documents = negatives.rows_in(collection)
        keep = negatives.keep
        if (documents[keep] < 0).any():
            raise InputError(f"{name} has documents with a text of their own; a pool ranks documents of the collection")
        order = np.lexsort((np.asarray(negatives.table["rank"].to_numpy()), queries))
        order = order[keep[order]]
        self._documents = documents[order]
        self._scores: Scores = np.asarray(negatives.table["score"].to_numpy(), np.float64)[order]
        self._offsets = np.searchsorted(queries[order], np.arange(len(collection.queries) + 1))

    def with_judgements(self, collection: Collection) -> None:
        """Return None: what the table would hold of its queries' positives, were they not known, it does not say."""

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and the table's scores, −1 and NaN after a list's end."""
        at = self._offsets[query_rows][:, None] + np.arange(depth)
        inside = at < self._offsets[np.asarray(query_rows) + 1][:, None]
        at = np.where(inside, at, 0)
        if not len(self._documents):
            return np.full(at.shape, -1, np.int64), np.full(at.shape, np.nan)
        return np.where(inside, self._documents[at], -1), np.where(inside, self._scores[at], np.nan)


class UnionRetriever:
    """Ranks what several retrievers rank, by best rank, ties by their order; without a score.

    Args:
        retrievers: at least one.
    """

    compares = False

    def __init__(self, retrievers: Sequence[Retriever]) -> None:
        if not retrievers:
            raise InputError("a union of rankings needs at least one")
        self._retrievers = tuple(retrievers)
        self.name = "+".join(retriever.name for retriever in retrievers)
        self.short = "no ranking has a further document"

    def with_judgements(self, collection: Collection) -> UnionRetriever | None:
        """Return the union of its retrievers with other judgements; None where one of them cannot be had so."""
        parts = [judged_anew(retriever, collection) for retriever in self._retrievers]
        known = [part for part in parts if part is not None]
        return UnionRetriever(known) if len(known) == len(parts) else None

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows, and NaN for scores."""
        lists = [retriever.search(query_rows, depth)[0] for retriever in self._retrievers]
        merged = np.stack(lists, axis=2).reshape(len(query_rows), -1)  # rank by rank, the retrievers in turn
        ranked = np.full((len(merged), depth), -1, np.int64)
        for row, listed in enumerate(merged):
            distinct = list(dict.fromkeys(listed[listed >= 0].tolist()))[:depth]
            ranked[row, : len(distinct)] = distinct
        return ranked, np.full(ranked.shape, np.nan)
