"""A tuning from end to end: every decision of the plan, and every step, each done once; and what comes out of it."""

from __future__ import annotations

import logging
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data import Collection, Negatives, Run
from foils.data.analyser import BM25Settings
from foils.data.fusing import TUNED_FILE, Fusion, fuse_runs
from foils.data.splitting import SPLITS, drawn_judgements
from foils.data.tables import provenance
from foils.deciding import BeliefSettings, decide
from foils.deciding.mine import mine
from foils.encode import VectorStore
from foils.encode.opening import computes_bfloat16, multiplies
from foils.evaluation import bm25_run, evaluate_runs, measure_run
from foils.evaluation.systems import Evaluation
from foils.experiments.cache import TEMPORARY, StepCache
from foils.experiments.plan import (
    DEV_QUERIES,
    LEAST_QUERIES,
    MAX_POSITIVES,
    Plan,
    Section,
    Trial,
    clock,
    halving,
    schedule,
    weight_within_an_error,
    with_hard_documents,
    with_queries,
)
from foils.experiments.tasks import BM25, FIRST_STAGE, EncoderTask, RerankerTask, Task
from foils.mining.methods import parsed_ranks
from foils.runtime import progress
from foils.runtime.errors import require
from foils.runtime.files import cache_place, fill_folder, without_nan, write_text
from foils.runtime.results import Result, Table, counted, number, p_value, with_ends
from foils.searching.retriever import named_collection
from foils.statistics import Comparison, bootstrap_interval, paired_test
from foils.statistics.significance import PairedTest

MEASURE = "nDCG@10"
BASE, TUNED, BOTH, FUSED_STAGE = "base", "tuned", f"{BM25} + tuned", f"{BM25} + {FIRST_STAGE}"
RERANKED = f"{FIRST_STAGE} + tuned"  # a reranker's scores and those of the order that it reranks, put together
LEVEL = 0.05
"""p below which a difference counts."""
PLAN = "plan.toml"
CHECKPOINT_STEPS = 200
SAMPLED, SAMPLE = 2_000, "train, sampled"  # queries that are mined for the decision, and the name of their split
STEPS, SIZES = 20, (16, 32, 64, 128)  # of an epoch at least; sizes of a batch
LISTS, DRAWN = 10, 7  # of a reranker's batch, and negatives of each
SHORT_RUN = {"encoder": 1 / 8, "reranker": 1 / 16}  # of the time; a new head needs most of it
SOURCES = ("random", "bm25", "dense", "dense 10-20", "dense 20-30", "dense 50-60")
WEIGHTS = tuple(round(0.1 * step, 1) for step in range(1, 10))  # of the tuned model beside BM25

log = logging.getLogger(__name__)


def read_again(given: Mapping[str, Any]) -> str:
    """Return the arguments by which a verb reads what a tuning read, with the same documents and the same test.

    Args:
        given: section [given] of a plan.
    """
    words = [str(given["collection"])]
    if columns := given.get("columns"):
        words += ["--columns", ",".join(f"{role}={name}" for role, name in columns.items())]
    if corpus := given.get("corpus"):
        words += ["--corpus", str(corpus)]
    return shlex.join(words)


