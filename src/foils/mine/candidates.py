"""From a ranking of documents per query to negatives: positives out, look-alikes of positives marked, short lists told.

A retriever ranks; what a negative is, is decided here, once, for every way of ranking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils import progress
from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives, negatives_table
from foils.data.run import ranks_within
from foils.data.store import Provenance
from foils.data.tokens import Vocabulary, alphanumeric
from foils.errors import InputError

EQUAL = "equal to a positive"
NEAR = "near-duplicate of a positive"
QUERIES = 4_096  # ranked at once
SPARE = 8  # ranked beyond what is asked for, so that look-alikes seldom need a second, deeper search

Scores = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


class Retriever(Protocol):
    """Ranks documents of a collection for queries of it.

    Attributes:
        name: of the source.
        short: why a list may end before the collection does.
    """

    name: str
    short: str

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Rank documents, best first, ties by document position.

        Args:
            query_rows: (n,) rows of queries.
            depth: how many; a deeper search begins with the same documents.

        Returns:
            Document rows (n, depth), −1 after the end of a list, and their scores (n, depth), NaN there and where
            the source has none.
        """
        ...


@dataclass(frozen=True)
class Mined:
    """What mining gave.

    Attributes:
        negatives: the table; rows that look like a positive are in it, rejected.
        queries: number of queries of the split.
        positives_left_out: labelled positives that the ranking held above its last negative.
        rejected: reason -> number of rows.
        short: reason -> number of queries with fewer than `top` negatives.
    """

    negatives: Negatives
    queries: int
    positives_left_out: int
    rejected: dict[str, int]
    short: dict[str, int]


def mine(
    collection: Collection,
    retriever: Retriever,
    *,
    split: str,
    top: int,
    near_duplicate: float = 0.9,
    made: Provenance | None = None,
) -> Mined:
    """Take the `top` best-ranked documents that are not positives, for every query of a split that has a positive.

    A document labelled relevant for the query, in any split, is left out. A document whose text equals a positive's
    (case-folded alphanumeric tokens, in order), or whose token set has a Jaccard similarity of `near_duplicate` or
    more to a positive's, stays in the table with `keep = false` and does not count towards `top`.

    Args:
        collection: documents, queries, judgements.
        retriever: what ranks.
        split: whose queries.
        top: negatives per query, at least 1.
        near_duplicate: threshold in (0, 1]; above 1 nothing is marked but equal texts.
        made: provenance of the table.

    Raises:
        InputError: `top` below 1, an unknown split, or a split without positives.
    """
    if top < 1:
        raise InputError(f"top {top}; expected at least 1 negative per query")
    positives = collection.positives(split)
    looks = _LookAlikes(collection, near_duplicate)
    parts = []
    with progress.task(f"mining with {retriever.name}", total=len(positives), unit="queries") as advance:
        for start in range(0, len(positives), QUERIES):
            block = positives.query_rows[start : start + QUERIES]
            parts.append(_search(retriever, block, top, looks, len(collection.documents)))
            advance(len(block))
    found = np.concatenate([part.candidates for part in parts])
    table = negatives_table(
        collection.queries["query_id"].take(pa.array(found["query"])),
        collection.documents["doc_id"].take(pa.array(found["document"])),
        retriever.name,
        ranks_within(found["query"]),
        found["score"],
    )
    negatives = Negatives(table, made or {}).reject(found["equal"], EQUAL).reject(found["near"], NEAR)
    short = sum(part.short for part in parts)
    ended = any(part.ended for part in parts)
    why = retriever.short if ended else "the collection has no further document"
    passed = sum(part.positives for part in parts)
    return Mined(negatives, len(positives), passed, negatives.rejected(), {why: short} if short else {})


_CANDIDATE = np.dtype([("query", "i8"), ("document", "i8"), ("score", "f8"), ("equal", "?"), ("near", "?")])


