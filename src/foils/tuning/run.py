"""A tuning from end to end: every decision of the plan, and every step, each done once."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Negatives
from foils.data.sealed import write_sealed
from foils.data.store import fill_folder
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.evaluation import dense_run, evaluate_runs
from foils.runtime import progress
from foils.tuning.budget import Budget, Pace, Work, is_static
from foils.tuning.kept import PASSING, Kept
from foils.tuning.parts import dev_part, fitting
from foils.tuning.plan import Plan, Section
from foils.tuning.results import BASE, TUNED, Tuned
from foils.tuning.settings import MEASURES
from foils.tuning.sources import SAMPLED, SOURCES, Mining
from foils.tuning.trials import Trainings, Trial, halving

PLAN, PLANNED = "plan.toml", "planned.json"
DEPTH = 100
PER_QUERY = {True: 10, False: 1}  # negatives of a positive: of a static embedding, whose steps cost nothing; of others
MAX_POSITIVES = 4
STEPS = 20  # of an epoch, at least, where there are rows enough
SIZES = (16, 32, 64, 128)

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
        minutes = self.given.get("minutes")
        return Budget(pace, work, None if minutes is None else 60 * float(minutes), rate)

    def schedule(self, *, keep: bool) -> float:
        """Decide how much is done; return about how many seconds that takes, 0 where the plan says it already.

        Args:
            keep: whether what was decided is written down, so that a tuning that goes on decides the same.
        """
        if {"documents", "batches", "trials"} <= self.plan.sections.keys():
            return 0.0
        budget = self._budget()

        def planned() -> dict[str, Any]:
            documents = self.plan.sections.get("documents") or budget.documents()
            return {"documents": documents, "trials": budget.trials(documents)}

        known = {name: each for name, each in self.plan.sections.items() if name in ("documents", "trials")}
        key: dict[str, Any] = {"collection": self.whole.digest, **self.given, **known}
        schedule = self.kept.facts("schedule", key, planned) if keep else planned()
        self.plan.decide("documents", lambda: schedule["documents"])
        self.plan.decide("sources", lambda: self._sources())
        self.plan.decide("batches", lambda: self._batches(budget.work))
        self.plan.decide("trials", lambda: schedule["trials"])
        return budget.estimate(self.plan["documents"], self.plan["trials"])

    def _sources(self) -> Section:
        reason = "cheap ones, from easy to hard; the decision weighs how hard each is against how many are false"
        queries = min(SAMPLED, int(self.plan["documents"]["train_queries"]))
        return {"names": list(SOURCES), "queries": queries, "reason": reason}

    def _batches(self, work: Work) -> Section:
        size = batch_size(replace(work, train=int(self.plan["documents"]["train_queries"])))
        if self.static:
            why = "batches of rows that are hard for each other, which did best with such a model (docs/batches.md)"
            return {"way": "ngame", "size": size, "reason": f"{why}; {STEPS} steps an epoch or more"}
        why = "at random: other ways embed all rows before each epoch, which costs a third of the training again"
        return {"way": "random", "size": size, "reason": f"{why}; {STEPS} steps an epoch or more"}

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
            self.plan.decide("negatives", lambda: self._decided(facts))
        source = str(self.plan["negatives"]["source"])
        return (mining.mined(source) if source else None), facts

    def _decided(self, facts: Mapping[str, Any]) -> Section:
        source, per_query = facts["source"] or "", PER_QUERY[self.static]
        reason, passes = " ".join(facts["sentences"]), 1
        if not source and self.static:
            passes = per_query
            reason += f" An epoch goes {passes} times over the pairs: as many steps as with {passes} negatives each."
        return {"source": source, "per_query": per_query, "max_positives": MAX_POSITIVES, "passes": passes,
                "reason": reason}  # fmt: skip

    def trainings(self, negatives: Negatives | None) -> Trainings:
        """Return what runs a training, once."""
        dev = dev_part(self.collection, int(self.plan["trials"]["dev_documents"]), self.seed)
        return Trainings(
            self.kept, str(self.given["model"]), self.device, self.collection, dev, negatives,
            self.plan["negatives"], self.plan["batches"], self.given.get("max_length"), self.seed, self.of(),
        )  # fmt: skip

    def train(self, trainings: Trainings) -> tuple[Trial | None, float, list[Trial]]:
        """Choose learning rate and epochs on dev, and train; return the training, the base's dev, and all runs.

        No training is returned where none is better on dev than the base.
        """
        base, tried = trainings.base(), list[Trial]()
        self.say(f"the model as it is has {base:.4f} on dev")
        trials, queries = self.plan["trials"], int(self.plan["documents"]["train_queries"])

        def run(rate: float, epochs: int, count: int) -> Trial:
            trial = trainings.run(rate, epochs, count)
            self.say(f"learning rate {rate:g}, {_plural(epochs, 'epoch')}, {count:,} queries: {trial.dev:.4f} on dev")
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
                trainings.forget(tried)
                best = run(best.learning_rate, int(trials["final_epochs"]), queries)
                tried.append(best)
            final = best
            self.plan.sections["training"] = training_section(best, base, len(tried))
        section = self.plan["training"]
        if not section["epochs"]:
            return None, base, tried
        count = int(section.get("queries", queries))
        final = run(float(section["learning_rate"]), int(section["epochs"]), count) if final is None else final
        return final, base, tried or [final]

    def run(self) -> Tuned:
        """Do all that is not done, and write what comes out of it."""
        self.seconds = self.schedule(keep=True)
        if self.seconds:
            self.say(f"about {_time(self.seconds)} in all")
        negatives, decided = self.negatives()
        self.say(f"negatives: {self.plan['negatives']['reason']}")
        trainings = self.trainings(negatives)
        trial, base, tried = self.train(trainings)
        self.write_plan()
        if negatives is not None:
            negatives.write(self.output / "negatives.parquet")
        runs = [self.kept.run(BASE, self.of(), lambda: self._searched(self.encoder, self.store))]
        if trial is not None:
            key = {**self.of(), "training": trainings.key(trial)}
            runs.append(
                self.kept.run(TUNED, key, lambda: self._searched(self._tuned(trainings.folder(trial)), self._own))
            )
        self.say("measured on test")
        evaluation = evaluate_runs(
            self.collection, runs, rng=np.random.default_rng(self.seed), split="test", measures=MEASURES,
            against=[BASE] if trial is not None else None,
        )  # fmt: skip
        tuned = Tuned(
            self.output, self.collection, self.plan, replace(evaluation, runs=tuple(runs)), trial, base, tried,
            decided.get("sources", ()), decided.get("label_next"), self.warnings,
        )  # fmt: skip
        if trial is not None and tuned.better:
            written = {"training": trainings.key(trial), "sentence": tuned.sentence}
            self.kept.facts("written", written, lambda: self._write_model(trainings.folder(trial), tuned))
        return tuned

    def write_plan(self) -> None:
        """Write the plan, and keep what was written, so that a change of it is seen."""
        write_sealed(self.kept.folder / PLANNED, {"plan": self.plan.to_toml()})
        self.plan.write(self.output / PLAN)

    def tidy(self) -> None:
        """Remove what is big and no longer needed: models, checkpoints and vectors of the short runs."""
        shutil.rmtree(self.kept.folder / PASSING, ignore_errors=True)

    def _searched(self, encoder: SentenceEncoder, store: VectorStore) -> Any:
        return dense_run(encoder, self.collection, "test", depth=DEPTH, store=store, name=encoder.name)

    def _tuned(self, folder: Path) -> SentenceEncoder:
        from foils.encode.models import load_model

        model = load_model(folder, device=self.device)
        return SentenceEncoder(model, replace(self.encoder.settings, max_length=None), name=TUNED)

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
        left = f"; about {_time(self.seconds - spent)} left" if self.seconds > spent else ""
        log.info("tune, after %s%s: %s", _time(spent), left, message)


def batch_size(work: Work) -> int:
    """Return the largest batch that leaves `STEPS` steps an epoch, from 16 to 128."""
    rows = work.train * work.rows_per_query
    return max((size for size in SIZES if rows / size >= STEPS), default=SIZES[0])


def training_section(trial: Trial, base: float, tried: int) -> Section:
    """Return the chosen training; epochs 0 where the base is better on dev."""
    runs = _plural(tried, "run")
    reason = f"the best of {runs} on dev: {trial.dev:.4f}, and {base:.4f} before"
    if trial.dev <= base:
        reason = f"none: the best of {runs} has {trial.dev:.4f} on dev, and the model as it is {base:.4f}"
    epochs = trial.epochs if trial.dev > base else 0
    return {"learning_rate": trial.learning_rate, "epochs": epochs, "queries": trial.queries, "reason": reason}


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
