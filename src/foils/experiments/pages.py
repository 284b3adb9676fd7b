"""The pages of studies and tunings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.evaluation import rankings_of
from foils.experiments.tasks import BASELINES
from foils.pages.page import (
    LEGEND,
    PALETTE,
    Example,
    Examples,
    Figure,
    Section,
    Table,
    ends,
    label,
    render_page,
    scatter,
    shortened,
)

if TYPE_CHECKING:
    from foils.experiments.analysis import StudyAnalysis
    from foils.experiments.cells import Cell
    from foils.experiments.tuned import Tuned

SHOWN = 10  # queries that gained, and that lost
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

TUNE_READING = (
    "Learning rate, epochs, the model, and how BM25 and the model are weighed together are chosen on dev, a split that "
    "is not trained on; test is looked at once, after everything is decided. So a difference on test is not one of a "
    "choice made there.",
    "Intervals come from a bootstrap over the test queries. p is that of a paired test over the queries: the t-test "
    "where the differences look normal (Shapiro–Wilk), Wilcoxon's signed ranks where they do not. The model is written "
    "only where p is below 0.05 and the difference above 0.",
    "Whoever tunes again with other settings until p is small looks at test more than once; then p says less.",
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
        taus = (_tau(each.cells[name]) if name in each.cells else "" for name in names)
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


def tune_page(tuned: Tuned) -> str:
    """Return the report of a tuning as HTML."""
    given, evaluation = tuned.plan["given"], tuned.evaluation
    measures = list(evaluation.systems[0].means)
    groups: dict[str, tuple[Points, str]] = {}
    for system, colour in zip(evaluation.systems, (PALETTE[7], PALETTE[0], PALETTE[1], PALETTE[2]), strict=False):
        ends_of = evaluation.intervals[system.name]
        groups[system.name] = ({each: (system.means[each], *ends_of[each]) for each in measures}, colour)
    caption = "Each measure of each system, with 95 % intervals of the means."
    figure = intervals_figure(groups, "mean over the test queries", caption)
    sections = [
        *([Section("Warnings", (), list(tuned.warnings))] if tuned.warnings else []),
        Section("The proof", [figure, replace(tuned.tables()[0], title="", caption=""), tuned.pairs_table()]),
        *(
            [Section("Cut vectors, and another collection", [tuned.further_table()])]
            if tuned.cuts or tuned.keep
            else []
        ),
        Section("What was decided, and why", [replace(tuned.plan.table(), title="")]),
    ]
    if decided := tuned.decision.get("table"):
        shown = Table("", decided["columns"], decided["rows"], "What foils score says, before training.")
        sections.append(Section("The sources of negatives", [shown]))
    steps = f"{sum(each.steps for each in tuned.trials):,} training steps of {tuned.plan['batches']['size']} rows"
    sections.append(Section("The trainings", [replace(tuned.trials_table(), title="")], [f"Cost: {steps}."]))
    sections += [Section("Queries that changed", blocks)] if (blocks := _changed(tuned)) else []
    again = "foils tune --plan plan.toml -o another-folder/"
    return render_page(
        "Did the training make the model better?",
        subtitle=f"{given['collection']} · {given['model']} · {len(evaluation.systems[0].query_ids):,} test queries",
        verdict=tuned.sentence,
        sections=[
            *sections,
            Section("What to do next", (), [tuned.next]),
            Section("How to read this", (), TUNE_READING, folded=True),
            Section("The same again", (), [again], folded=True),
        ],
        footer=f"collection {tuned.collection.digest[:12]}, seed {given['seed']}",
    )


def _changed(tuned: Tuned) -> list[Examples]:
    """The test queries that gained most, and those that lost most, the largest change first."""
    if tuned.comparison is None:
        return []
    collection, (before, after) = tuned.collection, tuned.evaluation.systems[:2]
    measure, firsts = next(iter(before.means)), [rankings_of(run) for run in tuned.evaluation.runs[:2]]
    gain, positives = after.per_query[measure] - before.per_query[measure], collection.positives("test")

    def example(at: int) -> Example:
        row = collection.query_rows([query := before.query_ids[at]])
        place = int(positives.places(row)[0])
        rows: dict[str, Any] = {"labelled answer": positives.of(place)[:1] if place >= 0 else []}
        for name, ranking in zip(("first before", "first after"), firsts, strict=True):
            rows[name] = collection.document_rows(ranking.get(query, [])[:1])
        texts = {name: shortened(collection.document_texts(of)[0]) if len(of) else "–" for name, of in rows.items()}
        change = f"{before.per_query[measure][at]:.2f} → {after.per_query[measure][at]:.2f}"
        return Example(f"{measure} {change}", {"query": collection.query_texts(row)[0], **texts})

    order, blocks = np.argsort(-gain, kind="stable"), []
    for verb, sign, places in (("gained", 1, order[:SHOWN]), ("lost", -1, order[::-1][:SHOWN])):
        if examples := [example(at) for at in places if sign * gain[at] > 0]:
            blocks.append(Examples(f"The {len(examples)} that {verb} most", examples))
    return blocks
