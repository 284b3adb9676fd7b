"""Splits of queries into train, dev and test, so that no query of one is the near-twin of a query of another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from foils.data.chunks import MOST
from foils.data.collection import Rows
from foils.data.duplicates import near_pairs
from foils.data.tokens import alphanumeric
from foils.runtime.errors import InputError

NAMES = ("train", "dev", "test")
SHARES = (0.8, 0.1, 0.1)
TWINS = 0.7
"""Jaccard similarity of the tokens of two queries of one document from which on they are near-twins."""


def split_queries(
    texts: Sequence[str], query_rows: Rows, doc_rows: Rows, shares: Sequence[float] = SHARES
) -> list[str]:
    """Return a split for each query.

    Queries with the same tokens, and queries of one document whose tokens have a Jaccard similarity of 0.7 or more, go
    to one split together. Which split that is depends on their texts alone, not on the order of the queries: groups
    are taken in the order of a hash of their first text, and fill test, then dev; all others are train's. A group that
    is larger than what is free in test or dev goes on to the next.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
        shares: of the queries in train, dev and test; they sum to 1.

    Raises:
        InputError: shares that do not sum to 1, or are not in [0, 1].
    """
    if len(shares) != len(NAMES) or not min(shares) >= 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise InputError(f"splits {', '.join(f'{each:g}' for each in shares)}; expected three shares that sum to 1")
    group = _groups(texts, query_rows, doc_rows)
    sizes = np.bincount(group)
    free = {name: round(share * len(texts)) for name, share in zip(NAMES, shares, strict=True) if name != "train"}
    chosen = ["train"] * len(sizes)
    for number in _in_order(texts, group, sizes).tolist():
        fitting = next((name for name in ("test", "dev") if sizes[number] <= free[name]), "train")
        chosen[number] = fitting
        if fitting != "train":
            free[fitting] -= int(sizes[number])
    return [chosen[number] for number in group.tolist()]


def twin_pairs(texts: Sequence[str], query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.int64]:
    """Return (k, 2) near-twin queries: of one document, their tokens with a Jaccard similarity of 0.7 or more.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
    """
    order = np.lexsort((query_rows, doc_rows))
    queries, documents = np.asarray(query_rows)[order], np.asarray(doc_rows)[order]
    bounds = np.flatnonzero(np.diff(documents, prepend=-1, append=-1))
    pairs: list[tuple[int, int]] = []
    for at in np.flatnonzero(np.diff(bounds) > 1).tolist():
        rows = np.unique(queries[bounds[at] : bounds[at + 1]])
        if len(rows) > 1:
            sets = [set(alphanumeric(texts[int(row)])) for row in rows]
            pairs += [(int(rows[i]), int(rows[j])) for i, j in near_pairs(sets, threshold=TWINS)]
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def _groups(texts: Sequence[str], query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.int64]:
    """The number of each query's group."""
    _, first, inverse = np.unique(_hashes(texts, _words), axis=0, return_index=True, return_inverse=True)
    equal = np.stack([np.arange(len(texts)), first[inverse.ravel()]], axis=1)
    edges = np.concatenate([equal, twin_pairs(texts, query_rows, doc_rows)])
    joined = coo_matrix((np.ones(len(edges), bool), (edges[:, 0], edges[:, 1])), shape=(len(texts), len(texts)))
    return np.asarray(connected_components(joined, directed=False)[1], np.int64)


def _in_order(texts: Sequence[str], group: npt.NDArray[np.int64], sizes: Rows) -> Rows:
    """The groups, in the order of a hash of the first of their texts, alphabetically."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(sizes)
    first = order[ends - sizes]
    for number in np.flatnonzero(sizes > 1).tolist():
        first[number] = min(order[ends[number] - sizes[number] : ends[number]].tolist(), key=lambda row: texts[row])
    hashes = _hashes(texts, str)[first]
    return np.lexsort((hashes[:, 1], hashes[:, 0]))


def _hashes(texts: Sequence[str], of: Callable[[str], str]) -> npt.NDArray[np.uint64]:
    """(n, 2) 128-bit hashes of what a function makes of each text; they have the order of their bytes."""
    digests = bytearray()
    for start in range(0, len(texts), MOST):
        for text in texts[start : start + MOST]:
            digests += hashlib.blake2b(of(text).encode(), digest_size=16).digest()
    return np.frombuffer(bytes(digests), ">u8").astype(np.uint64).reshape(-1, 2)


def _words(text: str) -> str:
    """The same for texts of the same tokens; of a text without any, its own."""
    return "\x1f".join(sorted({*alphanumeric(text)}) or [text])
