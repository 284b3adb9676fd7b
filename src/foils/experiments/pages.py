"""The page of studies, and the figure of intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foils.pages import LEGEND, PALETTE, Figure, Section, ends, label, render_page, scatter
from foils.runtime.results import counted

if TYPE_CHECKING:
    from foils.experiments.analysis import StudyAnalysis

Points = Mapping[str, tuple[float, float, float]]
STUDY_READING = (
    "Intervals come from bootstraps over seeds and test queries; those of τ over sources and seeds of each cell, so "
    "that they say how far a figure holds for other sources like these, not for other collections.",
    "τ is Kendall's rank correlation of a predictor's order of the sources with that of the measured means. No "
    "predictor can be expected above the ceiling, which is τ of one half of the seeds with the other half. Regret is "
    "what is lost by training on the source that the predictor puts first.",
    "A cell is reliable where the τ of halves, made that of all seeds, is at least 0.8 with four seeds at least.",
)


def intervals_figure(groups: Mapping[str, Points], x: str, caption: str, **axis: Any) -> Figure:
    """Return points with their intervals, one row a name, the last group's order from below.

    Args:
        groups: name of the group → (name → value, low, high).
        x: what the values are.
        caption: what it shows.
        axis: further settings of the horizontal axis.
    """
    data, colours = [], (PALETTE[7], *PALETTE) if len(groups) > 1 else PALETTE
    for (group, points), colour in zip(groups.items(), colours, strict=False):
        values, low, high = ([each[at] for each in points.values()] for at in range(3))
        names = [label(name) for name in points]
        how: dict[str, Any] = {"mode": "markers", "marker": {"size": 9, "color": colour}, "name": label(group)}
        data.append(scatter(values, names, error_x=ends(values, low, high), **how))
    order = {"type": "category", "categoryorder": "array", "categoryarray": names}
    layout = {"xaxis": {"title": {"text": x}, **axis}, "yaxis": order, "legend": LEGEND, "showlegend": len(groups) > 1}
    return Figure(data, layout, caption, height=120 + 24 * len(names))


def study_page(analysis: StudyAnalysis) -> str:
    """Return the report of a study as HTML."""
    seeds, cells = [cell.results(cell.sources, analysis.measure).shape[1] for cell in analysis.cells], analysis.cells
    sections = [Section("Warnings", (), analysis.warnings)] if analysis.warnings else []
    if analysis.shows_predictors:
        points = {each.predictor: (each.kendall, each.low, each.high) for each in analysis.leaderboard[::-1]}
        axis = "mean Kendall's τ with the measured result"
        figure = intervals_figure({axis: points}, axis, "Mean over the cells, with its interval.", range=[-1.05, 1.05])
        caption = "Higher predictor is taken to mean better; ECI_sem is marked."
        table = replace(analysis.predictor_table(), title="", caption=caption)
        sections.append(Section("Predictors", [figure, table]))
    if analysis.reliability:
        sections.append(Section("Reliability", [replace(analysis.reliability_table(), title="")]))
    for cell in cells:
        results = {each.source: (each.mean, each.low, each.high) for each in analysis.outcomes[cell.name][::-1]}
        caption = f"{analysis.measure} after training on each source."
        figure = intervals_figure({analysis.measure: results}, label(analysis.measure), caption)
        table = replace(analysis.outcome_table(cell), title="", caption="Best first.")
        settings = "; ".join(f"{name} {value}" for name, value in cell.training.items())
        prose = (analysis.lead_sentence(cell.name), settings)
        sections.append(Section(cell.name, [figure, table], prose, folded=analysis.shows_predictors))
    return render_page(
        "Did the score predict the training?",
        subtitle=f"{counted(len(cells), 'cells')} · {analysis.measure} on the test queries · "
        f"{'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds a source",
        verdict=analysis.headline,
        sections=[*sections, Section("How to read this", (), STUDY_READING, folded=True)],
        footer=" · ".join(
            f"{cell.facts['collection']['name']}: collection {cell.facts['collection']['digest'][:12]}, weights "
            f"{str(cell.facts['model']['fingerprint'])[:12]}"
            for cell in cells
        ),
    )
