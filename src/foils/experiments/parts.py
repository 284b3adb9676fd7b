"""Parts of a collection: three splits, some of its queries, documents that fit into the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foils.data.collection import Collection
from foils.data.splitting import SPLITS, drawn_judgements, with_documents
from foils.experiments.cache import digest_of
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError

DEV_QUERIES = 500
HARD = 10  # BM25's first documents of a query, on which it is measured
LEAST = {"train": 20, "dev": 10, "test": 20}
"""Queries of a split below which nothing can be learned, chosen or shown."""


def split_sizes(queries: int) -> tuple[float, float, float]:
    """Return the shares of queries in train, dev and test.

    A tenth each of many; of few, about 60 to choose on and 100 to test on, but no more than a fifth and three tenths.

    Args:
        queries: that have a positive.
    """
    dev, test = (min(most, max(0.1, wanted / max(1, queries))) for most, wanted in ((0.2, 60), (0.3, 100)))
    return 1 - dev - test, dev, test


def check_sizes(collection: Collection, splits: Sequence[str] = SPLITS) -> None:
    """Refuse a collection that is too small, as a whole or in some splits.

    Raises:
        InputError: fewer queries with a positive than are needed, in all or in a split.
    """
    total = len(collection.known_positives)
    counts = {name: len(collection.positives(name)) for name, table in collection.qrels.items() if len(table)}
    few = {name: counts.get(name, 0) for name, least in LEAST.items() if name in splits and counts.get(name, 0) < least}
    if total < sum(LEAST.values()) or few:
        parts = "; ".join(f"{name} has {count:,}, {LEAST[name]} are needed" for name, count in few.items())
        queries = f"{total:,} {'query has' if total == 1 else 'queries have'} a positive"
        raise InputError(
            f"{collection.name}: too few queries: {queries}{f' ({parts})' if parts else ''}; give about 200 pairs "
            "or more"
        )


def with_queries(collection: Collection, counts: Mapping[str, int], seed: int) -> Collection:
    """Return the collection with judgements of so many queries in some splits, drawn by the seed."""
    drawn = {name: drawn_judgements(collection, name, count, seed) for name, count in counts.items()}
    if all(table is collection.qrels[name] for name, table in drawn.items()):
        return collection
    digest = digest_of([collection.digest, dict(counts), seed], 16)
    return replace(collection, qrels={**collection.qrels, **drawn}, digest=digest)


def of_splits(collection: Collection, counts: Mapping[str, int], documents: int, seed: int) -> Collection:
    """Return what models are measured on: some queries of some splits, and about so many documents.

    The documents are the queries' positives, those that BM25 ranks first, and random ones: not those that the model
    itself ranks first, on whose mistakes it would look worse than a model that is trained.

    Args:
        collection: with these splits.
        counts: split → queries, drawn.
        documents: how many.
        seed: of the draws.
    """
    part = with_queries(replace(collection, qrels={name: collection.qrels[name] for name in counts}), counts, seed)
    return with_hard_documents(part, tuple(counts), tuple(counts), documents, seed)


def with_hard_documents(
    collection: Collection, kept: Sequence[str], ranked: Sequence[str], count: int, seed: int
) -> Collection:
    """Return the collection with the positives of some splits, BM25's first documents for some, and random ones.

    BM25's take three quarters of what the positives leave, all first ranks before the second ones.
    """
    if count >= len(collection.documents):
        return collection
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
    return with_documents(collection, np.concatenate([rows, drawn]))
