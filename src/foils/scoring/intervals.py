"""How certain a score is: a jackknife over blocks of records takes its bias away, a bootstrap gives its interval.

log det is concave, so the score of few records lies below the score of many, by more the smaller λ is: by several
standard errors at λ = 0.001 and a hundred records. Intervals are of the score that many records like these would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from foils.data.collection import Rows
from foils.scoring.gates import Float64s
from foils.scoring.information import Moments, block_sums, log_det, together
from foils.scoring.measure import Geometry
from foils.scoring.triplets import Target

BLOCKS = 64
MOST_BIAS = 2.0  # standard errors of bias that the jackknife takes away well enough for the interval to cover


@dataclass(frozen=True)
class Bootstrap:
    """Replicates of each target's score under one and the same resampling of blocks of records.

    Attributes:
        scores: target name -> (replicates,) ECI_sem without its bias; NaN where fewer than two blocks have a negative
            of the target; empty where nothing was resampled.
        bias: target name -> the jackknife's estimate of score less the score of many records; NaN likewise.
        error: target name -> standard error.
    """

    scores: Mapping[str, Float64s] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, float] = field(default_factory=dict)

    def interval(self, name: str, confidence: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval of a target's score; NaN where nothing could be resampled."""
        return _percentiles(self.scores.get(name, np.zeros(0)), confidence)

    def covers(self, name: str) -> bool:
        """Return whether the interval covers as often as it says: the bias is at most `MOST_BIAS` standard errors."""
        return bool(abs(self.bias.get(name, np.nan)) <= MOST_BIAS * self.error.get(name, np.nan))

    def ratio_interval(self, name: str, other: str, confidence: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval of the ratio of two targets' scores, paired by replicate, where it exists."""
        empty = np.zeros(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _percentiles(self.scores.get(name, empty) / self.scores.get(other, empty), confidence)


def assign_blocks(records: int, rng: np.random.Generator, *, blocks: int = BLOCKS) -> Rows:
    """Deal records at random into at most `blocks` blocks of equal size (± 1), (records,)."""
    return rng.permutation(np.arange(records) % max(1, min(blocks, records)))


def leave_out(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    moments: Mapping[str, Moments],
    targets: Sequence[Target],
    block_of_record: Rows,
    *,
    regularization: float = 1.0,
) -> dict[str, Float64s]:
    """Return each target's score without each block of records, name -> (B,), by a second pass over the triplets.

    θ₋ᵦ = log det(Id + (S − Sᵦ)/((N − Nᵦ)·λ)), exactly; no block's sums are kept. NaN where the block has none of the
    target's triplets, or all of them.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        moments: of the targets, over all triplets.
        targets: sources and hybrids.
        block_of_record: (T,) the block of each record, 0-based.
        regularization: λ.
    """
    numbers = block_of_record[geometry.record]
    order = np.argsort(numbers, kind="stable")
    blocks = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    without = {target.name: np.full(int(block_of_record.max(initial=0)) + 1, np.nan) for target in targets}
    for part in together(targets, geometry.dimension):
        for rows, sums in zip(blocks, block_sums(geometry, weights, members, blocks, part), strict=True):
            for target, block_sum in zip(part, sums, strict=True):
                count = int(np.count_nonzero(target.of(members[rows])))
                rest = moments[target.name].count - count
                if count and rest:
                    left = (moments[target.name].matrix - block_sum) / rest
                    without[target.name][numbers[rows[0]]] = log_det(left, regularization)
    return without


def bootstrap(
    scores: Mapping[str, float], left_out: Mapping[str, Float64s], rng: np.random.Generator, *, replicates: int = 1000
) -> Bootstrap:
    """Resample blocks of records with replacement, the same for all targets.

    With B blocks that hold a target's negatives, θ its score and θ₋ᵦ the score without block b, the pseudo-values
    pᵦ = Bθ − (B − 1)θ₋ᵦ average to the score without its bias of order 1/B, and spread as B independent scores do. A
    replicate is the mean of the drawn pᵦ; its spread about the mean is widened as Student's t asks with B − 1 degrees.

    Args:
        scores: target name -> θ.
        left_out: target name -> (blocks,) θ₋ᵦ, NaN where the block holds none.
        rng: what draws.
        replicates: how many; 0: none.

    Source: Quenouille 1956, Tukey 1958 (jackknife and pseudo-values).
    """
    blocks = len(next(iter(left_out.values()), ()))
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / max(1, blocks)), size=replicates).astype(np.float64)
    by_name = {name: resampled(scores[name], of, drawn) for name, of in left_out.items()}
    return Bootstrap(
        {name: values for name, (values, _, _) in by_name.items()},
        {name: bias for name, (_, bias, _) in by_name.items()},
        {name: error for name, (_, _, error) in by_name.items()},
    )


def resampled(score: float, left_out: Float64s, drawn: Float64s) -> tuple[Float64s, float, float]:
    """Return a target's replicates (replicates,), its bias and its standard error; NaN with fewer than two blocks.

    Args:
        score: θ.
        left_out: (B,) θ₋ᵦ, NaN where the block has none of the target's triplets.
        drawn: (replicates, B) how often each block was drawn.
    """
    held = np.isfinite(left_out)
    count = int(held.sum())
    if count < 2:
        return np.full(len(drawn), np.nan), float("nan"), float("nan")
    pseudo = count * score - (count - 1) * left_out[held]
    corrected, error = float(pseudo.mean()), float(pseudo.std(ddof=1) / np.sqrt(count))
    widened = np.sqrt(count / (count - 1)) * stdtrit(count - 1, 0.975) / ndtri(0.975)
    deviations = (pseudo - corrected) * widened / count
    return np.maximum(corrected + (drawn[:, held] - 1) @ deviations, 0.0), score - corrected, error


def _percentiles(values: Float64s, confidence: float) -> tuple[float, float]:
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
