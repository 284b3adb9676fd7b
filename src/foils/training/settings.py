"""How to train, and what a training gives: settings, the run, the model in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from foils.batching.methods import METHODS
from foils.data.read import CollectionLike
from foils.data.sources import SourceLike
from foils.data.tables import Provenance
from foils.encode.models import STATIC, length_of
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, settings_option, spelled
from foils.runtime.results import Result, Table, counted, number

if TYPE_CHECKING:
    import torch

DataSetsLike = Sequence[CollectionLike | tuple[CollectionLike, SourceLike]]
CHECKPOINTS = "checkpoints"
PROGRESS = "progress"
CHANCE = "chance of "  # before the name of a tier, in the history of a curriculum
LABELS, TEACHER, ELO = TARGETS = ("labels", "teacher", "elo")  # what a reranker learns from


def parsed_dimensions(text: str) -> tuple[int, ...]:
    """Return the numbers of a text such as 384,256,128; an InputError where something else stands there."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        given = spelled("matryoshka", text)
        raise InputError(f"{given}; expected whole numbers with commas between, as 384,256,128") from None


def parsed_data_sets(named: Sequence[Any]) -> list[Any]:
    """Return what `--also` names: COLLECTION or COLLECTION,SOURCE each; a file of the name is a collection.

    What is no text, as a collection in Python, stays as it is.
    """
    read: list[Any] = []
    for each in named:
        collection, comma, source = each.partition(",") if isinstance(each, str) else (each, "", "")
        read.append((collection, source) if comma and not Path(each).exists() else each)
    return read


