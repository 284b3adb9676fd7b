"""What a study says, as tables, as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number
from foils.statistics.agreement import Agreement
from foils.studies.cells import Cell
from foils.studies.outcomes import Lead, Outcome, start_of
from foils.studies.reliability import RELIABLE, Reliability, counts
from foils.studies.verdict import headline, lead_sentence, warnings_of


@dataclass(frozen=True)
class Standing:
    """A predictor over all cells that have it.

    Attributes:
        predictor: its name; `title`: what it is.
        cells: cell → agreement.
        within: cell → mean τ over its settings, which are single sources, hybrids of two, and so on.
        stability: cell → share of the pairs of sources of one setting that are in the measured order.
        kendall: mean τ over the cells, with the interval `low`, `high` of a bootstrap over sources and seeds.
        worst: lowest τ of a cell.
        regret: mean over cells of what is lost by training on the source it puts first: best less chosen mean measure.
        regret_share: the same as a share of best less worst, in [0, 1].
        missing: cells that lack it for some source.
    """

    predictor: str
    title: str
    cells: dict[str, Agreement]
    within: dict[str, float]
    stability: dict[str, float]
    kendall: float
    low: float
    high: float
    worst: float
    regret: float
    regret_share: float
    missing: int


@dataclass(frozen=True)
class StudyAnalysis(Result):
    """Everything a study says of one measure.

    Attributes:
        measure: that predictors are compared with.
        cells: in order, those with two sources or more. `outcomes`: cell → results, best first, baselines among them.
        leads: cell → by how much its best source is ahead of the next.
        leaderboard: predictors, those that hold in every cell first, by mean τ over the cells of three sources or more
            that count; empty where there is none.
        reliability: cell of three sources or more → how far the order of its sources repeats from seeds to seeds.
        chance: how often the best of all predictors does as well on random orders of the sources; NaN without one.
        commands: that made the study, oldest first.
        only_reliable: whether reliable cells alone count; else all that are not flat.
    """

    measure: str
    cells: tuple[Cell, ...]
    outcomes: dict[str, tuple[Outcome, ...]]
    leads: dict[str, Lead]
    leaderboard: tuple[Standing, ...]
    reliability: dict[str, Reliability]
    chance: float
    commands: tuple[str, ...] = ()
    only_reliable: bool = False

    @property
    def left_out(self) -> list[str]:
        """Cells of three sources or more that do not count in the means."""
        only = self.only_reliable
        return [name for name, each in self.reliability.items() if not counts(each, only_reliable=only)]

    @property
    def headline(self) -> str:
        """What the study says in a few sentences, or that nothing can be told, and why."""
        return headline(self)

    @property
    def warnings(self) -> list[str]:
        """Cells where training moved the measure by less than its interval."""
        return warnings_of(self)

    def tables(self) -> list[Table]:
        """Return the results of each cell, and the predictors; the last has the headline and the warnings below it."""
        remarks = "\n".join([self.headline, *(f"Warning: {each}" for each in self.warnings)])
        tables = [self.outcome_table(cell) for cell in self.cells]
        tables += [self.reliability_table()] if self.reliability else []
        tables += [self.predictor_table()] if self.leaderboard else []
        return [*tables[:-1], replace(tables[-1], caption=remarks)]

    def outcome_table(self, cell: Cell) -> Table:
        """Return what training on each source gave in a cell, best first, and how far the best is ahead."""
        rows = [
            (
                each.source,
                number(each.mean, 4),
                f"{each.low:.4f}–{each.high:.4f}",
                "" if math.isnan(each.gain) else f"{each.gain:+.4f} [{each.gain_low:+.4f}, {each.gain_high:+.4f}]",
                f"{len(each.seeds)}",
                *(number(value, 4) for value in each.tests.values()),
            )
            for each in self.outcomes[cell.name]
        ]
        tests = list(cell.tests) if cell.sizes else []
        columns = ["trained on", self.measure, "95 % interval", f"gain over {start_of(cell)}", "seeds", *tests]
        return Table(cell.name, columns, rows, caption=lead_sentence(self, cell.name))

    def reliability_table(self) -> Table:
        """Return how far the order of each cell's sources repeats, and how many seeds would be needed."""
        rows = [
            (
                name,
                f"{each.seeds}",
                *("–" if math.isnan(value) else f"{value:+.2f}" for value in (each.half, each.whole)),
                f"{each.needed:.0f}" if math.isfinite(each.needed) else "–",
                f"{max(1, math.ceil(each.at_best))}" if math.isfinite(each.at_best) else "–",
                each.verdict,
            )
            for name, each in self.reliability.items()
        ]
        columns = ["cell", "seeds", "τ of halves", "of all seeds", f"seeds for {RELIABLE:g}", "at best", "order"]
        caption = ""
        if self.left_out:
            why = "not reliable" if self.only_reliable else "flat"
            caption = f"Left out of the means, as {why}: {', '.join(self.left_out)}."
        return Table("How far the order of the sources repeats", columns, rows, caption)

    def predictor_table(self, *, described: bool = False) -> Table:
        """Return the predictors, best first; with a column that says what each is where `described`."""
        hybrids = any(len(set(cell.parts)) > 1 for cell in self.cells)

        def of_settings(each: Standing) -> tuple[str, ...]:
            means = [_mean(values) for values in (each.within, each.stability)] if hybrids else []
            return tuple("–" if math.isnan(mean) else f"{mean:+.2f}" for mean in means)

        rows = [
            (
                each.predictor,
                *([each.title] if described else []),
                f"{each.kendall:+.2f}",
                "–" if math.isnan(each.low) else f"{each.low:+.2f} – {each.high:+.2f}",
                f"{each.worst:+.2f}",
                *of_settings(each),
                number(each.regret, 4),
                f"{100 * each.regret_share:.0f} %",
                f"{each.missing or ''}",
            )
            for each in self.leaderboard
        ]
        described_by, settings = ["what it is"] if described else [], ["within settings", "pairs in order"]
        columns = ["predictor", *described_by, "mean τ", "95 % interval", "worst cell", *(settings if hybrids else []),
                   "regret", "of best − worst", "cells without it"]  # fmt: skip
        title = f"Which predictor orders the sources as {self.measure} does"
        marked = frozenset(index for index, each in enumerate(self.leaderboard) if each.predictor == "eci_sem")
        return Table(title, columns, rows, "", marked, frozenset({1} if described else {}))

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.studies.page import study_page

        write_text(path, study_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, null for what is not a number."""
        return {
            "measure": self.measure,
            "headline": self.headline,
            "warnings": self.warnings,
            "chance": _number(self.chance),
            "left_out": self.left_out,
            "cells": [
                {
                    "name": cell.name,
                    "collection": cell.facts["collection"]["name"],
                    "model": cell.facts["model"]["name"],
                    "settings": cell.facts["settings"],
                    "ceiling": _number(self.reliability[cell.name].half) if cell.name in self.reliability else None,
                    "reliability": self._reliability(cell.name),
                    "lead": vars(self.leads[cell.name]),
                    "outcomes": [without_nan(vars(outcome)) for outcome in self.outcomes[cell.name]],
                    "predictors": {name: dict(cell.predictors[name]) for name in cell.sources},
                }
                for cell in self.cells
            ],
            "leaderboard": [
                {
                    "predictor": each.predictor,
                    "title": each.title,
                    **{
                        name: _number(getattr(each, name))
                        for name in ("kendall", "low", "high", "worst", "regret", "regret_share", "missing")
                    },
                    "within": _number(_mean(each.within)),
                    "stability": _number(_mean(each.stability)),
                    "cells": {
                        name: {
                            "kendall": _number(agreement.kendall),
                            "interval": [_number(agreement.low), _number(agreement.high)],
                            "within": _number(each.within[name]),
                            "stability": _number(each.stability[name]),
                            "spearman": _number(agreement.spearman),
                            "pearson": _number(agreement.pearson),
                        }
                        for name, agreement in each.cells.items()
                    },
                }
                for each in self.leaderboard
            ],
        }

    def _reliability(self, name: str) -> dict[str, Any] | None:
        """What JSON says of a cell's reliability; null for two sources."""
        each = self.reliability.get(name)
        if each is None:
            return None
        numbers = {key: _number(value) for key, value in vars(each).items()}
        return {**numbers, "verdict": each.verdict, "counts": name not in self.left_out}


def _mean(values: Mapping[str, float]) -> float:
    known = [value for value in values.values() if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
