"""Which dimensions each of many queries keeps, from lists of feedback or from answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime.errors import InputError
from foils.searching.dimensions import (
    TRUST_DEPTH,
    Floats,
    Mask,
    Rows,
    check_depths,
    dime_importance,
    eclipse_importance,
    keep_share,
    moon_rows,
    rdime_mask,
    sun,
    trusted,
)
from foils.searching.settings import DimensionSettings

QUERIES = 1_024  # at once: bounds memory, and how often progress is told


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
            answers: 0 < k⁻ < k), k its length; with a moon drawn at random, the pool stands for k⁻.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.
        rng: source of the draws of a random moon.

    Raises:
        InputError: lengths that do not fit, numbers that are no positions of documents, a random moon without a
            generator, or answers with `selective`, which judges the feedback.
    """
    n, d = queries.shape
    if len(feedback) != n or (answers is not None and answers.shape != queries.shape):
        raise InputError(
            f"expected feedback and answers for each of {n} queries of dimension {d}; found {len(feedback)} lists"
            + ("" if answers is None else f" and answers {answers.shape}")
        )
    if settings.method == "selective" and answers is not None:
        raise InputError("selective judges the feedback, which answers replace; take rdime with answers")
    feedback = checked_positions(feedback, len(documents))
    masks, short = np.ones((n, d), bool), np.zeros(n, bool)
    if settings.keeps_all:
        return masks, short
    short[:] = [not serves(len(rows), settings, answered=answers is not None) for rows in feedback]
    if answers is not None:
        short |= np.isnan(answers).any(axis=1)
    ready = np.flatnonzero(~short)
    if settings.method == "selective":
        ready = ready[np.array([_trusted(queries[row], documents, feedback[row], settings) for row in ready], bool)]
    for start in range(0, len(ready), QUERIES):
        rows = ready[start : start + QUERIES]
        lists = [feedback[row] for row in rows]
        moons = np.zeros((len(rows), d))
        if settings.method == "eclipse":
            chosen = [
                ranking[moon_rows(len(ranking), settings.k_minus, pool=settings.moon_pool, rng=rng)]
                for ranking in lists
            ]
            moons = _means(documents, chosen)
        relevant = _means(documents, [f[: settings.k_plus] for f in lists]) if answers is None else answers[rows]
        masks[rows] = _masks(queries[rows], np.asarray(relevant, np.float64), moons, settings)
    return masks, short


def serves(k: int, settings: DimensionSettings, *, answered: bool = False) -> bool:
    """Tell whether a feedback list of k documents is long enough; with an answer for the sun, for the moon alone."""
    k_plus = 0 if answered else settings.k_plus
    k_minus = (settings.moon_pool or settings.k_minus) if settings.method == "eclipse" else 0
    if not (k_plus or k_minus):
        return True
    try:
        check_depths(k, k_plus, k_minus)
    except InputError:
        return False
    return True


def feedback_needed(settings: DimensionSettings, depth: int, *, answered: bool = False) -> int:
    """Return how many of a feedback list's documents masks depend on; without a moon, its end plays no part.

    Args:
        settings: method and depths.
        depth: length of the list.
        answered: whether answers make the sun.
    """
    if settings.keeps_all or (answered and settings.method != "eclipse"):
        return 0
    if settings.method == "eclipse":
        return depth
    return min(depth, max(settings.k_plus, TRUST_DEPTH if settings.method == "selective" else 0))


def checked_positions(lists: Sequence[Rows], count: int) -> list[Rows]:
    """Return lists of document positions as arrays.

    Args:
        lists: of whole numbers; any lengths.
        count: how many documents there are.

    Raises:
        InputError: numbers that are not in 0..count − 1; NumPy would take −1 for the last document.
    """
    arrays = [np.asarray(ranking) if len(ranking) else np.empty(0, np.int64) for ranking in lists]
    for at, ranking in enumerate(arrays):
        if (
            ranking.ndim != 1
            or ranking.dtype.kind not in "iu"
            or (len(ranking) and not 0 <= ranking.min() <= ranking.max() < count)
        ):
            wrong = [each for each in ranking.ravel().tolist() if each not in range(count)]
            raise InputError(
                f"expected lists of document positions, whole numbers from 0 to {count - 1:,}; list {at} holds "
                f"{wrong[:5] or ranking.dtype}; leave out what was not found"
            )
    return arrays


def _trusted(query: npt.NDArray[np.floating], documents: Vectors, rows: Rows, settings: DimensionSettings) -> bool:
    return trusted(query, documents.take(rows[:TRUST_DEPTH]), lead=settings.lead, agreement=settings.agreement)


def _means(documents: Vectors, lists: Sequence[Rows]) -> Floats:
    """Mean vector of each list, (n, d); lists of one length."""
    rows = np.stack(lists)
    return sun(documents.take(rows.ravel()).reshape(*rows.shape, -1), rows.shape[1])


def _masks(queries: npt.NDArray[np.floating], suns: Floats, moons: Floats, settings: DimensionSettings) -> Mask:
    if settings.method == "eclipse":
        importance = eclipse_importance(queries, suns, moons, alpha=settings.alpha, beta=settings.beta)
    else:
        importance = dime_importance(queries, suns)
    if settings.method in ("rdime", "selective"):
        return rdime_mask(queries, importance)
    return keep_share(importance, settings.share)
