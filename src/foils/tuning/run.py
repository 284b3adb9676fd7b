"""A tuning from end to end: every decision of the plan, and every step, each done once."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.encode import VectorStore
from foils.evaluation import evaluate_runs
from foils.evaluation.systems import Evaluation
from foils.runtime.files import fill_folder, write_sealed
from foils.tuning.contest import contest, with_negatives
from foils.tuning.keeping import Final, Keeping
from foils.tuning.kept import PASSING, Kept
from foils.tuning.kinds import Kind, kind_of_tuning
from foils.tuning.plan import Plan, Section
from foils.tuning.results import Tuned
from foils.tuning.scheduling import scheduled
from foils.tuning.sections import (
    cost_in_words,
    in_words,
    mines,
    negatives_section,
    pairs_alone,
    plural,
    rival,
    sources_section,
    training_section,
    without_negatives,
)
from foils.tuning.settings import NONE, TUNED
from foils.tuning.sources import Mining
from foils.tuning.trials import Trainings, Trial, halving

PLAN, PLANNED = "plan.toml", "planned.json"

log = logging.getLogger(__name__)


@dataclass
class Tuning:
    """One tuning at work.

    Attributes:
        whole: the collection, with three splits.
        plan: what is given, and decisions that are there already; the others are added.
        output: folder.
        store: of the base's vectors.
        device: as torch names it.
        warnings: about the data.
    """

    whole: Collection
    plan: Plan
    output: Path
    store: VectorStore
    device: str | None = None
    warnings: Sequence[str] = ()
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def given(self) -> Section:
        """Section [given] of the plan."""
        return self.plan["given"]

    @property
    def seed(self) -> int:
        """Seed of everything."""
        return int(self.given["seed"])

    @cached_property
    def kept(self) -> Kept:
        """Finished steps."""
        return Kept(self.output / "work")

    @cached_property
    def kind(self) -> Kind:
        """What is tuned."""
        return kind_of_tuning(self.given, self.store, self.kept, self.device)

    def schedule(self, *, keep: bool) -> float:
        """Decide how much is done; return about how many seconds that takes, 0 where the plan says it already.

        Args:
            keep: whether what was decided is written down, so that a tuning that goes on decides the same.
        """
        return scheduled(self.plan, self.whole, self.kind, self.begun, self.kept if keep else None)

    @cached_property
    def collection(self) -> Collection:
        """What is searched and trained on."""
        return self.kind.part(self.whole, self.plan["documents"], self.seed)

    def of(self) -> dict[str, str]:
        """Return digests of what every step begins with."""
        return {"collection": self.collection.measured_digest, **self.kind.of()}

    @cached_property
    def mining(self) -> Mining:
        """What mines, and decides."""
        return Mining(self.collection, self.kind, self.kept, self.of(), self.seed)

    def decide(self) -> dict[str, Any]:
        """Decide what to train on; return what the decision says of the sources, nothing where the plan says it."""
        if "negatives" in self.plan.sections:
            return {}
        if not mines(self.plan["trials"], self.kind):
            self.plan.decide("negatives", lambda: without_negatives(self.kind))
            return {}
        queries = int(self.plan["documents"]["train_queries"])
        sources = self.plan.decide("sources", lambda: sources_section(queries, self.kind))
        size = int(self.plan["batches"]["size"])
        facts = self.mining.decided(list(sources["names"]), int(sources["queries"]), batch_size=size)
        self.plan.decide("negatives", lambda: negatives_section(facts, self.kind))
        return facts

    def trainings(self) -> Trainings:
        """Return what runs a training on the negatives of the plan, once."""
        dev = self.kind.dev_part(self.collection, int(self.plan["trials"]["dev_documents"]), self.seed)
        rows, batches = self.plan["negatives"], self.plan["batches"]
        negatives = self._mined(str(rows["source"]))
        return Trainings(self.kept, self.kind, self.collection, dev, negatives, rows, batches, self.seed, self.of())

    def others(self, trainings: Trainings, decided: dict[str, Any]) -> Trainings | None:
        """Return trainings on what the decided negatives are held against; None where there is nothing else."""
        section = trainings.rows
        name = rival(decided, section, self.kind)
        if name == section["source"]:
            return None
        if not name:
            return trainings.on(None, pairs_alone(section, "", static=self.kind.static))
        return trainings.on(self._mined(name), {**section, "source": name, "reason": ""})

    def _mined(self, source: str) -> Negatives | None:
        return self.mining.mined(source) if source else None

    def train(
        self, trainings: Trainings, decided: dict[str, Any]
    ) -> tuple[Trainings, Trial | None, float, list[Trial]]:
        """Choose learning rate and epochs on dev, and train.

        Args:
            trainings: on the negatives that were decided on.
            decided: what the decision says of the sources; with it, the best run is made with other negatives, or
                without any, too, and the better of both is taken.

        Returns:
            The trainings that were chosen, the training (None where none is better on dev than the base), the base's
            dev, and all runs.
        """
        base, tried = trainings.base(), list[Trial]()
        self.say(f"{self.kind.before} has {base:.4f} on dev")
        trials, queries = self.plan["trials"], int(self.plan["documents"]["train_queries"])

        def run(rate: float, epochs: int, count: int) -> Trial:
            trial = trainings.run(rate, epochs, count)
            self.say(f"learning rate {rate:g}, {plural(epochs, 'epoch')}, {count:,} queries: {trial.dev:.4f} on dev")
            return trial

        final: Trial | None = None
        if "training" not in self.plan.sections:
            rates, short = [float(each) for each in trials["learning_rates"]], int(trials["queries"])
            best, tried = halving(
                lambda rate, epochs: run(rate, epochs, short),
                rates,
                [int(each) for each in trials["epochs"]],
                extend=bool(trials.get("extend", False)),
                forget=trainings.forget,
            )
            if trials["final_epochs"]:
                trainings.forget([best])
                best = run(best.learning_rate, int(trials["final_epochs"]), queries)
                tried.append(best)
            if decided and trials.get("contest", True) and (others := self.others(trainings, decided)):
                trainings, best, other = contest(trainings, others, best, self.plan)
                self.say(f"the same {with_negatives(others.rows)}: {other.dev:.4f} on dev")
                tried.append(other)
            final = best
            self.plan.sections["training"] = training_section(best, base, len(tried), self.kind.before)
        section = self.plan["training"]
        if not section["epochs"]:
            return trainings, None, base, tried
        count = int(section.get("queries", queries))
        final = run(float(section["learning_rate"]), int(section["epochs"]), count) if final is None else final
        return trainings, final, base, tried or [final]

    def run(self) -> Tuned:
        """Do all that is not done, and write what comes out of it."""
        self.seconds = self.schedule(keep=True)
        if self.seconds:
            self.say(cost_in_words(self.seconds, self.given.get("minutes")))
        decided = self.decide()
        self.say(f"negatives: {self.plan['negatives'].get('reason', 'as the plan says')}")
        trainings, trial, base, tried = self.train(self.trainings(), decided)
        final = None if trial is None else self._final(trainings, trial)
        self.write_plan()
        if trainings.negatives is not None:
            trainings.negatives.write(self.output / "negatives.parquet")
        runs, kind = self._runs(final), self.kind
        self.say("measured on test")
        cuts = {each: self._evaluated(self._runs(final, each)) for each in kind.cuts if final is not None}
        tuned = Tuned(
            self.output, self.collection, self.plan, replace(self._evaluated(runs), runs=tuple(runs)), kind.base, trial,
            base, tried, decided.get("sources", ()), decided.get("label_next"), self.warnings, self._remembered(final),
            kind.first_stage(self.collection), cuts,
        )  # fmt: skip
        if final is not None and tuned.better:
            written = {**final.key, "sentence": tuned.sentence}
            self.kept.facts("written", written, lambda: self._write_model(final.folder(), tuned))
        return tuned

    def _runs(self, final: Final | None, dimensions: int | None = None) -> list[Run]:
        """Return the rankings of test by the base and, where there is one, the tuned model; vectors may be cut."""
        kind, of = self.kind, {**self.of(), **({"dimensions": dimensions} if dimensions else {})}
        base = self.kept.run("base", of, lambda: kind.base_run(self.collection, dimensions))
        runs = [replace(base, name=kind.label)]
        if final is not None:
            key = {**of, **final.key}
            how = (self.collection, self._own, dimensions)
            runs.append(self.kept.run(TUNED, key, lambda: kind.run(final.folder(), *how)))
        return runs

    def _evaluated(self, runs: Sequence[Run]) -> Evaluation:
        rng, against = np.random.default_rng(self.seed), [self.kind.label] if len(runs) > 1 else None
        return evaluate_runs(self.collection, runs, rng=rng, measures=self.kind.measures, against=against)

    @cached_property
    def keeping(self) -> Keeping | None:
        """The collection that must not be forgotten, where there is one."""
        if self.plan.sections.get("keep", {}).get("collection") == NONE:
            return None
        return Keeping.of(self.kind, self.plan["trials"], self.kept)

    def _final(self, trainings: Trainings, trial: Trial) -> Final:
        """Return the trained model or, where another collection is to be kept, the merge that was chosen."""
        keeping, key = self.keeping, {"training": trainings.key(trial)}
        if keeping is None:
            return Final(key, lambda: trainings.folder(trial))
        alpha = float(self.plan.decide("keep", lambda: keeping.chosen(trainings, trial))["alpha"])
        self.say(f"merge: {self.plan['keep'].get('reason', 'as the plan says')}")
        return Final({**key, "alpha": alpha}, lambda: keeping.folder(trainings, trial, alpha))

    def _remembered(self, final: Final | None) -> Evaluation | None:
        if final is None or self.keeping is None:
            return None
        return self.keeping.evaluated(final, self._own)

    def write_plan(self) -> None:
        """Write the plan, and keep what was written, so that a change of it is seen."""
        write_sealed(self.kept.folder / PLANNED, {"plan": self.plan.to_toml()})
        self.plan.write(self.output / PLAN)

    def tidy(self) -> None:
        """Remove what is big and no longer needed: models, checkpoints and vectors of the short runs."""
        shutil.rmtree(self.kept.folder / PASSING, ignore_errors=True)

    @property
    def _own(self) -> VectorStore:
        return VectorStore(self.kept.folder / PASSING / "vectors")

    def _write_model(self, folder: Path, tuned: Tuned) -> dict[str, Any]:
        from foils.tuning.card import with_proof

        with fill_folder(self.output / "model") as aside:
            shutil.copytree(folder, aside, dirs_exist_ok=True)
            card = aside / "README.md"
            card.write_text(with_proof(card.read_text("utf-8"), tuned), encoding="utf-8", newline="\n")
        return {"model": "model"}

    def say(self, message: str) -> None:
        """Tell how far it is: what was done, and about how much time is left."""
        spent = time.monotonic() - self.begun
        left = f"; about {in_words(self.seconds - spent)} left" if self.seconds > spent else ""
        log.info("tune, after %s%s: %s", in_words(spent), left, message)
