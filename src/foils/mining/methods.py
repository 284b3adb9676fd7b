"""The ways of foils mine: their options, what does not go together, and what each is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives, negatives_table
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import METHODS as FUSIONS
from foils.data.run import fuse_lists, ranks_within
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import codes, column_or_nulls, provenance
from foils.data.tokens import BM25Settings
from foils.encode.encoder import Encoder
from foils.encode.vectors import AT_128, OF_CROSS_ENCODERS, CrossEncoderLike, EncodingSettings, VectorStore, description
from foils.mining.candidates import Miner
from foils.mining.retrievers import BM25Retriever, CrossEncoderRetriever, DenseRetriever, RandomRetriever
from foils.mining.rules import (
    BEFORE,
    NOT_DRAWN,
    Draw,
    Margin,
    PairScorer,
    PositiveScores,
    Retriever,
    Rule,
    ScoreLimit,
    TriSampler,
    Uniform,
    filter_negatives,
)
from foils.mining.scorers import CrossEncoderScorer, EncoderScorer
from foils.runtime.errors import InputError
from foils.runtime.options import Needs, Option, Settings, door, settings_of, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table

BEST = "best"  # ranks that are decided between
DRAWS = ("top", "uniform")
RULES = ("margin", "relative_margin", "max_score", "min_score")
SCORERS = ("own", "encoder", "cross-encoder")
POOLS = ("random", "bm25", "dense")
METHODS = ("random", "bm25", "dense", "cross-encoder", "ance", "trisampler")

_POOLED: dict[str, Any] = {"method": ["cross-encoder"]}
_DENSE: dict[str, Any] = {"method": ["dense", "ance", "trisampler"]}
_DRAW: Needs = {"ranks": lambda ranks: ranks != BEST, "method": lambda method: method != "trisampler"}


def parsed_ranks(text: str) -> tuple[int, int | None] | str:
    """Read `FROM-TO`: from rank FROM, counted from 0, to before rank TO; without TO: no end; or `best`.

    Raises:
        InputError: it is not of this form.
    """
    if text == BEST:
        return text
    first, dash, end = text.partition("-")
    if not (first.isdecimal() and dash and (end.isdecimal() or not end)):
        raise InputError(f"{spelled('ranks')} {text}: expected FROM-TO (20-110), FROM- for no end, or {BEST}")
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
            the same chance.
        near_duplicate: Reject documents of at least this Jaccard similarity to a positive, by their
            sets of tokens; above 1, only those that equal one. In Python None rejects none.
        pool: What a cross-encoder ranks anew.
        pool_depth: Documents of the pool for each query.
        keep_positives: Keep the labelled positives that are ranked among the negatives in the
            table, rejected as such. `foils rate` compares them like the others; no other verb takes
            them for negatives.
        seed: Seed of everything that is drawn, the positives that are held out to estimate
            unlabelled answers among them; the same seed gives the same bytes.
    """

    top: Annotated[int, Option(least=1)] = 10
    split: str = "train"
    ranks: Annotated[tuple[int, int | None] | str | None, Option(parse=parsed_ranks, metavar="FROM-TO")] = None
    draw: Annotated[str, Option(names=DRAWS, needs=_DRAW)] = "top"
    near_duplicate: Annotated[float | None, Option(above=0)] = 0.9
    pool: Annotated[str, Option(names=POOLS, needs=_POOLED)] = "bm25"
    pool_depth: Annotated[int, Option(least=1, needs=_POOLED)] = 100
    keep_positives: bool = False
    seed: Annotated[int, Option(least=0)] = 0


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
            "margin": lambda margin: Margin(positives(), margin),
            "relative_margin": lambda share: Margin(positives(), share, relative=True),
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
    """What an encoder's options need: that texts are embedded, or for some that a cross-encoder is asked."""
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
    ],
}
FILTERING_NEEDS: dict[str, Needs] = {
    **_of_encoders([_SCORES]),
    "ray": _SCORES,
    "cross_encoder": {"scorer": ["cross-encoder"]},
}


