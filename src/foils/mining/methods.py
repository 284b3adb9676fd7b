"""The ways of mining that foils mine knows: their options, what does not go together, and what each is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import Fusion, deployed
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.data.tokens import BM25Settings
from foils.encode.encoder import Encoder
from foils.encode.index import FAISS_KINDS, FaissIndex
from foils.encode.opening import AT_128, OF_CROSS_ENCODERS, CrossEncoderLike, EncodingSettings, description
from foils.encode.vectors import VectorStore
from foils.mining.candidates import Miner
from foils.mining.planting import planted_by_filter
from foils.mining.retrievers import (
    BM25Retriever,
    CrossEncoderRetriever,
    DenseRetriever,
    FusedRetriever,
    RandomRetriever,
)
from foils.mining.rules import (
    Draw,
    Margin,
    PairScorer,
    PositiveScores,
    Retriever,
    Rule,
    ScoreLimit,
    SimANS,
    TriSampler,
    Uniform,
    filter_negatives,
)
from foils.mining.scorers import CrossEncoderScorer, EncoderScorer
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import cache_place, digest_of
from foils.runtime.options import Needs, Option, Settings, door, settings_of, spelled
from foils.runtime.parallel import ScaleSettings

BEST = "best"  # ranks that are decided between
DRAWS = ("top", "uniform", "simans")
RULES = ("margin", "relative_margin", "max_score", "min_score")
SCORERS = ("own", "encoder", "cross-encoder")
POOLS = ("random", "bm25", "dense")
SAMPLE, RECALLED = 200, 100  # queries and depth at which an index's recall is measured
METHODS = ("random", "bm25", "dense", "cross-encoder", "ance", "trisampler")

_POOLED: dict[str, Any] = {"method": ["cross-encoder"]}
_DENSE: dict[str, Any] = {"method": ["dense", "ance", "trisampler"]}
_DRAW: Needs = {"ranks": lambda ranks: ranks != BEST, "method": lambda method: method != "trisampler"}


def parsed_ranks(text: str) -> tuple[int, int | None] | str:
    """Read `FROM-TO`: from rank FROM, counted from 0, up to, not with, rank TO; without TO: no end; or `best`.

    Raises:
        InputError: it is not of this form.
    """
    if text == BEST:
        return text
    first, dash, end = text.partition("-")
    if not (first.isdecimal() and dash and (end.isdecimal() or not end)):
        raise InputError(f"{spelled('ranks')} {text}: expected FROM-TO, as in 20-110, FROM- for no end, or {BEST}")
    return int(first), int(end) if end else None


@dataclass(frozen=True, kw_only=True)
class WindowSettings(Settings):
    """Which of the ranked documents become negatives.

    Attributes:
        top: Negatives per query.
        split: Split of the judgements; its queries that have a positive get negatives. all: every
            query of the collection, with or without a positive.
        ranks: Take negatives from these ranks alone, counted from 0; TO is not included. best: from
            the ranks that are worth most for the training. In Python a pair, as (0, 100), or (20,
            None) for no end.
        draw: How negatives are taken from these ranks: top takes the first, uniform draws each with
            the same chance, simans:A,B prefers those whose score is near the positive's, as in
            simans:100,-0.1.
        near_duplicate: Reject documents of at least this Jaccard similarity to a positive, by their
            sets of tokens; above 1, only those that equal one.
        keep_positives: Keep the labelled positives that are ranked among the negatives in the
            table, rejected as such. `foils rate` compares them like the others; no other verb takes
            them for negatives.
        seed: Seed of everything that is drawn, the positives that are held out to estimate
            unlabelled answers among them; the same seed gives the same bytes.
    """

    top: Annotated[int, Option(least=1)] = 10
    split: str = "train"
    ranks: Annotated[tuple[int, int | None] | str | None, Option(parse=parsed_ranks, metavar="FROM-TO")] = None
    draw: Annotated[str, Option(needs=_DRAW)] = "top"
    near_duplicate: Annotated[float, Option(above=0)] = 0.9
    keep_positives: bool = False
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.ranks, str):
            object.__setattr__(self, "ranks", parsed_ranks(self.ranks))
        self.drawn(PositiveScores.none)

    def drawn(self, positives: Callable[[], PositiveScores]) -> Draw | None:
        """Return how negatives are drawn from the window, None for its first; `positives` are scored for SimANS."""
        name, _, numbers = self.draw.partition(":")
        if name == "simans":
            try:
                a, b = map(float, numbers.split(",")) if numbers else (SimANS.a, SimANS.b)
            except ValueError as error:
                asked = f"{spelled('draw')} {self.draw}"
                raise InputError(f"{asked}: expected simans:A,B, as in simans:100,-0.1") from error
            return SimANS(positives(), a=a, b=b)
        check_names(spelled("draw"), [self.draw], DRAWS)
        return Uniform() if self.draw == "uniform" else None


@dataclass(frozen=True, kw_only=True)
class RankingSettings(Settings):
    """What ranks the documents.

    Attributes:
        pool: What a cross-encoder ranks anew.
        pool_depth: Documents of the pool for each query.
        index: Exact search, or an index of faiss: hnsw or ivf (both approximate), or flat. Its
            recall on 200 queries is measured, printed and written into the provenance.
    """

    heading = "Ranking"

    pool: Annotated[str, Option(names=POOLS, needs=_POOLED)] = "bm25"
    pool_depth: Annotated[int, Option(least=1, needs=_POOLED)] = 100
    index: Annotated[str, Option(names=("exact", *FAISS_KINDS), needs=_DENSE)] = "exact"


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Settings):
    """Rules, each of which rejects rows and says why.

    Attributes:
        margin: Reject negatives that score within this margin of the query's lowest positive.
        relative_margin: Reject negatives that score within this share of that positive's score, as
            0.05 (0.05 is NV-Retriever's 95 % of the positive).
        max_score: Reject negatives that score above this.
        min_score: Reject negatives that score below this.
        scorer: Whose scores the rules compare: own (the ranking's or the source's), encoder, or
            cross-encoder.
        cross_encoder: A sentence-transformers cross-encoder: a folder or hub name. In Python also a
            CrossEncoder.
    """

    heading = "Rules"

    margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None
    scorer: Annotated[str, Option(names=SCORERS)] = "own"
    cross_encoder: Annotated[CrossEncoderLike | None, Option(metavar="MODEL")] = None

    def rules(self, positives: Callable[[], PositiveScores]) -> list[Rule]:
        """Return the rules, in the order in which they are asked; `positives` are scored for margins."""
        known: dict[str, Callable[[float], Rule]] = {
            "margin": lambda margin: Margin(positives(), absolute=margin),
            "relative_margin": lambda margin: Margin(positives(), relative=margin),
            "max_score": ScoreLimit,
            "min_score": partial(ScoreLimit, below=True),
        }
        return [make_rule(getattr(self, name)) for name, make_rule in known.items() if getattr(self, name) is not None]

    def describe(self) -> dict[str, Any]:
        """Return the rules' settings for provenance."""
        return {**self.changed(*RULES), "scorer": self.scorer}


def check_mining(method: str, window: WindowSettings) -> None:
    """Refuse best ranks of negatives that are drawn."""
    if window.ranks == BEST and method in ("random", "trisampler"):
        asked = spelled("ranks", BEST)
        raise InputError(f"{asked}: {method} negatives are drawn, so that no ranks are better; leave it out")


def _of_encoders(embeds: list[dict[str, Any]]) -> dict[str, Needs]:
    """What the options of an encoder need: that texts are embedded, or, for some, that a cross-encoder is asked."""
    others = [*embeds, {"scorer": ["cross-encoder"]}, *([{"method": ["cross-encoder"]}] if len(embeds) > 1 else [])]
    names = [each.name for each in settings_of(EncodingSettings)]
    return {name: others if name in (*OF_CROSS_ENCODERS, "vectors") else embeds for name in names}


_SCORES: dict[str, Any] = {"scorer": ["encoder"]}
_EMBEDS = [_DENSE, _SCORES, {"ranks": [BEST]}, {**_POOLED, "pool": ["dense"]}]
MINING_NEEDS: dict[str, Needs] = {
    **_of_encoders(_EMBEDS),
    "ray": [*_EMBEDS, {"method": ["random", "bm25"]}],
    "cross_encoder": [{"method": ["cross-encoder"]}, {"scorer": ["cross-encoder"]}],
    "lexical": [
        {"method": ["bm25"]},
        {**_POOLED, "pool": ["bm25"]},
        {"method": ["dense"], "encoder": lambda encoder: deployed(encoder) == "both"},
    ],
}
FILTERING_NEEDS: dict[str, Needs] = {
    **_of_encoders([_SCORES]),
    "ray": _SCORES,
    "cross_encoder": {"scorer": ["cross-encoder"]},
}


@dataclass(frozen=True)
class Models:
    """A collection, and the models that rank its documents or score its pairs, each loaded when it is first used."""

    collection: Collection
    split: str
    filters: FilterSettings
    encoding: EncodingSettings
    ranking: RankingSettings = field(default_factory=RankingSettings)
    lexical: BM25Settings = field(default_factory=BM25Settings)
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
        return CrossEncoderScorer.of(model, self.encoding)

    def retriever(self, method: str) -> tuple[Retriever, dict[str, Any]]:
        """Return what ranks by a method of METHODS, and what provenance says of it."""
        if method == "random":
            return RandomRetriever(self.collection, seed=self.seed), {"seed": self.seed}
        if method == "bm25":
            lexical = BM25Retriever(self.collection, **vars(self.lexical))
            return lexical, lexical.settings.facts
        if method in ("dense", "ance", "trisampler"):
            rows = self.collection.queries_of(self.split)
            ranks = DenseRetriever.of_model(
                self.collection, *self.encoder, query_rows=rows, device=self.encoding.device
            )
            fusion = Fusion.of(self.encoding.encoder)
            facts: dict[str, Any] = {"encoder": description(self.encoder[0])}
            kind = self.ranking.index
            if kind != "exact":
                key = [self.collection.digest, facts["encoder"], str(ranks.documents.array.dtype), kind]
                ranks.use(FaissIndex.kept(ranks.documents, kind, cache_place("faiss", digest_of(key, 16))))
                some, depth = rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE], min(RECALLED, len(ranks.documents))
                recall = round(ranks.recall(some, depth), 4)
                facts["index"] = {"kind": kind, "recall": recall, "depth": depth, "queries": len(some)}
            if method == "dense" and fusion is not None and fusion.deploys == "both":
                lexical = BM25Retriever(self.collection, **vars(self.lexical.over(fusion.bm25)))
                both = FusedRetriever(lexical, ranks, fusion)
                return both, {**facts, "fused_with_bm25": {**fusion.how, **lexical.settings.facts}}
            ranks.name = method
            return ranks, facts
        name, depth = self.ranking.pool, self.ranking.pool_depth  # of a cross-encoder
        pool, of_pool = self.retriever(name)
        facts = {"cross_encoder": self.cross_encoder.describe(), "pool_depth": depth, "pool": {name: of_pool}}
        return CrossEncoderRetriever(self.collection, self.cross_encoder, pool, depth=depth), facts

    def scorer(self) -> tuple[PairScorer | None, dict[str, Any]]:
        """Return the scorer that rules see, None for the source's own, and what provenance says of it."""
        if self.filters.scorer == "encoder":
            encoder, store = self.encoder
            return EncoderScorer(encoder, store), {"scored_by": description(encoder)}
        if self.filters.scorer == "cross-encoder":
            return self.cross_encoder, {"scored_by": self.cross_encoder.describe()}
        return None, {}

    def positive_scores(self, scorer: Any) -> PositiveScores:
        """Return the positives' scores by a scorer, or by a retriever that scores."""
        if not hasattr(scorer, "score"):
            asked = f"{spelled('scorer')} encoder"
            raise InputError(f"scores of the positives are wanted, which this source does not give; choose {asked}")
        return PositiveScores.of(self.collection, scorer, self.collection.queries_of(self.split))

    def miner(self, method: str, window: WindowSettings) -> tuple[Miner, dict[str, Any]]:
        """Return what ranks, rejects and draws by a method of METHODS, and what provenance says of it."""
        loaded = self.collection
        retriever, of_method = self.retriever(method)
        scorer, scored_by = self.scorer()
        positives = partial(self.positive_scores, scorer or retriever)
        rules, draw = self.filters.rules(positives), window.drawn(positives)
        ranks = window.ranks if isinstance(window.ranks, tuple) else (0, None)
        if method == "trisampler" and isinstance(retriever, DenseRetriever):
            region = TriSampler(loaded, retriever.queries, retriever.documents)
            rules, draw = [region, *rules], region
            ranks = ranks if window.ranks is not None else (0, 10 * window.top)
        facts = {
            "with": method,
            **{name: getattr(window, name) for name in ("top", "split", "near_duplicate")},
            **of_method,
            **scored_by,
            **({"rules": self.filters.describe()} if rules or scorer else {}),
            **({"keep_identical_ids": True} if loaded.keep_identical_ids else {}),
            **({"draw": window.draw, "seed": window.seed} if draw is not None else {}),
            **({"keep_positives": True} if window.keep_positives else {}),
        }
        miner = Miner(
            loaded, retriever, top=window.top, near_duplicate=window.near_duplicate, rules=rules, scorer=scorer,
            draw=draw, seed=window.seed, ranks=ranks, keep_positives=window.keep_positives,
        )  # fmt: skip
        return miner, facts


