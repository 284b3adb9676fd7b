"""ECI_sem: the information matrix as a sum that merges, its log-determinant, trace and spectrum, and its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from foils import progress
from foils.data.collection import Rows
from foils.errors import InputError
from foils.parallel import spread_blocks
from foils.score.gates import Float64s
from foils.score.measure import SUMMED, Geometry, information_matrix
from foils.score.records import Target

BOOTSTRAP_BLOCKS = 64


@dataclass(frozen=True)
class Moments:
    """What ECI_sem needs of a set of triplets; two sets without a common triplet merge by adding.

    Attributes:
        matrix: (d, d) Σ w·r·rᵀ.
        count: N, the number of triplets.
    """

    matrix: Float64s
    count: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.matrix + other.matrix, self.count + other.count)

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
    check_regularization(regularization)
    return float(2 * np.log(np.diagonal(_factor(information, regularization))).sum())


def _factor(information: Float64s, regularization: float) -> Float64s:
    """Return the lower C with C Cᵀ = Id + I/λ; where rounding of I makes that indefinite, λ is an InputError."""
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
    return factor


def effective_rank(information: Float64s) -> float:
    """Return exp of the entropy of the normalised eigenvalues, in [1, d]; 0 for a zero matrix (Roy & Vetterli 2007).

    Ours as a diagnostic of ECI_sem: the number of directions over which a source's weight is spread.
    """
    values = np.clip(np.linalg.eigvalsh(information), 0, None)
    if values.sum() <= 0:
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def check_regularization(value: float) -> float:
    """Return λ; not above 0, or not finite, is an InputError."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"lambda {value}; expected a finite number above 0")
    return value


@dataclass(frozen=True)
class BlockedMoments:
    """Moments by block of records, of each set of sources that holds a triplet in common.

    The triplets with the same members form an *atom*. A source, or a hybrid, is a sum of atoms.

    Attributes:
        dimension: d.
        blocks: members -> (blocks, d(d+1)/2) lower triangles of each block's Σ w·r·rᵀ, in the vectors' precision.
        counts: members -> (blocks,) number of triplets.
    """

    dimension: int
    blocks: Mapping[int, npt.NDArray[np.floating]]
    counts: Mapping[int, Rows]

    def of(self, target: Target) -> Moments:
        """Return the moments of a source or hybrid, added up in float64."""
        chosen = self._atoms(target)
        total = np.sum([self.blocks[members].sum(axis=0, dtype=np.float64) for members in chosen], axis=0)
        count = int(np.sum([self.counts[members].sum() for members in chosen]))
        return Moments(unpacked(total, self.dimension), count)

    def blocks_of(self, target: Target) -> tuple[Float64s, Rows]:
        """Return the block sums (blocks, d(d+1)/2), in float64, and counts (blocks,) of a source or hybrid."""
        chosen = self._atoms(target)
        sums = np.zeros(self.blocks[chosen[0]].shape)
        for members in chosen:
            sums += self.blocks[members]
        return sums, np.sum([self.counts[members] for members in chosen], axis=0)

    def _atoms(self, target: Target) -> list[int]:
        chosen = [members for members in self.blocks if members & target.bits]
        if not chosen:
            raise InputError(f"{target.name} has no triplets")
        return chosen


def pack_lower(matrix: Float64s, *, out: npt.NDArray[np.floating]) -> None:
    """Write the lower triangle of a (d, d) matrix, row by row, into `out` (d(d+1)/2,)."""
    start = 0
    for row in range(len(matrix)):
        out[start : start + row + 1] = matrix[row, : row + 1]
        start += row + 1


def unpacked(packed: Float64s, dimension: int) -> Float64s:
    """Return the symmetric (d, d) matrix whose lower triangle, row by row, is packed (d(d+1)/2,)."""
    matrix = np.zeros((dimension, dimension))
    start = 0
    for row in range(dimension):
        matrix[row, : row + 1] = matrix[: row + 1, row] = packed[start : start + row + 1]
        start += row + 1
    return matrix


def blocked_moments(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    block_of_record: Rows,
    *,
    block: int = SUMMED,
) -> BlockedMoments:
    """Sum the information of all triplets, by their members and by block of records.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        block_of_record: (T,) the bootstrap block of each record, 0-based.
        block: triplets multiplied at once.
    """
    number = int(block_of_record.max()) + 1 if len(block_of_record) else 1
    packed = geometry.dimension * (geometry.dimension + 1) // 2
    atoms = [int(atom) for atom in np.unique(members)]
    kind = np.float64 if geometry.documents.chunks[0].dtype == np.float64 else np.float32
    blocks = {atom: np.zeros((number, packed), kind) for atom in atoms}
    counts = {atom: np.zeros(number, np.int64) for atom in atoms}

    def summed(cell: tuple[int, int, Rows]) -> tuple[int, int, int, npt.NDArray[np.floating]]:
        at, atom, rows = cell
        lower: npt.NDArray[np.floating] = np.empty(packed, kind)
        pack_lower(information_matrix(geometry, weights, rows, block=block), out=lower)
        return at, atom, len(rows), lower

    with progress.task("summing information", total=len(members), unit="triplets") as advance:
        for at, atom, count, lower in spread_blocks(summed, _cells(members, block_of_record[geometry.record], atoms)):
            blocks[atom][at], counts[atom][at] = lower, count
            advance(count)
    return BlockedMoments(geometry.dimension, blocks, counts)


