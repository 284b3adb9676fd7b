"""How sure a decision could become, were there records without number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foils.data.collection import Rows
from foils.scoring.belief import Draws
from foils.scoring.gates import Float64s
from foils.scoring.worth import Worth, mistaken, of_sources

SAMPLES = 20  # resamplings of records that are taken for what more of them might show
THINNED = 4  # every so many draws of the belief


def attainable(
    worths: Sequence[Worth],
    draws: Draws,
    choices: Rows,
    factors: Float64s,
    rng: np.random.Generator,
    *,
    tolerance: float,
) -> float:
    """Return the largest probability of being the best that more records could well give to a choice.

    Each resampling of the blocks of records stands for what records without number might show; then only the belief on
    false negatives and the form of the benefit leave the best uncertain. It is 1 for a resampling in which the choice
    would not matter. Returned is the largest of 20 resamplings.

    Args:
        worths: of S sources.
        draws: of the belief.
        choices: places that are decided between; S: no mined negatives.
        factors: (2, D, S) that the form of the benefit may be wrong by, in what helps and in what harms.
        rng: of the resamplings.
        tolerance: share of the best benefit that a choice may lose without mattering.
    """
    shares, factors = draws.shares[::THINNED], factors[:, ::THINNED]
    blocks, highest = len(worths[0].counts), 0.0
    for weights in rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=SAMPLES):
        spread = np.broadcast_to(weights.astype(np.float64), (len(shares), blocks))
        plain, strengths = of_sources(worths, shares, spread)
        values = np.column_stack([mistaken(plain, strengths, factors), np.zeros(len(plain))])[:, choices]
        plain = np.column_stack([plain, np.zeros(len(plain))])[:, choices]
        regret = (plain.max(axis=1)[:, None] - plain).mean(axis=0)
        if (regret <= tolerance * max(float(plain.mean(axis=0).max()), 0.0)).sum() > 1:
            return 1.0
        best = np.bincount(values.argmax(axis=1), minlength=len(choices)) / len(values)
        highest = max(highest, float(best.max()))
    return highest
