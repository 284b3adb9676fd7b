"""Figures of a report on ratings: gaps over the zones, their errors, signal and risk, what a rule kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.pages.page import LEGEND, PALETTE, Figure, axes, label, scatter
from foils.selection.optimal import information, optimal_gap, two_group_risk
from foils.selection.rows import GapMixture
from foils.selection.rules import BOUNDS, TIERS, tier_of

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.object_]

ZONE_COLOURS = ("#d55e00", "#e69f00", "#009e73", "#56b4e9", "#8a8f94")
"""Of danger, soft, goldilocks, medium, easy."""

GAP = "gap to the positive, Elo points"
_BINS = 70
_SHOWN = 120  # negatives in the plot of single gaps
_FEWEST = 20  # direct answers in a bin before its share is drawn


@dataclass(frozen=True)
class Gaps:
    """The rated rows of a table.

    Attributes:
        row: (n,) in the table.
        gap: (n,) in Elo points.
        error: (n,) standard error of the gap, or of the rating alone where the table has no other.
        own_error: whether `error` is the gap's.
        rating_error: (n,) standard error of the negative's rating.
        preference: (n,) P(positive ≻ d), asked directly; NaN where it was not.
        source: (n,) where each comes from.
    """

    row: npt.NDArray[np.int64]
    gap: Floats
    error: Floats
    own_error: bool
    rating_error: Floats
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


def error_figure(gaps: Gaps) -> Figure:
    """Return the distributions of standard errors."""
    kinds = {"of the negative's rating": gaps.rating_error} | ({"of the gap": gaps.error} if gaps.own_error else {})
    known = np.concatenate([values[np.isfinite(values)] for values in kinds.values()])
    edges = np.linspace(0.0, float(np.percentile(known, 99)) if len(known) else 1.0, 51)
    data = [_line(name, edges, values, PALETTE[index]) for index, (name, values) in enumerate(kinds.items())]
    zero = {"rangemode": "tozero"}
    layout = axes("standard error, Elo points", "% of negatives", xaxis=zero, yaxis=zero, legend=LEGEND)
    return Figure(data, layout, "How uncertain ratings and gaps are.", height=320)


def single_gaps_figure(gaps: Gaps) -> Figure:
    """Return some gaps, from the smallest to the largest, each with one standard error to both sides."""
    order = np.argsort(gaps.gap, kind="stable")
    place = np.unique(np.linspace(0, len(order) - 1, min(_SHOWN, len(order))).astype(np.int64))
    chosen, percent = order[place], 100 * (place + 0.5) / len(order)
    data = []
    for zone, (name, colour) in enumerate(zip(TIERS, ZONE_COLOURS, strict=True)):
        mine = gaps.zone[chosen] == zone
        bar = {"type": "data", "array": _rounded(gaps.error[chosen][mine]), "thickness": 1, "width": 0}
        if mine.any():
            x, y = _rounded(percent[mine]), _rounded(gaps.gap[chosen][mine])
            data.append(scatter(x, y, mode="markers", name=name, error_y=bar, marker={"size": 5, "color": colour}))
    bounds = [
        {"type": "line", "x0": 0, "x1": 100, "y0": bound, "y1": bound, "line": {"width": 1, "color": "#8a8f94"},
         "layer": "below"}
        for bound in BOUNDS
    ]  # fmt: skip
    ranges = {"xaxis": {"range": [0, 100]}, "yaxis": {"range": list(gaps.span)}}
    layout = axes("% of negatives with a smaller gap", "gap ± standard error", shapes=bounds, legend=LEGEND, **ranges)
    of = "the gap's" if gaps.own_error else "the rating's"
    caption = f"{len(chosen)} negatives, evenly from all, with one standard error ({of}). Lines are the zones' bounds; "
    caption += "the most extreme gaps are outside the picture."
    return Figure(data, layout, caption, height=380)


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


def kept_figure(rows: Mapping[str, tuple[int, int]]) -> Figure:
    """Return how many rows of each tier were kept, and how many not; `rows` is tier → (kept, rejected)."""
    tiers = [label(tier) for tier in rows]
    data = [
        {"type": "bar", "name": name, "x": tiers, "y": [of[at] for of in rows.values()], "marker": {"color": colour}}
        for at, (name, colour) in enumerate((("kept", PALETTE[2]), ("rejected", "#b7bdc3")))
    ]
    layout = {"barmode": "stack", "yaxis": {"title": {"text": "negatives"}}, "legend": LEGEND}
    return Figure(data, layout, "Negatives by tier.", height=300)


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
