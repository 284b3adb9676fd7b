"""Negatives by a model's own similarity: a sparse model's inner product, a multi-vector model's MaxSim."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.texts import DocumentTexts
from foils.encode.own_similarity import OwnIndex, OwnSimilarity
from foils.mining.pairs import Scores, TextPairs


class OwnSimilarityRetriever:
    """Ranks all documents by the similarity that a model was made for; exact, ties by document position.

    Args:
        collection: documents and queries.
        model: a sparse or multi-vector model.
    """

    short = "the collection has no further document"

    def __init__(self, collection: Collection, model: OwnSimilarity) -> None:
        self._collection, self._model = collection, model
        self._index = OwnIndex(model, DocumentTexts(collection))
        self.name, self.column = model.kind, model.similarity_name

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and similarities."""
        rows, scores = self._index.search(self._collection.query_texts(query_rows), depth)
        return rows, scores.astype(np.float64)

    def score(self, pairs: TextPairs) -> Scores:
        """Return the similarity of each pair, (n,)."""
        queries = pairs.collection.query_texts(pairs.query_rows)
        return self._model.predict([*zip(queries, pairs.documents[:], strict=True)]).astype(np.float64)
