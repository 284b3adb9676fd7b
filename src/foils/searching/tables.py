"""The tables of the experiments, as the program prints them and the page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foils.runtime.results import Table, number
from foils.searching.compared import MARGIN
from foils.searching.systems import System, deviation, whole_range
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
EXAMPLES = "First those that gain most, then those that lose most, each filter at its best setting by AP (oracle)."
UNMASKED = "kept all"
SHORT = (
    "Kept all: queries that kept every dimension; in brackets those whose list was too short for the settings, or that "
    "have no answer."
)
WAYS = (
    "oracle; re-tuned: depths and weights are the best at each share; fixed: those of the best setting, at every share."
)
MOONS = (
    "Mean ± deviation over draws, n − 1; exact: the last k⁻, against which each query's mean over the draws is tested. "
    "p differs: Shapiro–Wilk, then the two-sided paired t-test or Wilcoxon's; p as good: one-sided paired t-test that "
    f"less than {MARGIN} is lost. Holm over the pools of a measure, sun and kind."
)


def findings_tables(findings: Findings) -> list[Table]:
    """Return the tables of each experiment that was run."""
    tables = []
    if findings.filters:
        tables.append(compared_table("Filters", findings.filters, findings))
    if findings.depths:
        tables.append(compared_table("Length of the feedback list", findings.depths, findings))
        tables += depth_tables(findings)
    if findings.shares:
        tables += [*(share_table(measure, findings) for measure in findings.shares), half_table(findings)]
        tables.append(half_against_dime(findings))
    if findings.moons:
        tables.append(moon_table(findings))
    if findings.examples is not None:
        tables.append(example_table(findings))
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
        rows.append([*cells, whole_range([system], findings.measures, findings.queries)])
    over = ("over DIME", "p (Holm)") if rivals else ()
    heads = [head for measure in findings.measures for head in (measure, "gain", "p (Holm)", *over)]
    columns = ["system", "kept", *heads, UNMASKED]
    return Table(_titled(title, findings), columns, rows, f"{TESTS}\n{SHORT}", frozenset(marked))


def depth_tables(findings: Findings) -> list[Table]:
    """Return the mean at each share of dimensions kept, for each length of the feedback list; a table a sun."""
    tables = []
    for measure, depths in findings.depth_shares.items():
        for sun in dict.fromkeys(name.partition(" ")[0] for name in depths):
            curves = {
                f"{name} ({way})": curve
                for name, ways in depths.items()
                for way, curve in ways.items()
                if name.startswith(f"{sun} ")
            }
            title = f"{sun} Eclipse, {measure} by the share of dimensions kept and the length of the feedback list"
            tables.append(_by_share(title, measure, curves, findings, WAYS))
    return tables


def share_table(measure: str, findings: Findings) -> Table:
    """Return the mean at each share of dimensions kept, for each filter and kind."""
    filters = findings.shares[measure]
    curves = {f"{name} ({kind})": curve for name, kinds in filters.items() for kind, curve in kinds.items()}
    return _by_share(f"{measure} by the share of dimensions kept", measure, curves, findings)


def _by_share(
    title: str, measure: str, curves: Mapping[str, Mapping[float, System]], findings: Findings, *more: str
) -> Table:
    rows = [
        (f"{share:g}", *(f"{curve[share].means[measure]:.4f}" for curve in curves.values()))
        for share in next(iter(curves.values()))
    ]
    counts = (whole_range(_below_1(curve), [measure], findings.queries) for curve in curves.values())
    caption = "\n".join([f"all dimensions: {findings.baseline.means[measure]:.4f}", *more, SHORT])
    return Table(_titled(title, findings), ["share", *curves], [*rows, (f"{UNMASKED}, below 1", *counts)], caption)


def half_table(findings: Findings) -> Table:
    """Return the mean of each filter and kind with half of the dimensions, and its gain."""
    rows = []
    for measure, filters in findings.shares.items():
        for name, kinds in filters.items():
            for kind, curve in kinds.items():
                test = findings.comparisons.get((f"{name}, half", kind, measure))
                counts = whole_range([curve[0.5]], [measure], findings.queries)
                rows.append([f"{name} ({kind})", measure, f"{curve[0.5].means[measure]:.4f}", *_tested(test), counts])
    columns = ["filter", "measure", "mean", "gain", "p (Holm)", UNMASKED]
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
        cells = [f"{dime:.4f}", f"{eclipse:.4f}", per_cent, number(test.p_holm, 4)]
        rows.append([f"{name} ({kind})", measure, *cells, whole_range(systems, [measure], findings.queries)])
    columns = ["filter", "measure", "DIME", "Eclipse", "difference", "p (Holm)", UNMASKED]
    title = _titled("Half of the dimensions kept, Eclipse against DIME", findings)
    return Table(title, columns, rows, f"{HALVES}\n{SHORT}", frozenset(marked))


def moon_table(findings: Findings) -> Table:
    """Return mean and deviation over runs for each pool of moons, tested against the last k⁻; a row a measure."""
    rows: list[list[str]] = []
    marked: set[int] = set()
    for measure in findings.measures:
        for pool, systems in findings.moons.items():
            test = findings.moon_tests.get((pool, measure))
            cells = ["–"] * 4
            if test is not None:
                of = test.difference
                interval = f"[{number(of.low, 4)}, {number(of.high, 4)}]"
                cells = [f"{of.difference:+.4f}", interval, number(of.p_holm, 4), number(test.as_good_holm, 4)]
                if test.as_good_holm < SIGNIFICANT:
                    marked.add(len(rows))
            mean = _spread([system.means[measure] for system in systems])
            rows.append(
                [pool, measure, str(len(systems)), mean, *cells, whole_range(systems, [measure], findings.queries)]
            )
    columns = ["moon", "measure", "runs", "mean", "difference", "95 % interval", "p differs", "p as good", UNMASKED]
    return Table(_titled("Moons", findings), columns, rows, f"{MOONS}\n{SHORT}", frozenset(marked))


def example_table(findings: Findings) -> Table:
    """Return the queries that Eclipse changes most against DIME, with the first documents of either."""
    rows = [
        (
            example.query if at == place == 0 else "",
            ranked.name if place == 0 else "",
            f"{ranked.value:.4f}" if place == 0 else "",
            str(place + 1),
            str(grade) if grade else "–",
            text,
        )
        for example in findings.examples or ()
        for at, ranked in enumerate(example.rankings)
        for place, (_, text, grade) in enumerate(ranked.documents)
    ]
    columns = ["query", "filter", "AP", "rank", "grade", "document"]
    title = _titled("Queries that Eclipse changes most against DIME", findings)
    return Table(title, columns, rows, EXAMPLES, words=frozenset({0, columns.index("document")}))


def _below_1(curve: Mapping[float, System]) -> list[System]:
    """The systems of a curve that leave something out; where there are none, all."""
    return [system for share, system in curve.items() if share < 1] or [*curve.values()]


def _titled(title: str, findings: Findings) -> str:
    return f"{title}, {findings.collection} ({findings.split})"


def _tested(test: Comparison | None) -> list[str]:
    return ["–", "–"] if test is None else [f"{test.difference:+.4f}", number(test.p_holm, 4)]


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f}" + (f" ± {deviation(values):.4f}" if len(values) > 1 else "")
