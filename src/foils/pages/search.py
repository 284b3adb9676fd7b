"""The report of the experiments on a query's dimensions: which filter helps, how much is kept, from how deep a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foils.data.store import write_text
from foils.pages.page import PALETTE, Figure, Section, Table, label, render_page
from foils.searching import System
from foils.statistics import Comparison

Curves = Mapping[str, Mapping[float, System]]  # name -> share -> system
DASHES = {"oracle": "solid", "honest": "dash"}
SIGNIFICANT = 0.05
GREY = "#8a8f94"


@dataclass(frozen=True)
class Findings:
    """What the experiments gave; what was not run is empty.

    Attributes:
        collection: its name.
        split: whose queries.
        encoder: its name.
        queries: how many.
        measures: in the order to show.
        baseline: all dimensions.
        filters: the systems compared, the baseline first.
        shares: measure -> filter -> kind (`oracle`, `honest`) -> share -> system.
        depths: the systems compared, two a depth.
        depth_shares: measure -> depth -> share -> system (oracle).
        moons: pool -> one system a run.
        comparisons: (name, kind, measure) -> test against the baseline.
    """

    collection: str
    split: str
    encoder: str
    queries: int
    measures: Sequence[str]
    baseline: System
    filters: Sequence[System] = ()
    shares: Mapping[str, Mapping[str, Curves]] = field(default_factory=dict)
    depths: Sequence[System] = ()
    depth_shares: Mapping[str, Curves] = field(default_factory=dict)
    moons: Mapping[str, Sequence[System]] = field(default_factory=dict)
    comparisons: Mapping[tuple[str, str, str], Comparison] = field(default_factory=dict)


def write_search_report(path: str | Path, found: Findings) -> None:
    """Write the report as one HTML page, whole.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    write_text(path, search_report(found))


def search_report(found: Findings) -> str:
    """Return the report as HTML."""
    sections = []
    if found.filters:
        sections.append(_system_section("Filters", found.filters, found, _FILTERS))
    if found.shares:
        sections.append(_share_section(found))
    if found.depths:
        sections.append(_depth_section(found))
    if found.moons:
        sections.append(_moon_section(found))
    return render_page(
        "Search with the query's useful dimensions",
        subtitle=f"{found.collection}, split {found.split}: {found.queries:,} queries · encoder {found.encoder}",
        verdict=_verdict(found),
        sections=[*sections, Section("How to read this", (), _READING, folded=True)],
    )


def _verdict(found: Findings) -> str:
    said = []
    fair = [system for system in found.filters if system.kind != "oracle" and system is not found.filters[0]]
    for measure in found.measures if fair else ():
        best = max(fair, key=lambda system: system.means[measure])
        test = found.comparisons.get((best.name, best.kind, measure))
        sure = test is not None and test.p_holm < SIGNIFICANT
        gain = best.means[measure] - found.baseline.means[measure]
        if gain <= 0:
            said.append(f"{measure}: no filter beats keeping all dimensions ({found.baseline.means[measure]:.4f}).")
        else:
            said.append(
                f"{measure}: {titled(best)} is best, {best.means[measure]:.4f} against "
                f"{found.baseline.means[measure]:.4f} with all dimensions; the gain is "
                f"{'significant' if sure else 'not significant'}"
                + (f" ({_p(test.p_holm)} after Holm's correction)." if test is not None else ".")
            )
    return " ".join(said) or "Experiments on the dimensions that a query keeps."


def _p(value: float) -> str:
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


def titled(system: System) -> str:
    """Return a system's name with its kind, where settings were chosen."""
    return system.name if system.kind == "fixed" else f"{system.name} ({system.kind})"


def short_of(systems: Sequence[System], found: Findings, measures: Sequence[str] | None = None) -> str:
    """Return how many of the queries kept every dimension for want of feedback or of an answer: `3 of 225`.

    Where systems or measures differ, because other settings were chosen, the fewest and the most: `0–3 of 225`.
    """
    counts = [system.short_counts[m] for system in systems for m in measures or found.measures]
    least, most = min(counts), max(counts)
    return f"{most:,} of {found.queries:,}" if least == most else f"{least:,}–{most:,} of {found.queries:,}"


def _system_section(title: str, systems: Sequence[System], found: Findings, prose: Sequence[str]) -> Section:
    dots = [_dots(systems, measure, found) for measure in found.measures]
    return Section(title, [*dots, _system_table(systems, found)], prose)


def _dots(systems: Sequence[System], measure: str, found: Findings) -> Figure:
    """Gains over the baseline with 95 % bootstrap intervals of the paired differences, one row a system."""
    tested = [(system, found.comparisons.get((system.name, system.kind, measure))) for system in systems]
    rows = [(system, test) for system, test in tested if test is not None]
    data = []
    for index, kind in enumerate(dict.fromkeys(system.kind for system, _ in rows)):
        tests = {titled(system): test for system, test in rows if system.kind == kind}
        above = [test.high - test.difference for test in tests.values()]
        below = [test.difference - test.low for test in tests.values()]
        data.append({
            "type": "scatter", "mode": "markers", "name": kind, "y": [label(name) for name in tests],
            "x": [test.difference for test in tests.values()], "marker": {"size": 9, "color": PALETTE[index]},
            "error_x": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1},
        })  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": f"gain in {label(measure)}"}},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category",
                  "categoryorder": "array", "categoryarray": [label(titled(system)) for system, _ in rows]},
        "shapes": [_level(0.0, "x")],
    }  # fmt: skip
    caption = (
        f"{measure}: mean gain over all dimensions ({found.baseline.means[measure]:.4f}), with 95 % intervals of it."
    )
    return Figure(data, layout, caption, height=110 + 28 * len(rows))


