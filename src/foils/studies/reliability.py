"""How far the order of a cell's sources repeats from seeds to seeds: what makes a cell count, and when it is flat.

    h = mean over splits of τ(means of one half of the seeds, means of the other)
    reliability of all n seeds = 2h/(1 + h)                 (Spearman 1910, Brown 1910)
    seeds for a reliability R = n/2 · R(1 − h)/(h(1 − R))

A cell is flat where its sources differ so little that no affordable number of seeds would tell their order. With the
sources' mean square M_s and the residual's M_e of a two-way table (sources × seeds), F = M_s/M_e, the ratio of the
sources' variance to that of a single training is, with 95 % confidence, at most

    θ = (F/q − 1)/n,   q the 5 % quantile of F(S − 1, (S − 1)(n − 1))          (Searle 1971)

and τ = .8 is a correlation of sin(.8·π/2) = .951, which takes .951/.049/θ seeds. Where these are more than 64, the cell
is flat. Two or three seeds may agree by chance: four at least must say either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from foils.statistics.agreement import kendall_tau

Floats = npt.NDArray[np.float64]
RELIABLE = 0.8
MOST_SEEDS = 64
LEAST_SEEDS = 4  # before a cell is reliable or flat
CONFIDENCE = 0.95
EVERY_SPLIT = 9  # seeds up to which every split into halves is looked at
SPLITS = 100
ROUNDING = 1e-9


@dataclass(frozen=True)
class Reliability:
    """How far the order of a cell's sources repeats.

    Attributes:
        seeds: that all sources have.
        half: mean Kendall's τ of the sources' means over one half of the seeds with those over the other; NaN with one
            seed, or where all means are equal.
        whole: the same for all seeds (Spearman–Brown); `half` itself where that is not above 0.
        needed: seeds with which `whole` would be .8, four at least; infinite where `half` is not above 0, NaN where it
            is NaN.
        at_best: seeds that .8 takes at the upper end of the 95 % interval of the sources' variance; NaN with one seed.
    """

    seeds: int
    half: float
    whole: float
    needed: float
    at_best: float

    @property
    def reliable(self) -> bool:
        """Whether the reliability of all seeds, four or more, is .8 or more."""
        return self.seeds >= LEAST_SEEDS and self.whole >= RELIABLE - ROUNDING

    @property
    def flat(self) -> bool:
        """Whether four seeds or more show that above 64 would be needed, with 95 % confidence."""
        return self.seeds >= LEAST_SEEDS and not self.reliable and self.at_best > MOST_SEEDS

    @property
    def settled(self) -> bool:
        """Whether further seeds are of no use: reliable or flat, or 64 of them."""
        return self.reliable or self.flat or self.seeds >= MOST_SEEDS

    @property
    def verdict(self) -> str:
        """In a word or two: reliable, flat, not reliable, or too few seeds to say."""
        if self.seeds < LEAST_SEEDS:
            return "too few seeds"
        return "reliable" if self.reliable else "flat" if self.flat else "not reliable"


def counts(reliability: Reliability, *, only_reliable: bool = False) -> bool:
    """Return whether predictors are compared in a cell: where it is not flat or, on request, where it is reliable."""
    return reliability.reliable if only_reliable else not reliability.flat


def reliability_of(results: Floats) -> Reliability:
    """Return how far the order of the sources repeats.

    Args:
        results: (sources, seeds) means over queries; three sources or more.
    """
    seeds = results.shape[1]
    if seeds < 2:
        return Reliability(seeds, math.nan, math.nan, math.nan, math.nan)
    half = _half(results)
    whole = 2 * half / (1 + half) if half > 0 else half
    ratio = 0.0 if math.isnan(half) or half > 0 else math.inf
    if half > 0:
        ratio = RELIABLE * (1 - half) / (half * (1 - RELIABLE))
    needed = math.nan if math.isnan(half) else max(float(LEAST_SEEDS), float(np.ceil(seeds / 2 * ratio - ROUNDING)))
    return Reliability(seeds, half, whole, needed, seeds_at_best(results))


def seeds_at_best(results: Floats) -> float:
    """Return the seeds that τ = .8 takes at the upper end of the 95 % interval of the sources' variance.

    Args:
        results: (sources, seeds), two seeds or more.

    Returns:
        A number above 0; infinite where even the upper end is 0, 0 where no seed differs from another.
    """
    from scipy.stats import f

    sources, seeds = results.shape
    between = results.mean(axis=1) - results.mean()
    residual = results - results.mean(axis=1, keepdims=True) - results.mean(axis=0) + results.mean()
    freedom = (sources - 1) * (seeds - 1)
    of_sources, of_noise = seeds * float(between @ between) / (sources - 1), float((residual**2).sum()) / freedom
    if of_noise <= 1e-12 * of_sources or not of_noise:
        return 0.0 if of_sources else math.inf
    highest = (of_sources / of_noise / float(f.ppf(1 - CONFIDENCE, sources - 1, freedom)) - 1) / seeds
    correlation = math.sin(RELIABLE * math.pi / 2)
    return correlation / (1 - correlation) / highest if highest > 0 else math.inf


def _half(results: Floats) -> float:
    """Mean τ of one half of the seeds with the other: of every split or, of more than nine seeds, of a hundred."""
    seeds = results.shape[1]
    if seeds <= EVERY_SPLIT:
        halves = [list(each) for each in combinations(range(seeds), seeds // 2)]
    else:
        rng = np.random.default_rng(14)
        halves = [rng.permutation(seeds)[: seeds // 2].tolist() for _ in range(SPLITS)]
    taus = []
    for half in halves:
        others = np.setdiff1d(np.arange(seeds), half)
        taus.append(kendall_tau(results[:, half].mean(axis=1), results[:, others].mean(axis=1)))
    return math.nan if np.isnan(taus).all() else float(np.nanmean(taus))
