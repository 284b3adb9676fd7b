"""What is trained and how it is measured: encoders by exact search, rerankers by the order they give a first stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.data.fusion import FUSED_DEPTH
from foils.encode import EmbeddingSettings, EncoderSettings, SentenceEncoder, VectorStore
from foils.encode.cross_encoders import cross_encoder_digest, has_drawn_weights, load_cross_encoder, logits
from foils.encode.models import DEFAULT_MODEL, STATIC, load_model
from foils.evaluation import (
    dense_run,
    first_documents,
    named_systems,
    rerank_run,
    runs_of,
)
from foils.experiments.cache import digest_of
from foils.runtime.files import cache_folder, file_digest

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.fit import TrainingRun
    from foils.training.settings import TrainSettings

BM25 = "bm25"
UNTRAINED, IN_BATCH, FIRST_STAGE = "untrained", "in-batch negatives", "first stage"
BASELINES = (UNTRAINED, IN_BATCH, FIRST_STAGE)
MEASURES = ("nDCG@10", "RR@10", "R@100")
SEARCH_DEPTH, RERANK_DEPTH = FUSED_DEPTH, 50
"""Documents of each query that an encoder returns, and that a reranker scores."""


class Task(Protocol):
    """A model to train, and what differs between encoders and rerankers.

    Attributes:
        model: name or folder of the model. `device`: torch device. `max_length`: tokens after which texts are cut.
        measures: what is measured where nothing else is asked for; the first decides.
        baselines: names of what is measured beside trained models.
        depth: documents of each query that a ranking has.
        in_batch: whether the other rows of a batch are negatives, too.
    """

    model: str
    device: str | None
    max_length: int | None
    measures: ClassVar[tuple[str, ...]]
    baselines: ClassVar[tuple[str, ...]]
    depth: ClassVar[int]
    in_batch: ClassVar[bool]

    @property
    def kind(self) -> str:
        """Kind of model, as `foils.training.models.kind_of` tells it."""
        ...

    @property
    def init(self) -> str:
        """What training starts from: `encoder`, a model that can rank already, or `nothing`."""
        ...

    @property
    def fingerprint(self) -> str:
        """Digest of the model's weights and settings."""
        ...

    @property
    def encoder(self) -> SentenceEncoder:
        """What mines and decides."""
        ...

    def form(self, *, mined: bool) -> str:
        """Return the form of training rows, with mined negatives or without."""
        ...

    def load(self, folder: str | Path | None = None, *, seed: int = 0) -> Any:
        """Load the model, or one that was trained from it; weights that its files lack are drawn from the seed."""
        ...

    def fit(
        self, model: Any, data: TrainingSet, folder: Path, settings: TrainSettings, batches: str, **more: Any
    ) -> TrainingRun:
        """Train; a training that was interrupted goes on from its checkpoint in the folder."""
        ...

    def untrained(self, collection: Collection, split: str, *, dimensions: int | None = None) -> Run:
        """Return the ranking without any training: the model's as it is; of rerankers, the first stage's."""
        ...

    def search(
        self,
        model: Any,
        collection: Collection,
        split: str,
        *,
        store: VectorStore | None = None,
        dimensions: int | None = None,
    ) -> Run:
        """Return the ranking of a loaded model."""
        ...


