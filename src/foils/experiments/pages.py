"""The pages of studies and tunings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foils.experiments.tasks import BASELINES
from foils.pages.page import LEGEND, PALETTE, Figure, Section, Table, ends, label, render_page, scatter

if TYPE_CHECKING:
    from foils.experiments.analysis import StudyAnalysis
    from foils.experiments.cells import Cell

Points = Mapping[str, tuple[float, float, float]]
STUDY_READING = (
    "Each source of negatives trained the model as often as there are seeds, with the same queries for every source of "
    "a seed; rows and steps are in the tables, and a warning says where they differ. A bar's interval comes from a "
    "bootstrap over seeds and test queries.",
    "τ is Kendall's rank correlation of a predictor's order of the sources with that of the measured means: 1 is the "
    "same order, 0 none, −1 the reverse. Its interval comes from a bootstrap over sources and seeds, within each cell, "
    "and says how far the figure holds for other sources like these; it does not cover other collections.",
    "Within settings is the mean of τ among single sources, among hybrids of two, and so on, each by itself, as the "
    "paper compares them; pairs in order is the share of the pairs of one setting that the predictor puts in the "
    "measured order.",
    "Regret is what is lost by training on the source that the predictor puts first: the best source's measure less "
    "its own. The ceiling is τ of one half of the seeds with the other half: no predictor can be expected above it.",
    "A cell is reliable where the τ of halves, made that of all seeds (Spearman–Brown), is at least 0.8; four seeds at "
    "least must say so. It is flat, and left out of the means, where even at the upper end of the 95 % interval of the "
    "sources' variance (F test of sources and seeds) 0.8 would take more than 64 seeds; the column “at best” has that "
    "number.",
    "The headline names a predictor only where the mean ceiling is at least 0.5, the interval of the predictor's mean "
    "τ lies above zero, and this mean is higher than the highest of all predictors on 95 % of 1,000 random orders of "
    "the sources.",
    "The gain is the difference from the untrained model, query by query; of rerankers, from the first stage's order. "
    "Where that from the untrained model has an interval that holds zero, or is below a tenth of half the width of the "
    "mean's own interval, the training did not move the measure, and the order of the sources is the order of noise.",
)


def intervals_figure(groups: Mapping[str, tuple[Points, str]], x: str, caption: str, **axis: Any) -> Figure:
    """Return points with their intervals, one row a name.

    Args:
        groups: name of the group → (name → value, low, high), and its colour.
        x: what the values are.
        caption: what it shows.
        axis: further settings of the horizontal axis.
    """
    data, names = [], dict[str, None]()
    for group, (points, colour) in groups.items():
        values, low, high = ([each[at] for each in points.values()] for at in range(3))
        labels = [label(name) for name in points]
        names |= dict.fromkeys(labels)
        how: dict[str, Any] = {"mode": "markers", "marker": {"size": 9, "color": colour}, "name": label(group)}
        data.append(scatter(values, labels, error_x=ends(values, low, high), **how))
    order = {"type": "category", "categoryorder": "array", "categoryarray": [*names]}
    layout = {"xaxis": {"title": {"text": x}, **axis}, "yaxis": order, "legend": LEGEND, "showlegend": len(groups) > 1}
    return Figure(data, layout, caption, height=120 + 24 * len(names))


def study_page(analysis: StudyAnalysis) -> str:
    """Return the report of a study as HTML."""
    seeds = [cell.results(cell.sources, analysis.measure).shape[1] for cell in analysis.cells]
    sections = [Section("Warnings", (), analysis.warnings)] if analysis.warnings else []
    if analysis.leaderboard:
        ranked = [each for each in analysis.leaderboard if not each.missing][::-1]
        points = {each.predictor: (each.kendall, each.low, each.high) for each in ranked}
        figure = intervals_figure(
            {"predictors": (points, PALETTE[0])}, "mean Kendall's τ with the measured result",
            "Mean over the cells, with its interval.", range=[-1.05, 1.05],
        )  # fmt: skip
        caption = "Higher predictor is taken to mean better; ECI_sem is marked."
        table = replace(analysis.predictor_table(), title="", caption=caption)
        titles = Table("", ["predictor", "what it is"], [(each.predictor, each.title) for each in analysis.leaderboard])
        sections += [
            Section("Predictors", [figure, table]),
            Section("Cell by cell", [_cells_table(analysis)]),
            Section("What the predictors are", [replace(titles, words=frozenset({1}))], folded=True),
        ]
    if analysis.reliability:
        sections.append(Section("Reliability", [replace(analysis.reliability_table(), title="")]))
    sections += [_cell_section(analysis, cell) for cell in analysis.cells]
    return render_page(
        "Did the score predict the training?",
        subtitle=f"{'one cell' if len(seeds) == 1 else f'{len(seeds)} cells'} · {analysis.measure} on the test "
        f"queries · {'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds a source",
        verdict=analysis.headline,
        sections=[*sections, Section("How to read this", (), STUDY_READING, folded=True)],
        footer=" · ".join(
            f"{cell.facts['collection']['name']}: collection {cell.facts['collection']['digest'][:12]}, weights "
            f"{str(cell.facts['model']['fingerprint'])[:12]}"
            for cell in analysis.cells
        ),
    )


def _cells_table(analysis: StudyAnalysis) -> Table:
    names = [cell.name for cell in analysis.cells]
    halves = {name: each.half for name, each in analysis.reliability.items()}
    rows = [("(the result itself, ceiling)", *(_tau(halves.get(name, math.nan)) for name in names))]
    for each in analysis.leaderboard:
        taus = (_tau(each.cells[name].kendall) if name in each.cells else "" for name in names)
        rows.append((each.predictor, *taus))
    return Table("", ["τ of", *names], rows, "Kendall's τ of each predictor in each cell.", frozenset([0]))


def _cell_section(analysis: StudyAnalysis, cell: Cell) -> Section:
    ranked = {each.source: (each.mean, each.low, each.high) for each in analysis.outcomes[cell.name][::-1]}
    groups: dict[str, tuple[dict[str, tuple[float, float, float]], str]] = {
        "source": ({name: each for name, each in ranked.items() if name not in BASELINES}, PALETTE[0]),
        "baseline": ({name: each for name, each in ranked.items() if name in BASELINES}, PALETTE[7]),
    }
    shown = {name: each for name, each in groups.items() if each[0]}
    measure = analysis.measure
    figure = intervals_figure(shown, label(measure), f"{measure} after training on each source.")
    order = {**figure.layout["yaxis"], "categoryarray": [label(name) for name in ranked]}
    figure = replace(figure, layout={**figure.layout, "yaxis": order})
    table = replace(analysis.outcome_table(cell), title="", caption="Best first.")
    settings = "; ".join(f"{name} {value}" for name, value in cell.training.items())
    prose = (analysis.lead_sentence(cell.name), settings)
    return Section(cell.name, [figure, table], prose, folded=bool(analysis.leaderboard))


def _tau(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}"
