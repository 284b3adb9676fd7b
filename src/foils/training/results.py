"""What a training gives: the run, and the trained model in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from foils.data.tables import Provenance
from foils.encode.models import length_of
from foils.runtime.results import Result, Table, counted, number

if TYPE_CHECKING:
    import torch

SHOWN = 8  # losses in the table, about


@dataclass(frozen=True)
class TrainingRun:
    """A training: its model, and how it got there.

    Attributes:
        model: with an evaluation on dev, the best of the evaluated ones; else the last.
        history: entries by step: `loss`, or `dev`, with step and epoch; of a curriculum, the chances of its tiers.
        best: the best score on dev; None without one.
        steps: optimizer steps taken in all.
        seconds: of this run, checkpoints and evaluations included.
        precision: of the computation.
        types: of the weights, by name, as they were before training: in float32 they are trained, in these saved.
        masked: the `mask`, and the `shares` of candidate negatives that it left out by epoch; None without one.
    """

    model: Any
    history: list[dict[str, float]]
    best: float | None
    steps: int
    seconds: float
    precision: str
    types: Mapping[str, torch.dtype] = field(repr=False)
    masked: Mapping[str, Any] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What it was computed in, what the weights are saved in, and the model's own maximum length."""
        weights = sorted({str(each).removeprefix("torch.") for each in self.types.values()})
        return {"precision": self.precision, "weights": ", ".join(weights), "model_max_length": length_of(self.model)}


@dataclass(frozen=True)
class Trained(Result):
    """A trained model.

    Attributes:
        model: a SentenceTransformer or a CrossEncoder; with an evaluation on dev, the best of those evaluated.
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
        masked = self.run.masked["shares"] if self.run.masked else {}
        notes += [f"negatives masked in epoch {epoch}: {share:.2%}" for epoch, share in masked.items()]
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
            **({} if self.run.masked is None else {"masked": self.run.masked}),
        }
