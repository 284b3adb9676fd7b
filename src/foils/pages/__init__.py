"""One self-contained HTML page: sections of prose, tables, figures and examples.

No network, all text escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

import jinja2

from foils.runtime.results import Table

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
LEGEND = {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"}
LONGEST = 700  # characters of a text to read

Points = Mapping[str, tuple[float, float, float]]
"""Name → value, and the ends of its interval."""


@dataclass(frozen=True)
class Figure:
    """A Plotly figure: data and layout as dictionaries, and what it shows in words."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    caption: str
    height: int = 360


@dataclass(frozen=True)
class Example:
    """Texts to read: label -> text, under a heading, with numbers as small print."""

    heading: str
    texts: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True)
class Examples:
    """Examples behind a heading, which are open at first."""

    heading: str
    examples: Sequence[Example]


Block = Table | Figure | Examples


@dataclass(frozen=True)
class Section:
    """A part of the page; `prose` is paragraphs of plain text. A folded section opens on demand."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    prose: Sequence[str] = ()
    folded: bool = False


def render_page(title: str, *, subtitle: str, verdict: str, sections: Sequence[Section], footer: str = "") -> str:
    """Return the page as HTML.

    Everything that comes in is plain text and is escaped; figures are drawn by a copy of plotly.js
    inside the page: its basic bundle, which draws lines, markers, bars and pies.

    Args:
        title: of the page.
        subtitle: what it is about: collection, encoder, settings.
        verdict: the answer in one or two sentences.
        sections: in order.
        footer: how to repeat it.
    """
    figures = [
        {"data": block.data, "layout": dict(block.layout), "height": block.height}
        for section in sections
        for block in section.blocks
        if isinstance(block, Figure)
    ]
    kinds = {Table: "table", Figure: "figure", Examples: "examples"}
    written = json.dumps(figures, allow_nan=False)
    for sign in "<>&":  # so that no text can end the script element
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("foils.pages", "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        title=title,
        subtitle=subtitle,
        verdict=verdict,
        sections=sections,
        kind=lambda block: kinds[type(block)],
        footer=footer,
        figures=written,
        plotly=files("foils.pages").joinpath("plotly", "plotly-basic.min.js").read_text("utf-8") if figures else "",
    )


def label(text: str) -> str:
    """Return text for a figure: Plotly reads some HTML in labels, so what users named is escaped."""
    return escape(text)


def intervals_figure(groups: Mapping[str, Points], x: str, caption: str, **axis: Any) -> Figure:
    """Return points with their intervals, one row a name, the last group's order from below.

    Args:
        groups: name of the group → its points.
        x: what the values are.
        caption: what it shows.
        axis: further settings of the horizontal axis.
    """
    data, colours = [], (PALETTE[7], *PALETTE) if len(groups) > 1 else PALETTE
    for (group, points), colour in zip(groups.items(), colours, strict=False):
        names, values = [label(name) for name in points], [value for value, _, _ in points.values()]
        ends = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, high - value) for value, _, high in points.values()],
            "arrayminus": [max(0.0, value - low) for value, low, _ in points.values()],
            "thickness": 1.3,
        }
        trace = {"type": "scatter", "mode": "markers", "x": values, "y": names, "orientation": "h", "error_x": ends}
        data.append({**trace, "marker": {"size": 9, "color": colour}, "name": label(group)})
    order = {"type": "category", "categoryorder": "array", "categoryarray": names}
    layout = {"xaxis": {"title": {"text": x}, **axis}, "yaxis": order, "legend": LEGEND, "showlegend": len(groups) > 1}
    grouped = {"scattermode": "group", "scattergap": 0.3}  # each group of a row on a line of its own
    return Figure(data, layout | grouped, caption, height=120 + len(names) * max(24, 18 * len(groups)))


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the text, cut at a blank with an ellipsis where it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    return text[:longest].rsplit(" ", 1)[0] + " …"


def marked(text: str, words: Collection[str]) -> str:
    """Return the text as escaped HTML in which these words (in lower case) are marked."""
    from markupsafe import Markup

    parts = re.split(r"(\w+)", text)
    return Markup("").join(Markup("<mark>{}</mark>").format(p) if p.lower() in words else p for p in parts)
