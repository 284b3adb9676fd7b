"""What a source's negatives are worth for a training, given how many of them are false.

    B_s = mean over records of Σ_j a_j · ℓ_j · (1 − (1 + κ)·π_j)

a_j is what negative j adds to the listwise loss of a query that has M in-batch negatives anyway. With x_j = exp((s_j −
s_p)/τ), S = Σ_j x_j and Z = 1 + M·E[x] over documents of the collection, the list J adds log(1 + S/Z) to the loss log
Z, and j its part x_j/S of that. So no mined negatives are worth 0. ℓ_j is its learnability: 1 for a model that tells
positives from random documents already; ρ_j·η_j for one that starts from nothing, to which all documents are alike, x_j
= 1. Where documents recur less, R + (1 − R)·ρ_j¹⁶: what a model learns of a document by itself serves the share R of
the queries to come whose relevant documents are positives of training queries too; the rest profits from negatives that
it tells from positives already. π_j is the probability that it is false, κ how much worse a false negative is than a
true one is good (ANMI 2.0, proof of Theorem 4, eq. A.1: κ = D/G).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.scoring.gates import Float64s
from foils.scoring.odds import MOST, Odds
from foils.scoring.pair_features import PairFeatures
from foils.scoring.prepared import Measured

SHARES = np.linspace(0.0, MOST, 34)
STARTS = ("encoder", "nothing")
HARM = 1.5  # κ
ALREADY = 16  # power of ρ in the learnability of negatives where documents do not recur
SURE = 0.95
EASY = 1.5  # times the strength of random negatives below which a source is easy


@dataclass(frozen=True)
class Worth:
    """Sums of a source's benefit over blocks of records, for shares of false negatives from 0 to .985.

    Attributes:
        sums: (blocks, 34) sum over the block's records of Σ_j a_j·ℓ_j·(1 − (1 + κ)·π_j) at each share.
        counts: (blocks,) records that the benefit is a mean over: those with a negative of the source, or as given.
        strength: mean over records of Σ_j a_j·ℓ_j, the benefit if none were false.
        learnability: mean of ℓ_j over negatives, weighted by a_j.
    """

    sums: Float64s
    counts: Float64s
    strength: float
    learnability: float

    @classmethod
    def of(
        cls,
        parts: Float64s,
        learnabilities: Float64s,
        odds: Odds,
        record: Rows,
        block_of: Rows,
        counted: Rows | None = None,
    ) -> Worth:
        """Sum up one source.

        Args:
            parts: (k,) a_j of its negatives.
            learnabilities: (k,) ℓ_j.
            odds: of its negatives.
            record: (k,) their records, ascending.
            block_of: (T,) the block of each record.
            counted: records that the benefit is a mean over; None: those that have a negative.
        """
        strengths = parts * learnabilities
        blocks = int(block_of.max(initial=0)) + 1
        block = block_of[record]
        sums = np.empty((blocks, len(SHARES)))
        for at, share in enumerate(SHARES):
            sums[:, at] = np.bincount(block, strengths * (1 - (1 + HARM) * odds.probabilities(share)), blocks)
        of_mean = np.unique(record) if counted is None else counted
        counts = np.bincount(block_of[of_mean], minlength=blocks).astype(np.float64)
        total = max(float(parts.sum()), 1e-300)
        return cls(sums, counts, float(strengths.sum() / counts.sum()), float(strengths.sum() / total))

    def benefit(self, shares: npt.ArrayLike, weights: Float64s | None = None) -> Float64s:
        """Return (D,) the benefit at each share, the blocks of each weighted by a row of `weights` (D, blocks)."""
        shares = np.asarray(shares, np.float64)
        weights = np.ones((len(shares), len(self.counts))) if weights is None else weights
        index = np.minimum((shares / SHARES[1]).astype(np.int64), len(SHARES) - 2)
        part = shares / SHARES[1] - index
        sums = self.sums.T[index] * (1 - part)[:, None] + self.sums.T[index + 1] * part[:, None]
        records = np.maximum(weights @ self.counts, 1e-300)
        return np.asarray((weights * sums).sum(axis=1) / records)


def of_sources(worths: Sequence[Worth], shares: Float64s, weights: Float64s) -> tuple[Float64s, Float64s]:
    """Return (D, S) the sources' benefits, and what they would be if no negative were false.

    Args:
        worths: of S sources.
        shares: (D, S) of their false negatives.
        weights: (D, blocks) of the blocks of records.
    """
    none = np.zeros(len(shares))
    benefits = np.column_stack([worth.benefit(shares[:, at], weights) for at, worth in enumerate(worths)])
    return benefits, np.column_stack([worth.benefit(none, weights) for worth in worths])


def mistaken(benefits: Float64s, strengths: Float64s, factors: Float64s) -> Float64s:
    """Return benefits, (D, S), if what helps and what harms were each as much larger as the factors, (2, D, S), say."""
    return np.asarray(strengths * factors[0] - (strengths - benefits) * factors[1])


def added_losses(record: Rows, s_n: Float64s, s_p: Float64s, in_batch: Float64s, temperature: float) -> Float64s:
    """Return (k,) a_j = log(1 + S/Z)·x_j/S of each negative: its part in what its record's list adds to the loss.

    Args:
        record: (k,) record of each negative, ascending.
        s_n: (k,) similarity of query and negative.
        s_p: (T,) similarity of query and positive.
        in_batch: (T,) log(M·E[x]) of each record; −∞: the batch has no other negatives.
        temperature: τ.
    """
    records, start = np.unique(record, return_index=True)
    counts = np.diff(np.r_[start, len(record)])
    logits = (s_n - np.repeat(s_p[records], counts)) / temperature
    top = np.maximum.reduceat(logits, start)
    spread = np.exp(logits - np.repeat(top, counts))
    total = np.add.reduceat(spread, start)
    added = np.logaddexp(0.0, top + np.log(total) - np.logaddexp(0.0, in_batch[records]))
    return np.asarray(spread * np.repeat(added / total, counts))


def strengths_of(
    measured: Measured, triplets: Rows, in_batch: Float64s, temperature: float, starts: str, recurrence: float | None
) -> tuple[Float64s, Float64s]:
    """Return a_j and ℓ_j of one source's triplets, each (k,).

    Args:
        measured: the scoring.
        triplets: (k,) the source's, ascending.
        in_batch: (T,) log(M·E[x]) of each record.
        temperature: τ.
        starts: encoder: the scored encoder is what is trained; nothing: the model starts from nothing.
        recurrence: R, as in `learnabilities`.
    """
    record = measured.records.record[triplets]
    learnability = learnabilities(measured, triplets, starts, recurrence)
    if starts == "nothing":
        alike = np.zeros(len(measured.s_p))
        return added_losses(record, np.zeros(len(triplets)), alike, in_batch, temperature), learnability
    s_n = measured.similarities.s_n[triplets]
    return added_losses(record, s_n, measured.s_p, in_batch, temperature), learnability


def learnabilities(measured: Measured, triplets: Rows, starts: str, recurrence: float | None) -> Float64s:
    """Return (k,) ℓ_j: ρ_j·η_j for a model that starts from nothing, else R + (1 − R)·ρ_j¹⁶.

    Args:
        measured: the scoring.
        triplets: (k,) to look at.
        starts: as in `strengths_of`.
        recurrence: R in [0, 1], the share of the queries to come whose relevant documents are positives of training
            queries too; None stands for 1.
    """
    if starts == "nothing":
        return np.asarray((measured.gates.rho * measured.gates.eta)[triplets])
    if recurrence is None or recurrence == 1:
        return np.ones(len(triplets))
    return np.asarray(recurrence + (1 - recurrence) * measured.gates.rho[triplets] ** ALREADY)


def in_batch_odds(
    measured: Measured, unlabelled: PairFeatures, count: int, temperature: float, starts: str
) -> Float64s:
    """Return (T,) log(M·E[x]) of each record: M random documents of the collection against its positive.

    Args:
        measured: the scoring.
        unlabelled: pairs that stand for all of the collection.
        count: M, at least 0.
        temperature: τ.
        starts: as in `strengths_of`.
    """
    records = len(measured.s_p)
    if not count:
        return np.full(records, -np.inf)
    if starts == "nothing":
        return np.full(records, np.log(count))
    logits = (unlabelled.similarity - measured.s_p[unlabelled.record]) / temperature
    top = np.full(records, -np.inf)
    np.maximum.at(top, unlabelled.record, logits)
    top = np.where(np.isfinite(top), top, 0.0)
    spread = np.bincount(unlabelled.record, unlabelled.count * np.exp(logits - top[unlabelled.record]), records)
    size = np.bincount(unlabelled.record, unlabelled.count, records)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(count * spread / size) + top
    return np.where(size > 0, odds, -np.inf)


@dataclass(frozen=True)
class SourceWorth:
    """What is believed of one source.

    Attributes:
        false_share: φ, the mean of the belief. `false_share_low`, `false_share_high`: its interval; low is 0 as long
            as no label found a false negative.
        benefit: B, the mean of the belief. `benefit_low`, `benefit_high`: its interval.
        strength: what the benefit would be if no negative were false.
        learnability: mean ℓ of its negatives.
        best_with_probability: that no other source has a larger benefit.
        above_none: probability that its benefit is above 0, which in-batch negatives alone have.
        verdict: good, too easy, too many false, no better than none, or cannot tell.
        false_share_by_labels: φ by labels that people gave to pairs drawn with known probabilities, whatever is
            believed; NaN without such labels. `false_share_by_labels_low`, `false_share_by_labels_high`: its interval.
        contradicted: whether it and the belief lie outside each other's intervals, all sources taken together.
        false_share_skewed: φ, were relevant documents most like their query labelled twice as often as those least
            like it.
        outside: share of its negatives that are no documents of the collection.
    """

    name: str
    false_share: float
    false_share_low: float
    false_share_high: float
    benefit: float
    benefit_low: float
    benefit_high: float
    strength: float
    learnability: float
    best_with_probability: float
    above_none: float
    verdict: str
    false_share_by_labels: float = math.nan
    false_share_by_labels_low: float = math.nan
    false_share_by_labels_high: float = math.nan
    contradicted: bool = False
    false_share_skewed: float = math.nan
    outside: float = 0.0


def verdict(worth: SourceWorth, weakest: float, tolerated: float) -> str:
    """Return what to think of a source, in a word or two.

    Args:
        worth: of the source.
        weakest: strength of random negatives; NaN: not known.
        tolerated: benefit that does not matter.
    """
    if -tolerated <= worth.benefit_low and worth.benefit_high <= tolerated:
        return "no better than none"
    if worth.above_none <= 1 - SURE:
        return "too many false"
    if worth.strength < EASY * weakest:
        return "too easy"
    return "good" if worth.above_none >= SURE else "cannot tell"
