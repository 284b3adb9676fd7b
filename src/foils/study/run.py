"""A study: score sources, train on each with several seeds, measure. Killed, it goes on where it was."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils import progress
from foils.data import Collection, Negatives
from foils.data.sealed import write_sealed
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.errors import InputError
from foils.mine.fuse import fuse
from foils.score import ScoreSettings, score_sources
from foils.study.benefit import Recapture
from foils.study.cells import (
    BASELINES,
    IN_BATCH,
    SCORES,
    UNTRAINED,
    cell_folder,
    read_json,
    trained_file,
    write_cell,
)
from foils.study.measuring import measure_encoder
from foils.study.predictors import predict
from foils.study.settings import StudySettings
from foils.study.training import train_encoder
from foils.study.unlabelled import estimate_unlabelled

if TYPE_CHECKING:
    from foils.train.settings import TrainSettings

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

    Args:
        study: the folder of the study, made where it is not.
        collection: with judgements to train and to test on.
        sources: name → negatives, two at least.
        models: what to train: names that `foils.train.models.load_trainable` knows.
        store: of vectors, for the scores.
        settings: see `StudySettings`.
        device: to train on, as torch names it.

    Returns:
        The folders of the cells.

    Raises:
        InputError: fewer than two sources, a name that is a baseline's, settings out of range.
        UnknownNameError: an unknown split, loss or way of batching.
    """
    settings = settings or StudySettings()
    for split in (settings.split, settings.test_split):
        collection.judgements(split)
    given = study_sources(sources, settings)
    digests = {name: table_digest(negatives) for name, negatives in given.items()}
    cells = []
    for name in models:
        cell = _Cell.opened(study, collection, name, given, digests, settings, device)
        cell.score(store)
        cell.train_all()
        cells.append(cell.folder)
    return cells


def study_sources(sources: Mapping[str, Negatives], settings: StudySettings) -> dict[str, Negatives]:
    """Return the sources as they are scored and trained on: hybrids added, lists cut to `per_query` kept rows.

    A hybrid takes turns between its parts, so that it is no larger than they are.
    """
    if len(sources) < 2:
        raise InputError(f"{len(sources)} source; a study compares two at least")
    if taken := sorted(set(sources) & set(BASELINES)):
        raise InputError(f"the name {taken[0]!r} is a baseline's; give the source another")
    found = {name: _whole(_cut(negatives, settings.per_query)) for name, negatives in sources.items()}
    for parts in range(2, settings.hybrids + 1):
        for names in combinations(sources, parts):
            lists = {name: Negatives(found[name].kept()) for name in names}  # what one rejects, another may take
            joined = fuse(lists, method="interleave", top=settings.per_query)
            recapture = Recapture.joined([Recapture.of(found[name].provenance) for name in names])
            made = {**joined.provenance, **({"recapture": vars(recapture)} if recapture else {})}
            found[" & ".join(names)] = Negatives(joined.table, made)
    return found


def _cut(negatives: Negatives, per_query: int | None) -> Negatives:
    if per_query is None:
        return negatives
    query = np.asarray(negatives.table["query_id"].combine_chunks().dictionary_encode().indices)
    rank, keep = np.asarray(negatives.table["rank"]), negatives.keep
    order = np.lexsort((rank, ~keep, query))
    starts = np.searchsorted(query[order], query[order])
    beyond = np.zeros(len(negatives), bool)
    beyond[order] = np.arange(len(order)) - starts >= per_query
    return negatives.reject(beyond & keep, f"after the first {per_query}")


def _whole(negatives: Negatives) -> Negatives:
    """The table, without its recapture where rows were rejected since it was counted: it was that of other rows."""
    recapture = Recapture.of(negatives.provenance)
    if recapture is None or recapture.kept == negatives.keep.sum():
        return negatives
    told = {name: value for name, value in negatives.provenance.items() if name != "recapture"}
    return Negatives(negatives.table, told)


def table_digest(negatives: Negatives) -> str:
    """Return a digest of the kept rows: queries, documents, ranks, weights."""
    kept = negatives.kept()
    names = [name for name in ("query_id", "doc_id", "rank", "weight") if name in kept.column_names]
    hasher = hashlib.blake2b(digest_size=5)
    for name in names:
        for value in kept[name].to_pylist():
            hasher.update(f"{value}\x1f".encode())
    return hasher.hexdigest()


def drawn_queries(collection: Collection, split: str, count: int | None, seed: int) -> Collection:
    """Return the collection with the judgements of `count` queries of a split, drawn by the seed; None: all."""
    positives = collection.positives(split)
    if count is None or count >= len(positives):
        return collection
    drawn = np.sort(np.random.default_rng([seed, 11]).permutation(len(positives))[:count])
    ids = collection.queries["query_id"].take(pa.array(positives.query_rows[drawn]))
    table = collection.qrels[split]
    chosen = pc.is_in(table["query_id"], value_set=ids.combine_chunks().cast(table["query_id"].type))
    return replace(collection, qrels={**collection.qrels, split: table.filter(chosen)})


