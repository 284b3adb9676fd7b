"""One source made of several: each (query, document) once, each contributor's rank and score beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Rows
from foils.data.negatives import REQUIRED, Negatives
from foils.data.run import ranks_within
from foils.data.tables import provenance
from foils.mining.marking import BEFORE, NOT_DRAWN
from foils.runtime.errors import InputError, UnknownNameError

Scores = npt.NDArray[np.float64]
MISSING = np.iinfo(np.int32).max  # the rank of a pair in a source that does not have it


@dataclass(frozen=True)
class Contributions:
    """What m sources say of n (query, document) pairs; pairs of a query lie together.

    Attributes:
        sources: (m,) names.
        query: (n,) number of the pair's query.
        ranks: (n, m) 0-based rank in each source, MISSING where a source does not have the pair.
        scores: (n, m) score in each source, NaN there and where the source has none.
    """

    sources: tuple[str, ...]
    query: Rows
    ranks: npt.NDArray[np.int32]
    scores: Scores

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """(n, m) which source has which pair."""
        return np.asarray(self.ranks != MISSING)


def best_rank(parts: Contributions) -> Scores:
    """Return NaN for every pair, (n,): a union has no score of its own, since scores of several sources do not compare.

    Pairs are then ordered by their best rank in any source.
    """
    return np.full(len(parts.query), np.nan)


def interleave(parts: Contributions) -> Scores:
    """Return −t, (n,), where t is the turn (from 0) in which a pair is taken.

    The sources take turns, in their order; each takes its best-ranked pair that none has taken yet, and passes when it
    has no more.
    """
    turns = np.empty(len(parts.query))
    starts = np.flatnonzero(np.r_[True, parts.query[1:] != parts.query[:-1]][: len(parts.query)])
    for start, end in zip(starts, np.r_[starts[1:], len(parts.query)], strict=True):
        turns[start:end] = _turns(parts.ranks[start:end])
    return -turns


def reciprocal_rank(parts: Contributions, *, k: float = 60.0) -> Scores:
    """Return RRF(d) = Σ_r 1/(k + rank_r(d)), (n,), ranks counted from 1, over the sources r that have the pair.

    Args:
        parts: the contributions.
        k: at least 0; more makes the tops of the lists count less.

    Raises:
        InputError: a negative k.

    Source: ANMI 2.0 eq. 33; Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    if not k >= 0:
        raise InputError(f"k {k}; expected at least 0")
    terms = 1.0 / (k + 1.0 + np.where(parts.known, parts.ranks, 0))
    return np.asarray(np.where(parts.known, terms, 0.0).sum(axis=1))


def weighted(parts: Contributions, *, weights: Mapping[str, float] | None = None) -> Scores:
    """Return Σ_r w_r (s_r − min s_r)/(max s_r − min s_r), (n,), minimum and maximum over the query's list in r.

    A source that does not have the pair adds nothing, as if the pair had the list's lowest score; a list whose scores
    are all equal counts 1 for each of its pairs.

    Args:
        parts: the contributions.
        weights: of the sources by name, each at least 0, at least one above; None: 1 each; a source not named: 1.

    Raises:
        InputError: a source has rows without a score; negative weights, or none above 0.
        UnknownNameError: a weight for a source that is not there.
    """
    chosen = dict(weights or {})
    for name in chosen:
        if name not in parts.sources:
            raise UnknownNameError("source", name, parts.sources)
    values = np.array([chosen.get(name, 1.0) for name in parts.sources])
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise InputError(
            f"weights {dict(zip(parts.sources, values.tolist(), strict=True))}; expected at least 0, one above"
        )
    if without := [
        f"{name} ({count:,})"
        for name, count in zip(parts.sources, (parts.known & np.isnan(parts.scores)).sum(axis=0), strict=True)
        if count
    ]:
        raise InputError(f"rows without a score in {', '.join(without)}; fuse by ranks instead: rrf or interleave")
    total = np.zeros(len(parts.query))
    for column, weight in enumerate(values):
        here = np.flatnonzero(parts.known[:, column])
        if len(here):
            total[here] += weight * _min_max(parts.query[here], parts.scores[here, column])
    return total


