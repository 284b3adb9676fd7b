"""The report of the experiments on a query's dimensions: which filter helps, how much is kept, from how deep a list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foils.pages.page import Figure, Section, Table, render_page
from foils.searching.figures import gains, moon_means, share_curves
from foils.searching.findings import SHORT, Findings
from foils.searching.systems import System, deviation
from foils.statistics import Comparison

SIGNIFICANT = 0.05


def findings_page(findings: Findings) -> str:
    """Return the report as HTML."""
    sections = []
    if findings.filters:
        sections.append(_system_section("Filters", findings.filters, findings, _FILTERS))
    if findings.shares:
        sections.append(_share_section(findings))
    if findings.depths:
        sections.append(_depth_section(findings))
    if findings.moons:
        sections.append(_moon_section(findings))
    return render_page(
        "Search with the query's useful dimensions",
        subtitle=f"{findings.collection}, split {findings.split}: {findings.queries:,} queries · encoder "
        f"{findings.encoder}",
        verdict=_verdict(findings),
        sections=[*sections, Section("How to read this", (), _READING, folded=True)],
    )


def _verdict(findings: Findings) -> str:
    sentences = []
    fair = [system for system in findings.filters if system.kind != "oracle" and system is not findings.filters[0]]
    for measure in findings.measures if fair else ():
        best = max(fair, key=lambda system: system.means[measure])
        test = findings.comparison(best, measure)
        sure = test is not None and test.p_holm < SIGNIFICANT
        gain = best.means[measure] - findings.baseline.means[measure]
        if gain <= 0:
            sentences.append(
                f"{measure}: no filter beats keeping all dimensions ({findings.baseline.means[measure]:.4f})."
            )
        else:
            sentences.append(
                f"{measure}: {best.title} is best, {best.means[measure]:.4f} against "
                f"{findings.baseline.means[measure]:.4f} with all dimensions; the gain is "
                f"{'significant' if sure else 'not significant'}"
                + (f" ({_p(test.p_holm)} after Holm's correction)." if test is not None else ".")
            )
    return " ".join(sentences) or "Experiments on the dimensions that a query keeps."


def _p(value: float) -> str:
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


def _system_section(title: str, systems: Sequence[System], findings: Findings, prose: Sequence[str]) -> Section:
    figures = [gains(systems, measure, findings) for measure in findings.measures]
    return Section(title, [*figures, _system_table(systems, findings)], prose)


def _system_table(systems: Sequence[System], findings: Findings) -> Table:
    rows, marked = [], set()
    for index, system in enumerate(systems):
        cells = [system.title, "–" if system.kept is None else f"{100 * system.kept:.0f} %"]
        for measure in findings.measures:
            test = findings.comparison(system, measure)
            cells += [f"{system.means[measure]:.4f}", *_tested(test)]
            if test is not None and test.p_holm < SIGNIFICANT:
                marked.add(index)
        rows.append([*cells, findings.without_feedback([system])])
    heads = [head for measure in findings.measures for head in (measure, "gain", "p", "p (Holm)", "test")]
    return Table("", ["system", "kept", *heads, "no feedback"], rows, f"{_CAPTION} {SHORT}", frozenset(marked))


def _tested(test: Comparison | None) -> list[str]:
    if test is None:
        return ["–"] * 4
    return [f"{test.difference:+.4f}", f"{test.p:.4f}", f"{test.p_holm:.4f}", test.test]


def _share_section(findings: Findings) -> Section:
    blocks: list[Figure | Table] = [
        share_curves(filters, measure, findings, f"{measure} by the share of dimensions kept.")
        for measure, filters in findings.shares.items()
    ]
    return Section("Share of dimensions kept", [*blocks, _half_table(findings)], _SHARES)


def _half_table(findings: Findings) -> Table:
    rows = []
    for measure, filters in findings.shares.items():
        for name, kinds in filters.items():
            for kind, curve in kinds.items():
                if 0.5 in curve:
                    test = findings.comparisons.get((f"{name}, half", kind, measure))
                    mean, short = f"{curve[0.5].means[measure]:.4f}", findings.without_feedback([curve[0.5]], measure)
                    rows.append([measure, f"{name} ({kind})", mean, *_tested(test), short])
    heads = ["measure", "filter", "mean", "gain", "p", "p (Holm)", "test", "no feedback"]
    return Table("", heads, rows, f"Half of the dimensions kept. {SHORT}")


def _depth_section(findings: Findings) -> Section:
    blocks: list[Figure | Table] = [
        share_curves(
            {name: {"oracle": curve} for name, curve in curves.items()},
            measure,
            findings,
            f"{measure} by the share of dimensions kept, for each length of the feedback list (oracle).",
            kinds=False,
        )
        for measure, curves in findings.depth_shares.items()
    ]
    return Section("Length of the feedback list", [*blocks, _system_table(findings.depths, findings)], _DEPTHS)


def _moon_section(findings: Findings) -> Section:
    blocks: list[Figure | Table] = []
    rows = []
    for measure in findings.measures:
        means = {pool: [system.means[measure] for system in systems] for pool, systems in findings.moons.items()}
        blocks.append(moon_means(means, measure, findings))
        for pool, runs in means.items():
            spread = f"{deviation(runs):.4f}" if len(runs) > 1 else "–"
            short = findings.without_feedback(findings.moons[pool], measure)
            rows.append([measure, pool, str(len(runs)), f"{np.mean(runs):.4f}", spread, short])
    heads = ["measure", "moon", "runs", "mean", "deviation", "no feedback"]
    blocks.append(Table("", heads, rows, f"Deviation over runs, n − 1. {SHORT}"))
    return Section("Moons drawn at random", blocks, _MOONS)


_CAPTION = (
    "Gain over all dimensions. p: Shapiro–Wilk on the paired differences, then the one-sided paired t-test or "
    "Wilcoxon's; Holm over the comparisons of a measure, honest and oracle ones apart. Marked: below 0.05."
)
_FILTERS = (
    "PRF: the sun is made of the best documents of the first search. LLM: it is the vector of an answer text. "
    "RDIME has nothing to tune. DIME and Eclipse have, and come twice.",
)
_SHARES = (
    "At each share the other settings are chosen: on these very queries (oracle), or on other folds (honest). "
    "At share 1 nothing is left out.",
)
_DEPTHS = ("The moon comes from the end of the feedback list, so its length matters to Eclipse alone.",)
_MOONS = (
    "The moon's documents, drawn at random from the bottom of the feedback list instead of being its very last; "
    "one fixed setting.",
)
_READING = (
    "honest: settings chosen by cross-validation over queries, and measured on the queries held out.",
    "oracle: settings chosen on the queries they are measured on, as published. Where the grid contains share 1, the "
    "oracle can never fall below the baseline, however useless the method.",
    "Documents are ranked again within those that the first search retrieved.",
)
