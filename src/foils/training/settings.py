"""How to train: one frozen set of settings, and the papers' recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foils.batching.methods import METHODS
from foils.runtime.errors import InputError, UnknownNameError

PRECISIONS = ("auto", "float32", "bfloat16", "float16")
NO_DUPLICATES = "no-duplicates"
CURRICULA = ("fixed", "progress")


@dataclass(frozen=True)
class TrainSettings:
    """How to train a model.

    Attributes:
        loss: a name of the trainer's dictionary of losses.
        loss_settings: the loss' own settings.
        batch_size: rows in a batch; in-batch negatives come from all of it.
        mini_batch_size: texts embedded at once by a cached loss, which makes memory independent of the batch size;
            None: all at once.
        epochs: passes over the data.
        learning_rate: the peak; linear decay to 0 after the warm-up. None: that of the model's kind
            (`foils.training.models.learning_rate_of`).
        warmup: share of the steps over which the learning rate rises, in [0, 1).
        weight_decay: of AdamW.
        clip: longest gradient; 0: no limit.
        max_length: tokens after which a text is cut; None: the model's own.
        precision: `auto` takes bfloat16 or float16 where the device is a GPU that has it, else float32.
        seed: of data order and dropout.
        patience: evaluations on dev without a better score before training stops; None: never. Needs an evaluation.
        checkpoint_steps: steps between checkpoints (and evaluations); None: every epoch.
        keep_checkpoints: how many to keep, the best among them.
        log_steps: steps between entries of the history; None: about a hundred in all.
        trackers: of those that transformers supports, as `tensorboard`; none by default.

    Raises:
        InputError: a setting out of range; all are listed.
        UnknownNameError: an unknown precision.
    """

    loss: str = "mnrl"
    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 128
    mini_batch_size: int | None = None
    epochs: int = 1
    learning_rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.0
    clip: float = 1.0
    max_length: int | None = 128
    precision: str = "auto"
    seed: int = 0
    patience: int | None = None
    checkpoint_steps: int | None = None
    keep_checkpoints: int = 2
    log_steps: int | None = None
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UnknownNameError("precision", self.precision, PRECISIONS)
        least = {"batch_size": 1, "epochs": 1, "keep_checkpoints": 1, "seed": 0, "weight_decay": 0, "clip": 0}
        wrong = [
            f"{name} {getattr(self, name)} (at least {low})" for name, low in least.items() if getattr(self, name) < low
        ]
        for name in ("mini_batch_size", "max_length", "patience", "checkpoint_steps", "log_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                wrong.append(f"{name} {value} (at least 1)")
        if self.learning_rate is not None and not self.learning_rate > 0:
            wrong.append(f"learning_rate {self.learning_rate} (above 0)")
        if not 0 <= self.warmup < 1:
            wrong.append(f"warmup {self.warmup} (in [0, 1))")
        if wrong:
            raise InputError(f"settings out of range: {'; '.join(wrong)}")


def ways_of_batching() -> list[str]:
    """Return the names that `foils.training.bi_encoder.train_encoder` takes for its batches."""
    return [*METHODS, NO_DUPLICATES]


RECIPES: dict[str, TrainSettings] = {
    "eci-sem": TrainSettings(
        loss="mnrl",
        loss_settings={"temperature": 0.05},
        batch_size=4096,
        mini_batch_size=2048,
        epochs=1,
        learning_rate=2e-5,
        warmup=0.1,
        max_length=128,
    ),
    "hobit": TrainSettings(
        loss="weighted",
        loss_settings={"temperature": 0.05},
        batch_size=128,
        epochs=40,
        learning_rate=1e-5,
        warmup=0.1,
        weight_decay=0.01,
        clip=1.0,
        max_length=None,
        patience=5,
    ),
}
"""The papers' settings. ECI_sem section 4: cached MNRL over triplets, no duplicates in a batch. HOBIT: known positives
are masked where they could not be kept apart; the share of warm-up is ours."""

RECIPE_BATCHES = {"eci-sem": "no-duplicates", "hobit": "hobit"}
RECIPE_FORM = {"eci-sem": "triplets", "hobit": "pairs"}
RECIPE_POSITIVES = {"eci-sem": 1, "hobit": 64}
