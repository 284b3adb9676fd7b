"""One self-contained HTML page: sections of prose, tables, figures and examples.

No network, all text escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import jinja2

from foils.runtime.results import Table

LONGEST = 700  # characters of a text to read

Points = Mapping[str, tuple[float, float, float]]
"""Name → value, and the ends of its interval."""


@dataclass(frozen=True)
class Figure:
    """Points with their intervals above an axis: a row for each name, a line in it for each group.

    Attributes:
        groups: name of the group → its points.
        axis: what the values are.
        caption: what it shows.
        ends: of the axis; None: as the intervals need it.
    """

    groups: Mapping[str, Points]
    axis: str
    caption: str
    ends: tuple[float, float] | None = None

    def names(self) -> list[str]:
        """Return the names of the rows from above, in the reversed order of the last group's points."""
        of_groups = [name for points in [*self.groups.values()][::-1] for name in points]
        return list(dict.fromkeys(of_groups))[::-1]

    def place(self, value: float) -> float:
        """Return where a value stands on the axis, in percent of its length."""
        low, high = self.ends or self._reached()
        return 100 * (value - low) / (high - low)

    def ticks(self) -> list[str]:
        """Return the round numbers that stand below the axis, three to eight."""
        low, high = self.ends or self._reached()
        step = 10.0 ** math.floor(math.log10((high - low) / 3))
        step = next(step * factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= 8)
        return [f"{at * step:.10g}" for at in range(math.ceil(low / step), math.floor(high / step) + 1)]

    def _reached(self) -> tuple[float, float]:
        values = [each for points in self.groups.values() for point in points.values() for each in point] or [0.0]
        margin = 0.04 * (max(values) - min(values)) or 1.0
        return min(values) - margin, max(values) + margin


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

    Everything that comes in is plain text and is escaped; the page has no script.

    Args:
        title: of the page.
        subtitle: what it is about: collection, encoder, settings.
        verdict: the answer in one or two sentences.
        sections: in order.
        footer: how to repeat it.
    """
    kinds = {Table: "table", Figure: "figure", Examples: "examples"}
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
    )


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
