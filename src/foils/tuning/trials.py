"""Short runs on train, measured on dev, and which of them is the best: successive halving."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foils.data import Collection, Negatives
from foils.data.tables import provenance
from foils.tuning.kept import Kept
from foils.tuning.kinds import Kind
from foils.tuning.parts import with_queries
from foils.tuning.plan import Section
from foils.tuning.settings import MEASURE, OF_TRAINING, some_of

CHECKPOINT_STEPS = 200


@dataclass(frozen=True)
class Trial:
    """A training, measured on dev.

    Attributes:
        learning_rate: its peak. `epochs`: over the queries. `queries`: that it was trained on.
        dev: mean measure on dev. `steps`: of the optimizer. `rows`: that it was trained on.
        loss_first, loss_last: at its beginning and its end; the same where one was noted.
        source: of its negatives; empty: in-batch negatives alone.
    """

    learning_rate: float
    epochs: int
    queries: int
    dev: float
    steps: int
    rows: int
    loss_first: float
    loss_last: float
    source: str = ""


@dataclass(frozen=True)
class Trainings:
    """What trainings of a tuning have in common.

    Attributes:
        kept: where they are kept. `kind`: what is trained.
        collection: to train on. `dev`: to measure on.
        negatives: to train on; None: pairs alone.
        rows: section [negatives] of the plan. `batches`: section [batches].
        seed: of the trainings. `of`: digests of what they begin with.
    """

    kept: Kept
    kind: Kind
    collection: Collection
    dev: Collection
    negatives: Negatives | None
    rows: Section
    batches: Section
    seed: int
    of: Section

    def base(self) -> float:
        """Return what the base has on dev."""
        key = {**self.of, "dev": self.dev.digest}
        return float(self.kept.facts("base", key, lambda: {"dev": self.kind.base_dev(self.dev)})["dev"])

    def run(self, learning_rate: float, epochs: int, queries: int) -> Trial:
        """Train and measure, unless that was done."""
        key = self._key(learning_rate, epochs, queries)
        facts = self.kept.facts("trial", key, lambda: self._trained(learning_rate, epochs, queries))
        shutil.rmtree(self.kept.passing("training", key), ignore_errors=True)
        return Trial(**facts)

    def folder(self, trial: Trial) -> Path:
        """Return the folder of a trial's model; where it is gone, it is trained again."""
        path = self.kept.passing("model", self.key(trial))
        if not path.is_dir():
            self.kept.path("trial", self.key(trial), ".json").unlink(missing_ok=True)
            self.run(trial.learning_rate, trial.epochs, trial.queries)
        return path

    def on(self, negatives: Negatives | None, rows: Section) -> Trainings:
        """Return trainings on other negatives, but else alike."""
        return replace(self, negatives=negatives, rows=rows)

    def forget(self, trials: Sequence[Trial]) -> None:
        """Remove the models of these trials; what they measured stays."""
        for each in trials:
            shutil.rmtree(self.kept.passing("model", self.key(each)), ignore_errors=True)

    def key(self, trial: Trial) -> dict[str, Any]:
        """Return what a trial depends on."""
        return self._key(trial.learning_rate, trial.epochs, trial.queries)

    def _key(self, learning_rate: float, epochs: int, queries: int) -> dict[str, Any]:
        rows = {name: self.rows.get(name) for name in ("source", "per_query", "max_positives", "passes")}
        batches = {name: self.batches[name] for name in ("way", "size")}
        how: dict[str, Any] = {"learning_rate": learning_rate, "epochs": epochs, "queries": queries}
        how["max_length"] = self.kind.given.get("max_length")
        if self.kind.cuts:
            how["matryoshka"] = list(self.kind.cuts)
        how |= some_of(self.kind.given, OF_TRAINING)
        return {**self.of, **rows, **batches, **how, "dev": self.dev.digest, "seed": self.seed}

    def _trained(self, learning_rate: float, epochs: int, queries: int) -> dict[str, Any]:
        from foils.training.card import save_model
        from foils.training.results import Trained

        key, kind, passes = self._key(learning_rate, epochs, queries), self.kind, int(self.rows.get("passes", 1))
        data = kind.data(with_queries(self.collection, {"train": queries}, self.seed), self.negatives, self.rows)
        settings = kind.training(
            learning_rate=learning_rate,
            epochs=epochs * passes,
            batch_size=int(self.batches["size"]),
            checkpoint_steps=CHECKPOINT_STEPS,
            seed=self.seed,
        )
        way = str(self.batches["way"])
        run = kind.fit(kind.load(), data, self.kept.passing("training", key), settings, way)
        dev = kind.dev(run.model, self.dev)
        model = kind.given["model"]
        described = {"model": model, "batches": way, "negatives": self.rows["source"], **settings.describe()}
        inputs = {name: str(value) for name, value in self.of.items()}
        history = provenance("tune", described, inputs=inputs, seed=self.seed)
        folder = self.kept.passing("model", key)
        save_model(Trained(run.model, folder, run, history, data.counts, {f"{MEASURE} on dev": dev}))
        losses = [entry["loss"] for entry in run.history if "loss" in entry]
        trial = Trial(
            learning_rate, epochs, queries, dev, run.steps, len(data), losses[0], losses[-1],
            str(self.rows["source"]),
        )  # fmt: skip
        return asdict(trial)


def halving(
    run: Callable[[float, int], Trial],
    learning_rates: Sequence[float],
    epochs: Sequence[int],
    *,
    extend: bool,
    forget: Callable[[Sequence[Trial]], None],
) -> tuple[Trial, list[Trial]]:
    """Return the best short run, and all in their order.

    Every learning rate runs for the first number of epochs; the better half of them (rounded up) runs for the next, and
    so on, until longer training is no better on dev. Where the largest learning rate is the best of the first round,
    three times of it is tried, too.

    Args:
        run: learning rate, epochs → the trial.
        learning_rates: to begin with.
        epochs: of the rounds, ascending.
        extend: whether three times the largest is tried.
        forget: removes the models of trials that are not the best.
    """
    tried: list[Trial] = []
    survivors, best = list(learning_rates), None
    for number, each in enumerate(epochs):
        before = best
        for rate in survivors:
            tried.append(run(rate, each))
            best = max(tried, key=order)
            forget([trial for trial in tried if trial is not best])
        if number == 0 and extend and best is not None and best.learning_rate == max(learning_rates):
            tried.append(run(float(f"{3 * best.learning_rate:.2g}"), each))
            best = max(tried, key=order)
            forget([trial for trial in tried if trial is not best])
            survivors = [*survivors, tried[-1].learning_rate]
        if before is not None and best is before:
            break
        latest = sorted(tried[-len(survivors) :], key=order, reverse=True)
        survivors = [trial.learning_rate for trial in latest[: (len(survivors) + 1) // 2]]
    if best is None:
        raise ValueError("no learning rate, or no number of epochs")
    return best, tried


def order(trial: Trial) -> tuple[float, int, float]:
    """The better on dev is the larger; of equals the cheaper, then the one with the smaller learning rate."""
    return trial.dev, -trial.epochs, -trial.learning_rate
