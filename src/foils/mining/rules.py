"""(Query, document) pairs, what ranks and scores them, what rejects candidates, and what draws among them.

The first rule that holds gives the reason.

Margins compare a candidate's score s with the scores of its query's labelled positives, on one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, Positives, Rows
from foils.data.negatives import Negatives
from foils.data.tokens import DocumentSets
from foils.encode.vectors import Vectors
from foils.runtime import memory
from foils.runtime.errors import InputError

Scores = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
WHOLE = "the collection has no further document"
BEFORE = "ranked before the window"
NOT_DRAWN = "not drawn"
NEAR = "near-duplicate of a positive"
ANGLE, CLOSEST = 60.0, 0.95  # degrees and a cosine: TriSampler's bounds
BLOCK = 16_384  # pairs whose vectors TriSampler multiplies at once, at most


@dataclass(frozen=True)
class TextPairs:
    """n pairs of a query and a document.

    Attributes:
        collection: whose rows these are.
        query_rows: (n,).
        doc_rows: (n,); −1 − i where the document has text i of `own`.
        scores: (n,) higher is better, NaN where there is none.
        own: texts of documents that are not in the collection; None: all are in it.
    """

    collection: Collection
    query_rows: Rows
    doc_rows: Rows
    scores: Scores
    own: pa.Array | pa.ChunkedArray | None = None

    def __len__(self) -> int:
        return len(self.query_rows)

    @property
    def documents(self) -> DocumentTexts:
        """The text of each pair's document, (n,)."""
        return DocumentTexts(self.collection, self.doc_rows, self.own)


class Retriever(Protocol):
    """Ranks documents of a collection for queries of it.

    One that has an attribute `portable`, and it is true, may be sent to other processes: a ranking
    depends on its query alone, and nothing is embedded or kept on the way. For one that reads
    judgements see `reads_judgements`.

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
            Document rows (n, depth), −1 after the end of a list, and their scores (n, depth), NaN
            there and where the source has none.
        """


class PairScorer(Protocol):
    """Scores pairs, all on one scale.

    Attributes:
        column: what the scores are, as a column is called: bm25, cosine, logit.
    """

    column: str

    def score(self, pairs: TextPairs) -> Scores:
        """Return a finite score for each pair, (n,); higher is better."""


class Rule(Protocol):
    """Rejects candidates; one that reads judgements has a method for others (`reads_judgements`).

    Attributes:
        reason: why, in a few words, the same for every candidate of the rule.
    """

    @property
    def reason(self) -> str:
        """Why, in a few words."""

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which pairs are rejected, (n,)."""


class Draw(Protocol):
    """A distribution over a query's candidates; for one that reads judgements see `reads_judgements`."""

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return (n,) the log of each pair's weight in its query, up to a constant; −inf: never drawn."""


def reads_judgements(part: object) -> bool:
    """Tell whether a retriever, rule or draw reads judgements.

    It then has a method `with_judgements(collection)`, which returns it as it is with other
    judgements of the same documents and queries.
    A rule or draw that does compares candidates with the labelled positives of their query, and
    cannot be asked of a query that has none.
    """
    return hasattr(part, "with_judgements")


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

    def lowest(self, query_rows: Rows) -> Scores:
        """Return the lowest score of the positives of these queries, (n,).

        Raises:
            InputError: queries without a scored positive.
        """
        queries, group = np.unique(self.query_rows, return_inverse=True)
        at = np.minimum(np.searchsorted(queries, query_rows), max(len(queries) - 1, 0))
        unknown = queries[at] != query_rows if len(queries) else np.ones(len(query_rows), bool)
        if unknown.any():
            raise InputError(f"{len(np.unique(query_rows[unknown]))} queries have no positive; a margin needs one")
        lowest = np.full(len(queries), np.inf)
        np.minimum.at(lowest, group, self.scores)
        return np.asarray(lowest[at])


