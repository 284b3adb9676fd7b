"""A tuning from end to end: how much is searched, what is tried, what dev takes of it, and what test says."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.data.collection import SPLITS
from foils.data.description import drawn_judgements
from foils.data.records import read_sealed
from foils.data.run import TUNED_FILE, Fusion, fuse_runs
from foils.data.tables import provenance, read_table, write_table
from foils.data.tokens import BM25Settings
from foils.deciding import BeliefSettings, decide
from foils.deciding.decision import mine
from foils.encode import SentenceEncoder, VectorStore
from foils.encode.models import is_static
from foils.encode.vectors import computes_bfloat16
from foils.evaluation import bm25_run, evaluate_runs, measure_run
from foils.experiments.plan import (
    HARD,
    MOST_TRAINED,
    Plan,
    Section,
    extent,
    resembling,
    seconds_a_row,
    with_queries,
)
from foils.experiments.tasks import BM25, EXACT, FIRST_STAGE, EncoderTask, RerankerTask, Task
from foils.experiments.tuned import (
    AGAIN,
    BASE,
    MEASURE,
    SHARES,
    TUNED,
    Candidate,
    Floats,
    Setting,
    Tuned,
    around,
    averaged,
    errors_needed,
    plainest,
    search,
    standard_error,
)
from foils.mining.methods import parsed_ranks
from foils.runtime import progress
from foils.runtime.errors import require
from foils.runtime.files import DAMAGE, cache_place, digest_of, discard, fill_folder, write_json, write_sealed
from foils.runtime.results import counted
from foils.searching.doors import named_collection

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.settings import TrainSettings

Value = TypeVar("Value")
TEMPORARY = "checkpoints"  # folder of what is removed at the end: models of short runs, their checkpoints
PAGE = "report.html"
CHECKPOINT_STEPS = 200
SAMPLED, SAMPLE = 2_000, "train, sampled"  # queries mined for the decision, and the name of their split
SOURCES = ("random", "bm25", "dense", "dense 10-20", "dense 20-30", "dense 50-60")
WEIGHTS = tuple(round(0.1 * step, 1) for step in range(1, 10))  # of the model beside BM25
DEPTH = 10  # of the measure
MOST_TRAININGS, MOST_EPOCHS = 16, 10  # that are tried; of the longest of them
DECISION_SHARE = 0.2  # of the time that is left before negatives are mined
PLAIN_SHARE = 0.8  # of the time that is left, which the plain training may take
LEAST_STEPS, SHORT = 100, 128  # of it, and tokens that its texts are cut to first, where time is short
TIMED_STEPS, TIMED_ROWS, SLOW = 6, 16, 1e-6  # that time it; rows of a transformer's batch; learning rate
NEW_HEAD = 3.0  # times the usual learning rate: that of a head which nobody trained

log = logging.getLogger(__name__)


def kept(path: Path, read: Callable[[Path], Value], write: Callable[[Path], object]) -> Value:
    """Return what a finished step wrote; where it is not there, or damaged, write it first."""
    if path.exists():
        try:
            return read(path)
        except DAMAGE as error:
            discard(path, "step", error)
    write(path)
    return read(path)


@dataclass
class Tuning:
    """One tuning at work.

    Attributes:
        whole: the collection, with three splits.
        plan: what is given, and decisions that are there already; the others are added.
        output: folder; finished steps are written down in it, so that a tuning that goes on decides the same.
        device: torch device.
        spent: seconds that its steps took, also those of before it was stopped.
    """

    whole: Collection
    plan: Plan
    output: Path
    device: str | None = None
    spent: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given, self.seed = self.plan["given"], self.plan["given"]["seed"]
        self.work, self.store = self.output / "work", VectorStore(cache_place("vectors"))
        model, first = str(self.given["model"]), str(self.given.get("first_stage") or BM25)
        how = (model, self.device, bool(self.given.get("trust_remote_code")), self.store)
        self.lexical = BM25Settings().over(self.given.get("bm25") or {}).resolved(self.whole)
        self.task: Task = RerankerTask(*how, first, self.lexical) if self.given.get("reranker") else EncoderTask(*how)
        # A reranker whose head nobody trained has to beat the first stage's own order.
        self.fresh = not self.task.in_batch and self.task.init == "nothing"
        self.label, self.base = (FIRST_STAGE, f"the order of {first}") if self.fresh else (BASE, model)
        self.limit = 60 * self.given["minutes"] if self.given.get("minutes") else np.inf

    @cached_property
    def of(self) -> dict[str, str]:
        """Digests of what every step begins with."""
        stage = {"first_stage": self.task.ranked_by} if isinstance(self.task, RerankerTask) else {}
        what = {"collection": self.collection.measured_digest, "model": self.task.fingerprint}
        return {**what, **stage, "bm25": str(self.lexical.facts)}

    def path(self, name: str, key: object, ending: str = "") -> Path:
        """Return where a step's result lies: the same name and key, the same place."""
        return self.work / f"{name}-{digest_of(key)}{ending}"

    def timed(self, name: str, key: object, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what a step gives, done once, and count the seconds that it took when it was done."""

        def write(path: Path) -> None:
            begin = time.monotonic()
            write_sealed(path, {**make(), "seconds": time.monotonic() - begin})

        facts = kept(self.path(name, key, ".json"), read_sealed, write)
        self.spent += float(facts.pop("seconds"))
        return facts

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.limit - self.spent

    # How much is searched, and the plain training.

    def schedule(self) -> None:
        """Decide what is searched, how the plain training is done, and what else may be tried."""
        key = {"collection": self.whole.digest, **self.given}
        measured = partial(extent, self.task, self.whole, seed=self.seed, seconds=self.left)
        with progress.reporting(progress.silent):
            data = self.plan.decide("data", lambda: self.timed("data", key, measured))
            self.plan.decide("recipe", lambda: self.timed("recipe", {**key, **data}, self._recipe))
        self.plan.decide("search", self._searched)

    def _recipe(self) -> Section:
        """Decide how to train plainly: as by `foils train`, or the most of that there is time for."""
        from foils.training.models import plain_recipe, transformer_of
        from foils.training.settings import OPEN

        model, rows, lora = self.task.load(), len(self.pairs), self.given.get("lora")
        if lora is not None:
            require("peft", "lora")
            transformer_of(model, "lora")
        plain = plain_recipe(rows, model, replace(OPEN, lora=lora))
        steps, size = plain.steps_of(rows), plain.batch_size
        length = self.pairs.length_for(model, self.given.get("max_length"))
        usual, late = (steps, length.tokens), ""
        if self.limit < np.inf:
            data = self.plan["data"]
            reading = data.get("seconds_a_text", 0.0) * data["documents"]
            room = PLAIN_SHARE * (self.left - 2 * reading * self.task.in_batch)  # two models read all
            seconds = self._seconds_a_step(model, size, length.tokens)
            shortens = (length.tokens or 0) > SHORT and self.given.get("max_length") is None
            if steps * seconds > room and shortens:
                length = self.pairs.length_for(model, SHORT)
                seconds = self._seconds_a_step(model, size, length.tokens)
            steps = min(steps, max(LEAST_STEPS, int(room / seconds)))
            if steps * seconds > self.left:
                late = f"; it takes about {steps * seconds / 60:.1f} minutes, more than is left, "
                late += "and is finished all the same"
        plain = plain_recipe(rows, model, replace(OPEN, lora=lora, steps=steps))
        rate = float(plain.learning_rate or 0) * (NEW_HEAD if self.fresh and lora is None else 1)
        explained = f"what foils train does by default with {rows:,} rows"
        if (steps, length.tokens) != usual:
            explained = f"what there is time for: by default foils train takes {usual[0]:,} with {rows:,} rows"
        reason = f"{steps:,} steps at {rate:.2g}, {explained}"
        if length.tokens is not None:
            reason += f"; texts are cut after {length.tokens} tokens in training, {length.cut:.1%} of them"
        numbers = {"learning_rate": rate, "steps": steps, "batch_size": size, "max_length": length.tokens}
        return {**numbers, "reason": reason + late}

    def _seconds_a_step(self, model: Any, size: int, length: int | None) -> float:
        """Seconds of a step of the plain training: an encoder's timed, a reranker's from those of a pair."""
        if not self.task.in_batch:
            text = self.plan["data"].get("seconds_a_text", 0.0)
            return size * seconds_a_row(self.task, text) / MOST_TRAINED
        from foils.training.fit import StepTimes

        few = TIMED_ROWS if model.device.type == "cpu" and not is_static(model) else size
        rows, times = min(size, few), StepTimes()
        left_out = np.random.default_rng(self.seed).permutation(len(self.pairs)) >= 4 * rows * TIMED_STEPS
        some = self.pairs.without(left_out, reason="not timed")
        with tempfile.TemporaryDirectory() as place:
            settings = self._settings(SLOW, TIMED_STEPS, rows, length)
            self.task.train(some, Path(place), settings, "random", callbacks=[times])
        return float(np.median(np.diff(times.begins[1:]))) * size / rows  # the first step warms up

    @cached_property
    def drawn(self) -> Collection:
        """The collection with the queries that are trained on, chosen on and reported on."""
        counts = {name: self.plan["data"][f"{name}_queries"] for name in SPLITS}
        return with_queries(self.whole, counts, self.seed)

    @cached_property
    def pairs(self) -> TrainingSet:
        """The pairs that are trained on."""
        return self.task.rows(self.drawn, None)

    def _searched(self) -> Section:
        plain = self.plan["recipe"]
        epochs = MOST_EPOCHS * -(-len(self.pairs) // plain["batch_size"])
        negatives = ", mined negatives, 1, 4 or 7 of a query" if self.task.in_batch else ""
        reason = (
            "while dev rises and time is left: twice the steps, three times the learning rate, a third of it"
            f"{negatives}; then parts of the way back to the base, and the mean of the best weights. Another "
            "than the plain training is taken where dev has it better by more than a standard error, by more still "
            "of several"
        )
        return {"trainings": MOST_TRAININGS, "most_steps": max(epochs, 4 * plain["steps"]), "reason": reason}

    @cached_property
    def collection(self) -> Collection:
        """What is searched and trained on."""
        whole, documents = self.drawn, self.plan["data"]["documents"]
        if documents >= len(whole.documents):
            return whole
        ranked = [bm25_run(whole, split, depth=HARD, lexical=self.lexical) for split in ("dev", "test")]
        return resembling(whole, SPLITS, ranked, documents, self.seed, bound=True)

    @cached_property
    def dev(self) -> Collection:
        """What models are chosen on: queries of dev among documents that are hard for BM25 and the base."""
        part, count = self.collection, self.plan["data"]["dev_documents"]
        chosen_on = {"dev": part.qrels["dev"]}
        if self.task.in_batch and count < len(part.documents):
            ranked = []
            for split in ("dev", "test"):
                ranked.append(bm25_run(part, split, depth=HARD, lexical=self.lexical))
                ranked.append(self.task.ranked(part, split, depth=HARD))
            part = resembling(part, ("dev",), ranked, count, self.seed)
        return replace(part, qrels=chosen_on)

    # What is trained on.

    def source(self) -> str:
        """Return the negatives that may be trained on, decided when they are first asked for; empty: none."""
        return str(self.plan.decide("negatives", self._negatives)["source"])

    def _negatives(self) -> Section:
        if isinstance(self.task, RerankerTask):
            what = f"the documents that it is to order, the first {self.task.depth} of {self.task.first_stage}"
            reason = f"each step draws {self.task.drawn} of {what}, that are not labelled relevant; in time it sees all"
            return {"source": f"{self.task.mines} 0-{self.task.depth}", "reason": reason}
        if self.left < DECISION_SHARE * self.limit < np.inf:
            return {"source": "", "reason": "none: there is no time left to mine and to train on them"}
        belief = BeliefSettings(in_batch=self.plan["recipe"]["batch_size"] - 1, starts=self.task.init)
        key = {**self.of, "sources": list(SOURCES), "in_batch": belief.in_batch, "seed": self.seed}
        return self.timed("decision", key, lambda: self._decided(belief))

    def _decided(self, belief: BeliefSettings) -> dict[str, Any]:
        collection, split = self.collection, "train"
        if self.plan["data"]["train_queries"] > SAMPLED:
            sampled, split = drawn_judgements(collection, "train", SAMPLED, self.seed), SAMPLE
            collection = replace(collection, qrels={**collection.qrels, SAMPLE: sampled})
        mined = {name: self.mined(name, collection, split) for name in SOURCES}
        tables = {name: table for name, table in mined.items() if table.keep.any()}
        decision = decide(collection, tables, self.task.encoder, self.store, belief, split=split, seed=self.seed)
        return {"source": decision.source or "", "reason": " ".join(decision.sentences)}

    def mined(self, source: str, collection: Collection | None = None, split: str = "train") -> Negatives:
        """Return the negatives of one source: a method, and ranks counted from 0."""
        method, _, ranks = source.partition(" ")
        task, more = self.task, dict[str, Any](top=10 if self.task.in_batch else self.task.depth, split=split)
        key = {**self.of, "source": source, "split": split, "seed": self.seed}
        if method == "dense":
            more |= {"encoder": task.encoder, "vectors": self.store}
        elif method == AGAIN:
            plain = self.folder((self.plain,))
            more |= {"encoder": SentenceEncoder(task.load(plain), EXACT), "vectors": self.vectors}
            key["recipe"] = plain.name
        elif method == BM25:
            more |= vars(self.lexical)
        else:
            more["seed"] = self.seed
        if ranks:
            more["ranks"] = parsed_ranks(ranks)
        by_method = "dense" if method == AGAIN else method

        def write(path: Path) -> None:
            mine(collection or self.collection, by_method, **more).write(path)

        return kept(self.path("mined", key, ".parquet"), Negatives.read, write)

    # Trainings.

    @property
    def plain(self) -> Setting:
        """The plain training."""
        recipe, source, drawn = self.plan["recipe"], "", 0
        if isinstance(self.task, RerankerTask):
            source, drawn = self.source(), self.task.drawn
        return Setting(recipe["learning_rate"], recipe["steps"], source, drawn)

    @property
    def vectors(self) -> VectorStore:
        """Of models that are removed at the end."""
        return VectorStore(self.work / TEMPORARY / "vectors")

    def _key(self, setting: Setting) -> dict[str, Any]:
        given = {name: self.given.get(name) for name in ("lora", "seed")}
        recipe = {name: self.plan["recipe"].get(name) for name in ("batch_size", "max_length")}
        queries = self.plan["data"]["train_queries"]
        key = {**self.of, **given, **recipe, "queries": queries, "setting": asdict(setting)}
        return {**key, "plain": asdict(self.plain)} if setting.source.startswith(AGAIN) else key

    def _made_of(self, members: Sequence[Setting], share: float) -> dict[str, Any]:
        return {"members": [self._key(each) for each in members], "share": share}

    def place(self, members: Sequence[Setting], share: float = 1.0) -> Path:
        """Return where a trained model lies, or the mean of several and the base, once it is made."""
        return self.path(f"{TEMPORARY}/model", self._made_of(members, share))

    def folder(self, members: Sequence[Setting], share: float = 1.0) -> Path:
        """Return the folder of a model, which is trained or merged if need be."""
        place = self.place(members, share)
        if not place.is_dir():
            if len(members) == 1 and share == 1:
                self._train(members[0], place)
            else:
                self._merge(members, share, place)
        return place

    def _train(self, setting: Setting, place: Path) -> None:
        from foils.training.fit import save_model
        from foils.training.settings import Trained

        task, recipe = self.task, self.plan["recipe"]
        negatives = self.mined(setting.source) if setting.source else None
        drawn, per_query = (None, setting.per_query) if task.in_batch else (setting.per_query, None)
        data = task.rows(self.collection, negatives, per_query=per_query)
        rows = recipe["batch_size"], recipe.get("max_length")
        settings = self._settings(setting.learning_rate, setting.steps, *rows, drawn)
        checkpoints = place.with_name(place.name.replace("model", "training", 1))
        run = task.train(data, checkpoints, settings, setting.batches)
        described = {"model": task.model, "batches": setting.batches, "negatives": setting.source}
        history = provenance("tune", {**described, **settings.describe()}, inputs=self.of, seed=self.seed)
        save_model(Trained(run.model, place, run, history, data.counts, {}))
        shutil.rmtree(checkpoints, ignore_errors=True)

    def _settings(
        self, rate: float, steps: int, size: int, length: int | None, drawn: int | None = None
    ) -> TrainSettings:
        """How a model is trained; transformers in bfloat16 where the device computes it."""
        from foils.training.settings import TrainSettings

        model, lora = self.task.load(), self.given.get("lora")
        trainer: dict[str, Any] = {"save_steps": CHECKPOINT_STEPS}
        trainer |= {"bf16": True} if not is_static(model) and computes_bfloat16(model.device) else {}
        trainer |= {"gradient_checkpointing": True} if lora else {}
        how: dict[str, Any] = {"lora": lora, "draw_negatives": drawn, "trainer": trainer, "seed": self.seed}
        return TrainSettings(learning_rate=rate, steps=steps, batch_size=size, max_length=length, **how)

    def _merge(self, members: Sequence[Setting], share: float, place: Path) -> None:
        from foils.encode.models import seal_weights
        from foils.training.models import merged

        folders = [self.folder((each,)) for each in members]
        model = self.task.load(folders[0])
        for count, folder in enumerate(folders[1:], 2):
            model = merged(model, self.task.load(folder), 1 / count)
        if share < 1:
            model = merged(self.task.load(), model, share)
        with fill_folder(place) as aside:
            model.save_pretrained(str(aside))
            seal_weights(aside)

    def loaded(self, members: Sequence[Setting], share: float) -> Any:
        """Return a model, made if need be; None for the base of an encoder, or a first stage's own order."""
        if members:
            return self.task.load(self.folder(members, share))
        return None if self.task.in_batch or self.fresh else self.task.load()

    def measured(self, members: tuple[Setting, ...], share: float = 1.0) -> Candidate:
        """Make a model, unless that was done, and measure it on dev."""
        key = {**self.of, "dev": self.dev.digest, **self._made_of(members, share)}

        def make() -> dict[str, Any]:
            begin, model = time.monotonic(), self.loaded(members, share)
            trained = time.monotonic()
            values = on_split(self.task.ranked(self.dev, "dev", model, depth=DEPTH), self.dev, "dev")
            return {"values": values.tolist(), "training": trained - begin, "measuring": time.monotonic() - trained}

        facts = self.timed("trial", key, make)
        took = facts["training"], facts["measuring"]
        candidate = Candidate(members, share, np.asarray(facts["values"]), *took)
        self.say(f"{candidate}: {candidate.mean:.4f} on dev")
        return candidate

    def explore(self) -> tuple[list[Candidate], Candidate]:
        """Try trainings, then shares of the best with the base, and a mean; return all and what is taken.

        What is taken in the place of the plain training has to be told apart from it on dev, and
        the base is kept unless that is told apart from the base.
        """
        self.timed("dev", self.of, lambda: {"digest": self.dev.digest})
        base = self.measured((), 0.0)

        def run(setting: Setting, before: list[Candidate]) -> Candidate | None:
            if before and self._seconds(setting, before[0]) > self.left:
                return None
            trial = self.measured((setting,))
            self._forget([*before, trial])
            return trial

        trials = search(self.plain, run, self._near, self.plan["search"]["trainings"])
        if len(trials) == 1 and self.left <= 0:
            spent = f"{self.spent / 60:.1f} minutes were spent when the plain training was measured"
            self.warnings.append(f"{spent}, all that was given: nothing else was tried")
        others = len(trials) + len(SHARES)  # beside the plain one, the mean of weights among them
        plain = self._plainest(trials, others)
        candidates, mean = [plain], averaged(trials)
        ways = [] if self.fresh else [(plain.members, share) for share in SHARES]
        ways += [(mean, 1.0)] if len(mean) > 1 else []
        for members, share in ways:
            if self.left > 2 * plain.measuring:
                candidates.append(self.measured(members, share))
        taken = self._plainest(candidates, others)
        tried = [base, *trials, *candidates[1:]]
        reason = f"of {counted(len(tried) - 1, 'models')} tried, {taken.mean:.4f} on dev, the base {base.mean:.4f}"
        if not self._improves(base, taken):
            kept_for = f"none is surely better on dev than the base, which has {base.mean:.4f}"
            reason, taken = f"{kept_for}: the best has {taken.mean:.4f}", base
        listed = {"members": [asdict(each) for each in taken.members], "share": taken.share}
        self.plan.sections["training"] = {**listed, "reason": reason}
        return tried, taken

    def _plainest(self, candidates: Sequence[Candidate], others: int) -> Candidate:
        """The candidate that dev takes, the plainest first."""
        values = [each.values for each in candidates]
        return candidates[plainest(values, errors_needed(len(values[0]), others))]

    def _improves(self, base: Candidate, taken: Candidate) -> bool:
        """Whether dev tells a model apart from the base or, of rerankers, it and the first stage together."""
        ways = [base.values, taken.values]
        if not self.task.in_batch:
            ways.append(self._fused(taken)[1])
        return plainest(ways) > 0

    def _seconds(self, setting: Setting, plain: Candidate) -> float:
        """Seconds that a training and what follows it may take, by those of the plain one."""
        steps = plain.seconds * setting.steps / plain.members[0].steps
        if setting.source and self.task.in_batch:
            steps *= 1.5  # a third text in each row
        if setting.batches != "random":
            steps *= 1.5  # rows are embedded before each epoch
        return steps + (4 if setting.source.startswith(AGAIN) else 3) * plain.measuring  # of dev, of test

    def _near(self, setting: Setting) -> Iterable[Setting]:
        """The settings around one; the source of negatives is decided after the plain training."""
        most = self.plan["search"]["most_steps"]
        if not self.task.in_batch:
            return around(setting, most_steps=most)
        batches = ("ngame",) if self.task.kind == "static embedding" else ()
        return around(setting, most_steps=most, source=self.source(), batches=batches)

    def _forget(self, trials: Sequence[Candidate]) -> None:
        """Remove models but the plain one and those that may enter the mean of weights; measures stay."""
        best = {*averaged(trials), *self._plainest(trials, len(trials)).members, self.plain}
        for each in trials:
            if each.members[0] not in best:
                shutil.rmtree(self.place(each.members), ignore_errors=True)

    # What is deployed.

    def ranked(self, model: Candidate, part: Collection, split: str) -> Run:
        """Return the ranking of a split by the model that is taken, or by the base."""
        task, name = self.task, TUNED if model.members else self.label
        key = {**self.of, "part": part.measured_digest, "split": split, "depth": task.depth}
        key |= self._made_of(model.members, model.share)

        def write(path: Path) -> None:
            loaded = self.loaded(model.members, model.share)
            write_table(path, task.ranked(part, split, loaded, store=self.vectors).table, {})

        return Run(kept(self.path(name.replace(" ", "-"), key, ".parquet"), read_table, write)[0], name)

    def systems(self, model: Candidate, part: Collection, split: str) -> list[Run]:
        """Return the ranking of the model after that of its partner: BM25 or, of rerankers, what they rerank."""
        ranked = self.ranked(model, part, split)
        if isinstance(self.task, EncoderTask):
            partner = bm25_run(part, split, depth=self.task.depth, lexical=self.lexical)
        else:
            partner = replace(self.task.ranked(part, split), name=FIRST_STAGE)
        return [partner, ranked] if partner.name != ranked.name and len(partner.table) else [ranked]

    def _fused(self, model: Candidate) -> tuple[float, Floats]:
        """The weight of the model beside its partner, and what both have on dev.

        Of the weights that are not told apart from the best it is the nearest to a half: few
        queries tell weights apart badly, and a model may be worse on dev than on queries to come
        (benchmarks/evidence/fused.py compares the rule).
        """
        runs = self.systems(model, self.dev, "dev")
        values = {each: on_split(together(runs, each), self.dev, "dev") for each in WEIGHTS}
        even = sorted(WEIGHTS, key=lambda each: (round(abs(each - 0.5), 9), -values[each].mean()))
        weight = even[plainest([values[each] for each in even])]
        return weight, values[weight]

    def deploy(self, taken: Candidate) -> Section:
        """Choose on dev what is deployed, and the model's weight beside its partner: section [retriever].

        Of BM25, the model and both, or the first stage, the reranker and both, it is the first that
        the best one is not told apart from; the section has what each has on dev.
        """
        fuses = self.task.in_batch or bool(taken.members)  # no folder is written for a reranker that is kept
        weight, runs = 1.0, self.systems(taken, self.dev, "dev")
        if fuses and len(runs) > 1:
            weight = self._fused(taken)[0]
            runs.append(together(runs, weight))
        values = {run.name: on_split(run, self.dev, "dev") for run in runs}
        name = runs[plainest(list(values.values()))].name
        deploys = {TUNED: "model", self.label: "base"}.get(name, "both" if " + " in name else name)
        means = {each: float(on_dev.mean()) for each, on_dev in values.items()}
        shown = ", ".join(f"{each} {means[each]:.4f} ± {standard_error(values[each]):.4f}" for each in means)
        reason = f"on dev {shown}; {name} is the first that no other is better than by more than a standard error"
        return {"deploys": deploys, "weight": weight, "dev": means, "reason": reason}

    def run(self) -> Tuned:
        """Do all that is not done, and write what comes out of it."""
        self.schedule()
        collection, task = self.collection, self.task
        candidates, taken = self.explore()
        retriever = self.plan.decide("retriever", lambda: self.deploy(taken))
        systems = self.systems(taken, collection, "test")
        runs = [self.ranked(candidates[0], collection, "test"), *systems[::-1]]  # shown in this order
        if len(systems) > 1:
            runs.append(together(systems, retriever["weight"]))
        if isinstance(task, RerankerTask) and task.first_stage != BM25:
            runs.append(bm25_run(collection, "test", depth=task.depth, lexical=self.lexical))
        runs = list({run.name: run for run in runs}.values())
        self.say("measured on test")
        source = self.plan.sections.get("negatives", {}).get("source")
        if source:
            self.mined(source).write(self.output / "negatives.parquet")
        tuned = Tuned(
            path=self.output,
            collection=collection,
            documents=len(self.whole.documents),
            plan=self.plan,
            evaluation=evaluate_runs(collection, runs, rng=np.random.default_rng(self.seed), measures=task.measures),
            base=self.base,
            taken=taken,
            candidates=tuple(candidates),
            warnings=tuple(self.warnings),
        )
        if taken.members:
            self._write(taken, tuned)
        if task.in_batch or taken.members:
            self._write_retriever(tuned)
        write_json(self.output / "tune.json", tuned.to_json())
        tuned.report(self.output / PAGE)
        shutil.rmtree(self.work / TEMPORARY, ignore_errors=True)
        log.info("report: %s", self.output / PAGE)
        return tuned

    def _write(self, taken: Candidate, tuned: Tuned) -> None:
        """Write the model, the proof and the warnings at the end of its card."""
        from foils.training.fit import add_to_card

        proof = [tuned.sentence, tuned.training, *(f"- {each}" for each in tuned.warnings)]

        def write(path: Path) -> None:
            with fill_folder(self.output / "model") as aside:
                shutil.copytree(self.folder(taken.members, taken.share), aside, dirs_exist_ok=True)
                add_to_card(aside, "\n\n".join(["## Measured with foils tune", *proof]) + "\n")
            write_sealed(path, {"model": "model"})

        key = {**self._made_of(taken.members, taken.share), "proof": proof}
        kept(self.path("written", key, ".json"), read_sealed, write)

    def _write_retriever(self, tuned: Tuned) -> None:
        """Write what is deployed, so that the folder answers new queries by it."""
        model = "" if tuned.better else self.task.model
        if model and Path(model).is_dir():
            model = str(Path(model).resolve())
        deploys = tuned.deploys if tuned.deploys in ("both", BM25) else "model"
        named = named_collection(self.whole, self.plan["given"], self.output)
        weight = self.plan["retriever"]["weight"]
        Fusion("z", weight, deploys, model, self.lexical.facts, named).write(self.output / TUNED_FILE)

    def say(self, message: str) -> None:
        """Tell how far it is."""
        log.info("tune, after %.0f s: %s", self.spent, message)


def together(runs: Sequence[Run], weight: float) -> Run:
    """Return the weighted ranking of a partner and a model, the model's weight given."""
    return fuse_runs(runs, name=" + ".join(run.name for run in runs), **Fusion("z", weight).how)


def on_split(run: Run, collection: Collection, split: str) -> Floats:
    """Return the measure of each query of a split."""
    return np.asarray(measure_run(run.first(DEPTH), collection, split, (MEASURE,)).per_query[MEASURE])
