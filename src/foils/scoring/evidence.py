"""What is known of each source before labels: its recaptured positives, what bounds o, and what it costs to mine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.recapture import Recapture, Returned
from foils.scoring.belief import Evidence
from foils.scoring.gates import Float64s
from foils.scoring.odds import slope_of
from foils.scoring.pair_features import Surveyed
from foils.scoring.prepared import Measured
from foils.scoring.records import CONTROL, Marks, Target

COUNTED, UNCOUNTED, OUTSIDE = 0.05, 0.6, 1.0  # σ: what a rate may be wrong by beside chance
SLACK = 1.05
SURELY = 10.0  # recaptured positives of a source whose rate bounds o
COSTS = {"random": 1, "bm25": 2, "dense": 3, "trisampler": 3, "ance": 4, "cross-encoder": 5, "llm": 6}
COSTS |= {"sparse": 4, "multi-vector": 5}
UNKNOWN_COST = 4


@dataclass(frozen=True)
class KnownLogs:
    """log n_L/n_U of labelled positives.

    Attributes:
        pairs: (n,) query row · 2³² + document row of each, ascending.
        logs: (n,) theirs.
    """

    pairs: Rows
    logs: Float64s

    @classmethod
    def of(cls, measured: Measured, surveyed: Surveyed, logs: Float64s) -> KnownLogs:
        """Return those of the pairs that were surveyed."""
        pairs = _pairs(np.asarray(measured.records.queries, np.int64)[surveyed.labelled.record], surveyed.positives)
        order = np.argsort(pairs, kind="stable")
        return cls(pairs[order], logs[order])

    def slope(self, negatives: Negatives, collection: Collection, logs: Float64s) -> float:
        """Return b of a source whose negatives have these logs, by the positives that its table says it recaptures."""
        returned = Returned.of(negatives, collection)
        pairs = _pairs(returned.query_rows, returned.doc_rows)
        at = np.minimum(np.searchsorted(self.pairs, pairs), max(len(self.pairs) - 1, 0))
        known = np.flatnonzero(self.pairs[at] == pairs) if len(self.pairs) else np.zeros(0, np.int64)
        return slope_of(self.logs[at[known]], logs, returned.counts[known])


def _pairs(query_rows: Rows, doc_rows: Rows) -> Rows:
    return np.asarray((query_rows << 32) | doc_rows)


def rows_of(target: Target, measured: Measured, triplets: Rows) -> Marks:
    """Return which of the triplets, (k,), are the source's."""
    return target.of(measured.records.members[triplets])


def evidence_of(
    target: Target,
    sources: Mapping[str, Negatives],
    measured: Measured,
    triplets: Rows,
    logs: Float64s,
    known: KnownLogs,
) -> Evidence:
    """Return what is known of a source before labels: its recaptured positives, or the pairs alone."""
    own = triplets[rows_of(target, measured, triplets)]
    ratios = np.exp(logs[own])
    negatives = sources.get(target.name)
    if negatives is None:  # the control: random documents, of which any may be relevant
        return Evidence(ratios, math.nan, UNCOUNTED)
    outside = outside_of(measured, own)
    recapture = Recapture.of_table(negatives)
    if recapture is None or not recapture.kept:
        return Evidence(ratios, math.nan, OUTSIDE if outside > 0.5 else UNCOUNTED)
    rate, spread = rate_of(recapture)
    return Evidence(ratios, rate, spread, known.slope(negatives, measured.records.collection, logs[own]))


def rate_of(recapture: Recapture) -> tuple[float, float]:
    """Return r, recaptured positives for each negative, and σ, what its logarithm may be wrong by.

    Where fewer came back than what the count or the estimate may be wrong by (half a positive at the least), that many
    may have been missed: r is then that error, for each negative, and σ about 1. Three planted positives of which none
    comes back say little, two thousand say that nearly none would.
    """
    error = math.sqrt(recapture.returned) if recapture.standard_error is None else recapture.standard_error
    error = max(error, 0.5)
    counted = max(recapture.returned, error)
    return counted / recapture.kept, math.hypot(error / counted, COUNTED)


def outside_of(measured: Measured, triplets: Rows) -> float:
    """Return the share of triplets whose negative is no document of the collection, as a language model's."""
    return float((np.asarray(measured.records.texts.rows)[measured.records.document[triplets]] < 0).mean())


def bound_of(most: float, evidence: list[Evidence], sources: Mapping[str, Negatives], targets: list[Target]) -> float:
    """Return ō: no source can have more false negatives than it has negatives."""
    bounds = [most]
    for each, target in zip(evidence, targets, strict=True):
        recapture = Recapture.of_table(sources[target.name]) if target.name in sources else None
        if recapture is not None and recapture.returned >= SURELY:
            bounds.append(math.exp(2.6 * each.spread) / each.rate)
    return SLACK * min(bounds)


def costs_of(targets: list[Target], sources: Mapping[str, Negatives]) -> list[int]:
    """Return how costly each source is to mine, in order alone: random negatives cost least."""
    costs = []
    for target in targets:
        if target.name == CONTROL:
            costs.append(0)
            continue
        ways = {str(way) for way in sources[target.name].table["source"].unique().to_pylist()}
        costs.append(max((COSTS.get(way, UNKNOWN_COST) for way in ways), default=UNKNOWN_COST))
    return costs


def shared(membership: npt.ArrayLike) -> Float64s:
    """Return (S, S) n_st/√(n_s·n_t) of sources that have n_s and n_t negatives, n_st of them in common.

    Args:
        membership: (k, S) above 0 where the source has the negative; each source has one at least.
    """
    has = (np.asarray(membership) > 0).astype(np.float64)
    has /= np.sqrt(has.sum(axis=0))
    return np.asarray(has.T @ has)