def _cells(members: npt.NDArray[np.int64], numbers: Rows, atoms: list[int]) -> Iterator[tuple[int, int, Rows]]:
    """Yield (block, atom, triplet rows) for each pair that has triplets."""
    atom_index = np.searchsorted(atoms, members)
    codes = numbers * len(atoms) + atom_index
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0][: len(order)])
    for start, stop in zip(starts, np.r_[starts[1:], len(order)], strict=True):
        number, index = divmod(int(codes[order[start]]), len(atoms))
        yield number, atoms[index], order[start:stop]


def assign_blocks(records: int, rng: np.random.Generator, *, blocks: int = BOOTSTRAP_BLOCKS) -> Rows:
    """Deal records at random into at most `blocks` blocks of equal size (± 1), (records,)."""
    return rng.permutation(np.arange(records) % max(1, min(blocks, records)))


@dataclass(frozen=True)
class Bootstrap:
    """Replicates of each target's score under one and the same resampling of blocks of records.

    Attributes:
        scores: target name -> (replicates,) ECI_sem; NaN where none of the drawn blocks has a negative of the
            target; empty where there are fewer than two blocks.
    """

    scores: Mapping[str, Float64s] = field(default_factory=dict)

    def interval(self, name: str, confidence: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval of a target's score; NaN where nothing could be resampled."""
        return _percentiles(self.scores[name], confidence)

    def ratio_interval(self, name: str, other: str, confidence: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval of the ratio of two targets' scores, paired by replicate, where it exists."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _percentiles(self.scores[name] / self.scores[other], confidence)

    def order_probability(self, name: str, other: str) -> float:
        """Return the share of replicates with both in which `name` scores above `other`; NaN where there are none."""
        differences = self.scores[name] - self.scores[other]
        known = differences[np.isfinite(differences)]
        return float((known > 0).mean()) if len(known) else float("nan")


def bootstrap(
    moments: BlockedMoments,
    targets: list[Target],
    rng: np.random.Generator,
    *,
    regularization: float = 1.0,
    replicates: int = 1000,
) -> Bootstrap:
    """Resample blocks of records with replacement, the same for all targets, and score each replicate.

    A block stands for independent records; with B blocks the interval is that of B independent sums.

    Args:
        moments: by block.
        targets: sources and hybrids.
        rng: what draws.
        regularization: λ.
        replicates: how many.
    """
    blocks = len(next(iter(moments.counts.values())))
    if blocks < 2 or replicates < 1:
        return Bootstrap({target.name: np.zeros(0) for target in targets})
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=replicates).astype(np.float64)
    scores = {}
    with progress.task("bootstrap", total=len(targets), unit="sources") as advance:
        for target in targets:
            sums, counts = moments.blocks_of(target)
            scores[target.name] = resampled_scores(sums, counts, drawn, regularization=regularization)
            advance(1)
    return Bootstrap(scores)


def resampled_scores(
    sums: Float64s, counts: Rows, drawn: Float64s, *, regularization: float = 1.0, tolerance: float = 0.01
) -> Float64s:
    """Return log det(Id + M_r/λ) of every resampling r, M_r = Σ_b drawn_rb·S_b / Σ_b drawn_rb·n_b, (replicates,).

    M_r is near the whole M, so the logarithm is expanded to second order about it: with C Cᵀ = Id + M/λ and
    E_r = C⁻¹(M_r − M)C⁻ᵀ/λ, log det(Id + M_r/λ) = log det(Id + M/λ) + tr E_r − ½ tr E_r² + R_r, and
    |R_r| ≤ e³ / 3(1 − e)³ with e = ‖E_r‖_F. Where that bound is above `tolerance` standard deviations of the replicates
    (a small λ), every replicate is factorised instead.

    Args:
        sums: (B, d(d+1)/2) lower triangles of each block's Σ w·r·rᵀ.
        counts: (B,) number of triplets of each block.
        drawn: (replicates, B) how often each block was drawn.
        regularization: λ.
        tolerance: 0 factorises always.

    Returns:
        (replicates,) scores, NaN where no drawn block has a triplet.
    """
    sizes = drawn @ counts
    if not sizes.all():
        scores = np.full(len(drawn), np.nan)
        some = sizes > 0
        if some.any():
            options = {"regularization": regularization, "tolerance": tolerance}
            scores[some] = resampled_scores(sums, counts, drawn[some], **options)
        return scores
    dimension = int((np.sqrt(8 * sums.shape[1] + 1) - 1) / 2)

    def full(packed: Float64s) -> Float64s:
        return unpacked(packed / regularization, dimension)

    share = drawn / sizes[:, None]
    factor = _factor(unpacked(sums.sum(axis=0) / counts.sum(), dimension), regularization)
    inverse = solve_triangular(factor, np.eye(dimension), lower=True)
    whitened = np.stack(list(spread_blocks(lambda block: (inverse @ full(block) @ inverse.T).ravel(), sums)))
    traces, products = whitened[:, :: dimension + 1].sum(axis=1), whitened @ whitened.T
    moved = share - 1 / counts.sum()
    squares = np.einsum("rb,bc,rc->r", moved, products, moved, optimize=True)
    expanded = 2 * np.log(np.diagonal(factor)).sum() + moved @ traces - squares / 2
    norm = np.sqrt(np.maximum(squares, 0).max())
    if norm < 1 and norm**3 / (3 * (1 - norm) ** 3) <= tolerance * expanded.std():
        return np.asarray(expanded, np.float64)
    return np.array(list(spread_blocks(lambda row: log_det(unpacked(row @ sums, dimension), regularization), share)))


def _percentiles(values: Float64s, confidence: float) -> tuple[float, float]:
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
