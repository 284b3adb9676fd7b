"""The report of a rating, or of a selection from it: how hard the negatives are, how sure that is, what to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.pages.page import Example, Examples, Section, Table, render_page, shortened
from foils.runtime.errors import InputError
from foils.selection.figures import (
    Benefit,
    Gaps,
    error_figure,
    gap_figure,
    kept_figure,
    laffer_figure,
    single_gaps_figure,
)
from foils.selection.rows import Selection, rated_columns
from foils.selection.rules import BOUNDS, TIERS, WEIGHTS

READ = 5  # examples of a zone
_RANGES = ("below 100", "100–200", "200–400", "400–600", "above 600")


def gap_report(
    collection: Collection,
    negatives: Negatives,
    *,
    split: str,
    selection: Selection | None = None,
    benefit: Benefit | None = None,
    rating: Table | None = None,
    seed: int = 0,
    warning: str = "",
) -> str:
    """Return the report of a rated table as HTML: of the rating, or of a selection from it.

    Args:
        collection: that it was made from.
        negatives: with elo, elo_se, gap, and what else rating and selection add.
        split: whose labelled positives are shown beside the examples.
        selection: what a rule found; its thresholds, and the mixture where it fitted one, are drawn.
        benefit: λ, ρ and spread of the view of signal and risk; None: those of the rule `optimal`.
        rating: what the rating did.
        seed: of the examples drawn.
        warning: that comes first.

    Raises:
        InputError: a table without ratings or without any rated row, or ids that the collection does not know.
    """
    gaps, benefit = _gaps(negatives), benefit or Benefit()
    thresholds = selection.thresholds if selection else {}
    mixture = selection.mixture if selection else None
    return render_page(
        "How hard the negatives are",
        subtitle=_subtitle(collection, negatives, gaps, split),
        verdict=f"{warning} {_verdict(negatives, gaps, benefit)}".lstrip(),
        sections=[
            Section("Gaps", [gap_figure(gaps, thresholds, mixture), _zone_table(negatives, gaps)]),
            *([Section("By source", [_source_table(gaps)])] if len(set(gaps.source.tolist())) > 1 else []),
            *([_kept_section(negatives)] if "tier" in negatives.table.column_names else []),
            Section("How sure the ratings are", [error_figure(gaps), single_gaps_figure(gaps)], _ERRORS),
            Section("Signal and risk", [laffer_figure(gaps, benefit)], _laffer_prose(benefit)),
            Section("To read", _examples(collection, negatives, gaps, split, seed)),
            *([Section("The rating", [rating], folded=True)] if rating else []),
            Section("How to read this", (), _READING, folded=True),
        ],
        footer=_footer(negatives),
    )


_ERRORS = (
    "Standard errors are the inverse Fisher information of the comparisons, and count each judgement as one yes-or-no "
    "answer: a judge whose fractions are steadier than a coin's has smaller ones. The error of a gap is that of the "
    "difference of two ratings, the positive's and the negative's.",
)
_READING = (
    "Candidates of a query are compared in pairs; ratings are fitted to the judgements, in Elo points, 400 of them for "
    "odds of ten to one. The gap is the positive's rating less the negative's. A small one means that the judge hardly "
    "tells them apart: a hard negative, or a positive that nobody labelled.",
    "Zones are those of ANMI 2.0, Table 2: below 100 danger, weight 0; 100–200 soft 0.5; 200–400 goldilocks 1; 400–600 "
    "medium 0.7; above 600 easy 0.3.",
    "A gap is as good as the judge. One that is the mined similarity itself adds nothing to that similarity: read the "
    "danger zone's examples before you trust it.",
)


def _laffer_prose(benefit: Benefit) -> tuple[str, ...]:
    return (
        "ANMI 2.0's Theorem 4: as negatives get harder they teach more, and more of them are false; beyond some "
        "hardness the harm outweighs. Read for a single gap Δ (Theorem 12): benefit B(Δ) = I(Δ) − λ·P(false "
        f"negative | Δ), with λ = {benefit.damage:g}.",
        "I(Δ) = H(Φ(Δ/295.7)), the bits in a comparison at this gap (eq. 46). P is estimated, since the paper gives no "
        f"form for it: min(1, ρ·N(Δ; 0, s²)/f(Δ)), f the density of the gaps of this table, ρ = {benefit.rate:g} the "
        f"assumed share of false negatives (Table 1: 0.05–0.10 for BM25's top 100, 0.15–0.25 for dense top 50), "
        f"s = {benefit.spread:g} the spread of their measured gaps around 0; made not to rise with Δ.",
    )


def _gaps(negatives: Negatives) -> Gaps:
    values = rated_columns(negatives.table, "gap", "gap_se", "elo_se", "preference")
    row = np.flatnonzero(np.isfinite(values["gap"]))
    if len(row) < 2:
        raise InputError(f"{len(row)} rated rows; a report needs at least two")
    own = "gap_se" in negatives.table.column_names
    source = np.asarray(negatives.table["source"].to_pylist(), object)[row]
    error = values["gap_se" if own else "elo_se"]
    return Gaps(row, values["gap"][row], error[row], own, values["elo_se"][row], values["preference"][row], source)


def _subtitle(collection: Collection, negatives: Negatives, gaps: Gaps, split: str) -> str:
    queries = len(negatives.table["query_id"].take(pa.array(gaps.row)).unique())
    text = f"{collection.name}, split {split}: {len(gaps.row):,} rated negatives of {queries:,} queries"
    provenance = negatives.provenance
    for stage, name, what in (("rate", "judge", "judge"), ("rate", "model", "model"), ("select", "by", "rule")):
        if (value := _setting(provenance, stage, name)) is not None:
            text += f" · {what} {value}"
    return text


def _setting(provenance: Mapping[str, Any], stage: str, name: str) -> object | None:
    """A setting of the latest run of a stage, in the chain of provenance."""
    for one in _chain(provenance):
        if one.get("stage") == stage:
            value: object = one.get("settings", {}).get(name)
            return value
    return None


def _chain(provenance: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The provenance of a table, and of the tables before it."""
    while isinstance(provenance, Mapping) and provenance:
        yield provenance
        provenance = provenance.get("before", {})


