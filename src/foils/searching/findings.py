"""What the experiments on a query's dimensions give: tables, JSON, a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foils.runtime.results import Result, Table
from foils.searching.compared import MoonTest
from foils.searching.examples import Example
from foils.searching.systems import System
from foils.searching.tables import findings_tables
from foils.statistics import Comparison

Curves = Mapping[str, Mapping[float, System]]  # name -> share -> system


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
        depth_shares: measure -> depth -> `re-tuned` (by_share) or `fixed` (at_best) -> share -> system (oracle).
        moons: pool -> one system a run.
        moon_tests: (pool, measure) -> test against the last k⁻.
        examples: queries that Eclipse changes most against DIME; None: not run.
        comparisons: (name, kind, measure) -> test against the baseline.
        against_dime: (name, kind, measure) -> test of an Eclipse against the DIME of its sun.
        halves: the same with half of the dimensions, two-sided.
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
    depth_shares: Mapping[str, Mapping[str, Curves]] = field(default_factory=dict)
    moons: Mapping[str, Sequence[System]] = field(default_factory=dict)
    moon_tests: Mapping[tuple[str, str], MoonTest] = field(default_factory=dict)
    examples: Sequence[Example] | None = None
    comparisons: Mapping[tuple[str, str, str], Comparison] = field(default_factory=dict)
    against_dime: Mapping[tuple[str, str, str], Comparison] = field(default_factory=dict)
    halves: Mapping[tuple[str, str, str], Comparison] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def tables(self) -> list[Table]:
        """Return the tables of each experiment that was run."""
        return findings_tables(self)

    def to_json(self) -> dict[str, Any]:
        """Return every number, and how it was made."""
        depths = {
            f"{'oracle' if way == 're-tuned' else way}_by_share": {
                measure: {name: _means(ways[way], measure) for name, ways in of.items()}
                for measure, of in self.depth_shares.items()
            }
            for way in ("re-tuned", "fixed")
        }
        fixed = {
            measure: {name: _setting(ways["fixed"], measure) for name, ways in of.items()}
            for measure, of in self.depth_shares.items()
        }
        return {
            **self.facts,
            "queries": self.queries,
            "systems": [_plain(system) for system in self.filters],
            "shares": self._by_share(_means),
            "shares_short": self._by_share(_short),
            "depths": {"systems": [_plain(system) for system in self.depths], **depths, "fixed_settings": fixed},
            "moons": {pool: [_plain(system) for system in systems] for pool, systems in self.moons.items()},
            "moons_against_the_last": [
                {**vars(of.difference), "a": pool, "p_as_good": of.as_good, "p_as_good_holm": of.as_good_holm}
                for (pool, _), of in self.moon_tests.items()
            ],
            "queries_changed_most": [{**asdict(of), "gain": of.gain} for of in self.examples or ()],
            "baseline": self.baseline.means,
            "comparisons": _tests(self.comparisons),
            "against_dime": _tests(self.against_dime),
            "halves_against_dime": _tests(self.halves),
        }

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.runtime.files import write_text
        from foils.searching.page import findings_page

        write_text(path, findings_page(self))

    def _by_share(self, values: Callable[[Mapping[float, System], str], dict[str, Any]]) -> dict[str, Any]:
        return {
            measure: {
                name: {kind: values(curve, measure) for kind, curve in kinds.items()} for name, kinds in filters.items()
            }
            for measure, filters in self.shares.items()
        }


def _tests(tests: Mapping[tuple[str, str, str], Comparison]) -> list[dict[str, Any]]:
    return [{"kind": kind, **vars(test)} for (_, kind, _), test in tests.items()]


def _means(curve: Mapping[float, System], measure: str) -> dict[str, float]:
    return {f"{share:g}": system.means[measure] for share, system in curve.items()}


def _setting(curve: Mapping[float, System], measure: str) -> dict[str, Any]:
    """The one setting of a curve, at its best share."""
    best = max(curve.values(), key=lambda system: system.means[measure])
    return best.settings[measure][0].to_json()


def _short(curve: Mapping[float, System], measure: str) -> dict[str, int]:
    return {f"{share:g}": system.short_counts[measure] for share, system in curve.items()}


def _plain(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        "kind": system.kind,
        "means": system.means,
        "kept": system.kept,
        "short": system.short_counts,
        "kept_all": system.whole_counts,
        "settings": {measure: [each.to_json() for each in chosen] for measure, chosen in system.settings.items()},
        "per_query": {measure: values.tolist() for measure, values in system.per_query.items()},
    }
