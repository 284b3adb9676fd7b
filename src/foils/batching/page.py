"""The report of a batch plan: how hard, clean and varied its batches are beside random ones, and pairs to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.batching.plan import EpochMeasures
from foils.pages.page import (
    LEGEND,
    PALETTE,
    Example,
    Examples,
    Figure,
    Section,
    Table,
    axes,
    label,
    render_page,
    scatter,
    shortened,
)  # fmt: skip
from foils.runtime.results import number, signed

if TYPE_CHECKING:
    from foils.batching.results import BatchPlan

RANDOM_COLOUR = "#8a8f94"
READ = 8  # examples of a kind
SHOWN = 5  # epochs in a figure


def batch_report(planned: BatchPlan) -> str:
    """Return the report of a plan as HTML."""
    plan, provenance = planned.plan, planned.provenance
    settings = ", ".join(f"{name} {value}" for name, value in plan.settings.items())
    subtitle = (
        f"{planned.collection.name}, split {provenance['settings']['split']}: {len(planned.rows):,} rows · {plan.name}"
        f"{f' ({settings})' if settings else ''} · batches of {plan.batch_size} · "
        f"encoder {provenance['encoder']['name']} · seed {provenance['seed']}"
    )
    return render_page(
        "Who meets whom in a batch",
        subtitle=subtitle,
        verdict=_verdict(planned),
        sections=[
            Section("Beside random batches", [_summary(planned)], _SUMMARY),
            Section("Hardness over the epoch", [_over_epoch(planned), _sorted(planned)], _HARDNESS),
            Section("The same pairs in random batches", [_gain(planned, "hardness"), _gain(planned, "loss")], _GAIN),
            Section("Contradictions", _contradictions(planned), [_CONTRADICTIONS, _counted(planned)]),
            Section("Coverage and variety", [_coverage(planned)], _COVERAGE),
            Section("Who meets whom", _examples(planned), _EXAMPLES),
        ],
        footer=f"encoder fingerprint {provenance['encoder']['fingerprint']} · "
        + " · ".join(f"{name} digest {digest}" for name, digest in provenance["inputs"].items()),
    )


_SUMMARY = (
    "Hardness is q·d of the hardest in-batch negative of a query; weight the highest q·d less its likeness to the "
    "positive, which falls where the negative may be an unlabelled positive; loss InfoNCE at τ = 0.05. Known positives "
    "are masked in all three and counted as contradictions. A gain is against the same pairs in random batches.",
)
_HARDNESS = (
    "Batches in the order of training, and from the hardest to the easiest. A method that spends the hard choices "
    "first has easy batches left: they show at the right end of the second figure. HOBIT's are shuffled over the "
    "epoch. The last batch may be short, and so has fewer negatives.",
)
_GAIN = (
    "Pairs differ: one whose positive is near has a low loss in any batch, so means over batches that hold different "
    "pairs mislead. Here each batch is compared with what its own pairs meet in random batches. Below 0 a batch is "
    "easier than random for the pairs in it.",
)
_CONTRADICTIONS = (
    "Pairs (i, j) of a batch where document j is a known positive of query i, by the judgements of all splits and "
    "equal texts: without a mask the loss would push a right answer away."
)
_COVERAGE = ("Every pair is in exactly one batch of an epoch. Overlap says how many of them a pair meets again.",)
_EXAMPLES = (
    "The hardest in-batch negative of a query. At the hard end read for unlabelled positives: if many of them answer "
    "the query, raise α, leave the warm-up longer, or judge them.",
)


def _verdict(planned: BatchPlan) -> str:
    plan = planned.plan
    first, random = plan.measures[0], plan.random
    kind = "harder" if first.hardness_gain > 0 else "not harder"
    text = (
        f"{plan.name}'s batches are {kind} than random ones: the hardest negative of a query scores "
        f"{number(first.hardness)}, {signed(first.hardness_gain)} against the same pairs in random batches"
    )
    text += f"; {100 * first.easier:.0f} % of them are easier than random ({100 * random.easier:.0f} % by chance). "
    if first.contradictions:
        text += f"{first.contradictions:,} known positives meet a query that they answer: use a loss that masks them"
    else:
        text += "No known positive meets a query that it answers"
    return f"{text} ({plan.unguarded:,} in a plain shuffle)."


def _lines(planned: BatchPlan) -> list[tuple[str, EpochMeasures, str]]:
    """What figures show: name, measures, colour."""
    plan = planned.plan
    epochs = [
        (f"{plan.name}, epoch {i}", epoch, PALETTE[i % len(PALETTE)]) for i, epoch in enumerate(plan.measures[:SHOWN])
    ]
    return [*epochs, ("random", plan.random, RANDOM_COLOUR)]


def _line(name: str, values: Sequence[float], colour: str, *, x: Sequence[float] | None = None) -> dict[str, Any]:
    y = [None if value != value else round(value, 4) for value in values]
    places = list(range(len(values))) if x is None else list(x)
    return scatter(places, y, name=label(name), line={"color": colour, "width": 1.6})


def _layout(x: str, y: str) -> dict[str, Any]:
    return axes(x, y, xaxis={"zeroline": False}, legend=LEGEND, hovermode="x unified")


def _over_epoch(planned: BatchPlan) -> Figure:
    data = [_line(name, epoch.hardness_by_batch, colour) for name, epoch, colour in _lines(planned)]
    caption = "Mean hardness of each batch, in the order of training."
    return Figure(data, _layout("batch", "hardness"), caption)


def _sorted(planned: BatchPlan) -> Figure:
    data = []
    for name, epoch, colour in _lines(planned):
        values = sorted((v for v in epoch.hardness_by_batch if v == v), reverse=True)
        share = [round(100 * (k + 0.5) / len(values), 3) for k in range(len(values))]
        data.append(_line(name, values, colour, x=share))
    caption = "The same, from the hardest batch to the easiest."
    return Figure(data, _layout("% of the batches", "hardness"), caption)


def _gain(planned: BatchPlan, measure: str) -> Figure:
    data = []
    for name, epoch, colour in _lines(planned):
        values = epoch.hardness_gain_by_batch if measure == "hardness" else epoch.loss_gain_by_batch
        line = _line(name, values, colour)
        data.append({**line, "mode": "markers", "marker": {"color": colour, "size": 5}})
    what = "Hardness" if measure == "hardness" else "InfoNCE"
    caption = f"{what} of each batch less that of the same pairs in random batches; grey: what chance alone makes."
    layout = _layout("batch", f"gain in {measure}")
    return Figure(data, {**layout, "hovermode": "closest"}, caption, height=320)


def _counted(planned: BatchPlan) -> str:
    plan = planned.plan
    counts = ", ".join(f"{epoch.contradictions:,}" for epoch in plan.measures)
    return (
        f"{plan.name} has {counts} by epoch; random batches that keep known positives apart where they can have "
        f"{plan.random.contradictions:,}, and a plain shuffle {plan.unguarded:,}."
    )


def _contradictions(planned: BatchPlan) -> list[Figure]:
    """Contradictions of each batch, if there are any."""
    lines = _lines(planned)
    if not any(epoch.contradictions for _, epoch, _ in lines):
        return []
    data = [
        {
            "type": "bar",
            "name": label(name),
            "x": list(range(len(epoch.contradictions_by_batch))),
            "y": epoch.contradictions_by_batch,
            "marker": {"color": colour, "line": {"width": 0}},
        }
        for name, epoch, colour in lines
    ]
    layout = {**_layout("batch", "contradictions"), "barmode": "group", "bargap": 0}
    layout["yaxis"]["rangemode"] = "nonnegative"
    return [Figure(data, layout, "Contradictions of each batch, in the order of training.", height=240)]


def _summary(planned: BatchPlan) -> Table:
    (table,) = planned.tables()
    marked = frozenset({len(table.rows) - 1})
    return replace(table, title="", caption="Means over pairs; the worst tenth is of batches.", marked=marked)


def _coverage(planned: BatchPlan) -> Table:
    trained, plan = planned.rows, planned.plan
    judged = trained.pairs + trained.capped + trained.uncovered
    rows = [
        ("rows in every epoch", f"{len(trained):,}"),
        ("pairs in every epoch", f"{trained.pairs:,} of {judged:,} judged"),
        ("left out: more positives than allowed", f"{trained.capped:,}"),
        ("left out: no negative in the source", f"{trained.uncovered:,}"),
        *(
            [("queries without a label, by their candidate rated best", f"{trained.unlabelled:,}")]
            if trained.unlabelled
            else []
        ),
        ("different queries", f"{np.unique(trained.query_rows).size:,}"),
        ("different documents", f"{np.unique(trained.doc_rows).size:,}"),
        ("batches in an epoch", f"{len(plan.epochs[0]):,}"),
        ("rows in the last batch", f"{plan.epochs[0][-1].size:,}"),
        ("companions met again in the next epoch", _share(plan.overlap)),
        ("… by chance", _share(plan.overlap_random)),
    ]
    return Table("", ["", planned.collection.name], rows)


def _examples(planned: BatchPlan) -> list[Examples]:
    """Pairs and their hardest in-batch negatives: the hardest of the first epoch, and some drawn at random, seeded."""
    rows = planned.plan.rows
    able = np.flatnonzero(~np.isnan(rows.hardness))
    hardest = able[np.argsort(-rows.hardness[able], kind="stable")[:READ]]
    rng = np.random.default_rng([planned.provenance["seed"], 4])
    drawn = np.sort(rng.choice(able, min(READ, able.size), replace=False))
    return [
        Examples(f"the {len(hardest)} hardest meetings", [_example(planned, int(row)) for row in hardest]),
        Examples(f"{len(drawn)} drawn at random", [_example(planned, int(row)) for row in drawn]),
    ]


def _example(planned: BatchPlan, row: int) -> Example:
    collection, trained, rows = planned.collection, planned.rows, planned.plan.rows
    other = int(rows.companion[row])
    positive, negative = collection.document_texts(trained.doc_rows[[row, other]])
    query = collection.query_texts(trained.query_rows[[row]])[0]
    texts = {"query": query, "positive": positive, "in-batch negative": negative}
    note = f"hardness {rows.hardness[row]:.3f} · weight {rows.weight[row]:.3f} · loss {rows.loss[row]:.3f}"
    heading = str(collection.queries["query_id"][int(trained.query_rows[row])])
    return Example(heading, {name: shortened(text) for name, text in texts.items()}, note)


def _share(value: float) -> str:
    return "–" if value != value else f"{100 * value:.1f} %"
