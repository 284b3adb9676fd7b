"""The columns of a table of negatives: their types, and what is checked of their values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Rows
from foils.data.columns import with_types
from foils.runtime.errors import InputError

REQUIRED = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("source", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),
    ]
)
KNOWN = {
    "text": pa.large_string(),
    "keep": pa.bool_(),
    "reason": pa.string(),
    "cosine": pa.float64(),
    "dot": pa.float64(),
    "elo": pa.float64(),
    "elo_se": pa.float64(),
    "gap": pa.float64(),
    "teacher": pa.float64(),
    "weight": pa.float64(),
    "tier": pa.string(),
    "relevance": pa.float64(),
    "verdict": pa.string(),
}


def negatives_table(
    query_ids: pa.Array, doc_ids: pa.Array, source: str, ranks: npt.ArrayLike, scores: npt.ArrayLike
) -> pa.Table:
    """Make the five required columns of a table whose rows come from one source; each argument is (n,)."""
    ranks, scores = np.asarray(ranks, np.int32), np.asarray(scores, np.float64)
    sources = pa.repeat(pa.scalar(source), len(ranks))
    return pa.table([query_ids, doc_ids, sources, pa.array(ranks), pa.array(scores)], schema=REQUIRED)


def checked(table: pa.Table) -> pa.Table:
    """Return a table with its columns in their types.

    Raises:
        InputError: what is wrong in its columns (see `Negatives`); whether pairs repeat is not looked at.
    """
    missing = [name for name in REQUIRED.names if name not in table.column_names]
    if missing:
        raise InputError(f"no column {', '.join(missing)}; a table of negatives has {', '.join(REQUIRED.names)}")
    table = with_types(table, {**dict(zip(REQUIRED.names, REQUIRED.types, strict=True)), **KNOWN})
    if table["score"].null_count:
        table = table.set_column(table.column_names.index("score"), "score", pc.fill_null(table["score"], np.nan))
    _check_values(table)
    return table


def _check_values(table: pa.Table) -> None:
    for name in ("query_id", "doc_id", "source", "rank", "keep"):
        if name in table.column_names and table[name].null_count:
            raise InputError(f"{table[name].null_count} rows have no {name}; every row needs one")
    numbers = ["score", *(name for name, kind in KNOWN.items() if kind == pa.float64() and name in table.column_names)]
    for name in numbers:
        if infinite := int(np.isinf(table[name].to_numpy()).sum()):
            raise InputError(f"{infinite} values of {name} are infinite; a missing one is NaN")
    if "weight" in numbers and (table["weight"].to_numpy() < 0).any():
        raise InputError("negative weights; a row that does not count has weight 0")
    if len(table) and pc.min(table["rank"]).as_py() < 0:
        raise InputError("negative ranks; ranks begin at 0")
    if ("keep" in table.column_names) != ("reason" in table.column_names):
        raise InputError("keep and reason come together: a rejected row says why")
    if "keep" in table.column_names:
        keep, said = np.asarray(table["keep"].to_numpy(), bool), np.asarray(table["reason"].is_valid().to_numpy(), bool)
        if (keep == said).any():
            raise InputError("a row has a reason exactly where keep is false")


def check_pairs(table: pa.Table) -> None:
    """Raise an InputError where a pair of query and document has several rows."""
    codes, values = zip(*(_encoded(table[name]) for name in ("query_id", "doc_id")), strict=True)
    keys = _joined(codes[0], codes[1], len(values[1]))
    keys.sort()
    if len(twice := np.unique(keys[1:][keys[1:] == keys[:-1]])):
        query, document = (
            each[int(at)].as_py() for each, at in zip(values, divmod(twice[0], len(values[1])), strict=True)
        )
        raise InputError(
            f"{len(twice)} (query, document) pairs occur more than once (first: {query!r}, {document!r}); "
            "a pair has one row"
        )


def pair_keys(table: pa.Table) -> Rows:
    """Return (n,) one number for each row's pair: equal where the pairs are."""
    (queries, _), (documents, names) = (_encoded(table[name]) for name in ("query_id", "doc_id"))
    return _joined(queries, documents, len(names))


def _joined(queries: npt.NDArray[np.int32], documents: npt.NDArray[np.int32], distinct: int) -> Rows:
    return np.asarray(queries.astype(np.int64) * max(distinct, 1) + documents, np.int64)


def _encoded(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return each row's place in the distinct values, and these, in the order in which they are first seen."""
    chunks = column.dictionary_encode().unify_dictionaries().chunks
    if not chunks:
        return np.zeros(0, np.int32), pa.array([], column.type)
    return np.concatenate([np.asarray(chunk.indices) for chunk in chunks]), chunks[0].dictionary