@dataclass(frozen=True)
class Models:
    """A collection, and the models that rank its documents or score its pairs, each loaded at first use."""

    collection: Collection
    window: WindowSettings
    filters: FilterSettings
    encoding: EncodingSettings
    lexical: BM25Settings = field(default_factory=BM25Settings)

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
            return RandomRetriever(self.collection, seed=self.window.seed), {"seed": self.window.seed}
        if method == "bm25":
            lexical = BM25Retriever(self.collection, **vars(self.lexical))
            return lexical, lexical.settings.facts
        if method in ("dense", "ance", "trisampler"):
            rows, device = self.collection.queries_of(self.window.split), self.encoding.device
            ranks = DenseRetriever.of_model(self.collection, *self.encoder, query_rows=rows, device=device, name=method)
            return ranks, {"encoder": description(self.encoder[0])}
        name, depth = self.window.pool, self.window.pool_depth  # of a cross-encoder
        pool, of_pool = self.retriever(name)
        facts = {"cross_encoder": self.cross_encoder.describe(), "pool_depth": depth, "pool": {name: of_pool}}
        return CrossEncoderRetriever(self.collection, self.cross_encoder, pool, depth=depth), facts

    def scorer(self) -> tuple[PairScorer | None, dict[str, Any]]:
        """Return the scorer that rules see, None for the source's own, and what provenance says of it."""
        if self.filters.scorer == "own":
            return None, {}
        scorer = self.cross_encoder if self.filters.scorer == "cross-encoder" else EncoderScorer(*self.encoder)
        return scorer, {"scored_by": scorer.describe()}

    def positive_scores(self, scorer: Any) -> PositiveScores:
        """Return the positives' scores by a scorer, or by a retriever that scores."""
        if not hasattr(scorer, "score"):
            raise InputError(f"this source gives no scores of the positives; choose {spelled('scorer')} encoder")
        return PositiveScores.of(self.collection, scorer, self.collection.queries_of(self.window.split))

    def miner(self, method: str) -> tuple[Miner, dict[str, Any]]:
        """Return what ranks, rejects and draws by a method of METHODS, and what provenance says of it."""
        loaded, window = self.collection, self.window
        retriever, of_method = self.retriever(method)
        scorer, scored_by = self.scorer()
        positives = partial(self.positive_scores, scorer or retriever)
        rules: list[Rule] = self.filters.rules(positives)
        draw: Draw | None = Uniform() if window.draw == "uniform" else None
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
            loaded, retriever, top=window.top, near_duplicate=window.near_duplicate, rules=rules,
            scorer=scorer, draw=draw, seed=window.seed, ranks=ranks, keep_positives=window.keep_positives,
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
    models = Models(loaded, WindowSettings(split=split), filters, encoding)
    scorer, scored_by = models.scorer()
    rules = filters.rules(partial(models.positive_scores, scorer))
    marked = filter_negatives(named.negatives, loaded, rules, scorer=scorer)
    facts = {"split": split, "rules": filters.describe(), **scored_by}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    origin = provenance("filter", facts, inputs=inputs, before=named.negatives.provenance)
    title = f"{named.name}, filtered"
    return Negatives.of(marked, provenance=origin, title=title, collection=loaded, split=split)


@dataclass(frozen=True, kw_only=True)
class FusionSettings(Settings):
    """How several sources become one.

    Attributes:
        method: union orders by the best rank, rrf adds reciprocal ranks.
        top: Negatives per query. Default: all.
        rrf_k: Constant k of rrf; the larger it is, the less the tops of the lists count.
    """

    method: Annotated[str, Option(names=FUSIONS)] = "union"
    top: Annotated[int | None, Option(least=1)] = None
    rrf_k: Annotated[float, Option(least=0, needs={"method": ["rrf"]})] = 60.0


