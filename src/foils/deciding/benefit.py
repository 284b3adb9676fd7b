"""What a source's negatives are worth for a training, given how many of them are unlabelled answers.

    B_s = mean over records of Σ_j a_j · ℓ_j · (1 − (1 + κ)·π_j)

a_j is what negative j adds to the listwise loss of a query that has M in-batch negatives anyway.
With x_j = exp((s_j − s_p)/τ), S = Σ_j x_j and Z = 1 + M·E[x] over documents of the collection, the
list J adds log(1 + S/Z) to the loss log Z, and j its part x_j/S of that. So no mined negatives are
worth 0, and so is a record for which a source has none. ℓ_j is its learnability: 1 for a model that
tells positives from random documents already; ρ_j·η_j for one that starts from nothing, to which
all documents are alike, x_j = 1. Where documents recur less, R + (1 − R)·ρ_j¹⁶: what a word table
learns of a document by itself serves the share R of the queries to come whose relevant documents
are positives of training queries too; the rest profits from negatives that it tells from positives
already. π_j is the probability that it is an unlabelled answer, κ how much worse such a negative is
than a true one is good (ANMI 2.0, proof of Theorem 4, eq. A.1: κ = D/G).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from foils.data.collection import Rows
from foils.deciding.unlabelled import Pairs
from foils.scoring.gates import Float64s
from foils.scoring.measure import Measured, assign_blocks, widening

STARTS = ("encoder", "nothing")
HARM = 2.0  # κ; on the grid's choice cells 1.5 and 2 lose least, and 2 orders better (docs/deciding.md)
ALREADY = 16  # power of ρ in the learnability of negatives where documents do not recur
MOST = 0.985  # share of unlabelled answers, at most
LOGITS = np.linspace(-23.0, float(logit(MOST)), 64)  # of shares at which a source's constant is solved
NEWTON, CLOSE = 20, 1e-5
DRAWS = 400  # of the belief, and of the queries


class Odds:
    """How the unlabelled answers of a source spread over its negatives, at any share φ of them.

    logit π_j = c + log(n_L/n_U)_j, c such that the mean of π over the source's negatives is φ.

    Args:
        logs: (k,) log n_L/n_U of its negatives, k ≥ 1.
    """

    def __init__(self, logs: Float64s) -> None:
        self.logs = logs
        self._constants, self._means = np.empty((2, len(LOGITS)))
        constant = LOGITS[0] - logs.max() - np.log(np.exp(logs - logs.max()).mean())
        for at, target in enumerate(LOGITS):
            for _ in range(NEWTON):
                p = expit(constant + logs)
                mean = p.mean()
                step = (target - logit(mean)) * mean * (1 - mean) / (p * (1 - p)).mean()
                constant += np.clip(step, -2, 2)
                if abs(step) < CLOSE:
                    break
            self._constants[at], self._means[at] = constant, p @ logs / p.sum()

    def line(self, share: float, slope: float = 1.0) -> tuple[float, float]:
        """Return a and β with logit π_j = a + β·log n_L/n_U: at β = 1 the negatives' mean π is `share`.

        Other slopes turn the line about the mean of log n_L/n_U over the answers among them.
        """
        at = np.log(max(share, 1e-12) / (1 - min(share, MOST)))
        turned = 0.0 if slope == 1 else (1 - slope) * float(np.interp(at, LOGITS, self._means))
        return float(np.interp(at, LOGITS, self._constants)) + turned, slope


def added_losses(record: Rows, s_n: Float64s, s_p: Float64s, in_batch: Float64s, temperature: float) -> Float64s:
    """Return (k,) a_j = log(1 + S/Z)·x_j/S of each negative: its part in what its list adds to the loss.

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


@dataclass(frozen=True)
class Basis:
    """What a decision rests on.

    Attributes:
        measured: the triplets of the records that are looked at.
        expected: (m,) π of each triplet; without labels where `Candidate.benefit` is.
        in_batch: (T,) log(M·E[x]) of each record.
        temperature: τ of the training.
        recurrence: R in [0, 1], the share of the queries to come whose relevant documents are
            positives of training queries too; None: the training starts from nothing.
    """

    measured: Measured
    expected: Float64s
    in_batch: Float64s
    temperature: float
    recurrence: float | None

    def similarities(self, triplets: Rows) -> tuple[Float64s, Float64s]:
        """Return s_n (k,) of triplets and s_p (T,), as the trained model sees them: all alike from nothing."""
        if self.recurrence is None:
            return np.zeros(len(triplets)), np.zeros(len(self.measured.s_p))
        return self.measured.similarities.s_n[triplets], self.measured.s_p

    def added_losses(self, triplets: Rows) -> Float64s:
        """Return (k,) a_j of triplets, which are all negatives that a source has for their records."""
        s_n, s_p = self.similarities(triplets)
        return added_losses(self.measured.records.record[triplets], s_n, s_p, self.in_batch, self.temperature)

    def learnabilities(self, triplets: Rows) -> Float64s:
        """Return (k,) ℓ_j: ρ_j·η_j for a model that starts from nothing, else R + (1 − R)·ρ_j¹⁶."""
        rho = self.measured.similarities.rho[triplets]
        if self.recurrence is None:
            return np.asarray(rho * self.measured.similarities.eta[triplets])
        return np.asarray(self.recurrence + (1 - self.recurrence) * rho**ALREADY)