FUSIONS: dict[str, Callable[..., Scores]] = {
    "union": best_rank,
    "interleave": interleave,
    "rrf": reciprocal_rank,
    "weighted": weighted,
}


def fuse_sources(
    sources: Mapping[str, Negatives],
    *,
    method: str = "union",
    top: int | None = None,
    k: float = 60.0,
    weights: Mapping[str, float] | None = None,
    digests: Mapping[str, str] | None = None,
) -> Negatives:
    """Make one source of several: every (query, document) of any of them once, with rank and score in each.

    Rows of a query are ordered by the fused score, ties by their best rank in any source, then by the order of the
    sources. `rank_NAME` and `score_NAME` hold each contributor's, null where it does not have the row. A row that any
    source rejected is rejected, with the first source's reason; what a source merely passed over, since it lies before
    its window of ranks or was not drawn, is not a row of it.

    Args:
        sources: name -> negatives, at least two.
        method: a name in FUSIONS. `union`: by best rank, without a score; `interleave`: the sources take turns; `rrf`:
            reciprocal rank fusion; `weighted`: weighted sum of scores, scaled per query and source to [0, 1].
        top: end each query's list with its `top`-th row that is not rejected; None: keep all.
        k: of `rrf`.
        weights: of `weighted`.
        digests: of the sources, for provenance.

    Raises:
        InputError: fewer than two sources, `top` below 1, a document with two texts, or as the method says.
        UnknownNameError: no such method.
    """
    if len(sources) < 2:
        raise InputError(f"a union needs at least two sources, not {len(sources)}")
    if method not in FUSIONS:
        raise UnknownNameError("way of fusing", method, FUSIONS)
    if top is not None and top < 1:
        raise InputError(f"top {top}; expected at least 1 negative per query")
    of_method: dict[str, dict[str, Any]] = {"rrf": {"k": k}, "weighted": {"weights": weights}}
    settings = of_method.get(method, {})
    table, parts = _stacked(sources)
    scores = FUSIONS[method](parts, **settings)
    lead = np.argmin(parts.ranks, axis=1)
    least = parts.ranks[np.arange(len(lead)), lead]
    order = np.lexsort((lead, least, -np.nan_to_num(scores), parts.query))
    table, query, scores = table.take(pa.array(order)), parts.query[order], scores[order]
    rank = pa.array(ranks_within(query))
    table = table.set_column(REQUIRED.get_field_index("rank"), "rank", rank)
    table = table.set_column(REQUIRED.get_field_index("score"), "score", pa.array(scores))
    facts = {"method": method, "sources": list(sources), "top": top, **settings}
    record = provenance("fuse", facts, inputs=digests)
    fused = Negatives(table, record)
    return fused if top is None else Negatives(table.filter(pa.array(_within_top(query, fused.keep, top))), record)


def _stacked(sources: Mapping[str, Negatives]) -> tuple[pa.Table, Contributions]:
    """Every pair once, queries in the order of first appearance, with all columns but the fused rank and score."""
    stacked = pa.concat_tables([_labelled(negatives, order) for order, negatives in enumerate(sources.values())])
    queries = np.asarray(stacked["query_id"].combine_chunks().dictionary_encode().indices, np.int64)
    documents = np.asarray(stacked["doc_id"].combine_chunks().dictionary_encode().indices, np.int64)
    _, first, pair = np.unique((queries << 32) | documents, return_index=True, return_inverse=True)
    _check_texts(stacked, first[pair])
    count, origin = len(first), np.asarray(stacked["origin"])
    kept = stacked.take(pa.array(first))
    columns = {
        "query_id": kept["query_id"],
        "doc_id": kept["doc_id"],
        "source": pa.repeat(pa.scalar("+".join(sources)), count),
        "rank": pa.array(np.zeros(count, np.int32)),
        "score": pa.array(np.zeros(count)),
    }
    table = pa.table(columns, schema=REQUIRED)
    if kept["text"].null_count < count:
        table = table.append_column("text", kept["text"])
    table = _with_verdicts(table, stacked, pair, count)
    ranks, scores = np.full((count, len(sources)), MISSING, np.int32), np.full((count, len(sources)), np.nan)
    for index, name in enumerate(sources):
        here = np.flatnonzero(origin == index)
        ranks[pair[here], index] = np.asarray(stacked["rank"])[here]
        scores[pair[here], index] = np.asarray(stacked["score"])[here]
        absent = ranks[:, index] == MISSING
        table = table.append_column(f"rank_{name}", pa.array(ranks[:, index], mask=absent))
        table = table.append_column(f"score_{name}", pa.array(scores[:, index], mask=absent))
    return table, Contributions(tuple(sources), queries[first], ranks, scores)


