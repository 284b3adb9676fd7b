"""Rules with thresholds: the base table, the judge's word on borderline rows, percentiles, the positive's rating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, RatedRows, Selection, Words, select

TIERS = ("danger", "soft", "goldilocks", "medium", "easy")
BOUNDS = (100.0, 200.0, 400.0, 600.0)
WEIGHTS = (0.0, 0.5, 1.0, 0.7, 0.3)

DANGER = "danger zone"
NOT_BETTER = "positive not clearly better"
NOT_ASKED = "judge not asked, or without an answer"
RELATIVE = "too close to the positive's rating"


def table(
    rows: RatedRows,
    *,
    bounds: Sequence[float] = BOUNDS,
    weights: Sequence[float] = WEIGHTS,
    validate: bool = True,
    borderline: tuple[float, float] = (80.0, 150.0),
    levels: tuple[float, float] = (0.65, 0.75),
    low_weight: float = 0.3,
) -> Selection:
    """Select by the tiers of Table 2.

    Gap < 100: danger, rejected; 100–200 soft, weight 0.5; 200–400 goldilocks 1; 400–600 medium 0.7; > 600 easy 0.3.
    A gap on a bound belongs to the tier above it, except 600, which is still medium, as the table has it. Where the
    judge was asked directly (a `preference` is there) and the gap is borderline, 80–150, its answer p = P(positive
    ≻ d) decides instead: p < 0.65 rejected; 0.65–0.75 weight 0.3; > 0.75 weight 1. A borderline row without an
    answer stays with the table.

    Args:
        rows: the rows.
        bounds: four rising gaps between the five tiers, in Elo points.
        weights: of the five tiers, in [0, 1]; 0 rejects.
        validate: let the judge decide on borderline rows.
        borderline: smallest and largest gap that the judge decides on.
        levels: of p, below which a row is rejected, above which it has full weight.
        low_weight: between the levels.

    Raises:
        InputError: bounds that do not rise, not one weight for each tier, or weights outside [0, 1].

    Source: ANMI 2.0 Table 2, section 7.2 stages 3 and 4, eq. 35.
    """
    check_tiers(bounds, weights)
    at = tier_of(rows.gap, bounds)
    weight = np.asarray(weights, np.float64)[at]
    p = rows.preference
    decided = np.isfinite(p) & (rows.gap >= borderline[0]) & (rows.gap <= borderline[1]) & validate
    weight = np.where(decided, np.where(p < levels[0], 0.0, np.where(p > levels[1], 1.0, low_weight)), weight)
    rejections = {NOT_BETTER: decided & (p < levels[0]), DANGER: (at == 0) & (weight == 0), "weight 0": weight == 0}
    return select(rows, rejections, weight, _words(at), dict(zip(TIERS[1:], map(float, bounds), strict=True)))


def percentile(
    rows: RatedRows,
    *,
    percentiles: tuple[float, float, float] = (10.0, 25.0, 75.0),
    weights: tuple[float, float, float, float] = (0.0, 0.5, 1.0, 0.7),
    per_query: bool = False,
) -> Selection:
    """Select by percentiles of the gaps themselves.

    Below the 10th danger, rejected; to the 25th soft; to the 75th goldilocks; above it medium. The paper names the
    percentiles [10th, 25th, 75th] and leaves the weights open; these are Table 2's for the same names. A gap on a
    bound belongs above it.

    Args:
        rows: the rows.
        percentiles: three rising numbers in [0, 100].
        weights: of the four tiers, in [0, 1]; 0 rejects.
        per_query: percentiles of each query's own gaps, instead of all.

    Raises:
        InputError: percentiles that do not rise within [0, 100], or weights outside [0, 1].

    Source: ANMI 2.0 section 1.4.
    """
    if not 0 <= percentiles[0] < percentiles[1] < percentiles[2] <= 100:
        raise InputError(f"percentiles {percentiles}; expected three rising numbers from 0 to 100")
    _check_weights(weights, 4)
    bounds = np.full((len(rows), 3), np.nan)
    groups = np.unique(rows.query) if per_query else [None]
    for group in groups:
        inside = rows.rated & (rows.query == group) if per_query else rows.rated
        if inside.any():
            bounds[inside] = np.percentile(rows.gap[inside], percentiles)
    at = (rows.gap[:, None] >= bounds).sum(axis=1)
    weight = np.asarray(weights, np.float64)[at]
    names = (
        {} if per_query or not rows.rated.any() else dict(zip(TIERS[1:4], bounds[rows.rated][0].tolist(), strict=True))
    )
    return select(rows, {DANGER: (at == 0) & (weight == 0), "weight 0": weight == 0}, weight, _words(at), names)


def relative(rows: RatedRows, *, margin: float = 0.05) -> Selection:
    """Keep the rows with gap > margin · e_positive, with weight 1 (after NV-Retriever's percentage of the positive).

    It needs the Elo scale's customary mean of 1500: on a centred scale a positive below the mean would have a negative
    margin. At 1800, 0.05 is a gap of 90.

    Args:
        rows: the rows.
        margin: share of the positive's rating, at least 0; more keeps less.

    Raises:
        InputError: a negative margin, or a positive that is rated below 0 on the Elo scale.
    """
    if margin < 0:
        raise InputError(f"margin {margin}; expected at least 0")
    if (rows.positive_elo < 0).any():
        raise InputError("a positive is rated below 0; this rule needs ratings on the Elo scale, around 1500")
    return select(rows, {RELATIVE: rows.gap <= margin * rows.positive_elo}, 1.0, tier_names(rows.gap))


def denoise(rows: RatedRows, *, confidence: float = 0.75) -> Selection:
    """Keep the rows of which the judge itself, asked directly, says P(positive ≻ d) ≥ confidence (after RocketQA).

    Rows about which it was not asked, or did not answer, are rejected: rate with every row validated.

    Args:
        rows: the rows, with preferences.
        confidence: in [0, 1]; more keeps less.

    Raises:
        InputError: a confidence outside [0, 1], or no row has a preference.
    """
    if not 0 <= confidence <= 1:
        raise InputError(f"confidence {confidence}; expected in [0, 1]")
    if len(rows) and not np.isfinite(rows.preference).any():
        raise InputError("no row has the judge's own preference; rate with --validate all")
    rejections = {NOT_ASKED: np.isnan(rows.preference), NOT_BETTER: rows.preference < confidence}
    return select(rows, rejections, 1.0, tier_names(rows.gap))


def tier_of(gap: Floats, bounds: Sequence[float] = BOUNDS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return (n,) which of the five tiers a gap is in; NaN is in the last, and its row is rejected as unrated."""
    edges = np.asarray(bounds, np.float64)
    below_last = (gap[:, None] >= edges[:-1]).sum(axis=1)
    return np.asarray(below_last + (gap > edges[-1]), np.int64)


def tier_names(gap: Floats, bounds: Sequence[float] = BOUNDS) -> Words:
    """Return (n,) the names of Table 2's tiers."""
    return _words(tier_of(gap, bounds))


def _words(at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Words:
    return np.asarray(TIERS, object)[at]


def check_tiers(bounds: Sequence[float], weights: Sequence[float]) -> None:
    """Raise an InputError unless there are four rising bounds, and a weight in [0, 1] for each of five tiers."""
    if len(bounds) != 4 or any(a >= b for a, b in pairwise(bounds)):
        raise InputError(f"bounds {tuple(bounds)}; expected four rising gaps, as in {BOUNDS}")
    _check_weights(weights, 5)


def _check_weights(weights: Sequence[float], tiers: int) -> None:
    if len(weights) != tiers or not all(0 <= weight <= 1 for weight in weights):
        raise InputError(f"weights {tuple(weights)}; expected {tiers} numbers in [0, 1], one for each tier")