@door(needs=FILTERING_NEEDS)
def filter(
    collection: CollectionLike,
    source: SourceLike,
    *,
    filters: FilterSettings,
    split: str = "train",
    reading: CollectionSettings,
    machine: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Negatives:
    """Reject likely false negatives of a source by rules; no row is dropped.

    A row that was rejected before keeps its reason; of several rules the first that holds gives the reason.

    Args:
        split: Split of the judgements whose positives margins are held against.

    Example:
        foils filter scifact/ llm.parquet --scorer encoder --margin 0.05 -o filtered.parquet

    Raises:
        InputError: no rule, a source that cannot be read, or options that have no effect.
    """
    if not filters.changed(*RULES):
        raise InputError(f"no rule to filter by; give one of {', '.join(map(spelled, RULES))}")
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    models = Models(loaded, split, filters, encoding)
    scorer, scored_by = models.scorer()
    rules = filters.rules(partial(models.positive_scores, scorer))
    marked = filter_negatives(named.negatives, loaded, rules, scorer=scorer)
    facts = {"split": split, "rules": filters.describe(), **scored_by}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    before = {name: value for name, value in named.negatives.provenance.items() if name != "planted"}
    planted = planted_by_filter(named.negatives, marked, loaded, rules, scorer=scorer)
    origin = provenance("filter", facts, inputs=inputs, before=before, **planted)
    return Negatives.of(marked, provenance=origin, title=f"{named.name}, filtered", collection=loaded, split=split)