_OF_TRANSFORMERS: dict[str, Any] = {"model": lambda model: not (isinstance(model, str) and model.startswith(STATIC))}
_CACHED = {"reranker": False, **_OF_TRANSFORMERS}
_OF_ENCODERS = {"reranker": False}
_OF_METHODS: dict[str, Any] = {"batches": lambda name: name != PROGRESS}


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How to train a model.

    Attributes:
        loss: Loss: mnrl, weighted, debiased, hard-weighted, hybrid, margin-mse, distil; of
            rerankers regression, binary, listnet, weighted, debiased, hard-weighted, hybrid. Default:
            mnrl; of rerankers listnet.
        target: What a reranker learns from: labels (1 for positives and 0 for negatives), the
            teacher's scores (foils score-pairs), or elo (ratings). Default: labels; of regression
            and hybrid elo.
        draw_negatives: Negatives of each list that a step of a reranker takes, drawn anew in every
            epoch, so that it sees all of a long list in time. Default: all.
        loss_settings: A setting of the loss, as prior=0.05; may be given several times. In Python a
            dictionary.
        batch_size: Rows per batch; in-batch negatives come from all of it. Default: a
            number that suits the model's kind and the number of rows (docs/training.md).
        mini_batch_size: Texts that an encoder embeds at once, which bounds the memory of batches of
            any size. Default: all at once.
        epochs: Passes over the data. Default: as many as the steps take.
        steps: Optimizer steps, in the place of epochs. Default: one epoch, or 200 steps where it has fewer
            (docs/training.md).
        learning_rate: Peak learning rate; it rises over the first tenth of the steps and falls
            linearly to 0. Default: a rate that suits the model's kind and the number of steps
            (docs/training.md).
        max_length: Tokens after which a text is cut in training. The model that is written keeps
            its own maximum, by which it is measured. Default: the shortest of 64,
            128, 256, 512 and the model's own maximum that cuts fewer than 5 % of the documents'
            tokens.
        patience: Evaluations on dev without a better score before training stops. Default:
            never.
        seed: Seed of weights that are drawn, of the order of the data and of dropout.
        matryoshka: Dimensions at which vectors may be cut later, as 384,256,128: the loss is of
            these parts, too. In Python a tuple.
        lora: Rank of low-rank adapters (LoRA), which are trained in the place of the model's own
            weights and become part of them: less memory for large models. Needs the extra lora.
        mask: Encoder by whose similarities negatives that are probably positives are left out.
        mask_margin: Leave out a negative that is nearer to the query than the positive by more than
            this. Default: 0.
        trainer: Argument of sentence-transformers' trainer, passed on as it is, as lr_scheduler_type=cosine,
            warmup_steps=0.2, gradient_accumulation_steps=4, gradient_checkpointing=true, save_steps=100 or
            report_to=tensorboard; may be given several times. In Python a dictionary.
    """

    heading = "Training"

    loss: str | None = None
    target: Annotated[str | None, Option(names=TARGETS, needs={"reranker": True})] = None
    draw_negatives: Annotated[int | None, Option(least=1, needs={"reranker": True})] = None
    loss_settings: Annotated[Mapping[str, Any], settings_option("loss_settings")] = field(default_factory=dict)
    batch_size: Annotated[int, Option(least=1)] = 128
    mini_batch_size: Annotated[int | None, Option(least=1, needs=_CACHED)] = None
    epochs: Annotated[int, Option(least=1)] = 1
    steps: Annotated[int | None, Option(least=1, needs={"epochs": False})] = None
    learning_rate: Annotated[float | None, Option(above=0)] = None
    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2, needs=_OF_TRANSFORMERS)] = 128
    patience: Annotated[int | None, Option(least=1, needs={"dev": True})] = None
    seed: Annotated[int, Option(least=0)] = 0
    matryoshka: Annotated[
        tuple[int, ...] | None, Option(parse=parsed_dimensions, metavar="DIMENSIONS", least=1, needs=_OF_ENCODERS)
    ] = None
    lora: Annotated[int | None, Option(metavar="RANK", least=1, needs=_OF_TRANSFORMERS)] = None
    mask: Annotated[str | None, Option(metavar="MODEL", needs=_OF_ENCODERS)] = None
    mask_margin: Annotated[float | None, Option(needs={"mask": True})] = None
    trainer: Annotated[Mapping[str, Any], settings_option("trainer", flag="--set-trainer")] = field(
        default_factory=dict
    )

    def steps_of(self, rows: int) -> int:
        """Return the optimizer steps of a training on so many rows: `steps`, or those of the epochs."""
        if self.steps is not None:
            return self.steps
        return self.epochs * -(-rows // (self.batch_size * self.accumulated))

    @property
    def accumulated(self) -> int:
        """Batches of an optimizer step."""
        batches = self.trainer.get("gradient_accumulation_steps", 1)
        return batches if isinstance(batches, int) and batches > 0 else 1

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the settings, its seed apart."""
        return {name: value for name, value in asdict(self).items() if name != "seed"}


_OPEN: dict[str, Any] = {"batch_size": None, "epochs": None, "max_length": None}
OPEN = replace(TrainSettings(), **_OPEN)
"""Settings that are left open, here and by default: None. `foils.training.plain_recipe` chooses them."""


def ways_of_batching() -> list[str]:
    """Return the names that `foils.training.fit.train_model` takes for its batches."""
    return [*METHODS, PROGRESS]


@dataclass(frozen=True, kw_only=True)
class MethodSettings(Settings):
    """What is learned from: the batches, several data sets.

    Attributes:
        batches: How batches are filled; progress draws batches of one tier of rating gaps each, by
            what the model learns from them.
        batch_settings: Setting of the batching method, as seeds=4; may be given several times. In
            Python a dictionary.
        also: Another data set to train on, as COLLECTION or COLLECTION,SOURCE; may be given several
            times. In Python a list of collections, or of pairs of a collection and a source.
    """

    heading = "Method"

    batches: Annotated[str, Option(names=ways_of_batching)] = "random"
    batch_settings: Annotated[
        Mapping[str, Any] | None,
        replace(settings_option("batch_settings", flag="--set-batches"), needs=_OF_METHODS),
    ] = None
    also: Annotated[DataSetsLike, Option(metavar="SET", parse=parsed_data_sets, repeated=True, needs=_OF_METHODS)] = ()


