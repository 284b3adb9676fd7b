"""What the experiments of foils search found, as tables and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foils.cli.show import number, show_table

if TYPE_CHECKING:
    from foils.pages.search import Findings
    from foils.searching import System

NOTE = "oracle: settings chosen on these very queries; honest: on other folds. p: one-sided, Holm."


def show_findings(found: Findings) -> None:
    """Print the tables."""
    from foils.pages.search import SHORT, short_of, titled

    where = f"of {found.collection} ({found.split})"
    for title, systems in (("Filters", found.filters), ("Length of the feedback list", found.depths)):
        if systems:
            rows = [
                (titled(system), *(_cell(found, system, m) for m in found.measures), short_of([system], found))
                for system in systems
            ]
            caption = f"{NOTE} {SHORT}"
            show_table(f"{title} {where}", ["system", *found.measures, "no feedback"], rows, caption=caption)
    for measure, filters in found.shares.items():
        curves = {f"{name} ({kind})": curve for name, kinds in filters.items() for kind, curve in kinds.items()}
        rows = [
            (f"{share:g}", *(f"{curve[share].means[measure]:.4f}" for curve in curves.values()))
            for share in next(iter(curves.values()))
        ]
        rows.append(("no feedback", *(short_of([*curve.values()], found, (measure,)) for curve in curves.values())))
        caption = f"all dimensions: {found.baseline.means[measure]:.4f}. {SHORT}"
        show_table(f"{measure} by share of dimensions kept, {where}", ["share", *curves], rows, caption=caption)
    if found.moons:
        rows = [
            (pool, str(len(of)), *(_spread([s.means[m] for s in of]) for m in found.measures), short_of(of, found))
            for pool, of in found.moons.items()
        ]
        caption = f"mean ± deviation over runs. {SHORT}"
        show_table(f"Moons {where}", ["moon", "runs", *found.measures, "no feedback"], rows, caption=caption)


def plain_findings(found: Findings) -> dict[str, Any]:
    """Return everything as JSON has it."""
    curve = {
        measure: {name: {kind: _means(of, measure) for kind, of in kinds.items()} for name, kinds in filters.items()}
        for measure, filters in found.shares.items()
    }
    depths = {m: {name: _means(of, m) for name, of in curves.items()} for m, curves in found.depth_shares.items()}
    short = {
        measure: {name: {kind: _short(of, measure) for kind, of in kinds.items()} for name, kinds in filters.items()}
        for measure, filters in found.shares.items()
    }
    return {
        "queries": found.queries,
        "systems": [_plain(system) for system in found.filters],
        "shares": curve,
        "shares_short": short,
        "depths": {"systems": [_plain(system) for system in found.depths], "oracle_by_share": depths},
        "moons": {pool: [_plain(system) for system in of] for pool, of in found.moons.items()},
        "baseline": found.baseline.means,
        "comparisons": [{"kind": kind, **vars(test)} for (_, kind, _), test in found.comparisons.items()],
    }


def _means(curve: Mapping[float, System], measure: str) -> dict[str, float]:
    return {f"{share:g}": system.means[measure] for share, system in curve.items()}


def _short(curve: Mapping[float, System], measure: str) -> dict[str, int]:
    return {f"{share:g}": system.short_counts[measure] for share, system in curve.items()}


def _plain(system: System) -> dict[str, Any]:
    settings = {measure: [vars(one) for one in of] for measure, of in system.settings.items()}
    values = {measure: of.tolist() for measure, of in system.per_query.items()}
    facts = {"name": system.name, "kind": system.kind, "means": system.means, "kept": system.kept}
    return {**facts, "short": system.short_counts, "settings": settings, "per_query": values}


def _cell(found: Findings, system: System, measure: str) -> str:
    test = found.comparisons.get((system.name, system.kind, measure))
    return f"{system.means[measure]:.4f}" + (f" (p {number(test.p_holm)})" if test is not None else "")


def _spread(values: list[float]) -> str:
    import numpy as np

    deviation = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{deviation}"
