"""Collections of paired texts in memory, each text as it is: what other libraries' functions are given."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection
from foils.data.pairs import text_id
from foils.runtime.errors import InputError

SLICE = 1_024  # texts that are Python's at once
SPLIT = "train"


def collection_of_texts(
    queries: pa.ChunkedArray, positives: pa.ChunkedArray, more: pa.ChunkedArray | None = None, *, name: str = "pairs"
) -> Collection:
    """Make a collection of pairs of texts, all in one split. Equal texts are one query, and one document.

    Nothing is stripped or split. Ids are those that `read_pairs` gives the same texts, so that tables of negatives fit
    a collection that was read from the same pairs.

    Args:
        queries: (n,) texts.
        positives: (n,) texts, each a document that answers the query at its place.
        more: (m,) texts of further documents, which come before the positives.
        name: of the collection.

    Raises:
        InputError: no pair at all, or a text that is missing or blank; the message says which.
    """
    if not len(queries):
        raise InputError(f"{name} is empty; expected at least one pair of a query and its positive")
    given = {"query": queries, "positive": positives, **({} if more is None else {"text of the corpus": more})}
    for what, column in given.items():
        _check_texts(what, column)
    query_codes, query_ids, query_texts = _distinct([queries])
    codes, doc_ids, texts = _distinct([positives] if more is None else [more, positives])
    of_positives = codes[-len(positives) :]
    _, first = np.unique(query_codes * len(texts) + of_positives, return_index=True)
    judged = np.sort(first)
    qrels = pa.table(
        [
            query_ids.take(pa.array(query_codes[judged])),
            doc_ids.take(pa.array(of_positives[judged])),
            pa.array(np.ones(len(judged), np.int32)),
        ],
        schema=QRELS,
    )
    documents = pa.table([doc_ids, pa.repeat(pa.scalar("", pa.large_string()), len(texts)), texts], schema=DOCUMENTS)
    asked = pa.table([query_ids, query_texts], schema=QUERIES)
    return Collection(name, documents, asked, {SPLIT: qrels}, _digest(documents, asked, qrels), keep_identical_ids=True)


def _check_texts(what: str, column: pa.ChunkedArray) -> None:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f"the {what} column holds {column.type}; expected texts")
    blank = pc.fill_null(pc.or_(pc.utf8_is_space(column), pc.equal(pc.binary_length(column), 0)), True)
    if rows := np.flatnonzero(blank.to_numpy()).tolist():
        shown = ", ".join(map(str, rows[:5]))
        raise InputError(
            f"{len(rows):,} rows without a {what} (first: {shown}, counted from 0); give each one a text, or leave "
            "them out"
        )


def _distinct(columns: list[pa.ChunkedArray]) -> tuple[npt.NDArray[np.int64], pa.Array, pa.Array]:
    """Return each row's place among the distinct texts; these texts' ids, and they themselves, as they first come.

    Ids stand for texts: a table of the texts themselves would take several times their memory.
    """
    chunks = [chunk.cast(pa.large_string()) for column in columns for chunk in column.chunks if len(chunk)]
    parts = (chunk.slice(start, SLICE) for chunk in chunks for start in range(0, len(chunk), SLICE))
    ids = pa.array([text_id(text) for part in parts for text in part.to_pylist()], pa.string()).dictionary_encode()
    codes = np.asarray(ids.indices, np.int64)
    first = np.zeros(len(codes), bool)
    first[np.unique(codes, return_index=True)[1]] = True
    marks = np.split(first, np.cumsum([len(chunk) for chunk in chunks])[:-1])
    kept = [chunk if mark.all() else chunk.filter(pa.array(mark)) for chunk, mark in zip(chunks, marks, strict=True)]
    return codes, ids.dictionary, _joined(kept)


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """One array of those that have a text: without a copy where that is one."""
    some = [chunk for chunk in chunks if len(chunk)]
    return some[0] if len(some) == 1 else pa.concat_arrays(some)


def _digest(*tables: pa.Table) -> str:
    """Digest of the ids, which are digests of the texts, and of the pairs."""
    hasher = hashlib.blake2b(digest_size=16)
    for table in tables:
        for column in (column for name, column in zip(table.column_names, table.columns, strict=True) if "_id" in name):
            hasher.update("\x1f".join(column.to_pylist()).encode() + b"\x1e")
    return hasher.hexdigest()
