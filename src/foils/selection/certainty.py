"""Rules that heed how sure a gap is: the true gap is N(gap, gap_se²)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, RatedRows, Selection, select
from foils.selection.rules import BOUNDS, DANGER, TIERS, WEIGHTS, check_tiers, tier_names

UNSURE = "not surely inside"
NO_ERROR = "error of the gap not known"


def zone_probabilities(gap: Floats, gap_se: Floats, bounds: Sequence[float]) -> Floats:
    """Return (n, k + 1) the chances that the true gap is below, between and above k rising bounds.

    P_z = Φ((b_z − gap)/gap_se) − Φ((b_{z−1} − gap)/gap_se); an error of 0 leaves the gap itself. NaN where either is.
    """
    distance = np.asarray(bounds, np.float64) - gap[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        below = ndtr(np.where(distance == 0, -0.0, distance / gap_se[:, None]))
    exact = (gap_se == 0)[:, None]
    below = np.where(exact, distance > 0, below)
    edges = np.concatenate([np.zeros((len(gap), 1)), below, np.ones((len(gap), 1))], axis=1)
    return np.where(np.isnan(gap + gap_se)[:, None], np.nan, np.diff(edges, axis=1))


def zones(
    rows: RatedRows,
    *,
    bounds: Sequence[float] = BOUNDS,
    weights: Sequence[float] = WEIGHTS,
    confidence: float = 0.5,
) -> Selection:
    """Weigh each row by the mean of Table 2's weights over where its true gap may be: Σ_z P(zone z)·w_z.

    A row whose gap lies beside a bound has a weight between those of both sides, the more so the less sure it is. It is
    rejected where P(gap ≥ the first bound) is below the confidence. The tier is that of the gap as it was measured.

    Args:
        rows: the rows, with errors of their gaps.
        bounds: four rising gaps between the five tiers, in Elo points.
        weights: of the five tiers, in [0, 1].
        confidence: in [0, 1]; more rejects more rows that may be false negatives.

    Raises:
        InputError: no row has a gap_se, bounds that do not rise, or settings out of range.
    """
    check_tiers(bounds, weights)
    _check(rows, confidence)
    known = np.isfinite(rows.gap_se)
    chances = np.where(known[:, None], zone_probabilities(np.nan_to_num(rows.gap), rows.gap_se, bounds), 0.0)
    weight = np.clip(chances @ np.asarray(weights, np.float64), 0.0, 1.0)
    rejections = {NO_ERROR: ~known, DANGER: 1 - chances[:, 0] < confidence, "weight 0": weight == 0}
    thresholds = dict(zip(TIERS[1:], map(float, bounds), strict=True))
    return select(rows, rejections, weight, tier_names(rows.gap, bounds), thresholds)


def sure(rows: RatedRows, *, least: float = 100.0, most: float = np.inf, confidence: float = 0.9) -> Selection:
    """Keep the rows whose true gap is surely inside, P(least ≤ gap ≤ most) ≥ confidence, with weight 1.

    Args:
        rows: the rows, with errors of their gaps.
        least: smallest gap, in Elo points.
        most: largest gap.
        confidence: in [0, 1]; more keeps less.

    Raises:
        InputError: no row has a gap_se, or settings out of range.
    """
    if not least < most:
        raise InputError(f"least {least}, most {most}; expected a smaller and a larger gap, in Elo points")
    _check(rows, confidence)
    known = np.isfinite(rows.gap_se)
    inside = zone_probabilities(np.nan_to_num(rows.gap), rows.gap_se, (least, most))[:, 1]
    rejections = {NO_ERROR: ~known, f"{UNSURE} {least:g} to {most:g}": known & ~(inside >= confidence)}
    return select(rows, rejections, 1.0, tier_names(rows.gap), {"least": least, "most": most})


def _check(rows: RatedRows, confidence: float) -> None:
    if not 0 <= confidence <= 1:
        raise InputError(f"confidence {confidence}; expected in [0, 1]")
    if rows.rated.any() and not np.isfinite(rows.gap_se[rows.rated]).any():
        raise InputError("the table has no errors of gaps (gap_se); rate it anew: foils rate")
