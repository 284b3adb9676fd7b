"""ECI, the earlier form of the score: capacity times the balance of hardness and safety."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foils.data.collection import Rows
from foils.runtime.errors import InputError, check_names
from foils.scoring.gates import Float64s

MEANS = ("harmonic", "arithmetic")
MARGINS = {
    "triplet": "mean over negatives of MaxSim_p − s_n, which fits the published tables",
    "list": "mean over records of MaxSim_p − MaxSim_n (the hardest negative), which is the published text",
}
"""The two readings of Δ. MaxSim_p is the similarity of the query and its most similar labelled positive."""


@dataclass(frozen=True)
class ECI:
    """ECI of a source with what it is made of.

    Attributes:
        value: of the data set: S and Δ' averaged first, combined after (the published form).
        per_query: mean over records of each record's own ECI.
        signal: S_n, mean query–negative similarity.
        margin: Δ' by one of `MARGINS`, averaged and then clamped at 0.
        negatives: |N|, negatives per record.
    """

    value: float
    per_query: float
    signal: float
    margin: float
    negatives: float


def eci(signal: float, margin: float, negatives: float, *, mean: str = "harmonic") -> float:
    """Return ln(1 + |N|) · 2·S·Δ' / (S + Δ') with Δ' = max(0, Δ) (ECI eq. 1, 8–10).

    Args:
        signal: S, mean query–negative similarity; where it is not above 0 the harmonic mean counts as 0.
        margin: Δ, best positive less negative (`MARGINS`); below 0 it is unsafe and counts as 0.
        negatives: |N|, negatives per query.
        mean: "harmonic", or "arithmetic" for ln(1 + |N|)·(S + Δ')/2 (Table 5).

    Raises:
        UnknownNameError: another mean.
    """
    return float(_eci(np.array([signal]), np.array([margin]), np.array([negatives]), mean)[0])


def _eci(signal: Float64s, margin: Float64s, negatives: Float64s, mean: str = "harmonic") -> Float64s:
    check_names("mean", [mean], MEANS)
    safe = np.maximum(0.0, margin)
    if mean == "arithmetic":
        balance = (signal + safe) / 2
    else:
        usable = (signal > 0) & (safe > 0)
        balance = np.divide(2 * signal * safe, signal + safe, out=np.zeros(len(signal)), where=usable)
    return np.asarray(np.log1p(negatives) * balance)


def source_eci(
    record: Rows,
    s_n: Float64s,
    best_positive: Float64s,
    *,
    margin: str = "triplet",
    hardest: int | None = None,
    mean: str = "harmonic",
) -> ECI:
    """Return ECI of one source from its similarities.

    The text of the paper takes Δ from the hardest negative of a list, its tables do not: there a union has a larger
    margin than a part of it (.192 > .175), and the three hardest negatives a smaller one than all (.093 < .175), where
    the hardest is the same. The mean over negatives explains both, and S + Δ is .780 for the two sources whose S and Δ
    are printed; two of three unions at three negatives fit neither reading.

    Args:
        record: (k,) record of each negative, ascending.
        s_n: (k,) similarity of query and negative.
        best_positive: (T,) similarity of each record's query and its most similar labelled positive.
        margin: which Δ, a name of `MARGINS`.
        hardest: use only this many of the most similar negatives of each record (Table 4 has 3); None: all.
        mean: as in `eci`.

    Raises:
        InputError: `hardest` below 1, or another margin or mean.
    """
    check_names("margin", [margin], MARGINS)
    if hardest is not None:
        if hardest < 1:
            raise InputError(f"hardest {hardest}; expected at least 1 negative per record")
        order = np.lexsort((-s_n, record))
        order = order[np.arange(len(record)) - np.searchsorted(record, record) < hardest]
        record, s_n = record[order], s_n[order]
    records, start, counts = np.unique(record, return_index=True, return_counts=True)
    means = np.add.reduceat(s_n, start) / counts
    by_triplet = margin == "triplet"
    deltas = best_positive[records] - (means if by_triplet else np.maximum.reduceat(s_n, start))
    average = float(np.average(deltas, weights=counts if by_triplet else None))
    signal, delta, size = float(s_n.mean()), max(0.0, average), float(counts.mean())
    each = _eci(means, deltas, counts.astype(np.float64), mean)
    return ECI(eci(signal, delta, size, mean=mean), float(each.mean()), signal, delta, size)


def gradient_norm(signal: float, negatives: float, temperature: float) -> float:
    """Return the estimated gradient norm |N|·exp(S/τ) (ECI eq. 11), one of the heuristics ECI is compared with."""
    return float(negatives * np.exp(signal / temperature))


def score_variance(highest: float, signal: float) -> float:
    """Return the estimated score variance ½(S_max − S)² (ECI eq. 12)."""
    return 0.5 * (highest - signal) ** 2
