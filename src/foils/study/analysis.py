"""What a study says: how each predictor's order of the sources agrees with what training gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.agreement import Agreement, agreement, kendall_tau
from foils.errors import InputError
from foils.study.cells import BASELINES, Cell
from foils.study.predictors import PREDICTORS

Floats = npt.NDArray[np.float64]
RESAMPLES = 1_000


@dataclass(frozen=True)
class Outcome:
    """What training on one source gave in one cell.

    Attributes:
        source: or baseline.
        mean: over seeds and queries, with the interval `low`, `high` of a bootstrap over both.
        seeds: the mean of each seed.
    """

    source: str
    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class Standing:
    """A predictor over all cells that have it.

    Attributes:
        predictor: its name; `title`: what it is.
        cells: cell → agreement.
        kendall: mean τ over the cells, with the interval `low`, `high` of a bootstrap over sources and seeds.
        worst: lowest τ of a cell.
        regret: mean over cells of what is lost by training on the source it puts first: best less chosen mean measure.
        regret_share: the same as a share of best less worst, in [0, 1].
        missing: cells that lack it for some source.
    """

    predictor: str
    title: str
    cells: dict[str, Agreement]
    kendall: float
    low: float
    high: float
    worst: float
    regret: float
    regret_share: float
    missing: int


@dataclass(frozen=True)
class StudyAnalysis:
    """Everything a study says of one measure.

    Attributes:
        measure: that predictors are compared with.
        cells: in order. `outcomes`: cell → results, best first, baselines among them.
        leaderboard: predictors, those that hold in every cell first, by mean τ.
        ceiling: cell → Kendall's τ of one half of the seeds with the other, the mean over splits: how far even the
            result agrees with itself; NaN with one seed.
    """

    measure: str
    cells: tuple[Cell, ...]
    outcomes: dict[str, tuple[Outcome, ...]]
    leaderboard: tuple[Standing, ...]
    ceiling: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, null for what is not a number."""
        return {
            "measure": self.measure,
            "cells": [
                {
                    "name": cell.name,
                    "collection": cell.facts["collection"]["name"],
                    "model": cell.facts["model"]["name"],
                    "settings": cell.facts["settings"],
                    "ceiling": _number(self.ceiling[cell.name]),
                    "outcomes": [vars(outcome) for outcome in self.outcomes[cell.name]],
                    "predictors": {name: dict(cell.predictors[name]) for name in cell.sources},
                }
                for cell in self.cells
            ],
            "leaderboard": [
                {
                    "predictor": each.predictor,
                    "title": each.title,
                    **{
                        name: _number(getattr(each, name))
                        for name in ("kendall", "low", "high", "worst", "regret", "regret_share", "missing")
                    },
                    "cells": {
                        name: {
                            "kendall": _number(found.kendall),
                            "interval": [_number(end) for end in found.intervals["kendall"]],
                            "spearman": _number(found.spearman),
                            "pearson": _number(found.pearson),
                        }
                        for name, found in each.cells.items()
                    },
                }
                for each in self.leaderboard
            ],
        }


def analyse(cells: Sequence[Cell], *, measure: str | None = None, seed: int = 0) -> StudyAnalysis:
    """Compare every predictor with what training gave, cell by cell and over all cells.

    Args:
        cells: of `read_cells`; a cell with fewer than three finished sources is left out.
        measure: None: the first of each cell's settings.
        seed: of the bootstraps.

    Raises:
        InputError: no cell has three sources that are scored and trained, or none has the measure.
    """
    usable = [cell for cell in cells if len(cell.sources) > 2]
    if not usable:
        raise InputError("no cell of the study has three sources that are scored and trained; let it go on")
    measure = measure or str(usable[0].facts["settings"]["measures"][0])
    if lacking := [cell.name for cell in usable if any(measure not in cell.outcomes[each] for each in cell.sources)]:
        known = sorted({name for cell in usable for source in cell.sources for name in cell.outcomes[source]})
        raise InputError(f"{', '.join(lacking)} have no {measure}; measured were {', '.join(known)}")
    rng = np.random.default_rng(seed)
    outcomes = {cell.name: _outcomes(cell, measure, rng) for cell in usable}
    standings = [found for name in PREDICTORS if (found := _standing(name, usable, measure, rng)) is not None]
    standings.sort(key=lambda each: (each.missing > 0, -each.kendall))
    ceiling = {cell.name: _ceiling(_results(cell, cell.sources, measure), rng) for cell in usable}
    return StudyAnalysis(measure, tuple(usable), outcomes, tuple(standings), ceiling)


