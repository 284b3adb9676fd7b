"""How often documents that answer new queries have answered training queries: what is learned of them serves again.

R is counted by pairs: the share of the (query, relevant document) pairs of queries to come whose document is a positive
of a training query, too. Where no queries but those of the training are judged, it is the estimate of Good and Turing:
the next pair's document has not been seen with probability n₁/n, n₁ documents having exactly one of the n pairs.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DEV, TRAIN, Collection


def recurrence(collection: Collection, split: str, train: str = TRAIN) -> float | None:
    """Return R of a split, in [0, 1]; None where it has no relevant document.

    Args:
        collection: with judgements of both splits.
        split: the queries to come.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    return _share_known(_pairs(collection, split), _pairs(collection, train))


def expected_recurrence(collection: Collection, train: str = TRAIN) -> float:
    """Return R as it is expected of queries to come, in [0, 1].

    It is that of the split dev; else that of the other splits' queries that are not trained on; else the estimate of
    Good and Turing, 1 − n₁/n; 1 where the split has no relevant document.

    Args:
        collection: with judgements of the split.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    known = _pairs(collection, train)
    others = [name for name in collection.splits if name != train]
    for names in ([name for name in others if name == DEV], others):
        if not names:
            continue
        pairs = pa.concat_tables([_pairs(collection, name) for name in names])
        new = pairs.filter(pc.invert(pc.is_in(pairs["query_id"], value_set=known["query_id"].combine_chunks())))
        if (share := _share_known(new, known)) is not None:
            return share
    counts = pc.value_counts(known["doc_id"].combine_chunks()).field("counts")
    return 1 - pc.sum(pc.equal(counts, 1)).as_py() / len(known) if len(known) else 1.0


def _pairs(collection: Collection, split: str) -> pa.Table:
    """The relevant pairs of a split, each once."""
    table = collection.judgements(split)
    table = table.filter(pc.greater(table["relevance"], 0)).select(["query_id", "doc_id"])
    texts = [column.cast(pa.large_string()).combine_chunks() for column in table.columns]
    return pa.table(dict(zip(table.column_names, texts, strict=True)))


def _share_known(pairs: pa.Table, known: pa.Table) -> float | None:
    there = pc.is_in(pairs["doc_id"].combine_chunks(), value_set=known["doc_id"].combine_chunks())
    return float(pc.mean(there).as_py()) if len(pairs) else None
