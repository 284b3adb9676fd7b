"""Write what a study found: benchmarks/results/NAME.json and, of the one named study_first, docs/study-laffer.svg.

    python benchmarks/study_results.py STUDY [--name study_first]

STUDY is a folder that benchmarks/study_first.py filled; what is written is the analysis of `foils report`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from batch_figures import COLOURS, Line, page, panel
from foils.data.store import write_json
from foils.studies import analyse, read_cells
from foils.studies.cells import Cell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIRST = "study_first"
MEASURE = "nDCG@10"
WAYS, FIRSTS = ("dense", "bm25"), (0, 10, 20, 50, 100)


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
    write_json(RESULTS / f"{given.name}.json", {"all": analyse(cells).to_json()})
    complete = [cell for cell in cells if cell.facts["collection"]["name"].startswith("banking77")]
    if complete and given.name == FIRST:
        order = sorted(complete, key=lambda cell: float((cell.name.partition(", ")[2] or "0").split()[0]))
        (ROOT / "docs" / "study-laffer.svg").write_text(laffer(order), encoding="utf-8")


if __name__ == "__main__":
    main()
