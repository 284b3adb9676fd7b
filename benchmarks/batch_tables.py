"""The tables of docs/batches.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr


def growth(found: dict[str, Any]) -> str:
    """Time and memory of an epoch of HOBIT against the number of pairs, vectors mapped from disk."""
    rows = [
        "| pairs | time, one thread | vectors on disk | memory beside them | objective below exact greedy's |",
        "|---:|" + "---:|" * 4,
    ]
    runs = [run for name, run in found.items() if name.startswith("growth-")]
    for run in sorted(runs, key=lambda run: run["rows"]):
        cells = (
            f"{run['rows']:,}",
            f"{run['cpu_seconds']:,.0f} s",
            f"{run['gib_mapped']:.2f} GiB",
            f"{run['gib_beside']:.2f} GiB",
            f"{max(0.0, 100 * run['objective_difference']):.2f} %",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def speed(found: dict[str, Any]) -> str:
    """Time of an epoch of HOBIT against the plain greedy, which is timed on some batches and scaled up."""
    rows = ["| pairs | candidates | time | against plain | memory, of the vectors' |", "|---:|---|" + "---:|" * 3]
    runs = {name: run for name, run in found.items() if name.startswith("speed-")}
    for name, run in sorted(runs.items(), key=lambda item: (item[1]["rows"], item[0])):
        cells = (
            f"{run['rows']:,}",
            name.rpartition("-")[2],
            f"{run['seconds']:,.0f} s",
            f"{run['speedup']:.0f} × faster",
            f"{run['peak_over_vectors']:.2f} ×",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def effect(found: dict[str, Any]) -> str:
    """What trained encoders are worth by sampler: means over seeds, and differences to random batches."""
    measures = list(next(iter(found["over_seeds"].values())))
    head = " | ".join(f"{measure} | against random | p (Holm)" for measure in measures)
    rows = [
        f"| {found['collection']}, {found['model']}, {found['seeds']} seeds | {head} |",
        "|---|" + "---:|---:|---:|" * len(measures),
    ]
    against = {(each["a"], each["measure"]): each for each in found["comparisons"] if each["b"] == "random"}
    for name, means in found["over_seeds"].items():
        cells = [name]
        for measure in measures:
            cells.append(f"{means[measure]['mean']:.4f}")
            if each := against.get((name, measure)):
                cells.append(f"{each['difference']:+.4f} [{each['low']:+.4f}, {each['high']:+.4f}]")
                cells.append(f"{each['p_holm']:.2g}")
            else:
                cells += ["", ""]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def confirmed(results: list[dict[str, Any]], measure: str = "nDCG@10") -> str:
    """What each sampler is worth on each collection: differences to random batches, and how far the order repeats.

    * and ! mark differences above and below 0 that are significant after Holm's correction (p < 0.05). The last row is
    the rank correlation of the samplers' means between the even and the odd seeds.
    """
    names = list(dict.fromkeys(name for found in results for name in found["over_seeds"] if name != "random"))
    heads = [
        f"{found['collection']}, {found['model']}"
        + (f", {100 * found['hidden']:g} % hidden" if found.get("hidden") else "")
        + (", one rate" if found["settings"].get("shared_rate") else "")
        + f", {found['seeds']} seeds"
        for found in results
    ]
    lines = [f"| {measure} against random | {' | '.join(heads)} |", "|---|" + "---:|" * len(results)]
    means = [f"{found['over_seeds']['random'][measure]['mean']:.4f}" for found in results]
    lines.append(f"| random, {measure} itself | {' | '.join(means)} |")
    for name in names:
        lines.append(f"| {name} | {' | '.join(_difference(found, name, measure) for found in results)} |")
    halves = [_halves(found, measure) for found in results]
    lines.append(f"| order of samplers, even against odd seeds | {' | '.join(halves)} |")
    return "\n".join(lines)


def _difference(found: dict[str, Any], name: str, measure: str) -> str:
    for each in found["comparisons"]:
        if (each["a"], each["b"], each["measure"]) == (name, "random", measure):
            mark = "" if each["p_holm"] >= 0.05 else "*" if each["difference"] > 0 else "!"
            return f"{each['difference']:+.4f}{mark} [{each['low']:+.4f}, {each['high']:+.4f}]"
    return ""


def _halves(found: dict[str, Any], measure: str) -> str:
    runs = [[run[measure] for run in of] for of in found["runs"].values()]
    if len(runs) < 3 or len(runs[0]) < 2:
        return "–"
    return f"ρ {spearmanr(*([np.mean(of[part::2]) for of in runs] for part in (0, 1))).statistic:.2f}"
