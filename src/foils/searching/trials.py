"""The experiments by name, as `sweep` runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foils.data.collection import Rows
from foils.searching.bench import MEASURES, Bench, prepare
from foils.searching.compared import MoonTest, compare_halves, compare_moons, compare_with_others
from foils.searching.examples import find_examples
from foils.searching.experiments import (
    DEPTHS,
    at_best,
    by_moon,
    by_share,
    compare_filters,
    depth_values,
    everything,
    honest_and_oracle,
    sun_values,
)
from foils.searching.findings import Findings
from foils.searching.grids import Grid, dime_grid
from foils.searching.runs import Embedded
from foils.searching.settings import DimensionSettings, SearchSettings
from foils.searching.systems import Kind, System
from foils.searching.tune import GridValues, cross_validate, oracle


@dataclass(frozen=True)
class Trial:
    """What the experiments share.

    Attributes:
        bench: queries with everything retrieved for them.
        settings: of Eclipse, for moons drawn at random; None: those that are chosen from the grid.
        grid: Eclipse's settings to choose from.
        folds: of the cross-validation.
        rng: deals queries to folds, draws moons and resamples.
    """

    bench: Bench
    settings: DimensionSettings | None
    grid: Grid
    folds: int
    rng: np.random.Generator

    @cached_property
    def values(self) -> dict[str, GridValues]:
        """What the grids score, with feedback for the sun and, where there are some, with answers."""
        return sun_values(self.bench, {"DIME": dime_grid(), "Eclipse": self.grid}, rng=self.rng)


def run_experiments(
    name: str,
    embedded: Embedded,
    settings: DimensionSettings | None,
    grid: Grid,
    *,
    searching: SearchSettings,
    rng: np.random.Generator,
    measures: Sequence[str] = MEASURES,
    folds: int = 5,
) -> Findings:
    """Run an experiment, and test what it compares against all dimensions, and Eclipse against DIME.

    Args:
        name: of `EXPERIMENTS`, or `all`.
        embedded: vectors of a split.
        settings: of Eclipse, for moons drawn at random; None: those that are chosen from the grid, by each measure.
        grid: Eclipse's settings to choose from.
        searching: how many documents count, make the feedback, and are ranked again.
        rng: deals queries to folds, draws moons and resamples.
        measures: by which systems are compared.
        folds: of the cross-validation.

    Raises:
        InputError: what `prepare` and the experiments refuse.
    """
    chosen = EXPERIMENTS if name == "all" else {name: EXPERIMENTS[name]}
    bench = prepare(
        embedded,
        k=searching.top,
        feedback_depth=searching.feedback_depth,
        rerank_depth=searching.rerank_depth,
        longest=min(len(embedded.documents), max(DEPTHS)) if "depths" in chosen else 0,
        measures=measures,
    )
    findings = Findings(
        collection=embedded.collection.name,
        split=embedded.split,
        queries=len(bench.lists),
        measures=measures,
        baseline=everything(bench),
    )
    trial = Trial(bench, settings, grid, folds, rng)
    for experiment in chosen.values():
        findings = experiment(trial, findings)
    return findings


def _filters(trial: Trial, findings: Findings) -> Findings:
    values = trial.values  # before folds are dealt
    systems = compare_filters(trial.bench, values, rng=trial.rng, folds=trial.folds)
    return _tested(replace(findings, filters=systems), systems[1:], trial.rng)


def _shares(trial: Trial, findings: Findings) -> Findings:
    grids = trial.values
    deal = int(trial.rng.integers(2**32))
    shares = {
        measure: {
            name: {
                "oracle": by_share(values, measure),
                "honest": by_share(values, measure, rng=np.random.default_rng(deal), folds=trial.folds),
            }
            for name, values in grids.items()
        }
        for measure in findings.measures
    }
    halves = [
        System(f"{name}, half", kind, {m: of[name][kind][0.5].per_query[m] for m, of in shares.items()})
        for kind in ("honest", "oracle")
        for name in grids
    ]
    against_dime = compare_halves(shares, rng=trial.rng)
    return _tested(replace(findings, shares=shares, halves=against_dime), halves, trial.rng)


def _depths(trial: Trial, findings: Findings) -> Findings:
    values = depth_values(trial.bench, trial.grid, rng=trial.rng)
    systems = honest_and_oracle(values, rng=trial.rng, folds=trial.folds)
    shares = {
        m: {name: {"re-tuned": by_share(of, m), "fixed": at_best(of, m)} for name, of in values.items()}
        for m in findings.measures
    }
    return _tested(replace(findings, depths=systems, depth_shares=shares), systems, trial.rng)


def _moons(trial: Trial, findings: Findings) -> Findings:
    moons: dict[str, list[System]] = {}
    tests: dict[tuple[str, str], MoonTest] = {}
    for sun, answers in trial.bench.suns.items():
        for kind, settings, fold in _chosen(trial, findings.measures, sun):
            drawn = by_moon(trial.bench, settings, rng=trial.rng, fold=fold, kind=kind, answers=answers)
            names = {pool: f"{sun} {pool}" + (f" ({kind})" if kind != "fixed" else "") for pool in drawn}
            moons |= {names[pool]: systems for pool, systems in drawn.items()}
            compared = compare_moons(drawn, rng=trial.rng)
            tests |= {(names[pool], measure): test for (pool, measure), test in compared.items()}
    return replace(findings, moons=moons, moon_tests=tests)


def _chosen(
    trial: Trial, measures: Sequence[str], sun: str
) -> list[tuple[Kind, dict[str, list[DimensionSettings]], Rows | None]]:
    """How the settings of a sun's moons were chosen, these for each measure and fold, and the fold of each query."""
    if trial.settings is not None:
        return [("fixed", {measure: [trial.settings] for measure in measures}, None)]
    values, deal = trial.values[f"{sun} Eclipse"], int(trial.rng.integers(2**32))
    both: list[tuple[Kind, dict[str, list[DimensionSettings]], Rows | None]] = []
    for kind in ("honest", "oracle"):
        tuned = [
            oracle(values, measure)
            if kind == "oracle"
            else cross_validate(values, measure, rng=np.random.default_rng(deal), folds=trial.folds)
            for measure in measures
        ]
        both.append((tuned[0].kind, {of.measure: of.settings for of in tuned}, tuned[0].fold))
    return both


def _queries(trial: Trial, findings: Findings) -> Findings:
    return replace(findings, examples=find_examples(trial.bench, trial.values, rng=trial.rng))


EXPERIMENTS: dict[str, Callable[[Trial, Findings], Findings]] = {
    "filters": _filters,
    "shares": _shares,
    "depths": _depths,
    "moons": _moons,
    "queries": _queries,
}


def _tested(findings: Findings, systems: Sequence[System], rng: np.random.Generator) -> Findings:
    """Add the tests of an experiment's systems, corrected together."""
    against_all, against_dime = compare_with_others(findings.baseline, systems, rng=rng)
    return replace(
        findings,
        comparisons={**findings.comparisons, **against_all},
        against_dime={**findings.against_dime, **against_dime},
    )
