"""Several collections as one, and their tables of negatives: every id begins with the name of its collection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection
from foils.data.negatives import KNOWN, REQUIRED, Negatives

OFFSET = "offset"  # of a query's ratings (`foils rate`)


def joined_collections(parts: Mapping[str, Collection]) -> Collection:
    """Return the documents, queries and judgements of several collections as one collection.

    The texts are shared with the parts, not copied. A split has the judgements of every part that has the split.

    Args:
        parts: name → collection, at least one; the id `x` of a part becomes `NAME/x`.
    """
    documents, queries = (
        pa.concat_tables(_named(getattr(part, table), [column], name) for name, part in parts.items())
        for table, column in (("documents", "doc_id"), ("queries", "query_id"))
    )
    splits = dict.fromkeys(split for part in parts.values() for split in part.splits)
    qrels = {
        split: pa.concat_tables(
            _named(part.qrels[split], ["query_id", "doc_id"], name)
            for name, part in parts.items()
            if split in part.qrels
        )
        for split in splits
    }
    digest = hashlib.blake2b("\0".join(f"{name}\0{part.digest}" for name, part in parts.items()).encode(),
                             digest_size=16)  # fmt: skip
    keep = all(part.keep_identical_ids for part in parts.values())
    return Collection(" + ".join(parts), documents, queries, qrels, digest.hexdigest(), keep_identical_ids=keep)


def joined_negatives(parts: Mapping[str, Negatives]) -> Negatives:
    """Return several tables of negatives as one, for the collection of `joined_collections`.

    Columns that foils knows are kept. Where a part lacks a column, its rows have none of it; a weight is 1.

    Args:
        parts: name of the collection → table, at least one.
    """
    taken = {*REQUIRED.names, *KNOWN, OFFSET}
    weighted = any("weight" in part.table.column_names for part in parts.values())
    tables = []
    for name, part in parts.items():
        table = part.reject(np.zeros(len(part), bool), "").table  # with keep and reason, where it has none
        if weighted and "weight" not in table.column_names:
            table = table.append_column("weight", pa.array(np.ones(len(table))))
        table = table.select([each for each in table.column_names if each in taken])
        tables.append(_named(table, ["query_id", "doc_id"], name))
    return Negatives(pa.concat_tables(tables, promote_options="default"))


def distinct_names(names: Iterable[str]) -> list[str]:
    """Return names that are all different: a name that came before gets a number, `nq` and `nq 2`."""
    seen: dict[str, int] = {}
    distinct: list[str] = []
    for name in names:
        new = name
        while new in distinct:
            seen[name] = seen.get(name, 1) + 1
            new = f"{name} {seen[name]}"
        distinct.append(new)
    return distinct


def _named(table: pa.Table, columns: list[str], name: str) -> pa.Table:
    """The table with its ids beginning with a name."""
    for column in columns:
        ids = pc.binary_join_element_wise(name, table[column], "/")
        table = table.set_column(table.column_names.index(column), column, ids.cast(table[column].type))
    return table