@dataclass(frozen=True)
class _Found:
    """Candidates of some queries, each query's in rank order, labelled positives gone.

    `positives` were passed over, `short` lists hold fewer than was asked for, `ended` tells whether one of them did
    so before the collection was through.
    """

    candidates: npt.NDArray[np.void]
    positives: int
    short: int
    ended: bool


def _search(retriever: Retriever, query_rows: Rows, top: int, looks: _LookAlikes, documents: int) -> _Found:
    """Search ever deeper, for the queries whose list is still short, until each is full or ends."""
    depth = min(documents, top + SPARE)
    done, passed, short, ended = [], 0, 0, False
    pending = query_rows
    while len(pending):
        rows, scores = retriever.search(pending, depth)
        candidates, usable, positive = _judged(pending, rows, scores, looks)
        wanted = np.cumsum(usable, axis=1) - usable < top
        full, over = usable.sum(axis=1) >= top, (rows < 0).any(axis=1)
        final = full | over | (depth == documents)
        done.append(candidates[wanted & (rows >= 0) & ~positive & final[:, None]])
        passed += int((positive & wanted & final[:, None]).sum())
        short += int((final & ~full).sum())
        ended |= bool((over & ~full).any())
        pending, depth = pending[~final], min(documents, depth * 4)
    joined = np.concatenate(done)
    position = np.empty(int(query_rows.max()) + 1, np.int64)
    position[query_rows] = np.arange(len(query_rows))
    return _Found(joined[np.argsort(position[joined["query"]], kind="stable")], passed, short, ended)


def _judged(
    query_rows: Rows, rows: Rows, scores: Scores, looks: _LookAlikes
) -> tuple[npt.NDArray[np.void], Marks, Marks]:
    """Lay a search's (n, depth) result out as candidates; tell which are usable, and which are labelled positives."""
    candidates = np.zeros(rows.shape, _CANDIDATE)
    candidates["query"], candidates["document"], candidates["score"] = query_rows[:, None], rows, scores
    flat = candidates.reshape(-1)
    positive = looks.known.contain(flat["query"], flat["document"])
    asked = (flat["document"] >= 0) & ~positive
    flat["equal"][asked], flat["near"][asked] = looks.marks(flat["query"][asked], flat["document"][asked])
    usable = asked & ~flat["equal"] & ~flat["near"]
    return candidates, usable.reshape(rows.shape), positive.reshape(rows.shape)


class _LookAlikes:
    """Compares candidates with the positives of their query."""

    def __init__(self, collection: Collection, threshold: float) -> None:
        self.collection, self.threshold = collection, threshold
        self.known = collection.known_positives
        self._order = np.argsort(self.known.query_rows)

    def marks(self, queries: Rows, documents: Rows) -> tuple[Marks, Marks]:
        """Return which (query, document) pairs, each (n,), equal a positive of the query, and which only nearly do."""
        index = self._order[np.searchsorted(self.known.query_rows[self._order], queries)]
        counts = self.known.counts[index]
        pair = np.repeat(np.arange(len(queries)), counts)
        positives = self.known.doc_rows[np.repeat(self.known.offsets[index], counts) + ranks_within(pair)]
        distinct, inverse = np.unique(np.concatenate([documents[pair], positives]), return_inverse=True)
        ours, theirs = inverse[: len(pair)], inverse[len(pair) :]
        tokens = [alphanumeric(text) or [text] for text in self.collection.document_texts(distinct)]
        sets = Vocabulary().sets_of(tokens)
        numbers: dict[tuple[str, ...], int] = {}
        written = np.array([numbers.setdefault(tuple(listed), len(numbers)) for listed in tokens])
        equal, near = np.zeros(len(queries), bool), np.zeros(len(queries), bool)
        equal[pair[written[ours] == written[theirs]]] = True
        near[pair[sets.jaccard(ours, sets, theirs) >= self.threshold]] = True
        return equal, near & ~equal
