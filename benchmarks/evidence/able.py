"""An encoder that is able before it is trained: which negatives train it best, and which of the result to deploy?

    python benchmarks/run.py able train FOLDER DATA [--cell NAME ...] [--source NAME ...]
    python benchmarks/run.py able decide FOLDER DATA [--cell NAME ...]
    python benchmarks/run.py able h100 FOLDER DATA [--cell COLLECTION ...]

DATA holds the collections as folders. The cells are those of grid.toml with the models *able-256* and *able-1024*: as
many training queries, four negatives of each, a row for each negative, batches of 64, texts cut after 32 tokens in
training. All trainings of a cell have as many steps; in-batch negatives alone are the pairs, as often as that takes;
*selected* are the negatives that `foils select --by benefit` keeps of three sources, and *of four*, BM25's among
them. Each training is measured as it is, and with its weights halfway and three quarters of the way from the base, by
nDCG@10 of at most 400 test queries among 2,000 random documents, at the model's own length. `train` goes on where it
was stopped and keeps the values of each query in FOLDER; `decide` says what the decision expects of the sources that
were trained on, and writes benchmarks/results/able.json, and the values of each query to able_queries.json beside it.
`h100` says what the decision expects in the cells of benchmarks/results/on_h100.json, which were trained on a GPU, and
writes able_h100.json.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from grid import MARGIN, cells, loaded
from scipy.stats import kendalltau

import foils
from common import RESULTS, argument_parser, load, save
from foils.data import Collection, Negatives, load_collection
from foils.data.description import drawn_judgements, with_documents
from foils.deciding import BeliefSettings
from foils.deciding import decide as decide_between
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.evaluation.doors import measure_encoder
from foils.experiments.plan import with_queries
from foils.experiments.tasks import IN_BATCH, UNTRAINED, EncoderTask
from foils.runtime.files import cache_folder, digest_of, write_json
from foils.statistics import bootstrap_interval
from foils.training.models import merged
from foils.training.settings import TrainSettings

PER_QUERY, BATCH, DOCUMENTS, QUERIES, ON_GPU_QUERIES = 4, 64, 2_000, 400, 2_000
SHARES = (1.0, 0.75, 0.5)  # of the tuned model's weights
SELECTED_FROM = {
    "selected": ("random", "dense 0-4", "dense 20-24"),
    "selected of four": ("random", "bm25 0-4", "dense 0-4", "dense 20-24"),
}
WINDOWS = {"dense 0-4": (0, 4), "dense 20-24": (20, 24), "bm25 0-4": (0, 4)}


def able_cells(names: list[str] | None = None) -> list[dict[str, Any]]:
    """The cells of this benchmark."""
    return [cell for cell in cells(None, names, {}) if cell["model"].startswith("able-")]


def training_part(cell: dict[str, Any], data: Path) -> Collection:
    """The collection with the judgements of the training queries that are drawn."""
    collection = loaded(cell, data)
    train = drawn_judgements(collection, "train", cell["queries"], 0)
    return replace(
        collection, qrels={**collection.qrels, "train": train}, digest=digest_of([collection.digest, len(train)])
    )


def measured_part(collection: Collection) -> Collection:
    """The test queries and documents that every training of a cell is measured on."""
    rows = np.random.default_rng(11).permutation(len(collection.documents))[:DOCUMENTS]
    part = with_documents(collection, rows)
    return replace(part, qrels={**part.qrels, "test": drawn_judgements(part, "test", QUERIES, 11)})


def source_of(collection: Collection, name: str) -> Negatives:
    """Mine a source by its name."""
    if name == "random":
        return foils.mine(collection, "random", top=PER_QUERY)
    dense = {"encoder": "all-MiniLM-L6-v2", "max_length": 128}
    if name in SELECTED_FROM:
        tables = {each: source_of(collection, each) for each in SELECTED_FROM[name]}
        how = {**dense, "settings": {"top": PER_QUERY}, "in_batch": BATCH - 1}
        return foils.select(tables, by="benefit", collection=collection, **how)
    if name == MARGIN:
        return foils.mine(collection, "dense", top=PER_QUERY, relative_margin=0.05, **dense)
    method = name.split()[0]
    return foils.mine(collection, method, top=PER_QUERY, ranks=WINDOWS[name], **(dense if method == "dense" else {}))


def values_of(model: Any, part: Collection) -> list[float]:
    """nDCG@10 of each test query."""
    measured = measure_encoder(model, part, "test", ["nDCG@10"])
    return [round(float(each), 3) for each in measured.per_query["nDCG@10"]]


def train(cell: dict[str, Any], folder: Path, data: Path, wanted: list[str] | None) -> None:
    """Train on each source, and measure."""
    whole = training_part(cell, data)
    part = measured_part(loaded(cell, data))
    task = EncoderTask(cell["path"])
    place = folder / f"{cell['name']}.json"
    known = json.loads(place.read_text()) if place.is_file() else {}
    if UNTRAINED not in known:
        known[UNTRAINED] = {"values": {"0": values_of(task.load(), part)}}
        write_json(place, known)
    steps = PER_QUERY * cell["queries"] // BATCH
    for source in wanted or [IN_BATCH, *cell["sources"]]:
        if source in known:
            continue
        negatives = None if source == IN_BATCH else source_of(whole, source)
        rows = task.rows(whole, negatives, per_query=PER_QUERY, max_positives=1)
        epochs = max(1, round(steps / max(1, len(rows) // BATCH)))
        settings = TrainSettings(
            batch_size=BATCH, epochs=epochs, seed=0, loss_settings={"temperature": 0.05}, trainer={"bf16": True}
        )
        with tempfile.TemporaryDirectory() as checkpoints:
            run = task.train(rows, Path(checkpoints), settings, "random")
        values, model, before = {}, run.model, 1.0
        for share in SHARES:
            if share != before:
                model = merged(task.load(), model, share / before)
            before = share
            values[f"{share:g}"] = values_of(model, part)
        known[source] = {"rows": len(rows), "steps": run.steps, "seconds": round(run.seconds, 1), "values": values}
        write_json(place, known)
        means = {name: round(float(np.mean(each)), 4) for name, each in values.items()}
        print(cell["name"], source, len(rows), run.steps, means, flush=True)


def decide(cell: dict[str, Any], folder: Path, data: Path) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """What the decision expects of each source, and what the trainings gave; None where nothing is trained."""
    place = folder / f"{cell['name']}.json"
    known = json.loads(place.read_text()) if place.is_file() else {}
    if IN_BATCH not in known:
        return None
    collection = training_part(cell, data)
    trained = {name: each["values"] for name, each in known.items() if name != UNTRAINED}
    sources = {name: source_of(collection, name) for name in trained if name != IN_BATCH}
    encoder = load_encoder(cell["path"], EncoderSettings(max_length=128))
    store = VectorStore(cache_folder() / "vectors")
    decision = decide_between(collection, sources, encoder, store, BeliefSettings(in_batch=BATCH - 1))
    expected = {(IN_BATCH if each.name == "none" else each.name): each for each in decision.candidates}
    made = {
        "part": cell["part"],
        "untrained": round(float(np.mean(known[UNTRAINED]["values"]["0"])), 4),
        "decision": {"source": decision.source, "sentence": decision.sentence, "pooled": decision.pooled},
        "trained": {
            name: {
                "steps": known[name]["steps"],
                "rows": known[name]["rows"],
                "nDCG@10": {share: round(float(np.mean(each)), 4) for share, each in values.items()},
                "expected": [round(expected[name].gain, 2), round(expected[name].gain_low, 2),
                             round(expected[name].gain_high, 2)],
                "strength": round(expected[name].strength, 5),
                "benefit": round(expected[name].benefit, 5),
            }
            for name, values in trained.items()
        },
    }  # fmt: skip
    rows = []
    for name, values in trained.items():
        row: dict[str, Any] = {"cell": cell["name"], "source": name}
        if name == IN_BATCH:
            row |= {"expected": None, "as trained": None}
        else:
            gain = 100 * (np.array(values["1"]) - np.array(trained[IN_BATCH]["1"]))
            low, high = bootstrap_interval(gain, rng=np.random.default_rng(0))
            each = expected[name]
            row["expected"] = f"{each.gain:+.1f} [{each.gain_low:.1f}, {each.gain_high:.1f}]"
            row["as trained"] = f"{gain.mean():+.1f} [{low:.1f}, {high:.1f}]"
        for share, text in (("1", "nDCG@10"), ("0.75", "three quarters"), ("0.5", "halfway")):
            row[text] = f"{float(np.mean(values[share])):.4f}"
        rows.append(row | {"chosen": name == (decision.source or IN_BATCH)})
    return made, rows


def on_h100(name: str, data: Path) -> dict[str, Any]:
    """What the decision expects in a cell that was trained on a GPU, and what it gave there, in points."""
    trained = {source: 100 * float(np.mean(each)) for source, each in load("on_h100")["cells"][name].items()}
    collection = with_queries(load_collection(str(data / name)), {"train": ON_GPU_QUERIES}, 0)
    sources = {each: source_of(collection, each) for each in trained if each not in (IN_BATCH, UNTRAINED)}
    encoder, store = (
        load_encoder(DEFAULT_MODEL, EncoderSettings(max_length=128)),
        VectorStore(cache_folder() / "vectors"),
    )
    decision = decide_between(collection, sources, encoder, store, BeliefSettings(in_batch=BATCH - 1))
    gains = {
        each.name: {
            "expected": (each.gain, each.gain_low, each.gain_high), "strength": each.strength,
            "benefit": each.benefit, "trained": trained[each.name] - trained[IN_BATCH],
        }
        for each in decision.candidates if each.name in sources
    }  # fmt: skip
    return {"source": decision.source, "sentence": decision.sentence, "gains": gains}


def h100_rows(name: str, cell: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each source of such a cell, with whether the interval holds what was gained."""
    rows = []
    for source, gain in cell["gains"].items():
        value, low, high = gain["expected"]
        rows.append({
            "cell": name, "source": source, "expected": f"{value:+.1f} [{low:.1f}, {high:.1f}]",
            "gained": f"{gain['trained']:+.1f}", "inside": low <= gain["trained"] <= high,
            "chosen": source == cell["source"],
        })  # fmt: skip
    return rows


