"""Each query's useful dimensions over a search function of yours: of a vector database, an index or a service.

All that is asked of it is what any of them can do: from a query vector and a number k, the k nearest documents with
their vectors. What it calls a document (an id, a row, a hit with its payload) comes back as it is, and what else it
takes (a filter, a tenant, a partition) is passed through, to both passes alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime.errors import InputError
from foils.searching.dimensions import masked
from foils.searching.masks import feedback_needed, query_masks
from foils.searching.passes import check_search_depths
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings, SecondPass

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Floats = npt.NDArray[np.float32]
SELECTIVE = DimensionSettings("selective")


class Match(NamedTuple, Generic[T]):
    """A document as the search function returned it, and its inner product with the query that found it."""

    document: T
    score: float


Steps = Generator[tuple[Floats, int], Any, list[list[Match[T]]]]  # queries and depth -> results of the function


class SearchFunction(Protocol[T_co]):
    """A search by vector: (query (d,), k) → (documents, their vectors (≤ k, d)), best first."""

    def __call__(self, query: Floats, k: int, /, **options: Any) -> tuple[Sequence[T_co], npt.ArrayLike]:
        """Return at most k documents of largest inner product, best first, and the vector of each."""
        ...


class BatchedSearchFunction(Protocol[T_co]):
    """A search for many vectors at once: (queries (n, d), k) → a pair as `SearchFunction` gives, for each query."""

    def __call__(self, queries: Floats, k: int, /, **options: Any) -> Sequence[tuple[Sequence[T_co], npt.ArrayLike]]:
        """Return n pairs of documents, best first, and their vectors."""
        ...


def sharpen(
    queries: npt.ArrayLike, feedback: Sequence[npt.ArrayLike], settings: DimensionSettings = SELECTIVE
) -> Floats:
    """Return queries with the dimensions set to 0 that their feedback shows to be of no use.

    Args:
        queries: (n, d).
        feedback: for each query, (k, d) vectors of what was retrieved for it, best first. Of rdime and dime the first
            k⁺ count (1 unless said otherwise), of selective the first 5, of eclipse the first k⁺ and the last k⁻. For
            rdime and dime it may be the vector of an answer text, (1, d).
        settings: how dimensions are chosen; selective unless said otherwise. A query whose feedback is too short for
            them keeps every dimension.

    Returns:
        (n, d) float32. Inner products with these are the scores of the second pass, in any index.

    Raises:
        InputError: shapes that do not fit, values that are not finite, or a moon drawn at random.

    Source: Eclipse, sections 2 and 3.
    """
    rows = _matrix(queries)
    return np.asarray(masked(rows, _masks(rows, [_vectors(of, rows.shape[1]) for of in feedback], settings)))


@dataclass(frozen=True)
class _TwoPasses(Generic[T]):
    """What a search with sharpened queries asks of a search function, and what it makes of the results."""

    search: Any
    settings: DimensionSettings = SELECTIVE
    second_pass: SecondPass = "index"
    feedback_depth: int = FEEDBACK_DEPTH
    rerank_depth: int | None = None
    batched: bool = False

    def __post_init__(self) -> None:
        check_search_depths(1, self.feedback_depth, self.rerank_depth, self.second_pass)

    def _steps(self, queries: npt.ArrayLike, k: int, feedback: Sequence[npt.ArrayLike] | None) -> Steps[T]:
        """Yield what is to be searched for, at most twice; take its results; return the matches."""
        rows = _matrix(queries)
        reranked = check_search_depths(k, self.feedback_depth, self.rerank_depth, self.second_pass)
        depth = self._first_depth(k, reranked, given=feedback is not None)
        first = _checked((yield rows, depth), rows) if depth and len(rows) else [_NOTHING] * len(rows)
        fed = [of for _, of in first] if feedback is None else [_vectors(of, rows.shape[1]) for of in feedback]
        masks = _masks(rows, [of[: self.feedback_depth] for of in fed], self.settings)
        sharpened = np.asarray(masked(rows, masks), np.float32)
        if self.second_pass == "retrieved":
            return [
                _ordered(query, documents[:reranked], vectors[:reranked], k)
                for query, (documents, vectors) in zip(sharpened, first, strict=True)
            ]
        again = np.flatnonzero(~masks.all(axis=1)) if depth >= k else np.arange(len(rows))
        if len(again):
            asked = sharpened[again]
            for row, of in zip(again.tolist(), _checked((yield asked, k), asked), strict=True):
                first[row] = of
        return [_scored(query, *of, k) for query, of in zip(sharpened, first, strict=True)]

    def _first_depth(self, k: int, reranked: int, *, given: bool) -> int:
        """How many documents the first pass retrieves; 0: there is none."""
        needed = 0 if given else feedback_needed(self.settings, self.feedback_depth)
        if self.second_pass == "retrieved":
            return max(reranked, needed)
        if self.settings.keeps_all:
            return k
        if given:
            return 0
        return max(k, needed) if self.settings.method == "selective" else needed  # most queries need no second pass


@dataclass(frozen=True)
class SharpenedSearch(_TwoPasses[T]):
    """A search function that uses each query's useful dimensions; call it as the one that it is made of.

    Attributes:
        search: yours: a `SearchFunction` or, with `batched`, a `BatchedSearchFunction`. By inner product, or by cosine
            or L2 distance over documents of one norm, which order documents alike.
        settings: how dimensions are chosen: selective needs the vectors of five documents a query, and searches again
            only where it trusts them; rdime needs one.
        second_pass: `index` searches again with the sharpened query; `retrieved` orders by it what the first pass
            returned, from the vectors at hand, so that a query is searched for once.
        feedback_depth: length of the list from whose end eclipse takes its moon.
        rerank_depth: with second_pass `retrieved`, how many documents are retrieved and ordered, at least k; None:
            1000, or k where that is more.
        batched: `search` takes many queries at once.

    Raises:
        UnknownNameError: an unknown second pass.
        InputError: a depth out of range.
    """

    search: SearchFunction[T] | BatchedSearchFunction[T]

    def __call__(
        self, query: npt.ArrayLike, k: int = 10, *, feedback: npt.ArrayLike | None = None, **options: Any
    ) -> list[Match[T]]:
        """Return the k best documents of one query, best first.

        Args:
            query: (d,).
            k: how many.
            feedback: (m, d) vectors of another system's results, best first, or for rdime and dime of an answer text;
                with second_pass `index` there is then one search, by the sharpened query, and no first.
            options: passed on to the search function, each time.

        Raises:
            InputError: shapes that do not fit, or a search function that returns something else than it should.
        """
        given = None if feedback is None else [feedback]
        return self.many(np.asarray(query, np.float32)[None], k, feedback=given, **options)[0]

    def many(
        self, queries: npt.ArrayLike, k: int = 10, *, feedback: Sequence[npt.ArrayLike] | None = None, **options: Any
    ) -> list[list[Match[T]]]:
        """Return the k best documents of each of n queries, (n, d); arguments and errors as of one."""
        search: Any = self.search
        steps = self._steps(queries, k, feedback)
        asked, matches = _step(steps)
        while asked is not None:
            vectors, depth = asked
            found = (
                search(vectors, depth, **options) if self.batched else [search(q, depth, **options) for q in vectors]
            )
            asked, matches = _step(steps, found)
        return matches


@dataclass(frozen=True)
class AsyncSharpenedSearch(_TwoPasses[T]):
    """`SharpenedSearch` over an async search function; the queries of `many` are searched for at the same time.

    Attributes and errors as of `SharpenedSearch`; `search` returns an awaitable of what it returns there.
    """

    search: Callable[..., Awaitable[Any]]

    async def __call__(
        self, query: npt.ArrayLike, k: int = 10, *, feedback: npt.ArrayLike | None = None, **options: Any
    ) -> list[Match[T]]:
        """Return the k best documents of one query, best first; as `SharpenedSearch`."""
        given = None if feedback is None else [feedback]
        return (await self.many(np.asarray(query, np.float32)[None], k, feedback=given, **options))[0]

    async def many(
        self, queries: npt.ArrayLike, k: int = 10, *, feedback: Sequence[npt.ArrayLike] | None = None, **options: Any
    ) -> list[list[Match[T]]]:
        """Return the k best documents of each of n queries, (n, d); as `SharpenedSearch`."""
        steps = self._steps(queries, k, feedback)
        asked, matches = _step(steps)
        while asked is not None:
            vectors, depth = asked
            if self.batched:
                found = await self.search(vectors, depth, **options)
            else:
                found = await asyncio.gather(*(self.search(query, depth, **options) for query in vectors))
            asked, matches = _step(steps, found)
        return matches


def _step(steps: Steps[T], found: Any = None) -> tuple[tuple[Floats, int] | None, list[list[Match[T]]]]:
    """Hand over results; return what is to be searched for next or, where that is nothing, None and the matches."""
    try:
        return steps.send(found), []
    except StopIteration as end:
        return None, end.value


_NOTHING: tuple[Sequence[Any], Floats] = ((), np.empty((0, 0), np.float32))


def _masks(queries: Floats, feedback: Sequence[Floats], settings: DimensionSettings) -> npt.NDArray[np.bool_]:
    """The mask of each query, from vectors instead of positions."""
    ends = np.cumsum([0, *map(len, feedback)])
    vectors = np.concatenate([of for of in feedback if len(of)] or [np.empty((0, queries.shape[1]), np.float32)])
    lists = [np.arange(start, end) for start, end in pairwise(ends.tolist())]
    return query_masks(queries, Vectors.of(vectors), lists, settings)[0]


def _ordered(query: Floats, documents: Sequence[T], vectors: Floats, k: int) -> list[Match[T]]:
    """The k documents of largest inner product; of equal ones the earlier."""
    scores = vectors @ query if len(vectors) else np.empty(0, np.float32)
    return [Match(documents[at], float(scores[at])) for at in np.argsort(-scores, kind="stable")[:k].tolist()]


def _scored(query: Floats, documents: Sequence[T], vectors: Floats, k: int) -> list[Match[T]]:
    """The first k documents, in the order in which they were returned."""
    scores = (vectors @ query).tolist() if len(vectors) else []
    return [Match(document, score) for document, score in zip(documents, scores, strict=True)][:k]


def _checked(pairs: Any, queries: Floats) -> list[tuple[Sequence[Any], Floats]]:
    if len(pairs) != len(queries):
        raise InputError(f"the search function returned {len(pairs)} results for {len(queries)} queries")
    return [_checked_pair(pair, queries.shape[1]) for pair in pairs]


def _checked_pair(pair: Any, d: int) -> tuple[Sequence[Any], Floats]:
    try:
        documents, vectors = pair
        array = np.asarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the search function returned {type(pair).__name__}; expected a pair: documents, and a vector for each. "
            "Most databases return vectors only where they are asked to"
        ) from error
    if array.size == 0 and not len(documents):
        return documents, np.empty((0, d), np.float32)
    if array.shape != (len(documents), d):
        raise InputError(
            f"the search function returned {len(documents)} documents with vectors of shape {array.shape}; expected "
            f"({len(documents)}, {d}). Most databases return vectors only where they are asked to"
        )
    return documents, array


def _matrix(queries: npt.ArrayLike) -> Floats:
    rows = np.ascontiguousarray(queries, np.float32)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InputError(f"expected finite queries of shape (n, d); found shape {rows.shape}")
    return rows


def _vectors(given: npt.ArrayLike, d: int) -> Floats:
    array = np.asarray(given, np.float32)
    if array.ndim != 2 or array.shape[1] != d:
        raise InputError(f"expected feedback vectors of shape (k, {d}) for each query; found shape {array.shape}")
    return array
