"""The experiments by name, as `search` runs them in place of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foils.searching.bench import MEASURES, Bench, grid_values, mask_values, prepare
from foils.searching.experiments import by_moon, by_share, compare_filters, depth_values, honest_and_oracle
from foils.searching.findings import Findings
from foils.searching.grids import Grid, dime_grid
from foils.searching.runs import Embedded
from foils.searching.settings import DimensionSettings, SearchSettings
from foils.searching.systems import System
from foils.searching.tune import GridValues
from foils.statistics import compare_systems


@dataclass(frozen=True)
class Trial:
    """What the experiments share.

    Attributes:
        bench: queries with everything retrieved for them.
        settings: of Eclipse, for moons drawn at random.
        grid: Eclipse's settings to choose from.
        measures: by which systems are compared.
        feedback_depth: length of the feedback, where that is not what is compared.
        folds: of the cross-validation.
        rng: deals queries to folds, draws moons and resamples.
    """

    bench: Bench
    settings: DimensionSettings
    grid: Grid
    measures: Sequence[str]
    feedback_depth: int
    folds: int
    rng: np.random.Generator

    @cached_property
    def grids(self) -> dict[str, Grid]:
        """The grid of each filter that has settings to choose."""
        return {"DIME": dime_grid(), "Eclipse": self.grid}

    @cached_property
    def values(self) -> dict[str, GridValues]:
        """What the grids score, with feedback for the sun and, where there are some, with answers."""
        return {
            f"{sun} {name}": grid_values(
                self.bench,
                grid,
                measures=self.measures,
                feedback_depth=self.feedback_depth,
                answers=answers,
                rng=self.rng,
            )
            for name, grid in self.grids.items()
            for sun, answers in self.bench.suns.items()
        }


def run_experiments(
    name: str,
    embedded: Embedded,
    settings: DimensionSettings,
    grid: Grid,
    *,
    searching: SearchSettings,
    rng: np.random.Generator,
    measures: Sequence[str] = MEASURES,
    folds: int = 5,
) -> Findings:
    """Run an experiment, and test what it compares against all dimensions.

    Args:
        name: of `EXPERIMENTS`, or `all`.
        embedded: vectors of a split.
        settings: of Eclipse, for moons drawn at random.
        grid: Eclipse's settings to choose from.
        searching: how many documents count, make the feedback, and are ranked again.
        rng: deals queries to folds, draws moons and resamples.
        measures: by which systems are compared.
        folds: of the cross-validation.

    Raises:
        InputError: what `prepare` and the experiments refuse.
    """
    chosen = EXPERIMENTS if name == "all" else {name: EXPERIMENTS[name]}
    longest = len(embedded.documents) if "depths" in chosen else searching.feedback_depth
    bench = prepare(embedded, k=searching.top, feedback_depth=longest, rerank_depth=searching.rerank_depth)
    everything = mask_values(bench, np.ones(bench.embedded.queries.shape, bool), measures)
    findings = Findings(
        collection=embedded.collection.name,
        split=embedded.split,
        queries=len(bench.lists),
        measures=measures,
        baseline=System("baseline", "fixed", everything, kept=1.0),
    )
    trial = Trial(bench, settings, grid, measures, searching.feedback_depth, folds, rng)
    for experiment in chosen.values():
        findings = experiment(trial, findings)
    return findings


def _filters(trial: Trial, findings: Findings) -> Findings:
    values = trial.values  # before folds are dealt
    systems = compare_filters(
        trial.bench,
        trial.grids,
        rng=trial.rng,
        measures=trial.measures,
        folds=trial.folds,
        feedback_depth=trial.feedback_depth,
        tuned=values,
    )
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
        for measure in trial.measures
    }
    halves = [
        System(f"{name}, half", kind, {m: shares[m][name][kind][0.5].per_query[m] for m in trial.measures})
        for kind in ("honest", "oracle")
        for name in grids
    ]
    return _tested(replace(findings, shares=shares), halves, trial.rng)


def _depths(trial: Trial, findings: Findings) -> Findings:
    values = {
        f"{sun} {depth}": of_depth
        for sun, answers in trial.bench.suns.items()
        for depth, of_depth in depth_values(
            trial.bench, trial.grid, rng=trial.rng, measures=trial.measures, answers=answers
        ).items()
    }
    systems = honest_and_oracle(values, rng=trial.rng, measures=trial.measures, folds=trial.folds)
    shares = {m: {name: by_share(of_depth, m) for name, of_depth in values.items()} for m in trial.measures}
    return _tested(replace(findings, depths=systems, depth_shares=shares), systems, trial.rng)


def _moons(trial: Trial, findings: Findings) -> Findings:
    moons = {
        f"{sun} {pool}": systems
        for sun, answers in trial.bench.suns.items()
        for pool, systems in by_moon(
            trial.bench,
            trial.settings,
            rng=trial.rng,
            measures=trial.measures,
            feedback_depth=trial.feedback_depth,
            answers=answers,
        ).items()
    }
    return replace(findings, moons=moons)


EXPERIMENTS: dict[str, Callable[[Trial, Findings], Findings]] = {
    "filters": _filters,
    "shares": _shares,
    "depths": _depths,
    "moons": _moons,
}


def _tested(findings: Findings, systems: Sequence[System], rng: np.random.Generator) -> Findings:
    """Add tests against all dimensions, as published; Holm's correction leaves oracles apart."""
    tests = dict(findings.comparisons)
    for kinds in (("fixed", "honest"), ("oracle",)):
        named = {system.name: system for system in systems if system.kind in kinds}
        if named:
            values = {"baseline": findings.baseline.per_query, **{name: s.per_query for name, s in named.items()}}
            for test in compare_systems(values, rng=rng, against=["baseline"], alternative="greater"):
                tests[test.a, named[test.a].kind, test.measure] = test
    return replace(findings, comparisons=tests)