@dataclass(frozen=True)
class _Cell:
    """One collection and one model, at work."""

    folder: Path
    collection: Collection
    model: str
    encoder: SentenceEncoder
    sources: Mapping[str, Negatives]
    digests: Mapping[str, str]
    settings: StudySettings
    device: str | None

    @classmethod
    def opened(
        cls,
        study: Path,
        collection: Collection,
        name: str,
        sources: Mapping[str, Negatives],
        digests: Mapping[str, str],
        settings: StudySettings,
        device: str | None,
    ) -> _Cell:
        from foils.train.models import load_trainable

        training = train_settings(settings, 0)
        model = load_trainable(name, device=device)
        encoder = SentenceEncoder(model, EncoderSettings(max_length=training.max_length, device=device), name=name)
        of_collection = {"name": collection.name, "digest": collection.measured_digest}
        of_model = {"name": name, "fingerprint": encoder.fingerprint}
        folder = cell_folder(study, of_collection, of_model, settings.of_a_training())
        facts = {
            "collection": of_collection, "model": of_model, "settings": settings.of_a_training(),
            "unlabelled": settings.unlabelled, "sources": dict(digests),
        }  # fmt: skip
        write_cell(folder, facts)
        return cls(folder, collection, name, encoder, sources, digests, settings, device)

    def score(self, store: VectorStore) -> None:
        """Write the predictors of every source, unless they are there."""
        path, settings = self.folder / "scores.json", self.settings
        names = ("unlabelled", "estimate_with", "probe")
        asked = {"sources": dict(self.digests), **{name: getattr(settings, name) for name in names}}
        if path.is_file() and read_json(path, SCORES)["of"] == asked:
            return
        scoring = ScoreSettings(split=settings.split, hybrids=1, temperature=settings.temperature, replicates=0)
        scores = score_sources(self.collection, self.sources, self.encoder, store, scoring)
        recaptures = {name: Recapture.of(negatives.provenance) for name, negatives in self.sources.items()}
        unlabelled = settings.unlabelled
        if unlabelled is None:
            better = scores
            if settings.estimate_with is not None:
                encoder = load_encoder(settings.estimate_with, self.encoder.settings)
                better = score_sources(self.collection, self.sources, encoder, store, scoring)
            unlabelled = estimate_unlabelled(better.measured, recaptures)
        found = predict(scores, recaptures, unlabelled)
        if settings.probe:
            for name, value in self._probe().items():
                found[name]["probe"] = value
        told = {name: vars(each) for name, each in recaptures.items() if each}
        finite = None if np.isnan(unlabelled) else unlabelled
        write_sealed(path, {"of": asked, "unlabelled": finite, "recapture": told, "sources": found})

    def _probe(self) -> dict[str, float]:
        from foils.study.probe import probe

        assert self.settings.probe is not None
        return probe(self.collection, self.sources, self.settings, self.settings.probe, device=self.device)

    def train_all(self) -> None:
        """Train on every source with every seed, seed by seed, and measure; skip what is there."""
        names = [*(BASELINES if self.settings.baselines else ()), *self.sources]
        jobs = [(name, seed) for seed in range(self.settings.seeds) for name in names]
        with progress.task(f"trainings of {self.model}", total=len(jobs), unit="trainings") as advance:
            for name, seed in jobs:
                path = trained_file(self.folder, name, self.digests.get(name, ""), seed)
                if not path.is_file():
                    with progress.quiet():
                        write_sealed(path, self._trained(name, seed, path.with_suffix("")))
                advance(1)

    def _trained(self, name: str, seed: int, checkpoints: Path) -> dict[str, Any]:
        """Train and measure once; the checkpoints are gone afterwards."""
        from foils.train.data import training_set
        from foils.train.models import load_trainable

        start, settings = time.perf_counter(), self.settings
        model, told = load_trainable(self.model, device=self.device), {}
        training = train_settings(settings, seed)
        if name != UNTRAINED:
            drawn = drawn_queries(self.collection, settings.split, settings.queries, seed)
            data = training_set(
                drawn,
                self.sources.get(name),
                split=settings.split,
                form="pairs" if name == IN_BATCH else "triplets",
                per_query=settings.per_query,
                max_positives=1,
            )
            if name == IN_BATCH and settings.per_query:  # as many steps as with negatives
                training = replace(training, epochs=training.epochs * settings.per_query)
            trained = train_encoder(model, data, checkpoints, settings=training, batches=settings.batches, resume=True)
            losses = [entry["loss"] for entry in trained.history if "loss" in entry]
            told = {"rows": len(data), "steps": trained.steps, "loss_first": losses[0], "loss_last": losses[-1]}
        elif training.max_length is not None and model.max_seq_length not in (None, float("inf")):
            model.max_seq_length = training.max_length
        measured = measure_encoder(model, self.collection, settings.test_split, settings.measures)
        shutil.rmtree(checkpoints, ignore_errors=True)
        return {
            "source": name, "seed": seed, **told, "seconds": round(time.perf_counter() - start, 1),
            "measures": measured.means, "per_query": {m: v.tolist() for m, v in measured.per_query.items()},
        }  # fmt: skip


def train_settings(settings: StudySettings, seed: int) -> TrainSettings:
    """Return the settings of one training.

    Raises:
        InputError: a setting that does not exist, is the study's own, or is out of range.
    """
    from dataclasses import fields

    from foils.train.settings import TrainSettings

    own = {"seed", "loss_settings"}
    known = {each.name for each in fields(TrainSettings)} - own
    if unknown := sorted(set(settings.training) - known):
        raise InputError(f"training settings {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    chosen = {"checkpoint_steps": CHECKPOINT_STEPS, **settings.training}
    return TrainSettings(**chosen, seed=seed, loss_settings={"temperature": settings.temperature})