@dataclass(frozen=True)
class EncoderTask:
    """A bi-encoder: trained with in-batch negatives, measured by exact search over the whole collection."""

    model: str
    device: str | None = None
    max_length: int | None = 128
    trust_remote_code: bool = False
    store: VectorStore | None = None

    measures: ClassVar[tuple[str, ...]] = MEASURES
    baselines: ClassVar[tuple[str, ...]] = (UNTRAINED, IN_BATCH)
    depth: ClassVar[int] = SEARCH_DEPTH
    in_batch: ClassVar[bool] = True

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model as it is."""
        return cut_encoder(self.model, self.max_length, self.device, trust_remote_code=self.trust_remote_code)

    @cached_property
    def kind(self) -> str:
        """Static embedding, encoder or language model."""
        from foils.training.models import kind_of

        return kind_of(self.encoder.model)

    @property
    def init(self) -> str:
        """A language model that nobody trained to embed starts from nothing."""
        return "nothing" if self.kind == "language model" else "encoder"

    @property
    def fingerprint(self) -> str:
        """The encoder's."""
        return self.encoder.fingerprint

    def form(self, *, mined: bool) -> str:
        """Return triplets or, without mined negatives, pairs."""
        return "triplets" if mined else "pairs"

    def load(self, folder: str | Path | None = None, *, seed: int = 0) -> Any:
        """Load a SentenceTransformer, texts cut as in training; nothing of it is drawn."""
        from foils.training.models import load_trainable

        how: dict[str, Any] = {"device": self.device, "trust_remote_code": self.trust_remote_code}
        model = load_trainable(folder or self.model, **how)
        if self.max_length is not None and model.max_seq_length not in (None, float("inf")):
            model.max_seq_length = min(self.max_length, int(model.max_seq_length))
        return model

    def fit(
        self, model: Any, data: TrainingSet, folder: Path, settings: TrainSettings, batches: str, **more: Any
    ) -> TrainingRun:
        """Train with sentence-transformers."""
        from foils.training.bi_encoder import train_bi_encoder

        return train_bi_encoder(model, data, folder, settings=settings, batches=batches, resume=True, **more)

    def untrained(self, collection: Collection, split: str, *, dimensions: int | None = None) -> Run:
        """Search with the model as it is."""
        return self.search(self.encoder, collection, split, store=self.store, dimensions=dimensions)

    def search(
        self,
        model: Any,
        collection: Collection,
        split: str,
        *,
        store: VectorStore | None = None,
        dimensions: int | None = None,
    ) -> Run:
        """Search all documents exactly; vectors may be cut to their first dimensions."""
        return dense_run(model, collection, split, depth=self.depth, store=store, dimensions=dimensions)


