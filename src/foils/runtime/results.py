"""Results show themselves: as tables, in a terminal or a notebook, as JSON, and as a page."""

from __future__ import annotations

import io
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import IO, Any

from foils.runtime import files

_WIDTH = 160  # of tables that do not go to a terminal
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed: a terminal would obey them
_NUMBER = re.compile(r"[-+−–]?[\d.,–\[\]\s]*%?")  # also intervals, and nothing


@dataclass(frozen=True)
class Table:
    """A table to look at; its cells are text.

    Attributes:
        title: what it shows.
        columns: their headings.
        rows: of cells, the first of which names the row.
        caption: remarks, a line each.
        marked: numbers of rows that stand out on a page.
        words: numbers of columns whose cells begin at the left on a page, as the first column's do.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    marked: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()

    def to_html(self) -> str:
        """Return it as HTML, all text escaped."""
        head = "".join(f"<th>{escape(str(cell))}</th>" for cell in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in self.rows)
        caption = "".join(f"<p>{escape(line)}</p>" for line in self.caption.splitlines())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<h4>{escape(self.title)}</h4>{table}{caption}"


def print_tables(tables: Sequence[Table], file: IO[str] | None = None) -> None:
    """Print tables, to stdout by default: the title, the table, the remarks; columns of numbers stand at the right.

    Control characters, which a document may hold to move the cursor or worse, are printed as �.
    """
    from rich import box, console, markup
    from rich.table import Table as RichTable

    def shown(value: object) -> str:
        return markup.escape(_CONTROL.sub("\ufffd", str(value)))

    file = file or sys.stdout
    out = console.Console(file=file, width=None if file.isatty() else _WIDTH, highlight=False)
    for table in tables:
        grid = RichTable(box=box.SIMPLE_HEAD)
        for index, column in enumerate(table.columns):
            numbers = index > 0 and all(_NUMBER.fullmatch(str(row[index])) for row in table.rows)
            grid.add_column(shown(column), justify="right" if numbers else "left", no_wrap=index == 0)
        for row in table.rows:
            grid.add_row(*map(shown, row))
        out.print(shown(table.title), style="bold")
        out.print(grid)
        if table.caption:
            out.print(shown(table.caption), style="dim", soft_wrap=True)


class Result(ABC):
    """What a door returns: it prints itself, and a notebook renders it.

    A result that has a page of its own also has `report(path)`.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # a dataclass leaves what a class has itself

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.brief})"

    @property
    def brief(self) -> str:
        """What it is, in one line, for `repr`."""
        return next((table.title for table in self.tables()), "")

    @abstractmethod
    def tables(self) -> list[Table]:
        """Return what there is to see, as the program prints it."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the result for `--json`: numbers, texts, lists and dictionaries; what is not known is None."""

    def write_json(self, path: str | Path) -> None:
        """Write what `to_json` returns, whole."""
        files.write_json(path, self.to_json())

    def __str__(self) -> str:
        """Return the tables as plain text."""
        text = io.StringIO()
        print_tables(self.tables(), text)
        return text.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.tables())


def counted(count: int, unit: str) -> str:
    """Return a number with the name of its unit, singular for one: 1 query, 2 queries, 1 batch."""
    if count == 1:
        cut = 2 if unit.endswith(("ches", "shes", "sses", "xes")) else 1
        unit = f"{unit[:-3]}y" if unit.endswith("ies") else unit[:-cut] if unit.endswith("s") else unit
    return f"{count:,} {unit}"


def p_value(p: float) -> str:
    """Return a p-value with four digits; what they cannot tell from 0 is below 0.0001."""
    return "< 0.0001" if p < 1e-4 else number(p, 4)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point, or an en dash where there is none."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign and so many digits after the point, or an en dash where there is none."""
    return "–" if value != value else f"{value:+.{digits}f}"


def with_ends(value: float, low: float, high: float) -> str:
    """Return a difference with its interval, as +0.0312 [+0.0104, +0.0520]."""
    return f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"
