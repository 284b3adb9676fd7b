"""What is trained and how it is measured: encoders by exact search, rerankers by reordering a first stage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from foils.data import Collection, Negatives, Run
from foils.data.run import FUSED_DEPTH, Fusion
from foils.data.tokens import BM25Settings
from foils.encode import EmbeddingSettings, EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.encode.encoder import cross_encoder_digest, logits
from foils.encode.models import length_of, load_cross_encoder, load_model
from foils.evaluation import dense_run, first_documents, named_systems, rerank_run, runs_of
from foils.runtime.files import cache_place, file_digest

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.settings import TrainingRun, TrainSettings

BM25 = "bm25"
EXACT = EncoderSettings(precision="float32")
UNTRAINED, IN_BATCH, FIRST_STAGE = "untrained", "in-batch negatives", "first stage"
BASELINES = (UNTRAINED, IN_BATCH, FIRST_STAGE)
MEASURES = ("nDCG@10", "RR@10", "R@100")


@dataclass(frozen=True)
class _Model:
    """A model to train, and how its texts are read.

    Attributes:
        model: name or folder.
        device: torch device; None: the first one available.
        trust_remote_code: whether code that comes with a model is run.
        store: of vectors; None: that of the cache.

    A task also says: `measures`, what is measured where nothing else is asked for, the first
    decides; `baselines`, what is measured beside trained models; `depth`, documents of each query
    in a ranking; `in_batch`, whether the other rows of a batch are negatives, too; `encoder`, which
    mines and decides; `init`, what training starts from: `nothing` or an `encoder`.
    """

    model: str
    device: str | None = None
    trust_remote_code: bool = False
    store: VectorStore | None = None

    in_batch: ClassVar[bool]

    def rows(self, collection: Collection, negatives: Negatives | None, **how: Any) -> TrainingSet:
        """Return what is trained on: positives with their negatives, or pairs alone.

        Args:
            collection: with judgements.
            negatives: that were mined; None: pairs alone.
            how: arguments of `foils.training.data.training_set`; without them all is as `foils train` has it.
        """
        from foils.training.data import training_set

        form = "triplets" if self.in_batch else "lists"
        return training_set(collection, negatives, form="pairs" if negatives is None else form, **how)

    def load(self, folder: str | Path | None = None, *, seed: int = 0) -> Any:
        """Load the model, or what was trained from it; a head that its files lack is drawn from the seed."""
        how: dict[str, Any] = {"device": self.device, "new_head": True, "trust_remote_code": self.trust_remote_code}
        name = folder or self.model
        return load_model(name, **how) if self.in_batch else load_cross_encoder(name, seed=seed, **how)

    def train(self, data: TrainingSet, folder: Path, settings: TrainSettings, batches: str, **more: Any) -> TrainingRun:
        """Train with sentence-transformers; an interrupted one goes on from its checkpoint in the folder."""
        from foils.training.fit import train_model
        from foils.training.models import switch_off_dropout

        model = self.load(seed=settings.seed)
        lengths = [each for each in (settings.max_length, length_of(model)) if each is not None]
        settings = replace(settings, max_length=min(lengths, default=None))
        if not self.in_batch:
            switch_off_dropout(model)
        return train_model(model, data, folder, settings=settings, batches=batches, resume=True, **more)


@dataclass(frozen=True)
class EncoderTask(_Model):
    """A bi-encoder: trained with in-batch negatives, measured by exact search over the whole collection."""

    measures: ClassVar[tuple[str, ...]] = MEASURES
    baselines: ClassVar[tuple[str, ...]] = (UNTRAINED, IN_BATCH)
    depth: ClassVar[int] = FUSED_DEPTH
    in_batch: ClassVar[bool] = True

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model as it is."""
        return SentenceEncoder(self.load(), EXACT, name=self.model)

    @cached_property
    def kind(self) -> str:
        """Static embedding, encoder or language model."""
        from foils.training.models import kind_of

        return kind_of(self.encoder.model)

    @property
    def init(self) -> str:
        """`nothing` where it is a language model that nobody trained to embed."""
        return "nothing" if self.kind == "language model" else "encoder"

    @property
    def fingerprint(self) -> str:
        """Digest of the model's weights and settings."""
        return self.encoder.fingerprint

    def ranked(
        self, collection: Collection, split: str, model: Any = None, *, store: VectorStore | None = None,
        depth: int = FUSED_DEPTH,
    ) -> Run:  # fmt: skip
        """Search all documents exactly for the first `depth`, by a loaded model or that before training."""
        encoder, kept = (self.encoder, self.store) if model is None else (SentenceEncoder(model, EXACT), store)
        return dense_run(encoder, collection, split, depth=depth, store=kept)


