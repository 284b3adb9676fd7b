"""The figures of the experiments' report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foils.pages.page import PALETTE, Figure, label
from foils.searching.findings import Findings
from foils.searching.systems import System, deviation

DASHES = {"oracle": "solid", "honest": "dash", "re-tuned": "solid", "fixed": "dash"}
GREY = "#8a8f94"


def gains(systems: Sequence[System], measure: str, findings: Findings) -> Figure:
    """Return gains over all dimensions with 95 % bootstrap intervals of the paired differences, one row a system."""
    tested = [(system, findings.comparisons.get((system.name, system.kind, measure))) for system in systems]
    rows = [(system, test) for system, test in tested if test is not None]
    data = []
    for index, kind in enumerate(dict.fromkeys(system.kind for system, _ in rows)):
        tests = {system.title: test for system, test in rows if system.kind == kind}
        above = [test.high - test.difference for test in tests.values()]
        below = [test.difference - test.low for test in tests.values()]
        data.append({
            "type": "scatter", "mode": "markers", "name": kind, "y": [label(name) for name in tests],
            "x": [test.difference for test in tests.values()], "marker": {"size": 9, "color": PALETTE[index]},
            "error_x": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1},
        })  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": f"gain in {label(measure)}"}},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category",
                  "categoryorder": "array", "categoryarray": [label(system.title) for system, _ in rows]},
        "shapes": [_level(0.0, "x")],
    }  # fmt: skip
    baseline = findings.baseline.means[measure]
    caption = f"{measure}: mean gain over all dimensions ({baseline:.4f}), with 95 % intervals of it."
    return Figure(data, layout, caption, height=110 + 28 * len(rows))


def share_curves(measure: str, findings: Findings) -> Figure:
    """Return the mean over the share of dimensions kept, a curve for each filter and kind."""
    data = [
        _curve(f"{name} ({kind})", curve, measure, PALETTE[index % len(PALETTE)], DASHES[kind])
        for index, (name, kinds) in enumerate(findings.shares[measure].items())
        for kind, curve in kinds.items()
    ]
    return _over_shares(data, measure, findings, f"{measure} by the share of dimensions kept.")


def depth_curves(measure: str, findings: Findings) -> Figure:
    """Return the mean over the share of dimensions kept, a curve for each length of the feedback list."""
    data = [
        _curve(f"{name} ({way})", curve, measure, PALETTE[index % len(PALETTE)], DASHES[way])
        for index, (name, ways) in enumerate(findings.depth_shares[measure].items())
        for way, curve in ways.items()
    ]
    caption = (
        f"{measure} by the share of dimensions kept, for each length of the feedback list (oracle): with the settings "
        "that are best at each share (re-tuned), and with those that are best of all (fixed)."
    )
    return _over_shares(data, measure, findings, caption)


def moon_means(measure: str, findings: Findings) -> Figure:
    """Return the mean over runs, with its standard deviation, for each pool of moons."""
    means = {label(pool): [system.means[measure] for system in runs] for pool, runs in findings.moons.items()}
    data = [{
        "type": "scatter", "mode": "markers", "name": label(measure), "y": list(means),
        "x": [float(np.mean(runs)) for runs in means.values()], "marker": {"size": 9, "color": PALETTE[0]},
        "error_x": {"type": "data", "array": [deviation(runs) for runs in means.values()], "thickness": 1},
    }]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": label(measure)}},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "shapes": [_level(findings.baseline.means[measure], "x")],
    }
    caption = f"{measure}: mean and standard deviation over draws. Dotted: all dimensions."
    return Figure(data, layout, caption, height=110 + 28 * len(means))


def _curve(name: str, curve: Mapping[float, System], measure: str, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "name": label(name), "x": list(curve),
        "y": [system.means[measure] for system in curve.values()], "line": {"color": colour, "dash": dash},
    }  # fmt: skip


def _over_shares(data: list[dict[str, Any]], measure: str, findings: Findings, caption: str) -> Figure:
    layout = {
        "xaxis": {"title": {"text": "share of dimensions kept"}},
        "yaxis": {"title": {"text": label(measure)}},
        "shapes": [_level(findings.baseline.means[measure], "y")],
    }
    return Figure(data, layout, caption + " Dotted: all dimensions.")


def _level(value: float, axis: str) -> dict[str, Any]:
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": value, f"{axis}1": value, f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
    return {"type": "line", "layer": "below", "line": {"dash": "dot", "width": 1, "color": GREY}, **ends}
