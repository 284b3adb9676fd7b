"""Learning from judges that err: how likely each unit is relevant, by its features and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

CLOSE = 1e-7  # of the gradient, where the search for the weights ends
SUREST = 30.0  # logits of a probability, at most


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
    """Return (k,) the logarithm of the odds that the answers about each of these units give, within ±30 a judge.

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
    """Return the smallest t such that units of probability ≥ t have this mean probability; above 1 where none have.

    Args:
        probability: (n,) of each unit.
        precision: in (0, 1].
    """
    descending = -np.sort(-np.asarray(probability, np.float64))
    means = np.cumsum(descending) / np.arange(1, len(descending) + 1)
    last_of_its_value = np.append(descending[1:] != descending[:-1], True)[: len(descending)]
    enough = np.flatnonzero((means >= precision) & last_of_its_value)
    return float(descending[enough[-1]]) if len(enough) else 2.0