@dataclass(frozen=True)
class RerankerTask(_Model):
    """A cross-encoder: trained on lists, measured by how it orders the first documents of a first stage.

    Attributes:
        first_stage: bm25, an encoder's name, a folder of `foils tune`, or a TREC run.
        lexical: how BM25 reads and scores texts.
    """

    first_stage: str = BM25
    lexical: BM25Settings = field(default_factory=BM25Settings)
    _first_stages: dict[tuple[str, str], Run] = field(default_factory=dict, repr=False, compare=False)

    measures: ClassVar[tuple[str, ...]] = MEASURES[:2]  # it sees the first documents alone
    baselines: ClassVar[tuple[str, ...]] = (FIRST_STAGE,)
    depth: ClassVar[int] = 50
    in_batch: ClassVar[bool] = False
    kind: ClassVar[str] = "reranker"
    drawn: ClassVar[int] = 7  # negatives of each list in a step

    @cached_property
    def init(self) -> str:
        """`nothing` where its files lack weights: of a head that nobody trained."""
        return "nothing" if self.load().drawn_weights else "encoder"

    @property
    def _encodes(self) -> bool:
        return named_systems([self.first_stage])[0].kind == "encoder"

    @property
    def mines(self) -> str:
        """The method by which what it orders is mined; of a TREC run, which has no training queries, BM25."""
        return "dense" if self._encodes else BM25

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The first stage, which is an encoder, its texts not cut."""
        how = EncoderSettings(device=self.device, trust_remote_code=self.trust_remote_code)
        return load_encoder(self.first_stage, how)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the model with the head of seed 0."""
        return cross_encoder_digest(self.load())

    @cached_property
    def ranked_by(self) -> str:
        """What reranking depends on: the first stage, by its file's contents, or its weights and fusion."""
        given = self.first_stage
        if self._encodes:
            return f"{given} {self.encoder.fingerprint} {Fusion.of(given)} {self.depth}"
        return f"{given} {file_digest(given) if Path(given).is_file() else ''} {self.depth}"

    def ranked(self, collection: Collection, split: str, model: Any = None, **_: Any) -> Run:
        """Return the first documents of each query, as the first stage or a loaded model orders them."""
        key = (collection.measured_digest, split)
        if key not in self._first_stages:
            use = EmbeddingSettings(device=self.device, vectors=self.store or VectorStore(cache_place("vectors")))
            fusion = Fusion.of(self.first_stage)
            fuses = fusion is not None and fusion.deploys == "both"
            first = named_systems([self.encoder if self._encodes and not fuses else self.first_stage])
            depths = {"top": self.depth, "rerank_depth": self.depth}
            run = runs_of(first, collection, use, split=split, lexical=self.lexical, **depths)[0]
            self._first_stages[key] = first_documents(run, collection, self.depth, split=split)
        run = self._first_stages[key]
        return run if model is None else rerank_run(run, collection, partial(logits, model), depth=self.depth)


Task = EncoderTask | RerankerTask
"""A model to train, and what differs between encoders and rerankers."""
