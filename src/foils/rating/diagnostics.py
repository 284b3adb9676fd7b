"""How well ratings say what was answered, and how far several judges agree and how much each is to count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, xlogy
from threadpoolctl import threadpool_limits

from foils.rating.estimators import LINKS, Ratings, checked_preference
from foils.rating.pairs import Floats, Judgements, Pairs, parts_of
from foils.runtime import memory
from foils.runtime.errors import InputError

_CELLS = 2**20  # cells of the matrices looked at together
_CELL = 16  # bytes a cell takes


def deviance(pairs: Pairs, preference: npt.ArrayLike, ratings: Ratings | None = None) -> float:
    """Return D = 2 Σ w log(w/p) + (1 − w) log((1 − w)/(1 − p)), p = F(e_i − e_j); without ratings p = ½.

    0 where every answer is the probability that the ratings give. Answers that are NaN, and pairs of a candidate
    without a rating, are left out.
    """
    checked = checked_preference(pairs, preference)
    return sum(_deviance(pairs, checked, ratings, part) for part in parts_of(len(pairs)))


def _deviance(pairs: Pairs, preference: Floats, ratings: Ratings | None, part: slice) -> float:
    w = preference[part]
    if ratings is None:
        known = np.isfinite(w)
        fitted = np.full(len(w), np.log(0.5))
    else:
        lead = ratings.rating[pairs.first[part]] - ratings.rating[pairs.second[part]]
        known = np.isfinite(w) & np.isfinite(lead)
        fitted = LINKS[ratings.model].terms(np.where(known, lead, 0.0), np.where(known, w, 0.5)).value
    w = w[known]
    return float(2 * (xlogy(w, w) + xlogy(1 - w, 1 - w) - fitted[known]).sum())


def deviance_explained(pairs: Pairs, preference: npt.ArrayLike, ratings: Ratings) -> float:
    """Return 1 − D/D₀, D₀ the deviance of candidates that are all alike: 1 for ratings that say every answer.

    NaN without an answer other than ½.
    """
    without = deviance(pairs, preference)
    return 1 - deviance(pairs, preference, ratings) / without if without > 0 else float("nan")


def intransitive_triples(pairs: Pairs, preference: npt.ArrayLike) -> tuple[int, int]:
    """Return how many triples of candidates, all compared with each other, go round in a circle, and of how many.

    i ≻ j where P(i ≻ j) > ½; triples with an answer of exactly ½ are left out. A judge that tosses coins has a quarter
    of them in a circle, and no ratings order such a triple. With B the matrix of wins of a query, tr(B³)/3 of
    tr((B + Bᵀ)³)/6. Of a pair that was asked about twice the last answer counts.
    """
    w = checked_preference(pairs, preference)
    decided = np.isfinite(w) & (w != 0.5)
    won: Floats = w[decided]
    circles = triples = 0.0
    for block in pairs.where(decided).blocks(memory.rows_at_once(_CELL, most=_CELLS), power=2):
        query, first, second = block.first // block.n, block.first % block.n, block.second % block.n
        wins = np.zeros((len(block.queries), block.n, block.n), np.float32)
        wins[query, first, second] = won[block.pairs] > 0.5
        wins[query, second, first] = won[block.pairs] < 0.5
        met = wins + wins.transpose(0, 2, 1)
        with threadpool_limits(1, user_api="blas"):
            circles += float(np.sum((wins @ wins) * wins.transpose(0, 2, 1), dtype=np.float64))
            triples += float(np.sum((met @ met) * met, dtype=np.float64))
    return round(circles / 3), round(triples / 6)


SUREST = 0.99
"""Preference beyond which a judge's own words count as no surer: votes have no logit."""


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


