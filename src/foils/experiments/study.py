"""A study on disk: score sources, train on each with several seeds, measure. Killed, it goes on where it was.

::

    study/cells/COLLECTION--MODEL--DIGEST/
        cell.json                          a collection, a model, and how it is trained
        sources/SOURCE--DIGEST.parquet     the rows of each source
        scores.json                        predictors of each source
        trained/SOURCE--DIGEST--N.json     what training N on a source gave

Every file appears whole, and JSON with a checksum of what it says. A training that is there is not
repeated; one that was killed goes on from its checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from foils.data import Collection, Negatives
from foils.data.records import read_sealed
from foils.data.run import ranks_within
from foils.deciding import BeliefSettings, Candidate, score_and_decide
from foils.encode import DEFAULT_MODEL, EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.evaluation import measure_run
from foils.experiments.plan import with_queries
from foils.experiments.tasks import BASELINES, BM25, FIRST_STAGE, UNTRAINED, EncoderTask, RerankerTask, Task
from foils.runtime import progress
from foils.runtime.errors import FormatError, InputError, check_names
from foils.runtime.files import cache_place, digest_of, write_sealed
from foils.runtime.options import Option, Settings, settings_of, settings_option, spelled
from foils.scoring import ScoreSettings
from foils.scoring.scores import Scores
from foils.statistics.measures import parse_measures, parsed_names

if TYPE_CHECKING:
    from foils.training.settings import TrainSettings

PREDICTORS: dict[str, str] = {
    "eci_sem": "ECI_sem, λ = 1",
    "eci": "ECI, margin of triplets, averaged over the data set first",
    "eci_list": "ECI, margin of lists, averaged over the data set first",
    "signal": "mean similarity of query and negative",
    "margin": "best positive less negative, mean over negatives",
    "margin_list": "best positive less hardest negative, mean over queries",
    "rho": "mean ρ",
    "eta": "mean η",
    "psi": "mean ψ",
    "pair_loss": "mean −log ρ",
    "inversion_rate": "share with ρ < 0.5",
    "gradient_energy": "gradient energy, listwise",
    "mnrl_proxy": "MNRL proxy, listwise",
    "ambiguity": "share of lists with a negative above the positive",
    "benefit": "the decision's benefit, without labels",
}
"""Predictor → what it is. Higher is taken to be better to train on; negative agreement says lower is."""

Floats = npt.NDArray[np.float64]
SCORES_FILE = "scores.json"
CHECKPOINT_STEPS = 500  # a training that is shorter is cheap enough to do again after a kill
OF_STUDY = {"seed", "loss_settings", "patience", "matryoshka", "trainer"}
"""Settings of a training that a study sets itself, or has no use for."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """What every training of a study has in common.

    Attributes:
        seeds: Trainings of each source; a seed draws the queries, the order and the dropout.
        queries: Training queries drawn by each seed, the same for all sources. Default: all.
        per_query: Negatives of a query, the first by rank, so that sources do not differ in size.
            In Python None takes all of them.
        reranker: Train cross-encoders, on lists, instead of encoders.
        first_stage: What rerankers rerank on the test split, the first 50 documents of each query:
            bm25, an encoder, or a TREC run. Default: bm25.
        score_with: Encoder that scores the sources. Default: the model itself, before training; of rerankers
            all-MiniLM-L6-v2.
        measures: Measures, by ir_measures' names, separated by commas; predictors are compared with
            the first. Default: nDCG@10,RR@10,R@100, of rerankers nDCG@10,RR@10. In Python also a
            list of names.
        split: Split of the judgements to train on.
        test_split: Split of the judgements to measure on.
        training: Setting of the training, as in epochs=2, batch_size, learning_rate, loss, batches
            (how they are filled) or temperature (of the loss and of the scores; 0.05); may be given
            several times. In Python a dictionary; the other names are those of
            `foils.training.settings.TrainSettings`, and of arguments of sentence-transformers'
            trainer.
    """

    heading = "Study"

    seeds: Annotated[int, Option(least=1)] = 3
    queries: Annotated[int | None, Option(least=1)] = None
    per_query: Annotated[int | None, Option(least=1)] = 10
    reranker: bool = False
    first_stage: Annotated[str | None, Option(metavar="bm25|MODEL|RUN", needs={"reranker": True})] = None
    score_with: Annotated[str | None, Option(metavar="ENCODER")] = None
    measures: Annotated[tuple[str, ...] | None, Option(parse=parsed_names, metavar="MEASURES")] = None
    split: str = "train"
    test_split: Annotated[str, Option(flag="--test", metavar="SPLIT")] = "test"
    training: Annotated[Mapping[str, Any], settings_option("training")] = field(default_factory=dict)

    defaults: ClassVar[dict[str, Any]] = {"temperature": 0.05, "batches": "random"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split == self.test_split:
            raise InputError(f"{spelled('test_split')} {self.test_split}: it is trained on; give another")
        if self.reranker and "batches" in self.training:
            raise InputError("training setting batches: no effect with rerankers, whose lists do not meet")

    @property
    def temperature(self) -> float:
        """τ of the scores and of the loss, which divides similarities."""
        return float(self.training.get("temperature", self.defaults["temperature"]))

    @property
    def batches(self) -> str:
        """How batches are filled."""
        return str(self.training.get("batches", self.defaults["batches"]))

    def train_settings(self, seed: int) -> TrainSettings:
        """Return the settings of one training.

        Raises:
            InputError: a setting that does not exist, is the study's own, is of another type, or is
                out of range.
        """
        from foils.training.fit import trainer_arguments
        from foils.training.settings import TrainSettings, ways_of_batching

        known = [each.name for each in settings_of(TrainSettings) if each.name not in OF_STUDY]
        given = {name: value for name, value in self.training.items() if name not in self.defaults}
        of_trainer = {name: given.pop(name) for name in sorted(given.keys() - {*known})}
        check_names("training setting", of_trainer, [*sorted({*known, *self.defaults}), *trainer_arguments()])
        Option(names=ways_of_batching).check("batches", self.batches)
        Option(above=0).check("temperature", self.temperature)
        loss = {} if self.reranker else {"temperature": self.temperature}
        return TrainSettings(**given, seed=seed, loss_settings=loss, trainer=of_trainer)

    def facts(self, training: TrainSettings, task: Task) -> dict[str, Any]:
        """Return what, beside source and seed, decides what a training gives."""
        names = ("split", "test_split", "queries", "per_query", "temperature")
        decides: dict[str, Any] = {"batches": self.batches}
        if isinstance(task, RerankerTask):
            decides = {"reranker": True, "first_stage": task.ranked_by}
        given = {name: value for name, value in self.training.items() if name not in self.defaults}
        decides |= {
            "measures": list(self.measures or ()),
            "training": {**given, "learning_rate": training.learning_rate},
        }
        return {**{name: getattr(self, name) for name in names}, **decides}


@dataclass(frozen=True)
class Cell:
    """One collection and one model of a study, as they lie on disk.

    Attributes:
        folder: of the cell.
        facts: collection, model, settings, and what was asked for, as in cell.json.
        predictors: source → predictor → value; a predictor that could not be had is missing.
        outcomes: source (or baseline) → measure → (seeds, queries) values.
        sizes_of: source (or baseline) → mean rows and steps of a training; of what was not trained
            there is nothing.
        number: 2 for a second cell of the same collection and model, and so on.
    """

    folder: Path
    facts: Mapping[str, Any]
    predictors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    sizes_of: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    number: int = 1

    @property
    def name(self) -> str:
        """Collection and model, with the number of a second or later cell."""
        name = f"{self.facts['collection']['name']} · {self.facts['model']['name']}"
        return f"{name} ({self.number})" if self.number > 1 else name

    @property
    def sources(self) -> list[str]:
        """Sources with both predictors and outcomes, in the order they were given."""
        return [name for name in self.facts["sources"] if name in self.predictors and name in self.outcomes]

    @property
    def training(self) -> dict[str, Any]:
        """Settings of the trainings, as cell.json has them."""
        settings = {**self.facts["settings"], **self.facts["settings"].get("training", {})}
        apart = ("training", "measures", "split", "test_split")
        return {name: value for name, value in settings.items() if name not in apart and value is not None}

    @property
    def tests(self) -> dict[str, int]:
        """Queries of each collection that is tested on; of one alone, nothing."""
        named = {each["name"]: int(each["queries"]) for each in self.facts.get("tests", [])}
        return named if len(named) > 1 else {}

    def means(self, measure: str) -> dict[str, Floats]:
        """Return source or baseline → (seeds,) means over queries; of collections, their means' mean."""
        known = {name: values[measure] for name, values in self.outcomes.items() if measure in values}
        return {name: values @ weights_of(values, [*self.tests.values()]) for name, values in known.items()}

    def results(self, names: Sequence[str], measure: str) -> Floats:
        """Return (sources, seeds) means over queries, of the seeds that all of the named sources have."""
        means = self.means(measure)
        common = min(len(means[name]) for name in names)
        return np.stack([means[name][:common] for name in names])


