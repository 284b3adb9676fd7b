"""What a study says: how each predictor's order of the sources agrees with what training gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.data.store import without_nan
from foils.runtime.errors import InputError
from foils.statistics.agreement import Agreement, agreement, kendall_tau, resampled_taus
from foils.studies.cells import Cell, told_apart
from foils.studies.outcomes import RESAMPLES, Floats, Lead, Outcome, lead_of, outcomes_of, resampled
from foils.studies.predictors import PREDICTORS
from foils.studies.verdict import chance_of_best, headline, warnings_of


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
        cells: in order, those with two sources or more. `outcomes`: cell → results, best first, baselines among them.
        leads: cell → by how much its best source is ahead of the next.
        leaderboard: predictors, those that hold in every cell first, by mean τ over the cells of three sources or more;
            empty where there is none.
        ceiling: cell of three sources or more → Kendall's τ of one half of the seeds with the other, the mean over
            splits: how far even the result agrees with itself; NaN with one seed.
        chance: how often the best of all predictors does as well on random orders of the sources; NaN without one.
    """

    measure: str
    cells: tuple[Cell, ...]
    outcomes: dict[str, tuple[Outcome, ...]]
    leads: dict[str, Lead]
    leaderboard: tuple[Standing, ...]
    ceiling: dict[str, float]
    chance: float

    @property
    def headline(self) -> str:
        """What the study says in a few sentences, or that nothing can be told, and why."""
        return headline(self)

    @property
    def warnings(self) -> list[str]:
        """Cells where training moved the measure by less than its interval."""
        return warnings_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, null for what is not a number."""
        return {
            "measure": self.measure,
            "headline": self.headline,
            "warnings": self.warnings,
            "chance": _number(self.chance),
            "cells": [
                {
                    "name": cell.name,
                    "collection": cell.facts["collection"]["name"],
                    "model": cell.facts["model"]["name"],
                    "settings": cell.facts["settings"],
                    "ceiling": _number(self.ceiling.get(cell.name, math.nan)),
                    "lead": vars(self.leads[cell.name]),
                    "outcomes": [without_nan(vars(outcome)) for outcome in self.outcomes[cell.name]],
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
        cells: of `read_cells`; a cell with fewer than two finished sources is left out, and of two sources only their
            difference is told.
        measure: None: the first of each cell's settings.
        seed: of the bootstraps.

    Raises:
        InputError: no cell has two sources that are scored and trained, or none has the measure.
    """
    usable = told_apart([cell for cell in cells if len(cell.sources) > 1])
    if not usable:
        raise InputError("no cell of the study has two sources that are scored and trained; let it go on")
    measure = measure or str(usable[0].facts["settings"]["measures"][0])
    if lacking := [cell.name for cell in usable if any(measure not in cell.outcomes[each] for each in cell.sources)]:
        known = sorted({name for cell in usable for source in cell.sources for name in cell.outcomes[source]})
        raise InputError(f"{', '.join(lacking)} have no {measure}; measured were {', '.join(known)}")
    rng = np.random.default_rng(seed)
    outcomes = {cell.name: outcomes_of(cell, measure, rng) for cell in usable}
    leads = {cell.name: lead_of(cell, outcomes[cell.name], measure, rng) for cell in usable}
    ordered = [cell for cell in usable if len(cell.sources) > 2]
    standings = [found for name in PREDICTORS if (found := _standing(name, ordered, measure, rng)) is not None]
    standings.sort(key=lambda each: (each.missing > 0, -each.kendall))
    ceiling = {cell.name: _ceiling(_results(cell, cell.sources, measure), rng) for cell in ordered}
    chance = _chance(standings, ordered, measure, rng)
    return StudyAnalysis(measure, tuple(usable), outcomes, leads, tuple(standings), ceiling, chance)


def _chance(standings: Sequence[Standing], cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> float:
    whole = [each for each in standings if not each.missing]
    if not whole:
        return math.nan
    pairs = [
        (
            np.array([[cell.predictors[source][each.predictor] for source in cell.sources] for each in whole]),
            _results(cell, cell.sources, measure).mean(axis=1),
        )
        for cell in cells
    ]
    return chance_of_best(pairs, whole[0].kendall, rng)


def _results(cell: Cell, names: Sequence[str], measure: str) -> Floats:
    """(sources, seeds) means over queries, of the seeds that all have."""
    means = cell.means(measure)
    common = min(len(means[name]) for name in names)
    return np.stack([means[name][:common] for name in names])


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
    means = resampled_means(pairs, rng)
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


def resampled_means(pairs: Sequence[tuple[Floats, Floats]], rng: np.random.Generator) -> Floats:
    """Return the mean Kendall's τ over cells of each bootstrap draw of sources and seeds where every cell has one."""
    sizes = [size for _, results in pairs for size in results.shape]
    drawn = iter(resampled(sizes, RESAMPLES, rng))
    taus = [resampled_taus(*pair, next(drawn), next(drawn)) for pair in pairs]
    means: Floats = np.mean([each[np.isfinite(taus).all(axis=0)] for each in taus], axis=0)
    return means


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
