"""The distinct texts of a scoring, each once, whatever documents and sources it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from foils.data.collection import Collection, Rows
from foils.encode.vectors import text_keys


@dataclass(frozen=True)
class PooledTexts:
    """The distinct texts of a scoring: documents of the collection by row, then texts that the sources bring along."""

    collection: Collection
    rows: Rows
    own: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.own)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            stored = self.collection.document_texts(self.rows[start:stop])
            return stored + list(self.own[max(0, start - len(self.rows)) : max(0, stop - len(self.rows))])
        return self[index : index + 1][0] if index >= 0 else self[len(self) + index]

    def select(self, indices: Rows) -> PooledTexts:
        """Return these texts, (n,) ascending indices, renumbered from 0."""
        stored = indices[indices < len(self.rows)]
        own = tuple(self.own[index - len(self.rows)] for index in indices[len(stored) :])
        return PooledTexts(self.collection, self.rows[stored], own)


class Pool:
    """Numbers distinct texts, in whatever order they come: those of the rows of the collection, then the sources' own.

    Args:
        collection: of the rows.
        row_lists: document rows, each (n,); rows below 0 are passed over.
        own_lists: texts that are not documents of the collection.
    """

    def __init__(self, collection: Collection, row_lists: Sequence[Rows], own_lists: Sequence[Sequence[str]]) -> None:
        self._rows = np.unique(np.concatenate([rows[rows >= 0] for rows in row_lists]))
        own = sorted({text for listed in own_lists for text in listed})
        keys = [
            text_keys(collection.document_texts(self._rows[at : at + 50_000]), "")
            for at in range(0, len(self._rows), 50_000)
        ]
        every = np.concatenate([*keys, text_keys(own, "")])
        _, first, inverse = np.unique(every, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # by row, then by text
        number = order[inverse.ravel()]
        kept = np.sort(first)
        self.texts = PooledTexts(
            collection,
            self._rows[kept[kept < len(self._rows)]],
            tuple(own[index - len(self._rows)] for index in kept[kept >= len(self._rows)]),
        )
        self._of_row = number[: len(self._rows)]
        self._of_own = dict(zip(own, number[len(self._rows) :].tolist(), strict=True))

    def index_of_rows(self, rows: Rows) -> Rows:
        """Return the number of each of these rows' texts, (n,)."""
        return self._of_row[np.searchsorted(self._rows, rows)]

    def index_of(self, rows: Rows, own: Sequence[str]) -> Rows:
        """Return the number of each text, (n,): of the row's, or where it is below 0 of the next of `own`."""
        out = np.empty(len(rows), np.int64)
        stored = rows >= 0
        out[stored] = self.index_of_rows(rows[stored])
        out[~stored] = [self._of_own[text] for text in own]
        return out
