"""Dense negatives: exact inner products, in blocks."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Collection, Rows
from foils.encode.encoder import Encoder
from foils.encode.nearest import BLOCK, top_inner_products
from foils.encode.vectors import Vectors, VectorStore
from foils.mining.pairs import Scores, TextPairs
from foils.mining.scorers import paired_products
from foils.runtime.errors import InputError


def embed_queries(
    collection: Collection, encoder: Encoder, store: VectorStore, query_rows: Rows | None = None
) -> Vectors:
    """Return vectors of all queries of a collection by row; with `query_rows`, of these alone."""
    rows = np.arange(len(collection.queries)) if query_rows is None else query_rows
    return store.embed(encoder, collection.query_texts(rows), "query").spread(rows, len(collection.queries))


class DenseRetriever:
    """Ranks documents by the inner product of their vectors with the query's (ECI_sem eq. 1–2: cosine, for unit ones).

    Exact, ties by document position. Documents are read block by block from where the vectors lie, so the corpus may
    be larger than memory.

    Args:
        queries: vectors of all queries of the collection, or of those that will be asked for, by query row.
        documents: vectors of all documents, by row.
        device: torch device that screens the documents (`top_inner_products`); None, or CUDA where there is none, as in
            a process without a GPU: the processor. The ranking is the same, bit for bit.
    """

    name = column = "dense"
    portable = True
    short = "the collection has no further document"

    def __init__(self, queries: Vectors, documents: Vectors, *, device: str | None = None) -> None:
        if queries.dimension != documents.dimension:
            raise InputError(
                f"query vectors have d = {queries.dimension}, document vectors {documents.dimension}; "
                "use one encoder for both"
            )
        self._queries, self._documents, self._device = queries, documents, device

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and inner products."""
        device = _there(self._device)
        parts = [
            top_inner_products(
                self._queries.take(query_rows[start : start + BLOCK]), self._documents, depth, device=device
            )
            for start in range(0, max(1, len(query_rows)), BLOCK)
        ]
        return np.concatenate([rows for rows, _ in parts]), np.concatenate([scores for _, scores in parts])

    def score(self, pairs: TextPairs) -> Scores:
        """Return the inner product of each pair, (n,).

        Raises:
            InputError: a document that is not in the collection; `EncoderScorer` scores those too.
        """
        if (pairs.doc_rows < 0).any():
            raise InputError("documents with a text of their own have no vector here; score them with an encoder")
        return paired_products(self._queries, pairs.query_rows, self._documents, pairs.doc_rows)


def _there(device: str | None) -> str | None:
    """The device, where this process has it."""
    if device is None or not device.startswith("cuda"):
        return device
    import torch

    return device if torch.cuda.is_available() else None
