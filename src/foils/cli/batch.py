"""foils batch: who meets whom in a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.batching.collection import CollectionPlan


@dataclass(frozen=True)
class BatchOptions:
    """How batches are filled."""

    method: Annotated[str, typer.Option("--with", help="hobit, hobit-c, ngame, walks, b3, or random.")] = "hobit"
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 128
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to plan, with the same vectors.")] = 1
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the method, as in --set alpha=0.5; several times."
        ),
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            help="Rows, as foils train --form makes them: triplets, lists or pairs. Default: triplets; pairs without a "
            "source."
        ),
    ] = None
    per_query: Annotated[int | None, typer.Option(min=1, help="Negatives of a query. Default: all.")] = None
    max_positives: Annotated[int, typer.Option(min=1, help="Labelled positives of a query, at most.")] = 64


@takes(BatchOptions, "options")
@takes(opt.EncoderOptions, "encoding")
def batch(
    collection: opt.CollectionName,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Negatives to train on. Triplets and lists leave out queries without one.",
            show_default=False,
        ),
    ] = None,
    *,
    output: opt.Output,
    options: BatchOptions,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Plan batches whose pairs are hard negatives for each other, and show how hard, clean and varied they are.

    The plan is a table of epoch, batch, position, query_id, doc_id and, of triplets, negative_id. Training builds
    batches anew from the current model in each epoch. A plan shows the first epoch of a training with the same rows,
    batch size and seed, and what other methods would do.

    Example: foils batch scifact/ bm25.parquet --with hobit --batch-size 32 --report page.html -o plan.parquet
    """
    from foils.batching.collection import plan_collection
    from foils.data import load_collection
    from foils.data.sources import read_source
    from foils.data.store import write_json

    settings = dict(opt.parsed_loosely(text) for text in options.setting or [])
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    given = read_source(source, loaded) if source else None
    planned = plan_collection(
        loaded,
        *encoding.open(loaded),
        negatives=given.negatives if given else None,
        negatives_digest=given.digest if given else "",
        name=options.method,
        settings=settings,
        batch_size=options.batch_size,
        epochs=options.epochs,
        form=options.form,  # type: ignore[arg-type]  # checked by training_rows
        per_query=options.per_query,
        max_positives=options.max_positives,
        split=split,
        seed=seed,
    )
    planned.write(output)
    show_batches(planned, f"Batches of {loaded.name} ({split}) → {output}", options)
    if json:
        write_json(json, planned.to_json())
    if report:
        from foils.pages.batches import write_batch_report

        write_batch_report(report, planned)
        say(f"report: {report}")


def show_batches(planned: CollectionPlan, title: str, options: BatchOptions) -> None:
    """Print how hard, clean and varied the batches of each epoch are, beside random ones."""
    plan = planned.plan
    rows = [
        (
            label,
            number(found.hardness),
            f"{found.hardness_gain:+.3f}",
            number(found.hardness_worst_tenth),
            number(found.weight),
            number(found.loss),
            f"{found.contradictions:,}",
            f"{found.seconds:.1f} s",
        )
        for label, found in [
            *((f"{options.method}, epoch {e}", m) for e, m in enumerate(plan.measures)),
            ("random", plan.random),
        ]
    ]
    notes = [
        f"{len(planned.rows):,} rows in {len(plan.epochs[0]):,} batches of {plan.batch_size}, made of "
        f"{planned.rows.pairs:,} pairs; pairs left out: {planned.rows.capped:,} over {options.max_positives} "
        f"positives, {planned.rows.uncovered:,} without a negative",
        "hardness over the epoch: " + " ".join(number(value, 2) for value in plan.measures[0].hardness_curve),
        f"gain: against the same pairs in random batches; contradictions in a plain shuffle: {plan.unguarded:,}",
    ]
    if len(plan.epochs) > 1:
        notes.append(
            f"companions met again in the next epoch: {100 * plan.overlap:.1f} %, "
            f"at random {100 * plan.overlap_random:.1f} %"
        )
    columns = ["batches", "hardness", "gain", "worst tenth", "weight", "loss", "contradictions", "time"]
    show_table(title, columns, rows, caption="\n".join(notes))
