"""Training for a partner: BM25's scores as a fixed part of the logits, so that the encoder learns what BM25 leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from foils.data.training_rows import ABSENT
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError
from foils.training.data import TrainingSet

LOGITS = 10.0
"""Of the document that BM25 ranks first; cosines at a temperature of 0.05 span 20 about."""


class BM25Partner:
    """BM25's score of the pairs of a batch, over the largest of the query, times `LOGITS`.

    Args:
        data: the training set, whose collection BM25 searches.

    Raises:
        InputError: a negative is a text of the table's own, which BM25 did not index.

    Source: Gao et al., "Complement lexical retrieval model with semantic residual embeddings" (ECIR 2021), where the
    residual is in the margin of a hinge loss.
    """

    def __init__(self, data: TrainingSet) -> None:
        collection = data.texts.collection
        if (data.rows[:, 1:] >= len(collection.documents)).any():
            raise InputError("negatives with a text of their own have no BM25 score; train beside BM25 without them")
        bm25 = BM25Retriever(collection)
        queries, self._query = np.unique(data.rows[:, 0], return_inverse=True)
        there = np.where(data.rows[:, 1:] == ABSENT, data.rows[:, 1:2], data.rows[:, 1:])
        documents, places = np.unique(there, return_inverse=True)
        self._document = places.reshape(there.shape)
        asked, self._documents = bm25.vectors(queries, documents)
        best = np.nan_to_num(bm25.search(queries, 1)[1].ravel(), nan=1.0)
        self._queries = sparse.diags_array(LOGITS / best) @ asked

    def __call__(self, rows: NDArray[np.int64], begin: int, end: int) -> NDArray[np.float32]:
        """Return (end − begin, (1 + k)·b) scores of queries begin … end − 1 and all documents, column after column.

        Args:
            rows: (b,) numbers of the batch's rows in the data set.
            begin: first query.
            end: the one after the last.
        """
        queries = self._queries[self._query[rows[begin:end]]]
        scores = queries @ self._documents[self._document[rows].T.ravel()].T
        return np.asarray(scores.toarray(), np.float32)
