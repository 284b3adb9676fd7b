"""What a training returns: the model, where it was written, and the loss over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.data.tables import Provenance
from foils.runtime.results import Result, Table, number

if TYPE_CHECKING:
    from foils.training.fit import TrainingRun

SHOWN = 8  # losses in the table, about


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
    """

    model: Any = field(repr=False)
    path: Path
    run: TrainingRun = field(repr=False)
    provenance: Provenance = field(repr=False)
    counts: Mapping[str, int]
    scores: Mapping[str, float]

    def tables(self) -> list[Table]:
        """Return the loss over the steps, and what was trained on."""
        losses = [entry for entry in self.run.history if "loss" in entry]
        every = max(1, len(losses) // SHOWN)
        rows = [(f"{e['step']:,.0f}", number(e["epoch"], 2), number(e["loss"], 4)) for e in losses[::every]]
        notes = [f"{name}: {count:,}" for name, count in self.counts.items()]
        notes.append(f"{self.run.steps:,} steps in {self.run.seconds:,.1f} s, {self.run.precision}")
        notes += [f"{name}: {value:.4f}" for name, value in self.scores.items()]
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
            "precision": self.run.precision,
            "history": self.run.history,
            **({} if self.run.masked is None else {"masked": self.run.masked}),
        }
