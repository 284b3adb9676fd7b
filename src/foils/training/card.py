"""The trained model's folder: safetensors, and a card that says data, negatives, scores and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foils.data.store import Provenance, fill_folder, write_json, write_text
from foils.training.trainer import Trained, writing_weights

TRAINING = "foils_training.json"


def save_model(
    trained: Trained, folder: str | Path, *, made: Provenance, counts: Mapping[str, int], scores: Mapping[str, float]
) -> None:
    """Write a model, its card, and `foils_training.json` with the settings and the losses over time; each file whole.

    Args:
        trained: the model and its history.
        folder: where to; made if it is not there.
        made: provenance: collection, negatives, settings, seed, versions.
        counts: what was used and left out.
        scores: name → value, as nDCG@10 on dev before and after.
    """
    _without_clock(trained)
    with writing_weights(Path(folder)), fill_folder(folder) as aside:
        trained.model.save_pretrained(str(aside))
        card = aside / "README.md"
        written = card.read_text(encoding="utf-8") if card.is_file() else ""
        write_text(card, written.rstrip() + "\n\n" + section(trained, made=made, counts=counts, scores=scores))
        write_json(aside / TRAINING, training_facts(trained, made=made, counts=counts, scores=scores))


def _without_clock(trained: Trained) -> None:
    """Let the library's own card show the whole history, resumed or not, and say nothing of the time it took."""
    data = getattr(trained.model, "model_card_data", None)
    if data is not None and hasattr(data, "_training_start_time"):
        data._training_start_time, data.evaluation_duration = None, 0.0
        data.training_logs = [
            {"Epoch": entry["epoch"], "Step": int(entry["step"]), "Training Loss": entry["loss"]}
            for entry in trained.history
            if "loss" in entry
        ]


def training_facts(
    trained: Trained, *, made: Provenance, counts: Mapping[str, int], scores: Mapping[str, float]
) -> dict[str, Any]:
    """Return what there is to say of a training as plain values."""
    return {
        "provenance": made,
        "counts": dict(counts),
        "scores": dict(scores),
        "best_dev": trained.best,
        "steps": trained.steps,
        "precision": trained.precision,
        "history": trained.history,
    }


def section(trained: Trained, *, made: Provenance, counts: Mapping[str, int], scores: Mapping[str, float]) -> str:
    """Return the card's section on the training, in Markdown."""
    settings = made.get("settings", {})
    lines = ["## Training with foils", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_shown(value)} |" for name, value in settings.items()]
    lines += [f"| precision | {trained.precision} |", f"| seed | {made.get('seed', '–')} |"]
    lines += [f"| steps | {trained.steps:,} |", "", "### Data", "", "| | count |", "|---|---:|"]
    lines += [f"| {name} | {count:,} |" for name, count in counts.items()]
    inputs = made.get("inputs", {})
    lines += ["", *(f"- {name}: digest `{digest}`" for name, digest in inputs.items())]
    if scores:
        lines += ["", "### Scores", "", "| measure | value |", "|---|---:|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in scores.items()]
    losses = [entry["loss"] for entry in trained.history if "loss" in entry]
    if losses:
        lines += ["", f"Loss: {losses[0]:.4f} at the start, {losses[-1]:.4f} at the end."]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
