"""The tables of the experiments, as the program prints them and the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foils.runtime.results import Table, number
from foils.searching.systems import System, deviation, short_range
from foils.statistics import Comparison

if TYPE_CHECKING:
    from foils.searching.findings import Findings

SIGNIFICANT = 0.05
TESTS = (
    "oracle: settings chosen on these very queries; honest: on other folds. Gain over all dimensions, and of Eclipse "
    "over the DIME of its sun. p: Shapiro–Wilk on the paired differences, then the one-sided paired t-test or "
    "Wilcoxon's; Holm over all comparisons of an experiment by one measure, oracles apart."
)
HALVES = "p: paired t-test, two-sided; Holm over the rows of one measure, honest and oracle ones apart."
SHORT = (
    "No feedback: queries that kept every dimension because their list was too short for the settings, or they have no "
    "answer."
)


def findings_tables(findings: Findings) -> list[Table]:
    """Return the tables of each experiment that was run."""
    tables = []
    if findings.filters:
        tables.append(compared_table("Filters", findings.filters, findings))
    if findings.depths:
        tables.append(compared_table("Length of the feedback list", findings.depths, findings))
    if findings.shares:
        tables += [*(share_table(measure, findings) for measure in findings.shares), half_table(findings)]
        tables.append(half_against_dime(findings))
    if findings.moons:
        tables.append(moon_table(findings))
    return tables


def compared_table(title: str, systems: Sequence[System], findings: Findings) -> Table:
    """Return the mean of each system with its gain over all dimensions; significant rows are marked."""
    rows, marked = [], set()
    rivals = any((system.name, system.kind, findings.measures[0]) in findings.against_dime for system in systems)
    for place, system in enumerate(systems):
        cells = [system.title, "–" if system.kept is None else f"{100 * system.kept:.0f} %"]
        for measure in findings.measures:
            test = findings.comparisons.get((system.name, system.kind, measure))
            cells += [f"{system.means[measure]:.4f}", *_tested(test)]
            if rivals:
                cells += _tested(findings.against_dime.get((system.name, system.kind, measure)))
            if test is not None and test.p_holm < SIGNIFICANT:
                marked.add(place)
        rows.append([*cells, short_range([system], findings.measures, findings.queries)])
    over = ("over DIME", "p (Holm)") if rivals else ()
    heads = [head for measure in findings.measures for head in (measure, "gain", "p (Holm)", *over)]
    columns = ["system", "kept", *heads, "no feedback"]
    return Table(_titled(title, findings), columns, rows, f"{TESTS}\n{SHORT}", frozenset(marked))


def share_table(measure: str, findings: Findings) -> Table:
    """Return the mean at each share of dimensions kept, for each filter and kind."""
    filters = findings.shares[measure]
    curves = {f"{name} ({kind})": curve for name, kinds in filters.items() for kind, curve in kinds.items()}
    rows = [
        (f"{share:g}", *(f"{curve[share].means[measure]:.4f}" for curve in curves.values()))
        for share in next(iter(curves.values()))
    ]
    short = (short_range([*curve.values()], [measure], findings.queries) for curve in curves.values())
    caption = f"all dimensions: {findings.baseline.means[measure]:.4f}\n{SHORT}"
    title = _titled(f"{measure} by the share of dimensions kept", findings)
    return Table(title, ["share", *curves], [*rows, ("no feedback", *short)], caption)


def half_table(findings: Findings) -> Table:
    """Return the mean of each filter and kind with half of the dimensions, and its gain."""
    rows = []
    for measure, filters in findings.shares.items():
        for name, kinds in filters.items():
            for kind, curve in kinds.items():
                test = findings.comparisons.get((f"{name}, half", kind, measure))
                short = short_range([curve[0.5]], [measure], findings.queries)
                rows.append([f"{name} ({kind})", measure, f"{curve[0.5].means[measure]:.4f}", *_tested(test), short])
    columns = ["filter", "measure", "mean", "gain", "p (Holm)", "no feedback"]
    return Table(_titled("Half of the dimensions kept", findings), columns, rows, f"{TESTS}\n{SHORT}")


def half_against_dime(findings: Findings) -> Table:
    """Return Eclipse and DIME with half of the dimensions, and the difference in per cent of DIME's mean."""
    rows: list[list[str]] = []
    marked: set[int] = set()
    for (name, kind, measure), test in findings.halves.items():
        systems = [findings.shares[measure][each][kind][0.5] for each in (test.b, name)]
        dime, eclipse = (system.means[measure] for system in systems)
        per_cent = f"{100 * test.difference / dime:+.2f} %" if dime else "–"
        if test.p_holm < SIGNIFICANT:
            marked.add(len(rows))
        short = short_range(systems, [measure], findings.queries)
        cells = [f"{dime:.4f}", f"{eclipse:.4f}", per_cent, number(test.p_holm, 4), short]
        rows.append([f"{name} ({kind})", measure, *cells])
    columns = ["filter", "measure", "DIME", "Eclipse", "difference", "p (Holm)", "no feedback"]
    title = _titled("Half of the dimensions kept, Eclipse against DIME", findings)
    return Table(title, columns, rows, f"{HALVES}\n{SHORT}", frozenset(marked))


def moon_table(findings: Findings) -> Table:
    """Return mean and deviation over runs for each pool of moons."""
    rows = [
        (
            pool,
            str(len(systems)),
            *(_spread([system.means[measure] for system in systems]) for measure in findings.measures),
            short_range(systems, findings.measures, findings.queries),
        )
        for pool, systems in findings.moons.items()
    ]
    columns = ["moon", "runs", *findings.measures, "no feedback"]
    return Table(_titled("Moons", findings), columns, rows, f"mean ± deviation over runs, n − 1\n{SHORT}")


def _titled(title: str, findings: Findings) -> str:
    return f"{title}, {findings.collection} ({findings.split})"


def _tested(test: Comparison | None) -> list[str]:
    return ["–", "–"] if test is None else [f"{test.difference:+.4f}", number(test.p_holm, 4)]


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f}" + (f" ± {deviation(values):.4f}" if len(values) > 1 else "")