@dataclass(frozen=True, kw_only=True)
class Fused(Negatives):
    """Several sources as one.

    Attributes:
        sources: name -> number of rows.
    """

    sources: dict[str, int]

    def tables(self) -> list[Table]:
        """Return the number of rows of each source, and of the union."""
        rows = [(name, f"{count:,}") for name, count in {**self.sources, "+".join(self.sources): len(self)}.items()]
        return [Table(self.title, ("source", "rows"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and the number of rows of each source and of the union."""
        return {"settings": self.provenance["settings"], "sources": self.sources, "rows": len(self)}


@door
def fuse(
    collection: CollectionLike, sources: SourcesLike, *, fusion: FusionSettings, reading: CollectionSettings
) -> Fused:
    """Fuse several sources of negatives into one, each document of a query once.

    The table shows each source's rank and score. A row that any source rejected is rejected.

    Raises:
        InputError: fewer than two sources, one that cannot be read, or sources that cannot be fused
            in this way.

    Example:
        foils fuse scifact/ bm25.parquet dense.parquet --method rrf -o both.parquet
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    tables = {each.name: each.negatives for each in named}
    negatives = fuse_sources(tables, fusion, digests={each.name: each.digest for each in named})
    return Fused.of(
        negatives,
        title=f"{fusion.method} of {len(named)} sources",
        collection=loaded,
        sources={each.name: len(each.negatives) for each in named},
    )


def fuse_sources(
    sources: Mapping[str, Negatives], fusion: FusionSettings | None = None, *, digests: Mapping[str, str] | None = None
) -> Negatives:
    """Make one source of several: every (query, document) of any of them once, with rank and score in each.

    `fuse_lists` orders the rows of a query. `rank_NAME` and `score_NAME` hold each source's own,
    null where it does not have the row. A row that any source rejected is rejected, with the first
    source's reason; what a source merely passed over, since it lies before its window of ranks or
    was not drawn, is not a row of it.

    Args:
        sources: name -> negatives, at least two.
        fusion: how they are fused; `top` ends each query's list with its `top`-th row that is not
            rejected. None: the union.
        digests: of the sources, for provenance.

    Raises:
        InputError: fewer than two sources, or a document with two texts.
    """
    fusion = fusion or FusionSettings()
    if len(sources) < 2:
        raise InputError(f"a union needs at least two sources, not {len(sources)}")
    stacked = pa.concat_tables([_labelled(each, order) for order, each in enumerate(sources.values())])
    lists = fuse_lists(
        codes(stacked["query_id"]),
        codes(stacked["doc_id"]),
        stacked["origin"].to_numpy(),
        stacked["rank"].to_numpy(),
        stacked["score"].to_numpy(),
        count=len(sources),
        method=fusion.method,
        k=fusion.rrf_k,
    )
    _check_texts(stacked, lists.rows[lists.places])
    kept = stacked.take(pa.array(lists.rows))
    queries = codes(kept["query_id"])
    ranks = ranks_within(queries)
    table = negatives_table(kept["query_id"], kept["doc_id"], "+".join(sources), ranks, lists.scores)
    if kept["text"].null_count < len(kept):
        table = table.append_column("text", kept["text"])
    rejected = np.flatnonzero(np.asarray(stacked["reason"].is_valid()))[::-1]
    if len(rejected):
        source = np.full(len(table), -1, np.int64)
        # Rows lie in the order of the sources; the first source writes last.
        source[lists.places[rejected]] = rejected
        reasons = stacked["reason"].take(pa.array(source, mask=source < 0)).combine_chunks().cast(pa.string())
        table = table.append_column("keep", pc.is_null(reasons)).append_column("reason", reasons)
    for at, name in enumerate(sources):
        own_ranks, own_scores = lists.own_ranks[:, at], lists.own_scores[:, at]
        table = table.append_column(f"rank_{name}", pa.array(own_ranks.astype(np.int32), mask=own_ranks < 0))
        table = table.append_column(f"score_{name}", pa.array(own_scores, mask=own_ranks < 0))
    settings = {"k": fusion.rrf_k} if fusion.method == "rrf" else {}
    facts = {"method": fusion.method, "sources": list(sources), "top": fusion.top, **settings}
    whole = Negatives(table, provenance("fuse", facts, inputs=digests))
    if fusion.top is None:
        return whole
    kept_before: Rows = np.cumsum(whole.keep) - whole.keep
    within = kept_before - kept_before[np.searchsorted(queries, queries)] < fusion.top
    return Negatives(table.filter(pa.array(within)), whole.provenance)


def _check_texts(stacked: pa.Table, first: Rows) -> None:
    """Refuse a document with two texts; `first` is (n,) the first row of each row's query and document."""
    texts = codes(stacked["text"])
    differ = np.flatnonzero(texts != texts[first])
    if len(differ):
        ids = pc.unique(stacked["doc_id"].take(pa.array(differ))).to_pylist()
        shown = ", ".join(map(repr, ids[:5]))
        problem = f"{len(ids)} documents have another text in another source (first: {shown})"
        raise InputError(f"{problem}; give each text an id of its own")


def _labelled(negatives: Negatives, order: int) -> pa.Table:
    """A source's rows; those that it merely passed over (outside its window, not drawn) are not its own."""
    table = negatives.table
    if "reason" in table.column_names:
        table = table.filter(pc.invert(pc.is_in(table["reason"], value_set=pa.array([BEFORE, NOT_DRAWN]))))
    columns = {name: table[name] for name in ("query_id", "doc_id", "rank", "score")}
    columns["text"] = column_or_nulls(table, "text", pa.large_string())
    columns["reason"] = column_or_nulls(table, "reason", pa.string())
    return pa.table({**columns, "origin": np.full(len(table), order)})
