"""Two passes over an index: retrieve, estimate the useful dimensions from what came back, rank again.

1. The first pass retrieves with all dimensions; its list is the feedback.
2. Sun and moon come from the feedback (or the sun from an answer's vector); they give each query its mask.
3. The second pass ranks with the masked query: the whole index, or only the documents retrieved.

Three depths are independent: of the feedback (whose end is the moon), of what is ranked again, and of the result. A
query whose mask keeps everything is not ranked again: its first result stands, bit for bit. Where the first pass gives
neither feedback nor documents to rank again, there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.encode.nearest import Index, Products, as_index, rank_rows, search_lists
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names
from foils.searching.dimensions import QUERIES, Rows, Sharpened, feedback_needed, sharpened_queries
from foils.searching.settings import CANDIDATES, FEEDBACK_DEPTH, SECOND_PASSES, DimensionSettings, SecondPass


@dataclass(frozen=True)
class Ranked:
    """What a search returns.

    Attributes:
        positions: n arrays of document positions, best first.
        scores: n arrays of float32 inner products with the sharpened queries.
        sharpened: the queries of the second pass, and what became of them.
    """

    positions: list[Rows]
    scores: list[Products]
    sharpened: Sharpened


def search_vectors(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    index: Any,
    settings: DimensionSettings,
    *,
    k: int = 1000,
    feedback_depth: int = FEEDBACK_DEPTH,
    candidates: int | None = None,
    answers: npt.NDArray[np.floating] | None = None,
    second_pass: SecondPass = "index",
    without: Rows | None = None,
    rng: np.random.Generator | None = None,
) -> Ranked:
    """Search with each query's useful dimensions.

    Args:
        queries: (n, d) unit vectors.
        documents: vectors of the documents the index holds, in its order.
        index: an `Index` or faiss' own, of inner products; every pass goes through it. What
            `as_index` returns is not checked again.
        settings: how dimensions are chosen.
        k: how many documents to return.
        feedback_depth: length of the feedback list, whose end is the moon, however many documents are returned.
        candidates: with second_pass `rerank`, how many documents of the first pass are ranked again, at least k;
            None: 1000, or k where that is more.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.
        second_pass: `index` ranks all documents again, `rerank` only those that the first pass retrieved.
        without: (n,) position of a document that neither pass returns for the query; −1: there is none.
        rng: source of the draws of a random moon.

    Returns:
        Lists of at most k documents. Ties go to the lower position (with an exact index).

    Raises:
        UnknownNameError: an unknown second pass.
        InputError: a depth out of range, or what `as_index` and `sharpened_queries` refuse.

    Source: Eclipse, section 3.
    """
    reranked = check_search_depths(k, feedback_depth, candidates, second_pass)
    index = as_index(index, documents)
    first = reranked if second_pass == "rerank" and not settings.keeps_all else 0
    first = max(first, feedback_needed(settings, feedback_depth, answered=answers is not None))
    positions, scores = _pass(index, queries, max(k, first) if first else 0, without)
    lists = [rows[:feedback_depth] for rows in positions]
    sharpened = sharpened_queries(queries, documents, lists, settings, answers=answers, rng=rng)
    if not first:
        return Ranked(*search_lists(index, sharpened.queries, k, without=without), sharpened)
    again = np.flatnonzero(sharpened.changed)
    asked = sharpened.queries[again]
    if second_pass == "rerank":
        ranked = rank_lists(asked, documents, [positions[row][:reranked] for row in again])
    else:
        ranked = _pass(index, asked, k, None if without is None else without[again])
    for row, rows, products in zip(again, *ranked, strict=True):
        positions[row], scores[row] = rows, products
    return Ranked([rows[:k] for rows in positions], [score[:k] for score in scores], sharpened)


def check_search_depths(k: int, feedback_depth: int, candidates: int | None, second_pass: str) -> int:
    """Return how many documents are ranked again where only those retrieved are.

    Raises:
        UnknownNameError: an unknown second pass.
        InputError: a depth below 1, fewer documents ranked again than returned, or such a depth where all documents
            are ranked again.
    """
    check_names("second pass", [second_pass], SECOND_PASSES)
    if min(k, feedback_depth) < 1:
        raise InputError(f"expected depths of at least 1; found k={k}, feedback_depth={feedback_depth}")
    if candidates is None:
        return max(k, CANDIDATES)
    if second_pass == "index":
        raise InputError(
            f"candidates={candidates}: no effect with second_pass='index', which ranks all documents again; "
            "leave it out, or take second_pass='rerank'"
        )
    if candidates < k:
        raise InputError(f"candidates={candidates} is below k={k}: what is returned is taken from what is ranked")
    return candidates


def rank_lists(
    queries: npt.NDArray[np.floating], documents: Vectors, lists: Sequence[Rows]
) -> tuple[list[Rows], list[Products]]:
    """Return each query's list by falling inner product, ties by position, and the products, as an exact index does.

    Args:
        queries: (n, d), masked or not.
        documents: vectors of all documents.
        lists: n arrays of document positions.
    """
    positions: list[Rows] = []
    scores: list[Products] = []
    with progress.task("ranking again", total=len(lists), unit="queries") as advance:
        for start in range(0, len(lists), QUERIES):
            part = slice(start, start + QUERIES)
            rows, products = rank_rows(queries[part], documents, lists[part])
            positions, scores = positions + rows, scores + products
            advance(len(rows))
    return positions, scores


def _pass(
    index: Index, queries: npt.NDArray[np.floating], depth: int, without: Rows | None
) -> tuple[list[Rows], list[Products]]:
    """One search; empty lists, and no scores, where there is no query or depth."""
    if depth and len(queries):
        return search_lists(index, queries, depth, without=without)
    return [np.empty(0, np.int64)] * len(queries), []
