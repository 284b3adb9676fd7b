"""Figures of a scoring's page: the ranking, distributions of gates and margins, buckets, ablations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foils.pages.page import LEGEND, PALETTE, Figure, axes, label, scatter
from foils.scoring.ablations import Ablation, Spectrum
from foils.scoring.decision import Decision
from foils.scoring.diagnostics import BUCKETS
from foils.scoring.records import CONTROL, Target
from foils.scoring.results import Scores, SourceScore

CONTROL_COLOUR = "#8a8f94"


def decision_figure(decision: Decision) -> Figure:
    """Return the benefit of every source by o, today's belief shaded: where lines cross the decision turns."""
    grid = decision.curve["unlabelled"]
    names = [name for name in decision.curve["benefit"] if name != CONTROL]
    data = [
        scatter(grid, [round(value, 5) for value in decision.curve["benefit"][name]], name=label(name),
                line={"color": PALETTE[index % len(PALETTE)], "width": 4 if name == decision.source else 2})
        for index, name in enumerate(names)
    ]  # fmt: skip
    band = {"type": "rect", "x0": decision.unlabelled_low, "x1": decision.unlabelled_high, "y0": 0, "y1": 1,
            "yref": "paper", "fillcolor": CONTROL_COLOUR, "opacity": 0.2, "line": {"width": 0},
            "layer": "below"}  # fmt: skip
    layout = {**axes("o, relevant documents without a label for each labelled one", "benefit"), "legend": LEGEND}
    caption = (
        "The benefit of training on each source, by how many relevant documents have no label; 0 is what in-batch "
        "negatives alone give. Shaded: today's belief. Where two lines cross within it, labels decide."
    )
    return Figure(data, {**layout, "shapes": [band]}, caption, height=380)


def ranking_figure(scores: Scores) -> Figure:
    """Return the score and the interval of each source and hybrid, and the random control as a band."""
    ranked = scores.ranked[::-1]
    data: list[dict[str, object]] = []
    for hybrid, colour, name in ((False, PALETTE[0], "source"), (True, PALETTE[1], "hybrid")):
        chosen = [score for score in ranked if score.hybrid == hybrid]
        if chosen:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [score.eci_sem for score in chosen],
                    "y": [label(score.name) for score in chosen],
                    "marker": {"size": 11, "color": colour, "symbol": "circle" if not hybrid else "diamond"},
                }
            )
            data.append(_intervals(chosen, colour))
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": "ECI_sem"}, "rangemode": "tozero"},
        "yaxis": {"categoryorder": "array", "categoryarray": [label(score.name) for score in ranked]},
        "legend": {"orientation": "h", "y": 1.12},
    }
    caption = "Score and interval of each source and hybrid."
    if scores.control:
        layout["shapes"] = [_band(scores.control)]
        layout["annotations"] = [
            {"x": scores.control.eci_sem, "y": 1.0, "yref": "paper", "text": "random control", "showarrow": False,
             "yshift": 10}
        ]  # fmt: skip
        caption += " The grey band is the random control: what reaches it is easy."
    return Figure(data, layout, caption, height=130 + 34 * len(ranked))


def _intervals(chosen: list[SourceScore], colour: str) -> dict[str, object]:
    """The intervals as lines of their own: at a small λ they lie above the score."""
    known = [score for score in chosen if score.eci_sem_low == score.eci_sem_low]
    ends = [[score.eci_sem_low, score.eci_sem_high, None] for score in known]
    return {
        "type": "scatter", "mode": "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [end for pair in ends for end in pair], "y": [label(score.name) for score in known for _ in range(3)],
        "line": {"color": colour, "width": 2},
    }  # fmt: skip


def _band(control: SourceScore) -> dict[str, object]:
    known = control.eci_sem_low == control.eci_sem_low
    low, high = (control.eci_sem_low, control.eci_sem_high) if known else (control.eci_sem, control.eci_sem)
    return {"type": "rect", "x0": low, "x1": high, "y0": 0, "y1": 1, "yref": "paper", "fillcolor": CONTROL_COLOUR,
            "opacity": 0.35, "line": {"width": 1, "color": CONTROL_COLOUR}, "layer": "below"}  # fmt: skip


