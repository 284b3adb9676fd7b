"""Queries sharpened by their feedback over your search function: of a vector database, index or service.

All that is asked of it is what any of them can do: from a query vector and a number k, the k
nearest documents with their vectors. What it calls a document (an id, a row, a hit with its
payload) comes back as it is, and what else it takes (a filter, a tenant, a partition) is passed
through, to both passes alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime.errors import InputError
from foils.searching.dimensions import (
    FEEDBACK_DEPTH,
    DimensionSettings,
    Sharpened,
    feedback_needed,
    sharpened_queries,
)
from foils.searching.runs import check_search_depths

T = TypeVar("T")
Floats = npt.NDArray[np.float32]
Found = tuple[Sequence[Any], Floats]  # documents, best first, and their vectors
NOTHING: Found = ((), np.empty((0, 0), np.float32))


class Match(NamedTuple, Generic[T]):
    """A document as the search function returned it, and its inner product with the query that found it."""

    document: T
    score: float


def sharpen(queries: npt.ArrayLike, feedback: Sequence[npt.ArrayLike], settings: DimensionSettings) -> Floats:
    """Return queries without the dimensions that their feedback does not support, or moved towards it.

    Args:
        queries: (n, d).
        feedback: for each query, (k, d) vectors of what was retrieved for it, best first. Of rdime,
            dime and rocchio the first k⁺ count, of eclipse the first k⁺ and the last k⁻. For all
            but eclipse it may be the vector of an answer text, (1, d), with k⁺ 1.
        settings: what is done. A query whose feedback is too short for it stays as it is.

    Returns:
        (n, d) float32. Inner products with these are the scores of the second pass, in any index.

    Raises:
        InputError: shapes that do not fit, values that are not finite, or a moon drawn at random.

    Source: Eclipse, sections 2 and 3.
    """
    rows = _rows(queries)
    return np.asarray(_sharpened(rows, [_rows(vectors, rows.shape[1]) for vectors in feedback], settings).queries)


@dataclass(frozen=True)
class SharpenedSearch(Generic[T]):
    """A search function that uses each query's useful dimensions; call it as the one that it is made of.

    Attributes:
        search: yours: (query (d,), k, options) → (documents, their vectors (≤ k, d)), best first,
            by inner product, or by cosine or L2 distance over documents of one norm, which order
            documents alike.
        settings: what is done with a query, as DimensionSettings("rocchio"). rdime needs one
            document, rocchio two, eclipse the end of a list of `feedback_depth`.
        feedback_depth: length of the list from whose end eclipse takes its moon.
    """

    search: Callable[..., Any]
    settings: DimensionSettings
    feedback_depth: int = FEEDBACK_DEPTH

    def __call__(self, query: npt.ArrayLike, k: int = 10, **options: Any) -> list[Match[T]]:
        """Return the k best documents of a query, best first.

        Args:
            query: (d,).
            k: how many.
            options: passed on to the search function, each time.

        Raises:
            InputError: a depth below 1, shapes that do not fit, or a search function that returns
                something else than it should.
        """
        check_search_depths(k, self.feedback_depth)
        queries = _rows(np.asarray(query, np.float32)[None])
        depth = feedback_needed(self.settings, self.feedback_depth)  # of the first pass; 0: there is none
        if self.settings.keeps_all:
            depth = k
        documents, vectors = self._searched(queries[0], depth, options) if depth else NOTHING
        result = _sharpened(queries, [vectors[: self.feedback_depth]], self.settings)
        if depth < k or result.changed[0]:
            documents, vectors = self._searched(result.queries[0], k, options)
        scores = (vectors @ result.queries[0]).tolist() if len(vectors) else []
        return [Match(document, score) for document, score in zip(documents, scores, strict=True)][:k]

    def _searched(self, query: Floats, depth: int, options: dict[str, Any]) -> Found:
        return _checked(self.search(query, depth, **options), len(query))


def _sharpened(queries: Floats, feedback: Sequence[Floats], settings: DimensionSettings) -> Sharpened:
    """The queries by their feedback, from vectors instead of positions."""
    ends = np.cumsum([0, *map(len, feedback)])
    vectors = np.concatenate([part for part in feedback if len(part)] or [np.empty((0, queries.shape[1]), np.float32)])
    lists = [np.arange(start, end) for start, end in pairwise(ends.tolist())]
    return sharpened_queries(queries, Vectors.of(vectors), lists, settings)


def _checked(pair: Any, d: int) -> Found:
    try:
        documents, vectors = pair
        array = np.asarray(vectors, np.float32) if len(documents) else np.empty((0, d), np.float32)
        if array.shape != (len(documents), d):
            raise ValueError(f"{len(documents)} documents with vectors of shape {array.shape}")
    except (TypeError, ValueError) as error:
        expected = f"({d},) vectors, which most databases return only where they are asked to"
        raise InputError(f"no pair of documents and vectors ({error}); expected {expected}") from error
    return documents, array


def _rows(values: npt.ArrayLike, d: int | None = None) -> Floats:
    rows = np.ascontiguousarray(values, np.float32)
    if rows.ndim != 2 or d not in (None, rows.shape[1]) or not np.isfinite(rows).all():
        raise InputError(f"expected finite vectors of shape (n, {d or 'd'}); found shape {rows.shape}")
    return rows
