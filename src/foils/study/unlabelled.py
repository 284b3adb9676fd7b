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
    """Return an upper bound on o, unlabelled relevant documents per labelled one, from the densest source.

    A source's negatives are a mixture of true and false ones. In the source that returns the most labelled positives
    for each negative, false ones are at least as similar to the query as labelled positives are: it took them because
    they are. So at least the share φ·P(s_p > t) of its negatives lies above any t, and φ ≤ P(s_n > t)/P(s_p > t). The
    smallest such bound is taken over the t that 2–50 % of the positives exceed (Garg et al., NeurIPS 2021, choose the
    best bin alike), P(s_n > t) at the upper end of its 95 % Clopper–Pearson interval; then o ≤ φ·kept/returned.
    True negatives that look like positives raise it, so it is a bound and no estimate without bias.

    Args:
        measured: similarities of all triplets.
        recaptures: source → what its way of mining returns of the labelled positives.

    Returns:
        The bound, or NaN where no source says what it recaptures, or none recaptures anything.
    """
    from scipy.stats import beta

    records = measured.records
    known = {name: found for name in records.names if (found := recaptures.get(name)) is not None and found.returned}
    if not known:
        return math.nan
    densest = max(known, key=lambda name: known[name].returned / known[name].kept)
    member = (records.members >> records.names.index(densest)) & 1 == 1
    s_n = np.sort(measured.similarities.s_n[member])
    above = len(s_n) - np.searchsorted(s_n, np.quantile(measured.s_p, 1 - TAILS), side="right")
    highest = np.where(above < len(s_n), beta.ppf(CONFIDENCE, above + 1, np.maximum(len(s_n) - above, 1)), 1.0)
    rate = min(1.0, float((highest / TAILS).min()))
    return rate * known[densest].kept / known[densest].returned
