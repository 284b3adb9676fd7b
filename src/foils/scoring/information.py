"""ECI_sem: the information matrix as a sum that merges, its log-determinant, trace and spectrum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.runtime import memory, progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import spread_blocks, workers
from foils.scoring.gates import Float64s
from foils.scoring.measure import SUMMED, Geometry, information_matrix
from foils.scoring.triplets import Target


@dataclass(frozen=True)
class Moments:
    """What ECI_sem needs of a set of triplets.

    Attributes:
        matrix: (d, d) Σ w·r·rᵀ.
        count: N, the number of triplets.
    """

    matrix: Float64s
    count: int

    def information(self) -> Float64s:
        """Return I = (1/N) Σ w·r·rᵀ, (d, d) (ECI_sem eq. 10).

        Raises:
            InputError: there is no triplet.
        """
        if not self.count:
            raise InputError("no triplets; the information of nothing is not defined")
        return self.matrix / self.count


def log_det(information: Float64s, regularization: float = 1.0) -> float:
    """Return log det(Id + I/λ) (ECI_sem eq. 11 with λ = 1; eq. 26–27 have λ).

    Args:
        information: I, (d, d), positive semidefinite up to rounding.
        regularization: λ, above 0; the smaller, the more diversity of directions counts beside their weight.

    Raises:
        InputError: λ not above 0, or so small that the rounding of I outweighs it.
    """
    if not (np.isfinite(regularization) and regularization > 0):
        raise InputError(f"lambda {regularization}; expected a finite number above 0")
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Float64s = np.eye(len(information), dtype=np.float64) + information / regularization
    try:
        factor = np.asarray(np.linalg.cholesky(scaled), np.float64)
    except np.linalg.LinAlgError:
        factor = np.full(scaled.shape, np.nan)
    if not np.isfinite(factor).all():
        raise InputError(
            f"lambda {regularization} is below what the precision of the vectors resolves; choose a larger one"
        )
    return float(2 * np.log(np.diagonal(factor)).sum())


def effective_rank(information: Float64s) -> float:
    """Return exp of the entropy of the normalised eigenvalues, in [1, d]; 0 for a zero matrix (Roy & Vetterli 2007).

    Ours as a diagnostic of ECI_sem: the number of directions over which a source's weight is spread.
    """
    values = np.clip(np.linalg.eigvalsh(information), 0, None)
    if values.sum() <= 0:
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def target_moments(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    targets: Sequence[Target],
    *,
    block: int = SUMMED,
) -> dict[str, Moments]:
    """Return name -> moments of each target, over all triplets; a triplet that several targets hold is multiplied once.

    Memory is one matrix a target, beside those that `together` lets be worked on.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        targets: sources and hybrids.
        block: triplets multiplied at once.
    """
    size = max(SUMMED, -(-len(members) // 64))
    slices = [np.arange(start, min(start + size, len(members))) for start in range(0, len(members), size)]
    sums: dict[str, Moments] = {}
    for part in together(targets, geometry.dimension):
        total = np.zeros((len(part), geometry.dimension, geometry.dimension))
        for sums_of_block in block_sums(geometry, weights, members, slices, part, block=block):
            total += sums_of_block
        for target, matrix in zip(part, total, strict=True):
            sums[target.name] = Moments(matrix, int(np.count_nonzero(target.of(members))))
    return sums


def together(targets: Sequence[Target], dimension: int) -> Iterator[list[Target]]:
    """Yield targets in groups whose sums fit the memory budget, with those of the blocks that are worked on."""
    size = memory.rows_at_once(8.0 * dimension**2 * (3 * workers() + 2), most=max(1, len(targets)))
    for start in range(0, len(targets), size):
        yield list(targets[start : start + size])


def block_sums(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    blocks: Iterable[Rows],
    targets: Sequence[Target],
    *,
    block: int = SUMMED,
) -> Iterator[Float64s]:
    """Yield for each block of triplets each target's Σ w·r·rᵀ, (targets, d, d).

    The triplets of a block with the same members form an *atom*, which is multiplied once; a target is a sum of atoms.
    """

    def summed(rows: Rows) -> tuple[int, Float64s]:
        sums = np.zeros((len(targets), geometry.dimension, geometry.dimension))
        held = members[rows]
        for atom in np.unique(held):
            if holders := [index for index, target in enumerate(targets) if target.bits & int(atom)]:
                sums[holders] += information_matrix(geometry, weights, rows[held == atom], block=block)
        return len(rows), sums

    with progress.task("summing information", total=len(members), unit="triplets") as advance:
        for count, sums in spread_blocks(summed, blocks):
            yield sums
            advance(count)
