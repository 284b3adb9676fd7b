"""foils train: a bi-encoder or a reranker from a collection and a source of negatives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.show import number, show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.train.data import TrainingSet
    from foils.train.settings import TrainSettings
    from foils.train.trainer import Trained

MEASURE = "nDCG@10"


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
    recipe: Annotated[str | None, typer.Option(help="Settings to begin with: eci-sem or hobit.")] = None,
    batches: Annotated[
        str | None, typer.Option(help="random, no-duplicates, hobit, hobit-c, ngame, walks or b3. Default: random.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="mnrl, weighted, debiased, hard-weighted or hybrid; of rerankers: regression, binary, listnet, lambda "
            "or hybrid. Default: mnrl; listnet."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the loss, as in --set prior=0.05; several times."
        ),
    ] = None,
    batch_setting: Annotated[
        list[str] | None,
        typer.Option("--set-batches", metavar="NAME=VALUE", help="A setting of the way of batching; several times."),
    ] = None,
    curriculum: Annotated[
        str | None,
        typer.Option(
            help="By rating gaps. fixed: let harder negatives in by epoch (Table 3). progress: batches of one tier, "
            "drawn by what the model learns from them."
        ),
    ] = None,
    refresh: Annotated[
        int | None,
        typer.Option(
            "--refresh",
            min=1,
            metavar="EPOCHS",
            help="Mine negatives anew with the model as it is, every so many epochs (ANCE). Without a source, it "
            "begins with negatives of the untrained model.",
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option(help="triplets, lists or pairs. Default: triplets; pairs without a source.")
    ] = None,
    per_query: Annotated[int | None, typer.Option(min=1, help="Negatives of a query. Default: all.")] = None,
    max_positives: Annotated[int, typer.Option(min=1, help="Labelled positives of a query.")] = 1,
    epochs: Annotated[int | None, typer.Option(min=1, help="Default: 1, or the recipe's.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Default: 128, or the recipe's.")] = None,
    mini_batch: Annotated[
        int | None, typer.Option(min=1, help="Texts embedded at once: batches of any size in small memory.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Default: 2e-5, or the recipe's.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of AdamW.")] = None,
    max_length: Annotated[int | None, typer.Option(min=2, help="Cut texts after so many tokens.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    split: opt.Split = "train",
    dev_split: Annotated[
        str | None, typer.Option("--dev", metavar="SPLIT", help=f"Choose the model by {MEASURE} on this split.")
    ] = None,
    dev_run: Annotated[
        Path | None,
        typer.Option("--dev-run", metavar="FILE", help="Of a reranker: the TREC run that it reranks on dev."),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Evaluations on dev without a better score before training stops.")
    ] = None,
    checkpoint_steps: Annotated[int | None, typer.Option(min=1, help="Default: a checkpoint an epoch.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")] = False,
    tracker: Annotated[list[str] | None, typer.Option(help="As transformers names it; several times.")] = None,
    device: Annotated[str | None, typer.Option(help="As torch names it. Default: the first that is there.")] = None,
    seed: opt.Seed = 0,
    json: opt.Json = None,
) -> None:
    """Train a model on a source of negatives, and write it with a card that says how.

    Example: foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --recipe eci-sem --batch-size 256 -o model/
    """
    from foils.data import Run, load_collection
    from foils.data.sources import read_source
    from foils.data.store import provenance, write_json
    from foils.study.measuring import encoder_score, reranker_score
    from foils.study.training import ance_refresh, outside_danger, train_encoder, ways_of_batching
    from foils.train.data import training_set
    from foils.train.models import load_trainable

    given = {
        "loss": loss,
        "epochs": epochs,
        "batch_size": batch_size,
        "mini_batch_size": mini_batch,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "weight_decay": weight_decay,
        "max_length": max_length,
        "precision": precision,
        "patience": patience,
        "checkpoint_steps": checkpoint_steps,
        "trackers": tuple(tracker) if tracker else None,
    }
    drawn_from = source or ("the model" if refresh else None)
    settings, batches, form = _settings(recipe, given, setting or [], reranker, batches, form, drawn_from, dev_split)
    loaded = load_collection(collection)
    known = read_source(source, loaded) if source else None
    negatives = known.negatives if known else None
    renewed = None
    if refresh is not None:
        if reranker or form == "pairs":
            raise InputError("--refresh mines negatives for a bi-encoder; it goes with triplets or lists")
        per_query = per_query or 10
        renewed = ance_refresh(
            loaded, every=refresh, split=split, top=per_query, form=form, max_positives=max_positives
        )
        if negatives is None:
            negatives = renewed.mine(load_trainable(model, device=device))
    data = training_set(
        loaded,
        negatives,
        split=split,
        form=form,  # type: ignore[arg-type]  # checked by training_set
        per_query=per_query,
        max_positives=max_positives,
    )
    if curriculum == "progress":
        data = outside_danger(data)
    settings = replace(settings, seed=seed)
    told = {
        "model": model,
        "reranker": reranker,
        "recipe": recipe,
        "batches": batches,
        "form": form,
        "split": split,
        "curriculum": curriculum,
        "refresh": refresh,
        **{name: value for name, value in asdict(settings).items() if name not in ("seed", "trackers")},
    }
    inputs = {"collection": loaded.digest, **({known.name: known.digest} if known else {})}
    made = provenance("train", told, inputs=inputs, seed=seed)
    checkpoints = output / "checkpoints"
    if reranker:
        if batches != "random" or curriculum:
            raise InputError("a reranker has no in-batch negatives: --batches and --curriculum are of bi-encoders")
        score = None
        if dev_split:
            if dev_run is None:
                raise InputError("--dev needs a run for the reranker to rerank: give --dev-run FILE")
            score = reranker_score(loaded, dev_split, Run.read(dev_run), MEASURE)
        before, trained = _train_reranker(model, data, checkpoints, settings, score, device, resume)
    else:
        if dev_run:
            raise InputError("--dev-run is what a reranker reranks; a bi-encoder searches by itself: give --dev alone")
        if batches not in ways_of_batching():  # before a model is loaded
            raise UnknownNameError("way of batching", batches, ways_of_batching())
        score = encoder_score(loaded, dev_split, MEASURE) if dev_split else None
        encoder = load_trainable(model, device=device)
        before = score(encoder) if score else None
        trained = train_encoder(
            encoder,
            data,
            checkpoints,
            settings=settings,
            batches=batches,
            batch_settings=dict(opt.parsed_setting(text) for text in batch_setting or []),
            curriculum=curriculum,
            score=score,
            refresh=renewed,
            resume=resume,
        )
    scores = {f"{MEASURE} on {dev_split} before": before} if before is not None else {}
    if trained.best is not None:
        scores[f"{MEASURE} on {dev_split} after"] = trained.best
    _finish(trained, output, made, data.counts, scores, json, write_json)


def _settings(
    recipe: str | None,
    given: dict[str, Any],
    setting: list[str],
    reranker: bool,
    batches: str | None,
    form: str | None,
    source: str | None,
    dev: str | None,
) -> tuple[TrainSettings, str, str]:
    """The recipe's settings with those given in their place, the way of batching, the form of the data."""
    from foils.train.settings import RECIPE_BATCHES, RECIPE_FORM, RECIPES, TrainSettings

    if recipe is not None and (recipe not in RECIPES or reranker):
        raise UnknownNameError("recipe of a reranker" if reranker else "recipe", recipe, [] if reranker else RECIPES)
    base = RECIPES[recipe] if recipe else TrainSettings(loss="listnet" if reranker else "mnrl")
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("loss", base.loss) != base.loss:
        base = replace(base, loss_settings={})
    if base.patience is not None and dev is None and "patience" not in chosen:
        chosen["patience"] = None  # a recipe's: nothing to be patient about without dev
    own = {**base.loss_settings, **dict(opt.parsed_loosely(text) for text in setting)}
    settings = replace(base, **{**chosen, "loss_settings": own})
    usual = "lists" if reranker else RECIPE_FORM.get(recipe or "", "triplets" if source else "pairs")
    return settings, batches or RECIPE_BATCHES.get(recipe or "", "random"), form or usual


def _train_reranker(
    name: str,
    data: TrainingSet,
    checkpoints: Path,
    settings: TrainSettings,
    score: Callable[[Any], float] | None,
    device: str | None,
    resume: bool,
) -> tuple[float | None, Trained]:
    from foils.encode.cross_encoders import load_cross_encoder
    from foils.train.reranker import reranker_loss, train_reranker

    reranker_loss(settings.loss, settings.loss_settings)
    model = load_cross_encoder(name, device=device, new_head=True)
    before = score(model) if score else None
    return before, train_reranker(model, data, checkpoints, settings=settings, score=score, resume=resume)


def _finish(
    trained: Trained,
    output: Path,
    made: dict[str, Any],
    counts: dict[str, int],
    scores: dict[str, float],
    json: Path | None,
    write_json: Callable[[Path, object], None],
) -> None:
    """Write the model and show what there is to say, in one process of several; the checkpoints are done with."""
    from foils.train.card import save_model, training_facts

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