def _system_table(systems: Sequence[System], found: Findings) -> Table:
    rows, marked = [], set()
    for index, system in enumerate(systems):
        cells = [titled(system), "–" if system.kept is None else f"{100 * system.kept:.0f} %"]
        for measure in found.measures:
            test = found.comparisons.get((system.name, system.kind, measure))
            cells += [f"{system.means[measure]:.4f}", *_tested(test)]
            if test is not None and test.p_holm < SIGNIFICANT:
                marked.add(index)
        rows.append([*cells, short_of([system], found)])
    heads = [head for measure in found.measures for head in (measure, "gain", "p", "p (Holm)", "test")]
    return Table("", ["system", "kept", *heads, "no feedback"], rows, f"{_CAPTION} {SHORT}", frozenset(marked))


def _tested(test: Comparison | None) -> list[str]:
    if test is None:
        return ["–"] * 4
    return [f"{test.difference:+.4f}", f"{test.p:.4f}", f"{test.p_holm:.4f}", test.test]


def _share_section(found: Findings) -> Section:
    blocks: list[Figure | Table] = []
    for measure, filters in found.shares.items():
        data = []
        for index, (name, kinds) in enumerate(filters.items()):
            for kind, curve in kinds.items():
                data.append(_curve(f"{name} ({kind})", curve, measure, PALETTE[index % len(PALETTE)], DASHES[kind]))
        blocks.append(_share_figure(data, measure, found, f"{measure} by the share of dimensions kept."))
    blocks.append(_half_table(found))
    return Section("Share of dimensions kept", blocks, _SHARES)


def _half_table(found: Findings) -> Table:
    rows = []
    for measure, filters in found.shares.items():
        for name, kinds in filters.items():
            for kind, curve in kinds.items():
                if 0.5 in curve:
                    test = found.comparisons.get((f"{name}, half", kind, measure))
                    mean, short = f"{curve[0.5].means[measure]:.4f}", short_of([curve[0.5]], found, (measure,))
                    rows.append([measure, f"{name} ({kind})", mean, *_tested(test), short])
    heads = ["measure", "filter", "mean", "gain", "p", "p (Holm)", "test", "no feedback"]
    return Table("", heads, rows, f"Half of the dimensions kept. {SHORT}")


def _depth_section(found: Findings) -> Section:
    blocks: list[Figure | Table] = []
    for measure, curves in found.depth_shares.items():
        data = [
            _curve(name, curve, measure, PALETTE[index % len(PALETTE)], "solid")
            for index, (name, curve) in enumerate(curves.items())
        ]
        caption = f"{measure} by the share of dimensions kept, for each length of the feedback list (oracle)."
        blocks.append(_share_figure(data, measure, found, caption))
    blocks.append(_system_table(found.depths, found))
    return Section("Length of the feedback list", blocks, _DEPTHS)


def _moon_section(found: Findings) -> Section:
    blocks: list[Figure | Table] = []
    rows = []
    for measure in found.measures:
        means = {pool: [system.means[measure] for system in of] for pool, of in found.moons.items()}
        data = [{
            "type": "scatter", "mode": "markers", "name": label(measure), "x": [label(pool) for pool in means],
            "y": [float(np.mean(of)) for of in means.values()], "marker": {"size": 9, "color": PALETTE[0]},
            "error_y": {"type": "data", "array": [_deviation(of) for of in means.values()], "thickness": 1},
        }, {
            "type": "scatter", "mode": "lines", "name": "all dimensions", "x": [label(pool) for pool in means],
            "y": [found.baseline.means[measure]] * len(means), "line": {"dash": "dot", "width": 1, "color": GREY},
        }]  # fmt: skip
        layout = {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": label(measure)}}}
        caption = f"{measure}: mean and standard deviation over draws; dotted: all dimensions."
        blocks.append(Figure(data, layout, caption, height=280))
        rows += [
            [
                measure, pool, str(len(of)), f"{np.mean(of):.4f}", f"{_deviation(of):.4f}" if len(of) > 1 else "–",
                short_of(found.moons[pool], found, (measure,)),
            ]
            for pool, of in means.items()
        ]  # fmt: skip
    heads = ["measure", "moon", "runs", "mean", "deviation", "no feedback"]
    blocks.append(Table("", heads, rows, f"Deviation over runs, n − 1. {SHORT}"))
    return Section("Moons drawn at random", blocks, _MOONS)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _curve(name: str, curve: Mapping[float, System], measure: str, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "name": label(name), "x": list(curve),
        "y": [system.means[measure] for system in curve.values()], "line": {"color": colour, "dash": dash},
    }  # fmt: skip


def _share_figure(data: list[dict[str, Any]], measure: str, found: Findings, caption: str) -> Figure:
    layout = {
        "xaxis": {"title": {"text": "share of dimensions kept"}},
        "yaxis": {"title": {"text": label(measure)}},
        "shapes": [_level(found.baseline.means[measure], "y")],
    }
    return Figure(data, layout, caption + " Dotted: all dimensions.")


def _level(value: float, axis: str) -> dict[str, Any]:
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": value, f"{axis}1": value, f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
    return {"type": "line", "layer": "below", "line": {"dash": "dot", "width": 1, "color": GREY}, **ends}


SHORT = (
    "No feedback: queries that kept every dimension because their list was too short for the settings, or they have no "
    "answer."
)
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
