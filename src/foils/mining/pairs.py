"""(query, document) pairs, as rules, scorers and draws see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foils.data.collection import Collection, Rows
from foils.runtime.errors import InputError

Scores = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """n pairs of a query and a document.

    Attributes:
        collection: whose rows these are.
        query_rows: (n,).
        doc_rows: (n,), −1 where the document has a text of its own.
        scores: (n,) higher is better, NaN where there is none.
        own: (n,) texts of documents that are not in the collection, None elsewhere; None: all are in it.
    """

    collection: Collection
    query_rows: Rows
    doc_rows: Rows
    scores: Scores
    own: Sequence[str | None] | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.query_rows), len(self.doc_rows), len(self.scores)}
        if len(lengths | ({len(self.own)} if self.own is not None else set())) > 1:
            raise InputError("query rows, document rows, scores and texts of pairs differ in length")
        if self.own is None and (self.doc_rows < 0).any():
            raise InputError("document rows below 0; a document outside the collection needs its text")

    def __len__(self) -> int:
        return len(self.query_rows)

    def texts(self) -> list[str]:
        """Return the text of each pair's document, (n,)."""
        inside = self.doc_rows >= 0
        if inside.all():
            return self.collection.document_texts(self.doc_rows)
        stored = iter(self.collection.document_texts(self.doc_rows[inside]))
        own = self.own or []
        return [next(stored) if here else str(own[row]) for row, here in enumerate(inside)]


class PairScorer(Protocol):
    """Scores pairs, all on one scale.

    Attributes:
        column: what the scores are, as a column is called: bm25, cosine, logit.
    """

    column: str

    def score(self, pairs: Pairs) -> Scores:
        """Return a finite score for each pair, (n,); higher is better."""
        ...


class Rule(Protocol):
    """Rejects candidates.

    Attributes:
        reason: why, in a few words, the same for every candidate of the rule.
    """

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        ...

    def marks(self, pairs: Pairs) -> Marks:
        """Return which pairs are rejected, (n,)."""
        ...


class Draw(Protocol):
    """A distribution over the candidates of a query."""

    def log_weights(self, pairs: Pairs) -> Scores:
        """Return the logarithm of each pair's weight among its query's, up to a constant, (n,); −inf: never drawn."""
        ...
