"""foils search --experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli.search_findings import plain_findings, show_findings
from foils.cli.search_options import DepthOptions, TuneOptions
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np

    from foils.pages.search import Findings
    from foils.searching import Bench, DimensionSettings, Embedded, Grid, GridValues, System
    from foils.statistics import Comparison

EXPERIMENTS = ("filters", "shares", "depths", "moons", "all")


@dataclass(frozen=True)
class ExperimentOptions:
    """What is run in place of a search."""

    experiment: Annotated[
        str | None, typer.Option(help="In place of a search: filters, shares, depths, moons, or all of them.")
    ] = None
    folds: Annotated[int, typer.Option(min=2, help="Of the cross-validation in experiments.")] = 5
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --experiment: tables and plots as one HTML page.")
    ] = None

    def check(self) -> None:
        """Raise an InputError for an unknown experiment, or a report of none, before anything is embedded."""
        if self.experiment is not None and self.experiment not in EXPERIMENTS:
            raise UnknownNameError("experiment", self.experiment, EXPERIMENTS)
        if self.report is not None and self.experiment is None:
            raise InputError("--report goes with --experiment")

    def run(
        self,
        embedded: Embedded,
        settings: DimensionSettings,
        tuning: TuneOptions,
        *,
        encoder: str,
        depths: DepthOptions,
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Run the experiment, show and write what it found, and return it for JSON."""
        from foils.searching import MEASURES

        found = run_experiments(
            str(self.experiment),
            embedded,
            settings,
            tuning.grid("eclipse", settings.moon_pool),
            encoder=encoder,
            measures=list(dict.fromkeys([*MEASURES, tuning.measure])),
            depths=depths,
            folds=self.folds,
            rng=rng,
        )
        show_findings(found)
        if self.report:
            from foils.pages.search import write_search_report

            write_search_report(self.report, found)
        return {
            "experiment": self.experiment, "folds": self.folds, "reading": tuning.reading, "measure": tuning.measure,
            "settings": vars(settings), "second_pass": "retrieved", "index": "exact", **depths.facts(reranks=True),
            **plain_findings(found),
        }  # fmt: skip


def run_experiments(
    name: str,
    embedded: Embedded,
    settings: DimensionSettings,
    grid: Grid,
    *,
    encoder: str,
    measures: Sequence[str],
    depths: DepthOptions,
    folds: int,
    rng: np.random.Generator,
) -> Findings:
    """Run one experiment, or all, and test what there is to test against all dimensions."""
    import numpy as np

    from foils.pages.search import Findings
    from foils.searching import System, mask_values, prepare

    wanted = EXPERIMENTS[:-1] if name == "all" else (name,)
    deep = depths.feedback_depth
    longest = len(embedded.documents) if "depths" in wanted else deep
    bench = prepare(embedded, k=depths.top, feedback_depth=longest, rerank_depth=depths.rerank_depth)
    values = mask_values(bench, np.ones(bench.embedded.queries.shape, bool), measures)
    found = Findings(
        embedded.collection.name,
        embedded.split,
        encoder,
        len(bench.lists),
        measures,
        System("baseline", "fixed", values, kept=1.0),
    )
    grids = _values(bench, grid, measures, deep, rng) if {"filters", "shares"} & set(wanted) else {}
    if "filters" in wanted:
        found = _filters(found, bench, grid, grids, deep, folds, rng)
    if "shares" in wanted:
        found = _shares(found, grids, folds, rng)
    if "depths" in wanted:
        found = _depths(found, bench, grid, folds, rng)
    if "moons" in wanted:
        found = replace(found, moons=_moons(found, bench, settings, deep, rng))
    return found


def _values(
    bench: Bench, grid: Grid, measures: Sequence[str], feedback_depth: int, rng: np.random.Generator
) -> dict[str, GridValues]:
    """Values of DIME's grid and of Eclipse's, with feedback for the sun and, where there are some, with answers."""
    from foils.searching import dime_grid, grid_values

    return {
        f"{sun} {label}": grid_values(
            bench, of, measures=measures, feedback_depth=feedback_depth, answers=answers, rng=rng
        )
        for label, of in (("DIME", dime_grid()), ("Eclipse", grid))
        for sun, answers in bench.suns.items()
    }


def _filters(
    found: Findings,
    bench: Bench,
    grid: Grid,
    grids: Mapping[str, GridValues],
    feedback_depth: int,
    folds: int,
    rng: np.random.Generator,
) -> Findings:
    from foils.searching import compare_filters, dime_grid

    by_label = {"DIME": dime_grid(), "Eclipse": grid}
    systems = compare_filters(
        bench, by_label, rng=rng, measures=found.measures, folds=folds, feedback_depth=feedback_depth, tuned=grids
    )
    return replace(found, filters=systems, comparisons={**found.comparisons, **_tests(found, systems[1:], rng)})


def _shares(found: Findings, grids: Mapping[str, GridValues], folds: int, rng: np.random.Generator) -> Findings:
    import numpy as np

    from foils.searching import System, by_share

    deal = int(rng.integers(2**32))
    shares = {
        measure: {
            name: {
                "oracle": by_share(values, measure),
                "honest": by_share(values, measure, rng=np.random.default_rng(deal), folds=folds),
            }
            for name, values in grids.items()
        }
        for measure in found.measures
    }
    halves = [
        System(f"{name}, half", kind, {m: shares[m][name][kind][0.5].per_query[m] for m in found.measures})
        for kind in ("honest", "oracle")
        for name in grids
    ]
    return replace(found, shares=shares, comparisons={**found.comparisons, **_tests(found, halves, rng)})


def _depths(found: Findings, bench: Bench, grid: Grid, folds: int, rng: np.random.Generator) -> Findings:
    from foils.searching import by_share, depth_values, honest_and_oracle

    values = {
        f"{sun} {depth}": of
        for sun, answers in bench.suns.items()
        for depth, of in depth_values(bench, grid, rng=rng, measures=found.measures, answers=answers).items()
    }
    systems = honest_and_oracle(values, rng=rng, measures=found.measures, folds=folds)
    shares = {m: {name: by_share(of, m) for name, of in values.items()} for m in found.measures}
    tests = _tests(found, systems, rng)
    return replace(found, depths=systems, depth_shares=shares, comparisons={**found.comparisons, **tests})


def _moons(
    found: Findings, bench: Bench, settings: DimensionSettings, feedback_depth: int, rng: np.random.Generator
) -> dict[str, list[System]]:
    from foils.searching import by_moon

    return {
        f"{sun} {pool}": systems
        for sun, answers in bench.suns.items()
        for pool, systems in by_moon(
            bench, settings, rng=rng, measures=found.measures, feedback_depth=feedback_depth, answers=answers
        ).items()
    }


def _tests(
    found: Findings, systems: Sequence[System], rng: np.random.Generator
) -> dict[tuple[str, str, str], Comparison]:
    """Tests against all dimensions as published; Holm's correction within a kind, fixed systems with honest ones."""
    from foils.statistics import compare_systems

    tests: dict[tuple[str, str, str], Comparison] = {}
    for kinds in (("fixed", "honest"), ("oracle",)):
        of = {system.name: system for system in systems if system.kind in kinds}
        if of:
            values = {"baseline": found.baseline.per_query, **{name: s.per_query for name, s in of.items()}}
            for test in compare_systems(values, rng=rng, against=["baseline"], alternative="greater"):
                tests[test.a, of[test.a].kind, test.measure] = test
    return tests
