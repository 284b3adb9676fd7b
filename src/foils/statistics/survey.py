"""Which units to look at, and what a few judged ones say of all: draws, shares with intervals, judges that err."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

TAIL = 0.025  # outside an interval, on each side
EQUALLY = 0.2
"""The part of an importance that does not heed the belief: no weight exceeds five times that of an equal draw."""


@dataclass(frozen=True)
class Drawn:
    """Units that were drawn.

    Attributes:
        rows: (k,) which, in the order of the draw: its beginning is what a smaller draw would have been.
        probability: (k,) of each being drawn, in (0, 1].
        threshold: T, the smallest number over size among the units that were not drawn; ∞ where all were.
    """

    rows: Rows
    probability: Floats
    threshold: float = np.inf


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
    return Drawn(rows, np.minimum(1.0, sizes[rows] * threshold), threshold)


def importance(members: Sequence[Rows], pairs: int, *, belief: npt.ArrayLike | None = None) -> Floats:
    """Return (N,) how much each pair is worth looking at: Σ over the sources that hold it of √(π(1 − π))/|J_s|.

    That is how much the share of false negatives of each source depends on it, times the standard
    deviation of what is believed of it; a fifth of it heeds the first factor alone, for where the
    belief is wrong. Its sum is 1.

    Args:
        members: of each source the rows of the pairs that it holds, J_s.
        pairs: N, how many there are.
        belief: (N,) π, today's probability that each pair is relevant, in [0, 1]; None: equal for all.

    Raises:
        InputError: beliefs that are no probabilities, or not one a pair.

    Source: ours; Neyman 1934 for the standard deviation, Hesterberg 1995 for the fifth.
    """
    plain = np.zeros(pairs)
    for rows in members:
        plain[rows] += 1 / max(len(rows), 1)
    plain /= plain.sum()
    if belief is None:
        return plain
    pi = np.asarray(belief, np.float64)
    if pi.shape != (pairs,) or not ((pi >= 0) & (pi <= 1)).all():
        raise InputError(f"beliefs {pi.shape}; expected a probability for each of {pairs} pairs")
    uncertain = plain * np.sqrt(pi * (1 - pi))
    if not uncertain.sum():
        return plain
    return np.asarray((1 - EQUALLY) * uncertain / uncertain.sum() + EQUALLY * plain)


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
    """Return the share of relevant units among all, from those that were drawn and judged: Hájek's φ = Σ w·y/Σ w.

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
