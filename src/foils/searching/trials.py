"""The experiments by name, as `sweep` runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foils.searching.bench import MEASURES, Bench, prepare
from foils.searching.compared import compare_halves, compare_with_others
from foils.searching.experiments import (
    DEPTHS,
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
from foils.searching.systems import System
from foils.searching.tune import GridValues


@dataclass(frozen=True)
class Trial:
    """What the experiments share.

    Attributes:
        bench: queries with everything retrieved for them.
        settings: of Eclipse, for moons drawn at random.
        grid: Eclipse's settings to choose from.
        folds: of the cross-validation.
        rng: deals queries to folds, draws moons and resamples.
    """

    bench: Bench
    settings: DimensionSettings
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
    settings: DimensionSettings,
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
    shares = {m: {name: by_share(of_depth, m) for name, of_depth in values.items()} for m in findings.measures}
    return _tested(replace(findings, depths=systems, depth_shares=shares), systems, trial.rng)


def _moons(trial: Trial, findings: Findings) -> Findings:
    return replace(findings, moons=by_moon(trial.bench, trial.settings, rng=trial.rng))


EXPERIMENTS: dict[str, Callable[[Trial, Findings], Findings]] = {
    "filters": _filters,
    "shares": _shares,
    "depths": _depths,
    "moons": _moons,
}


def _tested(findings: Findings, systems: Sequence[System], rng: np.random.Generator) -> Findings:
    """Add the tests of an experiment's systems, corrected together."""
    against_all, against_dime = compare_with_others(findings.baseline, systems, rng=rng)
    return replace(
        findings,
        comparisons={**findings.comparisons, **against_all},
        against_dime={**findings.against_dime, **against_dime},
    )
