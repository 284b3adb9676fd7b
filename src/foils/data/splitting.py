"""Splits of queries into train, dev and test, parts of collections, and how often documents recur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from foils.data.collection import DEV, TRAIN, Collection, Rows
from foils.data.tokens import comparable, near_pairs
from foils.runtime import seeds
from foils.runtime.errors import InputError

SPLITS = ("train", "dev", "test")


# names by which splits are known
USUAL = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val", "eval"), "test": ("test",)}
# Jaccard similarity of the tokens of two queries of one document from which on they are near-twins
TWINS = 0.7


def split_name(name: str) -> str:
    """Return what a split is called here: train, dev or test for its usual names, whatever their case."""
    return next((split for split, usual in USUAL.items() if name.lower() in usual), name)


def split_sizes(queries: int) -> tuple[float, float, float]:
    """Return the shares of queries in train, dev and test.

    A tenth each of many; of few, about 60 to choose on and 100 to test on, but no more than a fifth
    and three tenths.

    Args:
        queries: that are divided.
    """
    dev, test = (min(most, max(0.1, wanted / max(1, queries))) for most, wanted in ((0.2, 60), (0.3, 100)))
    return 1 - dev - test, dev, test


def split_queries(
    texts: Sequence[str], query_rows: Rows, doc_rows: Rows, shares: Sequence[float] | None = None
) -> list[str]:
    """Return a split for each query.

    Queries with the same tokens, and queries of one document whose tokens have a Jaccard similarity
    of 0.7 or more, go to one split together. Which split that is depends on their texts alone, not
    on the order of the queries: groups are taken in the order of a hash of their first text, and
    fill test, then dev; all others are train's. A group that is larger than what is free in test or
    dev goes on to the next.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
        shares: of the queries in train, dev and test; they sum to 1. Default: `split_sizes`.
    """
    shares = shares or split_sizes(len(texts))
    # compared in this process alone
    words = np.fromiter((hash(frozenset(comparable(text))) for text in texts), np.int64, len(texts))
    _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
    equal = np.stack([np.arange(len(texts)), first[inverse]], axis=1)
    edges = np.concatenate([equal, twin_pairs(texts, query_rows, doc_rows)])
    joined = coo_matrix((np.ones(len(edges), bool), (edges[:, 0], edges[:, 1])), shape=(len(texts), len(texts)))
    group = connected_components(joined, directed=False)[1].tolist()
    sizes, first_texts = Counter(group), dict[int, str]()
    for number, text in zip(group, texts, strict=True):
        first_texts[number] = min(text, first_texts.get(number, text))
    hashes = {number: blake2b(text.encode(), digest_size=16).digest() for number, text in first_texts.items()}
    free = {"test": round(shares[2] * len(texts)), "dev": round(shares[1] * len(texts))}
    chosen = dict[int, str]()
    for number in sorted(hashes, key=hashes.__getitem__):
        chosen[number] = next((name for name in free if sizes[number] <= free[name]), "train")
        if chosen[number] in free:
            free[chosen[number]] -= sizes[number]
    return [chosen[number] for number in group]


def twin_pairs(texts: Sequence[str], query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.int64]:
    """Return (k, 2) near-twin queries: of one document, their tokens with a Jaccard similarity of 0.7 or more.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
    """
    pairs: list[tuple[int, int]] = []
    for places in grouped(np.asarray(doc_rows)):
        if len(places) > 1:
            rows = np.unique(np.asarray(query_rows)[places])
            sets = [comparable(texts[row]) for row in rows.tolist()]
            pairs += [(int(rows[i]), int(rows[j])) for i, j in near_pairs(sets, threshold=TWINS)]
    return np.asarray(pairs, np.int64).reshape(-1, 2)


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
    drawn = positives.query_rows[np.random.default_rng([seed, seeds.JUDGED]).permutation(len(positives))[:count]]
    return table.filter(pa.array(np.isin(collection.query_rows(table["query_id"]), drawn)))


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
    qrels = {
        split: table.filter(pa.array(np.isin(collection.document_rows(table["doc_id"]), rows)))
        for split, table in collection.qrels.items()
    }
    digest = blake2b(collection.digest.encode() + rows.tobytes(), digest_size=16).hexdigest()
    return replace(collection, documents=documents, qrels=qrels, digest=digest, folder=None)


def with_three_splits(collection: Collection) -> Collection:
    """Return the collection with judgements to train, dev and test; what it lacks is split off from train.

    A collection with one split alone, whatever its name, is split as pairs without splits are
    (`split_queries`).

    Args:
        collection: with one split at least.

    Raises:
        InputError: no judgement at all, or splits of which none is called train.
    """
    splits = collection.splits
    if {*SPLITS} <= {*splits}:
        return collection
    if TRAIN not in splits and len(splits) != 1:
        raise InputError(f"splits of {collection.name}: {splits}; expected a split 'train', or one split alone")
    whole = TRAIN if TRAIN in splits else splits[0]
    kept = {name: table for name, table in collection.qrels.items() if name != whole}
    usual = dict(zip(SPLITS, split_sizes(len(collection.known_positives)), strict=True))
    dev, test = (0.0 if name in kept else usual[name] for name in ("dev", "test"))
    shares = [1 - dev - test, dev, test]
    positives, table = collection.positives(whole), collection.qrels[whole]
    query_rows, doc_rows = positives.pairs()
    texts = collection.query_texts(positives.query_rows)
    chosen = split_queries(texts, positives.places(query_rows), doc_rows, shares)
    split_of = np.array([*chosen, TRAIN])  # the last: of queries without positives
    split_of_row = split_of[positives.places(collection.query_rows(table["query_id"]))]
    qrels = {name: kept.get(name, table.filter(pa.array(split_of_row == name))) for name in SPLITS}
    digest = blake2b(f"{collection.digest} {shares}".encode(), digest_size=16).hexdigest()
    return replace(collection, qrels=qrels | kept, digest=digest)


def recurrence(collection: Collection, split: str, train: str = TRAIN) -> float | None:
    """Return R of a split, in [0, 1]; None where it has no relevant document.

    Args:
        collection: with judgements of both splits.
        split: the queries to come.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    pairs, known = collection.labels(split).doc_rows, collection.labels(train).doc_rows
    return float(np.isin(pairs, known).mean()) if len(pairs) else None


def expected_recurrence(collection: Collection, train: str = TRAIN) -> float:
    """Return R as it is expected of queries to come, in [0, 1]; judgements of test are not looked at.

    It is that of the split dev, which stands for the queries to come: where a collection was split
    by its documents, its training pairs cannot tell. Without dev it is 1 − n₁/n, n₁ of the n
    training pairs having a document that no other pair has: the estimate of Good (1953) and Turing
    for the chance that the next document was seen before. It is 1 where the split has no relevant
    document.

    Args:
        collection: with judgements of the split.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    share = recurrence(collection, DEV, train) if train != DEV and DEV in collection.qrels else None
    if share is not None:
        return share
    counts = np.bincount(collection.labels(train).doc_rows)
    return 1 - float((counts == 1).sum() / counts.sum()) if counts.sum() else 1.0
