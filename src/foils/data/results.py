"""Tables of negatives as doors return them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from foils.data.collection import Collection
from foils.data.export import export
from foils.data.negatives import Negatives
from foils.runtime.errors import InputError
from foils.runtime.results import Table


@dataclass(frozen=True, kw_only=True)
class NegativesResult(Negatives):
    """A table of negatives with what a door says of it; the next door takes it as it takes any table.

    A door's own class adds what it counts, and shows that in `rows` and `to_json`.

    Attributes:
        title: of what is shown.
        collection: that the table was made from, for the texts of exports; None: not known.
        split: whose positives exports take.
    """

    title: str = "Negatives"
    collection: Collection | None = field(default=None, repr=False, compare=False)
    split: str = "train"

    @classmethod
    def of(cls, negatives: Negatives, **more: Any) -> Self:
        """Return a table as this result; `more` are its other attributes.

        The table's pairs are not checked again: that takes longest.
        """
        result: Self = object.__new__(cls)
        values = {"table": negatives.table, "provenance": negatives.provenance, **more}
        for each in fields(cls):
            if each.name not in values and each.default is MISSING:
                raise TypeError(f"{cls.__name__} needs {each.name}")
            object.__setattr__(result, each.name, values.pop(each.name, each.default))
        if values:
            raise TypeError(f"{cls.__name__} has no {', '.join(values)}")
        return result

    def altered(self, **more: Any) -> Self:
        """Return it with other attributes; the table's pairs are not checked again."""
        return self.of(self, **{**{each.name: getattr(self, each.name) for each in fields(self)}, **more})

    def rows(self) -> list[tuple[str, str]]:
        """Return what is counted, and how many there are, as the program shows it."""
        return [(str(name), str(count)) for name, count in super().tables()[0].rows]

    def tables(self) -> list[Table]:
        """Return the counts as one table; under it what `nothing_kept` says."""
        return [Table(self.title, ("", "count"), self.rows(), self.nothing_kept())]

    def nothing_kept(self) -> str:
        """Say what follows where no row is kept; return an empty text where one is."""
        if self.keep.any():
            return ""
        return f"No row is kept: there is nothing to train on. {self.looser()}"

    def looser(self) -> str:
        """Say how more rows would be kept."""
        return "The reasons for which rows are rejected say which rule to loosen."

    def export(self, path: str | Path, *, form: str = "triplets", scores: str = "") -> int:
        """Write the kept rows in a form that training tools read (see `foils.data.export.export`).

        Args:
            path: of the file; of `pylate`, of a folder.
            form: its name.
            scores: the column of scores that go along; empty: none.

        Returns:
            How many lines or rows were written.

        Raises:
            InputError: the collection is not known, or nothing is there to export.
            UnknownNameError: no such form.
        """
        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that it was made from")
        return export(self, self.collection, path, form=form, split=self.split, scores=scores)


def rejected_rows(negatives: Negatives) -> list[tuple[str, str]]:
    """Return a row for each reason for which rows are rejected."""
    return [(f"rejected: {reason}", f"{count:,}") for reason, count in negatives.rejected().items()]
