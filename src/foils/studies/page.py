"""The report of a study: who trained best, which predictor saw it coming, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foils.pages.page import LEGEND, PALETTE, Figure, Section, Table, ends, label, render_page, scatter
from foils.studies.cells import BASELINES, Cell
from foils.studies.outcomes import Outcome
from foils.studies.verdict import lead_sentence

if TYPE_CHECKING:
    from foils.studies.results import StudyAnalysis

SHOWN = ("eci_sem", "mnrl_proxy", "benefit", "eci_per_query", "gradient_energy", "rho")
_READING = (
    "Each source of negatives trained the model as often as there are seeds, with the same queries, rows and steps "
    "for every source of a seed; a bar's interval comes from a bootstrap over seeds and test queries.",
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
    "φ, the share of false negatives, is what the decision believes without labels (see the documentation).",
)


def study_page(analysis: StudyAnalysis) -> str:
    """Return the report of a study as HTML."""
    seeds = [min(len(cell.means(analysis.measure)[name]) for name in cell.sources) for cell in analysis.cells]
    return render_page(
        "Did the score predict the training?",
        subtitle=f"{'one cell' if len(seeds) == 1 else f'{len(seeds)} cells'} · {analysis.measure} on the test "
        f"queries · {'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds a source",
        verdict=analysis.headline,
        sections=[
            *([Section("Warnings", (), analysis.warnings)] if analysis.warnings else []),
            *(
                [
                    Section("Predictors", [_leaderboard_figure(analysis), _leaderboard(analysis)]),
                    Section("Cell by cell", [_cells_table(analysis)]),
                ]
                if analysis.leaderboard
                else []
            ),
            *([Section("Reliability", [_reliability(analysis)])] if analysis.reliability else []),
            *(_cell_section(analysis, cell) for cell in analysis.cells),
            Section("How to read this", (), _READING, folded=True),
            *([Section("Commands that repeat it", (), analysis.commands, folded=True)] if analysis.commands else []),
        ],
        footer=" · ".join(
            f"{cell.facts['collection']['name']}: collection {cell.facts['collection']['digest'][:12]}, weights "
            f"{str(cell.facts['model']['fingerprint'])[:12]}"
            for cell in analysis.cells
        ),
    )


def _leaderboard_figure(analysis: StudyAnalysis) -> Figure:
    ranked = [each for each in analysis.leaderboard if not each.missing][::-1]
    names, points = [each.predictor for each in ranked], [(each.kendall, each.low, each.high) for each in ranked]
    layout = _by_name("mean Kendall's τ with the measured result", names, showlegend=False)
    layout["xaxis"]["range"] = [-1.05, 1.05]
    caption = "Mean over the cells, with its interval."
    return Figure([_points(names, points, PALETTE[0])], layout, caption, height=110 + 21 * len(ranked))


def _points(
    names: Sequence[str], points: Sequence[tuple[float, float, float]], colour: str, **more: Any
) -> dict[str, Any]:
    """A marker for each name at a value, with its interval: (value, low, high) each."""
    x = [value for value, _, _ in points]
    bars = ends(x, *([each[end] for each in points] for end in (1, 2)))
    marker = {"size": 9, "color": colour}
    return scatter(x, [label(name) for name in names], mode="markers", marker=marker, error_x=bars, **more)


def _by_name(x: str, names: Sequence[str], **more: Any) -> dict[str, Any]:
    order = {"type": "category", "categoryorder": "array", "categoryarray": [label(name) for name in names]}
    return {"xaxis": {"title": {"text": x}}, "yaxis": order, **more}


def _leaderboard(analysis: StudyAnalysis) -> Table:
    caption = "Higher predictor is taken to mean better; ECI_sem is marked."
    return replace(analysis.predictor_table(described=True), title="", caption=caption)


def _cells_table(analysis: StudyAnalysis) -> Table:
    names = [cell.name for cell in analysis.cells]
    models = {cell.facts["model"]["name"] for cell in analysis.cells}
    heads = [cell.facts["collection"]["name"] if len(models) == 1 else cell.name for cell in analysis.cells]
    halves = {name: each.half for name, each in analysis.reliability.items()}
    rows = [
        ("(the result itself, ceiling)", *(_tau(halves.get(name, math.nan)) for name in names)),
        *(
            (each.predictor, *(_tau(each.cells[name].kendall) if name in each.cells else "" for name in names))
            for each in analysis.leaderboard
        ),
    ]
    return Table("", ["τ of", *heads], rows, "Kendall's τ of each predictor in each cell.", frozenset([0]))


def _cell_section(analysis: StudyAnalysis, cell: Cell) -> Section:
    outcomes = analysis.outcomes[cell.name]
    blocks: list[Figure | Table] = [_outcome_figure(outcomes, analysis.measure), _outcomes(analysis, cell)]
    if any(cell.name in each.cells for each in analysis.leaderboard):
        blocks.append(_scatter(analysis, cell))
    prose = (
        lead_sentence(analysis, cell.name),
        "; ".join(f"{name} {value}" for name, value in cell.training.items()),
    )
    return Section(cell.name, blocks, prose, folded=bool(analysis.leaderboard))


def _reliability(analysis: StudyAnalysis) -> Table:
    return replace(analysis.reliability_table(), title="")


def _outcomes(analysis: StudyAnalysis, cell: Cell) -> Table:
    return replace(analysis.outcome_table(cell), title="", caption="Best first.")


def _outcome_figure(outcomes: Sequence[Outcome], measure: str) -> Figure:
    ranked, data = outcomes[::-1], []
    for baseline, colour, kind in ((False, PALETTE[0], "source"), (True, PALETTE[7], "baseline")):
        chosen = [each for each in ranked if (each.source in BASELINES) == baseline]
        if chosen:
            points = [(each.mean, each.low, each.high) for each in chosen]
            data.append(_points([each.source for each in chosen], points, colour, name=kind))
    layout = _by_name(label(measure), [each.source for each in ranked], legend=LEGEND)
    return Figure(data, layout, f"{measure} after training on each source.", height=120 + 24 * len(ranked))


def _scatter(analysis: StudyAnalysis, cell: Cell) -> Figure:
    """Predictors against results, one small plot each: those shown always, and the best of this cell."""
    here = [each for each in analysis.leaderboard if cell.name in each.cells]
    best = max(here, key=lambda each: each.cells[cell.name].kendall)
    names = list(dict.fromkeys([best.predictor, *(name for name in SHOWN if any(e.predictor == name for e in here))]))
    means = {each.source: each.mean for each in analysis.outcomes[cell.name]}
    columns, data = 3, []
    rows = math.ceil(len(names) / columns)
    grid = {"rows": rows, "columns": columns, "pattern": "independent", "ygap": 0.35}
    layout: dict[str, Any] = {"showlegend": False, "grid": grid}
    for index, name in enumerate(names):
        suffix = "" if index == 0 else str(index + 1)
        tau = next(each for each in here if each.predictor == name).cells[cell.name].kendall
        data.append(
            scatter(
                [cell.predictors[source][name] for source in cell.sources],
                [means[source] for source in cell.sources],
                mode="markers",
                xaxis=f"x{suffix}",
                yaxis=f"y{suffix}",
                text=[label(source) for source in cell.sources],
                hovertemplate="%{text}<br>%{x:.4g} → %{y:.4f}<extra></extra>",
                marker={"color": PALETTE[index % len(PALETTE)], "size": 8},
            )
        )
        layout[f"xaxis{suffix}"] = {"title": {"text": f"{label(name)} (τ {_tau(tau)})", "font": {"size": 12}}}
        layout[f"yaxis{suffix}"] = {}
    caption = f"{analysis.measure} (up) against predictors (right): the best one of this cell first."
    return Figure(data, layout, caption, height=300 * rows)


def _tau(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}"
