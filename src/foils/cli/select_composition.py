"""foils select --by composition: of several sources the negatives that together tell most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.made import Made
from foils.runtime.errors import UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection


@dataclass(frozen=True)
class CompositionOptions:
    """What is composed, and how."""

    source: Annotated[
        list[str] | None,
        typer.Option("--source", "--sources", metavar="SOURCE", help="Composition: to choose from; several times."),
    ] = None
    top: Annotated[int, typer.Option(min=1, help="Composition: negatives per query.")] = 10
    regularization: Annotated[
        float, typer.Option("--lambda", help="Composition: the smaller, the more diversity counts.")
    ] = 0.1
    weight: Annotated[
        str,
        typer.Option(help="Composition: gated, residual_only, gradient_weighted or margin_hardness."),
    ] = "gated"
    temperature: Annotated[float, typer.Option(help="Composition: divides similarities.")] = 0.05

    def made(self, collection: Collection, split: str, encoding: opt.EncoderOptions) -> Made:
        """Return the sources' rows in one table, with what was chosen.

        Raises:
            UnknownNameError: an unknown weight.
        """
        from foils.data import Negatives
        from foils.data.sources import read_sources
        from foils.data.store import provenance
        from foils.mining.fuse import union
        from foils.scoring import compose, composed, measure, prepare
        from foils.scoring.gates import WEIGHTINGS

        if self.weight not in WEIGHTINGS:
            raise UnknownNameError("weight", self.weight, WEIGHTINGS)
        read = read_sources(self.source or [], collection)
        united = union({each.name: each.negatives for each in read}) if len(read) > 1 else read[0].negatives
        prepared = prepare(collection, {"union": united}, split=split, control=False)
        encoder, store = encoding.open(collection)
        measured = measure(prepared, encoder, store, self.temperature)
        weights = WEIGHTINGS[self.weight](measured.similarities, self.temperature)
        chosen = compose(measured.geometry, weights, count=self.top, regularization=self.regularization)
        settings = {"by": "composition", "top": self.top, "lambda": self.regularization, "weight": self.weight,
                    "split": split, "temperature": self.temperature, "encoder": encoder.describe()}  # fmt: skip
        made = provenance("select", settings, inputs={each.name: each.digest for each in read})
        table = Negatives(composed(united, measured.records, chosen, weights).table, made)
        kept, records, rejected = int(table.keep.sum()), len(measured.records), table.rejected()
        rows = [("queries", f"{records:,}"), ("candidates", f"{len(united):,}"), ("chosen", f"{kept:,}")]
        rows += [(f"rejected: {why}", f"{count:,}") for why, count in rejected.items()]
        facts = {"queries": records, "candidates": len(united), "kept": kept, "rejected": rejected}
        return Made(table, f"composition of {len(read)} sources", rows, {"settings": settings, **facts})
