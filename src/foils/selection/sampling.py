"""Sampling negatives near a chosen distance from the positive (SimANS, on ratings)."""

from __future__ import annotations

import numpy as np

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, RatedRows, Selection, select
from foils.selection.rules import DANGER, tier_names

NOT_DRAWN = "not drawn"


def simans_log_weights(gap: Floats, *, sharpness: float = 5e-5, target: float = 300.0) -> Floats:
    """Return log p(d) = −a (e_d − e_+ + b)² up to a constant, (n,), with a = sharpness, b = target.

    The peak is at gap = b; a = 5e-5 per squared Elo point is a bell with a standard deviation of 100 points.
    """
    return -sharpness * (target - gap) ** 2


def simans(
    rows: RatedRows,
    *,
    sharpness: float = 5e-5,
    target: float = 300.0,
    per_query: int = 8,
    least: float = 100.0,
    rng: np.random.Generator | None = None,
) -> Selection:
    """Draw `per_query` negatives of each query without replacement, p(d) ∝ exp(−a (e_d − e_+ + b)²); weight 1.

    Drawn from rows outside the danger zone (the paper samples within the constraints of Elo); queries with fewer of
    them keep all. The draw takes the largest log p(d) + Gumbel noise.

    Args:
        rows: the rows.
        sharpness: a, per squared Elo point, at least 0; more keeps closer to the target; 0 draws uniformly.
        target: b, the gap that is likeliest, in Elo points.
        per_query: how many, at least 1.
        least: gaps below it, in Elo points, are danger and not drawn from; −inf: none.
        rng: draws; None: seed 0.

    Raises:
        InputError: a negative sharpness, or fewer than 1 per query.

    Source: SimANS (Zhou et al. 2022) on ratings, ANMI 2.0 section 1.4, method 5.
    """
    if sharpness < 0 or per_query < 1:
        raise InputError(f"sharpness {sharpness}, {per_query} per query; expected at least 0 and at least 1")
    noise = (rng or np.random.default_rng(0)).gumbel(size=len(rows))
    keys = simans_log_weights(rows.gap, sharpness=sharpness, target=target) + noise
    keys = np.where(rows.gap >= least, keys, -np.inf)
    order = np.lexsort((-keys, rows.query))
    ordered = rows.query[order]
    place = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    drawn = np.zeros(len(rows), bool)
    drawn[order] = place < per_query
    return select(rows, {DANGER: rows.gap < least, NOT_DRAWN: ~drawn}, 1.0, tier_names(rows.gap), {"target": target})
