"""Rules that mark likely false negatives and say why; the first rule that holds gives the reason.

Margins compare a candidate's score s with the scores of its query's labelled positives, on one scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.texts import texts_of
from foils.data.tokens import alphanumeric, near_pairs
from foils.mining.pairs import Marks, PairScorer, Rule, Scores, TextPairs, Unjudged
from foils.runtime.errors import InputError, UnknownNameError

REFERENCES = ("minimum", "mean", "maximum", "each")


@dataclass(frozen=True)
class PositiveScores:
    """Scores of labelled positives, on the scale of the candidates' scores.

    Attributes:
        query_rows: (m,) rows of queries, each query's positives together.
        doc_rows: (m,) rows of the positives.
        scores: (m,) finite.

    Made by `PositiveScores.of`.
    """

    query_rows: Rows
    doc_rows: Rows
    scores: Scores

    @classmethod
    def of(cls, collection: Collection, scorer: PairScorer, query_rows: Rows) -> PositiveScores:
        """Score every positive, of any split, of these queries."""
        queries, documents = collection.known_positives.pairs()
        wanted = np.isin(queries, query_rows)
        pairs = TextPairs(collection, queries[wanted], documents[wanted], np.full(int(wanted.sum()), np.nan))
        return cls(pairs.query_rows, pairs.doc_rows, scorer.score(pairs))

    def with_judgements(self, collection: Collection) -> PositiveScores:
        """Return the scores of those that are positives in a collection with fewer judgements."""
        left = collection.known_positives.contain(self.query_rows, self.doc_rows)
        return PositiveScores(self.query_rows[left], self.doc_rows[left], self.scores[left])

    def beside(self, negatives: Negatives, collection: Collection, column: str) -> Negatives:
        """Return a table with a rejected row for each positive of its queries, with its score in this column."""
        wanted = np.isin(self.query_rows, collection.query_rows(negatives.table["query_id"].unique()))
        query_ids, doc_ids = (
            ids.take(pa.array(rows[wanted])).combine_chunks().cast(pa.string())
            for ids, rows in (
                (collection.queries["query_id"], self.query_rows),
                (collection.documents["doc_id"], self.doc_rows),
            )
        )
        return negatives.with_rejected(query_ids, doc_ids, values={column: self.scores[wanted]})[0]

    def reference(self, query_rows: Rows, against: str) -> Scores:
        """Return the score that candidates of these queries are held against, (n,).

        Raises:
            UnknownNameError: no such reference.
            InputError: queries without a scored positive.
        """
        if against not in REFERENCES:
            raise UnknownNameError("reference", against, REFERENCES)
        queries, group = np.unique(self.query_rows, return_inverse=True)
        at = np.minimum(np.searchsorted(queries, query_rows), max(len(queries) - 1, 0))
        unknown = queries[at] != query_rows if len(queries) else np.ones(len(query_rows), bool)
        if unknown.any():
            raise InputError(
                f"{len(np.unique(query_rows[unknown]))} queries have no labelled positive; a margin needs one"
            )
        if against == "mean":
            references = np.bincount(group, self.scores) / np.bincount(group)
        else:
            references = np.full(len(queries), np.inf if against == "minimum" else -np.inf)
            (np.minimum if against == "minimum" else np.maximum).at(references, group, self.scores)
        return np.asarray(references[at])


@dataclass(frozen=True)
class Margin:
    """Rejects s > limit(p), with the positive's score p: limit = p − absolute − relative·|p|.

    With `relative` alone: at least this share of the positive's magnitude below it, whatever its sign. A share of the
    positive (NV-Retriever's TopK-PercPos: s ≤ 0.95·p) is relative = 1 − share; for p ≥ 0 the two are equal, and for
    p < 0, where share·p would lie above the positive, it stays below it.

    Args:
        positives: their scores.
        absolute: on the scale of the scores; more rejects more.
        relative: share of |p|, at most 1; more rejects more.
        against: which positive: the `minimum` of the query's (safest), their `mean`, the `maximum`, or `each` for
            itself: a candidate is then rejected only where it fails against all of them, and `cleared` says which
            positives it may stand beside.

    Raises:
        InputError: a margin that is not finite, a relative one above 1, a candidate without a score, or a query
            without a positive.
        UnknownNameError: no such reference.
    """

    positives: PositiveScores
    absolute: float = 0.0
    relative: float = 0.0
    against: str = "minimum"
    compares = True

    def __post_init__(self) -> None:
        if self.against not in REFERENCES:
            raise UnknownNameError("reference", self.against, REFERENCES)
        if not np.isfinite([self.absolute, self.relative]).all():
            raise InputError(f"margins {self.absolute} and {self.relative}; expected finite numbers")
        if self.relative > 1:
            raise InputError(f"relative margin {self.relative}; expected a share of the positive's score, at most 1")

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        parts = [f"{self.absolute:g}"] if self.absolute or not self.relative else []
        parts += [f"{100 * self.relative:g} %"] if self.relative else []
        which = {"each": "every positive's", "mean": "the positives' mean"}.get(
            self.against, f"the {self.against} positive's"
        )
        return f"less than {' and '.join(parts)} below {which} score"

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates score over the limit, (n,)."""
        reference = self.positives.reference(pairs.query_rows, self.against)
        return np.asarray(_scored(pairs) > self._limit(reference))

    def with_judgements(self, collection: Collection) -> Margin:
        """Return the margin against the positives that a collection with fewer judgements has."""
        return replace(self, positives=self.positives.with_judgements(collection))

    def cleared(self, pairs: TextPairs) -> list[Rows]:
        """Return for each pair the rows of the positives that it clears, each held against its own score."""
        queries, starts, counts = np.unique(self.positives.query_rows, return_index=True, return_counts=True)
        limit, scores = self._limit(self.positives.scores), _scored(pairs)
        at = np.searchsorted(queries, pairs.query_rows)
        spans = [slice(starts[index], starts[index] + counts[index]) for index in at]
        return [self.positives.doc_rows[span][score <= limit[span]] for score, span in zip(scores, spans, strict=True)]

    def _limit(self, reference: Scores) -> Scores:
        return np.asarray(reference - self.absolute - self.relative * np.abs(reference))


@dataclass(frozen=True)
class ScoreAbove(Unjudged):
    """Rejects s > limit."""

    limit: float

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        return f"score above {self.limit:g}"

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates score above the limit, (n,)."""
        return np.asarray(_scored(pairs) > self.limit)


@dataclass(frozen=True)
class ScoreBelow(Unjudged):
    """Rejects s < limit."""

    limit: float

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        return f"score below {self.limit:g}"

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates score below the limit, (n,)."""
        return np.asarray(_scored(pairs) < self.limit)


class HoldsAnswer(Unjudged):
    """Rejects documents that hold an answer of the query, as whole words: equal tokens (`alphanumeric`) in a row.

    Args:
        answers: query id -> its answers; a query that is not in it has none. An answer without a letter or digit is
            none.

    Source: DPR's has_answer (Karpukhin et al. 2020).
    """

    reason = "holds an answer"

    def __init__(self, answers: Mapping[str, Sequence[str]]) -> None:
        tokens = {key: [alphanumeric(answer) for answer in listed] for key, listed in answers.items()}
        self._answers = {key: [f" {' '.join(each)} " for each in listed if each] for key, listed in tokens.items()}

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which documents hold an answer, (n,)."""
        rows, index = np.unique(pairs.query_rows, return_inverse=True)
        ids = pairs.collection.queries["query_id"].take(pa.array(rows)).to_pylist()
        answers_of = [self._answers.get(key, []) for key in ids]
        marks = np.zeros(len(pairs), bool)
        for row, text in enumerate(pairs.documents[:]):
            if answers := answers_of[index[row]]:
                words = f" {' '.join(alphanumeric(text))} "
                marks[row] = any(answer in words for answer in answers)
        return marks


class LabelledElsewhere(Unjudged):
    """Rejects documents that are labelled relevant for another query that is nearly the same.

    Args:
        collection: queries and judgements of all splits.
        threshold: Jaccard similarity of the queries' token sets, in (0, 1], at which they count as one.
    """

    reason = "relevant for a near-identical query"

    def __init__(self, collection: Collection, *, threshold: float = 0.9) -> None:
        known = collection.known_positives
        texts = collection.query_texts(np.arange(len(collection.queries)))
        pairs = near_pairs([set(alphanumeric(text)) for text in texts], threshold=threshold)
        place = {int(row): index for index, row in enumerate(known.query_rows)}
        self._documents: dict[int, set[int]] = {}
        for one, other in [*pairs, *((j, i) for i, j in pairs)]:
            if other in place:
                self._documents.setdefault(one, set()).update(known.of(place[other]).tolist())

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which documents are labelled for a near-identical query, (n,)."""
        none: set[int] = set()
        rows = zip(pairs.query_rows.tolist(), pairs.doc_rows.tolist(), strict=True)
        return np.array([document in self._documents.get(query, none) for query, document in rows], bool)


def filter_negatives(
    negatives: Negatives, collection: Collection, rules: Sequence[Rule], *, scorer: PairScorer | None = None
) -> Negatives:
    """Mark what rules reject in a table, in their order; a row that was rejected before keeps its reason.

    Args:
        negatives: the table.
        collection: it was made from.
        rules: the first that holds gives the reason.
        scorer: its scores are what the rules see, and are added as a column of its name; None: the table's own.

    Raises:
        InputError: ids that the collection does not know, a column of the scorer's name that is there already, or as
            the rules say.
    """
    pairs = table_pairs(negatives, collection)
    if scorer is not None:
        scores = scorer.score(pairs)
        negatives = negatives.with_columns({scorer.column: scores})
        pairs = TextPairs(collection, pairs.query_rows, pairs.doc_rows, scores, pairs.own)
    for rule in rules:
        negatives = negatives.reject(rule.marks(pairs), rule.reason)
    return with_positives(negatives, pairs, rules)


def table_pairs(negatives: Negatives, collection: Collection) -> TextPairs:
    """Return a table's rows as pairs, with its own scores."""
    queries, texts = texts_of(negatives, collection)
    scores = np.asarray(negatives.table["score"].to_numpy())
    return TextPairs(collection, queries, np.asarray(texts.rows), scores, texts.own)


def with_positives(negatives: Negatives, pairs: TextPairs, rules: Sequence[Rule]) -> Negatives:
    """Add `positives`, the ids of the positives that a row may stand beside, where a margin is held against each."""
    margins = [rule for rule in rules if isinstance(rule, Margin) and rule.against == "each"]
    if not margins:
        return negatives
    lists = [[set(rows.tolist()) for rows in margin.cleared(pairs)] for margin in margins]
    ordered = [sorted(set.intersection(*sets)) for sets in zip(*lists, strict=True)]
    flat = np.array([row for listed in ordered for row in listed], np.int64)
    ids = pairs.collection.documents["doc_id"].take(pa.array(flat)).combine_chunks()
    offsets = np.cumsum([0, *map(len, ordered)])
    negatives = negatives.reject(np.diff(offsets) == 0, f"{margins[0].reason}, each by another margin")
    return negatives.with_columns({"positives": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids)})


def _scored(pairs: TextPairs) -> Scores:
    if missing := int(np.isnan(pairs.scores).sum()):
        raise InputError(f"{missing:,} candidates have no score; a rule on scores needs a scorer for this source")
    return pairs.scores
