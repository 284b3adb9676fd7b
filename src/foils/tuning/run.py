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

from foils.data import Collection, Negatives
from foils.data.load import load_collection
from foils.data.sealed import write_sealed
from foils.data.store import fill_folder
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.evaluation import dense_run, evaluate_runs
from foils.evaluation.systems import Evaluation
from foils.runtime import progress
from foils.tuning.budget import Budget, Pace, Work, is_static
from foils.tuning.contest import contest
from foils.tuning.keeping import Final, Keeping, left_out
from foils.tuning.kept import PASSING, Kept
from foils.tuning.parts import dev_part, fitting
from foils.tuning.plan import Plan, Section
from foils.tuning.results import BASE, TUNED, Tuned
from foils.tuning.sections import (
    MAX_POSITIVES,
    PER_QUERY,
    batch_size,
    batches_section,
    cost_in_words,
    in_words,
    negatives_section,
    plural,
    sources_section,
    training_section,
)
from foils.tuning.settings import MEASURES, NONE
from foils.tuning.sources import Mining
from foils.tuning.trials import Trainings, Trial, halving

PLAN, PLANNED = "plan.toml", "planned.json"
DEPTH = 100

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
    def encoder(self) -> SentenceEncoder:
        """The model as it is."""
        from foils.encode.models import load_model

        model = load_model(str(self.given["model"]), device=self.device)
        own = model.max_seq_length
        length = self.given.get("max_length")
        length = length if length is None or own in (None, float("inf")) else min(int(length), int(own))
        return SentenceEncoder(model, EncoderSettings(max_length=length, device=self.device), name=BASE)

    @cached_property
    def static(self) -> bool:
        """Whether the model is a bag of word vectors."""
        return is_static(self.encoder.model)

    def _budget(self) -> Budget:
        """Measure this machine's pace, and return what it allows."""
        from foils.training.models import learning_rate_of, load_trainable

        positives = self.whole.positives("train")
        rows = float(np.minimum(positives.counts, MAX_POSITIVES).mean()) * PER_QUERY[self.static]
        work = Work(len(self.whole.documents), len(positives), len(self.whole.positives("dev")), rows)
        model = load_trainable(str(self.given["model"]), device=self.device)
        rate = learning_rate_of(model)
        with progress.quiet():
            pace = Pace.measured(
                model, self.whole, max_length=self.given.get("max_length"), seed=self.seed, rows=batch_size(work)
            )
        minutes, keep = self.given.get("minutes"), left_out(self.given, {}) is None
        if keep:
            load_collection(self.given["keep"])  # the first reading of pydocs takes half a minute
        seconds = None if minutes is None else max(0.0, 60 * float(minutes) - (time.monotonic() - self.begun))
        return Budget(pace, work, seconds, rate, keep)

    def schedule(self, *, keep: bool) -> float:
        """Decide how much is done; return about how many seconds that takes, 0 where the plan says it already.

        Args:
            keep: whether what was decided is written down, so that a tuning that goes on decides the same.
        """
        seconds = 0.0
        if not {"documents", "batches", "trials"} <= self.plan.sections.keys():
            seconds = self._scheduled(keep)
        if nothing := left_out(self.given, self.plan["trials"]):
            self.plan.decide("keep", lambda: nothing)
        return seconds

    def _scheduled(self, keep: bool) -> float:
        budget = self._budget()

        def planned() -> dict[str, Any]:
            documents = self.plan.sections.get("documents") or budget.documents()
            return {"documents": documents, "trials": budget.trials(documents)}

        known = {name: each for name, each in self.plan.sections.items() if name in ("documents", "trials")}
        key: dict[str, Any] = {"collection": self.whole.digest, **self.given, **known}
        schedule = self.kept.facts("schedule", key, planned) if keep else planned()
        self.plan.decide("documents", lambda: schedule["documents"])
        self.plan.decide("sources", self._sources)
        self.plan.decide("batches", lambda: self._batches(budget.work))
        self.plan.decide("trials", lambda: schedule["trials"])
        return budget.estimate(self.plan["documents"], self.plan["trials"])

    def _sources(self) -> Section:
        return sources_section(int(self.plan["documents"]["train_queries"]))

    def _batches(self, work: Work) -> Section:
        work = replace(work, train=int(self.plan["documents"]["train_queries"]))
        return batches_section(work, static=self.static)

    @cached_property
    def collection(self) -> Collection:
        """What is searched and trained on."""
        documents = self.plan["documents"]
        return fitting(
            self.whole, documents=int(documents["count"]), queries=int(documents["train_queries"]), seed=self.seed
        )

    def of(self) -> dict[str, str]:
        """Return digests of what every step begins with."""
        return {"collection": self.collection.measured_digest, "model": self.encoder.fingerprint}

    def negatives(self) -> tuple[Negatives | None, dict[str, Any]]:
        """Decide what to train on; return the table, and what the decision says of the sources."""
        mining = Mining(self.collection, self.encoder, self.store, self.kept, self.of(), self.seed)
        facts: dict[str, Any] = {}
        if "negatives" not in self.plan.sections:
            sources = self.plan.decide("sources", self._sources)
            in_batch = int(self.plan["batches"]["size"]) - 1
            facts = mining.decided(list(sources["names"]), int(sources["queries"]), in_batch=in_batch)
            self.plan.decide("negatives", lambda: negatives_section(facts, static=self.static))
        source = str(self.plan["negatives"]["source"])
        return (mining.mined(source) if source else None), facts

    def trainings(self, negatives: Negatives | None) -> Trainings:
        """Return what runs a training, once."""
        dev = dev_part(self.collection, int(self.plan["trials"]["dev_documents"]), self.seed)
        return Trainings(
            self.kept, str(self.given["model"]), self.device, self.collection, dev, negatives,
            self.plan["negatives"], self.plan["batches"], self.given.get("max_length"), self.seed, self.of(),
        )  # fmt: skip

    def train(self, trainings: Trainings, *, contested: bool) -> tuple[Trainings, Trial | None, float, list[Trial]]:
        """Choose learning rate and epochs on dev, and train.

        Args:
            trainings: on the negatives that were decided on.
            contested: whether the best run is made without mined negatives, too, and the better of both is taken.

        Returns:
            The trainings that were chosen, the training (None where none is better on dev than the base), the base's
            dev, and all runs.
        """
        base, tried = trainings.base(), list[Trial]()
        self.say(f"the model as it is has {base:.4f} on dev")
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
            if contested and trainings.negatives is not None:
                trainings, best, without = contest(trainings, best, self.plan, static=self.static)
                self.say(f"the same with in-batch negatives alone: {without.dev:.4f} on dev")
                tried.append(without)
            final = best
            self.plan.sections["training"] = training_section(best, base, len(tried))
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
        contested = "negatives" not in self.plan.sections
        negatives, decided = self.negatives()
        self.say(f"negatives: {self.plan['negatives'].get('reason', 'as the plan says')}")
        trainings = self.trainings(negatives)
        trainings, trial, base, tried = self.train(trainings, contested=contested)
        final = None if trial is None else self._final(trainings, trial)
        self.write_plan()
        if trainings.negatives is not None:
            trainings.negatives.write(self.output / "negatives.parquet")
        runs = [self.kept.run(BASE, self.of(), lambda: self._searched(self.encoder, self.store))]
        if final is not None:
            tuned_run = self.kept.run(
                TUNED, {**self.of(), **final.key}, lambda: self._searched(final.encoder(), self._own)
            )
            runs.append(tuned_run)
        self.say("measured on test")
        rng, against = np.random.default_rng(self.seed), None if final is None else [BASE]
        evaluation = evaluate_runs(self.collection, runs, rng=rng, measures=MEASURES, against=against)
        tuned = Tuned(
            self.output, self.collection, self.plan, replace(evaluation, runs=tuple(runs)), trial, base, tried,
            decided.get("sources", ()), decided.get("label_next"), self.warnings, self._remembered(final),
        )  # fmt: skip
        if final is not None and tuned.better:
            written = {**final.key, "sentence": tuned.sentence}
            self.kept.facts("written", written, lambda: self._write_model(final.folder(), tuned))
        return tuned

    @cached_property
    def keeping(self) -> Keeping | None:
        """The collection that must not be forgotten, where there is one."""
        if self.plan.sections.get("keep", {}).get("collection") == NONE:
            return None
        return Keeping.of(str(self.given["keep"]), self.plan["trials"], self.kept, self.seed)

    def _final(self, trainings: Trainings, trial: Trial) -> Final:
        """Return the trained model or, where another collection is to be kept, the merge that was chosen."""
        keeping, key = self.keeping, {"training": trainings.key(trial)}
        how = replace(self.encoder.settings, max_length=None)
        if keeping is None:
            return Final(key, lambda: trainings.folder(trial), how)
        alpha = float(self.plan.decide("keep", lambda: keeping.chosen(trainings, trial))["alpha"])
        self.say(f"merge: {self.plan['keep'].get('reason', 'as the plan says')}")
        return Final({**key, "alpha": alpha}, lambda: keeping.folder(trainings, trial, alpha), how)

    def _remembered(self, final: Final | None) -> Evaluation | None:
        if final is None or self.keeping is None:
            return None
        return self.keeping.evaluated(self.encoder, final, self.store, self._own)

    def write_plan(self) -> None:
        """Write the plan, and keep what was written, so that a change of it is seen."""
        write_sealed(self.kept.folder / PLANNED, {"plan": self.plan.to_toml()})
        self.plan.write(self.output / PLAN)

    def tidy(self) -> None:
        """Remove what is big and no longer needed: models, checkpoints and vectors of the short runs."""
        shutil.rmtree(self.kept.folder / PASSING, ignore_errors=True)

    def _searched(self, encoder: SentenceEncoder, store: VectorStore) -> Any:
        return dense_run(encoder, self.collection, "test", depth=DEPTH, store=store, name=encoder.name)

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
