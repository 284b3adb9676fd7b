"""What training on each source gave: means, gains, the best source's lead, and how far their order repeats.

A cell's reliability says how far the order of its sources repeats from seeds to seeds:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from foils.experiments.cells import Cell, mean_of
from foils.experiments.tasks import BASELINES, FIRST_STAGE, UNTRAINED
from foils.runtime import memory
from foils.statistics.agreement import kendall_tau

Floats = npt.NDArray[np.float64]
RESAMPLES = 1_000
NEGLIGIBLE = 0.1
RELIABLE = 0.8
MOST_SEEDS = 64
LEAST_SEEDS = 4  # before a cell is reliable or flat
CONFIDENCE = 0.95
EVERY_SPLIT = 9  # seeds up to which every split into halves is looked at
SPLITS = 100
ROUNDING = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What training on one source gave in one cell.

    Attributes:
        source: or baseline.
        mean: over seeds and queries, with the interval `low`, `high` of a bootstrap over both.
        seeds: the mean of each seed.
        gain: mean difference from the untrained model (of rerankers, from the first stage), query by query, with the
            interval `gain_low`, `gain_high` of a bootstrap over seeds and queries; NaN for that itself, and where it
            was not measured.
        tests: the mean on each collection that is tested on, where they are several.
    """

    source: str
    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    gain: float
    gain_low: float
    gain_high: float
    tests: Mapping[str, float] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        """Whether training moved the measure.

        It did where the gain's interval does not hold zero, and the gain is at least a tenth of half the width of the
        mean's own interval: a step too small to change more than a few ranks can be sure and still be nothing.
        """
        return not self.gain_low <= 0 <= self.gain_high and not abs(self.gain) < NEGLIGIBLE * (self.high - self.low) / 2


@dataclass(frozen=True)
class Lead:
    """By how much the best source of a cell is ahead of the next.

    Attributes:
        source: with the highest mean.
        against: with the next.
        mean: difference of the two, query by query and seed by seed, of the seeds that both have; with the interval
            `low`, `high` of a bootstrap over seeds and queries.
    """

    source: str
    against: str
    mean: float
    low: float
    high: float


def outcomes_of(cell: Cell, measure: str, rng: np.random.Generator) -> tuple[Outcome, ...]:
    """Return the results of a cell, best first, baselines among them."""
    before = start_of(cell)
    untrained = cell.outcomes.get(before, {}).get(measure)
    outcomes = []
    for name in [*(each for each in BASELINES if each in cell.outcomes), *cell.sources]:
        values = cell.outcomes[name][measure]
        gain = (math.nan, math.nan, math.nan)
        if untrained is not None and name != before:
            gain = mean_and_interval(values - untrained.mean(axis=0), rng, cell.sizes)
        means = tuple(float(value) for value in mean_of(values, cell.sizes))
        mean, low, high = mean_and_interval(values, rng, cell.sizes)
        tests = {test: float(values[:, place].mean()) for test, place in cell.tests.items()} if cell.sizes else {}
        outcomes.append(Outcome(name, mean, low, high, means, *gain, tests))
    return tuple(sorted(outcomes, key=lambda each: -each.mean))


def start_of(cell: Cell) -> str:
    """Return what gains are measured from: the untrained model or, of rerankers, the first stage."""
    return FIRST_STAGE if cell.facts["settings"].get("reranker") else UNTRAINED


def lead_of(cell: Cell, outcomes: Sequence[Outcome], measure: str, rng: np.random.Generator) -> Lead:
    """Return the lead of the best source over the next, baselines left out."""
    best, second = [each.source for each in outcomes if each.source not in BASELINES][:2]
    a, b = cell.outcomes[best][measure], cell.outcomes[second][measure]
    common = min(len(a), len(b))
    return Lead(best, second, *mean_and_interval(a[:common] - b[:common], rng, cell.sizes))


def mean_and_interval(
    values: Floats, rng: np.random.Generator, sizes: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Return the mean of (seeds, queries) values and its 95 % percentile interval of a bootstrap over both.

    Args:
        values: per seed and query.
        rng: source of the draws.
        sizes: queries of each collection, where they are of several: they are drawn from each, and the mean is that of
            the collections' means.
    """
    seeds, queries = values.shape
    counts, draws = [*(sizes or [queries]), seeds], np.empty(RESAMPLES)
    starts = np.cumsum([0, *counts[:-2]])
    size = memory.rows_at_once(8 * (seeds + 3) * queries, most=100)
    for start in range(0, RESAMPLES, size):
        *of_queries, of_seeds = resampled(counts, min(size, RESAMPLES - start), rng)
        drawn = np.concatenate([rows + first for rows, first in zip(of_queries, starts, strict=True)], axis=1)
        means = values[of_seeds].mean(axis=1)
        draws[start : start + size] = mean_of(np.take_along_axis(means, drawn, axis=1), sizes)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(mean_of(values, sizes).mean() if sizes else values.mean()), float(low), float(high)


def resampled(sizes: Sequence[int], draws: int, rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    """Return for each size s the (draws, s) numbers below s of a bootstrap; draw by draw, the sizes take turns."""
    drawn = rng.integers(np.tile(np.repeat(sizes, sizes), draws)).reshape(draws, -1)
    return np.split(drawn, np.cumsum(sizes)[:-1], axis=1)


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