@dataclass(frozen=True)
class Tuned(Result):
    """A tuning.

    Attributes:
        path: folder of everything; the better model is in its folder `model`.
        collection: what was searched, with the splits.
        plan: every decision with its reason.
        evaluation: on test, of the base, the tuned model where one was trained, BM25, and both together.
        base: what the tuned model is measured against: the model as it is, or a first stage's order.
        trial: the training that was tested; None: none was better than the base on dev.
        base_dev: what the base has on dev.
        trials: all trainings, in their order.
        decision: what the decision says of the candidates; empty: of a reranker, or the plan said what to train on.
        warnings: about the data and the training.
    """

    path: Path
    collection: Collection = field(repr=False)
    plan: Plan = field(repr=False)
    evaluation: Evaluation = field(repr=False)
    base: str
    trial: Trial | None
    base_dev: float
    trials: tuple[Trial, ...] = field(repr=False)
    decision: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...]

    @property
    def brief(self) -> str:
        """In one line."""
        return f"{self.plan['given']['model']!r}: {'better' if self.better else 'kept'}, deploy {self.deploys}"

    @property
    def means(self) -> dict[str, float]:
        """The measure of each system on test."""
        return {system.name: system.means[MEASURE] for system in self.evaluation.systems}

    @property
    def retrieves(self) -> bool:
        """Whether it is an encoder, which searches with BM25; else a reranker."""
        return not self.plan["given"].get("reranker")

    def compared(self, a: str, b: str) -> Comparison | None:
        """Return how two systems differ on test; None where they were not compared."""
        return next((each for each in self.comparisons if (each.a, each.b) == (a, b)), None)

    @property
    def comparisons(self) -> list[Comparison]:
        """How systems differ on test by the measure that decides."""
        return [each for each in self.evaluation.comparisons if each.measure == MEASURE]

    @property
    def comparison(self) -> Comparison | None:
        """The tuned model against the base; None where nothing was trained.

        Of a reranker that is no better alone, it and the first stage together, where they are.
        """
        base = self.evaluation.systems[0].name
        alone, together = self.compared(TUNED, base), self.compared(RERANKED, base)
        return together if surely_better(together) and not surely_better(alone) else alone

    @property
    def better(self) -> bool:
        """Whether the tuned model is significantly better on test; then, and only then, it was written."""
        return surely_better(self.comparison)

    @property
    def model(self) -> str:
        """The model to use: the folder of the tuned one, or the base's name."""
        return str(self.path / "model") if self.better else str(self.plan["given"]["model"])

    @property
    def deploys(self) -> str:
        """What to deploy: both (BM25 with the tuned model or, where that is no better, the base), model, bm25 or base.

        Both where they are on dev better than each, and on test not surely worse than one; else the better one. Of
        rerankers both are the first stage with the reranker; what it orders, or that with BM25, where these are better.
        """
        means, base = self.means, self.evaluation.systems[0].name
        half = TUNED if self.better else base
        names = (half, BM25, FIRST_STAGE, FUSED_STAGE)
        single = max((name for name in names if name in means), key=lambda name: means[name])
        against = self.compared(self.both, single)
        # A reranker costs a forward pass for every document, so it must not be worse at all.
        lost = against is not None and against.difference < 0 and (against.p_randomised < LEVEL or not self.retrieves)
        written = self.retrieves or self.better
        if written and self.both in means and self.plan["retriever"].get("advised", True) and not lost:
            return "both"
        if single != base and single in (FIRST_STAGE, FUSED_STAGE):
            return single
        if self.better:
            return "model" if single == TUNED else single
        return BM25 if surely_better(self.compared(BM25, base)) else "base"

    @property
    def both(self) -> str:
        """The name of what the model is put together with and the model: the tuned one or, if no better, the base."""
        if not self.retrieves:
            return RERANKED
        return BOTH if self.better else f"{BM25} + {self.evaluation.systems[0].name}"

    @property
    def sentence(self) -> str:
        """What to deploy, and what came out of the training."""
        means, base, stage = self.means, self.evaluation.systems[0].name, self.plan["given"].get("first_stage") or BM25
        stages = {FIRST_STAGE: f"the order of {stage}", FUSED_STAGE: f"BM25 and {stage} together"}
        names = {**stages, base: self.base, TUNED: "tuned", BM25: "BM25", self.both: "both together"}
        shown = ", ".join(f"{names[name]} {value:.4f}" for name, value in means.items())
        half = "the tuned model" if self.better else self.base
        both = f"BM25 and {half} together" if self.retrieves else f"{stages[FIRST_STAGE]} and {half} together"
        what = {**stages, "both": both, "model": half, "base": half, BM25: "BM25"}[self.deploys]
        where = f" (--{'model' if self.retrieves else 'reranker'} {self.path})" if self.deploys == "both" else ""
        tied = self.deploys == "both" and means[self.both] < max(means.values())
        shown += "; both together were better on dev, and tie with the best on test" if tied else ""
        return f"Deploy {what}{where}: {MEASURE} on test {shown}. {self.proof}"

    @property
    def proof(self) -> str:
        """Whether the training made the model better, and how surely."""
        comparison = self.comparison
        if comparison is None:
            reason = self.plan["training"].get("reason", "no epoch is planned")
            return f"Kept {self.base}: no training was better on dev ({reason}). No model was written."
        queries = len(self.evaluation.systems[0].query_ids)
        gain = with_ends(comparison.difference, comparison.low, comparison.high)
        shown = f"{gain}, p {p_value(comparison.p_randomised)}, {queries:,} queries"
        if self.better:
            what = "both together" if comparison.a == RERANKED else comparison.a
            return f"Better: {what} over {self.base} {shown}. The model is in {self.path / 'model'}."
        why = "it is not better" if comparison.difference <= 0 else f"p is not below {LEVEL:g}, so it may be chance"
        return f"Kept {self.base}: {why} (tuned {shown}). No model was written."

    def tables(self) -> list[Table]:
        """Return the measures on test, the plan, and the trainings; what to deploy stands under the first."""
        first = self.evaluation.tables()[0]
        notes = [first.caption, self.sentence, *(f"Warning: {each}" for each in self.warnings), f"Next: {self.next}"]
        proof = replace(first, caption="\n".join(filter(None, notes)))
        rows = [
            (f"{each.a} − {each.b}", with_ends(each.difference, each.low, each.high), p_value(each.p_randomised))
            for each in self.comparisons
        ]
        pairs = Table("Differences on test", ["systems", MEASURE, "p (randomised)"], rows)
        trained = [(self.base, "", "", "", "", number(self.base_dev, 4))]
        for trial in self.trials:
            cells = (f"{trial.epochs}", f"{trial.queries:,}", f"{trial.steps:,}", number(trial.dev, 4))
            trained.append((f"{trial.learning_rate:g}", trial.source or "in batch", *cells))
        columns = ["learning rate", "negatives", "epochs", "queries", "steps", f"{MEASURE} on dev"]
        marked = frozenset(1 + at for at, trial in enumerate(self.trials) if trial == self.trial)
        title = "Trainings on train, measured on a part of dev"
        return [proof, pairs, *self.plan.tables(), Table(title, columns, trained, "", marked, frozenset({1}))]

    @property
    def next(self) -> str:
        """What may be done next."""
        given, comparison = self.plan["given"], self.comparison
        if self.better:
            what = f"--model bm25 --model both={self.path}" if self.deploys == "both" else f"--model {self.model}"
            if not self.retrieves:
                stage = str(given.get("first_stage") or BM25)
                first = f"--{'run' if Path(stage).is_file() else 'model'} {stage}"
                what = f"{first} --reranker {self.path} --rerank-depth 50"
            return f"foils evaluate {read_again(given)} {what}"
        if comparison is None:
            return "look at the pairs (foils describe): does the positive answer the query, and is it findable?"
        return "give more pairs: nothing else helps as surely."

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.experiments.pages import tune_page

        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        own = ("better", "deploys", "sentence", "model", "warnings", "base", "base_dev", "next")
        value: dict[str, Any] = {
            **{name: getattr(self, name) for name in own},
            "plan": self.plan.sections,
            "trials": [each.to_json() for each in self.trials],
            "decision": self.decision.get("table"),
            "evaluation": self.evaluation.to_json(),
        }
        return dict(without_nan(value))


