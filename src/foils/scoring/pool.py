"""The distinct texts of a scoring, each once, whatever documents and sources it comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.texts import DocumentTexts
from foils.encode.vectors import text_keys


class Pool:
    """Numbers distinct texts, in whatever order they come: those of the rows of the collection, then the sources' own.

    Args:
        collection: of the rows.
        parts: texts of documents, of the collection or brought along.

    Attributes:
        texts: the distinct ones: documents of the collection by row, then those that are brought along.
    """

    def __init__(self, collection: Collection, parts: Sequence[DocumentTexts]) -> None:
        rows = [np.asarray(part.rows) for part in parts]
        self._rows = np.unique(np.concatenate([each[each >= 0] for each in rows]))
        own = sorted({text for part in parts for text in _brought(part)})
        keys = [
            text_keys(collection.document_texts(self._rows[at : at + 50_000]), "")
            for at in range(0, len(self._rows), 50_000)
        ]
        every = np.concatenate([*keys, text_keys(own, "")])
        _, first, inverse = np.unique(every, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # by row, then by text
        number = order[inverse.ravel()]
        kept = np.sort(first)
        stored, brought = kept[kept < len(self._rows)], kept[kept >= len(self._rows)] - len(self._rows)
        self.texts = DocumentTexts(
            collection,
            np.concatenate([self._rows[stored], -1 - np.arange(len(brought))]),
            pa.array([own[index] for index in brought], pa.large_string()),
        )
        self._of_row = number[: len(self._rows)]
        self._of_own = dict(zip(own, number[len(self._rows) :].tolist(), strict=True))

    def index_of_rows(self, rows: Rows) -> Rows:
        """Return the number of each of these rows' texts, (n,)."""
        return self._of_row[np.searchsorted(self._rows, rows)]

    def index_of(self, part: DocumentTexts) -> Rows:
        """Return the number of each of these texts, (n,)."""
        rows = np.asarray(part.rows)
        numbers = np.empty(len(rows), np.int64)
        stored = rows >= 0
        numbers[stored] = self.index_of_rows(rows[stored])
        numbers[~stored] = [self._of_own[text] for text in _brought(part)]
        return numbers


def _brought(part: DocumentTexts) -> list[str]:
    """The texts that are not documents of the collection."""
    return part.select(np.flatnonzero(np.asarray(part.rows) < 0))[:]
