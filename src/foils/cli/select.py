"""foils select: which rated negatives to train on, with what weight."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.export_options import ExportOptions
from foils.cli.groups import only, options_of, refuse, takes
from foils.cli.made import Made
from foils.cli.select_composition import CompositionOptions
from foils.cli.show import number, say
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.selection import Selected


@dataclass(frozen=True)
class RuleOptions:
    """By what is selected."""

    by: Annotated[
        str,
        typer.Option(
            help="table, percentile, mixture, relative, simans, denoise, optimal, curriculum, progress (on ratings), "
            "or composition (of sources)."
        ),
    ] = "table"
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the rule, as in --set margin=0.1; several times."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the settings of the rule.

        Raises:
            InputError: one that is not NAME=VALUE.
        """
        return dict(opt.parsed_setting(text) for text in self.setting or [])

    def selected(self, rated: Path, seed: int) -> Selected:
        """Return what the rule selects of a rated table."""
        from foils.data import Negatives
        from foils.data.store import file_digest, provenance
        from foils.selection import select_negatives

        negatives, settings = Negatives.read(rated), self.settings()
        inputs = {"rated": file_digest(rated)}
        made = provenance("select", {"by": self.by, **settings}, inputs=inputs, seed=seed, before=negatives.provenance)
        return select_negatives(negatives, by=self.by, settings=settings, seed=seed, made=made)


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    from foils.selection.stage import METHODS

    if (by := chosen["by"]) == "composition":
        refuse(only(options, "--seed"), "with --by composition, which draws nothing; leave it out")
        return
    composing = {*options_of(CompositionOptions)} - {"--source"}
    refuse(
        only(options, *opt.EMBEDDING, *composing),
        f"with --by {by}, which goes by ratings and embeds no text; leave it out, or give --by composition",
    )
    if not (chosen["report"] or chosen["export"]):
        refuse(
            only(options, "--collection", "--split", "--keep-identical-ids"),
            "without --report or --export, which need the texts; give one of them, or leave it out",
        )
    if by in METHODS and "rng" not in inspect.signature(METHODS[by]).parameters and not chosen["report"]:
        drawing = [name for name, method in METHODS.items() if "rng" in inspect.signature(method).parameters]
        refuse(
            only(options, "--seed"),
            f"with --by {by}, which draws nothing, as --by {' and '.join(drawing)} do; leave it out",
        )


@takes(RuleOptions, "rule")
@takes(ExportOptions, "exports")
@takes(CompositionOptions, "composition")
@takes(opt.EncoderOptions, "encoding")
def select(
    *,
    output: opt.Output,
    rated: Annotated[
        Path | None,
        typer.Argument(metavar="[RATED]", help="A table that foils rate wrote.", show_default=False),
    ] = None,
    rule: RuleOptions,
    collection: Annotated[
        str | None,
        typer.Option(
            metavar="COLLECTION",
            help="What the table, or the sources, were made from; for their texts (--report, --export, composition).",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a page: gaps, thresholds, signal and risk; --collection."),
    ] = None,
    exports: ExportOptions,
    composition: CompositionOptions,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Select negatives: add keep, reason, weight and tier; no row is dropped.

    By their ratings, or by composition: for each query the negatives of several sources that together tell most,
    greedily by log det. The gates alone prefer easy negatives; --weight gradient_weighted prefers hard ones.

    Example: foils select rated.parquet --by mixture -o train.parquet

    Example: foils select --by composition --collection scifact/ --source a.parquet --source b.parquet -o train.parquet
    """
    from foils.data import load_collection

    exports.forms()  # a wrong one is told before anything is selected
    by, settings = rule.by, rule.settings()
    loaded: Collection | None
    found = None
    if by == "composition":
        if rated is not None or collection is None or not composition.source:
            raise InputError("--by composition takes --collection and --source, and no table of ratings")
        if report or settings:
            raise InputError("--report and --set are of ratings; --by composition has none")
        loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
        made = composition.made(loaded, split, encoding)
    else:
        if rated is None or composition.source:
            raise InputError(f"--by {by} takes a table of ratings, and no --source")
        if (report or exports.export) and collection is None:
            raise InputError("--report and --export need the texts: give the --collection that was rated")
        loaded = load_collection(collection, keep_identical_ids=keep_identical_ids) if collection is not None else None
        found = rule.selected(rated, seed)
        made = _made(found, f"{rated.name} by {by}", {"by": by, "settings": settings, "seed": seed})
    made.write(output, json)
    if loaded is not None:
        if report and found:
            _report(report, loaded, found, by, settings, split, seed)
        exports.write(made.negatives, loaded, split)


def _report(
    page: Path, collection: Collection, found: Selected, by: str, settings: dict[str, Any], split: str, seed: int
) -> None:
    from foils.pages.rating_figures import Benefit
    from foils.pages.ratings import write_ratings_report

    chosen = {name: float(settings[name]) for name in ("rate", "spread", "damage") if name in settings}
    benefit = Benefit(**chosen) if by == "optimal" else None
    write_ratings_report(
        page, collection, found.negatives, split=split, selection=found.selection, benefit=benefit, seed=seed
    )
    say(f"report: {page}")


def _made(found: Selected, title: str, told: dict[str, Any]) -> Made:
    selection, rejected = found.selection, found.negatives.rejected()
    tiers = [
        (tier, int((selection.tier == tier).sum()), int(selection.keep[selection.tier == tier].sum()),
         float(selection.weight[selection.tier == tier].sum()))
        for tier in dict.fromkeys(selection.tier.tolist())
    ]  # fmt: skip
    rows = [(tier, f"{count:,}", f"{kept:,}", number(weight, 1)) for tier, count, kept, weight in sorted(tiers)]
    notes = [f"{why}: {count:,}" for why, count in rejected.items()]
    if selection.thresholds:
        notes.append("thresholds: " + ", ".join(f"{name} {value:.0f}" for name, value in selection.thresholds.items()))
    facts = {
        **told,
        "kept": int(found.negatives.keep.sum()),
        "tiers": {tier: {"rows": count, "kept": kept, "weight": weight} for tier, count, kept, weight in tiers},
        "rejected": rejected,
        "thresholds": dict(selection.thresholds),
    }
    return Made(found.negatives, title, rows, facts, ("tier", "rows", "kept", "weight"), "\n".join(notes))
