"""How many relevant documents have no label: an upper bound from how similar negatives and positives are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from foils.score.prepared import Measured
from foils.study.benefit import Recapture

TAILS = np.linspace(0.02, 0.5, 25)
CONFIDENCE = 0.95


def estimate_unlabelled(measured: Measured, recaptures: Mapping[str, Recapture | None]) -> float:
    """Return the smallest upper bound on o, unlabelled relevant documents per labelled one, over the sources.

    A source's negatives are a mixture of true and false ones. Were its false ones as similar to the query as labelled
    positives are, at least the share φ·P(s_p > t) of all would lie above any t, so that φ ≤ P(s_n > t)/P(s_p > t).
    The smallest such bound is taken over the t that 2–50 % of the positives exceed (Garg et al., NeurIPS 2021, choose
    the best bin alike), P(s_n > t) at the upper end of its 95 % Clopper–Pearson interval; then o ≤ φ·kept/returned.
    True negatives that look like positives raise it, so it is a bound and no estimate without bias.

    Args:
        measured: similarities of all triplets.
        recaptures: source → what its way of mining returns of the labelled positives.

    Returns:
        The bound, or NaN where no source says what it recaptures.
    """
    from scipy.stats import beta

    records = measured.records
    thresholds = np.quantile(measured.s_p, 1 - TAILS)
    bounds = []
    for bit, name in enumerate(records.names):
        recapture = recaptures.get(name)
        if recapture is None or not recapture.returned:
            continue
        s_n = np.sort(measured.similarities.s_n[(records.members >> bit) & 1 == 1])
        above = len(s_n) - np.searchsorted(s_n, thresholds, side="right")
        highest = np.where(above < len(s_n), beta.ppf(CONFIDENCE, above + 1, np.maximum(len(s_n) - above, 1)), 1.0)
        rate = min(1.0, float((highest / TAILS).min()))
        bounds.append(rate * recapture.kept / recapture.returned)
    return min(bounds) if bounds else math.nan
