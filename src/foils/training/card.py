"""The trained model's folder: safetensors, and a card that says data, negatives, scores and settings."""

from __future__ import annotations

import json
from typing import Any

from foils.runtime.files import fill_folder, write_json, write_text
from foils.training.results import Trained
from foils.training.trainer import TrainingRun, writing_weights

TRAINING = "foils_training.json"


def save_model(trained: Trained) -> None:
    """Write a model, its card, and `foils_training.json` with the settings and the losses over time; each file whole.

    Raises:
        FailureError: the folder cannot be written.
    """
    _without_clock(trained.run)
    with writing_weights(trained.path), fill_folder(trained.path) as aside:
        trained.model.save_pretrained(str(aside))
        card = aside / "README.md"
        written = card.read_text(encoding="utf-8") if card.is_file() else ""
        write_text(card, written.rstrip() + "\n\n" + section(trained))
        write_json(aside / TRAINING, trained.to_json())


def _without_clock(run: TrainingRun) -> None:
    """Let the library's own card show the whole history, resumed or not, and say nothing of the time it took."""
    data = getattr(run.model, "model_card_data", None)
    if data is not None and hasattr(data, "_training_start_time"):
        data._training_start_time, data.evaluation_duration = None, 0.0
        data.training_logs = [
            {"Epoch": entry["epoch"], "Step": int(entry["step"]), "Training Loss": entry["loss"]}
            for entry in run.history
            if "loss" in entry
        ]


def section(trained: Trained) -> str:
    """Return the card's section on the training, in Markdown."""
    run, provenance = trained.run, trained.provenance
    lines = ["## Training with foils", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_shown(value)} |" for name, value in provenance["settings"].items()]
    lines += [f"| precision | {run.precision} |", f"| seed | {provenance['seed']} |"]
    lines += [f"| steps | {run.steps:,} |", "", "### Data", "", "| | count |", "|---|---:|"]
    lines += [f"| {name} | {count:,} |" for name, count in trained.counts.items()]
    lines += ["", *(f"- {name}: digest `{digest}`" for name, digest in provenance["inputs"].items())]
    if trained.scores:
        lines += ["", "### Scores", "", "| measure | value |", "|---|---:|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in trained.scores.items()]
    if run.masked is not None and run.masked.epochs:
        last = run.masked.epochs[-1]
        lines += ["", f"The mask took {100 * last.share:.2f} % of the negatives' weight in epoch {last.epoch}."]
    losses = [entry["loss"] for entry in run.history if "loss" in entry]
    if losses:
        lines += ["", f"Loss: {losses[0]:.4f} at the start, {losses[-1]:.4f} at the end."]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
