"""Encoders: mined and decided with themselves, trained on triplets, measured by exact search."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.evaluation import dense_run
from foils.evaluation.measuring import encoder_score
from foils.tuning.parts import dev_part, fitting, kept_part
from foils.tuning.plan import Section
from foils.tuning.settings import BASE, MEASURE, MEASURES, OF_LOADING, OF_TRAINING, TUNED, some_of

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.settings import TrainSettings

DEPTH = 100
SAMPLE_TEXTS = 32  # embedded for the pace


@dataclass(frozen=True)
class Encoders:
    """Bi-encoders (see `foils.tuning.kinds`).

    Attributes:
        given: section [given] of the plan. `store`: of the base's vectors. `device`: as torch names it.
    """

    given: Section
    store: VectorStore
    device: str | None = None

    measures: ClassVar[tuple[str, ...]] = MEASURES
    depth: ClassVar[int] = 0
    knows: ClassVar[bool] = True
    in_row: ClassVar[int] = 1
    top: ClassVar[int] = 10
    sources: ClassVar[tuple[str, ...]] = ("random", "bm25", "dense", "dense 10-20", "dense 20-30", "dense 50-60")
    starts: ClassVar[str] = "encoder"
    in_batch: ClassVar[bool] = True
    least: ClassVar[str] = ""
    label: ClassVar[str] = BASE
    before: ClassVar[str] = "the model as it is"

    @property
    def base(self) -> str:
        """The model's name."""
        return str(self.given["model"])

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model as it is."""
        return cut_encoder(self.base, self.given.get("max_length"), **self._loading)

    @property
    def _loading(self) -> dict[str, Any]:
        """How models are loaded."""
        return {"device": self.device, **some_of(self.given, OF_LOADING)}

    @cached_property
    def static(self) -> bool:
        """Whether the model is a static embedding."""
        return self._kind == "static embedding"

    @cached_property
    def _kind(self) -> str:
        from foils.training.models import kind_of

        return kind_of(self.encoder.model)

    @property
    def few_steps(self) -> float:
        """Three for an encoder, whose default is a rate of long trainings; those of others were found on short ones."""
        return 3.0 if self._kind == "encoder" and not self.given.get("lora") else 1.0

    @property
    def per_query(self) -> int:
        """Ten with a static embedding, whose steps cost next to nothing."""
        return 10 if self.static else 1

    def of(self) -> dict[str, str]:
        """The model's fingerprint."""
        return {"model": self.encoder.fingerprint}

    def load(self, model: str | Path | None = None) -> Any:
        """Load it, to be trained or measured."""
        from foils.training.models import load_trainable

        loaded, length = load_trainable(model or self.base, **self._loading), self.given.get("max_length")
        if length is not None and loaded.max_seq_length not in (None, float("inf")):
            loaded.max_seq_length = min(length, loaded.max_seq_length)
        return loaded

    def learning_rate(self) -> float:
        """That of the model's kind."""
        from foils.training.adapters import transformer_of
        from foils.training.models import learning_rate_of

        model, settings = self.load(), some_of(self.given, OF_TRAINING)
        for each in settings:
            transformer_of(model, each)
        return learning_rate_of(model, lora="lora" in settings)

    def data(self, collection: Collection, negatives: Negatives | None, rows: Section) -> TrainingSet:
        """Triplets or, without mined negatives, pairs."""
        from foils.training.data import training_set

        per_query = int(rows["per_query"]) if negatives is not None else None
        return training_set(collection, negatives, per_query=per_query, max_positives=int(rows["max_positives"]))

    def training(self, **how: Any) -> TrainSettings:
        """In-batch negatives count (MNRL)."""
        from foils.training.settings import TrainSettings

        how |= some_of(self.given, OF_TRAINING)
        return TrainSettings(max_length=self.given.get("max_length"), matryoshka=self.cuts or None, **how)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Dimensions at which vectors may be cut."""
        return tuple(int(each) for each in self.given.get("matryoshka") or ())

    def fit(self, model: Any, data: TrainingSet, folder: Path, settings: TrainSettings, way: str, **more: Any) -> Any:
        """Train with sentence-transformers."""
        from foils.training.bi_encoder import train_bi_encoder

        return train_bi_encoder(model, data, folder, settings=settings, batches=way, resume=True, **more)

    def embedding(self, collection: Collection) -> float:
        """None: the budget counts what the model embeds."""
        return 0.0

    def seconds_a_text(self, model: Any, collection: Collection, seed: int) -> float:
        """Embed a few documents."""
        return seconds_of_embedding(model, collection, seed)

    def part(self, collection: Collection, documents: Section, seed: int) -> Collection:
        """Some of its documents and training queries."""
        counts = {"documents": int(documents["count"]), "queries": int(documents["train_queries"])}
        return fitting(collection, **counts, seed=seed)

    def dev_part(self, collection: Collection, documents: int, seed: int) -> Collection:
        """Queries of dev, and a part of the documents."""
        return dev_part(collection, documents, seed)

    def elsewhere(self) -> Encoders:
        """In the same way."""
        return self

    def kept_part(self, collection: Collection, documents: int, seed: int) -> Collection:
        """Queries of dev and test, and a part of the documents."""
        return kept_part(collection, documents, seed)

    def base_dev(self, part: Collection) -> float:
        """Search dev with the model as it is."""
        return self.dev(self.load(), part)

    def dev(self, model: Any, part: Collection) -> float:
        """Search dev, all of it or the half of a kept part."""
        return encoder_score(part, "dev", MEASURE)(model)

    def base_run(self, collection: Collection, dimensions: int | None = None) -> Run:
        """Search test with the model as it is; vectors may be cut."""
        how: dict[str, Any] = {"depth": DEPTH, "dimensions": dimensions}
        return dense_run(self.encoder, collection, "test", store=self.store, name=BASE, **how)

    def first_stage(self, collection: Collection) -> None:
        """None: encoders search by themselves."""

    def run(self, folder: Path, collection: Collection, own: VectorStore, dimensions: int | None = None) -> Run:
        """Search test with the model in the folder, which keeps the length that it was trained with."""
        from foils.encode.models import load_model

        settings = replace(self.encoder.settings, max_length=None)
        encoder = SentenceEncoder(load_model(folder, **self._loading), settings, name=TUNED)
        return dense_run(encoder, collection, "test", depth=DEPTH, store=own, name=TUNED, dimensions=dimensions)


def cut_encoder(
    name: str, length: int | None, device: str | None, *, trust_remote_code: bool = False
) -> SentenceEncoder:
    """Load an encoder whose texts are cut after so many tokens, or fewer where it takes no more."""
    from foils.encode.models import load_model

    how: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    model = load_model(name, **how)
    own = model.max_seq_length
    length = length if length is None or own in (None, float("inf")) else min(int(length), int(own))
    return SentenceEncoder(model, EncoderSettings(max_length=length, **how), name=BASE)


def seconds_of_embedding(model: Any, collection: Collection, seed: int) -> float:
    """Return the seconds that a SentenceTransformer takes for a document."""
    rows = np.random.default_rng([seed, 3]).integers(len(collection.documents), size=2 * SAMPLE_TEXTS)
    texts = collection.document_texts(rows)
    model.encode_document(texts[:SAMPLE_TEXTS], batch_size=16, show_progress_bar=False)
    begin = time.perf_counter()
    model.encode_document(texts[SAMPLE_TEXTS:], batch_size=16, show_progress_bar=False)
    return (time.perf_counter() - begin) / SAMPLE_TEXTS
