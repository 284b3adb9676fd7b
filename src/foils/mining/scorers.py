"""Scores of pairs on one scale, from the vectors of an encoder."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Rows
from foils.data.texts import DocumentTexts
from foils.encode.encoder import Encoder
from foils.encode.vectors import Vectors, VectorStore
from foils.mining.pairs import Scores, TextPairs
from foils.runtime import memory

BLOCK = 4_096  # pairs at once, at most


class EncoderScorer:
    """Scores pairs by the inner product of an encoder's vectors: cosines, for unit ones. Texts are embedded once.

    The column of the scores is called by the encoder's similarity: cosine or dot.

    Args:
        encoder: makes the vectors.
        store: keeps them.
    """

    def __init__(self, encoder: Encoder, store: VectorStore) -> None:
        self._encoder, self._store = encoder, store
        self.column: str = getattr(encoder, "similarity", "cosine")

    def score(self, pairs: TextPairs) -> Scores:
        """Return the inner product of each pair, (n,), of documents in the collection or with a text of their own."""
        rows, query = np.unique(pairs.query_rows, return_inverse=True)
        texts, document = distinct_texts(pairs)
        queries = self._store.embed(self._encoder, pairs.collection.query_texts(rows), "query")
        return paired_products(queries, query, self._store.embed(self._encoder, texts, "document"), document)


def paired_products(queries: Vectors, query_rows: Rows, documents: Vectors, doc_rows: Rows) -> Scores:
    """Return the inner product of each (query row, document row), (n,)."""
    products, size = np.empty(len(query_rows)), memory.rows_at_once(8 * queries.dimension, most=BLOCK)
    for start in range(0, len(products), size):
        part = slice(start, start + size)
        products[part] = np.einsum("nd,nd->n", queries.take(query_rows[part]), documents.take(doc_rows[part]))
    return products


def distinct_texts(pairs: TextPairs) -> tuple[DocumentTexts, Rows]:
    """Return the texts of the pairs' documents, each document's once, and which each pair has, (n,)."""
    count = len(pairs.collection.documents)
    keys, document = np.unique(
        np.where(pairs.doc_rows < 0, count - 1 - pairs.doc_rows, pairs.doc_rows), return_inverse=True
    )
    return DocumentTexts(pairs.collection, np.where(keys < count, keys, count - 1 - keys), pairs.own), document
