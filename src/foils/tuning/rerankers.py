"""Rerankers: trained on lists, measured by the order that they give a first stage's documents.

A reranker with a head that its files lack, as one from a masked language model, starts from nothing: it is measured
against the first stage's own order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foils.data import Collection, Negatives, Run
from foils.encode import EmbeddingSettings, SentenceEncoder, VectorStore
from foils.encode.cross_encoders import cross_encoder_digest, has_drawn_weights, load_cross_encoder, logits
from foils.encode.models import DEFAULT_MODEL, STATIC
from foils.evaluation import first_documents, measure_rankings
from foils.evaluation.measuring import qrels_of, rankings_of, rerank_run, reranker_score
from foils.evaluation.systems import BM25, named_systems, runs_of
from foils.runtime.files import file_digest
from foils.tuning.encoders import SAMPLE_TEXTS, cut_encoder, seconds_of_embedding
from foils.tuning.kept import Kept
from foils.tuning.parts import with_queries
from foils.tuning.plan import Section
from foils.tuning.settings import (
    BASE,
    FIRST_STAGE,
    MEASURE,
    OF_LOADING,
    OF_TRAINING,
    RERANK_DEPTH,
    RERANKING,
    TUNED,
    some_of,
)

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.settings import TrainSettings

NEGATIVES = 4


@dataclass(frozen=True)
class Rerankers:
    """Cross-encoders (see `foils.tuning.kinds`).

    Attributes:
        given: section [given] of the plan. `store`: of vectors of the first stage, and of the encoder that decides.
        kept: finished steps. `device`: as torch names it.
    """

    given: Section
    store: VectorStore
    kept: Kept
    device: str | None = None

    measures: ClassVar[tuple[str, ...]] = RERANKING
    static: ClassVar[bool] = False
    few_steps: ClassVar[float] = 1.0
    per_query: ClassVar[int] = NEGATIVES
    in_row: ClassVar[int] = NEGATIVES
    top: ClassVar[int] = NEGATIVES
    in_batch: ClassVar[bool] = False
    sources: ClassVar[tuple[str, ...]] = (
        "random", "bm25", "bm25 10-14", "bm25 20-24", "bm25 50-54", "bm25 100-104", "dense", "dense 20-24",
        "dense 100-104",
    )  # fmt: skip
    least: ClassVar[str] = "random"
    cuts: ClassVar[tuple[int, ...]] = ()

    @property
    def depth(self) -> int:
        """Documents of each query that are reranked."""
        return int(self.given.get("rerank_depth") or RERANK_DEPTH)

    @property
    def first(self) -> str:
        """Name of the first stage."""
        return str(self.given.get("first_stage") or BM25)

    @cached_property
    def fresh(self) -> bool:
        """Whether the head is drawn: then the weights depend on the seed."""
        return has_drawn_weights(lambda seed: self.load(seed=seed))

    @property
    def knows(self) -> bool:
        """Not with a head that nobody trained."""
        return not self.fresh

    @property
    def starts(self) -> str:
        """Nothing, with a head that nobody trained."""
        return "nothing" if self.fresh else "encoder"

    @property
    def base(self) -> str:
        """The model or, with a head that nobody trained, the order of the first stage."""
        return self.before if self.fresh else str(self.given["model"])

    @property
    def before(self) -> str:
        """The same, but that the model is not named."""
        return f"the order of {self.first}" if self.fresh else "the model as it is"

    @property
    def label(self) -> str:
        """The model, or the first stage."""
        return FIRST_STAGE if self.fresh else BASE

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """What `score_with` names, the first stage where that is an encoder, or the word table of all-MiniLM-L6-v2."""
        if named := self.given.get("score_with"):
            return cut_encoder(str(named), self.given.get("max_length"), **self._loading)
        return self._searcher or cut_encoder(f"{STATIC}{DEFAULT_MODEL}", None, self.device)

    @property
    def _loading(self) -> dict[str, Any]:
        """How models are loaded."""
        return {"device": self.device, **some_of(self.given, OF_LOADING)}

    @cached_property
    def _searcher(self) -> SentenceEncoder | None:
        """The first stage, where it is an encoder; texts are not cut, as a search does not cut them."""
        searching = named_systems([self.first])[0].kind == "encoder"
        return cut_encoder(self.first, None, **self._loading) if searching else None

    @cached_property
    def _of(self) -> dict[str, str]:
        digest = file_digest(self.first) if Path(self.first).is_file() else ""
        stage = f"{self.first} {digest} {self.depth}"
        return {"model": cross_encoder_digest(self.load()), "first_stage": stage, "encoder": self.encoder.fingerprint}

    def of(self) -> dict[str, str]:
        """Digest of the model, what it reranks, and fingerprint of the encoder that mines."""
        return self._of

    def load(self, model: str | Path | None = None, *, seed: int | None = None) -> Any:
        """Load it, a head that its files lack drawn from the seed."""
        seed = int(self.given["seed"]) if seed is None else seed
        how: dict[str, Any] = {**self._loading, "new_head": True, "seed": seed}
        loaded, length = load_cross_encoder(model or str(self.given["model"]), **how), self.given.get("max_length")
        if length is not None:
            loaded.max_seq_length = min(int(length), int(loaded.max_seq_length or length))
        return loaded

    def learning_rate(self) -> float:
        """That of a reranker of this width."""
        from foils.training.models import learning_rate_of

        return learning_rate_of(self.load(), lora=bool(self.given.get("lora")))

    def data(self, collection: Collection, negatives: Negatives | None, rows: Section) -> TrainingSet:
        """Lists of a positive and its negatives."""
        from foils.training.data import training_set

        per_query, positives = int(rows["per_query"]), int(rows["max_positives"])
        return training_set(collection, negatives, form="lists", per_query=per_query, max_positives=positives)

    def training(self, **how: Any) -> TrainSettings:
        """Learn the order of each list (listnet)."""
        from foils.training.settings import TrainSettings

        how |= some_of(self.given, OF_TRAINING)
        return TrainSettings(loss="listnet", max_length=self._length, **how)

    @cached_property
    def _length(self) -> int:
        return int(self.load().max_seq_length)

    def fit(self, model: Any, data: TrainingSet, folder: Path, settings: TrainSettings, way: str, **more: Any) -> Any:
        """Train with sentence-transformers; batches are random, for lists do not meet in a batch."""
        from foils.training.reranker import train_reranker

        return train_reranker(model, data, folder, settings=settings, resume=True, **more)

    def embedding(self, collection: Collection) -> float:
        """What embedding all documents for the first stage and the decision takes."""
        return len(collection.documents) * seconds_of_embedding(self.encoder.model, collection, 0)

    def seconds_a_text(self, model: Any, collection: Collection, seed: int) -> float:
        """Score a few pairs."""
        rng = np.random.default_rng([seed, 3])
        texts = collection.document_texts(rng.integers(len(collection.documents), size=2 * SAMPLE_TEXTS))
        queries = collection.query_texts(rng.integers(len(collection.queries), size=2 * SAMPLE_TEXTS))
        pairs = list(zip(queries, texts, strict=True))
        logits(model, pairs[:SAMPLE_TEXTS])
        begin = time.perf_counter()
        logits(model, pairs[SAMPLE_TEXTS:])
        return (time.perf_counter() - begin) / SAMPLE_TEXTS

    def part(self, collection: Collection, documents: Section, seed: int) -> Collection:
        """Some of its training and test queries; the first stage searches all documents."""
        return with_queries(collection, {name: int(documents[f"{name}_queries"]) for name in ("train", "test")}, seed)

    def dev_part(self, collection: Collection, documents: int, seed: int) -> Collection:
        """As many queries of dev as have so many documents together."""
        return self._queries(collection, {"dev": documents}, seed)

    def elsewhere(self) -> Rerankers:
        """With BM25 as the first stage: a run is of one collection."""
        return replace(self, given={**self.given, "first_stage": BM25})

    def kept_part(self, collection: Collection, documents: int, seed: int) -> Collection:
        """Queries of dev and test."""
        return self._queries(collection, {"dev": documents // 2, "test": documents}, seed)

    def _queries(self, collection: Collection, documents: Mapping[str, int], seed: int) -> Collection:
        """Of some splits alone, queries with so many documents to rerank together."""
        counts = {name: max(1, count // self.depth) for name, count in documents.items()}
        return with_queries(replace(collection, qrels={name: collection.qrels[name] for name in counts}), counts, seed)

    def stage(self, collection: Collection, split: str) -> Run:
        """Return the first documents of each query, as the first stage orders them."""

        def searched() -> Run:
            embedding = EmbeddingSettings(device=self.device, vectors=self.store)
            depths = {"top": self.depth, "rerank_depth": self.depth}
            system = named_systems([self._searcher or self.first])
            run = runs_of(system, collection, embedding, split=split, **depths)[0]
            return first_documents(run, collection, self.depth, split=split)

        key = {"collection": collection.measured_digest, "first_stage": self.of()["first_stage"], "split": split}
        return replace(self.kept.run("first-stage", key, searched), name=FIRST_STAGE)

    def base_dev(self, part: Collection) -> float:
        """Measure the model as it is on dev, or the first stage."""
        if not self.fresh:
            return self.dev(self.load(), part)
        return self._measured(part, "dev")

    def first_stage(self, collection: Collection) -> float | None:
        """Measure the first stage's own order on test, where it is not what is measured before."""
        return None if self.fresh else self._measured(collection, "test")

    def _measured(self, collection: Collection, split: str) -> float:
        rankings = rankings_of(self.stage(collection, split))
        return measure_rankings(rankings, qrels_of(collection, split), [MEASURE]).means[MEASURE]

    def dev(self, model: Any, part: Collection) -> float:
        """Rerank dev."""
        return reranker_score(part, "dev", self.stage(part, "dev"), MEASURE)(model)

    def base_run(self, collection: Collection, dimensions: int | None = None) -> Run:
        """Rerank test with the model as it is; or the first stage's own order."""
        stage = self.stage(collection, "test")
        return stage if self.fresh else self._reranked(self.load(), stage, collection, BASE)

    def run(self, folder: Path, collection: Collection, own: VectorStore, dimensions: int | None = None) -> Run:
        """Rerank test with the model in the folder."""
        return self._reranked(self.load(folder), self.stage(collection, "test"), collection, TUNED)

    def _reranked(self, model: Any, stage: Run, collection: Collection, name: str) -> Run:
        return rerank_run(stage, collection, partial(logits, model), depth=self.depth, name=name)
