"""What mining is made of: (query, document) pairs, and what ranks, scores, rejects and draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, Rows

Scores = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
Part = TypeVar("Part")
WHOLE = "the collection has no further document"
BEFORE = "ranked before the window"
NOT_DRAWN = "not drawn"


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

    One that has an attribute `portable`, and it is true, may be sent to other processes: a ranking depends on its
    query alone, and nothing is embedded or kept on the way. For one that reads judgements see `with_judgements_of`.

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


class PairScorer(Protocol):
    """Scores pairs, all on one scale.

    Attributes:
        column: what the scores are, as a column is called: bm25, cosine, logit.
    """

    column: str

    def score(self, pairs: TextPairs) -> Scores:
        """Return a finite score for each pair, (n,); higher is better."""
        ...


class Rule(Protocol):
    """Rejects candidates; one that reads judgements has a method for others (`with_judgements_of`).

    Attributes:
        reason: why, in a few words, the same for every candidate of the rule.
    """

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        ...

    def marks(self, pairs: TextPairs) -> Marks:
        """Return which pairs are rejected, (n,)."""
        ...


class Draw(Protocol):
    """A distribution over the candidates of a query; for one that reads judgements see `with_judgements_of`."""

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return the logarithm of each pair's weight among its query's, up to a constant, (n,); −inf: never drawn."""
        ...


def reads_judgements(part: object) -> bool:
    """Tell whether a retriever, rule or draw reads judgements: it has a method `with_judgements`.

    A rule or draw that does compares candidates with the labelled positives of their query, and cannot be asked of a
    query that has none.
    """
    return hasattr(part, "with_judgements")


def with_judgements_of(part: Part, collection: Collection) -> Part | None:
    """Return a retriever, rule or draw as it would be with other judgements of the same documents and queries.

    One that reads judgements says so by a method `with_judgements(collection)`; that of a retriever returns None where
    it cannot know. Any other stays as it is.
    """
    changed: Part | None = part.with_judgements(collection) if hasattr(part, "with_judgements") else part
    return changed
