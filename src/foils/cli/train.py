"""foils train: a bi-encoder or a reranker from a collection and a source of negatives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.show import number, show_table
from foils.cli.train_combinations import check_options
from foils.cli.train_options import MEASURE, DevOptions, MethodOptions, Plan, StepOptions

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.refresh import Refresh
    from foils.training.settings import TrainSettings
    from foils.training.trainer import Trained

__all__ = ["check_options", "train"]


@takes(MethodOptions, "method")
@takes(StepOptions, "steps")
@takes(DevOptions, "dev")
def train(
    collection: opt.CollectionName,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="Negatives; without them, pairs alone.", show_default=False),
    ] = None,
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="MODEL", help="What to train: a folder, a hub name, all-MiniLM-L6-v2, or static:NAME."
        ),
    ] = opt.DEFAULT_ENCODER,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write the model.")],
    reranker: Annotated[bool, typer.Option("--reranker", help="Train a cross-encoder in place of an encoder.")] = False,
    method: MethodOptions,
    steps: StepOptions,
    split: opt.Split = "train",
    dev: DevOptions,
    checkpoint_steps: Annotated[int | None, typer.Option(min=1, help="Default: a checkpoint an epoch.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")] = False,
    tracker: Annotated[list[str] | None, typer.Option(help="As transformers names it; several times.")] = None,
    similarity: Annotated[
        str | None,
        typer.Option(
            help="How the model compares vectors from now on: cosine, or dot (inner product, vectors as they are). "
            "Default: what it was made for."
        ),
    ] = None,
    device: opt.Device = None,
    seed: opt.Seed = 0,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Train a model on a source of negatives, and write it with a card that says how.

    Example: foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --recipe eci-sem --batch-size 256 -o model/
    """
    from foils.data import load_collection
    from foils.data.sources import read_source
    from foils.data.store import provenance
    from foils.training.models import load_trainable, with_defaults

    given = {**vars(steps), "patience": dev.patience, "checkpoint_steps": checkpoint_steps, "seed": seed}
    given["trackers"] = tuple(tracker) if tracker else None
    dev.check(reranker=reranker)
    plan = method.plan(given, reranker=reranker, source=source is not None, dev=dev.dev_split is not None)
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    known = read_source(source, loaded) if source else None
    untrained = partial(load_trainable, model, device=device, similarity=similarity)
    data, refresh = plan.rows(loaded, known.negatives if known else None, split, untrained)
    inputs = {"collection": loaded.digest, **({known.name: known.digest} if known else {})}
    trainable = _reranker(model, plan.settings, device) if reranker else untrained()
    plan = replace(plan, settings=with_defaults(plan.settings, trainable))
    made = provenance("train", {**plan.describe(model, split), "similarity": similarity}, inputs=inputs, seed=seed)
    score, checkpoints = dev.score(loaded, reranker=reranker), output / "checkpoints"
    if reranker:
        before, trained = _train_reranker(trainable, data, checkpoints, plan.settings, score, resume)
    else:
        before, trained = _train_encoder(trainable, data, checkpoints, plan, score, refresh, resume)
    scores = {f"{MEASURE} on {dev.dev_split} before": before} if before is not None else {}
    if trained.best is not None:
        scores[f"{MEASURE} on {dev.dev_split} after"] = trained.best
    _finish(trained, output, made, data.counts, scores, json)


def _reranker(name: str, settings: TrainSettings, device: str | None) -> Any:
    """Return the reranker to train, once its loss is known to exist."""
    from foils.encode.cross_encoders import load_cross_encoder
    from foils.training.reranker import reranker_loss

    reranker_loss(settings.loss, settings.loss_settings)
    return load_cross_encoder(name, device=device, new_head=True, seed=settings.seed)


def _train_encoder(
    model: Any,
    data: TrainingSet,
    checkpoints: Path,
    plan: Plan,
    score: Callable[[Any], float] | None,
    refresh: Refresh | None,
    resume: bool,
) -> tuple[float | None, Trained]:
    from foils.training.bi_encoder import train_encoder

    before = score(model) if score else None
    return before, train_encoder(
        model,
        data,
        checkpoints,
        settings=plan.settings,
        batches=plan.batches,
        batch_settings=plan.batch_settings,
        curriculum=plan.method.curriculum,
        score=score,
        refresh=refresh,
        resume=resume,
    )


def _train_reranker(
    model: Any,
    data: TrainingSet,
    checkpoints: Path,
    settings: TrainSettings,
    score: Callable[[Any], float] | None,
    resume: bool,
) -> tuple[float | None, Trained]:
    from foils.training.reranker import train_reranker

    before = score(model) if score else None
    return before, train_reranker(model, data, checkpoints, settings=settings, score=score, resume=resume)


def _finish(
    trained: Trained,
    output: Path,
    made: dict[str, Any],
    counts: dict[str, int],
    scores: dict[str, float],
    json: Path | None,
) -> None:
    """Write the model and show what there is to say, in one process of several; the checkpoints are done with."""
    from foils.data.store import write_json
    from foils.training.card import save_model, training_facts

    if int(os.environ.get("RANK", "0")):
        return  # under torchrun the first process writes
    save_model(trained, output, made=made, counts=counts, scores=scores)
    if json:
        write_json(json, training_facts(trained, made=made, counts=counts, scores=scores))
    shutil.rmtree(output / "checkpoints", ignore_errors=True)
    losses = [entry for entry in trained.history if "loss" in entry]
    every = max(1, len(losses) // 8)
    rows = [(f"{e['step']:,.0f}", number(e["epoch"], 2), number(e["loss"], 4)) for e in losses[::every]]
    notes = [f"{name}: {count:,}" for name, count in counts.items()]
    notes.append(f"{trained.steps:,} steps in {trained.seconds:,.1f} s, {trained.precision}")
    notes += [f"{name}: {value:.4f}" for name, value in scores.items()]
    show_table(f"Training → {output}", ["step", "epoch", "loss"], rows, caption="\n".join(notes))
