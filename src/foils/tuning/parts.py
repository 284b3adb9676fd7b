"""What a tuning works on: three splits, documents that fit into the time, a small collection for dev."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.splitting import SPLITS, drawn_judgements, with_documents
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError

DEV_QUERIES = 500
HARD = 10  # documents that BM25 ranks first for a query, which belong to what it is measured on
LEAST = {"train": 20, "dev": 10, "test": 20}
"""Queries below which nothing can be learned, chosen or shown."""


def shares_of(queries: int) -> tuple[float, float, float]:
    """Return the shares of queries in train, dev and test.

    A tenth each of many; of few, about 60 to choose on and 100 to test on, but no more than a fifth and three tenths.

    Args:
        queries: that have a positive.
    """
    dev, test = (min(most, max(0.1, wanted / max(1, queries))) for most, wanted in ((0.2, 60), (0.3, 100)))
    return 1 - dev - test, dev, test


def check_sizes(collection: Collection) -> None:
    """Refuse a collection that is too small.

    Raises:
        InputError: fewer queries in a split than are needed.
    """
    counts = {name: len(collection.positives(name)) for name in SPLITS}
    if few := [
        f"{name} has {counts[name]}, {least} are needed" for name, least in LEAST.items() if counts[name] < least
    ]:
        raise InputError(f"{collection.name}: too few queries: {'; '.join(few)}; give about 200 pairs or more")


def with_queries(collection: Collection, counts: Mapping[str, int], seed: int) -> Collection:
    """Return the collection with judgements of so many queries in some splits, drawn by the seed."""
    drawn = {name: drawn_judgements(collection, name, count, seed) for name, count in counts.items()}
    if all(table is collection.qrels[name] for name, table in drawn.items()):
        return collection
    digest = hashlib.blake2b(f"{collection.digest} {dict(counts)} {seed}".encode(), digest_size=16).hexdigest()
    return replace(collection, qrels={**collection.qrels, **drawn}, digest=digest)


def fitting(collection: Collection, *, documents: int, queries: int, seed: int) -> Collection:
    """Return the collection with so many documents and training queries.

    Kept are the positives and, up to that number, what BM25 ranks first for queries of dev and test, and random ones.

    Args:
        collection: with three splits.
        documents: how many; the positives stay where they are more.
        queries: of train, drawn.
        seed: of the draws.
    """
    collection = with_queries(collection, {"train": queries}, seed)
    if documents >= len(collection.documents):
        return collection
    return with_documents(collection, _filled(collection, SPLITS, ("dev", "test"), documents, seed))


def dev_part(collection: Collection, documents: int, seed: int) -> Collection:
    """Return what short runs are measured on: at most 500 queries of dev, and about so many documents.

    The documents are the queries' positives, those that BM25 ranks first, and random ones: not those that the model
    itself ranks first, on whose mistakes it would look worse than a model that is trained.

    Args:
        collection: with a split dev.
        documents: how many.
        seed: of the draws.
    """
    part = replace(collection, qrels={"dev": drawn_judgements(collection, "dev", DEV_QUERIES, seed)})
    if documents >= len(part.documents):
        return part
    return with_documents(part, _filled(part, ("dev",), ("dev",), documents, seed))


def kept_part(collection: Collection, documents: int, seed: int) -> Collection:
    """Return what is measured of a collection that must not be forgotten: some queries of dev and test.

    Args:
        collection: with splits dev and test.
        documents: about how many; a query of test for two of them, and one of dev for four.
        seed: of the draws.
    """
    counts = {"dev": documents // 4, "test": documents // 2}
    part = with_queries(replace(collection, qrels={name: collection.qrels[name] for name in counts}), counts, seed)
    if documents >= len(part.documents):
        return part
    return with_documents(part, _filled(part, tuple(counts), tuple(counts), documents, seed))


def _filled(collection: Collection, kept: Sequence[str], ranked: Sequence[str], count: int, seed: int) -> Rows:
    """Rows of the positives of some splits, then, up to a number, of BM25's first for some, and of random documents.

    BM25's take three quarters of what the positives leave, all first ranks before the second ones.
    """
    positives = {name: collection.positives(name) for name in kept}
    rows = np.unique(np.concatenate([each.doc_rows for each in positives.values()]))
    room = max(0, count - len(rows))
    retriever = BM25Retriever(collection)
    ranks = np.concatenate([retriever.search(positives[name].query_rows, HARD)[0] for name in ranked]).T.ravel()
    hard, first = np.unique(ranks, return_index=True)
    hard = hard[np.argsort(first)]
    hard = hard[(hard >= 0) & ~np.isin(hard, rows)][: 3 * room // 4]
    rows = np.concatenate([rows, hard])
    others = np.setdiff1d(np.arange(len(collection.documents)), rows)
    drawn = np.random.default_rng([seed, 5]).permutation(others)[: max(0, count - len(rows))]
    return np.concatenate([rows, drawn])
