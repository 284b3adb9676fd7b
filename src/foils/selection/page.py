"""The report of a rating, or of a selection from it: how hard the negatives are, how sure that is, what to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
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
)
from foils.runtime.errors import InputError
from foils.selection.rules import (
    BOUNDS,
    TIERS,
    WEIGHTS,
    GapMixture,
    Selection,
    information,
    optimal_gap,
    rated_columns,
    tier_of,
    two_group_risk,
)

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.object_]

ZONE_COLOURS = ("#d55e00", "#e69f00", "#009e73", "#56b4e9", "#8a8f94")
"""Of danger, soft, goldilocks, medium, easy."""

GAP = "gap to the positive, Elo points"
_BINS = 70
_FEWEST = 20  # direct answers in a bin before its share is drawn


@dataclass(frozen=True)
class Gaps:
    """The rated rows of a table.

    Attributes:
        row: (n,) in the table.
        gap: (n,) in Elo points.
        error: (n,) standard error of the gap, or of the rating alone where the table has no other.
        own_error: whether `error` is the gap's.
        preference: (n,) P(positive ≻ d), asked directly; NaN where it was not.
        source: (n,) where each comes from.
    """

    row: npt.NDArray[np.int64]
    gap: Floats
    error: Floats
    own_error: bool
    preference: Floats
    source: Words

    @property
    def zone(self) -> npt.NDArray[np.int64]:
        """(n,) the zone of the base table."""
        return tier_of(self.gap)

    @property
    def span(self) -> tuple[float, float]:
        """What figures show: from the 0.5th to the 99.5th percentile, with the danger zone's bound in it."""
        low, high = np.percentile(self.gap, [0.5, 99.5])
        return float(min(low, 0.0)), float(max(high, BOUNDS[1]))


@dataclass(frozen=True)
class Benefit:
    """Signal and risk by gap: what Theorem 12 weighs.

    B(Δ) = I(Δ) − λ·P(false negative | Δ), I(Δ) = H(Φ(Δ/295.7)) (eq. 46), P the two-group risk with the share ρ of
    false negatives, whose measured gaps scatter around 0 with the standard deviation `spread`.

    Attributes:
        rate: ρ. damage: λ. spread: in Elo points.
    """

    rate: float = 0.15
    spread: float = 120.0
    damage: float = 2.0

    def best(self, gap: Floats) -> float:
        """Return argmax B over Δ ≥ 0, for gaps distributed as these."""
        return optimal_gap(two_group_risk(gap, rate=self.rate, spread=self.spread), damage=self.damage)


def gap_figure(gaps: Gaps, thresholds: Mapping[str, float], mixture: GapMixture | None) -> Figure:
    """Return the distribution of gaps by source, over the base table's zones, with a rule's thresholds."""
    low, high = gaps.span
    edges = np.linspace(low, high, _BINS + 1)
    names = list(dict.fromkeys(gaps.source.tolist()))
    data = [
        _line(label(name), edges, gaps.gap[gaps.source == name], PALETTE[index % len(PALETTE)])
        for index, name in enumerate(names)
    ]
    layout = _zones(low, high)
    caption = "Share of each source's negatives by gap. Coloured bands are the zones of the base table."
    if mixture is not None:
        data += _components(mixture, edges)
        caption += " Dotted curves are the mixture's components."
    elif len(names) == 1:
        data[0]["fill"] = "tozeroy"
    if thresholds:
        for name, value in thresholds.items():
            _mark(layout, value, f"{name} {value:,.0f}")
        caption += " Dashed lines are the rule's thresholds: above the line begins what it is named after."
    heights = {"range": [0, 1.15 * max(max(one["y"]) for one in data)]}
    layout |= axes(GAP, "% of negatives", xaxis={"range": [low, high]}, yaxis=heights)
    return Figure(data, layout, caption, height=400)


