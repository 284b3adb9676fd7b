"""A better source from several: for each query the K negatives that together tell most, by greedy log det."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Rows
from foils.data.negatives import Negatives
from foils.data.run import ranks_within
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import spread_blocks
from foils.scoring.gates import Float64s
from foils.scoring.measure import Geometry, Stretch, padded
from foils.scoring.triplets import Records, triplets_of_rows

NOT_CHOSEN = "not chosen by composition"


@dataclass(frozen=True)
class Composition:
    """Which triplets were chosen.

    Attributes:
        order: (m,) the step, from 0, at which the triplet was chosen for its query, −1 where it was not.
        gain: (m,) by how much it raised the query's objective, NaN where it was not chosen.
    """

    order: Rows
    gain: Float64s


def compose(
    geometry: Geometry, weights: Float64s, *, count: int, regularization: float = 0.1, block: int = 8_192
) -> Composition:
    """Choose for each record the negatives S that maximise F(S) = log det(Id + Σ_{i∈S} w_i·r_i·r_iᵀ/(Kλ)), |S| ≤ K.

    F is ECI_sem's objective of one query (ECI_sem eq. 26–27), monotone and submodular, so that the greedy choice
    reaches at least 1 − 1/e of the best (Nemhauser et al. 1978). By the matrix-determinant lemma a candidate's gain is
    log(1 + w·rᵀA⁻¹r/(Kλ)); all gains of a query follow from the Gram matrix of its residuals by an incremental
    Cholesky factor (Chen et al. 2018), O(K·n) a step for n candidates, with no determinant at all.

    Args:
        geometry: records, candidates and their vectors.
        weights: (m,) non-negative weight of each candidate: the gates, a rating's weight, or ones.
        count: K, at least 1.
        regularization: λ above 0; the smaller, the more a direction that is taken already counts against a candidate.
        block: candidates at once.

    Returns:
        The choice; ties go to the candidate that comes first. A candidate without gain is not chosen.

    Raises:
        InputError: K below 1, λ not above 0, or weights that are negative or not finite.
    """
    if count < 1 or not regularization > 0:
        raise InputError(f"{count} negatives per query, λ {regularization}; expected at least 1, and above 0")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError("weights must be finite and not negative; leave a rejected negative out")
    order, gain = np.full(len(weights), -1, np.int64), np.full(len(weights), np.nan)

    def chosen_of(stretch: Stretch) -> tuple[int, Rows, Rows, Float64s]:
        first, last, triplets, where = stretch
        residuals = np.repeat(geometry.documents.take(geometry.positive[first:last]), where.shape[1], axis=0)
        residuals -= geometry.documents.take(geometry.document[triplets])
        squared = np.einsum("nd,nd->n", residuals, residuals)
        weight = np.where(where.ravel(), weights[triplets], 0) / (count * regularization)
        scale = np.sqrt(np.divide(weight, squared, out=np.zeros(len(weight)), where=squared > 0))
        residuals *= scale.astype(residuals.dtype)[:, None]
        scaled = residuals.reshape(*where.shape, -1)
        step, gained = greedy_log_det(np.matmul(scaled, scaled.transpose(0, 2, 1)).astype(np.float64), count)
        chosen = (step >= 0) & where
        return last - first, triplets[chosen.ravel()], step[chosen], gained[chosen]

    records = len(geometry.positive)
    with progress.task("composing", total=records, unit="records") as advance:
        for done, rows, step, gained in spread_blocks(chosen_of, padded(geometry.record, records, block=block)):
            order[rows], gain[rows] = step, gained
            advance(done)
    return Composition(order, gain)


def greedy_log_det(gram: Float64s, count: int) -> tuple[Rows, Float64s]:
    """Choose greedily, for each of B sets of n vectors, `count` that maximise log det(Id + Σ v·vᵀ).

    Args:
        gram: (B, n, n) inner products vᵢ·vⱼ.
        count: how many; fewer where no candidate has a gain above rounding.

    Returns:
        The step at which each was chosen, −1 if never, and its gain, NaN if never, each (B, n).
    """
    sets, size, _ = gram.shape
    step, gain = np.full((sets, size), -1, np.int64), np.full((sets, size), np.nan)
    left = 1 + np.einsum("bii->bi", gram)  # 1 + vᵀA⁻¹v, the factor by which choosing v multiplies the determinant
    factor = np.zeros((sets, size, count))
    index = np.arange(sets)
    for at in range(min(count, size)):
        best = np.where(step >= 0, -np.inf, left).argmax(axis=1)
        ratio = left[index, best]
        useful = (ratio > 1 + 1e-12) & (step[index, best] < 0)
        if not useful.any():
            break
        rows, chosen = index[useful], best[useful]
        step[rows, chosen], gain[rows, chosen] = at, np.log(ratio[useful])
        cross = gram[rows, chosen] - np.einsum("bnk,bk->bn", factor[rows], factor[rows, chosen])
        column = cross / np.sqrt(ratio[useful])[:, None]
        factor[rows, :, at] = column
        left[rows] = np.maximum(left[rows] - column**2, 1)
    return step, gain


def composed(negatives: Negatives, records: Records, composition: Composition, weights: Float64s) -> Negatives:
    """Return the table with the rows that were not chosen rejected, and the columns that say how others were.

    Args:
        negatives: the union that `records` was made of, alone.
        records: its records.
        composition: the choice.
        weights: (m,) that it was made with.

    Returns:
        The table with `composition_rank` (the step, null where not chosen) and `composition_gain`, and `weight`.
    """
    triplet = triplets_of_rows(negatives, records)
    known = triplet >= 0
    step = np.where(known, composition.order[triplet], -1)
    step[repeats(triplet)] = -1
    chosen = step >= 0
    table = negatives.with_columns(
        {
            "composition_rank": pa.array(step, mask=~chosen),
            "composition_gain": pa.array(composition.gain[triplet], mask=~chosen),
            "weight": pa.array(weights[triplet], mask=~known),
        }
    )
    return table.reject(~chosen, NOT_CHOSEN)


def repeats(triplet: Rows) -> npt.NDArray[np.bool_]:
    """Return which rows are of a triplet that an earlier row has already; −1 is none."""
    order = np.argsort(triplet, kind="stable")
    repeated = np.zeros(len(triplet), bool)
    repeated[order] = (ranks_within(triplet[order]) > 0) & (triplet[order] >= 0)
    return repeated
