"""A table of negatives that a verb made, and how it is written and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.cli.show import show_table

if TYPE_CHECKING:
    from foils.data import Negatives


@dataclass(frozen=True)
class Made:
    """The negatives that a verb made, and what is told of them.

    Attributes:
        negatives: the table.
        title: of what is printed.
        rows: of what is printed.
        facts: what JSON tells.
        columns: of what is printed.
        caption: remarks below it.
    """

    negatives: Negatives
    title: str
    rows: Sequence[Sequence[str]]
    facts: dict[str, Any]
    columns: Sequence[str] = ("", "count")
    caption: str = ""

    def write(self, output: Path, json: Path | None) -> None:
        """Write the table, show what is to be told of it, and write that as JSON where asked."""
        from foils.data.store import write_json

        self.negatives.write(output)
        show_table(f"{self.title} → {output}", self.columns, self.rows, caption=self.caption)
        if json:
            write_json(json, self.facts)
