"""What happens beside the training steps: epochs told, the loss' own state kept, progress, failures. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback

from foils.data.records import whole_json
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, InputError
from foils.runtime.files import write_json
from foils.runtime.progress import Advance
from foils.training.gathering import average_gradients

LOSS_STATE = "foils_loss.safetensors"
WHOLE = "foils_checkpoint.json"
DEV = "dev"
CHANCE = "chance of "


def checkpoint_of(args: Any, state: Any) -> Path:
    """Return the folder of the checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


class LossState(TrainerCallback):  # type: ignore[misc]
    """Tells the loss its epoch; keeps what the loss itself learns with each checkpoint, and restores it on resuming.

    Of several processes, each of which has gradients of its own, what the loss itself learns takes their mean.

    Args:
        loss: the module; what belongs to its model is left to the trainer.
    """

    def __init__(self, loss: torch.nn.Module) -> None:
        self.loss = loss

    def own_state(self) -> dict[str, torch.Tensor]:
        """Return the loss' parameters and buffers, those of the model and of a guide left out."""
        state = self.loss.state_dict()
        return {
            name: value.contiguous()
            for name, value in state.items()
            if _of_loss(name) and isinstance(value, torch.Tensor)
        }

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the loss' state where training resumes.

        Raises:
            InputError: the checkpoint lacks it.
            FormatError: it is damaged, or another loss'.
        """
        own = self.own_state()
        if not state.global_step or not own:
            return
        path = checkpoint_of(args, state) / LOSS_STATE
        if not path.is_file():
            raise InputError(f"resuming needs what the loss had learned, {path}, which is not there; start anew")
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            saved = load_file(path)
        except (SafetensorError, OSError) as error:
            raise FormatError(f"damaged state of the loss ({error}); remove its checkpoint", path) from error
        if {name: value.shape for name, value in saved.items()} != {name: value.shape for name, value in own.items()}:
            raise FormatError(f"{sorted(saved)} of another loss, which has {sorted(own)}; start anew", path)
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(saved[name])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the loss its epoch, counted from 1."""
        if hasattr(self.loss, "set_epoch"):
            self.loss.set_epoch(math.floor((state.epoch or 0) + 1e-6) + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Average the gradients of the loss' own parameters over processes; torch does so for the model alone."""
        average_gradients([value for name, value in self.loss.named_parameters() if _of_loss(name)])

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the loss' state into the checkpoint."""
        from safetensors.torch import save_file

        own = self.own_state()
        if own and state.is_world_process_zero:
            save_file(own, checkpoint_of(args, state) / LOSS_STATE)


def _of_loss(name: str) -> bool:
    """Whether a tensor of this name is the loss' own, and not of the model or a guide in it."""
    return not {"model", "guide"} & {*name.split(".")}


class MarkWhole(TrainerCallback):  # type: ignore[misc]
    """Writes, after all that others write, which files a checkpoint has: so that one cut short is known."""

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """List the files of the checkpoint, with their sizes."""
        if state.is_world_process_zero:
            folder = checkpoint_of(args, state)
            write_json(folder / WHOLE, _sizes(folder))


def last_whole_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that has all its files; None without any.

    One whose list of files is missing or damaged is passed over: nobody knows whether it is whole.
    """
    whole = []
    for path in folder.glob("checkpoint-*"):
        mark, step = path / WHOLE, path.name.removeprefix("checkpoint-")
        if not step.isdecimal():
            continue
        try:
            listed = whole_json(mark)
        except InputError:
            continue
        if isinstance(listed, dict) and listed and listed.items() <= _sizes(path).items():
            whole.append((int(step), path))
    return max(whole)[1] if whole else None


def _sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


class Watch(TrainerCallback):  # type: ignore[misc]
    """Reports progress, and ends a training whose loss is no number.

    Args:
        reporting: where the task is opened once the trainer knows its number of steps; whoever made it closes it.
    """

    def __init__(self, reporting: ExitStack) -> None:
        self.reporting = reporting
        self.advance: Advance = lambda _: None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open the task, and count the steps of before as done."""
        self.advance = self.reporting.enter_context(progress.task("training", total=state.max_steps, unit="steps"))
        self.advance(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance by a step."""
        self.advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Look at the loss.

        Raises:
            FailureError: it is NaN or infinite.
        """
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            raise FailureError(
                f"the loss is {loss} at step {state.global_step}; lower the learning rate, or train in float32"
            )


class DevEvaluator(BaseEvaluator):  # type: ignore[misc]
    """A score of the model on dev, higher is better, as sentence-transformers' trainer asks for it.

    Args:
        score: model → score.
    """

    def __init__(self, score: Callable[[Any], float]) -> None:
        super().__init__()
        self.score = score
        self.primary_metric = DEV

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the score under the name `dev`; the model is back in its mode afterwards.

        Raises:
            FailureError: the score is no finite number.
        """
        training = model.training
        try:
            value = float(self.score(model))
        finally:
            model.train(training)
        if not math.isfinite(value):
            raise FailureError(f"the evaluation on dev gave {value}; expected a finite score")
        return {DEV: value}