def surely_better(test: Comparison | PairedTest | None) -> bool:
    """Return whether a test says that the first of two is significantly better than the second."""
    return test is not None and test.difference > 0 and test.p_randomised < LEVEL


@dataclass
class Tuning:
    """One tuning at work.

    Attributes:
        whole: the collection, with three splits.
        plan: what is given, and decisions that are there already; the others are added.
        output: folder.
        device: torch device.
        keeps: whether finished steps are written down, so that a tuning that goes on decides the same.
    """

    whole: Collection
    plan: Plan
    output: Path
    device: str | None = None
    keeps: bool = True
    begun: float = field(default_factory=time.monotonic)
    trials: list[Trial] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _again: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given, self.seed = self.plan["given"], int(self.plan["given"]["seed"])
        self.cache, self.store = StepCache(self.output / "work"), VectorStore(cache_place("vectors"))
        model, first = str(self.given["model"]), str(self.given.get("first_stage") or BM25)
        how = (model, self.device, self.given.get("max_length"), bool(self.given.get("trust_remote_code")), self.store)
        self.lexical = BM25Settings().over(self.given.get("bm25") or {}).resolved(self.whole)
        self.task: Task = RerankerTask(*how, first, self.lexical) if self.given.get("reranker") else EncoderTask(*how)
        self.static = self.task.kind == "static embedding"
        self.per_query = 10 if self.static else 1 if self.task.in_batch else DRAWN
        # A reranker whose head nobody trained has to beat the first stage's own order.
        self.fresh = not self.task.in_batch and self.task.init == "nothing"
        self.label, self.base = (FIRST_STAGE, f"the order of {first}") if self.fresh else (BASE, model)

    @cached_property
    def of(self) -> dict[str, str]:
        """Digests of what every step begins with."""
        own = {"first_stage": self.task.ranked_by} if isinstance(self.task, RerankerTask) else {}
        own["bm25"] = str(self.lexical.facts)
        return {"collection": self.collection.measured_digest, "model": self.task.fingerprint, **own}

    # How much is done.

    def schedule(self) -> None:
        """Decide how much is done: sections [trials] and [batches]."""

        def scheduled() -> Section:
            minutes = self.given.get("minutes")
            left = None if minutes is None else max(0.0, 60 * float(minutes) - (time.monotonic() - self.begun))
            how: dict[str, Any] = {"per_query": self.per_query, "rates": self._rates(), "seed": self.seed}
            with progress.reporting(progress.silent):
                return schedule(self.task, self.whole, seconds=left, **how)

        key = {"collection": self.whole.digest, **self.given}
        self.plan.decide("trials", lambda: self.cache.facts("schedule", key, scheduled) if self.keeps else scheduled())
        self.plan.decide("batches", self._batches)

    def _rates(self) -> tuple[float, float]:
        """The default learning rate of the model, and that of few steps: three times an encoder's or a new head's."""
        from foils.training.models import learning_rate_of, transformer_of

        model, lora = self.task.load(), self.given.get("lora") is not None
        if lora:
            require("peft", "lora")
            transformer_of(model, "lora")
        rate = learning_rate_of(model, lora=lora)
        if self.fresh and not lora:
            return 3 * rate, 3 * rate
        return rate, 3 * rate if self.task.kind == "encoder" and not lora else rate

    def _batches(self) -> Section:
        if not self.task.in_batch:
            reason = f"lists of a positive and {self.per_query} negatives, in random order: they do not meet in a batch"
            return {"method": "random", "size": LISTS, "reason": reason}
        queries = int(self.plan["trials"]["train_queries"])
        counts = np.minimum(self.whole.positives("train").counts, MAX_POSITIVES)
        rows = queries * float(counts.mean()) * self.per_query
        size = max((each for each in SIZES if rows / each >= STEPS), default=SIZES[0])
        method, why = "random", "at random: other methods embed all rows before each epoch, a third of the training"
        if self.static:
            method, why = "ngame", "batches of rows that are hard for each other, good with such a model"
        return {"method": method, "size": size, "reason": f"{why}; at least {STEPS} steps an epoch where rows allow"}

    @cached_property
    def collection(self) -> Collection:
        """What is searched and trained on."""
        trials = self.plan["trials"]
        part = with_queries(self.whole, {name: int(trials[f"{name}_queries"]) for name in ("train", "test")}, self.seed)
        return with_hard_documents(part, SPLITS, ("dev", "test"), int(trials["documents"]), self.seed, self.lexical)

    @cached_property
    def dev(self) -> Collection:
        """What trainings are measured on: queries of dev with so many documents or, of rerankers, pairs to score."""
        count = int(self.plan["trials"]["dev_documents"])
        part = replace(self.collection, qrels={"dev": self.collection.qrels["dev"]})
        if not self.task.in_batch:
            return with_queries(part, {"dev": max(1, count // self.task.depth)}, self.seed)
        part = with_queries(part, {"dev": DEV_QUERIES}, self.seed)
        return with_hard_documents(part, ("dev",), ("dev",), count, self.seed, self.lexical)

    # What is trained on.

    def decide(self) -> dict[str, Any]:
        """Decide what to train on; return what is said of the candidates, nothing where the plan says what to do."""
        if "negatives" in self.plan.sections:
            return {}
        if isinstance(self.task, RerankerTask):
            what = f"the documents that it is to order, the first {self.task.depth} of {self.task.first_stage}"
            reason = f"Each step draws {self.per_query} of {what}, that are not labelled relevant; in time it sees all."
            own = {"source": f"{self.task.mines} 0-{self.task.depth}", "per_query": self.per_query, "reason": reason}
            self.plan.sections["negatives"] = own
            return {}
        if not self.plan["trials"].get("ablation", True):
            reason = "In-batch negatives alone: a row without a mined one takes less time, and so few rows fit into it."
            self.plan.sections["negatives"] = self._pairs_alone(reason)
            return {}
        reason = "cheap ones, from easy to hard; the decision weighs how hard each is against how many are answers"
        sources = self.plan.decide("sources", lambda: {"names": list(SOURCES), "reason": reason})["names"]
        in_batch = int(self.plan["batches"]["size"]) - 1
        key = {**self.of, "sources": list(sources), "in_batch": in_batch, "seed": self.seed}
        decided = self.cache.facts("decision", key, lambda: self._decided(list(sources), in_batch))
        made = {"source": decided["source"], "per_query": self.per_query, "passes": 1, "reason": decided["reason"]}
        self.plan.sections["negatives"] = made if decided["source"] else self._pairs_alone(decided["reason"])
        return decided

    def _decided(self, names: list[str], in_batch: int) -> dict[str, Any]:
        collection, split = self.collection, "train"
        if int(self.plan["trials"]["train_queries"]) > SAMPLED:
            sampled, split = drawn_judgements(collection, "train", SAMPLED, self.seed), SAMPLE
            collection = replace(collection, qrels={**collection.qrels, SAMPLE: sampled})
        mined = {name: self.mined(name, collection, split) for name in names}
        tables = {name: table for name, table in mined.items() if table.keep.any()}
        belief = BeliefSettings(in_batch=in_batch, starts=self.task.init)
        made = decide(collection, tables, self.task.encoder, self.store, belief, split=split, seed=self.seed)
        table = made.table()
        shown = {"columns": list(table.columns), "rows": [list(map(str, row)) for row in table.rows]}
        reason = " ".join(made.sentences)
        return {"source": made.source or "", "reason": reason, "table": shown}

    def _pairs_alone(self, reason: str) -> Section:
        """The section without mined negatives; a static embedding goes over the pairs more often."""
        passes = self.per_query if self.static else 1
        again = f"An epoch goes {passes} times over the pairs: as many steps as with {passes} negatives each."
        reason = f"{reason} {again}" if passes > 1 else reason
        return {"source": "", "per_query": self.per_query, "passes": passes, "reason": reason}

    def mined(self, source: str, collection: Collection | None = None, split: str = "train") -> Negatives:
        """Return the negatives of one source: a method, and ranks counted from 0."""
        method, _, ranks = source.partition(" ")
        task, more = self.task, dict[str, Any](top=10 if self.task.in_batch else self.task.depth, split=split)
        if method == "dense":
            by = task.first_stage if isinstance(task, RerankerTask) and task.fuses else task.encoder
            more |= {"encoder": by, "vectors": self.store}
        if method == "random":
            more["seed"] = self.seed
        if method == BM25:
            more |= vars(self.lexical)
        if ranks:
            more["ranks"] = parsed_ranks(ranks)
        key = {**self.of, "source": source, "split": split, "seed": self.seed}
        return self.cache.negatives("mined", key, lambda: mine(collection or self.collection, method, **more))

    # Trainings.

    def train_once(
        self, rows: Section, learning_rate: float, epochs: int, queries: int, *, seconds: float | None = None,
        marks: Sequence[int] = (),
    ) -> Trial:  # fmt: skip
        """Train on the rows of a section [negatives] and measure, unless that was done.

        Args:
            rows: section [negatives].
            learning_rate: its peak.
            epochs: at most.
            queries: to train on.
            seconds: that it may take; None: all epochs, or the steps that `marks` name.
            marks: steps of a training that had a limit, to make again.
        """
        how = {"learning_rate": learning_rate, "epochs": epochs, "queries": queries}
        own = {name: self.given.get(name) for name in ("max_length", "lora", "seed")}
        key = {**self.of, **own, **how, "dev": self.dev.digest, "seconds": seconds, "marks": list(marks)}
        for name, section in (("rows", rows), ("batches", self.plan["batches"])):
            key[name] = {setting: value for setting, value in section.items() if setting != "reason"}
        place, checkpoints = (self.cache.path(f"{TEMPORARY}/{name}", key) for name in ("model", "training"))

        def make(seconds: float | None, marks: Sequence[int]) -> dict[str, Any]:
            timed = clock(seconds, marks) if seconds is not None or marks else None
            return self._trained(rows, how, place, checkpoints, timed)

        facts = self.cache.facts("trial", key, lambda: make(seconds, marks))
        shutil.rmtree(checkpoints, ignore_errors=True)
        trial = Trial(**{**facts, **{name: tuple(facts[name]) for name in ("per_query", "marks")}, "name": place.name})
        self._again[place.name] = lambda: make(None, trial.marks)
        self.trials.append(trial)
        what = f"{trial.steps:,} steps" if trial.marks else counted(epochs, "epochs")
        negatives = trial.source or "in-batch negatives alone"
        self.say(f"learning rate {learning_rate:g}, {what}, {queries:,} queries, {negatives}: {trial.dev:.4f} on dev")
        return trial

    @cached_property
    def _trainer(self) -> dict[str, Any]:
        """Arguments of the trainer: bfloat16 where the processor computes it natively, for less time a step."""
        model = self.task.load()
        fast = multiplies(model) and computes_bfloat16(model.device)
        return ({"bf16": True} if fast else {}) | ({"gradient_checkpointing": True} if self.given.get("lora") else {})

    def _trained(
        self, rows: Section, how: Mapping[str, Any], place: Path, checkpoints: Path, clock: Any
    ) -> dict[str, Any]:
        from foils.training.fit import save_model
        from foils.training.results import Trained
        from foils.training.settings import TrainSettings

        begin, task, batches = time.monotonic(), self.task, self.plan["batches"]
        collection = with_queries(self.collection, {"train": int(how["queries"])}, self.seed)
        negatives, lora = self.mined(str(rows["source"])) if rows["source"] else None, self.given.get("lora")
        count = int(rows["per_query"])
        per_query, drawn = (count, None) if task.in_batch else (None, count)
        data = task.rows(collection, negatives, per_query=per_query, max_positives=MAX_POSITIVES)
        settings = TrainSettings(
            learning_rate=how["learning_rate"],
            epochs=int(how["epochs"]) * int(rows.get("passes", 1)),
            batch_size=int(batches["size"]),
            max_length=self.given.get("max_length"),
            lora=lora,
            draw_negatives=drawn,
            trainer={"save_steps": CHECKPOINT_STEPS, **self._trainer},
            seed=self.seed,
        )
        run = task.train(data, checkpoints, settings, batches["method"], callbacks=[clock] if clock else [])
        values = self.on_dev(run.model)
        dev = float(np.mean(values))
        described = {"model": task.model, "batches": batches["method"], "negatives": rows["source"]}
        history = provenance("tune", {**described, **settings.describe()}, inputs=self.of, seed=self.seed)
        save_model(Trained(run.model, place, run, history, data.counts, {f"{MEASURE} on dev": dev}))
        spent = {"marks": clock.marks, "whole": clock.whole} if clock else {}
        return {**how, "dev": dev, "per_query": values, "steps": run.steps, "rows": len(data),
                "seconds": time.monotonic() - begin, "source": str(rows["source"]), "marks": [], **spent}  # fmt: skip

    def on_dev(self, model: Any) -> list[float]:
        """Return the measure of each query of dev by a loaded model; None: the first stage's."""
        return [float(each) for each in on_split(self.task.ranked(self.dev, "dev", model), self.dev, "dev")]

    @cached_property
    def base_dev(self) -> float:
        """What the model as it is, or the first stage, has on dev."""
        key = {**self.of, "dev": self.dev.digest}
        facts = self.cache.facts("base", key, lambda: {"v": self.on_dev(None if self.fresh else self.task.load())})
        return float(np.mean(facts["v"]))

    def keep_models(self, *trials: Trial) -> None:
        """Remove the models of all other trials; what they measured stays."""
        for each in self.trials:
            if each not in trials:
                shutil.rmtree(self.cache.folder / TEMPORARY / each.name, ignore_errors=True)

    def train(self, decided: Mapping[str, Any]) -> Trial | None:
        """Choose learning rate and epochs on dev, and train; return the training, None where none beats the base."""
        base, trials, rows = self.base_dev, self.plan["trials"], self.plan["negatives"]
        self.say(f"{self.base} has {base:.4f} on dev")
        if "training" in self.plan.sections:
            section = self.plan["training"]
            if not section["epochs"]:
                return None
            queries = int(section.get("queries", self.plan["trials"]["train_queries"]))
            rate, epochs = float(section["learning_rate"]), int(section["epochs"])
            return self.train_once(rows, rate, epochs, queries, marks=section.get("steps", ()))
        ablates = bool(decided and rows["source"] and self.task.in_batch)
        best = self._search(rows, trials, ablates)
        best = self._ablated(best) if ablates else best
        runs, better = counted(len(self.trials), "runs"), best.dev > base
        reason = f"the best of {runs} on dev: {best.dev:.4f}, and {base:.4f} before"
        if not better and self.fresh:  # what a reranker gets wrong, its first stage may get right
            better = bool(self.plan.decide("retriever", lambda: self._fusion(best))["advised"])
            reason += "; together with the first stage it is better"
        if not better:
            self.plan.sections.pop("retriever", None)
            reason = f"none: the best of {runs} has {best.dev:.4f} on dev, and {self.base} {base:.4f}"
        made = {"learning_rate": best.learning_rate, "epochs": best.epochs if better else 0, "queries": best.queries}
        steps = {"steps": list(best.marks)} if best.marks else {}
        self.plan.sections["training"] = {**made, **steps, "reason": reason}
        return best if better else None

    def left(self) -> float | None:
        """Return the seconds of training that are left; None: there is no limit."""
        seconds = self.plan["trials"].get("seconds")
        return None if seconds is None else max(0.0, float(seconds) - sum(each.seconds for each in self.trials))

    def _search(self, rows: Section, trials: Section, ablates: bool) -> Trial:
        """The short runs by successive halving, and a last one if needed."""
        total, last = trials.get("seconds"), int(trials["final_epochs"])
        short = SHORT_RUN["encoder" if self.task.in_batch else "reranker"]
        share = 1.0 if len(trials["learning_rates"]) == 1 and not last else short
        seconds, queries = total and share * float(total), self._fitting(int(trials["queries"]), share)

        def run(rate: float, epochs: int) -> Trial:
            trial = self.train_once(rows, rate, epochs, queries, seconds=seconds)
            self.keep_models(max(self.trials, key=lambda each: each.order))
            return trial

        best = halving(
            run,
            [float(each) for each in trials["learning_rates"]],
            [int(each) for each in trials["epochs"]],
            goes_on=lambda: total is None or (self.trials[-1].whole and (self.left() or 0) > float(total) / 2),
        )
        if not last or (total is not None and best.whole):
            return best
        self.keep_models(best)
        left = self.left()
        seconds = None if left is None else left / 2 if ablates else left
        share = seconds / float(total) if seconds and total else 1.0  # 0: embedding took all of the time
        queries = self._fitting(int(trials["train_queries"]), share)
        longest = self.train_once(rows, best.learning_rate, last, queries, seconds=seconds)
        best = best if best.dev > longest.dev else longest  # a busy machine may have left it a few steps
        self.keep_models(best)
        return best

    def _fitting(self, queries: int, share: float) -> int:
        """Return as many queries as may fit into a share of the time: the rows of more would be prepared in vain."""
        may_fit = self.plan["trials"].get("may_fit")
        return queries if may_fit is None else min(queries, max(LEAST_QUERIES, int(share * float(may_fit))))

    def _ablated(self, best: Trial) -> Trial:
        """Make the best run without mined negatives, too; take it where it is surely better on dev."""
        rows, alone = self.plan["negatives"], self._pairs_alone("It is taken.")
        trial = self.train_once(alone, best.learning_rate, best.epochs, best.queries, seconds=self.left())
        gain = np.asarray(trial.per_query) - np.asarray(best.per_query)
        test = paired_test(trial.per_query, best.per_query)
        wins = surely_better(test)
        ends = bootstrap_interval(gain, rng=np.random.default_rng(self.seed))
        verdict = "is better" if wins else "shows no difference" if test.p_randomised >= LEVEL else "is worse"
        reason = (
            f"{rows['reason']} The same training with in-batch negatives alone {verdict} "
            f"({with_ends(gain.mean(), *ends)} on {len(gain):,} queries of dev, p {test.p_randomised:.2g})."
        )
        self.plan.sections["negatives"] = {**rows, "reason": reason}
        if wins:
            best, self.plan.sections["negatives"] = trial, {**alone, "reason": f"{reason} {alone['reason']}"}
        self.keep_models(best)
        return best

    def folder(self, trial: Trial) -> Path:
        """Return the folder of a trial's model; what is gone is made again."""
        place = self.cache.folder / TEMPORARY / trial.name
        if not place.is_dir():
            self._again[trial.name]()
        return place

    # The proof.

    def _ranked(self, final: Trial | None, collection: Collection, split: str = "test") -> Run:
        """The ranking of a split by the final model; None: by the base."""
        task, key = self.task, {**self.of, "part": collection.measured_digest, "split": split, "depth": self.task.depth}
        key["trial"] = final.name if final else None

        def make() -> Run:
            if final is None and (task.in_batch or self.fresh):
                return task.ranked(collection, split)
            store = VectorStore(self.cache.folder / TEMPORARY / "vectors") if final else None
            return task.ranked(collection, split, task.load(self.folder(final) if final else None), store=store)

        name = TUNED if final else self.label
        return replace(self.cache.run(name.replace(" ", "-"), key, make), name=name)

    def _partner(self, part: Collection, split: str) -> Run:
        """What the model is put together with: BM25 or, of a reranker, the order that it reranks."""
        task = self.task
        if isinstance(task, EncoderTask):
            return bm25_run(part, split, depth=task.depth, lexical=self.lexical)
        return task.ranked(part, split)

    def _fusion(self, model: Trial | None) -> Section:
        """Choose on dev how the partner and the tuned model, or the base, are weighed together."""
        part = self.collection if self.task.in_batch else self.dev
        run, partner = self._ranked(model, part, "dev"), self._partner(part, "dev")
        if not len(partner.table):
            return {"weight": 1.0, "advised": False, "reason": "BM25 finds no document for any query"}
        values = {each: on_split(fuse_runs([partner, run], **Fusion("z", each).how), part, "dev") for each in WEIGHTS}
        weight = weight_within_an_error(values)
        other = BM25 if self.task.in_batch else FIRST_STAGE
        alone = {self.base if model is None else "the tuned model": run, other: partner}
        means = {name: float(on_split(each, part, "dev").mean()) for name, each in alone.items()}
        shown, both = ", ".join(f"{name} {value:.4f}" for name, value in means.items()), float(values[weight].mean())
        advised = both > max(means.values())
        what = "both together are best on dev" if advised else "both together are no better than one on dev"
        reason = f"{what}: {both:.4f}, {shown}; the most even of the weights within a standard error of the best"
        return {"weight": weight, "advised": advised, "reason": reason}

    def run(self) -> Any:
        """Do all that is not done, and write what comes out of it."""
        self.schedule()
        decided, collection, task = self.decide(), self.collection, self.task
        self.say(f"negatives: {self.plan['negatives'].get('reason', 'as the plan says')}")
        trial, base = self.train(decided), self._ranked(None, collection)
        runs, half = [base], None  # half: what is put together with BM25, the tuned model or, by None, the base
        if trial is not None:
            runs.append(self._ranked(trial, collection))
            before, after = (on_split(run, collection, "test") for run in runs)
            half = trial if surely_better(paired_test(after, before)) or not task.in_batch else None
        lexical = bm25_run(collection, "test", depth=task.depth, lexical=self.lexical)
        found = len(lexical.table) > 0
        if isinstance(task, RerankerTask) and task.first_stage != BM25:
            stage = replace(task.ranked(collection, "test"), name=FIRST_STAGE)
            runs += [] if self.fresh else [stage]
            if found and not task.fuses:
                runs.append(fuse_runs([lexical, stage], name=FUSED_STAGE, **Fusion("z", 0.5).how))
        if found and not (isinstance(task, RerankerTask) and self.fresh and task.first_stage == BM25):
            runs.append(lexical)
        if half is not None or task.in_batch:
            weight = float(self.plan.decide("retriever", lambda: self._fusion(half))["weight"])
            if found or not task.in_batch:
                model, name = (base, f"{BM25} + {self.label}") if half is None else (runs[1], BOTH)
                name, partner = (name, lexical) if task.in_batch else (RERANKED, self._partner(collection, "test"))
                runs.append(fuse_runs([partner, model], name=name, **Fusion("z", weight).how))
        self.say("measured on test")
        self.plan.write(self.output / PLAN)
        if source := str(self.plan["negatives"]["source"]):
            self.mined(source).write(self.output / "negatives.parquet")
        names = [run.name for run in runs]
        stages = (self.label, BM25, FIRST_STAGE, FUSED_STAGE, TUNED)
        against = [name for name in dict.fromkeys(stages) if name in names[:-1]] if len(runs) > 1 else None
        how: dict[str, Any] = {"rng": np.random.default_rng(self.seed), "measures": task.measures, "against": against}
        made = Tuned(
            self.output, collection, self.plan, evaluate_runs(collection, runs, **how), self.base, trial, self.base_dev,
            tuple(self.trials), decided, tuple(self.warnings),
        )  # fmt: skip
        if trial is not None and made.better:
            key = {"trial": trial.name, "sentence": made.sentence}
            self.cache.facts("written", key, lambda: self._write(trial, made))
        if made.better or made.deploys == "both":
            name = "" if made.better else task.model
            place = str(Path(name).resolve()) if name and Path(name).is_dir() else name
            deploys = made.deploys if task.in_batch or made.deploys == "both" else "model"
            named = named_collection(self.whole, self.plan["given"], self.output)
            Fusion("z", weight, deploys, place, self.lexical.facts, named).write(self.output / TUNED_FILE)
        return made

    def _write(self, final: Trial, tuned: Any) -> dict[str, Any]:
        """Write the model, the proof and the warnings at the end of its card."""
        from foils.training.fit import add_to_card

        proof = [tuned.sentence.partition(" The model is in")[0], *(f"- {each}" for each in tuned.warnings)]
        with fill_folder(self.output / "model") as aside:
            shutil.copytree(self.folder(final), aside, dirs_exist_ok=True)
            add_to_card(aside, "\n\n".join(["## Measured with foils tune", *proof]) + "\n")
        return {"model": "model"}

    def tidy(self) -> None:
        """Remove what is big and no longer needed: models, checkpoints and vectors of the short runs."""
        shutil.rmtree(self.cache.folder / TEMPORARY, ignore_errors=True)

    def say(self, message: str) -> None:
        """Tell how far it is."""
        spent = time.monotonic() - self.begun
        log.info("tune, after %s: %s", f"{spent:.0f} s" if spent < 90 else f"{spent / 60:.0f} min", message)


def on_split(run: Run, collection: Collection, split: str) -> npt.NDArray[np.float64]:
    """Return the measure of each query of a split."""
    return np.asarray(measure_run(run, collection, split, (MEASURE,)).per_query[MEASURE])