def laffer_figure(gaps: Gaps, benefit: Benefit) -> Figure:
    """Return training signal, risk of a false negative and what remains of the one less the other, by hardness."""
    low, high = gaps.span
    grid = np.linspace(low, high, 241)
    risk = two_group_risk(gaps.gap, rate=benefit.rate, spread=benefit.spread)(grid)
    signal = information(grid)
    curves = {
        "training signal I(Δ), bits": (signal, PALETTE[0], "solid"),
        "risk P(false negative | Δ)": (risk, PALETTE[1], "solid"),
        f"benefit I − {benefit.damage:g}·P": (signal - benefit.damage * risk, PALETTE[2], "dash"),
    }
    data: list[dict[str, Any]] = [
        scatter(_rounded(grid), _rounded(values, 4), name=name, line={"color": colour, "dash": dash, "width": 2.2})
        for name, (values, colour, dash) in curves.items()
    ]
    caption = "Harder negatives are to the right."
    if (points := _answers(gaps, low, high)) is not None:
        data.append(points)
        caption += f" Diamonds: of the negatives in a bin (at least {_FEWEST}), the share that the judge, asked "
        caption += "directly, ranks above the positive."
    best = benefit.best(gaps.gap)
    ranges = {"xaxis": {"range": [high, low]}, "yaxis": {"range": [min(-0.5, 0.5 - benefit.damage / 2), 1.05]}}
    layout = axes(GAP, "bits; probability", legend={**LEGEND, "y": 1.18}, **ranges)
    _mark(layout, best, f"optimum {best:,.0f}")
    return Figure(data, layout, caption, height=400)


def _zones(low: float, high: float) -> dict[str, Any]:
    """Bands and names of the zones inside [low, high]."""
    edges = [low, *(min(max(bound, low), high) for bound in BOUNDS), high]
    shapes, names = [], []
    for begin, end, name, colour in zip(edges[:-1], edges[1:], TIERS, ZONE_COLOURS, strict=True):
        if end > begin:
            shapes.append({"type": "rect", "x0": begin, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "opacity": 0.13,
                           "fillcolor": colour, "line": {"width": 0}, "layer": "below"})  # fmt: skip
        if end - begin > 0.06 * (high - low):
            names.append({"x": (begin + end) / 2, "y": 1.0, "yref": "paper", "text": name, "showarrow": False,
                          "yanchor": "top", "font": {"size": 12}})  # fmt: skip
    return {"shapes": shapes, "annotations": names, "legend": {**LEGEND, "y": 1.2}}


def _mark(layout: dict[str, Any], value: float, text: str) -> None:
    """Draw a dashed line at a gap, with words above the plot, at the foot of those that are there already."""
    shapes, notes = layout.setdefault("shapes", []), layout.setdefault("annotations", [])
    shapes.append({"type": "line", "x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper",
                   "line": {"dash": "dash", "width": 1.5}})  # fmt: skip
    notes.append({"x": value, "y": 1.0, "yref": "paper", "text": label(text), "showarrow": False, "yanchor": "bottom",
                  "font": {"size": 11}})  # fmt: skip


def _components(mixture: GapMixture, edges: Floats) -> list[dict[str, Any]]:
    grid = np.linspace(edges[0], edges[-1], 241)
    density = 100 * (edges[1] - edges[0]) * mixture.density(grid)
    return [
        scatter(
            _rounded(grid),
            _rounded(density[:, k], 4),
            name=f"component {k + 1}: {100 * mixture.share[k]:.0f} %, {mixture.mean[k]:,.0f} ± {mixture.sd[k]:,.0f}",
            line={"dash": "dot", "width": 1.8, "color": colour},
        )
        for k, colour in zip(range(len(mixture.mean)), ("#d55e00", "#009e73", "#8a8f94"), strict=False)
    ]


def _answers(gaps: Gaps, low: float, high: float) -> dict[str, Any] | None:
    """The share of direct answers against the positive, by bins of the gap."""
    known = np.isfinite(gaps.preference)
    edges = np.linspace(low, high, 25)
    count = np.histogram(gaps.gap[known], edges)[0]
    against = np.histogram(gaps.gap[known & (gaps.preference < 0.5)], edges)[0]
    enough = count >= _FEWEST
    if not enough.any():
        return None
    x, y = _rounded(((edges[1:] + edges[:-1]) / 2)[enough]), _rounded(against[enough] / count[enough], 4)
    marker = {"symbol": "diamond", "size": 8, "color": PALETTE[3]}
    return scatter(x, y, mode="markers", name="judge prefers the negative", marker=marker)


def _line(name: str, edges: Floats, values: Floats, colour: str) -> dict[str, Any]:
    """Percent of all values in each bin; what lies outside counts, and is not drawn."""
    shares = np.asarray(100 * np.histogram(values, edges)[0] / max(1, len(values)))
    line = {"color": colour, "shape": "hvh", "width": 1.8}
    return scatter(_rounded((edges[1:] + edges[:-1]) / 2), _rounded(shares, 3), name=name, line=line)


