"""One source made of several: each (query, document) once, each contributor's rank and score beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Rows
from foils.data.negatives import Negatives, negatives_table
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import METHODS, NORMALISATIONS, fuse_lists, ranks_within
from foils.data.sources import SourcesLike, as_sources
from foils.data.tables import column_or_nulls, provenance
from foils.mining.planting import planted_by_fusion
from foils.mining.rules import BEFORE, NOT_DRAWN
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import Needs, Option, Settings, door, parsed_settings
from foils.runtime.results import Table

_WEIGHTED: Needs = {"method": ["weighted"]}


@dataclass(frozen=True, kw_only=True)
class FusionSettings(Settings):
    """How several sources become one.

    Attributes:
        method: union orders by the best rank, interleave takes turns, rrf adds reciprocal ranks,
            weighted adds scores that are normalised in each list.
        top: Negatives per query. Default: all.
        rrf_k: Constant k of rrf; the larger it is, the less the tops of the lists count.
        weights: Weight of a source's scores in weighted; may be given several times. In Python a
            dictionary: name of the source -> weight. Default: 1 each.
        normalisation: How weighted makes scores of a list comparable: min-max, to [0, 1];
            theoretical-minimum, likewise but from the least possible score (0 for BM25, −1 for
            cosines); or z, to mean 0 and variance 1.
    """

    method: Annotated[str, Option(names=METHODS)] = "union"
    top: Annotated[int | None, Option(least=1)] = None
    rrf_k: Annotated[float, Option(least=0, needs={"method": ["rrf"]})] = 60.0
    weights: Annotated[
        Mapping[str, float] | None,
        Option(
            flag="--weight", parse=partial(parsed_settings, option="weights"), repeated=True, metavar="NAME=NUMBER",
            needs=_WEIGHTED,
        ),
    ] = None  # fmt: skip
    normalisation: Annotated[str, Option(names=NORMALISATIONS, needs=_WEIGHTED)] = "min-max"


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
    fused_by = partial(
        fuse_sources,
        method=fusion.method,
        top=fusion.top,
        k=fusion.rrf_k,
        weights=fusion.weights and {name: float(weight) for name, weight in fusion.weights.items()},
        normalisation=fusion.normalisation,
        digests={each.name: each.digest for each in named},
    )
    tables = {each.name: each.negatives for each in named}
    negatives = fused_by(tables)
    return Fused.of(
        negatives.with_provenance(planted_by_fusion(tables, negatives, loaded, fused_by)),
        title=f"{fusion.method} of {len(named)} sources",
        collection=loaded,
        sources={each.name: len(each.negatives) for each in named},
    )


def fuse_sources(
    sources: Mapping[str, Negatives],
    *,
    method: str = "union",
    top: int | None = None,
    k: float = 60.0,
    weights: Mapping[str, float] | None = None,
    normalisation: str = "min-max",
    digests: Mapping[str, str] | None = None,
) -> Negatives:
    """Make one source of several: every (query, document) of any of them once, with rank and score in each.

    `fuse_lists` orders the rows of a query, as `method` says. `rank_NAME` and `score_NAME` hold
    each source's own, null where it does not have the row. A row that any source rejected is
    rejected, with the first source's reason; what a source merely passed over, since it lies before
    its window of ranks or was not drawn, is not a row of it.

    Args:
        sources: name -> negatives, at least two.
        method: union, interleave, rrf or weighted (`fuse_lists`).
        top: end each query's list with its `top`-th row that is not rejected; None: keep all.
        k: of `rrf`.
        weights: of `weighted`, by the sources' names; a source not named: 1.
        normalisation: of `weighted` (`weighted_sum`).
        digests: of the sources, for provenance.

    Raises:
        InputError: fewer than two sources, a document with two texts, `weighted` of rows without a
            score, or settings out of range.
        UnknownNameError: no such method or normalisation, or a weight for a source that is not there.
    """
    if len(sources) < 2:
        raise InputError(f"a union needs at least two sources, not {len(sources)}")
    check_names("source", weights or {}, sources)
    stacked = pa.concat_tables([_labelled(negatives, order) for order, negatives in enumerate(sources.values())])
    queries, documents = (
        np.asarray(stacked[name].combine_chunks().dictionary_encode().indices, np.int64)
        for name in ("query_id", "doc_id")
    )
    origins, scores, settings = np.asarray(stacked["origin"]), stacked["score"].to_numpy(), dict[str, Any]()
    if method == "rrf":
        settings = {"k": k}
    if method == "weighted":
        counts = zip(sources, np.bincount(origins[np.isnan(scores)], minlength=len(sources)), strict=True)
        without = [f"{name} ({count:,})" for name, count in counts if count]
        if without:
            raise InputError(f"rows without a score in {', '.join(without)}; fuse by ranks instead: rrf or interleave")
        settings = {"weights": [(weights or {}).get(name, 1.0) for name in sources], "normalisation": normalisation}
    ranks, count = stacked["rank"].to_numpy(), len(sources)
    lists = fuse_lists(queries, documents, origins, ranks, scores, count=count, method=method, **settings)
    same = lists.rows[lists.places]  # the first row of each row's query and document
    texts = np.asarray(pc.fill_null(stacked["text"].combine_chunks().dictionary_encode().indices, -1))
    differ = np.flatnonzero(texts != texts[same])
    if len(differ):
        other = pc.unique(stacked["doc_id"].take(pa.array(differ))).to_pylist()
        problem = (
            f"{len(other)} documents have another text in another source (first: {', '.join(map(repr, other[:5]))})"
        )
        raise InputError(f"{problem}; give each text an id of its own")
    kept, queries = stacked.take(pa.array(lists.rows)), queries[lists.rows]
    ids, name = (kept["query_id"], kept["doc_id"]), "+".join(sources)
    table = negatives_table(*ids, name, ranks_within(queries), lists.scores)
    if kept["text"].null_count < len(kept):
        table = table.append_column("text", kept["text"])
    rejected = np.flatnonzero(np.asarray(stacked["reason"].is_valid()))[::-1]
    if len(rejected):
        source = np.full(len(table), -1, np.int64)
        source[lists.places[rejected]] = rejected  # rows lie in the order of the sources; the first source writes last
        reasons = stacked["reason"].take(pa.array(source, mask=source < 0)).combine_chunks().cast(pa.string())
        table = table.append_column("keep", pc.is_null(reasons)).append_column("reason", reasons)
    for at, name in enumerate(sources):
        absent = lists.own_ranks[:, at] < 0
        table = table.append_column(f"rank_{name}", pa.array(lists.own_ranks[:, at].astype(np.int32), mask=absent))
        table = table.append_column(f"score_{name}", pa.array(lists.own_scores[:, at], mask=absent))
    noted = {**settings, "weights": weights} if method == "weighted" else settings
    facts = {"method": method, "sources": list(sources), "top": top, **noted}
    whole = Negatives(table, provenance("fuse", facts, inputs=digests))
    if top is None:
        return whole
    kept_before: Rows = np.cumsum(whole.keep) - whole.keep
    within = kept_before - kept_before[np.searchsorted(queries, queries)] < top
    return Negatives(table.filter(pa.array(within)), whole.provenance)


def _labelled(negatives: Negatives, order: int) -> pa.Table:
    """A source's rows; those that it merely passed over (outside its window, not drawn) are not its own."""
    table = negatives.table
    if "reason" in table.column_names:
        table = table.filter(pc.invert(pc.is_in(table["reason"], value_set=pa.array([BEFORE, NOT_DRAWN]))))
    columns = {name: table[name] for name in ("query_id", "doc_id", "rank", "score")}
    columns["text"] = column_or_nulls(table, "text", pa.large_string())
    columns["reason"] = column_or_nulls(table, "reason", pa.string())
    return pa.table({**columns, "origin": np.full(len(table), order)})
