"""foils select: which rated negatives to train on, with what weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.mine_methods import exported
from foils.cli.show import number, say, show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection, Negatives
    from foils.select import Selected


@takes(opt.EncoderOptions, "encoding")
def select(
    *,
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
        str | None,
        typer.Option(metavar="COLLECTION", help="What the table, or the sources, were made from; for their texts."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a page: gaps, thresholds, signal and risk; --collection."),
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORM=FILE",
            help="Write the kept rows for training too: triplets, tuples, labelled-pairs, labelled-lists, tevatron, "
            "flagembedding, trec; --collection.",
        ),
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
    encoding: opt.EncoderOptions,
    json: opt.Json = None,
) -> None:
    """Select negatives: add keep, reason, weight and tier; no row is dropped.

    By their ratings, or by composition: for each query the negatives of several sources that together tell most,
    greedily by log det. The gates alone prefer easy negatives; --weight gradient_weighted prefers hard ones.

    Example: foils select rated.parquet --by mixture -o train.parquet

    Example: foils select --by composition --collection scifact/ --source a.parquet --source b.parquet -o train.parquet
    """
    from foils.data import load_collection
    from foils.data.export import export as write

    loaded: Collection | None
    exports = [exported(spec) for spec in export or []]
    if by == "composition":
        if rated is not None or collection is None or not source:
            raise InputError("--by composition takes --collection and --source, and no table of ratings")
        if report:
            raise InputError("--report is of ratings; --by composition has none")
        loaded = load_collection(collection)
        table = _compose(loaded, source, output, top, regularization, weight, split, temperature, encoding, json)
    else:
        if rated is None or source:
            raise InputError(f"--by {by} takes a table of ratings, and no --source")
        if (report or exports) and collection is None:
            raise InputError("--report and --export need the texts: give the --collection that was rated")
        loaded = load_collection(collection) if collection is not None else None
        settings = dict(opt.parsed_setting(text) for text in setting or [])
        table = _by_rating(rated, by, settings, seed, output, json, loaded, report, split)
    if loaded is not None:
        for form, path in exports:
            write(table, loaded, path, form=form, split=split)


def _by_rating(
    rated: Path,
    by: str,
    settings: dict[str, Any],
    seed: int,
    output: Path,
    json: Path | None,
    collection: Collection | None,
    report: Path | None,
    split: str,
) -> Negatives:
    from foils.data import Negatives
    from foils.data.store import file_digest, provenance
    from foils.select import select_negatives

    negatives = Negatives.read(rated)
    inputs = {"rated": file_digest(rated)}
    made = provenance("select", {"by": by, **settings}, inputs=inputs, seed=seed, before=negatives.provenance)
    found = select_negatives(negatives, by=by, settings=settings, seed=seed, made=made)
    found.negatives.write(output)
    _show(found, f"{rated.name} by {by} → {output}", {"by": by, "settings": settings, "seed": seed}, json)
    if report and collection is not None:
        from foils.report import write_ratings_report
        from foils.report.rating_figures import Benefit

        chosen = {name: float(settings[name]) for name in ("rate", "spread", "damage") if name in settings}
        benefit = Benefit(**chosen) if by == "optimal" else None
        write_ratings_report(
            report, collection, found.negatives, split=split, selection=found.selection, benefit=benefit, seed=seed
        )
        say(f"report: {report}")
    return found.negatives


def _show(found: Selected, title: str, told: dict[str, Any], json: Path | None) -> None:
    from foils.data.store import write_json

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
    show_table(title, ["tier", "rows", "kept", "weight"], rows, caption="\n".join(notes))
    if json:
        counts = {tier: {"rows": count, "kept": kept, "weight": weight} for tier, count, kept, weight in tiers}
        facts = {"tiers": counts, "rejected": found.negatives.rejected(), "thresholds": dict(selection.thresholds)}
        write_json(json, {**told, "kept": int(found.negatives.keep.sum()), **facts})


def _compose(
    collection: Collection,
    specs: list[str],
    output: Path,
    top: int,
    regularization: float,
    weight: str,
    split: str,
    temperature: float,
    encoding: opt.EncoderOptions,
    json: Path | None,
) -> Negatives:
    from foils.data import Negatives
    from foils.data.sources import read_sources
    from foils.data.store import provenance, write_json
    from foils.mine.fuse import union
    from foils.score import compose, composed, measure, prepare
    from foils.score.gates import WEIGHTINGS

    if weight not in WEIGHTINGS:
        raise UnknownNameError("weight", weight, WEIGHTINGS)
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
    return table
