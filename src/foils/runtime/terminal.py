"""Tables as text: in a terminal, in a file, in a string."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from foils.runtime.results import Table

_WIDTH = 160  # of tables that do not go to a terminal
_CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed: a terminal would obey them
_NUMBER = re.compile(r"[-+−–]?[\d.,–\[\]\s]*%?")  # also intervals, and nothing


def visible(text: str) -> str:
    """Return a text with � in place of control characters, which a document may hold to move the cursor or worse."""
    return _CONTROL.sub("\ufffd", text)


def print_tables(tables: Sequence[Table], file: IO[str] | None = None) -> None:
    """Print tables, to stdout by default: the title, the table, the remarks; columns of numbers stand at the right."""
    file = file or sys.stdout
    console = Console(file=file, width=None if file.isatty() else _WIDTH, highlight=False)
    for table in tables:
        shown = RichTable(box=box.SIMPLE_HEAD)
        for index, column in enumerate(table.columns):
            numbers = index > 0 and all(_NUMBER.fullmatch(str(row[index])) for row in table.rows)
            shown.add_column(escape(column), justify="right" if numbers else "left", no_wrap=index == 0)
        for row in table.rows:
            shown.add_row(*(escape(visible(str(cell))) for cell in row))
        console.print(escape(visible(table.title)), style="bold")
        console.print(shown)
        if table.caption:
            console.print(escape(visible(table.caption)), style="dim", soft_wrap=True)
