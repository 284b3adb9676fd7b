"""foils select: which rated negatives to train on, with what weight."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foils.cli import options as opt
from foils.cli.show import number, show_table


def select(
    rated: Annotated[Path, typer.Argument(metavar="RATED", help="A table that foils rate wrote.", show_default=False)],
    output: opt.Output,
    by: Annotated[
        str,
        typer.Option(help="table, percentile, mixture, relative, simans, denoise, optimal, curriculum, or progress."),
    ] = "table",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the rule, as in --set margin=0.1; several times."
        ),
    ] = None,
    seed: opt.Seed = 0,
    json: opt.Json = None,
) -> None:
    """Select negatives by their ratings: add keep, reason, weight and tier; no row is dropped.

    Example: foils select rated.parquet --by mixture -o train.parquet
    """
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
