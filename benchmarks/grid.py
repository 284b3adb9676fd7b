"""The grid of studies: forms and constants chosen on one part of its cells, tried once on the other.

    python benchmarks/grid.py FOLDER DATA [--part test] [--cell NAME ...]

DATA holds the collections as folders. grid.toml lists the cells: a collection, the share of training positives that is
hidden, a model, its batch size and its seeds; and says which were looked at while the decision's form was chosen
(`choice`), and which were not (`test`). Each cell is trained by `foils study`, which goes on where it was stopped. All
sources of a cell have `per_query` negatives a query. Writes benchmarks/results/grid.json.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from foils.data import load_collection
from foils.data.store import cache_folder, write_json
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.scoring import DecisionSettings, ScoreSettings, decide_sources, score_sources
from foils.studies.run import run_study
from foils.studies.settings import StudySettings
from study_first import hidden, mined

CELLS = Path(__file__).parent / "grid.toml"
RESULTS = Path(__file__).parent / "results" / "grid.json"


def cells(part: str | None, names: list[str] | None) -> list[dict[str, Any]]:
    """The cells of a part, or of these names, with what all of them have in common."""
    grid = tomllib.loads(CELLS.read_text())
    every = [{**grid["all"], **grid["model"][cell["model"]], **cell} for cell in grid["cell"]]
    return [cell for cell in every if part in (None, cell["part"]) and (not names or cell["name"] in names)]


def run(cell: dict[str, Any], folder: Path, data: Path) -> tuple[str, dict[str, Any]]:
    """Mine the sources of a cell, train on each, and return what is decided before any training."""
    collection = load_collection(str(data / cell["collection"]))
    if cell["hide"]:
        collection, _ = hidden(collection, cell["hide"])
    every = mined(collection, EncoderSettings(max_length=128), cell["per_query"])
    wanted = [name.format(*(int(first) + cell["per_query"] for first in _firsts(name))) for name in cell["sources"]]
    settings = StudySettings(
        seeds=cell["seeds"], queries=cell["queries"], per_query=cell["per_query"], measures=("nDCG@10",),
        training=cell["training"], baselines=True, **cell.get("study", {}),
    )  # fmt: skip
    sources, store = {source: every[source] for source in wanted}, VectorStore(cache_folder() / "vectors")
    run_study(folder, collection, sources, [cell["path"]], store, settings)
    encoder = load_encoder(cell["path"], EncoderSettings(max_length=128))
    scores = score_sources(collection, sources, encoder, store, ScoreSettings(hybrids=1, replicates=0))
    deciding = DecisionSettings(in_batch=cell["training"]["batch_size"] - 1)
    decision = decide_sources(scores, sources, encoder, store, deciding).decision
    said = {"source": decision.source, "probability": decision.best_with_probability, "matters": decision.matters}
    return f"{collection.name}, {cell['path']}", said


def summary(folder: Path) -> dict[str, Any]:
    """Of each cell the measures of every training, and Kendall's τ of some predictors with their means."""
    cells = {}
    for path in sorted(folder.glob("cells/*/scores.json")):
        predicted = json.loads(path.read_text())["sources"]
        measured: dict[str, list[float]] = defaultdict(list)
        for each in sorted(path.parent.glob("trained/*.json")):
            trained = json.loads(each.read_text())
            measured[trained["source"]].append(round(trained["measures"]["nDCG@10"], 5))
        names = [name for name in predicted if name in measured]
        means = [float(np.mean(measured[name])) for name in names]
        taus = {
            each: float(kendalltau([predicted[name][each] for name in names], means)[0])
            for each in ("benefit", "eci_sem", "eci", "mnrl_proxy", "gradient_energy", "rho")
        }
        benefits = {name: predicted[name]["benefit"] for name in names}
        cell = json.loads((path.parent / "cell.json").read_text())
        title = f"{cell['collection']['name']}, {cell['model']['name'].split('/')[-1]}"
        cells[title] = {"measured": measured, "benefit": benefits, "kendall": taus}
    return cells


def _firsts(name: str) -> list[str]:
    return [part.split("-")[0].split()[-1] for part in name.split("{}")[:-1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", choices=["choice", "test"])
    parser.add_argument("--cell", nargs="*", dest="names")
    given = parser.parse_args()
    for cell in cells(given.part, given.names):
        print(cell["name"], flush=True)
        title, decided = run(cell, given.folder, given.data)
        known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        decisions = {name: each["decision"] for name, each in known.items() if "decision" in each} | {title: decided}
        cells_of = summary(given.folder)
        for name, each in decisions.items():
            if name in cells_of:
                cells_of[name]["decision"] = each
        write_json(RESULTS, cells_of)


if __name__ == "__main__":
    main()