def _results(cell: Cell, names: Sequence[str], measure: str) -> Floats:
    """(sources, seeds) means over queries, of the seeds that all have."""
    means = cell.means(measure)
    common = min(len(means[name]) for name in names)
    return np.stack([means[name][:common] for name in names])


def _outcomes(cell: Cell, measure: str, rng: np.random.Generator) -> tuple[Outcome, ...]:
    found = []
    for name in [*(each for each in BASELINES if each in cell.outcomes), *cell.sources]:
        values = cell.outcomes[name][measure]
        seeds, queries = values.shape
        draws = np.empty(RESAMPLES)
        for index in range(RESAMPLES):
            of_queries = rng.integers(queries, size=queries)
            draws[index] = values[rng.integers(seeds, size=seeds)].mean(axis=0)[of_queries].mean()
        low, high = np.quantile(draws, [0.025, 0.975])
        means = tuple(float(value) for value in values.mean(axis=1))
        found.append(Outcome(name, float(values.mean()), float(low), float(high), means))
    return tuple(sorted(found, key=lambda each: -each.mean))


def _standing(name: str, cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> Standing | None:
    within: dict[str, Agreement] = {}
    pairs: list[tuple[Floats, Floats]] = []
    regrets, shares = [], []
    for cell in cells:
        if not all(name in cell.predictors[source] for source in cell.sources):
            continue
        predicted = np.array([cell.predictors[source][name] for source in cell.sources])
        results = _results(cell, cell.sources, measure)
        within[cell.name] = agreement(predicted, results, rng=rng, resamples=RESAMPLES)
        pairs.append((predicted, results))
        reached = results.mean(axis=1)
        lost = float(reached.max() - reached[predicted == predicted.max()].mean())
        regrets.append(lost)
        shares.append(lost / float(np.ptp(reached)) if np.ptp(reached) else 0.0)
    if not within:
        return None
    taus = np.nan_to_num([found.kendall for found in within.values()])  # all alike: it orders nothing
    draws = np.array([[_resampled(*pair, rng) for pair in pairs] for _ in range(RESAMPLES)])
    means = draws[np.isfinite(draws).all(axis=1)].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975]) if len(means) else (math.nan, math.nan)
    return Standing(
        name,
        PREDICTORS[name],
        within,
        float(np.mean(taus)),
        float(low),
        float(high),
        float(np.min(taus)),
        float(np.mean(regrets)),
        float(np.mean(shares)),
        len(cells) - len(within),
    )


def _resampled(predicted: Floats, results: Floats, rng: np.random.Generator) -> float:
    """Kendall's τ of a bootstrap draw of sources and seeds; a source drawn twice ties with itself in both."""
    sources, seeds = results.shape
    rows = rng.integers(sources, size=sources)
    means = results[:, rng.integers(seeds, size=seeds)].mean(axis=1)
    return kendall_tau(predicted[rows], means[rows])


def _ceiling(results: Floats, rng: np.random.Generator) -> float:
    seeds = results.shape[1]
    if seeds < 2:
        return math.nan
    found = []
    for _ in range(20):
        order = rng.permutation(seeds)
        half = order[: seeds // 2], order[seeds // 2 :]
        found.append(kendall_tau(*(results[:, part].mean(axis=1) for part in half)))
    return math.nan if np.isnan(found).all() else float(np.nanmean(found))


def _number(value: float) -> float | None:
    return None if not math.isfinite(value) else value
