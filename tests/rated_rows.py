"""Rated rows for rules of selection, by their gaps; tables with rows of positives."""

import numpy as np
import pyarrow as pa

from foils.data import Negatives
from foils.selection import RatedRows


def rows_of(gap, *, query=None, elo=None, preference=None):
    """Return rows with these gaps; without the others: one query, a positive at 1500, the rest unknown."""
    gaps = np.asarray(gap, np.float64)
    return RatedRows(
        np.zeros(len(gaps), np.int64) if query is None else np.asarray(query, np.int64),
        gaps,
        1500 - gaps if elo is None else np.asarray(elo, np.float64),
        np.full(len(gaps), np.nan) if preference is None else np.asarray(preference, np.float64),
    )


def with_positives(negatives, query_ids, doc_ids, values):
    """The table with a rejected row for each of these positives, and numbers in columns of these rows."""
    table, rows = negatives.with_rejected(query_ids, doc_ids)
    for name, numbers in values.items():
        column = table.table[name].to_numpy().copy()
        column[rows] = numbers
        table = Negatives(table.table.set_column(table.table.column_names.index(name), name, pa.array(column)))
    return table
