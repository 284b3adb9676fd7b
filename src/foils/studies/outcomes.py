"""What training on each source gave: means, what it gained over the untrained model, and the best source's lead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from foils.runtime import memory
from foils.studies.cells import BASELINES, FIRST_STAGE, UNTRAINED, Cell, mean_of

Floats = npt.NDArray[np.float64]
RESAMPLES = 1_000
NEGLIGIBLE = 0.1


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
