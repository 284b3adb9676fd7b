"""A frozen guide's vectors of all texts of a training set, each text embedded once and kept in the vector store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foils.data.training_rows import ABSENT
from foils.encode import EmbeddingSettings, Vectors
from foils.encode.opening import EncoderLike, description
from foils.training.data import TrainingSet


@dataclass(frozen=True)
class GuideVectors:
    """A guide's vectors of the rows of a data set.

    Attributes:
        queries: (N,) of each row's query; of unit length where the guide compares by the cosine.
        documents: of the documents of `places`.
        places: (N, 1 + k) where the vectors of a row's documents lie; those of absent ones are some document's.
        encoder: what provenance says of the guide.
        guide: an encoder, or the name of one.
        settings: how it is used, and where its vectors are kept.
    """

    queries: Vectors
    documents: Vectors
    places: NDArray[np.int64]
    encoder: Mapping[str, Any]
    guide: EncoderLike
    settings: EmbeddingSettings

    def of_rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (b, d) vectors of these rows' queries and ((1 + k)·b, d) of their documents, column after column."""
        return self.queries.take(rows), self.documents.take(self.places[rows].T.ravel())

    def of_pairs(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return (N, d) vectors of all rows' queries, and (N, d) of their positives."""
        return self.queries.take(np.arange(len(self.places))), self.documents.take(self.places[:, 0])

    def on(self, data: TrainingSet) -> GuideVectors:
        """Return the same guide's vectors of another training set."""
        return guide_vectors(self.guide, data, settings=self.settings)


def guide_vectors(guide: EncoderLike, data: TrainingSet, *, settings: EmbeddingSettings) -> GuideVectors:
    """Embed the texts of a training set that the store does not hold yet; the model is let go afterwards.

    Args:
        guide: an encoder, or the name of one.
        data: whose queries, positives and negatives.
        settings: how the guide is used, and where its vectors are kept.

    Raises:
        InputError: a model that cannot be loaded.
    """
    encoder, store = settings.open_encoder(guide, data.texts.collection), settings.open_store()
    query_rows, query_places = np.unique(data.rows[:, 0], return_inverse=True)
    rows = data.rows[:, 1:]
    rows = np.where(rows == ABSENT, data.rows[:, 1:2], rows)
    document_rows, places = np.unique(rows, return_inverse=True)
    queries = store.embed(encoder, data.texts.texts("anchor", query_rows), "query", task="embedding queries (guide)")
    documents = store.embed(
        encoder, data.texts.documents_of(document_rows), "document", task="embedding documents (guide)"
    )
    places = places.reshape(rows.shape)
    return GuideVectors(queries.select(query_places), documents, places, description(encoder), guide, settings)
