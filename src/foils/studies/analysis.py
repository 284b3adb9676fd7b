"""Compare predictors with training: how each predictor's order of the sources agrees with what training gave."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foils.runtime.errors import InputError
from foils.statistics.agreement import Agreement, agreement, kendall_tau, rank_stability, resampled_taus
from foils.studies.cells import Cell, results_of, told_apart
from foils.studies.outcomes import RESAMPLES, Floats, lead_of, outcomes_of, resampled
from foils.studies.predictors import PREDICTORS
from foils.studies.reliability import counts, reliability_of
from foils.studies.results import Standing, StudyAnalysis
from foils.studies.verdict import chance_of_best


def analyse(
    cells: Sequence[Cell],
    *,
    measure: str | None = None,
    reliable: bool = False,
    seed: int = 0,
    commands: Sequence[str] = (),
) -> StudyAnalysis:
    """Compare every predictor with what training gave, cell by cell and over all cells.

    Args:
        cells: of `read_cells`; a cell with fewer than two finished sources is left out, and of two sources only their
            difference is told.
        measure: None: the first of each cell's settings.
        reliable: compare predictors in reliable cells alone; else in all that are not flat.
        seed: of the bootstraps.
        commands: that made the cells, for the page.

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
    several = [cell for cell in usable if len(cell.sources) > 2]
    reliability = {cell.name: reliability_of(results_of(cell, cell.sources, measure)) for cell in several}
    ordered = [cell for cell in several if counts(reliability[cell.name], only_reliable=reliable)]
    every = [_standing(name, ordered, measure, rng) for name in PREDICTORS]
    standings = sorted((each for each in every if each is not None), key=lambda each: (each.missing > 0, -each.kendall))
    chance = _chance(standings, ordered, measure, rng)
    return StudyAnalysis(
        measure, tuple(usable), outcomes, leads, tuple(standings), reliability, chance, tuple(dict.fromkeys(commands)),
        only_reliable=reliable,
    )  # fmt: skip


def _chance(standings: Sequence[Standing], cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> float:
    whole = [each for each in standings if not each.missing]
    if not whole:
        return math.nan
    pairs = [
        (
            np.array([[cell.predictors[source][each.predictor] for source in cell.sources] for each in whole]),
            results_of(cell, cell.sources, measure).mean(axis=1),
        )
        for cell in cells
    ]
    return chance_of_best(pairs, whole[0].kendall, rng)


def _standing(name: str, cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> Standing | None:
    agreements: dict[str, Agreement] = {}
    pairs: list[tuple[Floats, Floats]] = []
    regrets, shares = [], []
    within, stability = dict[str, float](), dict[str, float]()
    for cell in cells:
        if not all(name in cell.predictors[source] for source in cell.sources):
            continue
        predicted = np.array([cell.predictors[source][name] for source in cell.sources])
        results = results_of(cell, cell.sources, measure)
        agreements[cell.name] = agreement(predicted, results, rng=rng, resamples=RESAMPLES)
        pairs.append((predicted, results))
        reached = results.mean(axis=1)
        within[cell.name] = _within(predicted, reached, cell.parts)
        stability[cell.name] = rank_stability(predicted, reached, settings=cell.parts)
        lost = float(reached.max() - reached[predicted == predicted.max()].mean())
        regrets.append(lost)
        shares.append(lost / float(np.ptp(reached)) if np.ptp(reached) else 0.0)
    if not agreements:
        return None
    taus = np.nan_to_num([each.kendall for each in agreements.values()])  # all alike: it orders nothing
    means = resampled_means(pairs, rng)
    low, high = np.quantile(means, [0.025, 0.975]) if len(means) else (math.nan, math.nan)
    return Standing(
        predictor=name,
        title=PREDICTORS[name],
        cells=agreements,
        within=within,
        stability=stability,
        kendall=float(np.mean(taus)),
        low=float(low),
        high=float(high),
        worst=float(np.min(taus)),
        regret=float(np.mean(regrets)),
        regret_share=float(np.mean(shares)),
        missing=len(cells) - len(agreements),
    )


def _within(predicted: Floats, reached: Floats, parts: Sequence[int]) -> float:
    """Mean τ over the settings (single sources, hybrids of two, …) of two sources or more; NaN where none has a τ."""
    own = [np.array(parts) == each for each in dict.fromkeys(parts)]
    taus = [kendall_tau(predicted[chosen], reached[chosen]) for chosen in own if chosen.sum() > 1]
    return float(np.nanmean(taus)) if taus and not np.isnan(taus).all() else math.nan


def resampled_means(pairs: Sequence[tuple[Floats, Floats]], rng: np.random.Generator) -> Floats:
    """Return the mean Kendall's τ over cells of each bootstrap draw of sources and seeds where every cell has one."""
    sizes = [size for _, results in pairs for size in results.shape]
    drawn = iter(resampled(sizes, RESAMPLES, rng))
    taus = [resampled_taus(*pair, next(drawn), next(drawn)) for pair in pairs]
    means: Floats = np.mean([each[np.isfinite(taus).all(axis=0)] for each in taus], axis=0)
    return means
