"""Which units to judge, and what a few judged ones say of all: draws, intervals of shares, erring judges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash
from scipy.optimize import minimize
from scipy.special import expit

from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

CLOSE = 1e-7  # of the gradient, where the search for the weights ends
SUREST = 30.0  # logits of a probability, at most
TAIL = 0.025  # outside an interval, on each side


@dataclass(frozen=True)
class Drawn:
    """Units that were drawn.

    Attributes:
        rows: (k,) which, in the order of the draw: its beginning is what a smaller draw would have been.
        probability: (k,) of each being drawn, in (0, 1].
    """

    rows: Rows
    probability: Floats


def permanent_numbers(keys: Iterable[str], *, seed: int = 0) -> Floats:
    """Return (n,) numbers spread evenly over (0, 1), each decided by its key and the seed alone.

    Draws that use them are coordinated: a unit keeps its number, whatever other units there are.

    Args:
        keys: of the units, no two alike.
        seed: at least 0.

    Source: Brewer, Early & Joyce 1972, permanent random numbers.
    """
    hashes = np.array([xxhash.xxh3_64_intdigest(key.encode(), seed) for key in keys], np.uint64)
    return np.asarray(((hashes >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


def draw(sizes: npt.ArrayLike, numbers: npt.ArrayLike, n: int) -> Drawn:
    """Draw n units with probabilities in proportion to their sizes; a larger n keeps what a smaller n drew.

    Unit j gets ξ_j = u_j/size_j; drawn are the n smallest. Let T be the next larger one. Given the
    numbers of all other units, j is drawn where u_j < size_j·T: with probability p_j = min(1,
    size_j·T), exactly. Therefore Σ x_j/p_j over what was drawn is unbiased for the total of any x,
    and for n ≥ 2 its terms are uncorrelated between units, as if each unit had been drawn by
    itself. Strata are not formed: their quotas would give up units when n grows.

    Args:
        sizes: (m,) finite, at least 0; a unit of size 0 is never drawn.
        numbers: (m,) in (0, 1), as `permanent_numbers` gives them.
        n: how many, at least 1; where fewer have a size above 0 all these are drawn, with probability 1.

    Source: sequential Poisson sampling (Ohlsson 1998), with the probabilities of priority sampling
    (Duffield, Lund & Thorup 2007, theorem 1 and section 4).
    """
    sizes, numbers = np.asarray(sizes, np.float64), np.asarray(numbers, np.float64)
    possible = np.flatnonzero(sizes > 0)
    order = numbers[possible] / sizes[possible]
    ranked = np.argsort(order, kind="stable")
    rows = possible[ranked[:n]]
    threshold = float(order[ranked[n]]) if len(ranked) > n else np.inf
    return Drawn(rows, np.minimum(1.0, sizes[rows] * threshold))


def importance(members: Sequence[Rows], pairs: int) -> Floats:
    """Return (N,) the importance of each pair: Σ of 1/|J_s| over the sources that hold it; its sum is 1.

    That is how much the share of false negatives of each source depends on it.

    Args:
        members: of each source the rows of the pairs that it holds, J_s.
        pairs: N, how many there are.
    """
    worth = np.zeros(pairs)
    for rows in members:
        worth[rows] += 1 / max(len(rows), 1)
    return np.asarray(worth / worth.sum())


@dataclass(frozen=True)
class Share:
    """An estimated share with its interval.

    Attributes:
        share: the estimate, in [0, 1]; NaN where nothing was judged.
        low: lower end of the interval.
        high: upper end.
        judged: how many units it rests on.
        effective: how many units, drawn with equal probabilities, would tell as much.
    """

    share: float
    low: float
    high: float
    judged: int
    effective: float

    def to_json(self) -> dict[str, float]:
        """Return the estimate with its interval, and how many units were judged."""
        return {"share": self.share, "low": self.low, "high": self.high, "judged": self.judged}


def estimate_share(relevant: npt.ArrayLike, probability: npt.ArrayLike) -> Share:
    """Return the share of relevant units among all, from those drawn and judged: Hájek's φ = Σ w·y/Σ w.

    Here w = 1/p. Its variance is the larger one of what the judged units show, v = Σ (1 − p)·w²·(y
    − φ)²/(Σ w)², and of what half a relevant unit of one more lets expect, with φ(1 − φ) in place
    of the square, so that no variance is 0 for want of judged units. The interval is Clopper and
    Pearson's for n* = φ(1 − φ)/v units, n*·φ of them relevant.

    Args:
        relevant: (m,) 0 or 1, of the judged units.
        probability: (m,) with which each was drawn and judged, in (0, 1]; only ratios decide the share.

    Raises:
        InputError: shapes that do not fit, or values out of range.

    Source: Hájek 1971; interval of Korn & Graubard 1998.
    """
    y, p = np.asarray(relevant, np.float64), np.asarray(probability, np.float64)
    if y.ndim != 1 or y.shape != p.shape:
        raise InputError(f"{y.shape} judgements, {p.shape} probabilities; expected one of each a unit")
    if not np.isin(y, (0, 1)).all() or not ((p > 0) & (p <= 1)).all():
        raise InputError("expected judgements 0 or 1, and probabilities in (0, 1]")
    if not len(y):
        return Share(np.nan, 0.0, 1.0, 0, 0.0)
    m, w = len(y), 1 / p
    share = float((w * y).sum() / w.sum())
    smoothed = (m * share + 0.5) / (m + 1)
    variance = (1 - p) * w**2 / w.sum() ** 2
    v = max(float((variance * (y - share) ** 2).sum()), float(variance.sum()) * smoothed * (1 - smoothed))
    effective = smoothed * (1 - smoothed) / v if v > 0 else np.inf
    if np.isinf(effective):
        return Share(share, share, share, m, effective)
    from scipy.stats import beta

    x = share * effective  # need not be a whole number
    low = float(beta.ppf(TAIL, x, effective - x + 1)) if x > 0 else 0.0
    high = float(beta.ppf(1 - TAIL, x + 1, effective - x)) if x < effective else 1.0
    return Share(share, low, high, m, effective)


# Judges that err


@dataclass(frozen=True)
class Answers:
    """What one judge answered.

    Attributes:
        rows: (k,) the units that it judged, each once.
        relevant: (k,) 1 or 0.
        sensitivity: probability that it answers 1 where the unit is relevant, in (0, 1].
        specificity: probability that it answers 0 where it is not, in (0, 1].
    """

    rows: Rows
    relevant: Floats
    sensitivity: float = 1.0
    specificity: float = 1.0


@dataclass(frozen=True)
class Crowd:
    """What features and answers say together.

    Attributes:
        weights: (f + 1,) of the features, the constant first.
        prior: (n,) probability of each unit by its features alone.
        posterior: (n,) the same, its answers taken into account.
    """

    weights: Floats
    prior: Floats
    posterior: Floats


def learn(features: npt.ArrayLike, answers: Sequence[Answers], *, spread: float = 1.0) -> Crowd:
    """Return P(relevant) of every unit, and the weights of its features, from answers of judges that err.

    A unit is relevant with probability σ(w₀ + w·x_j), w ~ N(0, spread²), w₀ ~ N(0, 10²), and a
    judge answers 1 with probability se where it is and 1 − sp where it is not, whatever else the
    unit is. With the log odds e_j of its answers w minimises Σ log(1 + e^z) − log(1 + e^(z + e_j))
    + ½ w²/spread², z = w₀ + w·x_j, which is the log likelihood with the truth summed out. Without
    answers w is 0, and every probability ½.

    Args:
        features: (n, f), standardised.
        answers: of each judge, with its errors.
        spread: standard deviation of a feature's weight, above 0.

    Source: Raykar et al. 2010, Learning from crowds, JMLR 11, section 2 (two-coin model), the
    errors being given.
    """
    x = np.asarray(features, np.float64)
    x = np.column_stack([np.ones(len(x)), x])
    precision = np.r_[0.01, np.full(x.shape[1] - 1, spread**-2.0)]
    judged = np.unique(np.concatenate([np.zeros(0, np.int64), *(each.rows for each in answers)]))
    evidence, at = log_odds_of(answers, judged), x[judged]

    def loss(w: Floats) -> tuple[float, Floats]:
        z = at @ w
        value = (np.logaddexp(0, z) - np.logaddexp(0, z + evidence)).sum() + 0.5 * precision @ w**2
        return float(value), at.T @ (expit(z) - expit(z + evidence)) + precision * w

    weights = minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": CLOSE}).x
    prior = np.asarray(expit(x @ weights))
    after = prior.copy()
    after[judged] = expit(at @ weights + evidence)
    return Crowd(weights, prior, after)


def log_odds_of(answers: Sequence[Answers], judged: Rows) -> Floats:
    """Return (k,) the log-odds that the answers about each of these units give, within ±30 a judge.

    Args:
        answers: of judges, with their errors.
        judged: (k,) units, ascending, among them all that were answered about.
    """
    total = np.zeros(len(judged))
    for judge in answers:
        se, sp = judge.sensitivity, judge.specificity
        with np.errstate(divide="ignore"):
            yes, no = np.log(se) - np.log(1 - sp), np.log(1 - se) - np.log(sp)
        odds = np.clip(np.where(judge.relevant == 1, yes, no), -SUREST, SUREST)
        total[np.searchsorted(judged, judge.rows)] += odds
    return total


def threshold(probability: npt.ArrayLike, precision: float) -> float:
    """Return the smallest t where units of probability ≥ t have this mean probability; above 1 if none have.

    Args:
        probability: (n,) of each unit.
        precision: in (0, 1].
    """
    descending = -np.sort(-np.asarray(probability, np.float64))
    means = np.cumsum(descending) / np.arange(1, len(descending) + 1)
    last_of_its_value = np.append(descending[1:] != descending[:-1], True)[: len(descending)]
    enough = np.flatnonzero((means >= precision) & last_of_its_value)
    return float(descending[enough[-1]]) if len(enough) else 2.0
