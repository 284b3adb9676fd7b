"""Curves of a measure against the retained share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.errors import require
from foils.search.experiments import System


def share_figure(curves: Mapping[str, Mapping[float, System]], measure: str, *, baseline: float) -> Any:
    """Return a plotly figure: the mean of a measure over the share of dimensions kept, one line a curve.

    Args:
        curves: name → share → system, as `by_share` gives.
        measure: which one to draw.
        baseline: its mean with all dimensions, drawn as a level.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    graph = require("plotly.graph_objects", "report")
    figure = graph.Figure()
    for name, curve in curves.items():
        means = [system.means[measure] for system in curve.values()]
        figure.add_scatter(x=list(curve), y=means, mode="lines+markers", name=name)
    figure.add_hline(y=baseline, line_dash="dot", annotation_text="all dimensions")
    return figure.update_layout(xaxis_title="share of dimensions kept", yaxis_title=measure, template="simple_white")
