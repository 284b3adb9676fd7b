"""Results show themselves: as tables, in a terminal or a notebook, as JSON, and as a page."""

from __future__ import annotations

import functools
import io
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from shutil import get_terminal_size
from typing import IO, Any, ClassVar

from foils.runtime import files
from foils.runtime.errors import require

WIDTH = 160  # of tables where neither a terminal nor COLUMNS says it
GAP = 3  # between the texts of two columns
EDGE = 1  # before the first column
MIN_TEXT = 16  # the narrowest that a column of texts with long words may be
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed: a terminal would obey them
_NUMBER = re.compile(r"[-+−–<\d.,\[\]\s]*%?")  # also intervals, p-values, and nothing


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
    """Print tables, to stdout by default: the title, the table, the remarks.

    Columns of numbers stand at the right.

    No cell is cut: texts wrap, numbers have the width that they need, and columns that do not fit
    beside the others follow below, behind the first column again. Control characters, which a
    document may hold to move the cursor or worse, are printed as �.

    Args:
        tables: to print one after the other.
        file: where to. They are as wide as COLUMNS says, or else the terminal.
    """
    from rich.console import Console
    from rich.text import Text

    file, width = file or sys.stdout, get_terminal_size((WIDTH, 24)).columns
    out = Console(file=file, width=width, highlight=False)
    for table in tables:
        out.print(Text(_plain(table.title)), style="bold", soft_wrap=not file.isatty())
        sizes = [_widths(table, column, width) for column in range(len(table.columns))]
        for columns in _beside(table, sizes, width):
            out.print(_grid(table, columns, sizes, width))
        if table.caption:
            out.print(Text(_plain(table.caption)), style="dim", soft_wrap=not file.isatty())


def _plain(value: object) -> str:
    return _CONTROL.sub("\ufffd", str(value))


def _is_numeric(table: Table, column: int) -> bool:
    return column > 0 and all(_NUMBER.fullmatch(str(row[column])) for row in table.rows)


def _widths(table: Table, column: int, width: int) -> tuple[int, int]:
    """Return the least width that a column can have without a cut cell, and the width with which nothing wraps."""
    from rich.cells import cell_len

    cells = [_plain(row[column]) for row in table.rows]
    heading, numeric = _plain(table.columns[column]), _is_numeric(table, column)
    longest = max(map(cell_len, [heading, *cells]))
    words = [*heading.split(), *(cells if numeric else " ".join(cells).split())]
    least = max(map(cell_len, words), default=0)
    if not numeric:
        least = min(least, max(MIN_TEXT, width // 3))  # a longer word, as a path, goes on in the next line
    return min(max(least, 12), longest), longest


def _beside(table: Table, sizes: Sequence[tuple[int, int]], width: int) -> list[list[int]]:
    """Return the numbers of the columns that stand beside each other, block by block.

    The first column leads each block; the second does, too, where rows have the same name and it is short.
    """
    least = [narrowest + GAP for narrowest, _ in sizes]
    names = {row[0] for row in table.rows}
    both = len(names) < len(table.rows) and EDGE + sum(least[:2]) <= width // 2
    leading = [0, 1] if both else [0]
    blocks = [leading.copy()]
    for column in range(len(leading), len(table.columns)):
        used = EDGE + sum(least[each] for each in blocks[-1])
        if len(blocks[-1]) > len(leading) and used + least[column] > width:
            blocks.append(leading.copy())
        blocks[-1].append(column)
    return blocks


def _grid(table: Table, columns: Sequence[int], sizes: Sequence[tuple[int, int]], width: int) -> Any:
    """Return some columns of a table for a console: what room is left goes to the texts that would wrap."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    widths = {column: sizes[column][0] for column in columns}
    room = width - EDGE - GAP * len(columns) - sum(widths.values())
    by_need = sorted(columns, key=lambda column: sizes[column][1] - sizes[column][0])
    for place, column in enumerate(by_need):
        more = max(0, min(sizes[column][1] - widths[column], room // (len(columns) - place)))
        widths[column] += more
        room -= more
    grid = RichTable(box=box.SIMPLE_HEAD)
    for column in columns:
        justify: Any = "right" if _is_numeric(table, column) else "left"
        heading = Text(_plain(table.columns[column]))
        grid.add_column(heading, justify=justify, width=widths[column], overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(_plain(row[column])) for column in columns))
    return grid


def _checking(write: Callable[..., Any], endings: Sequence[str]) -> Callable[..., Any]:
    """Return a method that writes to a path and refuses first what `foils.runtime.files.check_output` refuses."""

    @functools.wraps(write)
    def checked(self: Result, path: str | Path) -> Any:
        files.check_output(path, endings, getattr(self, "_read", ()))
        return write(self, path)

    return checked


class Result(ABC):
    """What a door returns: it prints itself, and a notebook renders it.

    A result that has a page of its own also has `report(path)`. One that writes itself has
    `write(path)`. None writes over what was read for it, or under a name that says another form.
    """

    __slots__ = ("_read",)  # beside the attributes of a result, which stay its own
    endings: ClassVar[Sequence[str]] = files.PARQUET  # of the names of what `write` writes

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # a dataclass leaves what a class has itself
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]
        writers = {"write": cls.endings, "report": files.HTML, "write_runs": (files.FOLDER,)}
        for name, endings in writers.items():
            if name in vars(cls):
                setattr(cls, name, _checking(vars(cls)[name], endings))

    def remember(self, read: Sequence[Path]) -> None:
        """Note the files and folders that were read for it, over which it is not to be written."""
        object.__setattr__(self, "_read", read)

    def __getstate__(self) -> dict[str, Any]:
        """Send a result to other processes without what was read for it."""
        return vars(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.brief})"

    @property
    def brief(self) -> str:
        """What it is, in one line with its first number, for `repr`; a title that is a sentence says all."""
        first = self.tables()[0]
        if first.title.endswith(".") or not first.rows or len(first.columns) < 2:
            return first.title
        return f"{first.title}: {first.rows[0][0]}, {first.columns[1]} {first.rows[0][1]}"

    @abstractmethod
    def tables(self) -> list[Table]:
        """Return what there is to see, as the program prints it."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the result for `--json`: numbers, texts, lists and dictionaries.

        What is not known is None.
        """

    def json_text(self) -> str:
        """Return what `to_json` returns as text, for `--json -`."""
        return json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False) + "\n"

    def write_json(self, path: str | Path) -> None:
        """Write what `to_json` returns, whole."""
        files.check_output(path, files.JSON, getattr(self, "_read", ()))
        files.write_json(path, self.to_json())

    def to_pandas(self) -> Any:
        """Return its records as a pandas DataFrame: the first list of them in `to_json`, or its numbers in one row.

        Numbers are numbers; what is nested deeper, as the values of single queries, is in `to_json` alone.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pandas = require("pandas", "hub")
        whole = self.to_json()
        lists = (value for value in whole.values() if isinstance(value, list) and value and isinstance(value[0], dict))
        frame = pandas.json_normalize(next(lists, [whole]), max_level=1)
        return frame[[name for name in frame if not frame[name].map(type).isin([dict, list]).any()]]

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
    return "–" if value != value else f"{round(value, digits) + 0.0:+.{digits}f}"  # no minus before a zero


def with_ends(value: float, low: float, high: float) -> str:
    """Return a difference with its interval, as +0.0312 [+0.0104, +0.0520]."""
    return f"{signed(value, 4)} [{signed(low, 4)}, {signed(high, 4)}]"
