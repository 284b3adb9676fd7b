"""How fast this machine is with a model: a few texts, and a few steps of a training."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foils.data import Collection, Negatives
from foils.mining import RandomRetriever, mine_negatives
from foils.tuning.kinds import Kind
from foils.tuning.parts import with_queries

PROBED, BATCH = 24, 8  # queries trained on and rows of a batch


@dataclass(frozen=True)
class Pace:
    """How fast this machine is with a model.

    Attributes:
        text: seconds for embedding a document, or scoring a pair.
        row: seconds for training on a row.
        start: seconds that a training takes beside its rows.
        pair: seconds for training on a row without mined negatives; the same as `row` where lists need them.
    """

    text: float
    row: float
    start: float
    pair: float

    @classmethod
    def measured(cls, kind: Kind, collection: Collection, *, seed: int, rows: int) -> Pace:
        """Embed or score a few texts, and train three steps on a model that is thrown away, with negatives and without.

        Args:
            kind: what is tuned.
            collection: with judgements to train on.
            seed: of what is drawn.
            rows: of a batch, as trainings will have them; a static embedding's step costs the same whatever its rows.
        """
        model = kind.load()
        text = kind.seconds_a_text(model, collection, seed)
        probe = with_queries(collection, {"train": PROBED}, seed)
        mined = mine_negatives(probe, RandomRetriever(probe, seed=seed), split="train", top=kind.in_row)
        step, start = _seconds_of_steps(kind, model, probe, mined, seed)
        alone = _seconds_of_steps(kind, model, probe, None, seed)[0] if kind.in_batch else step
        of_step = rows if kind.static else BATCH
        return cls(text, step / of_step, start, alone / of_step)


def _seconds_of_steps(
    kind: Kind, model: Any, probe: Collection, mined: Negatives | None, seed: int
) -> tuple[float, float]:
    """Return the seconds of a step of `BATCH` rows, and of a training beside its steps."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes the time of each step's end."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Note it."""
            self.ends.append(time.perf_counter())

    data = kind.data(probe, mined, {"per_query": kind.in_row, "max_positives": 1})
    settings = kind.training(batch_size=BATCH, seed=seed)
    clock, begin = Clock(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="foils-pace-") as folder:
        kind.fit(model, data, Path(folder), settings, "random", callbacks=[clock])
    total = time.perf_counter() - begin
    step = (clock.ends[-1] - clock.ends[0]) / (len(clock.ends) - 1) if len(clock.ends) > 1 else total / 3
    return step, max(0.0, total - step * len(clock.ends))
