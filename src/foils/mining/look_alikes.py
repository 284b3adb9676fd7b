"""Documents that equal a positive of the query, or nearly do: likely false negatives."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.run import ranks_within
from foils.data.tokens import Float64s, Int32s, TokenSets, Vocabulary, alphanumeric
from foils.mining.pairs import Marks, TextPairs
from foils.runtime import memory
from foils.runtime.errors import InputError

EQUAL = "equal to a positive"
NEAR = "near-duplicate of a positive"
PAIRS = 4_096  # compared at once, so that long texts take little memory
ENTRY = 256  # bytes of a remembered text, about, beside its tokens' numbers


class LookAlikes:
    """Compares candidates with the positives of their query.

    Args:
        collection: documents and judgements of all splits.
        threshold: Jaccard similarity of token sets at which two documents are near-duplicates, in (0, 1]; above 1:
            none are; None: nobody looks.
    """

    def __init__(self, collection: Collection, threshold: float | None) -> None:
        self.collection, self.threshold = collection, threshold
        self.known = collection.known_positives
        self._forget()

    def marks(self, queries: Rows, documents: Rows) -> tuple[Marks, Marks]:
        """Return which (query, document) pairs, each (n,), equal a positive of the query, and which only nearly do.

        A query without a positive has no look-alike of one.
        """
        if not len(queries):
            return np.zeros(0, bool), np.zeros(0, bool)
        parts = [self._marks(queries[part], documents[part]) for part in self._parts(queries, documents)]
        equal, near = (np.concatenate(each) for each in zip(*parts, strict=True))
        return equal, near

    def _parts(self, queries: Rows, documents: Rows) -> list[slice]:
        """Cut pairs so that the texts of a part fit into a sixteenth of the memory budget; their sets take more."""
        pair, positives = self._positives(queries)
        size = self._lengths[documents] + np.bincount(pair, self._lengths[positives], minlength=len(queries))
        part = np.cumsum(size) // (memory.budget() // 16)
        return [slice(begin, end) for begin, end in pairwise([0, *(np.flatnonzero(np.diff(part)) + 1), len(part)])]

    @cached_property
    def _lengths(self) -> Rows:
        """(documents,) bytes of the texts."""
        return np.asarray(pc.binary_length(self.collection.documents["text"]).to_numpy(), np.int64)

    def _positives(self, queries: Rows) -> tuple[Rows, Rows]:
        """Return which of the queries, and which positive of it, for every positive of each."""
        counts, index = self.known.counts_of(queries), self.known.places(queries)
        pair = np.repeat(np.arange(len(queries)), counts)
        return pair, self.known.doc_rows[np.repeat(self.known.offsets[index], counts) + ranks_within(pair)]

    def _marks(self, queries: Rows, documents: Rows) -> tuple[Marks, Marks]:
        pair, positives = self._positives(queries)
        distinct, inverse = np.unique(np.concatenate([documents[pair], positives]), return_inverse=True)
        ours, theirs = inverse[: len(pair)], inverse[len(pair) :]
        similarity = _jaccard(sets := self._sets(distinct), ours, sets, theirs)
        equal, near = np.zeros(len(queries), bool), np.zeros(len(queries), bool)
        alike = similarity == 1  # the same tokens, perhaps in another order
        equal[pair[alike][self._written_alike(distinct[ours[alike]], distinct[theirs[alike]])]] = True
        near[pair[similarity >= (np.inf if self.threshold is None else self.threshold)]] = True
        return equal, near & ~equal

    def _written_alike(self, rows: Rows, others: Rows) -> Marks:
        pairs = zip(*(map(_tokens, self.collection.document_texts(side)) for side in (rows, others)), strict=True)
        return np.array([one == other for one, other in pairs], bool)

    def _sets(self, rows: Rows) -> TokenSets:
        """Return the token sets of documents; those that were seen are remembered, as far as the memory budget goes."""
        if self._held > memory.budget() // 4:
            self._forget()
        fresh = np.array([row for row in rows.tolist() if row not in self._numbers], np.int64)
        for row, text in zip(fresh.tolist(), self.collection.document_texts(fresh), strict=True):
            numbers = self._numbers[row] = self._vocabulary.numbers(_tokens(text))
            self._held += numbers.nbytes + ENTRY
        return self._vocabulary.sets_of_numbers([self._numbers[row] for row in rows.tolist()])

    def _forget(self) -> None:
        self._vocabulary, self._numbers, self._held = Vocabulary(), dict[int, Int32s](), 0


def _tokens(text: str) -> list[str]:
    return alphanumeric(text) or [text]


class NearPositive:
    """Rejects documents, of the collection or with a text of their own, whose token set is near a positive's.

    Args:
        collection: judgements of all splits.
        threshold: Jaccard similarity, in (0, 1].
    """

    reason = NEAR
    compares = True

    def __init__(self, collection: Collection, threshold: float = 0.9) -> None:
        if not threshold > 0:
            raise InputError(f"near-duplicate threshold {threshold}; expected above 0, and above 1 for none")
        self._collection, self._threshold = collection, threshold

    def with_judgements(self, collection: Collection) -> NearPositive:
        """Return the rule with the positives that a collection has."""
        return NearPositive(collection, self._threshold)

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which documents are near-duplicates of a positive of their query, (n,)."""
        known = self._collection.known_positives
        places = known.places(pairs.query_rows).tolist()
        rows = [known.of(index) if index >= 0 else np.zeros(0, np.int64) for index in places]
        sets = Vocabulary()
        documents = sets.sets(pairs.documents[:])
        distinct, inverse = np.unique(np.concatenate([*rows, np.zeros(0, np.int64)]), return_inverse=True)
        positives = sets.sets(self._collection.document_texts(distinct))
        pair = np.repeat(np.arange(len(pairs)), [len(each) for each in rows])
        near = np.zeros(len(pairs), bool)
        near[pair[_jaccard(documents, pair, positives, inverse) >= self._threshold]] = True
        return near


def _jaccard(sets: TokenSets, rows: Rows, other: TokenSets, other_rows: Rows) -> Float64s:
    """Jaccard similarities of paired rows, block by block."""
    parts = [slice(start, start + PAIRS) for start in range(0, len(rows), PAIRS)]
    return np.concatenate([np.zeros(0), *(sets.jaccard(rows[part], other, other_rows[part]) for part in parts)])
