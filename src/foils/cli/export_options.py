"""The option `--export` of every verb that writes negatives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection, Negatives


@dataclass(frozen=True)
class ExportOptions:
    """The kept rows in the forms that training tools read."""

    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORM=FILE",
            help="Write the kept rows for training too: triplets, tuples, labelled-pairs, labelled-lists, tevatron, "
            "flagembedding, trec.",
        ),
    ] = None

    def forms(self) -> list[tuple[str, Path]]:
        """Return each form and where to write it.

        Raises:
            InputError: an `--export` that is not FORM=FILE.
            UnknownNameError: an unknown form.
        """
        return [_exported(spec) for spec in self.export or []]

    def write(self, negatives: Negatives, collection: Collection, split: str) -> None:
        """Write the kept rows of a split's queries in each form."""
        from foils.data.export import export

        for form, path in self.forms():
            export(negatives, collection, path, form=form, split=split)


def _exported(spec: str) -> tuple[str, Path]:
    from foils.data.export import FILES

    form, equals, path = spec.partition("=")
    if not equals or not path:
        raise InputError(f"--export {spec}: expected FORM=FILE, as in triplets=train.jsonl")
    if form not in FILES:
        raise UnknownNameError("form", form, FILES)
    return form, Path(path)
