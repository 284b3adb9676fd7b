"""The ways of mining that foils mine knows, each made from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.sources import as_source
from foils.data.texts import DocumentTexts
from foils.encode.encoder import Encoder
from foils.encode.models import OWN_KINDS, called
from foils.encode.opening import EncodingSettings
from foils.encode.vectors import Vectors, VectorStore
from foils.mining.ance import ANCERetriever
from foils.mining.bm25 import BM25Retriever
from foils.mining.candidates import Retriever
from foils.mining.cross_encoder import CrossEncoderRetriever, CrossEncoderScorer
from foils.mining.dense import DenseRetriever, embed_queries
from foils.mining.filters import PositiveScores
from foils.mining.own_similarity import OwnSimilarityRetriever
from foils.mining.pairs import Draw, PairScorer, Rule
from foils.mining.pool import TableRetriever, UnionRetriever
from foils.mining.random import RandomRetriever
from foils.mining.scorers import EncoderScorer
from foils.mining.settings import FilterSettings, RankingSettings
from foils.mining.trisampler import TriSampler
from foils.runtime.errors import InputError
from foils.runtime.options import spelled


@dataclass(frozen=True)
class Models:
    """A collection, and the models that rank its documents or score its pairs, each loaded when it is first used."""

    collection: Collection
    split: str
    filters: FilterSettings
    encoding: EncodingSettings
    ranking: RankingSettings = field(default_factory=RankingSettings)
    seed: int = 0

    @cached_property
    def encoder(self) -> tuple[Encoder, VectorStore]:
        """The encoder, and the store of its vectors."""
        return self.encoding.open(self.collection)

    @cached_property
    def vectors(self) -> tuple[Vectors, Vectors]:
        """Vectors of the split's queries and of all documents, by row."""
        encoder, store = self.encoder
        queries = embed_queries(self.collection, encoder, store, self.collection.queries_of(self.split))
        return queries, store.embed(encoder, DocumentTexts(self.collection), "document")

    @property
    def gpu(self) -> str | None:
        """The device that screens documents: the one that was named for the encoder, where that is CUDA's."""
        device = self.encoding.device
        return device if device is not None and device.startswith("cuda") else None

    @cached_property
    def cross_encoder(self) -> CrossEncoderScorer:
        """The cross-encoder, its scores kept where vectors are."""
        model = self.filters.cross_encoder
        if model is None:
            raise InputError(f"a cross-encoder is needed; name it with {spelled('cross_encoder')} MODEL")
        name = Path(model).name if isinstance(model, (str, Path)) else "cross-encoder"
        return CrossEncoderScorer(
            self.encoding.open_cross_encoder(model), VectorStore(self.encoding.open_store().folder), name=name
        )

    def scorer(self) -> tuple[PairScorer | None, dict[str, Any]]:
        """Return the scorer that rules see, None for the source's own, and what provenance says of it."""
        if self.filters.scorer == "encoder":
            encoder, store = self.encoder
            return EncoderScorer(encoder, store), {"scored_by": described(encoder)}
        if self.filters.scorer == "cross-encoder":
            return self.cross_encoder, {"scored_by": self.cross_encoder.describe()}
        return None, {}

    def positive_scores(
        self, scorer: PairScorer | None, retriever: Retriever | None = None
    ) -> Callable[[], PositiveScores]:
        """Return a function that scores the positives once, on the scorer's scale or the retriever's own."""

        @cache
        def scored() -> PositiveScores:
            own = retriever if hasattr(retriever, "score") else None
            if (chosen := scorer or own) is None:
                name = spelled("scorer")
                raise InputError(
                    f"scores of the positives are wanted, which this source does not give; choose {name} encoder"
                )
            query_rows = self.collection.queries_of(self.split)
            return PositiveScores.of(self.collection, chosen, query_rows)  # type: ignore[arg-type]

        return scored


def described(encoder: Encoder) -> dict[str, Any]:
    """Return what provenance says of an encoder."""
    if hasattr(encoder, "describe"):
        facts: dict[str, Any] = encoder.describe()
        return facts
    return {name: getattr(encoder, name) for name in ("name", "fingerprint", "dimension")}


@dataclass(frozen=True)
class Ranking:
    """What ranks, what provenance says of it, and what it itself rejects and draws by."""

    retriever: Retriever
    facts: dict[str, Any]
    rules: tuple[Rule, ...] = ()
    draw: Draw | None = None


def _random(models: Models) -> Ranking:
    return Ranking(RandomRetriever(models.collection, seed=models.seed), {"seed": models.seed})


def _bm25(models: Models) -> Ranking:
    k1, b = models.ranking.k1, models.ranking.b
    return Ranking(BM25Retriever(models.collection, k1=k1, b=b), {"k1": k1, "b": b})


def _dense(models: Models) -> Ranking:
    return Ranking(DenseRetriever(*models.vectors, device=models.gpu), {"encoder": described(models.encoder[0])})


def _own_similarity(kind: str, models: Models) -> Ranking:
    model = models.encoding.open_own(models.encoding.encoder)
    if model.kind != kind:
        way = spelled("method", model.kind)
        raise InputError(f"{called(models.encoding.encoder)} is a {model.kind} model; give {way}")
    return Ranking(OwnSimilarityRetriever(models.collection, model), {"encoder": model.describe()})


def _ance(models: Models) -> Ranking:
    encoder, store = models.encoder
    query_rows = models.collection.queries_of(models.split)
    return Ranking(
        ANCERetriever(models.collection, encoder, store, query_rows=query_rows), {"encoder": described(encoder)}
    )


def _trisampler(models: Models) -> Ranking:
    retriever, region = (
        DenseRetriever(*models.vectors, device=models.gpu),
        TriSampler(models.collection, *models.vectors),
    )
    retriever.name = "trisampler"
    return Ranking(retriever, {"encoder": described(models.encoder[0])}, (region,), region)


def _cross_encoder(models: Models) -> Ranking:
    depth, names = models.ranking.pool_depth, models.ranking.pools()
    facts: dict[str, Any] = {"cross_encoder": models.cross_encoder.describe(), "pool_depth": depth}
    pool: Retriever
    if names is None:
        source = as_source(models.ranking.pool, models.collection)
        pool = TableRetriever(models.collection, source.negatives, name=source.name)
        facts["pool"] = {"source": source.name, "digest": source.digest}
    else:
        rankings = {name: METHODS[name](models) for name in names}
        pool = UnionRetriever([ranking.retriever for ranking in rankings.values()])
        facts["pool"] = {name: ranking.facts for name, ranking in rankings.items()}
    return Ranking(CrossEncoderRetriever(models.collection, models.cross_encoder, pool, depth=depth), facts)


METHODS: dict[str, Callable[[Models], Ranking]] = {
    "random": _random,
    "bm25": _bm25,
    "dense": _dense,
    "cross-encoder": _cross_encoder,
    "ance": _ance,
    "trisampler": _trisampler,
    **{kind: partial(_own_similarity, kind) for kind in OWN_KINDS.values()},
}
