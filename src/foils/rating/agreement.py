"""How far several judges agree about the same pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foils.rating.judgements import Judgements
from foils.rating.pairs import Floats


def agreements(judges: Sequence[Judgements]) -> Floats:
    """Return (J,) how often each judge prefers what the mean of the others prefers.

    Over pairs about which the judge and at least one other have an answer, neither ½. NaN without such a pair.
    """
    answers = np.stack([judge.preference for judge in judges])
    known = np.isfinite(answers)
    total, count = np.where(known, answers, 0.0).sum(axis=0), known.sum(axis=0)
    shares = []
    for own, has in zip(answers, known, strict=True):
        others = np.divide(total - np.where(has, own, 0.0), count - has, out=np.full(len(own), 0.5), where=count > has)
        decided = has & (own != 0.5) & (np.abs(others - 0.5) > 1e-12)
        shares.append(float(((own > 0.5) == (others > 0.5))[decided].mean()) if decided.any() else float("nan"))
    return np.array(shares)


def krippendorff_alpha(judges: Sequence[Judgements]) -> float:
    """Return Krippendorff's α of the judges' preferences, with squared differences: 1 − D_o/D_e.

    D_o = (1/n) Σ_u Σ_{i≠j in u} (x_i − x_j)²/(m_u − 1) over the pairs u with m_u ≥ 2 answers, n answers in all; D_e is
    the mean squared difference of any two of the n answers. Each pair counts both ways round, with x and 1 − x, so
    that it does not matter which document is the first. 1 for judges that agree, about 0 for answers by chance; NaN
    where no pair has two answers, or all answers are ½.

    Source: Krippendorff, Content Analysis (2004), chapter 11, interval data.
    """
    answers = np.stack([judge.preference for judge in judges])
    several = np.isfinite(answers).sum(axis=0) >= 2
    values = np.concatenate([answers[:, several], 1 - answers[:, several]], axis=1)
    known = np.isfinite(values)
    count, filled = known.sum(axis=0), np.where(known, values, 0.0)
    # Σ_{i≠j} (x_i − x_j)² of m values = 2(m Σx² − (Σx)²)
    inside = 2 * (count * (filled**2).sum(axis=0) - filled.sum(axis=0) ** 2)
    n, whole = int(count.sum()), 0.0
    if n:
        whole = 2 * (n * float((filled**2).sum()) - float(filled.sum()) ** 2) / (n * (n - 1))
    return 1 - float((inside / (count - 1)).sum()) / n / whole if whole > 1e-12 else float("nan")
