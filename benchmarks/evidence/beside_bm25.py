"""Is the source that trains best alone also the best beside BM25?

    python benchmarks/run.py beside_bm25 FOLDER DATA [--cell NAME ...] [--seeds N]

Cells of the grid (grid.toml) are trained again as `foils study --fused-with bm25` does, in FOLDER: the same sources,
seeds and steps, but test rankings are z scores of BM25 and of the model, weighed alike. Against the results that the
grid has of the model alone: how far the two orders of the sources agree (τ); what the source that is best alone loses
beside BM25; and what the decision's choice loses, alone and beside BM25.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from grid import RESULTS, cells, loaded, settings_of, sources_of
from scipy.stats import kendalltau

from common import narrowed, save
from foils.encode import VectorStore
from foils.experiments.study import open_study, read_cell, run_cells
from foils.runtime.files import cache_folder


def compared(cell: dict[str, Any], known: dict[str, Any], folder: Path, data: Path) -> dict[str, Any]:
    """Train what is not trained yet, and compare the orders."""
    collection, settings = loaded(cell, data), replace(settings_of(cell), fused_with="bm25")
    opened = open_study(folder, collection, sources_of(cell, collection), [cell["path"]], settings)
    with narrowed():
        run_cells(opened, VectorStore(cache_folder() / "vectors"))
    means = read_cell(opened[0].folder).means("nDCG@10")
    names = [name for name in known["measured"] if name in means and name not in ("untrained", "first stage")]
    alone, both = (np.array([np.mean(of[name]) for name in names]) for of in (known["measured"], means))
    chosen = names.index(known["decision"]["source"] or "in-batch negatives")
    best = int(alone.argmax())
    return {
        "cell": cell["name"], "best alone": names[best], "best beside BM25": names[int(both.argmax())],
        "chosen": names[chosen], "τ": round(float(kendalltau(alone, both).statistic), 2),
        "spread alone": round(float(np.ptp(alone)), 4), "spread beside BM25": round(float(np.ptp(both)), 4),
        "best alone loses": round(float(both.max() - both[best]), 4),
        "chosen loses alone": round(float(alone.max() - alone[chosen]), 4),
        "chosen loses beside BM25": round(float(both.max() - both[chosen]), 4),
        "random loses beside BM25": round(float(both.max() - both[names.index("random")]), 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cell", nargs="*", dest="names")
    parser.add_argument("--seeds", type=int)
    given = parser.parse_args()
    known, rows = json.loads(RESULTS.read_text())["cells"], list[dict[str, Any]]()
    for cell in cells(None, given.names, {}):
        cell["seeds"] = given.seeds or cell["seeds"]
        if "measured" in known.get(cell["name"], {}):
            rows.append(compared(cell, known[cell["name"]], given.folder, given.data))
            save("beside_bm25", {"cells": rows}, {"Sources alone and beside BM25": rows})


if __name__ == "__main__":
    main()
