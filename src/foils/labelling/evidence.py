"""What is seen of a row before anybody judges it: how near it is to answers, and what other queries' labels say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from foils.data.collection import Collection, DocumentTexts, Positives, Rows
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime import progress
from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]

COMPARED = 64  # positives of a query, or queries of a document, that are looked at
AT_ONCE = 128  # queries whose labels are followed at once


@dataclass(frozen=True)
class Evidence:
    """Features of the rows of a table.

    Attributes:
        rows: (k,) rows of the table whose query the split judges, and whose document is none of its positives.
        names: of the features.
        features: (k, f), of mean 0 and standard deviation 1; those that do not vary are left out.
    """

    rows: Rows
    names: tuple[str, ...]
    features: Floats


def evidence_of(
    collection: Collection, negatives: Negatives, encoder: Encoder, store: VectorStore, *, split: str = "train"
) -> Evidence:
    """Return two features of each row.

    - nearest: the similarity of the document to the nearest of the query's labelled positives.
    - labelled together: log(1 + number of ways) from the query over a positive of it and another query for which that
      is labelled, too, to the document. It is 0 where each query has positives of its own.

    Args:
        collection: documents, queries, judgements.
        negatives: the table; rows that are rejected are looked at as well.
        encoder: that measures similarity.
        store: of vectors.
        split: whose judgements are known.

    Raises:
        InputError: no row of a query that the split judges.
        UnknownNameError: no such split.
    """
    known = collection.positives(split)
    query_rows, texts = negatives.texts_in(collection)
    places, doc_rows = known.places(query_rows), np.maximum(np.asarray(texts.rows), -1)
    rows = np.flatnonzero((places >= 0) & ~known.contain(query_rows, doc_rows))
    if not len(rows):
        raise InputError(f"no row is of a query that the split {split!r} judges; there is nothing to relabel")
    places = places[rows]
    columns = {
        "nearest": _nearest(known, places, texts.select(rows), encoder, store),
        "labelled together": _labelled_together(known, places, doc_rows[rows], len(collection.documents)),
    }
    varying = {name: values for name, values in columns.items() if values.std() > 1e-9}
    features = [(values - values.mean()) / values.std() for values in varying.values()]
    return Evidence(rows, tuple(varying), np.column_stack([np.zeros((len(rows), 0)), *features]))


def _nearest(known: Positives, places: Rows, texts: DocumentTexts, encoder: Encoder, store: VectorStore) -> Floats:
    """(k,) the largest similarity of each text to the first 64 positives of its query, by its place in `known`."""
    positive_rows = np.unique(known.doc_rows)
    positives = store.embed(encoder, DocumentTexts(texts.collection, positive_rows), "document")
    distinct, inverse = np.unique(np.asarray(texts.rows), return_inverse=True)
    documents = store.embed(encoder, DocumentTexts(texts.collection, distinct, texts.own), "document")
    nearest = np.zeros(len(places))
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(known) + 1))
    with progress.task("comparing with positives", total=len(known), unit="queries") as advance:
        for place in range(len(known)):
            of_query = order[starts[place] : starts[place + 1]]
            if len(of_query):
                answers = positives.take(np.searchsorted(positive_rows, known.of(place)[:COMPARED]))
                nearest[of_query] = (documents.take(inverse[of_query]) @ answers.T).max(axis=1)
            advance(1)
    return nearest


def _labelled_together(known: Positives, places: Rows, doc_rows: Rows, documents: int) -> Floats:
    """(k,) log(1 + ways) from each row's query to its document; rows below 0 are of no document of the collection."""
    query, document = np.repeat(np.arange(len(known)), known.counts), known.doc_rows
    queries_of = _first(document, query, (documents + 1, len(known)))
    positives_of = _first(query, document, (len(known), documents + 1))
    targets = np.where(doc_rows < 0, documents, doc_rows)
    ways = np.zeros(len(places))
    order = np.argsort(places, kind="stable")
    starts = np.arange(0, len(known), AT_ONCE)
    with progress.task("following labels", total=len(known), unit="queries") as advance:
        for start, rows in zip(starts, np.split(order, np.searchsorted(places[order], starts[1:])), strict=True):
            shared = positives_of[start : start + AT_ONCE] @ queries_of
            ways[rows] = np.asarray(
                shared[places[rows] - start].multiply(queries_of[targets[rows]]).sum(axis=1)
            ).ravel()
            advance(min(AT_ONCE, len(known) - int(start)))
    return np.log1p(ways)


def _first(keys: Rows, values: Rows, shape: tuple[int, int]) -> csr_matrix:
    """Return which values each key has, as a matrix of zeros and ones; of each key the first 64 count."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    few = np.arange(len(keys)) - np.searchsorted(keys, keys) < COMPARED
    return csr_matrix((np.ones(few.sum(), np.int64), (keys[few], values[few])), shape=shape)
