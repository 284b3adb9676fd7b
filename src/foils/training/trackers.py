"""Trackers that a training reports to, through transformers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foils.runtime.errors import MissingExtraError

TENSORBOARD = "tensorboard"
TRACKERS = (TENSORBOARD, "wandb", "trackio", "mlflow")
"""Names of trackers, which are those of their packages."""
CHECKPOINTS = "checkpoints"


def check_installed(trackers: Iterable[str]) -> None:
    """Refuse trackers that are not installed, before anything is read.

    Raises:
        MissingExtraError: the message says what to install.
    """
    if missing := [name for name in trackers if find_spec(name) is None]:
        raise MissingExtraError(
            f"the tracker {' and '.join(missing)} is not installed; run: pip install {' '.join(missing)}"
        )


def run_folder(checkpoints: Path) -> Path:
    """Return the folder of a training, whose name is the run's: the one that the folder `checkpoints` lies in."""
    return checkpoints.parent if checkpoints.name == CHECKPOINTS else checkpoints


def opened_by_name(trackers: Sequence[str]) -> list[str]:
    """Return the trackers that transformers' trainer opens itself."""
    return [name for name in trackers if name != TENSORBOARD]


def callbacks_of(trackers: Sequence[str], checkpoints: Path) -> list[Any]:
    """Return the callbacks of the others: TensorBoard's.

    Its files go to what TENSORBOARD_LOGGING_DIR names, or to `runs` in the folder of the training: there they stay when
    checkpoints are removed.
    """
    if TENSORBOARD not in trackers:
        return []
    from transformers.integrations import TensorBoardCallback

    callback = TensorBoardCallback()
    callback.logging_dir = callback.logging_dir or str(run_folder(checkpoints).absolute() / "runs")
    return [callback]
