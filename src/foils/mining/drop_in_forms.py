"""The data sets that `mine_hard_negatives` returns, made from lists of negatives piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.pair_index import Positives
from foils.data.run import ranks_within
from foils.data.tables import take
from foils.mining.pairs import Scores
from foils.mining.results import Mined
from foils.runtime.results import Table, number

PIECE = 1_000  # pairs, or queries, whose texts are copied at once
_Columns = dict[str, pa.Array | pa.ChunkedArray]


@dataclass(frozen=True)
class Lists:
    """Pairs of a query and a positive, and the negatives of each query, best first.

    Attributes:
        collection: its queries are those of `positives`, in their order.
        positives: the pairs.
        positive_scores: (m,) of the pairs.
        offsets: (n + 1,) where each query's negatives begin and end.
        negatives: (k,) rows of documents.
        scores: (k,).
        number: of negatives that each query should have.
    """

    collection: Collection
    positives: Positives
    positive_scores: Scores
    offsets: Rows
    negatives: Rows
    scores: Scores
    number: int

    @classmethod
    def of(cls, mined: Mined, collection: Collection, positives: Positives, scores: Scores, number: int) -> Lists:
        """Take the kept rows of a mined table, whose queries stand in the order of `positives`."""
        kept = mined.kept()
        queries = collection.query_rows(kept["query_id"])
        offsets = np.searchsorted(queries, np.arange(len(positives) + 1))
        documents = collection.document_rows(kept["doc_id"])
        return cls(collection, positives, scores, offsets, documents, np.asarray(kept["score"].to_numpy()), number)

    def pairs(self) -> Iterator[tuple[Rows, Rows, Scores]]:
        """Yield (query row, document row, score), each (p,), of the next pairs."""
        queries, documents = self.positives.pairs()
        for start in range(0, len(queries), PIECE):
            part = slice(start, start + PIECE)
            yield queries[part], documents[part], self.positive_scores[part]

    def spans(self, queries: Rows) -> tuple[Rows, Rows]:
        """Return how many negatives each of these queries has, and their places, all in a row."""
        counts = self.offsets[queries + 1] - self.offsets[queries]
        each = np.repeat(np.arange(len(queries)), counts)
        return counts, self.offsets[queries][each] + ranks_within(each)

    def queries_at(self, rows: Rows) -> pa.ChunkedArray:
        """Return the texts of queries."""
        return pa.chunked_array([take(self.collection.queries["text"], rows)]).cast(pa.string())

    def documents_at(self, rows: Rows) -> pa.ChunkedArray:
        """Return the texts of documents."""
        return pa.chunked_array([take(self.collection.documents["text"], rows)]).cast(pa.string())

    def tables(self) -> list[Table]:
        """Return the distribution of the scores: of positives, of negatives, and of their differences."""
        queries, _ = self.positives.pairs()
        counts, places = self.spans(queries)
        differences = np.repeat(self.positive_scores, counts) - self.scores[places]
        kinds = {"positives": self.positive_scores, "negatives": self.scores, "differences": differences}
        shown = {name: values for name, values in kinds.items() if len(values)}
        points = (0, 25, 50, 75, 100)
        rows = [
            (name, f"{len(values):,}", *(number(value) for value in (values.mean(), *np.percentile(values, points))))
            for name, values in shown.items()
        ]
        return [Table("scores", ("", "count", "mean", "least", "25 %", "median", "75 %", "most"), rows)]


def _triplet(lists: Lists, anchor: str, positive: str, scored: bool) -> Iterator[_Columns]:
    for queries, documents, scores in lists.pairs():
        counts, places = lists.spans(queries)
        columns: _Columns = {
            anchor: lists.queries_at(np.repeat(queries, counts)),
            positive: lists.documents_at(np.repeat(documents, counts)),
            "negative": lists.documents_at(lists.negatives[places]),
        }
        if scored:
            columns["scores"] = _matrix(np.repeat(scores, counts), lists.scores[places])
        yield columns


def _tuple(lists: Lists, anchor: str, positive: str, scored: bool) -> Iterator[_Columns]:
    for queries, documents, scores in lists.pairs():
        full = lists.spans(queries)[0] == lists.number
        places = lists.offsets[queries[full]][:, None] + np.arange(lists.number)
        columns: _Columns = {anchor: lists.queries_at(queries[full]), positive: lists.documents_at(documents[full])}
        for rank, column in enumerate(places.T):
            columns[f"negative_{rank + 1}"] = lists.documents_at(lists.negatives[column])
        if scored:
            columns["scores"] = _matrix(scores[full], *lists.scores[places].T)
        yield columns


def _labelled_pair(lists: Lists, anchor: str, positive: str, scored: bool) -> Iterator[_Columns]:
    offsets = lists.positives.offsets
    for start in range(0, len(lists.positives), PIECE):
        queries = np.arange(start, min(start + PIECE, len(lists.positives)))
        pairs = np.arange(offsets[queries[0]], offsets[queries[-1] + 1])
        owners = np.repeat(queries, np.diff(offsets)[queries])
        columns = _mixed(lists, owners, lists.positives.doc_rows[pairs], lists.positive_scores[pairs], queries)
        yield {
            anchor: lists.queries_at(columns.owners),
            positive: lists.documents_at(columns.documents),
            **({"score": pa.array(columns.scores)} if scored else {"label": pa.array(columns.labels)}),
        }


def _labelled_list(lists: Lists, anchor: str, positive: str, scored: bool) -> Iterator[_Columns]:
    for queries, documents, scores in lists.pairs():
        some = lists.spans(queries)[0] > 0
        pairs = np.arange(int(some.sum()))
        mixed = _mixed(lists, pairs, documents[some], scores[some], queries[some])
        ends = np.searchsorted(mixed.owners, np.arange(len(pairs) + 1))
        yield {
            anchor: lists.queries_at(queries[some]),
            positive: _listed(ends, lists.documents_at(mixed.documents)),
            **({"scores": _listed(ends, pa.array(mixed.scores))} if scored else {}),
            **({} if scored else {"labels": _listed(ends, pa.array(mixed.labels))}),
        }


def _ragged(lists: Lists, anchor: str, positive: str, scored: bool) -> Iterator[_Columns]:
    for queries, documents, scores in lists.pairs():
        counts, places = lists.spans(queries)
        ends = np.concatenate([[0], np.cumsum(counts)])
        columns: _Columns = {
            anchor: lists.queries_at(queries),
            positive: lists.documents_at(documents),
            "negatives": _listed(ends, lists.documents_at(lists.negatives[places])),
        }
        if scored:
            mixed = _mixed(lists, np.arange(len(queries)), documents, scores, queries)
            columns["scores"] = _listed(ends + np.arange(len(ends)), pa.array(mixed.scores))
        yield columns


FORMS: dict[str, Callable[[Lists, str, str, bool], Iterator[_Columns]]] = {
    "triplet": _triplet,
    "n-tuple": _tuple,
    "labeled-pair": _labelled_pair,
    "labeled-list": _labelled_list,
    "n-list": _ragged,
}


def arrow_of(lists: Lists, form: str, anchor: str, positive: str, *, scored: bool) -> pa.Table:
    """Return the rows of a form of FORMS as an Arrow table.

    Args:
        lists: what was mined.
        form: a name in FORMS.
        anchor: name of the column of queries.
        positive: name of the column of positives.
        scored: with scores.
    """
    return pa.concat_tables([pa.table(columns) for columns in FORMS[form](lists, anchor, positive, scored)])


@dataclass(frozen=True)
class _Mixed:
    """Positives and negatives of owners, which are pairs or queries, in their order: positives before negatives."""

    owners: Rows
    documents: Rows
    scores: Scores
    labels: npt.NDArray[np.int64]


def _mixed(lists: Lists, owners: Rows, documents: Rows, scores: Scores, queries: Rows) -> _Mixed:
    """Join the positives of `owners` with the negatives of `queries`, whose owners are the distinct ones in order."""
    counts, places = lists.spans(queries)
    every = np.concatenate([owners, np.repeat(np.unique(owners), counts)])
    labels = np.repeat(np.array([1, 0]), [len(owners), len(places)])
    order = np.argsort(every, kind="stable")
    return _Mixed(
        every[order],
        np.concatenate([documents, lists.negatives[places]])[order],
        np.concatenate([scores, lists.scores[places]])[order],
        labels[order],
    )


def _listed(ends: Rows, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)


def _matrix(*columns: Scores) -> pa.Array:
    values = np.stack(columns, axis=1)
    return _listed(np.arange(len(values) + 1) * len(columns), pa.array(values.ravel()))
