"""ECI_sem: the information matrix as a sum that merges, its log-determinant, its uncertainty and maximum.

A jackknife over blocks of records takes the bias of a score away, and a bootstrap gives its
interval. log det is concave, so the score of few records lies below the score of many, by more the
smaller λ is: by several standard errors at λ = 0.001 and a hundred records. Intervals are of the
score that many records like these would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from foils.data.collection import Rows
from foils.data.run import grouped
from foils.runtime import memory, progress
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.runtime.parallel import spread_blocks, workers
from foils.scoring.gates import Float64s
from foils.scoring.measure import SUMMED, Geometry, information_matrix
from foils.scoring.triplets import Target

CONFIDENCE = 0.95  # of the intervals
BLOCKS = 64  # of records, that are resampled
MOST_BIAS = 2.0  # standard errors of bias that the jackknife takes away well enough for the interval to cover


def log_det(information: Float64s, regularization: float = 1.0) -> float:
    """Return log det(Id + I/λ) (ECI_sem eq. 11 with λ = 1; eq. 26–27 have λ).

    Args:
        information: I, (d, d), positive semidefinite up to rounding.
        regularization: λ, above 0; the smaller, the more diversity of directions counts beside their weight.

    Raises:
        InputError: λ not above 0, or so small that the rounding of I outweighs it.
    """
    Option(above=0).check("lambda", regularization)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Float64s = np.eye(len(information), dtype=np.float64) + information / regularization
    try:
        factor = np.asarray(np.linalg.cholesky(scaled), np.float64)
    except np.linalg.LinAlgError:
        factor = np.full(scaled.shape, np.nan)
    if not np.isfinite(factor).all():
        raise InputError(f"lambda {regularization} is below the precision of the vectors; take a larger one")
    return float(2 * np.log(np.diagonal(factor)).sum())


def information_sums(
    geometry: Geometry, weights: Float64s, members: Rows, targets: Sequence[Target]
) -> dict[str, Float64s]:
    """Return name -> (d, d) Σ w·r·rᵀ over a target's triplets; a triplet of several is multiplied once.

    Divided by N, the number of these triplets, it is the information I (ECI_sem eq. 10).

    Memory is one matrix a target, beside those that `together` lets be worked on.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        targets: sources and hybrids.
    """
    size = max(SUMMED, -(-len(members) // 64))
    slices = [np.arange(start, min(start + size, len(members))) for start in range(0, len(members), size)]
    sums: dict[str, Float64s] = {}
    for part in together(targets, geometry.dimension):
        total = np.zeros((len(part), geometry.dimension, geometry.dimension))
        for sums_of_block in block_sums(geometry, weights, members, slices, part):
            total += sums_of_block
        sums |= {target.name: matrix for target, matrix in zip(part, total, strict=True)}
    return sums


def together(targets: Sequence[Target], dimension: int) -> Iterator[list[Target]]:
    """Yield targets in groups whose sums fit the memory budget, with those of the blocks in work."""
    size = memory.rows_at_once(8.0 * dimension**2 * (3 * workers() + 2), most=max(1, len(targets)))
    for start in range(0, len(targets), size):
        yield list(targets[start : start + size])


def block_sums(
    geometry: Geometry, weights: Float64s, members: Rows, blocks: Iterable[Rows], targets: Sequence[Target]
) -> Iterator[Float64s]:
    """Yield for each block of triplets each target's Σ w·r·rᵀ, (targets, d, d).

    The triplets of a block with the same members form an *atom*, which is multiplied once; a target
    is a sum of atoms.
    """

    def summed(rows: Rows) -> tuple[int, Float64s]:
        sums = np.zeros((len(targets), geometry.dimension, geometry.dimension))
        held = members[rows]
        for atom in np.unique(held):
            if holders := [index for index, target in enumerate(targets) if target.bits & int(atom)]:
                sums[holders] += information_matrix(geometry, weights, rows[held == atom])
        return len(rows), sums

    with progress.task("summing information", total=len(members), unit="triplets") as advance:
        for count, sums in spread_blocks(summed, blocks):
            yield sums
            advance(count)


def interval(replicates: Float64s) -> tuple[float, float]:
    """Return the percentile interval of the replicates that are finite; NaN where there is none."""
    finite = replicates[np.isfinite(replicates)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(finite, [tail, 1 - tail]) if len(finite) else (np.nan, np.nan)
    return float(low), float(high)


def assign_blocks(records: int, rng: np.random.Generator, *, blocks: int = BLOCKS) -> Rows:
    """Deal records at random into at most `blocks` blocks of equal size (± 1), (records,)."""
    return rng.permutation(np.arange(records) % max(1, min(blocks, records)))


def leave_out(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    sums: Mapping[str, Float64s],
    targets: Sequence[Target],
    block_of_record: Rows,
    *,
    regularization: float = 1.0,
) -> dict[str, Float64s]:
    """Return name -> (B,) the target's score without each block of records: a second pass over the triplets.

    θ₋ᵦ = log det(Id + (S − Sᵦ)/((N − Nᵦ)·λ)), exactly; no block's sums are kept. NaN where the
    block has none of the target's triplets, or all of them.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        sums: of the targets, over all triplets (`information_sums`).
        targets: sources and hybrids.
        block_of_record: (T,) the block of each record, 0-based.
        regularization: λ.
    """
    numbers = block_of_record[geometry.record]
    blocks = grouped(numbers)
    counts = {target.name: int(np.count_nonzero(target.of(members))) for target in targets}
    without = {target.name: np.full(int(block_of_record.max(initial=0)) + 1, np.nan) for target in targets}
    for part in together(targets, geometry.dimension):
        for rows, of_block in zip(blocks, block_sums(geometry, weights, members, blocks, part), strict=True):
            for target, block_sum in zip(part, of_block, strict=True):
                count = int(np.count_nonzero(target.of(members[rows])))
                rest = counts[target.name] - count
                if count and rest:
                    left = (sums[target.name] - block_sum) / rest
                    without[target.name][numbers[rows[0]]] = log_det(left, regularization)
    return without


def bootstrap(
    scores: Mapping[str, float], left_out: Mapping[str, Float64s], rng: np.random.Generator, *, replicates: int = 1000
) -> dict[str, Float64s]:
    """Return name -> (replicates,) ECI_sem without its bias, blocks of records resampled alike for all targets.

    With B blocks that hold a target's negatives, θ its score and θ₋ᵦ the score without block b, the
    pseudo-values pᵦ = Bθ − (B − 1)θ₋ᵦ average to the score without its bias of order 1/B, and
    spread as B independent scores do. A replicate is the mean of the drawn pᵦ; its spread about the
    mean is widened as Student's t asks with B − 1 degrees.

    Args:
        scores: target name -> θ.
        left_out: target name -> (blocks,) θ₋ᵦ, NaN where the block holds none.
        rng: what draws.
        replicates: how many; 0: none.

    Source: Quenouille 1956, Tukey 1958 (jackknife and pseudo-values).
    """
    blocks = len(next(iter(left_out.values()), ()))
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / max(1, blocks)), size=replicates).astype(np.float64)
    return {name: resampled(scores[name], without, drawn) for name, without in left_out.items()}


def widening(blocks: int) -> float:
    """Return the factor for deviations of B resampled blocks: √(B/(B − 1))·t/z, 1 for a single block.

    They fall short by √((B − 1)/B), and their normal tails, z at 97.5 %, by those of Student's t
    with B − 1 degrees of freedom.
    """
    if blocks < 2:
        return 1.0
    return float(np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 0.975) / ndtri(0.975))


def resampled(score: float, left_out: Float64s, drawn: Float64s) -> Float64s:
    """Return a target's replicates (replicates,); NaN where no interval would cover as often as it says.

    That is so with fewer than two blocks, and where the bias that the jackknife takes away is above
    `MOST_BIAS` standard errors: with a small λ and few records.

    Args:
        score: θ.
        left_out: (B,) θ₋ᵦ, NaN where the block has none of the target's triplets.
        drawn: (replicates, B) how often each block was drawn.
    """
    held = np.isfinite(left_out)
    count = int(held.sum())
    if count < 2:
        return np.full(len(drawn), np.nan)
    pseudo = count * score - (count - 1) * left_out[held]
    corrected, error = float(pseudo.mean()), float(pseudo.std(ddof=1) / np.sqrt(count))
    if not abs(score - corrected) <= MOST_BIAS * error:
        return np.full(len(drawn), np.nan)
    deviations = (pseudo - corrected) * widening(count) / count
    return np.maximum(corrected + (drawn[:, held] - 1) @ deviations, 0.0)
