"""How many relevant documents have no label: from how much a source's negatives resemble labelled positives."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from foils.data.collection import Rows
from foils.data.recapture import Recapture
from foils.scoring.gates import Float64s
from foils.scoring.measure import pair_similarities
from foils.scoring.prepared import Measured

TAILS = np.linspace(0.02, 0.5, 25)
CONFIDENCE = 0.95
NEAREST = 3
RECORDS = 5_000


def estimate_unlabelled(measured: Measured, recaptures: Mapping[str, Recapture | None]) -> float:
    """Return an estimate of o, unlabelled relevant documents for each labelled one.

    It looks at the source that returns the most labelled positives for each negative. Its negatives are a mixture of
    true and false ones, φ of them false; the false ones are taken to resemble positives as much as those labelled
    positives do that would be in the source's lists. Then the share φ·P(x_p > t) at least lies above any t, x a
    measure of resemblance, and φ ≤ P(x_n > t)/P(x_p > t). The smallest of these bounds over the t that 2–50 % of the
    positives exceed (after Garg et al., NeurIPS 2021), P(x_n > t) at the upper end of its 95 % Clopper–Pearson
    interval, is the estimate of φ, and o = φ·kept/returned.

    Where most queries have several labelled positives, x is the mean cosine to the three nearest of them, one left
    out for a negative as it is for a positive (itself); else the cosine to the query, which tells less: there the
    estimate is the higher, the worse the encoder. docs/study.md says how near it came where the truth is known.

    Args:
        measured: similarities of all triplets.
        recaptures: source → what its way of mining returns of the labelled positives.

    Returns:
        The estimate, or NaN where no source says what it recaptures, or none recaptures anything.
    """
    from scipy.stats import beta

    records = measured.records
    known = {name: own for name in records.names if (own := recaptures.get(name)) is not None and own.returned}
    if not known:
        return math.nan
    densest = max(known, key=lambda name: known[name].returned / known[name].kept)
    positives, negatives = _resemblance(measured, np.flatnonzero((records.members >> records.names.index(densest)) & 1))
    if not len(positives) or not len(negatives):
        return math.nan
    above = len(negatives) - np.searchsorted(np.sort(negatives), np.quantile(positives, 1 - TAILS), side="right")
    highest = np.where(
        above < len(negatives), beta.ppf(CONFIDENCE, above + 1, np.maximum(len(negatives) - above, 1)), 1.0
    )
    rate = min(1.0, float((highest / TAILS).min()))
    return rate * known[densest].kept / known[densest].returned


def _resemblance(measured: Measured, triplets: Rows) -> tuple[Float64s, Float64s]:
    """X of the labelled positives that would be in a source's lists, and of its negatives."""
    records, s_n = measured.records, measured.similarities.s_n
    lowest = np.full(len(measured.s_p), np.inf)
    np.minimum.at(lowest, records.record[triplets], s_n[triplets])
    geometry = measured.geometry
    to_query = pair_similarities(geometry.queries, records.positive_record, geometry.documents, records.all_positives)
    inside = to_query >= lowest[records.positive_record]
    counts = np.bincount(records.positive_record, minlength=len(measured.s_p))
    if (counts > 1).mean() <= 0.5:
        return to_query[inside], s_n[triplets]
    return _nearness(measured, triplets, inside)


def _nearness(
    measured: Measured, triplets: Rows, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[Float64s, Float64s]:
    """Mean cosine to the nearest labelled positives but one, of records that have several; 5,000 records at most."""
    records, documents = measured.records, measured.geometry.documents
    rng = np.random.default_rng(13)
    order = np.argsort(records.positive_record, kind="stable")
    edges = np.searchsorted(records.positive_record[order], np.arange(len(measured.s_p) + 1))
    begin = np.searchsorted(records.record[triplets], np.arange(len(measured.s_p) + 1))
    several = np.flatnonzero((np.diff(edges) > 1) & (np.diff(begin) > 0))
    positives, negatives = [], []
    for record in np.sort(rng.permutation(several)[:RECORDS]):
        own = order[edges[record] : edges[record + 1]]
        vectors = documents.take(records.all_positives[own])
        nearest = min(NEAREST, len(own) - 1)
        among = vectors @ vectors.T
        np.fill_diagonal(among, -np.inf)
        positives.append(np.sort(among, axis=1)[inside[own], -nearest:].mean(axis=1))
        others = vectors[rng.permutation(len(own))[1:]]
        to_others = documents.take(records.document[triplets[begin[record] : begin[record + 1]]]) @ others.T
        negatives.append(np.sort(to_others, axis=1)[:, -nearest:].mean(axis=1))
    return np.concatenate(positives).astype(np.float64), np.concatenate(negatives).astype(np.float64)
