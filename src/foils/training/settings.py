"""How to train: what a training is set by, and the papers' recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foils.batching.methods import METHODS
from foils.data.read import CollectionLike
from foils.data.sources import SourceLike
from foils.data.training_rows import MAX_POSITIVES
from foils.encode.models import STATIC
from foils.runtime.errors import InputError
from foils.runtime.options import Needs, Option, Settings, numbers_of, settings_option, spelled

if TYPE_CHECKING:
    DataSetsLike = Sequence[CollectionLike | tuple[CollectionLike, SourceLike]]
else:
    DataSetsLike = list[str]

CHECKPOINTS = "checkpoints"
NO_DUPLICATES = "no-duplicates"
PROGRESS = "progress"
CHANCE = "chance of "  # before the name of a tier, in the history of a curriculum
ST = "st:"  # before the name of a reranker's loss of sentence-transformers
SELF, GUIDE = "self", "guide:"  # whose similarities a mask goes by
LABELS, TEACHER, ELO, ZONES = TARGETS = ("labels", "teacher", "elo", "zones")  # what a reranker learns from
SHARES = partial(numbers_of, float, "mixture", "a number for each data set, as 2,1")
DIMENSIONS = partial(numbers_of, int, "matryoshka", "whole numbers with commas between, as 384,256,128")


def parsed_data_sets(texts: Sequence[str]) -> list[str | tuple[str, str]]:
    """Return what `--also` names: COLLECTION or COLLECTION,SOURCE each; what is there as a file is a collection."""
    read: list[str | tuple[str, str]] = []
    for text in texts:
        collection, comma, source = text.partition(",")
        read.append((collection, source) if comma and not Path(text).exists() else text)
    return read


_OF_TRANSFORMERS: dict[str, Any] = {
    "model": lambda model: not (isinstance(model, str) and model.startswith(STATIC)),
    "why": "a bag of words, which reads whole texts and needs little memory",
}
_OF_NO_EPOCHS = {"epochs": False, "why": "which decide the number of steps"}
_OF_ENCODERS = {"reranker": False, "why": "which compares no queries with documents' vectors"}


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """How to train a model.

    Attributes:
        loss: Loss: mnrl, weighted, debiased, hard-weighted, hybrid, margin-mse, distil; of rerankers regression,
            binary, listnet, lambda, weighted, debiased, hard-weighted, hybrid, st:NAME of sentence-transformers.
            Default: the recipe's, or mnrl; of rerankers listnet.
        target: What a reranker learns from: labels (1 for positives and 0 for negatives), the teacher's scores (foils
            score-pairs), elo (ratings), or zones of their gaps. Default: labels; of regression and hybrid elo.
        draw_negatives: Negatives of each list that a step of a reranker takes, drawn anew in every epoch, so that it
            sees all of a long list in time. Default: all.
        loss_settings: A setting of the loss, as prior=0.05; may be given several times. In Python a dictionary.
        batch_size: Rows per batch; in-batch negatives come from all of it. Default: the recipe's, or one that suits the
            model's kind and the number of rows (docs/training.md).
        mini_batch_size: Texts embedded at once, which bounds the memory of batches of any size. Default: the recipe's,
            or all at once.
        epochs: Passes over the data. Default: the recipe's, or as many as the steps take.
        steps: Optimizer steps, in the place of epochs. Default: one epoch, or 200 steps where it has fewer
            (docs/training.md).
        learning_rate: Peak learning rate; it rises over the first tenth of the steps and falls linearly to 0. Default:
            the recipe's, or one that suits the model's kind and the number of steps (docs/training.md).
        max_length: Tokens after which a text is cut in training. The model that is written keeps its own maximum, by
            which it is measured. Default: the recipe's, or the shortest of 64, 128, 256, 512 and the model's own
            maximum that cuts fewer than 5 % of the documents' tokens.
        patience: Evaluations on dev without a better score before training stops. Default: the recipe's, or never.
        seed: Seed of weights that are drawn, of the order of the data and of dropout.
        matryoshka: Dimensions at which vectors may be cut later, as 384,256,128: the loss is of these parts, too. In
            Python a tuple.
        lora: Rank of low-rank adapters (LoRA), which are trained in the place of the model's own weights and become
            part of them: less memory for large models. Needs the extra lora.
        mask: Leave out negatives that are probably positives, by the similarities of the model that trains (self) or of
            another encoder (guide:MODEL).
        mask_margin: Leave out a negative that is nearer to the query than the positive by more than this. Default: 0.1;
            with a guide, or inner products, 0.
        trainer: Argument of sentence-transformers' trainer, passed on as it is, as lr_scheduler_type=cosine,
            warmup_steps=0.2, gradient_accumulation_steps=4, gradient_checkpointing=true, save_steps=100 or
            report_to=tensorboard; may be given several times. In Python a dictionary. Default: the recipe's.
    """

    heading = "Training"

    loss: str | None = None
    target: Annotated[str | None, Option(names=TARGETS, needs={"reranker": True})] = None
    draw_negatives: Annotated[int | None, Option(least=1, needs={"reranker": True})] = None
    loss_settings: Annotated[Mapping[str, Any], settings_option("loss_settings", words=True)] = field(
        default_factory=dict
    )
    batch_size: Annotated[int, Option(least=1)] = 128
    mini_batch_size: Annotated[int | None, Option(least=1, needs=_OF_TRANSFORMERS)] = None
    epochs: Annotated[int, Option(least=1)] = 1
    steps: Annotated[int | None, Option(least=1, needs=_OF_NO_EPOCHS)] = None
    learning_rate: Annotated[float | None, Option(above=0)] = None
    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2, needs=_OF_TRANSFORMERS)] = 128
    patience: Annotated[int | None, Option(least=1, needs={"dev": True})] = None
    seed: Annotated[int, Option(least=0)] = 0
    matryoshka: Annotated[
        tuple[int, ...] | None, Option(parse=DIMENSIONS, metavar="DIMENSIONS", least=1, needs=_OF_ENCODERS)
    ] = None
    lora: Annotated[int | None, Option(metavar="RANK", least=1, needs=_OF_TRANSFORMERS)] = None
    mask: Annotated[str | None, Option(metavar="self|guide:MODEL", needs=_OF_ENCODERS)] = None
    mask_margin: Annotated[float | None, Option(needs={"mask": True})] = None
    trainer: Annotated[Mapping[str, Any], settings_option("trainer", flag="--set-trainer", words=True)] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        guide = (self.mask or "").removeprefix(GUIDE)
        if self.mask not in (None, SELF) and (guide == self.mask or not guide):
            raise InputError(
                f"{spelled('mask', self.mask)}; expected {SELF}, or {GUIDE}MODEL with the name of an encoder"
            )

    def steps_of(self, rows: int) -> int:
        """Return the optimizer steps of a training on this number of rows: `steps`, or those of the epochs."""
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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A paper's training: its steps, how batches are filled, and which rows are trained on."""

    training: TrainSettings = TrainSettings()
    batches: str = "random"
    form: str | None = None
    max_positives: int = MAX_POSITIVES


