"""A study: score sources, train on each with several seeds, measure. Killed, it goes on where it was."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.data import Collection, Negatives
from foils.data.recapture import Recapture
from foils.data.sealed import write_sealed
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.evaluation import measure_encoder
from foils.runtime import progress
from foils.runtime.errors import FormatError, InputError
from foils.scoring import ScoreSettings, score_sources
from foils.studies.cells import (
    BASELINES,
    IN_BATCH,
    SCORES,
    UNTRAINED,
    cell_folder,
    known_sources,
    read_json,
    source_file,
    trained_file,
    write_cell,
)
from foils.studies.checks import check_sources, checked_settings, train_settings
from foils.studies.predictors import decided_benefits, predict
from foils.studies.settings import StudySettings
from foils.studies.sources import drawn_queries, study_sources, table_digest
from foils.studies.unlabelled import estimate_unlabelled

if TYPE_CHECKING:
    from foils.training.data import TrainingSet

CHECKPOINT_STEPS = 500  # a training that is shorter is cheap enough to do again after a kill


def run_study(
    study: Path,
    collection: Collection,
    sources: Mapping[str, Negatives],
    models: Sequence[str],
    store: VectorStore,
    settings: StudySettings | None = None,
    *,
    device: str | None = None,
) -> list[Path]:
    """Add a collection's sources, trained with each model, to a study; what is there already is not done again.

    Sources of earlier calls stay: all that a cell has are scored together, so that what depends on the others (the
    number of unlabelled relevant documents) is the same for all. Everything is checked before the first training.

    Args:
        study: the folder of the study, made where it is not.
        collection: with judgements to train and to test on.
        sources: name → negatives, two at least where the study has none of this collection and model.
        models: what to train: names that `foils.training.models.load_trainable` knows.
        store: of vectors, for the scores.
        settings: see `StudySettings`; an `unlabelled`, `estimate_with` or `probe` of None is that of the call before.
        device: to train on, as torch names it.

    Returns:
        The folders of the cells.

    Raises:
        InputError: fewer than two sources, a name that is a baseline's or has other rows in the study, a source that
            cannot be trained on, a model that cannot be loaded, settings out of range.
        UnknownNameError: an unknown split, loss or way of batching.
    """
    cells = open_study(study, collection, sources, models, settings, device=device)
    for cell in cells:
        cell.run(store)
    return [cell.folder for cell in cells]


def open_study(
    study: Path,
    collection: Collection,
    sources: Mapping[str, Negatives],
    models: Sequence[str],
    settings: StudySettings | None = None,
    *,
    device: str | None = None,
) -> list[OpenCell]:
    """Return the cells that a call of `run_study` works on, all of it checked and nothing of it written.

    Arguments and exceptions are those of `run_study`.
    """
    settings = checked_settings(settings or StudySettings(), collection, device=device)
    prepared = study_sources(sources, settings)
    check_sources(prepared, collection, settings)
    return [OpenCell.checked(study, collection, name, prepared, settings, device) for name in dict.fromkeys(models)]


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
        device: as torch names it.
    """

    folder: Path
    facts: Mapping[str, Any]
    collection: Collection
    model: str
    sources: Mapping[str, Negatives]
    settings: StudySettings
    device: str | None

    @classmethod
    def checked(
        cls,
        study: Path,
        collection: Collection,
        name: str,
        sources: Mapping[str, Negatives],
        settings: StudySettings,
        device: str | None,
    ) -> OpenCell:
        """Return the cell of a model, having loaded it once and made every loss."""
        from foils.training.catalogue import make_loss
        from foils.training.models import load_trainable, with_defaults
        from foils.training.trainer import precision_of

        model = load_trainable(name, device=device, similarity=settings.similarity)
        training = with_defaults(train_settings(settings, 0), model)
        precision_of(training.precision, model.device)
        settings = replace(settings, training={**settings.training, "learning_rate": training.learning_rate})
        facts: dict[str, Any] = {
            "collection": {"name": collection.name, "digest": collection.measured_digest},
            "model": {"name": name, "fingerprint": _encoder(model, name, settings, device).fingerprint},
            "settings": settings.of_a_training(),
            "unlabelled": settings.unlabelled,
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
        cell = cls(folder, facts, collection, name, sources, settings, device)
        for source in sources:
            make_loss(training.loss, model, cell.rows(source, 0), settings=training.loss_settings)
        return cell

    def run(self, store: VectorStore) -> None:
        """Write down what is asked for, score all sources of the cell, train on those of this call, and measure."""
        write_cell(self.folder, self.facts)
        for name, digest in self.facts["sources"].items():
            if not (path := source_file(self.folder, name, digest)).is_file():
                self.sources[name].write(path)
        self.score(store)
        self.train_all()

    def score(self, store: VectorStore) -> None:
        """Write the predictors of every source of the cell, unless they are there."""
        path = self.folder / "scores.json"
        known = read_json(path, SCORES) if path.is_file() else {"of": {}, "sources": {}}
        settings = self._options(known["of"])
        digests = known_sources(self.folder)
        there = {name: digest for name, digest in digests.items() if source_file(self.folder, name, digest).is_file()}
        names = ("unlabelled", "estimate_with", "probe")
        basis = {"sources": there, **{name: getattr(settings, name) for name in names}}
        if known["of"] == basis:
            return
        sources = {name: self._table(name, digest) for name, digest in there.items()}
        encoder = self._load_encoder()
        scoring = ScoreSettings(split=settings.split, hybrids=1, temperature=settings.temperature, replicates=0)
        scores = score_sources(self.collection, sources, encoder, store, scoring)
        recaptures = {name: Recapture.of(negatives.provenance) for name, negatives in sources.items()}
        unlabelled = settings.unlabelled
        if unlabelled is None:
            better = scores
            if settings.estimate_with is not None:
                estimator = load_encoder(settings.estimate_with, encoder.settings)
                better = score_sources(self.collection, sources, estimator, store, scoring)
            unlabelled = estimate_unlabelled(better.measured, recaptures)
        predicted = predict(scores, recaptures, unlabelled, decided_benefits(scores, sources, encoder, store, settings))
        for name, value in self._probed(sources, settings, known).items():
            predicted[name]["probe"] = value
        recaptured = {name: vars(each) for name, each in recaptures.items() if each}
        finite = None if np.isnan(unlabelled) else unlabelled
        predictors = {**known["sources"], **predicted}  # of sources whose rows are gone, as they were
        write_sealed(path, {"of": basis, "unlabelled": finite, "recapture": recaptured, "sources": predictors})

    def _options(self, before: Mapping[str, Any]) -> StudySettings:
        """Return the settings, with the options of the call before where this one leaves them open."""
        kinds: dict[str, Any] = {"unlabelled": (int, float), "estimate_with": str, "probe": str}
        open_ones = [name for name in kinds if getattr(self.settings, name) is None]
        kept = {name: before[name] for name in open_ones if isinstance(before.get(name), kinds[name])}
        return replace(self.settings, **kept)

    def _table(self, name: str, digest: str) -> Negatives:
        if name in self.sources:
            return self.sources[name]
        path = source_file(self.folder, name, digest)
        negatives = Negatives.read(path)
        if table_digest(negatives) != digest:
            raise FormatError(f"not the rows that {name} was trained on; remove it, or give that source again", path)
        return negatives

    def _probed(
        self, sources: Mapping[str, Negatives], settings: StudySettings, known: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return source → value of the probe; what the same probe found in an earlier call is not done again."""
        from foils.studies.probe import probe

        if settings.probe is None:
            return {}
        same = known["sources"] if known["of"].get("probe") == settings.probe else {}
        probed = {name: same[name]["probe"] for name in sources if "probe" in same.get(name, {})}
        missing = {name: negatives for name, negatives in sources.items() if name not in probed}
        return {**probed, **probe(self.collection, missing, settings, settings.probe, device=self.device)}

    def _load_encoder(self) -> SentenceEncoder:
        return _encoder(self._untrained(), self.model, self.settings, self.device)

    def _untrained(self) -> Any:
        from foils.training.models import load_trainable

        return load_trainable(self.model, device=self.device, similarity=self.settings.similarity)

    def train_all(self) -> None:
        """Train on every source with every seed, seed by seed, and measure; skip what is there."""
        names = [*(BASELINES if self.settings.baselines else ()), *self.sources]
        jobs = [(name, seed) for seed in range(self.settings.seeds) for name in names]
        with progress.task(f"trainings of {self.model}", total=len(jobs), unit="trainings") as advance:
            for name, seed in jobs:
                path = trained_file(self.folder, name, self.facts["sources"].get(name, ""), seed)
                if not path.is_file():
                    with progress.quiet():
                        write_sealed(path, self._trained(name, seed, path.with_suffix("")))
                advance(1)

    def rows(self, name: str, seed: int) -> TrainingSet:
        """Return what a seed trains on, of a source or of pairs alone."""
        from foils.training.data import training_set

        settings = self.settings
        drawn = drawn_queries(self.collection, settings.split, settings.queries, seed)
        return training_set(
            drawn,
            self.sources.get(name),
            split=settings.split,
            form="pairs" if name == IN_BATCH else "triplets",
            per_query=settings.per_query,
            max_positives=1,
        )

    def _trained(self, name: str, seed: int, checkpoints: Path) -> dict[str, Any]:
        """Train and measure once; the checkpoints are gone afterwards."""
        from foils.training.bi_encoder import train_bi_encoder

        start, settings = time.perf_counter(), self.settings
        model, facts = self._untrained(), dict[str, Any]()
        training = train_settings(settings, seed)
        if training.checkpoint_steps is None:
            training = replace(training, checkpoint_steps=CHECKPOINT_STEPS)
        if name != UNTRAINED:
            data = self.rows(name, seed)
            if name == IN_BATCH and settings.per_query:  # as many steps as with negatives
                training = replace(training, epochs=training.epochs * settings.per_query)
            trained = train_bi_encoder(
                model, data, checkpoints, settings=training, batches=settings.batches, resume=True
            )
            losses = [entry["loss"] for entry in trained.history if "loss" in entry]
            facts = {"rows": len(data), "steps": trained.steps, "loss_first": losses[0], "loss_last": losses[-1]}
        elif training.max_length is not None and model.max_seq_length not in (None, float("inf")):
            model.max_seq_length = training.max_length
        measured = measure_encoder(model, self.collection, settings.test_split, settings.measures)
        shutil.rmtree(checkpoints, ignore_errors=True)
        return {
            "source": name, "seed": seed, **facts, "seconds": round(time.perf_counter() - start, 1),
            "measures": measured.means, "per_query": {m: v.tolist() for m, v in measured.per_query.items()},
        }  # fmt: skip


def _encoder(model: Any, name: str, settings: StudySettings, device: str | None) -> SentenceEncoder:
    """The model as it is before training, as the scores see it."""
    length = train_settings(settings, 0).max_length
    return SentenceEncoder(model, EncoderSettings(max_length=length, device=device), name=name)
