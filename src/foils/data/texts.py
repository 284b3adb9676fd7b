"""The text of documents by row: of a collection, or what a table of negatives brings along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.tables import take
from foils.runtime.errors import InputError


@dataclass(frozen=True)
class DocumentTexts:
    """Texts of documents, read in slices from where they are stored.

    Attributes:
        collection: has the documents of rows from 0 on.
        rows: (n,) of documents; −1 − i is text i of `own`. None: all documents of the collection.
        own: (m,) texts that are not in the collection; None: there are none.
    """

    collection: Collection
    rows: Rows | None = None
    own: pa.Array | pa.ChunkedArray | None = None

    def __len__(self) -> int:
        return len(self.collection.documents) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        rows = np.arange(len(self)) if self.rows is None else self.rows
        if not isinstance(index, slice):
            return self._read(rows[[index]])[0]
        return self._read(rows[index])

    def _read(self, rows: Rows) -> list[str]:
        inside = rows >= 0
        if inside.all():
            return self.collection.document_texts(rows)
        texts = np.empty(len(rows), object)
        texts[inside] = self.collection.document_texts(rows[inside])
        if self.own is None:
            raise InputError("document rows below 0; a document outside the collection needs its text")
        texts[~inside] = take(self.own, -1 - rows[~inside]).to_pylist()
        return list(texts)

    def take(self, places: Rows) -> list[str]:
        """Return these of the texts, (k,) places."""
        return self.select(places)[:]

    def select(self, places: Rows) -> DocumentTexts:
        """Return these of the texts, (k,) places."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return DocumentTexts(self.collection, rows[places], self.own)


@dataclass(frozen=True)
class ColumnTexts(Sequence[str]):
    """Texts of an Arrow column as they are, read in slices."""

    column: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if not isinstance(index, slice):
            return str(self.column[index].as_py())
        start, stop, _ = index.indices(len(self))
        texts: list[str] = self.column.slice(start, max(stop - start, 0)).to_pylist()
        return texts


def texts_of(negatives: Negatives, collection: Collection) -> tuple[Rows, DocumentTexts]:
    """Return (n,) query rows of a table, and the texts of its documents; what stands in `text` counts by its row.

    Raises:
        InputError: query ids, or document ids without a text, that the collection does not know.
    """
    queries, documents = negatives.rows_in(collection)
    own = np.flatnonzero(documents < 0)
    documents[own] = -1 - own
    text = negatives.table["text"] if "text" in negatives.table.column_names else None
    return queries, DocumentTexts(collection, documents, text)
