"""Rated rows for rules of selection, by their gaps."""

import numpy as np

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
