"""What a table on a narrow screen must keep: every number whole, every word, and no line beyond the edge."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from foils.runtime.results import Table, print_tables

SHORT = 12  # characters of a word that no column breaks


def printed(tables: Sequence[Table], width: int) -> str:
    """The tables as the program prints them on a terminal of so many columns."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        print_tables(tables, text)
    return text.getvalue()


def assert_whole(tables: Sequence[Table], width: int) -> None:
    """Check that nothing of the tables is cut at this width."""
    for table in tables:
        lines = printed([Table(table.title, table.columns, table.rows)], width).splitlines()
        below = lines[-(len(lines) - len(str(table.title)) // width - 1) :]
        assert all(len(line.rstrip()) <= width for line in below), max(below, key=len)
        text = "\n".join(below)
        for row in table.rows:
            for cell in map(str, row[1:]):
                if any(each.isdigit() for each in cell) and not any(each.isalpha() for each in cell):
                    assert cell in text, f"{cell!r} is cut at {width} columns:\n{text}"
            for word in " ".join(map(str, row)).split():
                assert len(word) > SHORT or word in text, f"{word!r} is cut at {width} columns:\n{text}"
