"""The ways of mining that foils mine knows, each made from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.fusion import Fusion
from foils.data.sources import as_source
from foils.data.tables import provenance
from foils.encode.encoder import Encoder
from foils.encode.models import called
from foils.encode.opening import EncodingSettings, description
from foils.encode.vectors import VectorStore
from foils.mining.candidates import Miner
from foils.mining.cross_encoder import CrossEncoderRetriever, CrossEncoderScorer
from foils.mining.pairs import PairScorer, Retriever
from foils.mining.planting import PLANTED
from foils.mining.results import Mined
from foils.mining.retrievers import (
    K1,
    B,
    BM25Retriever,
    DenseRetriever,
    EncoderScorer,
    FusedRetriever,
    OwnSimilarityRetriever,
    RandomRetriever,
    TableRetriever,
)
from foils.mining.rules import PositiveScores, TriSampler
from foils.mining.settings import FilterSettings, RankingSettings, WindowSettings
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
    def cross_encoder(self) -> CrossEncoderScorer:
        """The cross-encoder, its scores kept where vectors are."""
        model = self.filters.cross_encoder
        if model is None:
            raise InputError(f"a cross-encoder is needed; name it with {spelled('cross_encoder')} MODEL")
        name = Path(model).name if isinstance(model, (str, Path)) else "cross-encoder"
        store = VectorStore(self.encoding.open_store().folder)
        return CrossEncoderScorer(self.encoding.open_cross_encoder(model), store, name=name)

    def dense(self, name: str) -> tuple[DenseRetriever, dict[str, Any]]:
        """Return what ranks by the encoder's vectors, screened on the encoder's device where that is CUDA's."""
        encoder, store = self.encoder
        device = self.encoding.device
        gpu = device if device is not None and device.startswith("cuda") else None
        rows = self.collection.queries_of(self.split)
        ranks = DenseRetriever.of_model(self.collection, encoder, store, query_rows=rows, device=gpu, name=name)
        return ranks, {"encoder": description(encoder)}

    def retriever(self, method: str) -> tuple[Retriever, dict[str, Any]]:
        """Return what ranks by a method of METHODS, and what provenance says of it."""
        if method == "random":
            return RandomRetriever(self.collection, seed=self.seed), {"seed": self.seed}
        if method == "bm25":
            return BM25Retriever(self.collection), {"k1": K1, "b": B}
        if method == "dense" and (fusion := Fusion.of(self.encoding.encoder)) and fusion.deploys == "both":
            dense, facts = self.dense(method)
            both = FusedRetriever(BM25Retriever(self.collection), dense, fusion)
            return both, {**facts, "fused_with_bm25": fusion.how}
        if method in ("dense", "ance", "trisampler"):
            return self.dense(method)
        if method == "cross-encoder":
            return self._over_pool()
        model = self.encoding.open_own(self.encoding.encoder)
        if model.kind != method:
            way = spelled("method", model.kind)
            raise InputError(f"{called(self.encoding.encoder)} is a {model.kind} model; give {way}")
        return OwnSimilarityRetriever(self.collection, model), {"encoder": model.describe()}

    def _over_pool(self) -> tuple[Retriever, dict[str, Any]]:
        depth, name = self.ranking.pool_depth, self.ranking.ranking()
        facts: dict[str, Any] = {"cross_encoder": self.cross_encoder.describe(), "pool_depth": depth}
        pool: Retriever
        if name is None:
            source = as_source(self.ranking.pool, self.collection)
            pool = TableRetriever(self.collection, source.negatives, name=source.name)
            facts["pool"] = {"source": source.name, "digest": source.digest}
        else:
            pool, of_pool = self.retriever(name)
            facts["pool"] = {name: of_pool}
        return CrossEncoderRetriever(self.collection, self.cross_encoder, pool, depth=depth), facts

    def scorer(self) -> tuple[PairScorer | None, dict[str, Any]]:
        """Return the scorer that rules see, None for the source's own, and what provenance says of it."""
        if self.filters.scorer == "encoder":
            encoder, store = self.encoder
            return EncoderScorer(encoder, store), {"scored_by": description(encoder)}
        if self.filters.scorer == "cross-encoder":
            return self.cross_encoder, {"scored_by": self.cross_encoder.describe()}
        return None, {}

    def positive_scores(
        self, scorer: PairScorer | None, retriever: Retriever | None = None
    ) -> Callable[[], PositiveScores]:
        """Return a function that scores the positives once, on the scorer's scale or the retriever's own."""

        @cache
        def scored() -> PositiveScores:
            chosen: Any = scorer or (retriever if hasattr(retriever, "score") else None)
            if chosen is None:
                name = spelled("scorer")
                raise InputError(
                    f"scores of the positives are wanted, which this source does not give; choose {name} encoder"
                )
            return PositiveScores.of(self.collection, chosen, self.collection.queries_of(self.split))

        return scored


@dataclass(frozen=True)
class Mining:
    """A method of mining, its models and rules ready: what `foils mine` does, for any window of ranks."""

    miner: Miner
    split: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, models: Models, method: str, window: WindowSettings) -> Mining:
        """Make what ranks, rejects and draws."""
        loaded, filters = models.collection, models.filters
        retriever, of_method = models.retriever(method)
        scorer, scored_by = models.scorer()
        positives = models.positive_scores(scorer, retriever)
        rules, draw = filters.rules(positives), window.drawn(positives)
        ranks = window.ranks if isinstance(window.ranks, tuple) else (0, None)
        if method == "trisampler":
            encoder, store = models.encoder
            region = TriSampler.of_model(loaded, encoder, store, query_rows=loaded.queries_of(models.split))
            rules, draw = [region, *rules], region
            ranks = ranks if window.ranks is not None else (0, 10 * window.top)
        facts = {
            "with": method,
            **{name: getattr(window, name) for name in ("top", "split", "near_duplicate")},
            **of_method,
            **scored_by,
            **({"rules": filters.describe()} if rules or scorer else {}),
            **({"keep_identical_ids": True} if loaded.keep_identical_ids else {}),
            **({"draw": window.draw, "seed": window.seed} if draw is not None else {}),
        }
        miner = Miner(
            loaded, retriever, top=window.top, near_duplicate=window.near_duplicate, rules=rules, scorer=scorer,
            draw=draw, seed=window.seed, ranks=ranks,
        )  # fmt: skip
        return cls(miner, models.split, facts)

    def mined(self, facts: dict[str, Any] | None = None, **window: Any) -> Mined:
        """Mine the window, or another one; `facts` go into the provenance."""
        miner = replace(self.miner, **window)
        shown = {"ranks": miner.ranks} if miner.ranks != (0, None) else {}
        inputs = {"collection": miner.collection.digest}
        made = provenance("mine", {**self.facts, **shown, **(facts or {})}, inputs=inputs)
        return miner.mined(self.split, plant=PLANTED, made=made)
