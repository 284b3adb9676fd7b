"""How well ratings say what was answered, and how far several judges agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from foils.rating.estimators import LINKS, Ratings, checked_preference
from foils.rating.pairs import Floats, Judgements, Pairs, parts_of


def deviance(pairs: Pairs, preference: npt.ArrayLike, ratings: Ratings | None = None) -> float:
    """Return D = 2 Σ w log(w/p) + (1 − w) log((1 − w)/(1 − p)), p = F(e_i − e_j); without ratings p = ½.

    0 where every answer is the probability that the ratings give. Answers that are NaN, and pairs of a candidate
    without a rating, are left out.
    """
    checked, total = checked_preference(pairs, preference), 0.0
    for part in parts_of(len(pairs)):
        w, known = checked[part], np.isfinite(checked[part])
        fitted = np.full(len(w), np.log(0.5))
        if ratings is not None:
            lead = ratings.rating[pairs.first[part]] - ratings.rating[pairs.second[part]]
            known &= np.isfinite(lead)
            fitted = LINKS[ratings.model].terms(np.where(known, lead, 0.0), np.where(known, w, 0.5)).value
        w = w[known]
        total += float(2 * (xlogy(w, w) + xlogy(1 - w, 1 - w) - fitted[known]).sum())
    return total


def deviance_explained(pairs: Pairs, preference: npt.ArrayLike, ratings: Ratings) -> float:
    """Return 1 − D/D₀, D₀ the deviance of candidates that are all alike: 1 for ratings that say every answer.

    NaN without an answer other than ½.
    """
    without = deviance(pairs, preference)
    return 1 - deviance(pairs, preference, ratings) / without if without > 0 else float("nan")


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
