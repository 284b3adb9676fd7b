"""What a study trains and how it is measured: encoders by exact search, rerankers by the order they give a first stage.

The two kinds have the same attributes and methods: `baselines` is what is measured beside the sources, `untrained` the
one of them that needs no training, and `facts` what, beside the settings, tells a kind's trainings from others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from foils.data import Collection, Run
from foils.data.splitting import recurrence
from foils.encode import EncoderSettings, SentenceEncoder
from foils.evaluation import Measured, bm25_run, first_documents, measure_encoder, measure_rankings, measure_reranker
from foils.evaluation.measuring import qrels_of, rankings_of
from foils.scoring import DecisionSettings
from foils.studies.cells import FIRST_STAGE, IN_BATCH, UNTRAINED
from foils.studies.checks import train_settings
from foils.studies.settings import BM25, StudySettings

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.settings import TrainSettings
    from foils.training.trainer import TrainingRun


@dataclass(frozen=True)
class Encoders:
    """Bi-encoders: trained with in-batch negatives, measured by exact search over each collection.

    Attributes:
        settings: of the study.
        collections: to test on.
        device: as torch names it.
    """

    settings: StudySettings
    collections: Sequence[Collection]
    device: str | None = None

    baselines: ClassVar[tuple[str, ...]] = (UNTRAINED, IN_BATCH)
    untrained: ClassVar[str] = UNTRAINED
    facts: ClassVar[dict[str, str]] = {}

    def load(self, name: str, seed: int = 0) -> Any:
        """Return the model; nothing of it is drawn."""
        from foils.training.models import load_trainable

        return load_trainable(name, device=self.device, similarity=self.settings.similarity)

    def encoder(self, name: str) -> SentenceEncoder:
        """Return the model as it is before training, as the scores see it."""
        length = train_settings(self.settings, 0).max_length
        return SentenceEncoder(self.load(name), EncoderSettings(max_length=length, device=self.device), name=name)

    def fingerprint(self, name: str) -> str:
        """Return the fingerprint of the encoder."""
        return self.encoder(name).fingerprint

    def deciding(self, name: str, trained: Collection) -> DecisionSettings:
        """A batch, less the query's own row, is its in-batch negatives; a language model starts from nothing.

        Of what a static embedding learns of documents recurs what the study will see: the share of the test queries'
        relevant documents that are positives of training queries, none in other collections than the training's.
        """
        from foils.training.models import kind_of

        kind, in_batch = kind_of(self.load(name)), train_settings(self.settings, 0).batch_size - 1
        if kind == "language model":
            return DecisionSettings(in_batch=in_batch, starts="nothing")
        shares = [
            recurrence(each, self.settings.test_split, self.settings.split) or 0.0
            if each.digest == trained.digest
            else 0.0
            for each in self.collections
        ]
        static = kind == "static embedding"
        return DecisionSettings(in_batch=in_batch, recurrence=sum(shares) / len(shares) if static else 1.0)

    def form(self, source: str) -> str:
        """Return pairs for in-batch negatives alone, else triplets."""
        return "pairs" if source == IN_BATCH else "triplets"

    def check(self, model: Any, data: TrainingSet, training: TrainSettings) -> None:
        """Make the loss."""
        from foils.training.catalogue import make_loss

        make_loss(training.loss, model, data, settings=training.loss_settings)

    def fit(self, model: Any, data: TrainingSet, folder: Path, training: TrainSettings) -> TrainingRun:
        """Train; pairs alone take as many steps as triplets with `per_query` negatives would."""
        from foils.training.bi_encoder import train_bi_encoder

        if data.rows.shape[1] == 2 and self.settings.per_query:
            training = replace(training, epochs=training.epochs * self.settings.per_query)
        return train_bi_encoder(model, data, folder, settings=training, batches=self.settings.batches, resume=True)

    def measure(self, model: Any) -> list[Measured]:
        """Search each collection exactly."""
        split, measures = self.settings.test_split, self.settings.measured
        return [measure_encoder(model, each, split, measures) for each in self.collections]

    def measure_untrained(self, name: str) -> list[Measured]:
        """Search with the model as it is, texts cut as in training."""
        model, length = self.load(name), train_settings(self.settings, 0).max_length
        if length is not None and model.max_seq_length not in (None, float("inf")):
            model.max_seq_length = length
        return self.measure(model)


@dataclass(frozen=True)
class Rerankers:
    """Cross-encoders: trained on lists, measured by the order that they give the first documents of a run.

    Attributes:
        settings: of the study.
        collections: to test on.
        device: as torch names it.
        runs: of each collection, the first stage's documents of the test queries, as many of each as are reranked.
    """

    settings: StudySettings
    collections: Sequence[Collection]
    device: str | None = None
    runs: tuple[Run, ...] = field(init=False)

    baselines: ClassVar[tuple[str, ...]] = (FIRST_STAGE,)
    untrained: ClassVar[str] = FIRST_STAGE

    def __post_init__(self) -> None:
        settings, given = self.settings, self.settings.first_stage
        depth, split = settings.depth, settings.test_split
        runs = []
        for each in self.collections:
            if given is None or given == BM25:
                run = bm25_run(each, split, depth=depth)
            else:
                run = given if isinstance(given, Run) else Run.read(given)
            runs.append(first_documents(run, each, depth, split=split))
        object.__setattr__(self, "runs", tuple(runs))

    @property
    def facts(self) -> dict[str, str]:
        """The first stage's name, and a digest of what is reranked: queries, and their documents in order."""
        hasher = hashlib.blake2b(digest_size=5)
        for run in self.runs:
            for column in ("query_id", "doc_id"):
                for value in run.table[column].to_pylist():
                    hasher.update(f"{value}\x1f".encode())
        return {"first_stage": f"{self.runs[0].name} {hasher.hexdigest()}"}

    def load(self, name: str, seed: int = 0) -> Any:
        """Return the cross-encoder, a head that its files lack drawn from the seed."""
        from foils.encode.cross_encoders import load_cross_encoder

        return load_cross_encoder(name, device=self.device, new_head=True, seed=seed)

    def fingerprint(self, name: str) -> str:
        """Return the digest of the model with the head of seed 0."""
        from foils.encode.cross_encoders import cross_encoder_digest

        return cross_encoder_digest(self.load(name))

    def deciding(self, name: str, trained: Collection) -> DecisionSettings:
        """The loss is of the list alone; a model whose weights depend on the seed has a head that nobody trained."""
        from foils.encode.cross_encoders import cross_encoder_digest

        drawn = len({cross_encoder_digest(self.load(name, seed)) for seed in (0, 1)}) > 1
        return DecisionSettings(in_batch=0, starts="nothing") if drawn else DecisionSettings(in_batch=0, recurrence=1.0)

    def form(self, source: str) -> str:
        """Return lists."""
        return "lists"

    def check(self, model: Any, data: TrainingSet, training: TrainSettings) -> None:
        """Make the data set of the loss."""
        from foils.training.reranker import reranker_loss, reranker_set

        reranker_set(data, reranker_loss(training.loss, training.loss_settings))

    def fit(self, model: Any, data: TrainingSet, folder: Path, training: TrainSettings) -> TrainingRun:
        """Train on lists."""
        from foils.training.reranker import train_reranker

        return train_reranker(model, data, folder, settings=training, resume=True)

    def measure(self, model: Any) -> list[Measured]:
        """Rerank the first stage of each collection."""
        split, measures, depth = self.settings.test_split, self.settings.measured, self.settings.depth
        pairs = zip(self.collections, self.runs, strict=True)
        return [measure_reranker(model, each, split, run, measures, depth=depth) for each, run in pairs]

    def measure_untrained(self, name: str) -> list[Measured]:
        """Measure the first stage's own order."""
        split, measures = self.settings.test_split, self.settings.measured
        pairs = zip(self.collections, self.runs, strict=True)
        return [measure_rankings(rankings_of(run), qrels_of(each, split), measures) for each, run in pairs]


def kind_of_study(
    settings: StudySettings, collections: Sequence[Collection], device: str | None
) -> Encoders | Rerankers:
    """Return what a study trains.

    Args:
        settings: of the study.
        collections: to test on.
        device: as torch names it.

    Raises:
        InputError: a first stage that cannot be read or is of another collection.
    """
    return (Rerankers if settings.reranker else Encoders)(settings, collections, device)
