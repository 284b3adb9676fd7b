"""The page of a tuning: before and after, what it was trained on and why, queries that changed, what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foils.pages.page import (
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
from foils.runtime.results import number, p_value, signed
from foils.tuning.results import Change, Tuned
from foils.tuning.sections import plural
from foils.tuning.settings import LEVEL, MEASURE

_READING = (
    f"Learning rate, epochs and the model are chosen by {MEASURE} on dev, a split that is not trained on; test is "
    "looked at once, after everything is decided, for the model as it is and for the one that was chosen. So the "
    "difference on test is not one of a choice made there.",
    "Intervals come from a bootstrap over the test queries. p is that of a paired test over the queries: the t-test "
    "where the differences look normal (Shapiro–Wilk), Wilcoxon's signed ranks where they do not. The model is written "
    f"only where p is below {LEVEL:g} and the difference above 0.",
    "Whoever tunes again with other settings until p is small looks at test more than once; then p says less.",
)


def tune_page(tuned: Tuned) -> str:
    """Return the report of a tuning as HTML."""
    given = tuned.plan["given"]
    gained, lost = tuned.changes()
    sections = [
        *([Section("Warnings", (), list(tuned.warnings))] if tuned.warnings else []),
        Section("Before and after", [*([_figure(tuned)] if tuned.comparison else []), _measures(tuned)]),
        *([Section("Vectors that are cut", [tuned.cuts_table()])] if tuned.cuts else []),
        *([Section("What must not be forgotten", [replace(tuned.keep_table(), title="")])] if tuned.keep else []),
        Section("What was decided, and why", [replace(tuned.plan.table(), title="")]),
        *([Section("The sources of negatives", [_sources(tuned)])] if tuned.sources else []),
        Section("The trainings", [replace(tuned.trials_table(), title="")], [_cost(tuned)]),
        *([_changes(tuned, gained, lost)] if tuned.comparison else []),
        Section("What to try next", (), tuned.next_steps()),
        Section("How to read this", (), _READING, folded=True),
        Section("The same again", (), ["foils tune --plan plan.toml -o another-folder/"], folded=True),
    ]
    return render_page(
        "Did the training make the model better?",
        subtitle=f"{given['collection']} · {given['model']} · "
        f"{len(tuned.evaluation.systems[0].query_ids):,} test queries",
        verdict=f"{tuned.sentence} {tuned.stage_sentence}".rstrip(),
        sections=sections,
        footer=f"collection {tuned.collection.digest[:12]}, seed {given['seed']}",
    )


def _figure(tuned: Tuned) -> Figure:
    data: list[dict[str, Any]] = []
    measures = list(tuned.evaluation.systems[0].per_query)
    for system, colour in zip(tuned.evaluation.systems, (PALETTE[7], PALETTE[0]), strict=False):
        means = [system.means[measure] for measure in measures]
        intervals = [tuned.evaluation.intervals[system.name][measure] for measure in measures]
        bars = ends(means, [low for low, _ in intervals], [high for _, high in intervals])
        marker = {"size": 11, "color": colour}
        names = [label(measure) for measure in measures]
        data.append(scatter(means, names, mode="markers", marker=marker, error_x=bars, name=label(system.name)))
    layout = {"xaxis": {"title": {"text": "mean over the test queries"}}, "yaxis": {"type": "category"}}
    return Figure(data, layout, "Each measure before and after, with 95 % intervals of the means.", height=260)


def _measures(tuned: Tuned) -> Table:
    means = {system.name: system.means for system in tuned.evaluation.systems}
    base = tuned.evaluation.systems[0].name
    if tuned.comparison is None:
        return Table("", ["measure", base], [(name, number(value, 4)) for name, value in means[base].items()])
    rows = [
        (each.measure, *(number(system.means[each.measure], 4) for system in tuned.evaluation.systems),
         f"{signed(each.difference, 4)} [{signed(each.low, 4)}, {signed(each.high, 4)}]", each.test, p_value(each.p))
        for each in tuned.evaluation.comparisons
    ]  # fmt: skip
    return Table("", ["measure", "before", "after", "difference", "test", "p"], rows)


def _sources(tuned: Tuned) -> Table:
    chosen = tuned.plan["negatives"]["source"]
    rows = [
        (
            each["name"],
            signed(each["gain"], 1),
            f"{100 * each['false_share_low']:.0f}–{100 * each['false_share_high']:.0f} %",
            each["verdict"],
        )
        for each in tuned.sources
    ]
    marked = frozenset(at for at, each in enumerate(tuned.sources) if each["name"] == chosen)
    columns = ["source", "gain over none, points", "unlabelled answers", "verdict"]
    caption = "What foils score says of each before any training; the chosen one is marked."
    return Table("", columns, rows, caption, marked, frozenset({3}))


def _cost(tuned: Tuned) -> str:
    steps = sum(each.steps for each in tuned.trials)
    measured = f"{len(tuned.collection.documents):,} documents embedded for each of the two models"
    if tuned.plan["given"].get("reranker"):
        measured = f"up to {len(tuned.evaluation.runs[-1].table):,} pairs of test scored by each of the models"
    return (
        f"Cost: {steps:,} training steps of {tuned.plan['batches']['size']} rows in "
        f"{plural(len(tuned.trials), 'training')}, "
        f"{measured}."
    )


def _changes(tuned: Tuned, gained: Sequence[Change], lost: Sequence[Change]) -> Section:
    base, after = (system.per_query[MEASURE] for system in tuned.evaluation.systems)
    up, down = int((after > base).sum()), int((after < base).sum())
    prose = [f"{up:,} of {len(base):,} test queries got better, {down:,} got worse, the others stayed as they were."]
    blocks = [
        Examples(f"The {len(changes)} that {verb} most", [_example(each) for each in changes])
        for verb, changes in (("gained", gained), ("lost", lost))
        if changes
    ]
    return Section("Queries that changed", blocks, prose)


def _example(change: Change) -> Example:
    texts = {
        "query": change.query,
        "labelled answer": shortened(change.positives[0] if change.positives else "–"),
        "first before": shortened(change.first_before or "–"),
        "first after": shortened(change.first_after or "–"),
    }
    return Example(f"{MEASURE} {change.before:.2f} → {change.after:.2f}", texts)
