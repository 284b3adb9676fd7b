"""Which training rows may not meet in a batch, by what a collection knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foils.batching.batches import Rows
from foils.batching.conflicts import Conflicts, find_conflicts
from foils.data import Collection


def known_conflicts(collection: Collection, query_rows: Rows, doc_rows: Rows) -> Conflicts:
    """Return which rows may not meet: by the collection's judgements of all splits, and by equal texts.

    Args:
        collection: whose judgements and texts.
        query_rows: (N,) the query of each training row, by its row in the collection.
        doc_rows: (N,) the positive of each training row, likewise.
    """
    asked, answers = collection.known_positives.pairs()
    query = _numbers(np.concatenate([query_rows, asked]), collection.query_texts)
    document = _numbers(np.concatenate([doc_rows, answers]), collection.document_texts)
    count = len(query_rows)
    known = zip(query[count:].tolist(), document[count:].tolist(), strict=True)
    return find_conflicts(query[:count].tolist(), document[:count].tolist(), positives=known)


def _numbers(rows: Rows, texts_of: Callable[[Rows], Sequence[str]]) -> Rows:
    """Number rows of a collection by their texts; each text is looked up once."""
    distinct, inverse = np.unique(rows, return_inverse=True)
    seen: dict[str, int] = {}
    texts = texts_of(distinct)
    return np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))[inverse]
