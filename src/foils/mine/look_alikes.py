"""Documents that equal a positive of the query, or nearly do: likely false negatives."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.run import ranks_within
from foils.data.tokens import Vocabulary, alphanumeric
from foils.mine.pairs import Marks

EQUAL = "equal to a positive"
NEAR = "near-duplicate of a positive"


class LookAlikes:
    """Compares candidates with the positives of their query.

    Args:
        collection: documents and judgements of all splits.
        threshold: Jaccard similarity of token sets at which two documents are near-duplicates, in (0, 1]; above 1:
            none are.
    """

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
