"""How often a judge errs, and what share of some rows is relevant by its answers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foils.statistics.noisy_labels import Answers

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

CHANCE, SURE = 0.5, 0.999  # between which a judge's sensitivity and specificity lie
UNKNOWN = (0.8, 0.9)  # of a judge that was not checked
USUAL = 10.0  # answers that they count as, where it was
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least


def share_by_answers(
    judged: Answers, probability: Floats, rows: Marks, *, specificity: float | None = None
) -> tuple[float, float]:
    """Return the share of some rows that is relevant by a judge's answers, and its standard error; NaN and ∞: not told.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that the judge calls relevant
    is corrected by its errors, (q + sp − 1)/(se + sp − 1), with standard error √(q(1 − q)/n)/(se + sp − 1), n the
    effective number of answers.

    Args:
        judged: a judge's answers, with its errors.
        probability: (k,) with which each row was drawn for it; NaN: not known, the answer does not count.
        rows: (k,) which rows.
        specificity: in the place of the judge's.

    Source: Rogan & Gladen 1978; Horvitz & Thompson 1952.
    """
    weights = 1 / probability[judged.rows]
    here = rows[judged.rows] & np.isfinite(weights)
    if here.sum() < LEAST:
        return float("nan"), float("inf")
    sp = judged.specificity if specificity is None else specificity
    w, power = weights[here], judged.sensitivity + sp - 1
    q = np.average(judged.relevant[here], weights=w)
    effective = w.sum() ** 2 / (w**2).sum()
    smoothed = (q * effective + 0.5) / (effective + 1)
    error = float(np.sqrt(smoothed * (1 - smoothed) / effective) / power)
    return float(np.clip((q + sp - 1) / power, 0, 1)), error


def believed_errors(positives: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """Return a judge's sensitivity and specificity from checks whose truth is known, as if ten more went as usual.

    Args:
        positives: how many labelled positives it called relevant, and how many it judged.
        others: how many random documents it did not call relevant, and how many it judged.
    """
    pairs = zip((positives, others), UNKNOWN, strict=True)
    se, sp = ((right + USUAL * usual) / (of + USUAL) for (right, of), usual in pairs)
    return max(CHANCE, se), max(CHANCE, sp)