def distribution_figure(scores: Scores) -> Figure:
    """Return how the gates and the margin are distributed over negatives, by source."""
    gates, similarities = scores.measured.gates, scores.measured.similarities
    panels = {
        "ρ": (gates.rho, 0.0, 1.0),
        "η": (gates.eta, 0.0, 1.0),
        "ψ": (gates.psi, 0.0, 1.0),
        "margin": (similarities.s_p - similarities.s_n, -1.0, 1.0),
    }
    data, layout = [], {"grid": {"rows": 1, "columns": 4, "pattern": "independent"}}
    for index, (name, (values, low, high)) in enumerate(panels.items()):
        axis = "" if index == 0 else str(index + 1)
        edges = np.linspace(low, high, 41)
        for target, member, colour in single_targets(scores):
            counts, _ = np.histogram(np.clip(values[member], low, high), edges)
            share = 100 * counts / max(1, counts.sum())
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "line": {"color": colour, "shape": "hvh", "width": 1.8},
                    "name": label(target.name),
                    "legendgroup": label(target.name),
                    "showlegend": index == 0,
                    "x": ((edges[1:] + edges[:-1]) / 2).round(4).tolist(),
                    "y": share.round(3).tolist(),
                    "xaxis": f"x{axis}",
                    "yaxis": f"y{axis}",
                }
            )
        layout[f"xaxis{axis}"] = {"title": {"text": name}, "range": [low, high]}
        layout[f"yaxis{axis}"] = {"title": {"text": "% of negatives"}} if index == 0 else {}
    layout["legend"] = {"orientation": "h", "y": 1.15}
    return Figure(data, layout, "Distribution over negatives, by source.", height=340)


def bucket_figure(scores: Scores) -> Figure:
    """Return the share of negatives in each bucket, by source."""
    ranked = [score for score in scores.ranked if not score.hybrid] + ([scores.control] if scores.control else [])
    colours = {target.name: colour for target, _, colour in single_targets(scores)}
    data = [
        {
            "type": "bar",
            "name": label(score.name),
            "x": [name.replace("_", " ") for name in BUCKETS],
            "y": [round(score.buckets[name], 3) for name in BUCKETS],
            "marker": {"color": colours[score.name]},
        }
        for score in ranked
    ]
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "% of negatives"}},
        "legend": {"orientation": "h", "y": 1.15},
    }
    return Figure(data, layout, "Share of negatives in each bucket.", height=340)


def ablation_figure(table: Ablation) -> Figure:
    """Return the scores under each setting of an ablation."""
    settings = list(table.scores)
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(name),
            "x": [label(setting) for setting in settings],
            "y": [table.scores[setting][name] for setting in settings],
            "line": {"color": PALETTE[index % len(PALETTE)]},
        }
        for index, name in enumerate(table.scores[table.base])
    ]
    layout = {
        "xaxis": {"title": {"text": table.name}, "type": "category"},
        "yaxis": {"title": {"text": "ECI_sem"}, "type": "log" if table.name == "simplification" else "linear"},
    }
    return Figure(data, layout, f"ECI_sem by {table.name}; the base is {table.base}.", height=320)


def lambda_figure(spectra: Sequence[Spectrum]) -> Figure:
    """Return what repeated directions take away from the score, by λ."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(spectrum.name),
            "x": [float(key) for key in spectrum.diversity],
            "y": [100 * value if value == value else None for value in spectrum.diversity.values()],
            "line": {"color": PALETTE[index % len(PALETTE)]},
        }
        for index, spectrum in enumerate(spectra)
    ]
    layout = {
        "xaxis": {"title": {"text": "λ"}, "type": "log", "autorange": "reversed"},
        "yaxis": {"title": {"text": "% of the trace"}, "rangemode": "tozero"},
    }
    return Figure(data, layout, "What repeated directions take away from the score, by λ.", height=320)


def single_targets(scores: Scores) -> list[tuple[Target, npt.NDArray[np.bool_], str]]:
    """Return sources and control, without hybrids: target, its triplets, its colour."""
    targets = scores.measured.records.targets(1)
    colours = [*(PALETTE[index % len(PALETTE)] for index in range(len(targets)))]
    if scores.control:
        colours[-1] = CONTROL_COLOUR
    return [
        (target, target.of(scores.measured.records.members), colour)
        for target, colour in zip(targets, colours, strict=True)
    ]