SHOWN = 8  # losses in the table, about


@dataclass(frozen=True)
class TrainingRun:
    """A training: its model, and how it got there.

    Attributes:
        model: with an evaluation on dev, the best of the evaluated ones; else the last.
        history: entries by step: `loss`, or `dev`, with step and epoch; of a curriculum, the
            chances of its tiers.
        best: the best score on dev; None without one.
        steps: optimizer steps taken in all.
        seconds: of this run, checkpoints and evaluations included.
        precision: of the computation.
        types: of the weights, by name, as they were before training: in float32 they are trained,
            in these saved.
    """

    model: Any
    history: list[dict[str, float]]
    best: float | None
    steps: int
    seconds: float
    precision: str
    types: Mapping[str, torch.dtype] = field(repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        """What it was computed in, what the weights are saved in, and the model's own maximum length."""
        weights = sorted({str(each).removeprefix("torch.") for each in self.types.values()})
        return {"precision": self.precision, "weights": ", ".join(weights), "model_max_length": length_of(self.model)}


@dataclass(frozen=True)
class Trained(Result):
    """A trained model.

    Attributes:
        model: a SentenceTransformer or a CrossEncoder; with an evaluation on dev, the best of those
            evaluated.
        path: the folder that it is written to.
        run: the loss over time.
        provenance: collection, negatives, settings, seed, versions.
        counts: what was used and left out.
        scores: name → value, as nDCG@10 on dev before and after.
        remarks: lines on where texts were cut, and on the steps of a training on the pairs alone.
    """

    model: Any = field(repr=False)
    path: Path
    run: TrainingRun = field(repr=False)
    provenance: Provenance = field(repr=False)
    counts: Mapping[str, int]
    scores: Mapping[str, float]
    remarks: Sequence[str] = ()

    @property
    def brief(self) -> str:
        """Folder, steps, and the last measure or loss, for `repr`."""
        losses = [entry["loss"] for entry in self.run.history if "loss" in entry]
        last = {**({"loss": losses[-1]} if losses else {}), **self.scores}
        shown = [f"{name} {value:.4f}" for name, value in list(last.items())[-1:]]
        return ", ".join([f"{str(self.path)!r}: {counted(self.run.steps, 'steps')}", *shown])

    def tables(self) -> list[Table]:
        """Return the loss over the steps, and what was trained on."""
        losses = [entry for entry in self.run.history if "loss" in entry]
        every, tenth = max(1, len(losses) // SHOWN), max(1, len(losses) // 10)
        rows = [(f"{e['step']:,.0f}", number(e["epoch"], 2), number(e["loss"], 4)) for e in losses[::every]]
        notes = [f"{name}: {count:,}" for name, count in self.counts.items()]
        notes.append(f"{self.run.steps:,} steps in {self.run.seconds:,.1f} s, {self.run.precision}")
        if self.run.facts["weights"] != self.run.precision:
            notes[-1] += f"; weights in {self.run.facts['weights']}"
        if losses:
            first, last = (fmean(e["loss"] for e in part) for part in (losses[:tenth], losses[-tenth:]))
            notes.append(f"loss: {first:.4f} in the first tenth of the steps, {last:.4f} in the last")
        notes += [*self.remarks, *(f"{name}: {value:.4f}" for name, value in self.scores.items())]
        return [Table(f"Training → {self.path}", ["step", "epoch", "loss"], rows, "\n".join(notes))]

    def to_json(self) -> dict[str, Any]:
        """Return settings, counts, scores and the loss over time, as they lie beside the model."""
        return {
            "provenance": self.provenance,
            "counts": dict(self.counts),
            "scores": dict(self.scores),
            "best_dev": self.run.best,
            "steps": self.run.steps,
            **self.run.facts,
            "history": self.run.history,
        }
