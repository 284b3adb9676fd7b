"""foils select: which rated negatives to train on, with what weight."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foils.cli import options as opt
from foils.cli.show import number, show_table
from foils.errors import InputError, UnknownNameError


@opt.takes_encoder
def select(
    output: opt.Output,
    rated: Annotated[
        Path | None,
        typer.Argument(metavar="[RATED]", help="A table that foils rate wrote.", show_default=False),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="table, percentile, mixture, relative, simans, denoise, optimal, curriculum, progress (on ratings), "
            "or composition (of sources)."
        ),
    ] = "table",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the rule, as in --set margin=0.1; several times."
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(metavar="COLLECTION", help="Composition: what the sources were made from.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", "--sources", metavar="SOURCE", help="Composition: to choose from; several times."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Composition: negatives per query.")] = 10,
    regularization: Annotated[
        float, typer.Option("--lambda", help="Composition: the smaller, the more diversity counts.")
    ] = 0.1,
    weight: Annotated[
        str,
        typer.Option(help="Composition: gated, residual_only, gradient_weighted or margin_hardness."),
    ] = "gated",
    split: opt.Split = "train",
    temperature: Annotated[float, typer.Option(help="Composition: divides similarities.")] = 0.05,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions = opt.DEFAULTS,
    json: opt.Json = None,
) -> None:
    """Select negatives: add keep, reason, weight and tier; no row is dropped.

    By their ratings, or by composition: for each query the negatives of several sources that together tell most,
    greedily by log det. The gates alone prefer easy negatives; --weight gradient_weighted prefers hard ones.

    Example: foils select rated.parquet --by mixture -o train.parquet

    Example: foils select --by composition --collection scifact/ --source a.parquet --source b.parquet -o train.parquet
    """
    if by == "composition":
        if rated is not None or collection is None or not source:
            raise InputError("--by composition takes --collection and --source, and no table of ratings")
        _compose(collection, source, output, top, regularization, weight, split, temperature, encoding, json)
        return
    if rated is None or collection is not None or source:
        raise InputError(f"--by {by} takes a table of ratings, and neither --collection nor --source")
    from foils.data import Negatives
    from foils.data.store import file_digest, provenance, write_json
    from foils.select import select_negatives

    negatives = Negatives.read(rated)
    settings = dict(opt.parsed_setting(text) for text in setting or [])
    made = provenance(
        "select",
        {"by": by, **settings},
        inputs={"rated": file_digest(rated)},
        seed=seed,
        before=negatives.provenance,
    )
    found = select_negatives(negatives, by=by, settings=settings, seed=seed, made=made)
    found.negatives.write(output)
    selection = found.selection
    tiers = [
        (tier, int((selection.tier == tier).sum()), int(selection.keep[selection.tier == tier].sum()),
         float(selection.weight[selection.tier == tier].sum()))
        for tier in dict.fromkeys(selection.tier.tolist())
    ]  # fmt: skip
    rows = [(tier, f"{count:,}", f"{kept:,}", number(weight, 1)) for tier, count, kept, weight in sorted(tiers)]
    notes = [f"{why}: {count:,}" for why, count in found.negatives.rejected().items()]
    if selection.thresholds:
        notes.append("thresholds: " + ", ".join(f"{name} {value:.0f}" for name, value in selection.thresholds.items()))
    show_table(f"{rated.name} by {by} → {output}", ["tier", "rows", "kept", "weight"], rows, caption="\n".join(notes))
    if json:
        counts = {tier: {"rows": count, "kept": kept, "weight": weight} for tier, count, kept, weight in tiers}
        facts = {"tiers": counts, "rejected": found.negatives.rejected(), "thresholds": dict(selection.thresholds)}
        write_json(
            json, {"by": by, "settings": settings, "seed": seed, "kept": int(found.negatives.keep.sum()), **facts}
        )


def _compose(
    name: str,
    specs: list[str],
    output: Path,
    top: int,
    regularization: float,
    weight: str,
    split: str,
    temperature: float,
    encoding: opt.EncoderOptions,
    json: Path | None,
) -> None:
    from foils.data import Negatives, load_collection
    from foils.data.sources import read_sources
    from foils.data.store import provenance, write_json
    from foils.mine.fuse import union
    from foils.score import compose, composed, measure, prepare
    from foils.score.gates import WEIGHTINGS

    if weight not in WEIGHTINGS:
        raise UnknownNameError("weight", weight, WEIGHTINGS)
    collection = load_collection(name)
    read = read_sources(specs, collection)
    united = union({each.name: each.negatives for each in read}) if len(read) > 1 else read[0].negatives
    prepared = prepare(collection, {"union": united}, split=split, control=False)
    encoder, store = encoding.open(collection)
    measured = measure(prepared, encoder, store, temperature)
    weights = WEIGHTINGS[weight](measured.similarities, temperature)
    chosen = compose(measured.geometry, weights, count=top, regularization=regularization)
    settings = {"by": "composition", "top": top, "lambda": regularization, "weight": weight, "split": split,
                "temperature": temperature, "encoder": encoder.describe()}  # fmt: skip
    made = provenance("select", settings, inputs={each.name: each.digest for each in read})
    table = Negatives(composed(united, measured.records, chosen, weights).table, made)
    table.write(output)
    kept, records = int(table.keep.sum()), len(measured.records)
    rows = [("queries", f"{records:,}"), ("candidates", f"{len(united):,}"), ("chosen", f"{kept:,}")]
    rows += [(f"rejected: {why}", f"{count:,}") for why, count in table.rejected().items()]
    show_table(f"composition of {len(read)} sources → {output}", ["", "count"], rows)
    if json:
        facts = {"queries": records, "candidates": len(united), "kept": kept, "rejected": table.rejected()}
        write_json(json, {"settings": settings, **facts})
