"""What the experiments on a query's dimensions give: tables, JSON, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foils.runtime.results import Result, Table, number
from foils.searching.systems import System, deviation, short_range
from foils.statistics import Comparison

Curves = Mapping[str, Mapping[float, System]]  # name -> share -> system
NOTE = "oracle: settings chosen on these very queries; honest: on other folds. p: one-sided, Holm."
SHORT = (
    "No feedback: queries that kept every dimension because their list was too short for the settings, or they have no "
    "answer."
)


@dataclass(frozen=True, kw_only=True)
class Findings(Result):
    """What the experiments give; what was not run is empty.

    Attributes:
        collection: its name.
        split: whose queries.
        encoder: its name.
        queries: how many.
        measures: in the order to show.
        baseline: all dimensions.
        filters: the systems compared, the baseline first.
        shares: measure -> filter -> kind (`oracle`, `honest`) -> share -> system.
        depths: the systems compared, two a depth.
        depth_shares: measure -> depth -> share -> system (oracle).
        moons: pool -> one system a run.
        comparisons: (name, kind, measure) -> test against the baseline.
        facts: what else JSON says of the experiments.
    """

    collection: str
    split: str
    encoder: str = ""
    queries: int
    measures: Sequence[str]
    baseline: System
    filters: Sequence[System] = ()
    shares: Mapping[str, Mapping[str, Curves]] = field(default_factory=dict)
    depths: Sequence[System] = ()
    depth_shares: Mapping[str, Curves] = field(default_factory=dict)
    moons: Mapping[str, Sequence[System]] = field(default_factory=dict)
    comparisons: Mapping[tuple[str, str, str], Comparison] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def comparison(self, system: System, measure: str) -> Comparison | None:
        """Return the test of a system against all dimensions; None where there is none."""
        return self.comparisons.get((system.name, system.kind, measure))

    def without_feedback(self, systems: Sequence[System], *measures: str) -> str:
        """Return how many queries kept every dimension (see `short_range`), by these measures or by all."""
        return short_range(systems, measures or self.measures, self.queries)

    def tables(self) -> list[Table]:
        """Return a table for each experiment that was run."""
        where = f"of {self.collection} ({self.split})"
        compared = {f"Filters {where}": self.filters, f"Length of the feedback list {where}": self.depths}
        tables = [self._compared(title, systems) for title, systems in compared.items() if systems]
        tables += [self._by_share(measure, filters, where) for measure, filters in self.shares.items()]
        if self.moons:
            rows = [
                (
                    pool,
                    str(len(systems)),
                    *(_spread([system.means[measure] for system in systems]) for measure in self.measures),
                    self.without_feedback(systems),
                )
                for pool, systems in self.moons.items()
            ]
            columns = ["moon", "runs", *self.measures, "no feedback"]
            tables.append(Table(f"Moons {where}", columns, rows, f"mean ± deviation over runs. {SHORT}"))
        return tables

    def to_json(self) -> dict[str, Any]:
        """Return every number, and how it was made."""
        curves = {
            measure: {
                name: {kind: _means(curve, measure) for kind, curve in kinds.items()} for name, kinds in filters.items()
            }
            for measure, filters in self.shares.items()
        }
        short = {
            measure: {
                name: {kind: _short(curve, measure) for kind, curve in kinds.items()} for name, kinds in filters.items()
            }
            for measure, filters in self.shares.items()
        }
        depths = {
            m: {name: _means(curve, m) for name, curve in curves.items()} for m, curves in self.depth_shares.items()
        }
        return {
            **self.facts,
            "queries": self.queries,
            "systems": [_plain(system) for system in self.filters],
            "shares": curves,
            "shares_short": short,
            "depths": {"systems": [_plain(system) for system in self.depths], "oracle_by_share": depths},
            "moons": {pool: [_plain(system) for system in systems] for pool, systems in self.moons.items()},
            "baseline": self.baseline.means,
            "comparisons": [{"kind": kind, **vars(test)} for (_, kind, _), test in self.comparisons.items()],
        }

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page.

        Raises:
            MissingExtraError: plotly is not installed.
        """
        from foils.data.store import write_text
        from foils.searching.page import findings_page

        write_text(path, findings_page(self))

    def _compared(self, title: str, systems: Sequence[System]) -> Table:
        rows = [
            (system.title, *(self._cell(system, measure) for measure in self.measures), self.without_feedback([system]))
            for system in systems
        ]
        return Table(title, ["system", *self.measures, "no feedback"], rows, f"{NOTE} {SHORT}")

    def _cell(self, system: System, measure: str) -> str:
        test = self.comparison(system, measure)
        return f"{system.means[measure]:.4f}" + (f" (p {number(test.p_holm)})" if test is not None else "")

    def _by_share(self, measure: str, filters: Mapping[str, Curves], where: str) -> Table:
        curves = {f"{name} ({kind})": curve for name, kinds in filters.items() for kind, curve in kinds.items()}
        rows = [
            (f"{share:g}", *(f"{curve[share].means[measure]:.4f}" for curve in curves.values()))
            for share in next(iter(curves.values()))
        ]
        rows.append(("no feedback", *(self.without_feedback([*curve.values()], measure) for curve in curves.values())))
        caption = f"all dimensions: {self.baseline.means[measure]:.4f}. {SHORT}"
        return Table(f"{measure} by share of dimensions kept, {where}", ["share", *curves], rows, caption)


def _means(curve: Mapping[float, System], measure: str) -> dict[str, float]:
    return {f"{share:g}": system.means[measure] for share, system in curve.items()}


def _short(curve: Mapping[float, System], measure: str) -> dict[str, int]:
    return {f"{share:g}": system.short_counts[measure] for share, system in curve.items()}


def _plain(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        "kind": system.kind,
        "means": system.means,
        "kept": system.kept,
        "short": system.short_counts,
        "settings": {measure: [each.to_json() for each in chosen] for measure, chosen in system.settings.items()},
        "per_query": {measure: values.tolist() for measure, values in system.per_query.items()},
    }


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f}" + (f" ± {deviation(values):.4f}" if len(values) > 1 else "")