@dataclass(frozen=True)
class Margin:
    """Rejects s > p − amount, or of a relative margin s > p − amount·|p|, p the score of the query's lowest positive.

    A relative one keeps what is at least this share of the positive's magnitude below it, whatever
    its sign. A share of the positive (NV-Retriever's TopK-PercPos: s ≤ 0.95·p) is the amount 1 −
    share; for p ≥ 0 the two are equal, and for p < 0, where share·p would lie above the positive,
    it stays below it.

    Args:
        positives: their scores.
        amount: on the scale of the scores, or a share of |p|, at most 1; more rejects more.
        relative: whether it is a share.

    Raises:
        InputError: a margin that is not finite, a relative one above 1, a candidate without a
            score, or a query without a positive.
    """

    positives: PositiveScores
    amount: float = 0.0
    relative: bool = False

    def __post_init__(self) -> None:
        if not np.isfinite(self.amount) or (self.relative and self.amount > 1):
            raise InputError(f"margin {self.amount}; expected a finite number, a share of the positive's at most 1")

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        amount = f"{100 * self.amount:g} %" if self.relative else f"{self.amount:g}"
        return f"less than {amount} below the minimum positive's score"

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates score over the limit, (n,)."""
        lowest = self.positives.lowest(pairs.query_rows)
        margin = self.amount * np.abs(lowest) if self.relative else self.amount
        return np.asarray(_scored(pairs) > lowest - margin)

    def with_judgements(self, collection: Collection) -> Margin:
        """Return the margin against the positives that a collection with fewer judgements has."""
        return replace(self, positives=self.positives.with_judgements(collection))


@dataclass(frozen=True)
class ScoreLimit:
    """Rejects s > limit, or with `below` s < limit."""

    limit: float
    below: bool = False

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        return f"score {'below' if self.below else 'above'} {self.limit:g}"

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates score beyond the limit, (n,)."""
        scores = _scored(pairs)
        return np.asarray(scores < self.limit if self.below else scores > self.limit)


@dataclass(frozen=True)
class LookAlikes:
    """Compares candidates with the positives of their query.

    Attributes:
        known: positives of all splits.
        sets: tokens of all documents.
        threshold: Jaccard similarity of token sets at which two documents are near-duplicates, in
            (0, 1]; above 1: none are; None: nobody looks.
    """

    known: Positives
    sets: DocumentSets
    threshold: float | None

    def marks(self, queries: Rows, documents: Rows) -> tuple[Marks, Marks]:
        """Return which (query, document) pairs, (n,), equal a positive of the query, and which nearly do.

        A query without a positive has no look-alike of one.
        """
        equal, near = np.zeros(len(queries), bool), np.zeros(len(queries), bool)
        pair, positives = self.known.pairs_of(queries)
        ours, least = documents[pair], np.inf if self.threshold is None else self.threshold
        similarity, same = self.sets.compare(ours, positives, min(least, 1.0))
        near[pair[similarity >= least]] = True
        equal[pair[same]] = True
        return equal, near & ~equal