def weights_of(values: Floats, sizes: Sequence[int]) -> Floats:
    """Return (queries,) weights whose sum with (…, queries) values is their mean; of collections, of means.

    Args:
        values: per query, collection by collection.
        sizes: queries of each collection; none: they are all of one.
    """
    counts = np.array(sizes or [values.shape[-1]])
    return np.asarray(np.repeat(1 / (len(counts) * counts), counts))


def trained_file(folder: Path, source: str, digest: str, seed: int) -> Path:
    """Return where the result of a training lies."""
    return folder / "trained" / f"{slug(source)}--{digest}--{seed}.json"


def source_file(folder: Path, source: str, digest: str) -> Path:
    """Return where the rows of a source lie, so that a later call scores it beside other sources."""
    return folder / "sources" / f"{slug(source)}--{digest}.parquet"


def read_cells(study: Path) -> list[Cell]:
    """Read every cell of a study, in the order of their names.

    Raises:
        InputError: there is no study.
        FormatError: a file of it is damaged.
    """
    if not (folders := sorted(path.parent for path in study.glob("cells/*/cell.json"))):
        raise InputError(f"{study}: no study here (no {study}/cells/*/cell.json); foils study makes one")
    return [read_cell(folder) for folder in folders]


def read_cell(folder: Path) -> Cell:
    """Read the cell of a folder."""
    facts, scores = read_sealed(folder / "cell.json"), folder / SCORES_FILE
    predictors = read_sealed(scores)["sources"] if scores.is_file() else {}
    outcomes: dict[str, dict[str, Floats]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    for name, digest in {**facts["sources"], **dict.fromkeys(BASELINES, "")}.items():
        results: list[dict[str, Any]] = []
        while (path := trained_file(folder, name, digest, len(results))).is_file():
            results.append(read_sealed(path))
            per_query = [result["per_query"] for result in results]
            first, last = ({what: len(values) for what, values in per_query[at].items()} for at in (0, -1))
            if first != last:
                raise FormatError("other measures or queries than with seed 0; remove it", path)
        if results:
            outcomes[name] = {each: np.array([values[each] for values in per_query], float) for each in first}
            if "rows" in results[0]:
                rows, steps = ([float(result[key]) for result in results] for key in ("rows", "steps"))
                sizes[name] = (float(np.mean(rows)), float(np.mean(steps)))
    return Cell(folder, facts, predictors, outcomes, sizes)


def numbered(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells, those of one collection and model numbered, so that each has a name of its own."""
    counts, named = Counter[str](), list[Cell]()
    for cell in cells:
        counts[cell.name] += 1
        named.append(replace(cell, number=counts[cell.name]))
    return named


def predict(scores: Scores, worths: Mapping[str, Candidate]) -> dict[str, dict[str, float]]:
    """Return source → predictor → value, from a scoring; values that do not exist are left out.

    Args:
        scores: of the sources by the frozen encoder that training starts from, hybrids as sources
            of their own.
        worths: source → what the decision says of it (`foils.deciding.decide`).
    """
    by_source: dict[str, dict[str, float]] = {}
    for score in scores.sources:
        values = {name: float(getattr(score, name)) for name in PREDICTORS if name != "benefit"}
        values["benefit"] = worths[score.name].benefit
        by_source[score.name] = {name: value for name, value in values.items() if math.isfinite(value)}
    return by_source


def slug(text: str) -> str:
    """Return text as a part of a file's name: letters, digits, dot, dash; a digest for what is lost."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60] or "x"
    return plain if plain == text else f"{plain}-{hashlib.blake2b(text.encode(), digest_size=3).hexdigest()}"


def first_negatives(negatives: Negatives, per_query: int | None) -> Negatives:
    """Return a table as it is scored and trained on: of each query the first `per_query` kept rows, by rank."""
    if per_query is None:
        return negatives
    query = np.asarray(negatives.table["query_id"].combine_chunks().dictionary_encode().indices)
    rank, keep = np.asarray(negatives.table["rank"]), negatives.keep
    order = np.lexsort((rank, ~keep, query))
    beyond = np.zeros(len(negatives), bool)
    beyond[order] = ranks_within(query[order]) >= per_query
    return negatives.reject(beyond & keep, f"after the first {per_query}")


def table_digest(negatives: Negatives) -> str:
    """Return a digest of the kept rows: queries, documents or their own texts, ranks, weights."""
    kept = negatives.kept()
    hasher = hashlib.blake2b(digest_size=5)
    for name in ("query_id", "doc_id", "text", "rank", "weight"):
        for value in kept[name].to_pylist() if name in kept.column_names else ():
            hasher.update(f"{value}\x1f".encode())
    return hasher.hexdigest()


@dataclass
class OpenCell:
    """One collection and one model, at work; when it is made the model is loaded once.

    Attributes:
        study: folder of the study. `folder`: of the cell. `facts`: what its cell.json will say, with
            the sources of earlier calls.
        collection: to train on. `tests`: collections to measure on.
        sources: of this call, as they are scored and trained on.
        settings: of the study.
        task: the model, and how it is trained and measured.
    """

    study: Path
    collection: Collection
    tests: Sequence[Collection]
    sources: Mapping[str, Negatives]
    settings: StudySettings
    task: Task

    def __post_init__(self) -> None:
        from foils.training.models import with_defaults

        task, settings, tests = self.task, self.settings, self.tests
        sizes = [len(each.judgements(settings.test_split)["query_id"].unique()) for each in tests]
        self.facts: dict[str, Any] = {
            "collection": {"name": self.collection.name, "digest": self.collection.measured_digest},
            "model": {"name": task.model, "fingerprint": task.fingerprint},
            "settings": settings.facts(with_defaults(settings.train_settings(0), task.load()), task),
            "tests": [{"name": each.name, "queries": size} for each, size in zip(tests, sizes, strict=True)],
            "sources": {source: table_digest(negatives) for source, negatives in self.sources.items()},
        }
        if [each.digest for each in tests] != [self.collection.digest]:
            self.facts["settings"]["test_on"] = [f"{each.name} {each.measured_digest[:10]}" for each in tests]
        # The same collection, weights and settings always lie in the same place.
        digest = digest_of([self.collection.measured_digest, task.fingerprint, self.facts["settings"]], 5)
        self.folder = self.study / "cells" / f"{slug(self.collection.name)}--{slug(task.model)}--{digest}"
        path, given = self.folder / "cell.json", self.facts["sources"]
        known = read_sealed(path)["sources"] if path.is_file() else {}
        if other := [source for source, digest in given.items() if known.get(source, digest) != digest]:
            raise InputError(f"{', '.join(other)}: the study has other rows of this name; give NAME=FILE")
        self.facts["sources"] = {**known, **given}
        if len(self.facts["sources"]) < 2:
            raise InputError(f"{len(given)} source; a study compares two at least")

    @property
    def scorer(self) -> SentenceEncoder:
        """The encoder that scores the sources."""
        task, named = self.task, self.settings.score_with
        if named is None and isinstance(task, EncoderTask):
            return task.encoder
        length = self.settings.train_settings(0).max_length
        return load_encoder(named or DEFAULT_MODEL, EncoderSettings(max_length=length, device=task.device))

    def score(self, store: VectorStore) -> None:
        """Write the predictors of every source of the cell, all scored together, unless they are there."""
        path, settings, named = self.folder / SCORES_FILE, self.settings, self.settings.score_with
        belief, digests = self.belief, self.facts["sources"]
        basis = {"score_with": named, "starts": belief.starts, "in_batch": belief.in_batch, "sources": digests}
        if path.is_file() and read_sealed(path)["of"] == basis:
            return
        files = {name: source_file(self.folder, name, digest) for name, digest in digests.items()}
        sources = {name: self.sources.get(name) or Negatives.read(file) for name, file in files.items()}
        encoder = self.scorer
        scoring = ScoreSettings(hybrids=1, split=settings.split, temperature=settings.temperature)
        scores, decision = score_and_decide(self.collection, sources, encoder, store, scoring, belief, replicates=0)
        write_sealed(path, {"of": basis, "sources": predict(scores, decision.worths)})

    @property
    def belief(self) -> BeliefSettings:
        """What training starts from, and the in-batch negatives of a query: its batch less its own row."""
        in_batch = self.settings.train_settings(0).batch_size - 1 if self.task.in_batch else 0
        return BeliefSettings(in_batch=in_batch, starts=self.task.init)

    def train(self) -> None:
        """Train on every source with every seed, seed by seed, and measure; skip what is there.

        What needs no training is measured with the first seed alone.
        """
        names, once = [*self.task.baselines, *self.sources], (UNTRAINED, FIRST_STAGE)
        seeds = range(self.settings.seeds)
        jobs = [(name, seed) for seed in seeds for name in names if name not in once or not seed]
        with progress.task(f"trainings of {self.task.model}", total=len(jobs), unit="trainings") as advance:
            for name, seed in jobs:
                path = trained_file(self.folder, name, self.facts["sources"].get(name, ""), seed)
                if not path.is_file():
                    with progress.reporting(progress.silent):
                        write_sealed(path, self._trained(name, seed, path.with_suffix("")))
                advance(1)

    def _trained(self, name: str, seed: int, checkpoints: Path) -> dict[str, Any]:
        """Train and measure once; the checkpoints are gone afterwards."""
        start, settings, task, facts = time.perf_counter(), self.settings, self.task, dict[str, Any]()
        if name in (UNTRAINED, FIRST_STAGE):
            model = None
        else:
            training, split, queries = settings.train_settings(seed), settings.split, settings.queries
            drawn = self.collection if queries is None else with_queries(self.collection, {split: queries}, seed)
            rows: dict[str, Any] = {"per_query": settings.per_query, "max_positives": 1, "split": split}
            data = task.rows(drawn, self.sources.get(name), **rows)
            training = replace(training, trainer={"save_steps": CHECKPOINT_STEPS, **training.trainer})
            if task.in_batch and settings.per_query is not None:
                pairs = data if name not in self.sources else task.rows(drawn, None, **rows)
                # All take as many steps as a source with all its negatives for each pair.
                training = replace(training, epochs=1, steps=training.steps_of(settings.per_query * len(pairs)))
            trained = task.train(data, checkpoints, training, settings.batches)
            facts = {"rows": len(data), "steps": trained.steps}
            model = trained.model
        values = []
        for tested in self.tests:
            run = task.ranked(tested, settings.test_split, model)
            values.append(measure_run(run, tested, settings.test_split, settings.measures or ()))
        shutil.rmtree(checkpoints, ignore_errors=True)
        joined = {name: [v for each in values for v in each.per_query[name].tolist()] for name in values[0].means}
        seconds = round(time.perf_counter() - start, 1)
        return {"source": name, "seed": seed, **facts, "seconds": seconds, "per_query": joined}


def open_study(
    study: Path,
    collection: Collection,
    sources: Mapping[str, Negatives],
    models: Sequence[str],
    settings: StudySettings | None = None,
    *,
    tests: Sequence[Collection] = (),
    device: str | None = None,
) -> list[OpenCell]:
    """Return the cells of a study that a collection's sources are added to, with each model.

    Nothing is written. Sources of earlier calls stay: all that a cell has are scored together, so
    that what depends on the others (the belief about unlabelled answers) is the same for all.

    Args:
        study: the folder of the study, made where it is not.
        collection: with judgements to train and to test on.
        sources: name → negatives, two at least where the study has none of this collection and model.
        models: what to train: names that `foils.training.models.load_trainable` knows; of
            rerankers, folders or hub names.
        settings: see `StudySettings`.
        tests: collections to test on, whose means are averaged; none: the one that is trained on.
        device: to train on, as torch names it.

    Raises:
        InputError: fewer than two sources, a name that is a baseline's or has other rows in the
            study, a model that cannot be loaded, settings out of range.
        UnknownNameError: an unknown split or way of batching.
    """
    tested, settings = tests or [collection], settings or StudySettings()
    collection.judgements(settings.split)
    names = [each.name for each in tested if each.judgements(settings.test_split, "test_split") is not None]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two collections to test on are called {', '.join(twice)}; rename one")
    if taken := sorted(set(sources) & set(BASELINES)):
        raise InputError(f"the name {taken[0]!r} is a baseline's; give the source another")
    prepared = {name: first_negatives(each, settings.per_query) for name, each in sources.items()}
    task: Task = EncoderTask("", device)
    if settings.reranker:
        task = RerankerTask("", device, first_stage=settings.first_stage or BM25)
    parsed = parse_measures(settings.measures if settings.measures is not None else task.measures)
    if deep := [str(each) for each in parsed if each.params.get("cutoff", 0) > task.depth]:
        looks = "a study searches" if task.in_batch else "a reranker orders"
        raise InputError(f"{', '.join(deep)}: {looks} the first {task.depth} documents; measure these")
    settings = replace(settings, measures=tuple(map(str, parsed)))
    tasks = [replace(task, model=name) for name in dict.fromkeys(models)]
    return [OpenCell(study, collection, tested, prepared, settings, each) for each in tasks]


def run_cells(cells: Sequence[OpenCell], store: VectorStore | None = None) -> None:
    """Score and train every cell.

    Args:
        cells: of `open_study`.
        store: of vectors, for the scores; None: that of the cache.
    """
    for cell in cells:
        for name, table in cell.sources.items():
            path = source_file(cell.folder, name, cell.facts["sources"][name])
            if not path.is_file():
                table.write(path)
        path = cell.folder / "cell.json"
        if not path.is_file() or read_sealed(path) != cell.facts:
            write_sealed(path, cell.facts)
        cell.score(store or VectorStore(cache_place("vectors")))
        cell.train()