RECIPES: dict[str, Recipe] = {
    "eci-sem": Recipe(
        training=TrainSettings(
            loss="mnrl",
            loss_settings={"temperature": 0.05},
            batch_size=4096,
            mini_batch_size=2048,
            epochs=1,
            learning_rate=2e-5,
            max_length=128,
        ),
        batches=NO_DUPLICATES,
        form="triplets",
        max_positives=1,
    ),
    "hobit": Recipe(
        training=TrainSettings(
            loss="weighted",
            loss_settings={"temperature": 0.05},
            batch_size=128,
            epochs=40,
            learning_rate=1e-5,
            max_length=None,
            patience=5,
            trainer={"weight_decay": 0.01},
        ),
        batches="hobit",
        form="pairs",
        max_positives=64,
    ),
}
"""The papers' settings. ECI_sem section 4: cached MNRL over triplets, no duplicates in a batch. HOBIT: known positives
are masked where they could not be kept apart; the share of warm-up is ours."""

_OPEN: dict[str, Any] = {"batch_size": None, "epochs": None, "max_length": None}
OPEN = replace(TrainSettings(), **_OPEN)
"""Settings of which a recipe has what is left open, here and by default: None."""


def completed(asked: TrainSettings, recipe: Recipe, *, evaluated: bool) -> TrainSettings:
    """Return the settings of a training: what is open is the recipe's.

    Args:
        asked: `None` in the place of what is left open (`OPEN`). Where it has epochs, the recipe's steps do not count.
        recipe: the settings of a loss in it hold for this loss alone.
        evaluated: whether there is an evaluation on dev; without one a recipe's patience does not count.
    """
    base = recipe.training
    if asked.loss not in (None, base.loss):
        base = replace(base, loss_settings={})
    if not evaluated:
        base = replace(base, patience=None)
    if asked.epochs is not None:
        base = replace(base, steps=None)
    chosen = {name: value for name, value in vars(asked).items() if value is not None}
    joined = {name: {**getattr(base, name), **getattr(asked, name)} for name in ("loss_settings", "trainer")}
    return replace(base, **{**chosen, **joined})


def ways_of_batching() -> list[str]:
    """Return the names that `foils.training.fit.train_model` takes for its batches."""
    return [*METHODS, NO_DUPLICATES, PROGRESS]


@dataclass(frozen=True, kw_only=True)
class MethodSettings(Settings):
    """What is learned from: a recipe, the batches, several data sets.

    Attributes:
        recipe: A paper's settings to begin with; options that are given take the place of the recipe's.
        batches: How batches are filled; progress draws batches of one tier of rating gaps each, by what the model
            learns from them. Default: the recipe's, or random.
        batch_settings: Setting of the batching method, as seeds=4; may be given several times. In Python a dictionary.
        also: Another data set to train on, as COLLECTION or COLLECTION,SOURCE; may be given several times. In Python a
            list of collections, or of pairs of a collection and a source.
        mixture: Shares of the data sets in an epoch, as 2,1. Default: by their sizes.
    """

    heading = "Method"
    needs: ClassVar[Needs] = {"reranker": False, "why": "whose batches are random, and of one data set"}

    recipe: Annotated[str | None, Option(names=RECIPES)] = None
    batches: Annotated[str | None, Option(names=ways_of_batching)] = None
    batch_settings: Annotated[
        Mapping[str, Any] | None, settings_option("batch_settings", flag="--set-batches", words=True)
    ] = None
    also: Annotated[DataSetsLike, Option(metavar="SET", parse=parsed_data_sets, repeated=True)] = ()
    mixture: Annotated[
        Sequence[float] | None, Option(parse=SHARES, metavar="SHARES", above=0, needs={"also": True})
    ] = None
