"""A table of negatives in the making, from records of a file that name documents by id or by text."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.chunks import MOST
from foils.data.collection import IDENTICAL, Collection
from foils.data.judged_pairs import hash_of
from foils.data.negatives import EQUAL, POSITIVE, REQUIRED, Negatives
from foils.data.store import Provenance, provenance
from foils.data.tokens import alphanumeric

log = logging.getLogger(__name__)
SHOWN = 5  # lines that a warning lists


@dataclass
class SourceRows:
    """Rows of a table in the making: for each query its passages in order, the first of repeated ones kept.

    A passage that is a positive of its query, or has the text of one, gets a rejected row: it is not a negative.

    Attributes:
        name: of the source.
        collection: that it belongs to.
        where: what is added stands, for the warning: a file, or a table in memory.
        texts: of documents that are not in the collection.
        repeated: how many were not kept.
        positives: (query id, document id) -> score that a file gives a labelled positive.
        reasons: of each row, why it is rejected; None: it is not.
        mistaken: where -> lines of those that are.
    """

    name: str
    collection: Collection
    where: str | Path
    columns: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in (*REQUIRED.names, "text")})
    seen: dict[tuple[str, str], None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    positives: dict[tuple[str, str], float] = field(default_factory=dict)
    reasons: list[str | None] = field(default_factory=list)
    mistaken: dict[str | Path, list[int]] = field(default_factory=dict)

    @cached_property
    def known(self) -> KnownPositives:
        """The positives of the collection."""
        return KnownPositives(self.collection)

    @cached_property
    def known_texts(self) -> KnownTexts:
        """The texts of the collection."""
        return KnownTexts.of(self.collection)

    def add(self, query_id: str, doc_id: str, text: str, score: float | None, line: int, *, inside: bool) -> None:
        """Add a negative, after the others of its query; `inside`: the collection has it, and the text is not kept."""
        if (query_id, doc_id) in self.seen:
            self.repeated += 1
            return
        self.seen[query_id, doc_id] = None
        rank = self.ranks[query_id] = self.ranks.get(query_id, -1) + 1
        score, own = np.nan if score is None else score, None if inside else text
        for column, value in zip(self.columns.values(), (query_id, doc_id, self.name, rank, score, own), strict=True):
            column.append(value)
        self.reasons.append(reason := self.known.reason(query_id, doc_id, text))
        if reason:
            self.mistaken.setdefault(self.where, []).append(line)

    def unknown(self, query: str) -> str:
        """Return the complaint about a query that the collection does not have."""
        return f"unknown query {query[:60]!r}: not a text of the collection {self.collection.name}"

    def negatives(self, form: str, path: Path) -> Negatives:
        """Return the table; a labelled positive whose score is known has a rejected row.

        Args:
            form: of what was read, for the provenance.
            path: the file, whose name the provenance has.
        """
        table = pa.table(
            [pa.array(self.columns[key], kind) for key, kind in zip(REQUIRED.names, REQUIRED.types, strict=True)],
            schema=REQUIRED,
        )
        if any(text is not None for text in self.columns["text"]):
            table = table.append_column("text", pa.array(self.columns["text"], pa.large_string()))
        negatives = Negatives(table, imported(form, path, self.collection, repeated=self.repeated))
        for where, lines in self.mistaken.items():
            _tell_mistaken(where, lines)
        if self.mistaken:
            for reason in (POSITIVE, EQUAL):
                negatives = negatives.reject(np.array([each == reason for each in self.reasons]), reason)
        known = {pair: score for pair, score in self.positives.items() if np.isfinite(score)}
        if not known:
            return negatives
        ids = [pa.array(column, pa.string()) for column in zip(*known, strict=True)]
        return negatives.with_rejected(ids[0], ids[1], values={"score": list(known.values())})[0]


def without_own(negatives: Negatives, collection: Collection, where: str | Path) -> Negatives:
    """Return the table, rejected what is no negative of its query: labelled positives, and the query's own document.

    Args:
        negatives: of any origin.
        collection: that it belongs to.
        where: it comes from, for the warning.

    Raises:
        InputError: it holds ids that the collection does not know.
    """
    queries, documents = negatives.rows_in(collection)
    mistaken = collection.known_positives.contain(queries, documents) & negatives.keep
    if mistaken.any():
        _tell_mistaken(where, (np.flatnonzero(mistaken) + 1).tolist(), "row")
        negatives = negatives.reject(mistaken, POSITIVE)
    own = (collection.identical[queries] == documents) & (documents >= 0)
    return negatives.reject(own, IDENTICAL) if own.any() else negatives


def _tell_mistaken(where: str | Path, lines: list[int], counted: str = "line") -> None:
    """Warn of negatives that are positives of their query, with their lines; 0 where there are none."""
    known = sorted({line for line in lines if line})
    shown = ", ".join(map(str, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
    at = f" ({counted}{'s' if len(known) > 1 else ''} {shown})" if known else ""
    said = "negative is a positive" if len(lines) == 1 else "negatives are positives"
    log.warning("%s: %s %s of the same query%s; rejected", where, f"{len(lines):,}", said, at)


class KnownPositives:
    """Tells whether a document is a positive of a query, in any split, or has the text of one.

    Texts are equal where their tokens are, in order: without case and punctuation.

    Args:
        collection: documents and judgements.
    """

    def __init__(self, collection: Collection) -> None:
        queries, documents = collection.known_positives.pairs()
        self._pairs: set[tuple[str, str]] = set()
        self._texts: set[int] = set()
        for start in range(0, len(queries), MOST):
            part = slice(start, start + MOST)
            ids = collection.queries["query_id"].take(pa.array(queries[part])).to_pylist()
            known = collection.documents["doc_id"].take(pa.array(documents[part])).to_pylist()
            self._pairs.update(zip(ids, known, strict=True))
            self._texts.update(map(_key, ids, collection.document_texts(documents[part])))

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs

    def reason(self, query_id: str, doc_id: str, text: str) -> str | None:
        """Return why a document is no negative of a query; None where nothing says so."""
        if (query_id, doc_id) in self._pairs:
            return POSITIVE
        return EQUAL if _key(query_id, text) in self._texts else None


def _key(query_id: str, text: str) -> int:
    return hash_of("\x1f".join([query_id, *(alphanumeric(text) or [text])]))


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
