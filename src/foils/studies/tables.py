"""What a study shows: the results of each cell, and how the predictors order the sources."""

from __future__ import annotations

from math import isnan

from foils.runtime.results import Table, number
from foils.studies.cells import Cell
from foils.studies.results import StudyAnalysis
from foils.studies.verdict import lead_sentence


def outcome_table(analysis: StudyAnalysis, cell: Cell) -> Table:
    """Return what training on each source gave in a cell, best first, and how far the best is ahead."""
    rows = [
        (
            each.source,
            number(each.mean, 4),
            f"{each.low:.4f}–{each.high:.4f}",
            "" if isnan(each.gain) else f"{each.gain:+.4f} [{each.gain_low:+.4f}, {each.gain_high:+.4f}]",
            f"{len(each.seeds)}",
        )
        for each in analysis.outcomes[cell.name]
    ]
    columns = ["trained on", analysis.measure, "95 % interval", "gain over untrained", "seeds"]
    return Table(cell.name, columns, rows, caption=lead_sentence(analysis, cell.name))


def predictor_table(analysis: StudyAnalysis, *, described: bool = False, caption: str = "") -> Table:
    """Return the predictors, best first; with a column that says what each is where `described`."""
    rows = [
        (
            each.predictor,
            *([each.title] if described else []),
            f"{each.kendall:+.2f}",
            "–" if isnan(each.low) else f"{each.low:+.2f} – {each.high:+.2f}",
            f"{each.worst:+.2f}",
            number(each.regret, 4),
            f"{100 * each.regret_share:.0f} %",
            f"{each.missing or ''}",
        )
        for each in analysis.leaderboard
    ]
    columns = ["predictor", *(["what it is"] if described else []), "mean τ", "95 % interval", "worst cell", "regret",
               "of best − worst", "cells without it"]  # fmt: skip
    title = f"Which predictor orders the sources as {analysis.measure} does"
    marked = frozenset(index for index, each in enumerate(analysis.leaderboard) if each.predictor == "eci_sem")
    return Table(title, columns, rows, caption, marked, frozenset({1} if described else {}))
