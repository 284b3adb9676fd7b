"""The ways of mining that foils mine knows, each made from its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.mining import Retriever
    from foils.mining.cross_encoder import CrossEncoderScorer
    from foils.mining.pairs import Draw, PairScorer, Rule


@dataclass(frozen=True)
class RankingOptions:
    """What ranks the documents."""

    k1: Annotated[float, typer.Option(min=0.0, help="BM25: saturation of the term frequency.")] = 1.2
    b: Annotated[float, typer.Option(min=0.0, max=1.0, help="BM25: weight of the document length.")] = 0.75
    cross_encoder: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A sentence-transformers cross-encoder.")
    ] = None
    pool: Annotated[str, typer.Option(help="With cross-encoder: what it ranks anew: random, bm25, dense.")] = "bm25"
    pool_depth: Annotated[int, typer.Option(min=1, help="How many documents of the pool for each query.")] = 100


@dataclass(frozen=True)
class Settings:
    """What the methods need of the command line."""

    ranking: RankingOptions
    encoder: opt.EncoderOptions
    seed: int
    source: str | None
    split: str


@dataclass(frozen=True)
class Method:
    """What ranks, what provenance says of it, and what the method itself rejects and draws by."""

    retriever: Retriever
    settings: dict[str, Any]
    rules: tuple[Rule, ...] = ()
    draw: Draw | None = None


def _random(collection: Collection, settings: Settings) -> Method:
    from foils.mining import RandomRetriever

    return Method(RandomRetriever(collection, seed=settings.seed), {"seed": settings.seed})


def _bm25(collection: Collection, settings: Settings) -> Method:
    from foils.mining import BM25Retriever

    k1, b = settings.ranking.k1, settings.ranking.b
    return Method(BM25Retriever(collection, k1=k1, b=b), {"k1": k1, "b": b})


def _dense(collection: Collection, settings: Settings) -> Method:
    from foils.mining import DenseRetriever

    encoder, queries, documents = _vectors(collection, settings)
    return Method(DenseRetriever(queries, documents), {"encoder": encoder.describe()})


def _ance(collection: Collection, settings: Settings) -> Method:
    from foils.mining.ance import ANCERetriever

    encoder, store = settings.encoder.open(collection)
    query_rows = collection.positives(settings.split).query_rows
    return Method(ANCERetriever(collection, encoder, store, query_rows=query_rows), {"encoder": encoder.describe()})


def _trisampler(collection: Collection, settings: Settings) -> Method:
    from foils.mining import DenseRetriever
    from foils.mining.trisampler import TriSampler

    encoder, queries, documents = _vectors(collection, settings)
    retriever, region = DenseRetriever(queries, documents), TriSampler(collection, queries, documents)
    retriever.name = "trisampler"
    return Method(retriever, {"encoder": encoder.describe()}, (region,), region)


def _cross_encoder(collection: Collection, settings: Settings) -> Method:
    from foils.data.sources import read_source
    from foils.mining.cross_encoder import CrossEncoderRetriever
    from foils.mining.pool import TableRetriever, UnionRetriever

    scorer = cross_encoder(settings)
    described: dict[str, Any] = {"cross_encoder": scorer.describe(), "pool_depth": settings.ranking.pool_depth}
    pool: Retriever
    if settings.source is not None:
        given = read_source(settings.source, collection)
        pool = TableRetriever(collection, given.negatives, name=given.name)
        described["pool"] = {"source": given.name, "digest": given.digest}
    else:
        parts = [name.strip() for name in settings.ranking.pool.split(",")]
        for name in parts:
            if name not in ("random", "bm25", "dense"):
                raise UnknownNameError("pool", name, ("random", "bm25", "dense"))
        methods = [METHODS[name](collection, settings) for name in parts]
        pool = UnionRetriever([method.retriever for method in methods])
        described["pool"] = {name: method.settings for name, method in zip(parts, methods, strict=True)}
    return Method(CrossEncoderRetriever(collection, scorer, pool, depth=settings.ranking.pool_depth), described)


METHODS: dict[str, Callable[[Collection, Settings], Method]] = {
    "random": _random,
    "bm25": _bm25,
    "dense": _dense,
    "cross-encoder": _cross_encoder,
    "ance": _ance,
    "trisampler": _trisampler,
}


def cross_encoder(settings: Settings) -> CrossEncoderScorer:
    """Load the cross-encoder of the command line, its scores kept where vectors are."""
    from foils.mining.cross_encoder import CrossEncoderScorer

    name, encoder = settings.ranking.cross_encoder, settings.encoder
    if name is None:
        raise InputError("a cross-encoder is needed; name it with --cross-encoder MODEL")
    return CrossEncoderScorer(encoder.cross_encoder(name), opt.vector_store(encoder.vectors), name=Path(name).name)


def scorer_of(name: str, collection: Collection, settings: Settings) -> tuple[PairScorer | None, dict[str, Any]]:
    """Return the scorer that rules see, None for the source's own, and what provenance says of it."""
    if name == "own":
        return None, {}
    if name == "encoder":
        from foils.mining.scorers import EncoderScorer

        encoder, store = settings.encoder.open(collection)
        return EncoderScorer(encoder, store), {"scored_by": encoder.describe()}
    if name == "cross-encoder":
        scorer = cross_encoder(settings)
        return scorer, {"scored_by": scorer.describe()}
    raise UnknownNameError("scorer", name, ("own", "encoder", "cross-encoder"))


def _vectors(collection: Collection, settings: Settings) -> tuple[Any, Any, Any]:
    from foils.encode import DocumentTexts
    from foils.mining.dense import embed_queries

    encoder, store = settings.encoder.open(collection)
    queries = embed_queries(collection, encoder, store, collection.positives(settings.split).query_rows)
    return encoder, queries, store.embed(encoder, DocumentTexts(collection), "document")
