"""How a study is made: what varies, what stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from foils.runtime.errors import InputError


@dataclass(frozen=True)
class StudySettings:
    """What every training of a study has in common.

    Attributes:
        split: whose queries are trained on.
        test_split: whose queries are measured.
        measures: ir_measures' names; the first is the one that predictors are compared with.
        seeds: trainings of each source; a seed draws the queries, the order and the dropout.
        queries: training queries drawn by each seed, the same for all sources; None: all.
        per_query: negatives of a query, the first by rank, so that sources do not differ in size; None: all.
        hybrids: also unite up to this many sources, taking turns; 1: none.
        baselines: also measure the model untrained, and trained with in-batch negatives alone.
        temperature: τ of scores and loss.
        batches: how batches are filled.
        training: other settings of the training, as `foils.training.settings.TrainSettings` names them.
        probe: name of a cheap model to train on each source as one more predictor; None: no probe.
        probe_rows: rows that a probe is trained on at most.
        unlabelled: relevant documents without a label for each labelled one, where that is known; None: estimated.
        estimate_with: name of a better encoder to estimate it with; None: the model itself, before training.
    """

    split: str = "train"
    test_split: str = "test"
    measures: tuple[str, ...] = ("nDCG@10",)
    seeds: int = 3
    queries: int | None = None
    per_query: int | None = 10
    hybrids: int = 1
    baselines: bool = True
    temperature: float = 0.05
    batches: str = "random"
    training: Mapping[str, Any] = field(default_factory=dict)
    probe: str | None = None
    probe_rows: int = 20_000
    unlabelled: float | None = None
    estimate_with: str | None = None

    def __post_init__(self) -> None:
        least = {"seeds": 1, "queries": 1, "per_query": 1, "hybrids": 1, "probe_rows": 1}
        wrong = [
            f"{name} {getattr(self, name)} (at least {low})"
            for name, low in least.items()
            if getattr(self, name) is not None and getattr(self, name) < low
        ]
        if not self.temperature > 0:
            wrong.append(f"temperature {self.temperature} (above 0)")
        if self.unlabelled is not None and not self.unlabelled >= 0:
            wrong.append(f"unlabelled {self.unlabelled} (at least 0)")
        if not self.measures:
            wrong.append("no measure (as nDCG@10)")
        if self.split == self.test_split:
            wrong.append(f"test_split {self.test_split} (not the split that is trained on)")
        if wrong:
            raise InputError(f"settings out of range: {'; '.join(wrong)}")

    def of_a_training(self) -> dict[str, Any]:
        """Return what, beside source and seed, decides what a training gives."""
        names = ("split", "test_split", "measures", "queries", "per_query", "temperature", "batches", "training")
        chosen = {name: value for name, value in asdict(self).items() if name in names}
        return {**chosen, "measures": list(self.measures), "training": dict(self.training)}