def losses(cells: dict[str, Any], on_gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """What the decision and fixed choices lose against the best source that was trained, in points, over the cells.

    Args:
        cells: of able.json; those of 256 queries, with sixteen steps, are left out.
        on_gpu: of able_h100.json.
    """
    worlds = []
    for name, cell in cells.items():
        if name.endswith("able-1024"):
            means = {source: 100 * each["nDCG@10"]["1"] for source, each in cell["trained"].items()}
            expected = {source: each["expected"][0] for source, each in cell["trained"].items()}
            worlds.append((means, expected, cell["decision"]["source"] or IN_BATCH))
    for cell in on_gpu.values():
        means = {source: each["trained"] for source, each in cell["gains"].items()} | {IN_BATCH: 0.0}
        expected = {source: each["expected"][0] for source, each in cell["gains"].items()} | {IN_BATCH: 0.0}
        worlds.append((means, expected, cell["source"] or IN_BATCH))
    rows = []
    for rule in ("the decision", "dense 0-4", "random", "bm25 0-4", IN_BATCH):
        lost = [
            max(means.values()) - means[chosen if rule == "the decision" else rule]
            for means, _, chosen in worlds
            if rule == "the decision" or rule in means
        ]
        row = {"rule": rule if rule == "the decision" else f"always {rule}", "cells": len(lost)}
        rows.append(row | {"loses": f"{np.mean(lost):.2f}", "worst": f"{np.max(lost):.2f}"})
    orders = [kendalltau([expected[name] for name in means], [*means.values()])[0] for means, expected, _ in worlds]
    rows[0]["τ"] = f"{np.mean(orders):.2f}"
    return rows


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("action", choices=["train", "decide", "h100"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cell", nargs="*", dest="names")
    parser.add_argument("--source", nargs="*", dest="sources")
    given = parser.parse_args()
    if given.action == "h100":
        known = load("able_h100").get("cells", {})
        for name in given.names or load("on_h100")["cells"]:
            known[name] = on_h100(name, given.data)
        rows = [row for name, cell in known.items() for row in h100_rows(name, cell)]
        save("able_h100", {"cells": known}, {"Points of nDCG@10 over in-batch negatives alone": rows})
        return
    result, rows, queries = load("able"), [], {}
    for cell in able_cells(given.names):
        if given.action == "train":
            train(cell, given.folder, given.data, given.sources)
        elif (made := decide(cell, given.folder, given.data)) is not None:
            result[cell["name"]], listed = made
            rows += listed
            queries[cell["name"]] = json.loads((given.folder / f"{cell['name']}.json").read_text())
    if given.action == "decide":
        caption = "Points are gains over in-batch negatives alone; one seed."
        before = result.get("tables", {}).get(caption, {"columns": [], "rows": []})
        kept = [dict(zip(before["columns"], row, strict=True)) for row in before["rows"] if row[0] not in queries]
        cells = {name: cell for name, cell in result.items() if name != "tables"}
        rules = losses(cells, load("able_h100").get("cells", {}))
        save("able", result, {caption: [*kept, *rows], "Points that a choice loses": rules})
        values: dict[str, Any] = {"unit": "thousandths of nDCG@10 of each test query, by share of the tuned model"}
        values |= load("able_queries")
        for name, of in queries.items():
            values[name] = {
                source: {share: [round(1000 * one) for one in each] for share, each in of_source["values"].items()}
                for source, of_source in of.items()
            }
        (RESULTS / "able_queries.json").write_text(json.dumps(values) + "\n", "utf-8")
