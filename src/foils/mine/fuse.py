"""One source made of several."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.negatives import REQUIRED, Negatives
from foils.data.run import ranks_within
from foils.data.store import provenance
from foils.errors import InputError


def union(sources: Mapping[str, Negatives], digests: Mapping[str, str] | None = None) -> Negatives:
    """Unite sources: every (query, document) of any of them once, with rank and score in each.

    Rows of a query are ordered by their best rank in any source, ties by the order of the sources. The score is NaN,
    since scores of several sources do not compare; `rank_NAME` and `score_NAME` hold each contributor's, null where
    it does not have the row. A row that any source rejected is rejected, with the first source's reason.

    Args:
        sources: name -> negatives, at least two.
        digests: of the sources, for provenance.

    Raises:
        InputError: fewer than two sources.
    """
    if len(sources) < 2:
        raise InputError(f"a union needs at least two sources, found {len(sources)}")
    tables = [_labelled(negatives, order) for order, negatives in enumerate(sources.values())]
    stacked = pa.concat_tables(tables)
    queries = np.asarray(stacked["query_id"].combine_chunks().dictionary_encode().indices)
    documents = np.asarray(stacked["doc_id"].combine_chunks().dictionary_encode().indices)
    ranks, origin = np.asarray(stacked["rank"]), np.asarray(stacked["origin"])
    order = np.lexsort((origin, ranks, queries))
    _, first, inverse = np.unique(
        (queries[order].astype(np.int64) << 32) | documents[order], return_index=True, return_inverse=True
    )
    at = np.sort(first)  # the best-ranked row of each pair, in the table's order
    pair = np.argsort(np.argsort(first))[inverse]  # for each row, the position of its pair
    chosen = stacked.take(pa.array(order))
    kept = chosen.take(pa.array(at))
    united = "+".join(sources)
    columns = {
        "query_id": kept["query_id"],
        "doc_id": kept["doc_id"],
        "source": pa.repeat(pa.scalar(united), len(at)),
        "rank": pa.array(ranks_within(queries[order][at])),
        "score": pa.array(np.full(len(at), np.nan)),
    }
    table = pa.table(columns, schema=REQUIRED)
    texts = kept["text"]
    if texts.null_count < len(texts):
        table = table.append_column("text", texts)
    table = _with_verdicts(table, chosen, pair, len(at))
    for index, name in enumerate(sources):
        here = np.flatnonzero(origin[order] == index)
        for column, kind in (("rank", pa.int32()), ("score", pa.float64())):
            table = table.append_column(f"{column}_{name}", _spread(chosen[column], here, pair[here], len(at), kind))
    made = provenance("mine", {"with": "fuse", "method": "union", "sources": list(sources)}, inputs=digests)
    return Negatives(table, made)


def _labelled(negatives: Negatives, order: int) -> pa.Table:
    table = negatives.table
    columns = {name: table[name] for name in ("query_id", "doc_id", "rank", "score")}
    for name, kind in (("text", pa.large_string()), ("reason", pa.string())):
        columns[name] = table[name] if name in table.column_names else pa.nulls(len(table), kind)
    columns["origin"] = pa.array(np.full(len(table), order))
    return pa.table(columns)


def _with_verdicts(table: pa.Table, rows: pa.Table, pair: np.ndarray, count: int) -> pa.Table:
    """Add keep and reason: the reason of the first source, in order, that rejected the pair."""
    said = np.flatnonzero(np.asarray(rows["reason"].is_valid()))
    if not len(said):
        return table
    by_source = said[np.argsort(np.asarray(rows["origin"])[said], kind="stable")][::-1]  # the first source writes last
    reasons = _spread(rows["reason"], by_source, pair[by_source], count, pa.string())
    return table.append_column("keep", pc.is_null(reasons)).append_column("reason", reasons)


def _spread(values: pa.ChunkedArray, rows: np.ndarray, to: np.ndarray, count: int, kind: pa.DataType) -> pa.Array:
    """Values at `rows` put at positions `to` of an array of nulls."""
    source = np.full(count, -1, np.int64)
    source[to] = rows
    taken: pa.Array = values.take(pa.array(source, mask=source < 0)).combine_chunks()
    return taken.cast(kind)
