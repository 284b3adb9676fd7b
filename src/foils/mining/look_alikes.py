"""Documents that equal a positive of the query, or nearly do: likely false negatives."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.run import ranks_within
from foils.data.tokens import DocumentSets, Float64s, TokenSets, Vocabulary, alphanumeric, cut_by_bytes
from foils.mining.pairs import Marks, TextPairs
from foils.runtime import memory
from foils.runtime.errors import InputError

NEAR = "near-duplicate of a positive"
PAIRS = 4_096  # compared at once, so that long texts take little memory


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
        self._sets = DocumentSets(collection)

    def marks(self, queries: Rows, documents: Rows) -> tuple[Marks, Marks]:
        """Return which (query, document) pairs, each (n,), equal a positive of the query, and which only nearly do.

        A query without a positive has no look-alike of one.
        """
        equal, near = np.zeros(len(queries), bool), np.zeros(len(queries), bool)
        pair, positives = self._positives(queries)
        ours, least = documents[pair], np.inf if self.threshold is None else self.threshold
        close = np.flatnonzero(self._sets.may_be_near(ours, positives, min(least, 1.0)))
        for part in self._parts(ours[close], positives[close]):
            at = close[part]
            similarity = self._sets.jaccard(ours[at], positives[at])
            near[pair[at[similarity >= least]]] = True
            alike = at[similarity == 1]  # the same tokens, perhaps in another order
            equal[pair[alike[self._written_alike(ours[alike], positives[alike])]]] = True
        return equal, near & ~equal

    def _parts(self, documents: Rows, positives: Rows) -> list[slice]:
        """Cut pairs so that the texts of a part fit into a sixteenth of the memory budget; their sets take more."""
        lengths = self._sets.lengths
        return cut_by_bytes(lengths[documents] + lengths[positives], memory.budget() // 16)

    def _positives(self, queries: Rows) -> tuple[Rows, Rows]:
        """Return which of the queries, and which positive of it, for every positive of each."""
        counts, index = self.known.counts_of(queries), self.known.places(queries)
        pair = np.repeat(np.arange(len(queries)), counts)
        return pair, self.known.doc_rows[np.repeat(self.known.offsets[index], counts) + ranks_within(pair)]

    def _written_alike(self, rows: Rows, others: Rows) -> Marks:
        pairs = zip(*(map(_tokens, self.collection.document_texts(side)) for side in (rows, others)), strict=True)
        return np.array([one == other for one, other in pairs], bool)


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