def _check_texts(rows: pa.Table, same: Rows) -> None:
    """Raise where a row's text is not that of row `same`, (n,), the first of its query and document."""
    texts = rows["text"].combine_chunks()
    codes = np.asarray(pc.fill_null(texts.dictionary_encode().indices, -1))
    differ = np.flatnonzero(codes != codes[same])
    if len(differ):
        ids = pc.unique(rows["doc_id"].take(pa.array(differ))).to_pylist()
        shown = ", ".join(map(repr, ids[:5]))
        raise InputError(
            f"{len(ids)} documents have another text in another source (first: {shown}); "
            "give each text an id of its own"
        )


def _labelled(negatives: Negatives, order: int) -> pa.Table:
    """A source's rows; those that it merely passed over (outside its window, not drawn) are not its own."""
    table = negatives.table
    if "reason" in table.column_names:
        table = table.filter(pc.invert(pc.is_in(table["reason"], value_set=pa.array([BEFORE, NOT_DRAWN]))))
    columns = {name: table[name] for name in ("query_id", "doc_id", "rank", "score")}
    for name, kind in (("text", pa.large_string()), ("reason", pa.string())):
        columns[name] = table[name] if name in table.column_names else pa.nulls(len(table), kind)
    columns["origin"] = pa.array(np.full(len(table), order))
    return pa.table(columns)


def _with_verdicts(table: pa.Table, rows: pa.Table, pair: Rows, count: int) -> pa.Table:
    """Add keep and reason: the reason of the first source, in order, that rejected the pair."""
    rejected = np.flatnonzero(np.asarray(rows["reason"].is_valid()))
    if not len(rejected):
        return table
    source = np.full(count, -1, np.int64)
    source[pair[rejected[::-1]]] = rejected[::-1]  # rows lie in the order of the sources; the first source writes last
    reasons = rows["reason"].take(pa.array(source, mask=source < 0)).combine_chunks().cast(pa.string())
    return table.append_column("keep", pc.is_null(reasons)).append_column("reason", reasons)


def _turns(ranks: npt.NDArray[np.int32]) -> Rows:
    """In which turn each of a query's pairs, (n, m) ranks, is taken."""
    lists = [iter(np.argsort(column, kind="stable")[: int((column != MISSING).sum())]) for column in ranks.T]
    turns, turn = np.full(len(ranks), -1, np.int64), 0
    while lists:
        for listed in list(lists):
            taken = next((row for row in listed if turns[row] < 0), None)
            if taken is None:
                lists.remove(listed)
            else:
                turns[taken] = turn
                turn += 1
    return turns


def _min_max(groups: Rows, values: Scores) -> Scores:
    """Scale the values of each stretch of equal neighbouring groups to [0, 1]; equal values become 1."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    counts = np.diff(np.r_[starts, len(groups)])
    low = np.repeat(np.minimum.reduceat(values, starts), counts)
    width = np.repeat(np.maximum.reduceat(values, starts), counts) - low
    return np.asarray(np.divide(values - low, width, out=np.ones(len(values)), where=width > 0))


def _within_top(query: Rows, keep: npt.NDArray[np.bool_], top: int) -> npt.NDArray[np.bool_]:
    """Which rows are not beyond the `top`-th kept one of their query."""
    kept_before: Rows = np.cumsum(keep) - keep
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]][: len(query)])
    counts = np.diff(np.r_[starts, len(query)])
    return np.asarray(kept_before - np.repeat(kept_before[starts], counts) < top)
