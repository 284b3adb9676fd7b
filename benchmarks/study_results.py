"""Write what a study found: benchmarks/results/NAME.json and, of the one named study_first, docs/study-laffer.svg.

    python benchmarks/study_results.py STUDY [--name study_first]

STUDY is a folder that benchmarks/study_first.py filled. Beside the analysis of `foils report` it says how well φ was
estimated where the judgements are complete, and what the benefit predicts when it is given the true φ.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

from batch_figures import COLOURS, Line, page, panel
from foils.data import Recapture
from foils.data.store import write_json
from foils.statistics.agreement import kendall_tau
from foils.studies import analyse, read_cells
from foils.studies.cells import Cell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIRST = "study_first"
MEASURE = "nDCG@10"
WAYS, FIRSTS = ("dense", "bm25"), (0, 10, 20, 50, 100)


def true_rates(cell: Cell, hidden: dict[str, dict[str, float]]) -> dict[str, float]:
    """The true share of false negatives of each source, where the judgements are complete."""
    name = cell.facts["collection"]["name"]
    if name == "banking77":
        return dict.fromkeys(cell.sources, 0.0)
    return {source: hidden[name][source] for source in cell.sources} if name in hidden else {}


def estimates(cell: Cell, rates: dict[str, float]) -> dict[str, object]:
    """How well recapture estimates φ, and what the benefit predicts with the true φ."""
    scores = json.loads((cell.folder / "scores.json").read_text())
    unlabelled = scores["unlabelled"]
    recaptures = {name: Recapture(**found) for name, found in scores["recapture"].items()}
    ratios = np.array([recaptures[name].returned / recaptures[name].kept for name in cell.sources])
    truth = np.array([rates[name] for name in cell.sources])
    estimated = np.array([recaptures[name].false_negatives(unlabelled) for name in cell.sources])
    means = cell.means(MEASURE)
    outcome = np.array([means[name].mean() for name in cell.sources])
    found = {
        "unlabelled_estimated": unlabelled,
        "unlabelled_true": float((truth @ ratios) / (ratios @ ratios)),
        "kendall_of_rates": kendall_tau(ratios, truth) if np.ptp(truth) else None,
        "pearson_of_rates": float(np.corrcoef(ratios, truth)[0, 1]) if np.ptp(truth) else None,
        "mean_error": float(np.abs(estimated - truth).mean()),
        "rates": {
            name: {"true": float(true), "estimated": float(guess)}
            for name, true, guess in zip(cell.sources, truth, estimated, strict=True)
        },
    }
    for proxy in ("mnrl_proxy", "gradient_energy"):
        values = np.array([cell.predictors[name][proxy] for name in cell.sources])
        found[f"kendall of (1 − 2φ) · {proxy}, true φ"] = kendall_tau((1 - 2 * truth) * values, outcome)
        found[f"kendall of (1 − 2φ) · {proxy}, estimated φ"] = kendall_tau((1 - 2 * estimated) * values, outcome)
    return found


def laffer(cells: list[Cell]) -> str:
    """nDCG@10 less the random source's, by the first rank of the window, a line a share of hidden positives."""
    charts = {way: [_line(cell, way, colour) for cell, colour in zip(cells, COLOURS, strict=False)] for way in WAYS}
    highest = max(abs(value) for lines in charts.values() for line in lines for value in line.y)
    step = next(size for size in (0.05, 0.1, 0.2, 0.5, 1.0, 5.0) if highest / size <= 5)
    count = int(np.ceil(highest / step))
    ticks = (
        [(math.log10(first + 5), str(first)) for first in FIRSTS],
        [(level * step, f"{level * step:+.1f}") for level in range(-count, count + 1)],
    )
    axes = {"x": "first rank of the ten trained on", "y": f"points of {MEASURE} over random"}
    panels = [panel(f"Windows of {way} ranks", lines, ticks=ticks, **axes) for way, lines in charts.items()]
    return page(panels, charts["dense"])


def _line(cell: Cell, way: str, colour: str) -> Line:
    means = {name: values.mean() for name, values in cell.means(MEASURE).items()}
    gains = [100 * (means[f"{way} {first}-{first + 10}"] - means["random"]) for first in FIRSTS]
    label = cell.facts["collection"]["name"].partition(", ")[2] or "0 % hidden"
    return Line(label, [math.log10(first + 5) for first in FIRSTS], gains, colour)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--name", default=FIRST)
    given = parser.parse_args()
    cells = [cell for cell in read_cells(given.study) if len(cell.sources) > 3]
    path = given.study / "hidden.json"
    hidden = json.loads(path.read_text()) if path.is_file() else {}
    result: dict[str, object] = {"all": analyse(cells).to_json()}
    complete = [cell for cell in cells if cell.facts["collection"]["name"].startswith("banking77")]
    others = [cell for cell in cells if cell not in complete]
    for name, chosen in (("complete judgements", complete), ("as they come", others)):
        if chosen:
            result[name] = analyse(chosen).to_json()["leaderboard"]
    result["false negatives"] = {
        cell.facts["collection"]["name"] if given.name == FIRST else cell.name: estimates(cell, rates)
        for cell in complete
        if (rates := true_rates(cell, hidden)) and len(rates) == len(cell.sources)
    }
    write_json(RESULTS / f"{given.name}.json", result)
    if complete and given.name == FIRST:
        order = sorted(complete, key=lambda cell: float((cell.name.partition(", ")[2] or "0").split()[0]))
        (ROOT / "docs" / "study-laffer.svg").write_text(laffer(order), encoding="utf-8")


if __name__ == "__main__":
    main()
