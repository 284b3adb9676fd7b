"""Two passes over an index: retrieve, estimate the useful dimensions from what came back, rank again.

1. The first pass retrieves with all dimensions; its list, or another system's, is the feedback.
2. Sun and moon come from the feedback (or the sun from an answer's vector); they give each query its mask.
3. The second pass ranks with the masked query: the whole index, or only the documents retrieved.

A query whose mask keeps everything is not ranked again: its first result stands, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from foils import progress
from foils.encode import Vectors
from foils.encode.nearest import rank_rows
from foils.errors import InputError, UnknownNameError
from foils.search.dimensions import (
    Floats,
    Mask,
    Rows,
    check_depths,
    dime_importance,
    eclipse_importance,
    keep_share,
    masked,
    moon_rows,
    rdime_mask,
    sun,
)
from foils.search.faiss_index import as_index
from foils.search.index import Scores

Method = Literal["none", "dime", "eclipse", "rdime"]
SecondPass = Literal["index", "retrieved"]
METHODS = ("none", "dime", "eclipse", "rdime")
SECOND_PASSES = ("index", "retrieved")
QUERIES = 1_024  # at once: bounds memory, and how often progress is told


@dataclass(frozen=True)
class DimensionSettings:
    """How to choose each query's dimensions.

    Attributes:
        method: `none` (keep all), `dime`, `eclipse` or `rdime`.
        k_plus: documents of the sun; not used where answers are given.
        k_minus: documents of the moon (eclipse).
        alpha: weight of the sun (eclipse).
        beta: weight of the moon (eclipse).
        share: retained share of dimensions in (0, 1] (dime, eclipse; rdime chooses it by itself).
        moon_pool: draw the moon at random from so many of the last documents (eclipse); None: the last k⁻.
    """

    method: Method = "eclipse"
    k_plus: int = 2
    k_minus: int = 5
    alpha: float = 1.0
    beta: float = 0.5
    share: float = 0.8
    moon_pool: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnknownNameError("way to choose dimensions", self.method, METHODS)
        wrong = [
            said
            for bad, said in (
                (self.k_plus < 1, f"k⁺={self.k_plus} (at least 1)"),
                (self.k_minus < 1, f"k⁻={self.k_minus} (at least 1)"),
                (not 0 < self.alpha < np.inf, f"α={self.alpha} (above 0)"),
                (not 0 <= self.beta < np.inf, f"β={self.beta} (at least 0)"),
                (not 0 < self.share <= 1, f"share={self.share} (above 0, at most 1)"),
                (
                    self.moon_pool is not None and self.moon_pool < self.k_minus,
                    f"pool={self.moon_pool} (at least k⁻={self.k_minus})",
                ),
            )
            if bad
        ]
        if wrong:
            raise InputError(f"settings out of range: {'; '.join(wrong)}")

    @property
    def keeps_all(self) -> bool:
        """Whether no query can lose a dimension."""
        return self.method == "none" or (self.method in ("dime", "eclipse") and self.share == 1)


@dataclass(frozen=True)
class Found:
    """What a search returns.

    Attributes:
        positions: n arrays of document positions, best first.
        scores: n arrays of float32 inner products with the masked queries.
        masks: (n, d) which dimensions each query kept.
        short: (n,) queries with too short a feedback for the settings, or without an answer; they kept every dimension.
    """

    positions: list[Rows]
    scores: list[Scores]
    masks: Mask
    short: npt.NDArray[np.bool_]


def query_masks(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    feedback: Sequence[Rows],
    settings: DimensionSettings,
    *,
    answers: npt.NDArray[np.floating] | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Mask, npt.NDArray[np.bool_]]:
    """Return the mask of each query, and which queries keep every dimension for want of feedback or of an answer.

    Args:
        queries: (n, d).
        documents: vectors of all documents.
        feedback: n lists of document positions, best first; they may differ in length.
        settings: method and depths. A list serves where 0 < k⁻ < k and 0 < k⁺ < k − k⁻ (dime: 0 < k⁺ ≤ k; with
            answers: 0 < k⁻ < k), k its length.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.
        rng: source of the draws of a random moon.

    Raises:
        InputError: lengths that do not fit, or a random moon without a generator.
    """
    n, d = queries.shape
    if len(feedback) != n or (answers is not None and answers.shape != queries.shape):
        raise InputError(
            f"expected feedback and answers for each of {n} queries of dimension {d}; found {len(feedback)} lists"
            + ("" if answers is None else f" and answers {answers.shape}")
        )
    masks, short = np.ones((n, d), bool), np.zeros(n, bool)
    if settings.keeps_all:
        return masks, short
    short[:] = [not serves(len(found), settings, answered=answers is not None) for found in feedback]
    if answers is not None:
        short |= np.isnan(answers).any(axis=1)
    ready = np.flatnonzero(~short)
    for start in range(0, len(ready), QUERIES):
        rows = ready[start : start + QUERIES]
        lists = [feedback[row] for row in rows]
        moons = np.zeros((len(rows), d))
        if settings.method == "eclipse":
            chosen = [
                found[moon_rows(len(found), settings.k_minus, pool=settings.moon_pool, rng=rng)] for found in lists
            ]
            moons = _means(documents, chosen)
        relevant = _means(documents, [f[: settings.k_plus] for f in lists]) if answers is None else answers[rows]
        masks[rows] = _masks(queries[rows], np.asarray(relevant, np.float64), moons, settings)
    return masks, short


def search_vectors(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    index: Any,
    settings: DimensionSettings,
    *,
    k: int = 1000,
    feedback_depth: int | None = None,
    feedback: Sequence[Rows] | None = None,
    answers: npt.NDArray[np.floating] | None = None,
    second_pass: SecondPass = "index",
    rng: np.random.Generator | None = None,
) -> Found:
    """Search with each query's useful dimensions.

    Args:
        queries: (n, d) unit vectors.
        documents: vectors of the documents the index holds, in its order.
        index: an `Index` or faiss' own, of inner products or of L2 distances; every pass goes through it. What
            `as_index` returns is not checked again.
        settings: how dimensions are chosen.
        k: how many documents to return.
        feedback_depth: length of the feedback list; None: k.
        feedback: lists of another system, best first, in place of the first pass' own; cut to `feedback_depth`.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.
        second_pass: `index` ranks all documents again, `retrieved` only the k of the first pass.
        rng: source of the draws of a random moon.

    Returns:
        Lists of at most k documents. Ties go to the lower position (with an exact index).

    Raises:
        UnknownNameError: an unknown second pass.
        InputError: a depth below 1, or what `as_index` and `query_masks` refuse.

    Source: Eclipse, section 3.
    """
    if second_pass not in SECOND_PASSES:
        raise UnknownNameError("second pass", second_pass, SECOND_PASSES)
    depth = k if feedback_depth is None else feedback_depth
    if min(k, depth) < 1:
        raise InputError(f"expected depths of at least 1; found k={k}, feedback_depth={depth}")
    index = as_index(index, documents)
    own = feedback is None and not settings.keeps_all
    used = depth if settings.method == "eclipse" else min(depth, settings.k_plus)  # without a moon, the end is not
    positions, scores = _lists(*index.search(queries, max(k, used) if own else k))
    lists = positions if feedback is None else feedback
    masks, short = query_masks(
        queries, documents, [found[:depth] for found in lists], settings, answers=answers, rng=rng
    )
    positions, scores = [p[:k] for p in positions], [s[:k] for s in scores]
    again = np.flatnonzero(~masks.all(axis=1))
    sharpened = masked(queries[again], masks[again])
    if second_pass == "index" and len(again):
        for row, found, score in zip(again, *_lists(*index.search(sharpened, k)), strict=True):
            positions[row], scores[row] = found, score
    elif len(again):
        ranked = rank_lists(sharpened, documents, [positions[row] for row in again])
        for row, found, score in zip(again, *ranked, strict=True):
            positions[row], scores[row] = found, score
    return Found(positions, scores, masks, short)


def rank_lists(
    queries: npt.NDArray[np.floating], documents: Vectors, lists: Sequence[Rows]
) -> tuple[list[Rows], list[Scores]]:
    """Return each query's list by falling inner product, ties by position, and the products, as an exact index does.

    Args:
        queries: (n, d), masked or not.
        documents: vectors of all documents.
        lists: n arrays of document positions.
    """
    positions: list[Rows] = []
    scores: list[Scores] = []
    with progress.task("ranking again", total=len(lists), unit="queries") as advance:
        for start in range(0, len(lists), QUERIES):
            part = slice(start, start + QUERIES)
            found, products = rank_rows(queries[part], documents, lists[part])
            positions, scores = positions + found, scores + products
            advance(len(found))
    return positions, scores


def serves(k: int, settings: DimensionSettings, *, answered: bool = False) -> bool:
    """Tell whether a feedback list of k documents is long enough; with an answer for the sun, for the moon alone."""
    k_plus = 0 if answered else settings.k_plus
    k_minus = settings.k_minus if settings.method == "eclipse" else 0
    if not (k_plus or k_minus):
        return True
    if settings.method == "eclipse" and settings.moon_pool is not None and settings.moon_pool >= k:
        return False
    try:
        check_depths(k, k_plus, k_minus)
    except InputError:
        return False
    return True


def _means(documents: Vectors, lists: Sequence[Rows]) -> Floats:
    """Mean vector of each list, (n, d); lists of one length."""
    rows = np.stack(lists)
    return sun(documents.take(rows.ravel()).reshape(*rows.shape, -1), rows.shape[1])


def _masks(queries: npt.NDArray[np.floating], suns: Floats, moons: Floats, settings: DimensionSettings) -> Mask:
    if settings.method == "eclipse":
        importance = eclipse_importance(queries, suns, moons, alpha=settings.alpha, beta=settings.beta)
    else:
        importance = dime_importance(queries, suns)
    if settings.method == "rdime":
        return rdime_mask(queries, importance)
    return keep_share(importance, settings.share)


def _lists(positions: Rows, scores: Scores) -> tuple[list[Rows], list[Scores]]:
    """Rows as lists, less the places that an approximate index left empty."""
    found = positions >= 0
    if found.all():
        return list(positions), list(scores)
    return [p[f] for p, f in zip(positions, found, strict=True)], [s[f] for s, f in zip(scores, found, strict=True)]
