"""A study: score sources, train on each with several seeds, measure. Killed, it goes on where it was."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.encode import VectorStore
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.files import write_sealed
from foils.studies.cells import (
    AND,
    FIRST_STAGE_FILE,
    cell_folder,
    known_sources,
    read_cell,
    results_of,
    source_file,
    trained_file,
    write_cell,
)
from foils.studies.checks import check_sources, checked_settings, train_settings
from foils.studies.kinds import Encoders, Rerankers, kind_of_study
from foils.studies.reliability import Reliability, reliability_of
from foils.studies.scored import score_cell
from foils.studies.settings import StudySettings
from foils.studies.sources import drawn_queries, study_sources, table_digest

if TYPE_CHECKING:
    from foils.training.data import TrainingSet

log = logging.getLogger(__name__)

CHECKPOINT_STEPS = 500  # a training that is shorter is cheap enough to do again after a kill


def run_study(
    study: Path,
    collection: Collection,
    sources: Mapping[str, Negatives],
    models: Sequence[str],
    store: VectorStore,
    settings: StudySettings | None = None,
    *,
    tests: Sequence[Collection] = (),
    device: str | None = None,
) -> list[Path]:
    """Add a collection's sources, trained with each model, to a study; what is there already is not done again.

    Sources of earlier calls stay: all that a cell has are scored together, so that what depends on the others (the
    belief about false negatives) is the same for all. Everything is checked before the first training.

    Args:
        study: the folder of the study, made where it is not.
        collection: with judgements to train and to test on.
        sources: name → negatives, two at least where the study has none of this collection and model.
        models: what to train: names that `foils.training.models.load_trainable` knows; of rerankers, folders or hub
            names.
        store: of vectors, for the scores.
        settings: see `StudySettings`; a `score_with` or `probe` of None is that of the call before.
        tests: collections to test on, whose means are averaged; none: the one that is trained on.
        device: to train on, as torch names it.

    Returns:
        The folders of the cells.

    Raises:
        InputError: fewer than two sources, a name that is a baseline's or has other rows in the study, a source that
            cannot be trained on, a model that cannot be loaded, settings out of range.
        UnknownNameError: an unknown split, loss or way of batching.
    """
    cells = open_study(study, collection, sources, models, settings, tests=tests, device=device)
    run_cells(cells, store)
    return [cell.folder for cell in cells]


def run_cells(cells: Sequence[OpenCell], store: VectorStore) -> None:
    """Score and train every cell, with more seeds until it is reliable where the settings want that.

    The cells get one more seed each in turn, until `Reliability.settled`, or until the minutes, counted from here, are
    spent; a training that began is finished.
    """
    settings, started = cells[0].settings, time.monotonic()
    for cell in cells:
        cell.run(store)
    if not settings.until_reliable:
        return
    until = started + 60 * settings.minutes if settings.minutes is not None else math.inf
    waiting = list(cells)
    while waiting:
        for cell in list(waiting):
            reliability = cell.reliability()
            if reliability.settled:
                log.info("%s: %s with %d seeds", cell.model, reliability.verdict, reliability.seeds)
                waiting.remove(cell)
            elif not cell.train([reliability.seeds], until=until):
                log.info("%s minutes are spent; another call with more of them goes on", settings.minutes)
                return


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
    """Return the cells that a call of `run_study` works on, all of it checked and nothing of it written.

    Arguments and exceptions are those of `run_study`.
    """
    tested = tests or [collection]
    settings = checked_settings(settings or StudySettings(), collection, tested, device=device)
    prepared = study_sources(sources, settings)
    check_sources(prepared, collection, settings)
    kind = kind_of_study(settings, tested, device)
    return [OpenCell.checked(study, collection, name, prepared, kind, device) for name in dict.fromkeys(models)]


@dataclass(frozen=True)
class OpenCell:
    """One collection and one model, at work.

    Attributes:
        folder: of the cell.
        facts: what its cell.json will say.
        collection: to train and to test on.
        model: its name.
        sources: of this call, as they are scored and trained on.
        settings: of the study, those of the training as this kind of model takes them.
        kind: of model, which trains and measures it.
        device: as torch names it.
    """

    folder: Path
    facts: Mapping[str, Any]
    collection: Collection
    model: str
    sources: Mapping[str, Negatives]
    settings: StudySettings
    kind: Encoders | Rerankers
    device: str | None

    @classmethod
    def checked(
        cls,
        study: Path,
        collection: Collection,
        name: str,
        sources: Mapping[str, Negatives],
        kind: Encoders | Rerankers,
        device: str | None,
    ) -> OpenCell:
        """Return the cell of a model, having loaded it once and made every loss."""
        from foils.training.models import with_defaults
        from foils.training.trainer import precision_of

        model = kind.load(name)
        training = with_defaults(train_settings(kind.settings, 0), model)
        precision_of(training.precision, model.device)
        settings = replace(kind.settings, training={**kind.settings.training, "learning_rate": training.learning_rate})
        facts: dict[str, Any] = {
            "collection": {"name": collection.name, "digest": collection.measured_digest},
            "model": {"name": name, "fingerprint": kind.fingerprint(name)},
            "settings": {**settings.of_a_training(), **kind.facts, **_tested_on(kind.collections, collection)},
            "tests": [
                {"name": each.name, "queries": len(each.judgements(settings.test_split)["query_id"].unique())}
                for each in kind.collections
            ],
            "sources": {source: table_digest(negatives) for source, negatives in sources.items()},
        }
        folder = cell_folder(study, facts["collection"], facts["model"], facts["settings"])
        known = known_sources(folder)
        if other := [source for source, digest in facts["sources"].items() if known.get(source, digest) != digest]:
            raise InputError(
                f"{', '.join(other)}: the study has other rows under this name; give the source another, as in "
                "NAME=FILE, or begin a study in another folder"
            )
        if len({**known, **sources}) < 2:
            raise InputError(f"{len(sources)} source; a study compares two at least")
        cell = cls(folder, facts, collection, name, sources, settings, kind, device)
        for source in sources:
            kind.check(model, cell.rows(source, 0), training)
        return cell

    def run(self, store: VectorStore) -> None:
        """Write down what is asked for, score all sources of the cell, train on those of this call, and measure."""
        write_cell(self.folder, self.facts)
        for name, digest in self.facts["sources"].items():
            if not (path := source_file(self.folder, name, digest)).is_file():
                self.sources[name].write(path)
        given = self.settings.first_stage
        if isinstance(given, Run) and not (path := self.folder / FIRST_STAGE_FILE).is_file():
            given.write(path)
        score_cell(self, store)
        self.train(range(self.settings.seeds))

    def train(self, seeds: Sequence[int], *, until: float = math.inf) -> bool:
        """Train on every source with these seeds, seed by seed, and measure; skip what is there.

        What needs no training is measured with the first seed alone.

        Args:
            seeds: of the trainings.
            until: a time of the monotonic clock after which no training begins.

        Returns:
            Whether all of it is there.
        """
        names = [*(self.kind.baselines if self.settings.baselines else ()), *self.sources]
        jobs = [(name, seed) for seed in seeds for name in names if name != self.kind.untrained or not seed]
        with progress.task(f"trainings of {self.model}", total=len(jobs), unit="trainings") as advance:
            for name, seed in jobs:
                path = trained_file(self.folder, name, self.facts["sources"].get(name, ""), seed)
                if not path.is_file():
                    if time.monotonic() > until:
                        return False
                    with progress.quiet():
                        write_sealed(path, self._trained(name, seed, path.with_suffix("")))
                advance(1)
        return True

    def reliability(self) -> Reliability:
        """Return how far the order of the sources of this call repeats, by the first measure."""
        return reliability_of(results_of(read_cell(self.folder), list(self.sources), self.settings.measured[0]))

    def rows(self, name: str, seed: int) -> TrainingSet:
        """Return what a seed trains on, of a source or of pairs alone."""
        from foils.training.data import training_set

        settings = self.settings
        drawn = drawn_queries(self.collection, settings.split, settings.queries, seed)
        return training_set(
            drawn,
            self.sources.get(name),
            split=settings.split,
            form=self.kind.form(name),
            per_query=None if settings.whole_hybrids and AND in name else settings.per_query,
            max_positives=1,
        )

    def _trained(self, name: str, seed: int, checkpoints: Path) -> dict[str, Any]:
        """Train and measure once; the checkpoints are gone afterwards."""
        start, kind, facts = time.perf_counter(), self.kind, dict[str, Any]()
        if name == kind.untrained:
            measured = kind.measure_untrained(self.model)
        else:
            training, data = train_settings(self.settings, seed), self.rows(name, seed)
            if training.checkpoint_steps is None:
                training = replace(training, checkpoint_steps=CHECKPOINT_STEPS)
            model = kind.load(self.model, seed)
            trained = kind.fit(model, data, checkpoints, training)
            losses = [entry["loss"] for entry in trained.history if "loss" in entry]
            facts = {"rows": len(data), "steps": trained.steps, "loss_first": losses[0], "loss_last": losses[-1]}
            measured = kind.measure(trained.model)
        shutil.rmtree(checkpoints, ignore_errors=True)
        joined = {name: [v for each in measured for v in each.per_query[name].tolist()] for name in measured[0].means}
        means = {name: float(np.mean([each.means[name] for each in measured])) for name in joined}
        return {
            "source": name, "seed": seed, **facts, "seconds": round(time.perf_counter() - start, 1),
            "measures": means, "per_query": joined,
        }  # fmt: skip


def _tested_on(tests: Sequence[Collection], collection: Collection) -> dict[str, Any]:
    """What tells a cell by what it is tested on; nothing where that is the collection it is trained on."""
    if [each.digest for each in tests] == [collection.digest]:
        return {}
    return {"test_on": [f"{each.name} {each.measured_digest[:10]}" for each in tests]}