def in_batch_odds(measured: Measured, unlabelled: Pairs, count: int, temperature: float, starts: str) -> Float64s:
    """Return (T,) log(M·E[x]) of each record: M random documents of the collection against its positive.

    Args:
        measured: the scoring.
        unlabelled: pairs that stand for all of the collection.
        count: M, at least 0.
        temperature: τ.
        starts: encoder: the encoder that scores is what is trained; nothing: the model starts from nothing.
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


# What a benefit is worth in points of nDCG@10, fitted on the reliable choice cells of
# benchmarks/results/grid.json and tried on its test cells (`benchmarks/run.py decide ablation`):
# the gain over none is slope·sign(B)·|B|^power, its errors follow Student's t with 3 degrees of
# freedom: one of the slope for all sources, one of its own for each. The error of encoders was
# fitted at .30, and widened so that intervals hold nine differences of ten on the test cells.
@dataclass(frozen=True)
class Points:
    """How a benefit becomes points of nDCG@10.

    Attributes:
        slope, power: of the mean. `slope_error`: scale of the slope's error. `error`: of each source's.
    """

    slope: float
    power: float
    slope_error: float
    error: float

    def mean(self, benefit: npt.ArrayLike) -> Float64s:
        """Return the expected gain over in-batch negatives alone, in points."""
        benefits = np.asarray(benefit, np.float64)
        return np.asarray(self.slope * np.sign(benefits) * np.abs(benefits) ** self.power)

    def drawn(self, benefits: Float64s, slope_error: Float64s, error: Float64s) -> Float64s:
        """Return (…, D) gains of a source with the errors of the form.

        Args:
            benefits: (…, D) draws.
            slope_error: (D,) of the slope, the same for all sources.
            error: (D,) of this source.
        """
        return np.asarray(self.mean(benefits) * (1 + self.slope_error / self.slope * slope_error) + self.error * error)


FORM: Mapping[str, Points] = {
    "encoder": Points(slope=1.68, power=0.5, slope_error=0.21, error=0.34),
    "nothing": Points(slope=9.6, power=1.0, slope_error=0.0, error=0.60),
}


@dataclass(frozen=True)
class Resampling:
    """Blocks of records, how often each is drawn, and what the form of the points is wrong by.

    Attributes:
        block: (T,) of each record.
        counts: (B,) queries of each block.
        weights: (D, B) how often each is drawn.
        slope_error: (D,) what the slope of the points is wrong by.
    """

    block: Rows
    counts: Float64s
    weights: Float64s
    slope_error: Float64s

    @classmethod
    def of(cls, records: int, queries: int, rng: np.random.Generator) -> Resampling:
        """Deal records into blocks, and draw these; queries without a record belong to blocks evenly."""
        block = assign_blocks(records, rng)
        blocks = int(block.max()) + 1
        counts = np.bincount(block, minlength=blocks).astype(np.float64) * (queries / records)
        weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS).astype(np.float64)
        return cls(block, counts, weights, rng.standard_t(3, DRAWS))

    def means(self, sums: Float64s, *, of_draws: bool = False) -> Float64s:
        """Return means over queries in each draw, of sums by block: (G, D) of (G, B), (1, D) of draws' own.

        Their deviations are widened, since they are those of few blocks (`widening`).

        Args:
            sums: (G, B) the same for all draws.
            of_draws: sums are (D, B), a row for each draw.
        """
        totals = np.einsum("db,b->d", self.weights, self.counts)
        # einsum: a product of matrices sums in an order that the number of threads decides
        drawn = np.einsum("db,db->d" if of_draws else "gb,db->gd", sums, self.weights) / totals
        whole = sums.sum(axis=1) / self.counts.sum()
        whole = whole[None] if of_draws else whole[:, None]
        return np.asarray(whole + widening(len(self.counts)) * (drawn - whole))