@dataclass(frozen=True)
class RerankerTask:
    """A cross-encoder: trained on lists, measured by the order that it gives the first documents of a first stage.

    Attributes:
        first_stage: bm25, an encoder's name, a TREC run or a `Run`.
    """

    model: str
    device: str | None = None
    max_length: int | None = 128
    trust_remote_code: bool = False
    store: VectorStore | None = None
    first_stage: str | Path | Run = BM25
    _first_stages: dict[tuple[str, str], Run] = field(default_factory=dict, repr=False, compare=False)

    measures: ClassVar[tuple[str, ...]] = MEASURES[:2]  # it sees the first documents alone
    baselines: ClassVar[tuple[str, ...]] = (FIRST_STAGE,)
    depth: ClassVar[int] = RERANK_DEPTH
    in_batch: ClassVar[bool] = False
    kind: ClassVar[str] = "reranker"

    @cached_property
    def init(self) -> str:
        """A model whose weights depend on the seed has a head that nobody trained, and starts from nothing."""
        return "nothing" if has_drawn_weights(lambda seed: self.load(seed=seed)) else "encoder"

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The first stage, where that is an encoder, or the word table of all-MiniLM-L6-v2, which costs little."""
        return self._searcher or cut_encoder(f"{STATIC}{DEFAULT_MODEL}", None, self.device)

    @cached_property
    def _searcher(self) -> SentenceEncoder | None:
        """The first stage, where it is an encoder; texts are not cut, as a search does not cut them."""
        if named_systems([self.first_stage])[0].kind != "encoder":
            return None
        return cut_encoder(str(self.first_stage), None, self.device, trust_remote_code=self.trust_remote_code)

    @cached_property
    def fingerprint(self) -> str:
        """The digest of the model with the head of seed 0."""
        return cross_encoder_digest(self.load())

    @cached_property
    def ranked_by(self) -> str:
        """What reranking depends on: the first stage, by the contents of its file where it is one."""
        given = self.first_stage
        if isinstance(given, Run):
            rows = [given.table[name].to_pylist() for name in ("query_id", "doc_id")]
            return f"{given.name} {digest_of(rows)} {self.depth}"
        return f"{given} {file_digest(given) if Path(given).is_file() else ''} {self.depth}"

    def form(self, *, mined: bool) -> str:
        """Return lists."""
        return "lists"

    def load(self, folder: str | Path | None = None, *, seed: int = 0) -> Any:
        """Load a CrossEncoder, a head that its files lack drawn from the seed."""
        how: dict[str, Any] = {"device": self.device, "trust_remote_code": self.trust_remote_code, "seed": seed}
        model = load_cross_encoder(folder or self.model, new_head=True, **how)
        if self.max_length is not None:
            model.max_seq_length = min(self.max_length, int(model.max_seq_length or self.max_length))
        return model

    def fit(
        self, model: Any, data: TrainingSet, folder: Path, settings: TrainSettings, batches: str, **more: Any
    ) -> TrainingRun:
        """Train with sentence-transformers; batches are random, for lists do not meet in a batch."""
        from foils.training.reranker import train_reranker

        settings = replace(settings, max_length=int(model.max_seq_length or self.max_length or 512))
        return train_reranker(model, data, folder, settings=settings, resume=True, **more)

    def untrained(self, collection: Collection, split: str, *, dimensions: int | None = None) -> Run:
        """Return the first documents of each query, as the first stage orders them."""
        key = (collection.measured_digest, split)
        if key not in self._first_stages:
            self._first_stages[key] = self._searched(collection, split)
        return self._first_stages[key]

    def _searched(self, collection: Collection, split: str) -> Run:
        use = EmbeddingSettings(device=self.device, vectors=self.store or VectorStore(cache_folder() / "vectors"))
        depths = {"top": self.depth, "rerank_depth": self.depth}
        run = runs_of(named_systems([self._searcher or self.first_stage]), collection, use, split=split, **depths)[0]
        return first_documents(run, collection, self.depth, split=split)

    def search(
        self,
        model: Any,
        collection: Collection,
        split: str,
        *,
        store: VectorStore | None = None,
        dimensions: int | None = None,
    ) -> Run:
        """Rerank what the first stage returns."""
        return rerank_run(self.untrained(collection, split), collection, partial(logits, model), depth=self.depth)


def rows_of(
    task: Task,
    collection: Collection,
    negatives: Negatives | None,
    *,
    per_query: int | None,
    max_positives: int,
    split: str = "train",
) -> TrainingSet:
    """Return what a task trains on: the positives of a split with their negatives, or pairs alone."""
    from foils.training.data import training_set

    form, per_query = task.form(mined=negatives is not None), per_query if negatives is not None else None
    how: dict[str, Any] = {"split": split, "form": form, "per_query": per_query, "max_positives": max_positives}
    return training_set(collection, negatives, **how)


def losses_of(run: TrainingRun) -> dict[str, float]:
    """Return the loss at the beginning of a training and at its end; the same where one was noted."""
    losses = [entry["loss"] for entry in run.history if "loss" in entry]
    return {"loss_first": losses[0], "loss_last": losses[-1]}


def learned_nothing(task: Task, losses: Mapping[str, float], per_query: int) -> str:
    """Say that a reranker's loss stayed at that of a guess, ln(1 + negatives); empty where it did not."""
    guess = float(np.log(1 + per_query))
    if task.in_batch or losses["loss_last"] < 0.98 * guess:
        return ""
    return (
        f"the reranker learned nothing: its loss went from {losses['loss_first']:.3f} to {losses['loss_last']:.3f}, "
        f"and a guess among {1 + per_query} documents has {guess:.3f}; train longer, or with a larger learning rate"
    )


def cut_encoder(
    name: str, length: int | None, device: str | None, *, trust_remote_code: bool = False
) -> SentenceEncoder:
    """Load an encoder whose texts are cut after so many tokens, or fewer where it takes no more."""
    how: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    model = load_model(name, **how)
    own = model.max_seq_length
    length = length if length is None or own in (None, float("inf")) else min(int(length), int(own))
    return SentenceEncoder(model, EncoderSettings(max_length=length, **how), name=name)
