"""Which number of steps and which learning rate suit little data? A grid, measured on test queries.

    python benchmarks/run.py plain_recipe DATA --model static:all-MiniLM-L6-v2 --collections banking77 scifact
    python benchmarks/run.py plain_recipe DATA --model all-MiniLM-L6-v2 --collections banking77

DATA is a folder of BEIR collections. At most 800 queries are trained on, with one positive each, by in-batch negatives
alone and by the first four of the dense ranks; a collection without training judgements is divided in halves. Each cell
says by how much nDCG@10 on test differs from what `foils.training.plain_recipe` reaches. Results go to
benchmarks/results/plain_recipe.json; a run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import foils
from common import load, save
from foils.data import Collection, load_collection
from foils.encode.models import is_static
from foils.encode.vectors import computes_bfloat16
from foils.evaluation import measure_encoder
from foils.experiments.plan import with_queries
from foils.training.data import training_set
from foils.training.fit import train_model
from foils.training.models import learning_rate_of, load_trainable, plain_recipe
from foils.training.settings import OPEN

MEASURE, QUERIES, PER_QUERY = "nDCG@10", 800, 4
FACTORS, STEPS = (1, 3, 10), (50, 100, 200, 400)


def divided(collection: Collection) -> Collection:
    """A collection with judgements to train on: where it has none, half of those of test."""
    if "train" in collection.qrels:
        return with_queries(collection, {"train": QUERIES}, 0)
    judged = collection.qrels["test"]
    ids = np.unique(np.asarray(judged["query_id"].to_pylist()))
    first = pa.array(np.random.default_rng(0).permutation(ids)[: len(ids) // 2])
    inside = pc.is_in(judged["query_id"].cast(pa.string()), value_set=first)
    return replace(collection, qrels={"train": judged.filter(inside), "test": judged.filter(pc.invert(inside))})


def trained(name: str, collection: Collection, data: Any, *, steps: int | None = None, factor: int = 0) -> Any:
    """Train by the plain recipe, or for these steps at a multiple of the usual rate; return what was reached."""
    model = load_trainable(name)
    settings = plain_recipe(len(data), model, replace(OPEN, steps=steps))
    rate = factor * learning_rate_of(model) if factor else settings.learning_rate
    trainer = {"bf16": True} if not is_static(model) and computes_bfloat16(model.device) else {}  # as in a tuning
    settings = replace(settings, learning_rate=rate, max_length=data.length_for(model).tokens, trainer=trainer)
    with tempfile.TemporaryDirectory() as folder:
        run = train_model(model, data, folder, settings=settings)
    value = measure_encoder(run.model, collection, "test", [MEASURE]).means[MEASURE]
    done = {"rows": len(data), "steps_taken": run.steps, "learning_rate": rate, "batch": settings.batch_size}
    return {**done, MEASURE: round(value, 5)}


def tables(runs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """A table for each model and source: rows are steps and rates, columns collections, nDCG@10 less the recipe's."""
    made: dict[str, list[dict[str, Any]]] = {}
    for model, source in dict.fromkeys((each["model"], each["source"]) for each in runs):
        chosen = [each for each in runs if (each["model"], each["source"]) == (model, source)]
        recipe = {each["collection"]: each[MEASURE] for each in chosen if "factor" not in each}
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for each in chosen:
            if "factor" in each and each["collection"] in recipe:
                key = (each["steps"], each["factor"])
                row = rows.setdefault(key, {"steps": f"{each['steps']}", "learning rate": f"× {each['factor']}"})
                row[each["collection"]] = f"{each[MEASURE] - recipe[each['collection']]:+.4f}"
        reached = {name: f"{value:.4f}" for name, value in recipe.items()}
        first = {"steps": "the recipe", "learning rate": "", **reached}
        made[f"{model}, {source}"] = [first, *(rows[key] for key in sorted(rows))]
    return made


FIELDS = ("model", "collection", "source", "steps", "factor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--collections", nargs="+", default=["banking77", "clinc150", "scifact", "squad-sent"])
    parser.add_argument("--sources", nargs="+", default=["in-batch", "dense"])
    parser.add_argument("--factors", nargs="*", type=int, default=FACTORS)
    parser.add_argument("--steps", nargs="*", type=int, default=STEPS)
    options = parser.parse_args()
    grid = [{"steps": steps, "factor": factor} for steps in options.steps for factor in options.factors]
    for name in options.collections:
        collection = divided(load_collection(str(options.data / name)))
        for source in options.sources:
            mined = None
            if source == "dense":
                mined = foils.mine(collection, "dense", encoder=options.model, top=PER_QUERY)
            data = training_set(collection, mined, max_positives=1)
            for asked in [{}, *grid]:
                what = {"model": options.model, "collection": name, "source": source, **asked}
                runs = load("plain_recipe").get("runs", [])
                if any({key: each[key] for key in FIELDS if key in each} == what for each in runs):
                    continue
                runs.append({**what, **trained(options.model, collection, data, **asked)})
                save("plain_recipe", {"runs": runs}, tables(runs))


if __name__ == "__main__":
    main()
