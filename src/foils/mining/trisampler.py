"""TriSampler: candidates that make a triangle with the query and its positive, neither trivial nor too close to it.

With cosines s, and unit vectors: a candidate d⁻ lies in the region where

    θ = |arccos s(q, d⁺) − arccos s(q, d⁻)| ≤ 60°   and   s(d⁺, d⁻) ≤ c,

and is drawn with log p(d⁻) = −(s(q, d⁻) − s(q, d⁺))²/4 + log max(0, s(d⁺, d⁻) − s(q, d⁻)), up to a constant: the
negative is to be nearer to the positive than to the query. d⁺ is the query's first labelled positive.

Source: Yang et al., TriSampler (AAAI 2024, arXiv 2402.11855). Checked against a published digest of the paper: the
angle θ and its bound of 60°; p ∝ exp(−(s⁻ − s⁺)²/4) over the first K; p ∝ ReLU(s(d⁺, d⁻) − s(q, d⁻)). Not found
there, and ours: that the two are multiplied in one draw; K, 10 times the number of negatives (`--ranks`); cosines, on
which the first factor is nearly flat, in the place of the model's own scores; the bound c on the closeness to the
positive (HOBIT section 5.1: "neither trivial nor too close to the positive").
"""

from __future__ import annotations

import copy

import numpy as np

from foils.data.collection import Collection, Rows
from foils.encode.vectors import Vectors
from foils.mining.pairs import Marks, Scores, TextPairs
from foils.runtime import memory
from foils.runtime.errors import InputError

BLOCK = 16_384  # pairs at once, at most


class TriSampler:
    """The region, as a rule, and the distribution over it, as a draw.

    Args:
        collection: whose judgements name the positives.
        queries: vectors of all queries, by row; scaled to unit length here.
        documents: vectors of all documents, by row.
        angle: bound of θ in degrees, in (0, 180]; less rejects more.
        closest: bound c of s(d⁺, d⁻), in (−1, 1]; less rejects more.

    Raises:
        InputError: a bound out of its range; a candidate that is not in the collection.
    """

    compares = True

    def __init__(
        self,
        collection: Collection,
        queries: Vectors,
        documents: Vectors,
        *,
        angle: float = 60.0,
        closest: float = 0.95,
    ) -> None:
        if not 0 < angle <= 180 or not -1 < closest <= 1:
            raise InputError(f"angle {angle}, closest {closest}; expected in (0, 180] degrees and in (−1, 1]")
        self._queries, self._documents = queries, documents
        self._angle, self._closest = angle, closest
        self._first = _first_positives(collection)
        self.reason = f"outside the quasi-triangular region ({angle:g}°, cosine to the positive {closest:g})"

    def with_judgements(self, collection: Collection) -> TriSampler:
        """Return it with the first positives that a collection names."""
        other = copy.copy(self)
        other._first = _first_positives(collection)
        return other

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which candidates lie outside the region, (n,)."""
        positive, candidate, between = self._sides(pairs)
        angles = np.degrees(np.abs(np.arccos(np.clip(positive, -1, 1)) - np.arccos(np.clip(candidate, -1, 1))))
        return np.asarray((angles > self._angle) | (between > self._closest))

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return log p(d⁻) up to a constant, (n,); −inf where d⁻ is no nearer to the positive than to the query."""
        positive, candidate, between = self._sides(pairs)
        nearer = np.maximum(between - candidate, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(-((candidate - positive) ** 2) / 4 + np.log(nearer))

    def _sides(self, pairs: TextPairs) -> tuple[Scores, Scores, Scores]:
        """Cosines s(q, d⁺), s(q, d⁻), s(d⁺, d⁻), each (n,)."""
        first = self._first[pairs.query_rows]
        if (first < 0).any() or (pairs.doc_rows < 0).any():
            raise InputError("TriSampler needs queries with a positive, and candidates that are in the collection")
        size = memory.rows_at_once(36 * self._queries.dimension, most=BLOCK)  # three vectors, in float32 and 64
        parts = [
            self._block(pairs.query_rows[part], first[part], pairs.doc_rows[part])
            for start in range(0, len(pairs), size)
            for part in [slice(start, start + size)]
        ]
        stacked = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0))
        return stacked[0], stacked[1], stacked[2]

    def _block(self, query_rows: Rows, positive_rows: Rows, doc_rows: Rows) -> Scores:
        q, p, d = self._queries.take(query_rows), self._documents.take(positive_rows), self._documents.take(doc_rows)
        q, p, d = (np.asarray(x, np.float64) / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, p, d))
        return np.stack([np.einsum("nd,nd->n", a, b) for a, b in ((q, p), (q, d), (p, d))])


def _first_positives(collection: Collection) -> Rows:
    """The first labelled positive of each query of a collection, −1 where there is none."""
    first = np.full(len(collection.queries), -1, np.int64)
    first[collection.known_positives.query_rows] = collection.known_positives.first
    return first
