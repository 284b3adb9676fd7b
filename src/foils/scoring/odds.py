"""How the false negatives of a source spread over its negatives.

Negative j of a source with the share φ of false negatives is false with

    logit π_j = c + β·log(n_L/n_U)_j,   β = min(1, b/(1 − φ)),

c such that the mean of π over the source's negatives is φ. What n_L/n_U tells of a pair was learned from pairs of all
kinds. Among the negatives of one source it tells less, if what ranked or rejected them knew more than the encoder that
looks at them: of the pairs that a better encoder puts first, many are relevant whatever n_L/n_U is. The positives that
the source recaptures show it. Labelled positives being a sample of the relevant pairs, π(x) = o·n_s(x)/n(x) with n_s(x)
recaptured positives and n(x) negatives of the source at x; if log n_s/n rises by b where log n_L/n_U rises by 1, so
does log π, and its logit rises by b/(1 − π). β is that at the mean, and at most 1, as where nothing is recaptured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from foils.scoring.gates import Float64s

MOST = 0.985  # share of false negatives, at most
LOGITS = np.linspace(-23.0, float(logit(MOST)), 64)  # of the shares at which c is solved for
LEAST = float(expit(LOGITS[0]))
SPREAD = 0.5  # standard deviation of b around 1 before a positive is recaptured
NEWTON, CLOSE = 20, 1e-5


class Odds:
    """The odds of each negative of a source at any share of false ones.

    Args:
        logs: (k,) log n_L/n_U of its negatives, k ≥ 1.
        slope: b, at least 0.
    """

    def __init__(self, logs: Float64s, slope: float = 1.0) -> None:
        self.logs, self.slope = logs, slope
        self.constants = _solved(logs, np.minimum(1.0, slope / (1 - expit(LOGITS))))

    def lines(self, shares: npt.ArrayLike) -> Float64s:
        """Return (…, 2) c and β at shares (…,)."""
        return lines(np.asarray(shares, np.float64)[..., None], self.constants[None], np.array([self.slope]))[..., 0, :]

    def probabilities(self, share: float) -> Float64s:
        """Return (k,) π of each negative, 0 at a share of 0."""
        constant, slope = self.lines(share)
        return np.asarray(expit(constant + slope * self.logs) if share else np.zeros(len(self.logs)))


def lines(shares: Float64s, constants: Float64s, slopes: Float64s) -> Float64s:
    """Return (…, S, 2) c and β of S sources at their shares (…, S).

    Args:
        shares: φ.
        constants: (S, 64) c of each source where the logit of φ is one of LOGITS.
        slopes: (S,) b.
    """
    given = np.minimum(np.maximum(shares, LEAST), MOST)
    at = (np.log(given / (1 - given)) - LOGITS[0]) / (LOGITS[1] - LOGITS[0])
    index = np.minimum(at.astype(np.int64), len(LOGITS) - 2)
    part, source = at - index, np.arange(len(slopes))
    found = np.empty((*given.shape, 2))
    found[..., 0] = (1 - part) * constants[source, index] + part * constants[source, index + 1]
    found[..., 1] = np.minimum(1.0, slopes / (1 - given))
    return found


def slope_of(recaptured: Float64s, negatives: Float64s, weights: Float64s) -> float:
    """Return b ≥ 0: how steeply recaptured positives rise with log n_L/n_U relative to the source's negatives.

    The mode of a logistic regression with b ~ N(1, 0.5²) before anything is seen.

    Args:
        recaptured: (n,) log n_L/n_U of recaptured positives.
        negatives: (k,) that of the source's negatives.
        weights: (n,) of the recaptured, as effective counts.
    """
    if not len(recaptured):
        return 1.0
    x = np.concatenate([recaptured, negatives])
    x = x - x.mean()
    positive = np.arange(len(x)) < len(recaptured)
    counts = np.concatenate([weights, np.ones(len(negatives))])
    at = np.array([np.log(weights.sum() / len(negatives)), 1.0])
    for _ in range(NEWTON):
        p = expit(at[0] + at[1] * x)
        left, spread = counts * (positive - p), counts * p * (1 - p)
        gradient = np.array([left.sum(), (left * x).sum() - (at[1] - 1) / SPREAD**2])
        mixed = (spread * x).sum()
        curvature = np.array([[spread.sum(), mixed], [mixed, (spread * x * x).sum() + 1 / SPREAD**2]])
        step = np.linalg.solve(curvature, gradient)
        at = at + np.clip(step, -2, 2)
        if np.abs(step).max() < CLOSE:
            break
    return max(0.0, float(at[1]))


def _solved(logs: Float64s, slopes: Float64s) -> Float64s:
    """(n,) c at each of LOGITS, so that the mean of σ(c + β·log n_L/n_U) is the share; by Newton's method."""
    constants = np.empty(len(LOGITS))
    top = slopes[0] * logs.max()
    constant = LOGITS[0] - top - np.log(np.exp(slopes[0] * logs - top).mean())
    for at, (target, slope) in enumerate(zip(LOGITS, slopes, strict=True)):
        for _ in range(NEWTON):
            p = expit(constant + slope * logs)
            mean = p.mean()
            step = (target - logit(mean)) * mean * (1 - mean) / (p * (1 - p)).mean()
            constant += np.clip(step, -2, 2)
            if abs(step) < CLOSE:
                break
        constants[at] = constant
    return constants
