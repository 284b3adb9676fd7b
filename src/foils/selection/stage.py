"""From a rated table to the same table with `keep, reason, weight, tier`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.tables import provenance
from foils.runtime.errors import check_names
from foils.selection.certainty import sure, zones
from foils.selection.curriculum import curriculum, progress
from foils.selection.mixture import mixture
from foils.selection.optimal import optimal
from foils.selection.results import Selected
from foils.selection.rows import RatedRows, Rows, Selection, rated_columns
from foils.selection.rules import denoise, percentile, relative, table
from foils.selection.sampling import simans

RULES: dict[str, Callable[..., Selection]] = {
    "table": table,
    "percentile": percentile,
    "mixture": mixture,
    "relative": relative,
    "simans": simans,
    "denoise": denoise,
    "optimal": optimal,
    "curriculum": curriculum,
    "progress": progress,
    "zones": zones,
    "sure": sure,
}


def select_negatives(
    negatives: Negatives,
    *,
    by: str = "table",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    name: str = "negatives",
    digest: str = "",
    collection: Collection | None = None,
    split: str = "train",
) -> Selected:
    """Add `weight, tier`, and to `keep, reason`, by a rule over ratings.

    A row that an earlier stage rejected keeps its reason, is not shown to the rule, and has weight 0 and no tier.

    Args:
        negatives: with the columns elo, elo_se, gap that rating adds, and preference where it asked directly.
        by: a name in RULES.
        settings: of the rule, by name.
        seed: for rules that draw, and for the examples of the page.
        name: of the table, for titles.
        digest: of the file that the table was read from, for provenance; "": the table's own.
        collection: that was rated, for the texts of page and exports; None: not known.
        split: whose positives these show.

    Raises:
        UnknownNameError: no such rule, or no such setting of it.
        InputError: the table is not rated, or has weights already; a setting out of range.
    """
    check_names("rule", [by], RULES)
    rule, chosen = RULES[by], dict(settings or {})
    known = [name for name in inspect.signature(rule).parameters if name not in ("rows", "rng")]
    check_names(f"setting of {by}", chosen, known)
    shown = np.flatnonzero(negatives.keep)
    drawing = {"rng": np.random.default_rng(seed)} if draws(by) else {}
    selection = rule(_rated_rows(negatives, shown), **chosen, **drawing)
    history = provenance(
        "select", {"by": by, **chosen}, inputs={"rated": digest or negatives.digest}, seed=seed,
        before=negatives.provenance,
    )  # fmt: skip
    return Selected.of(
        _marked(negatives, shown, selection), provenance=history,
        title=f"{name} by {by}", by=by, settings=chosen, known=known, seed=seed, selection=selection,
        collection=collection, split=split,
    )  # fmt: skip


def draws(by: str) -> bool:
    """Tell whether a rule draws at random."""
    return "rng" in inspect.signature(RULES[by]).parameters


def _marked(negatives: Negatives, shown: Rows, selection: Selection) -> Negatives:
    """Return the table with what a rule says of the rows that it was shown."""
    weight, tier, reasons = np.zeros(len(negatives)), *np.full((2, len(negatives)), None, object)
    weight[shown], tier[shown], reasons[shown] = selection.weight, selection.tier, selection.reason
    marked = negatives.reject(np.zeros(len(negatives), bool), "")
    for reason in sorted({why for why in selection.reason if why is not None}):
        marked = marked.reject(np.array([why == reason for why in reasons], bool), reason)
    return marked.with_columns({"weight": weight, "tier": pa.array(tier.tolist(), pa.string())})


def _rated_rows(negatives: Negatives, shown: Rows) -> RatedRows:
    part = negatives.table.take(pa.array(shown))
    query = np.asarray(part["query_id"].combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
    return RatedRows(query, **rated_columns(part, "gap", "elo", "elo_se", "preference", "gap_se"))