def _verdict(negatives: Negatives, gaps: Gaps, benefit: Benefit) -> str:
    danger = float((gaps.zone == 0).mean())
    sure = float((gaps.gap + gaps.error < BOUNDS[0]).mean())
    text = (
        f"{100 * danger:.0f} % of the negatives are within {BOUNDS[0]:g} Elo points of their positive or above it, "
        f"{100 * sure:.0f} % by more than a standard error; the median gap is {np.median(gaps.gap):,.0f}. Signal less "
        f"risk is highest at a gap of {benefit.best(gaps.gap):,.0f}."
    )
    if "weight" in negatives.table.column_names:
        text += f" Kept: {int(negatives.keep.sum()):,} of {len(negatives):,} rows."
    return text


def _zone_table(negatives: Negatives, gaps: Gaps) -> Table:
    columns = ["zone", "gap", "negatives", "share", "weight in Table 2", "median standard error", "surely inside"]
    selected = "weight" in negatives.table.column_names
    columns += ["kept", "mean weight"] if selected else []
    edges = (-np.inf, *BOUNDS, np.inf)
    rows = []
    for zone, name in enumerate(TIERS):
        mine = gaps.zone == zone
        gap, error = gaps.gap[mine], gaps.error[mine]
        inside = (gap - error >= edges[zone]) & (gap + error <= edges[zone + 1])
        row = [name, _RANGES[zone], f"{mine.sum():,}", f"{100 * mine.mean():.1f} %", f"{WEIGHTS[zone]:g}",
               _or_dash(error, 0), f"{100 * inside.mean():.0f} %" if len(gap) else "–"]  # fmt: skip
        if selected:
            weight = np.asarray(negatives.table["weight"].to_numpy(), np.float64)[gaps.row[mine]]
            keep = negatives.keep[gaps.row[mine]]
            row += [f"{keep.sum():,}", _or_dash(weight[keep], 2)]
        rows.append(row)
    caption = "Surely inside: gap ± standard error does not leave the zone."
    return Table("", columns, rows, caption, frozenset({0}))


def _source_table(gaps: Gaps) -> Table:
    rows = []
    for name in dict.fromkeys(gaps.source.tolist()):
        gap, zone = gaps.gap[gaps.source == name], gaps.zone[gaps.source == name]
        quartiles = (f"{value:,.0f}" for value in np.percentile(gap, [10, 25, 50, 75, 90]))
        shares = (f"{100 * float((zone == at).mean()):.0f} %" for at in range(len(TIERS)))
        rows.append((name, f"{len(gap):,}", *quartiles, *shares))
    columns = ["source", "negatives", "10th", "25th", "median", "75th", "90th", *TIERS]
    return Table("", columns, rows, "Percentiles of the gap, and shares of the zones, by source.")


