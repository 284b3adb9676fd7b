"""Parts of a collection: some of its documents, some of a split's queries, splits that it lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.splitting import split_queries
from foils.runtime.errors import InputError

PARTS = ("train", "dev", "test")


def drawn_judgements(collection: Collection, split: str, count: int | None, seed: int) -> pa.Table:
    """Return a split's judgements of `count` queries that have a positive, drawn by the seed; None: all.

    Args:
        collection: with judgements of the split.
        split: its name.
        count: of the queries.
        seed: of the draw.

    Raises:
        UnknownNameError: no such split.
        InputError: the split has no relevant document.
    """
    positives, table = collection.positives(split), collection.judgements(split)
    if count is None or count >= len(positives):
        return table
    drawn = np.sort(np.random.default_rng([seed, 11]).permutation(len(positives))[:count])
    ids = collection.queries["query_id"].take(pa.array(positives.query_rows[drawn]))
    return table.filter(pc.is_in(table["query_id"], value_set=ids.combine_chunks().cast(table["query_id"].type)))


def with_documents(collection: Collection, rows: Rows) -> Collection:
    """Return the collection of these documents alone, in ascending order, and of the judgements that name them.

    Args:
        collection: any.
        rows: of its documents, each at most once.
    """
    rows = np.sort(np.asarray(rows, np.int64))
    if len(rows) == len(collection.documents):
        return collection
    documents = collection.documents.take(pa.array(rows))
    ids = documents["doc_id"].combine_chunks()
    qrels = {
        split: table.filter(pc.is_in(table["doc_id"], value_set=ids.cast(table["doc_id"].type)))
        for split, table in collection.qrels.items()
    }
    digest = hashlib.blake2b(collection.digest.encode() + rows.tobytes(), digest_size=16).hexdigest()
    return replace(collection, documents=documents, qrels=qrels, digest=digest, folder=None)


def with_three_splits(collection: Collection, shares: Sequence[float]) -> Collection:
    """Return the collection with judgements to train, dev and test; what it lacks is split off from train.

    A collection with one split alone, whatever its name, is split as pairs without splits are (`split_queries`).

    Args:
        collection: with one split at least.
        shares: of all queries in train, dev and test.

    Raises:
        InputError: no judgement at all, or splits of which none is called train.
    """
    missing = [name for name in PARTS if name not in collection.qrels]
    if not missing:
        return collection
    splits = collection.splits
    whole = "train" if "train" in splits else splits[0] if len(splits) == 1 else ""
    if not whole:
        found = ", ".join(splits) or "no judgement"
        raise InputError(f"{collection.name} has the splits {found}; expected a split 'train', or one split alone")
    if whole != "train":
        missing = list(PARTS)
    kept = [share if name in missing or name == "train" else 0.0 for name, share in zip(PARTS, shares, strict=True)]
    kept[0] = 1 - kept[1] - kept[2]
    positives, table = collection.positives(whole), collection.qrels[whole]
    query_rows, doc_rows = positives.pairs()
    place = np.full(len(collection.queries), -1, np.int64)
    place[positives.query_rows] = np.arange(len(positives))
    texts = collection.query_texts(positives.query_rows)
    named = np.array([*split_queries(texts, place[query_rows], doc_rows, kept), "train"])  # the last: without positives
    of_row = named[place[collection.query_rows(table["query_id"])]]
    qrels = {name: each for name, each in collection.qrels.items() if name != whole}
    qrels |= {name: table.filter(pa.array(of_row == name)) for name in {"train", *missing}}
    ordered = {name: qrels[name] for name in dict.fromkeys([*PARTS, *qrels])}
    digest = hashlib.blake2b(f"{collection.digest} {kept}".encode(), digest_size=16).hexdigest()
    return replace(collection, qrels=ordered, digest=digest)