def _rounded(values: Floats, digits: int = 2) -> list[float | None]:
    return [round(value, digits) if np.isfinite(value) else None for value in values.tolist()]


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
            Section("Signal and risk", [laffer_figure(gaps, benefit)], _laffer_prose(benefit)),
            Section("To read", _examples(collection, negatives, gaps, split, seed)),
            *([Section("The rating", [rating], folded=True)] if rating else []),
            Section("How to read this", (), _READING, folded=True),
        ],
        footer=_footer(negatives),
    )


_READING = (
    "Candidates of a query are compared in pairs; ratings are fitted to the judgements, in Elo points, 400 of them for "
    "odds of ten to one. The gap is the positive's rating less the negative's. A small one means that the judge hardly "
    "tells them apart: a hard negative, or a positive that nobody labelled. Standard errors count each judgement as "
    "one yes-or-no answer; a gap's is that of the difference of two ratings.",
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
    return Gaps(row, values["gap"][row], error[row], own, values["preference"][row], source)


def _subtitle(collection: Collection, negatives: Negatives, gaps: Gaps, split: str) -> str:
    queries = len(negatives.table["query_id"].take(pa.array(gaps.row)).unique())
    text = f"{collection.name}, split {split}: {len(gaps.row):,} rated negatives of {queries:,} queries"
    settings = {stage.get("stage"): stage.get("settings") or {} for stage in reversed([*_chain(negatives.provenance)])}
    for stage, name, what in (("rate", "judge", "judge"), ("rate", "model", "model"), ("select", "by", "rule")):
        if (value := settings.get(stage, {}).get(name)) is not None:
            text += f" · {what} {value}"
    return text


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
    """What a rule kept, by tier, and why it did not."""
    tier = np.asarray([name or "not shown to the rule" for name in negatives.table["tier"].to_pylist()], object)
    weight = np.asarray(negatives.table["weight"].to_numpy(), np.float64)
    rows = []
    for name in sorted(set(tier.tolist()), key=lambda name: ([*TIERS, name].index(name), name)):
        mine = tier == name
        kept = mine & negatives.keep
        rows.append(
            (name, f"{mine.sum():,}", f"{kept.sum():,}", f"{weight[mine].sum():,.1f}", _or_dash(weight[kept], 2))
        )
    columns = ["tier", "rows", "kept", "sum of weights", "mean weight of the kept"]
    why = [(reason, f"{count:,}") for reason, count in negatives.rejected().items()]
    rejected = Table("", ["why not", "rows"], why, "Rejected rows by reason, of this rule and of stages before it.")
    return Section("What was selected", [Table("", columns, rows, "By tier."), *([rejected] if why else [])])


def _examples(collection: Collection, negatives: Negatives, gaps: Gaps, split: str, seed: int) -> list[Examples]:
    """Some negatives of each zone, drawn at random, by rising gap."""
    rng, zones = np.random.default_rng([seed, 5]), []
    query, document = negatives.rows_in(collection)
    positives = collection.labels(split)
    first = dict(zip(positives.query_rows.tolist(), positives.first.tolist(), strict=True))

    def example(at: int) -> Example:
        row = negatives.table.slice(int(gaps.row[at]), 1).to_pylist()[0]
        asked, shown = int(query[gaps.row[at]]), int(document[gaps.row[at]])
        texts = {"query": collection.query_texts([asked])[0]}
        if asked in first:
            texts["positive"] = shortened(collection.document_texts([first[asked]])[0])
        texts["negative"] = shortened(row["text"] if shown < 0 else collection.document_texts([shown])[0])
        note = f"elo {row['elo']:,.0f} ± {row['elo_se']:,.0f}"
        if isfinite(gaps.preference[at]):
            note += f" · asked directly, P(positive ≻ negative) {gaps.preference[at]:.2f}"
        if "tier" in row:
            note += f" · kept with weight {row['weight']:.2f}" if row["keep"] else f" · rejected: {row['reason']}"
        error = f" ± {gaps.error[at]:,.0f}" if gaps.own_error else ""
        return Example(
            f"gap {gaps.gap[at]:,.0f}{error} · {row['source']} · {row['query_id']} · {row['doc_id']}", texts, note
        )

    for zone, name in enumerate(TIERS):
        mine = np.flatnonzero(gaps.zone == zone)
        chosen = rng.choice(mine, min(READ, len(mine)), replace=False)
        examples = [example(int(at)) for at in chosen[np.argsort(gaps.gap[chosen], kind="stable")]]
        heading = f"{name} (gap {_RANGES[zone]}): {len(mine):,} negatives, {len(examples)} to read"
        zones.append(Examples(heading, examples))
    return zones


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