def _kept_section(negatives: Negatives) -> Section:
    tier = np.asarray([name or "not shown to the rule" for name in negatives.table["tier"].to_pylist()], object)
    weight = np.asarray(negatives.table["weight"].to_numpy(), np.float64)
    order = {name: at for at, name in enumerate(TIERS)}
    names = sorted(set(tier.tolist()), key=lambda name: (order.get(name, len(order)), name))
    counts = {
        name: (int(negatives.keep[tier == name].sum()), int((~negatives.keep)[tier == name].sum())) for name in names
    }
    rows = [
        (name, f"{sum(counts[name]):,}", f"{counts[name][0]:,}", f"{weight[tier == name].sum():,.1f}",
         _or_dash(weight[(tier == name) & negatives.keep], 2))
        for name in names
    ]  # fmt: skip
    kept = Table("", ["tier", "rows", "kept", "sum of weights", "mean weight of the kept"], rows, "By tier.")
    why = [(reason, f"{count:,}") for reason, count in negatives.rejected().items()]
    rejected = Table("", ["why not", "rows"], why, "Rejected rows by reason, of this rule and of stages before it.")
    return Section("What was selected", [kept_figure(counts), kept, *([rejected] if why else [])])


def _examples(collection: Collection, negatives: Negatives, gaps: Gaps, split: str, seed: int) -> list[Examples]:
    """Some negatives of each zone, drawn at random, by rising gap."""
    rng, zones = np.random.default_rng([seed, 5]), []
    query, document = negatives.rows_in(collection)
    positives = collection.labels(split)
    first = dict(zip(positives.query_rows.tolist(), positives.first.tolist(), strict=True))
    for zone, name in enumerate(TIERS):
        mine = np.flatnonzero(gaps.zone == zone)
        chosen = rng.choice(mine, min(READ, len(mine)), replace=False)
        chosen = chosen[np.argsort(gaps.gap[chosen], kind="stable")]
        examples = [
            _example(collection, negatives, gaps, int(at), int(query[gaps.row[at]]), int(document[gaps.row[at]]), first)
            for at in chosen
        ]
        heading = f"{name} (gap {_RANGES[zone]}): {len(mine):,} negatives, {len(examples)} to read"
        zones.append(Examples(heading, examples))
    return zones


def _example(
    collection: Collection, negatives: Negatives, gaps: Gaps, at: int, query: int, document: int, first: dict[int, int]
) -> Example:
    row = negatives.table.slice(int(gaps.row[at]), 1).to_pylist()[0]
    texts = {"query": collection.query_texts([query])[0]}
    if query in first:
        texts["positive"] = shortened(collection.document_texts([first[query]])[0])
    texts["negative"] = shortened(row["text"] if document < 0 else collection.document_texts([document])[0])
    note = f"elo {row['elo']:,.0f} ± {row['elo_se']:,.0f}"
    if isfinite(gaps.preference[at]):
        note += f" · asked directly, P(positive ≻ negative) {gaps.preference[at]:.2f}"
    if "tier" in row:
        note += f" · kept with weight {row['weight']:.2f}" if row["keep"] else f" · rejected: {row['reason']}"
    error = f" ± {gaps.error[at]:,.0f}" if gaps.own_error else ""
    heading = f"gap {gaps.gap[at]:,.0f}{error} · {row['source']} · {row['query_id']} · {row['doc_id']}"
    return Example(heading, texts, note)


def _footer(negatives: Negatives) -> str:
    """The chain of stages and settings."""
    lines = []
    for stage in _chain(negatives.provenance):
        settings = [f"{name} {value}" for name, value in (stage.get("settings") or {}).items()]
        settings += [f"seed {stage['seed']}"] if "seed" in stage else []
        lines.append(f"{stage.get('stage', '?')}: {', '.join(settings)}")
    return "\n".join(reversed(lines))


def _or_dash(values: np.ndarray[Any, np.dtype[np.float64]], digits: int) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "–"
    return f"{np.median(known) if digits == 0 else known.mean():,.{digits}f}"