class Uniform:
    """Every candidate is as likely."""

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return 0 for each pair, (n,)."""
        return np.zeros(len(pairs))


@dataclass(frozen=True)
class TriSampler:
    """Candidates in a triangle with the query and its positive: the region as a rule, its draw as a draw.

    With cosines s, and unit vectors: a candidate d⁻ lies in the region where

        θ = |arccos s(q, d⁺) − arccos s(q, d⁻)| ≤ 60°   and   s(d⁺, d⁻) ≤ 0.95,

    and is drawn with log p(d⁻) = −(s(q, d⁻) − s(q, d⁺))²/4 + log max(0, s(d⁺, d⁻) − s(q, d⁻)), up
    to a constant: the negative is to be nearer to the positive than to the query. d⁺ is the query's
    first labelled positive.

    Args:
        collection: whose judgements name the positives.
        queries: vectors of all queries, by row; scaled to unit length here.
        documents: vectors of all documents, by row.

    Raises:
        InputError: a query without a positive, or a candidate that is not in the collection.

    Source: Yang et al., TriSampler (AAAI 2024, arXiv 2402.11855). Checked against a published
    digest of the paper: the angle θ and its bound of 60°; p ∝ exp(−(s⁻ − s⁺)²/4) over the first K;
    p ∝ ReLU(s(d⁺, d⁻) − s(q, d⁻)). Not found there, and ours: that the two are multiplied in one
    draw; K, 10 times the number of negatives (`--ranks`); cosines, on which the first factor is
    nearly flat, in the place of the model's own scores; the bound of 0.95 on the closeness to the
    positive (HOBIT section 5.1: "neither trivial nor too close to the positive").
    """

    collection: Collection
    queries: Vectors
    documents: Vectors
    reason = f"outside the quasi-triangular region ({ANGLE:g}°, cosine to the positive {CLOSEST:g})"

    def with_judgements(self, collection: Collection) -> TriSampler:
        """Return it with the first positives that a collection names."""
        return replace(self, collection=collection)

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates lie outside the region, (n,)."""
        positive, candidate, between = self._sides(pairs)
        angle = np.degrees(np.abs(np.arccos(np.clip(positive, -1, 1)) - np.arccos(np.clip(candidate, -1, 1))))
        return np.asarray((angle > ANGLE) | (between > CLOSEST))

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return (n,) log p(d⁻) + constant; −inf where d⁻ is no nearer to the positive than to the query."""
        positive, candidate, between = self._sides(pairs)
        nearer = np.maximum(between - candidate, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(-((candidate - positive) ** 2) / 4 + np.log(nearer))

    def _sides(self, pairs: TextPairs) -> Scores:
        """Cosines s(q, d⁺), s(q, d⁻), s(d⁺, d⁻), (3, n)."""
        known = self.collection.known_positives
        places = known.places(pairs.query_rows)
        if (places < 0).any() or (pairs.doc_rows < 0).any():
            raise InputError("TriSampler needs queries with a positive, and candidates of the collection")
        labelled = known.first[places]
        sides = (self.queries, pairs.query_rows), (self.documents, labelled), (self.documents, pairs.doc_rows)
        # Each pair has three vectors, in float32 and 64.
        size = memory.rows_at_once(36 * self.queries.dimension, most=BLOCK)
        cosines = np.empty((3, len(pairs)))
        for start in range(0, len(pairs), size):
            part = slice(start, start + size)
            of_sides = (vectors.take(rows_of_side[part]) for vectors, rows_of_side in sides)
            q, p, d = (np.asarray(x, np.float64) / np.linalg.norm(x, axis=1, keepdims=True) for x in of_sides)
            cosines[:, part] = [np.einsum("nd,nd->n", a, b) for a, b in ((q, p), (q, d), (p, d))]
        return cosines


def filter_negatives(
    negatives: Negatives, collection: Collection, rules: Sequence[Rule], *, scorer: PairScorer | None = None
) -> Negatives:
    """Mark what rules reject in a table, in their order; a row that was rejected before keeps its reason.

    Args:
        negatives: the table.
        collection: it was made from.
        rules: the first that holds gives the reason.
        scorer: its scores are what the rules see, and are added as a column of its name; None: the
            table's own.

    Raises:
        InputError: ids that the collection does not know, a column of the scorer's name that is
            there already, or as the rules say.
    """
    queries, texts = negatives.texts_in(collection)
    own_scores = np.asarray(negatives.table["score"].to_numpy())
    pairs = TextPairs(collection, queries, np.asarray(texts.rows), own_scores, texts.own)
    if scorer is not None:
        scores = scorer.score(pairs)
        negatives = negatives.with_columns({scorer.column: scores})
        pairs = replace(pairs, scores=scores)
    for rule in rules:
        negatives = negatives.reject(rule.marks(pairs), rule.reason)
    return negatives


def _scored(pairs: TextPairs) -> Scores:
    missing = int(np.isnan(pairs.scores).sum())
    if missing:
        raise InputError(f"{missing:,} candidates have no score; a rule on scores needs a scorer")
    return pairs.scores