def sureness(judges: Sequence[Judgements]) -> Floats:
    """Return (J,) the factor on each judge's logits that makes its answers as sure as the others' bear out.

    a = argmax Σ o log σ(a·x) + (1 − o) log σ(−a·x) over pairs that the judge and another answered, x = logit(p), p the
    judge's preference (within 0.01 and 0.99), o the mean of the others': logistic calibration against the others. 1: as
    sure as they are; below 1: surer than they bear out; 0 or less: they know nothing of what it says. NaN without such
    a pair, or where the judge says ½ to all.

    Source: Platt 1999, without an offset (both sides of a pair are alike), the others in the place of the truth.
    """
    answers = np.stack([judge.preference for judge in judges])
    known = np.isfinite(answers)
    total, count = np.where(known, answers, 0.0).sum(axis=0), known.sum(axis=0)
    found = []
    for own, has in zip(answers, known, strict=True):
        both = has & (count > 1)
        others = (total[both] - own[both]) / (count[both] - 1)
        found.append(_slope(logit(np.clip(own[both], 1 - SUREST, SUREST)), others))
    return np.array(found)


def _slope(x: Floats, share: Floats) -> float:
    """argmax_a Σ share·log σ(a·x) + (1 − share)·log σ(−a·x), within ±20, by Newton's steps, halved where they miss."""
    if not (x**2).sum() > 0:
        return float("nan")

    def value(a: float) -> float:
        return float((share * np.logaddexp(0, -a * x) + (1 - share) * np.logaddexp(0, a * x)).sum())

    a = 0.0
    for _ in range(100):
        p = expit(a * x)
        step = float(((share - p) * x).sum() / max(float((p * (1 - p) * x**2).sum()), 1e-12))
        step = float(np.clip(a + step, -20, 20)) - a
        while value(a + step) > value(a) + 1e-12 and abs(step) > 1e-12:
            step /= 2
        a += step
        if abs(step) < 1e-9:
            break
    return a


def judge_weights(answers: Floats) -> Floats:
    """Return (J,) how much each of three judges or more is to count, of mean 1, by how they vary together.

    With x = p − ½ (each pair both ways round, so that the mean is 0) and x_j = l_j t + e_j, t what all judge and e
    errors that are independent of each other, the covariances are c_jk = l_j l_k. l comes from them by least squares
    over pairs of judges (alternating: l_j = Σ_k c_jk l_k / Σ_k l_k², k ≠ j), the errors' variances are
    v_j = c_jj − l_j², at least 1 % of c_jj, and the weights of the best linear estimate of t are l_j/v_j. A judge that
    goes against the others (l_j < 0) has weight 0. Judges of one making share their errors, and count too much.

    Args:
        answers: (J, m) preferences about the same pairs; NaN: none. Each two judges need a pair that both answered.

    Raises:
        InputError: fewer than three judges, or two that answered no pair in common.

    Source: Bartlett's factor scores of a single factor (Lawley & Maxwell 1971); Grubbs 1948 for three.
    """
    if len(answers) < 3:
        raise InputError(f"{len(answers)} judges; how much each is to count can be told of three or more alone")
    known = np.isfinite(answers)
    x = np.where(known, answers - 0.5, 0.0)
    count = known.astype(float) @ known.T
    if not (count > 0).all():
        raise InputError("two judges answered no pair in common; weigh them by numbers")
    covariance = x @ x.T / count
    own = np.diag(covariance).copy()
    loading = np.sqrt(own)
    for _ in range(200):
        before = loading.copy()
        for j in range(len(loading)):
            others = np.delete(np.arange(len(loading)), j)
            scale = float((loading[others] ** 2).sum())
            loading[j] = covariance[j, others] @ loading[others] / scale if scale > 0 else 0.0
        if np.abs(loading - before).max() < 1e-12:
            break
    loading = loading if loading.sum() >= 0 else -loading  # the sign is free: most judges are right
    error = np.maximum(own - loading**2, 0.01 * own)
    weights = np.where((loading > 0) & (error > 0), loading / np.where(error > 0, error, 1.0), 0.0)
    if not weights.any():
        return np.ones(len(weights))
    return np.asarray(weights * len(weights) / weights.sum())
