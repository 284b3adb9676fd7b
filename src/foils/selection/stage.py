"""From a rated table to the same table with `keep, reason, weight, tier`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.negatives import Negatives
from foils.data.store import Provenance
from foils.runtime.errors import InputError, UnknownNameError
from foils.selection.curriculum import curriculum, progress
from foils.selection.mixture import mixture
from foils.selection.optimal import optimal
from foils.selection.rows import RatedRows, Selection
from foils.selection.rules import denoise, percentile, relative, table
from foils.selection.sampling import simans

METHODS: dict[str, Callable[..., Selection]] = {
    "table": table,
    "percentile": percentile,
    "mixture": mixture,
    "relative": relative,
    "simans": simans,
    "denoise": denoise,
    "optimal": optimal,
    "curriculum": curriculum,
    "progress": progress,
}


@dataclass(frozen=True)
class Selected:
    """A table with `keep, reason, weight, tier`, and what the rule said of the rows that it saw."""

    negatives: Negatives
    selection: Selection


def select_negatives(
    negatives: Negatives,
    *,
    by: str = "table",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    made: Provenance | None = None,
) -> Selected:
    """Add `weight, tier`, and to `keep, reason`, by a rule over ratings.

    A row that an earlier stage rejected keeps its reason, is not shown to the rule, and has weight 0 and no tier.

    Args:
        negatives: with the columns elo, elo_se, gap that rating adds, and preference where it asked directly.
        by: a name in METHODS.
        settings: of the rule, by name.
        seed: for rules that draw.
        made: provenance of the new table; None: the old one's.

    Raises:
        UnknownNameError: no such rule, or no such setting of it.
        InputError: the table is not rated, or has weights already; a setting out of range.
    """
    if by not in METHODS:
        raise UnknownNameError("way of selecting", by, METHODS)
    method, chosen = METHODS[by], dict(settings or {})
    known = [name for name in inspect.signature(method).parameters if name not in ("rows", "rng")]
    for name in chosen:
        if name not in known:
            raise UnknownNameError(f"setting of {by}", name, known)
    if "rng" in inspect.signature(method).parameters:
        chosen["rng"] = np.random.default_rng(seed)
    shown = np.flatnonzero(negatives.keep)
    selection = method(_rated_rows(negatives, shown), **chosen)
    weight, tier = np.zeros(len(negatives)), np.full(len(negatives), None, object)
    weight[shown], tier[shown] = selection.weight, selection.tier
    reasons = np.full(len(negatives), None, object)
    reasons[shown] = selection.reason
    marked = negatives.reject(np.zeros(len(negatives), bool), "")
    for reason in sorted({why for why in selection.reason if why is not None}):
        marked = marked.reject(np.array([why == reason for why in reasons], bool), reason)
    found = marked.with_columns({"weight": weight, "tier": pa.array(tier.tolist(), pa.string())})
    return Selected(Negatives(found.table, made or negatives.provenance), selection)


def _rated_rows(negatives: Negatives, shown: np.ndarray[tuple[int], np.dtype[np.int64]]) -> RatedRows:
    missing = [name for name in ("elo", "elo_se", "gap") if name not in negatives.table.column_names]
    if missing:
        raise InputError(f"the table has no {', '.join(missing)}; rate it first: foils rate")
    part = negatives.table.take(pa.array(shown))
    query = np.asarray(part["query_id"].combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
    values = {
        name: np.asarray(part[name].to_numpy(), np.float64) if name in part.column_names else np.full(len(part), np.nan)
        for name in ("gap", "elo", "elo_se", "preference")
    }
    return RatedRows(query, **values)
