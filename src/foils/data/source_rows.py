"""A table of negatives in the making, from records of a file that name documents by id or by text."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import REQUIRED, Negatives
from foils.data.store import Provenance, provenance


@dataclass
class SourceRows:
    """Rows of a table in the making: for each query its passages in order, the first of repeated ones kept.

    Attributes:
        name: of the source.
        texts: of documents that are not in the collection.
        repeated: how many were not kept.
        positives: (query id, document id) -> score that a file gives a labelled positive.
    """

    name: str
    columns: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in (*REQUIRED.names, "text")})
    seen: dict[tuple[str, str], None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    positives: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, query_id: str, doc_id: str, text: str | None, score: float | None) -> None:
        """Add a negative, after the others of its query; `text` where it is not in the collection."""
        if (query_id, doc_id) in self.seen:
            self.repeated += 1
            return
        self.seen[query_id, doc_id] = None
        rank = self.ranks[query_id] = self.ranks.get(query_id, -1) + 1
        values = (query_id, doc_id, self.name, rank, np.nan if score is None else score, text)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def negatives(self, form: str, path: Path, collection: Collection) -> Negatives:
        """Return the table; a labelled positive whose score is known has a rejected row."""
        table = pa.table(
            [pa.array(self.columns[key], kind) for key, kind in zip(REQUIRED.names, REQUIRED.types, strict=True)],
            schema=REQUIRED,
        )
        if any(text is not None for text in self.columns["text"]):
            table = table.append_column("text", pa.array(self.columns["text"], pa.large_string()))
        negatives = Negatives(table, imported(form, path, collection, repeated=self.repeated))
        known = {pair: score for pair, score in self.positives.items() if np.isfinite(score)}
        if not known:
            return negatives
        ids = [pa.array(column, pa.string()) for column in zip(*known, strict=True)]
        return negatives.with_rejected(ids[0], ids[1], values={"score": list(known.values())})[0]


@dataclass(frozen=True)
class KnownTexts:
    """Ids of a collection by text, white space squeezed; documents by their text alone and with their title.

    Of equal texts the first id wins.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    doc_ids: frozenset[str]

    @classmethod
    def of(cls, collection: Collection) -> KnownTexts:
        """Read a collection's texts."""
        queries: dict[str, str] = {}
        columns = (collection.queries[key].to_pylist() for key in ("query_id", "text"))
        for identifier, text in zip(*columns, strict=True):
            queries.setdefault(squeezed(text), identifier)
        documents: dict[str, str] = {}
        columns = (collection.documents[key].to_pylist() for key in ("doc_id", "title", "text"))
        for identifier, title, text in zip(*columns, strict=True):
            documents.setdefault(squeezed(f"{title} {text}"), identifier)
            documents.setdefault(squeezed(text), identifier)
        return cls(queries, documents, frozenset(collection.documents["doc_id"].to_pylist()))

    def query(self, text: str) -> str | None:
        """Return the id of the query with this text."""
        return self.queries.get(squeezed(text))

    def document(self, text: str, doc_id: str | None = None) -> tuple[str, bool]:
        """Return the id of a document with this id or text, and whether the collection has it.

        One that it does not have keeps its id, or gets one that its text determines.
        """
        if doc_id in self.doc_ids:
            return str(doc_id), True
        if (known := self.documents.get(squeezed(text))) is not None:
            return known, True
        return doc_id or "text:" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), False


def imported(form: str, path: Path, collection: Collection, **left_out: int) -> Provenance:
    """Return the provenance of what was read, with counts of what was left out and why."""
    file = os.fsencode(path.name).decode("utf-8", "replace")
    return provenance("import", {"form": form, "file": file, **left_out}, inputs={"collection": collection.digest})


def squeezed(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())
