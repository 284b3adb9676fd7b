"""What of a table is rated: each query's kept rows, and its labelled positives where there are any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import POSITIVE, Negatives
from foils.data.pair_index import Positives
from foils.data.texts import ColumnTexts, DocumentTexts
from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Rows
from foils.runtime.errors import InputError

OTHER_SPLIT = "query whose positives are in other splits"


@dataclass(frozen=True)
class Rateable:
    """What is rated.

    Attributes:
        candidates: of all queries.
        row, candidate: (r,) rows of the table, and the candidate of each.
        positive: (p,) the candidates that are labelled positives.
        positives: (Q,) how many of them end each query; 0 where none is labelled.
        skipped: reason -> rows that are not rated.
    """

    candidates: Candidates
    row: Rows
    candidate: Rows
    positive: Rows
    positives: Rows
    skipped: dict[str, int]

    def references(self, elo: Floats) -> Rows:
        """Return (Q,) the candidate that gaps are held against: the best-rated positive, without one the best-rated.

        The first of equals; the first where none is rated.
        """
        known, offsets = np.nan_to_num(elo, nan=-np.inf), self.candidates.offsets
        starts = np.where(self.positives > 0, offsets[1:] - self.positives, offsets[:-1])
        spans = zip(starts.tolist(), offsets[1:].tolist(), strict=True)
        return np.array([start + int(known[start:end].argmax()) for start, end in spans], np.int64)

    def rows_of(self, candidates: Rows) -> Rows:
        """Return the table's rows of candidates that are no labelled positives."""
        return np.asarray(self.row[np.searchsorted(self.candidate, candidates)])


def rateable(collection: Collection, negatives: Negatives, split: str, most: int) -> Rateable:
    """Put each query's kept rows, in the table's order, and its first `most` labelled positives after them.

    A query that is labelled in no split is rated without a positive; one whose positives are in other splits alone is
    not rated. Rows of labelled positives are left out of a query's rows.

    Raises:
        InputError: ids unknown to the collection, or no row to rate.
        UnknownNameError: an unknown split.
    """
    query, document = negatives.rows_in(collection)
    labels, known = collection.labels(split), collection.known_positives
    elsewhere = (labels.places(query) < 0) & (known.places(query) >= 0)
    in_split = negatives.keep & ~elsewhere
    usable = in_split & ~known.contain(query, document)
    skipped = {
        "rejected before": int((~negatives.keep).sum()),
        OTHER_SPLIT: int((negatives.keep & elsewhere).sum()),
        POSITIVE: int(in_split.sum() - usable.sum()),
    }
    row = np.flatnonzero(usable)
    if not len(row):
        why = ", ".join(f"{n} {why}" for why, n in skipped.items() if n) or "the table has no rows"
        hint = f"; is {split!r} the split?" if skipped[OTHER_SPLIT] else "; rate a table with negatives to train on"
        raise InputError(f"no row to rate: {why}{hint}")
    row = row[np.argsort(query[row], kind="stable")]
    queries, counts = np.unique(query[row], return_counts=True)
    added = np.minimum(labels.counts_of(queries), most)
    offsets = np.concatenate([[0], np.cumsum(counts + added)])
    place = np.arange(added.sum()) - np.repeat(np.cumsum(added) - added, added)  # 0, 1, … within each query
    positive = np.repeat(offsets[1:] - added, added) + place
    candidate = np.delete(np.arange(offsets[-1]), positive)
    of = np.empty(offsets[-1], np.int64)
    of[candidate] = np.where(document[row] < 0, -1 - row, document[row])
    of[positive] = _first_labels(labels, queries, added, place)
    own = negatives.table["text"] if "text" in negatives.table.column_names else None
    texts = DocumentTexts(collection, of, own)
    doc_ids = _joined_ids(negatives.table["doc_id"].take(pa.array(row)), collection, of[positive], candidate, positive)
    query_ids = collection.queries["query_id"].take(pa.array(queries)).to_pylist()
    shown = Candidates(query_ids, collection.query_texts(queries), offsets, doc_ids, texts.take)
    return Rateable(shown, row, candidate, positive, added, {why: n for why, n in skipped.items() if n})


def _first_labels(labels: Positives, queries: Rows, added: Rows, place: Rows) -> Rows:
    """The documents of the first `added` labels of each query."""
    labelled = added > 0
    begins = labels.offsets[labels.places(queries[labelled])]
    return np.asarray(labels.doc_rows[np.repeat(begins, added[labelled]) + place])


def _joined_ids(
    of_candidates: pa.ChunkedArray, collection: Collection, documents: Rows, candidate: Rows, positive: Rows
) -> ColumnTexts:
    """The ids of negatives and positives at their places, as Arrow has them: Python's strings would take gigabytes."""
    ids = pa.chunked_array([*of_candidates.chunks, *collection.documents["doc_id"].take(pa.array(documents)).chunks])
    return ColumnTexts(ids.take(pa.array(np.argsort(np.concatenate([candidate, positive])))))
