"""Which learning rate suits which kind of model? A grid over kinds, collections and rates, on held-out queries.

    python benchmarks/run.py learning_rates DATA --kind static [--collections scifact squad-sent debian banking77]
    python benchmarks/run.py learning_rates DATA --kind language --model bert-tiny/
    python benchmarks/run.py learning_rates DATA --kind "few steps" --collections banking77 squad-sent

DATA is a folder of BEIR collections. Held out are queries of the split dev, or else training queries; test queries are
not looked at. Negatives are BM25's. Of large collections a part is drawn: the held-out and training queries'
positives, their negatives, and other documents. Results go to benchmarks/results/learning_rates.json, a run that is
there is not repeated; `python benchmarks/run.py tables` writes the table in docs/training.md from them.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common import load, save
from foils.data import Collection, Negatives, Run, load_collection
from foils.encode.cross_encoders import logits
from foils.evaluation import measure_encoder, measure_run, rerank_run
from foils.mining import BM25Retriever, mine_negatives
from foils.training.data import training_set
from foils.training.models import load_trainable
from foils.training.settings import TrainSettings

MEASURE, HELD_OUT, TRAINED_ON = "nDCG@10", "held out", "train"
BASE = "all-MiniLM-L6-v2"


@dataclass(frozen=True)
class Grid:
    """What is tried for a kind of model: learning rates, and (negatives, batch size, epochs) of a training."""

    model: str
    rates: tuple[float, ...]
    trainings: tuple[tuple[int, int, int], ...]
    queries: int
    measured: int
    documents: int


GRIDS = {
    "static": Grid(
        model=f"static:{BASE}",
        rates=(2e-5, 1e-3, 3e-3, 1e-2, 3e-2),
        trainings=((0, 128, 1), (10, 128, 1)),
        queries=400,
        measured=300,
        documents=4000,
    ),
    "language": Grid("", (2e-5, 1e-4, 3e-4, 1e-3, 3e-3), ((4, 32, 1),), 200, 200, 1500),
    "reranker": Grid("", (2e-5, 1e-4, 3e-4, 1e-3, 3e-3), ((4, 8, 2),), 200, 100, 1500),
    "tuned": Grid(BASE, (2e-5, 1e-4, 5e-4), ((1, 16, 1),), 160, 100, 500),
    "few steps": Grid(BASE, (2e-5, 6e-5, 2e-4), ((0, 32, 1), (1, 32, 1)), 768, 200, 1500),
}


def part(collection: Collection, grid: Grid) -> tuple[Collection, Negatives]:
    """A collection with the splits train and held out, no larger than the grid wants, and BM25's negatives."""
    rng = np.random.default_rng(7)

    def drawn(split: str, skip: int, count: int) -> pa.Table:
        table = collection.qrels[split].filter(pc.greater(collection.qrels[split]["relevance"], 0))
        ids = np.unique(table["query_id"].to_numpy(zero_copy_only=False).astype(str))
        chosen = np.random.default_rng(7).permutation(ids)[skip : skip + count]
        return table.filter(pc.is_in(table["query_id"], value_set=pa.array(chosen, table["query_id"].type)))

    own = "dev" in collection.qrels
    held_out = drawn("dev" if own else "train", 0, grid.measured)
    train = drawn("train", 0 if own else grid.measured, grid.queries)
    judged = replace(collection, qrels={TRAINED_ON: train, HELD_OUT: held_out})
    most = max(negatives for negatives, _, _ in grid.trainings)
    negatives = mine_negatives(judged, BM25Retriever(judged), split=TRAINED_ON, top=most)
    wanted = pa.concat_arrays(
        [
            column.combine_chunks().cast(pa.string())
            for column in (train["doc_id"], held_out["doc_id"], negatives.table["doc_id"])
        ]
    )
    rows = np.flatnonzero(np.asarray(pc.is_in(collection.documents["doc_id"].cast(pa.string()), value_set=wanted)))
    others = np.setdiff1d(rng.permutation(len(collection.documents))[: grid.documents], rows)
    kept = np.sort(np.r_[rows, others[: max(0, grid.documents - len(rows))]])
    return replace(judged, documents=collection.documents.take(pa.array(kept))), negatives


def run_of(collection: Collection, depth: int = 20) -> Run:
    """BM25's first documents for the held-out queries, the positives among them or not."""
    searched = BM25Retriever(collection)
    ids = np.unique(collection.qrels[HELD_OUT]["query_id"].to_numpy(zero_copy_only=False).astype(str)).tolist()
    rows, scores = searched.search(collection.query_rows(ids), depth)
    names = np.asarray(collection.documents["doc_id"].to_pylist(), object)
    return Run.from_dict(
        {
            q: dict(zip(names[r[r >= 0]].tolist(), s[r >= 0].tolist(), strict=True))
            for q, r, s in zip(ids, rows, scores, strict=True)
        }
    )


def trained(kind: str, name: str, data: Any, settings: TrainSettings) -> Any:
    """A model of the kind after training."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "reranker":
            from foils.training.fit import train_model

            model = model_of(kind, name)
            train_model(model, data, Path(folder), settings=settings)
            return model
        model = model_of(kind, name)
        train_model(model, data, Path(folder), settings=settings)
        return model


def model_of(kind: str, name: str) -> Any:
    if kind == "reranker":
        from foils.encode.cross_encoders import load_cross_encoder

        return load_cross_encoder(name, max_length=64, device="cpu", new_head=True)
    model = load_trainable(name, device="cpu")
    if kind != "static":
        model.max_seq_length = 64
    return model


def score_of(model: Any, *, collection: Collection, kind: str) -> float:
    """The measure of a model on the queries that are held out."""
    if kind != "reranker":
        return measure_encoder(model, collection, HELD_OUT, [MEASURE]).means[MEASURE]
    run = rerank_run(run_of(collection), collection, partial(logits, model))
    return measure_run(run, collection, HELD_OUT, [MEASURE]).means[MEASURE]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kind", choices=GRIDS, required=True)
    parser.add_argument("--model", help="a folder; default: all-MiniLM-L6-v2, or its word table")
    parser.add_argument("--collections", nargs="+", default=["scifact", "squad-sent", "debian", "banking77"])
    parser.add_argument("--epochs", type=int, help="in place of the grid's")
    given = parser.parse_args()
    grid, kind = GRIDS[given.kind], given.kind
    model = given.model or grid.model
    for name in given.collections:
        collection, negatives = part(load_collection(str(given.data / name)), grid)
        score = partial(score_of, collection=collection, kind=kind)
        untrained = score(model_of(kind, model))
        for per_query, batch_size, usual in grid.trainings:
            epochs = given.epochs or usual
            data = training_set(
                collection,
                negatives if per_query else None,
                split=TRAINED_ON,
                form="lists" if kind == "reranker" else "triplets" if per_query else "pairs",
                per_query=per_query or None,
            )
            for rate in grid.rates:
                what = {
                    "kind": kind, "model": Path(model).name, "collection": name, "negatives": per_query,
                    "batch_size": batch_size, "epochs": epochs, "learning_rate": rate,
                }  # fmt: skip
                known = load("learning_rates").get("runs", [])
                if any(what.items() <= each.items() for each in known):
                    continue
                settings = TrainSettings(
                    loss="listnet" if kind == "reranker" else "mnrl",
                    batch_size=batch_size,
                    epochs=epochs,
                    learning_rate=rate,
                    max_length=64 if kind != "static" else None,
                )
                found = score(trained(kind, model, data, settings))
                made = {**what, "rows": len(data), "untrained": round(untrained, 5), "trained": round(found, 5)}
                print(made, flush=True)
                runs = [*known, made]
                save("learning_rates", {"runs": runs}, {"": runs})


if __name__ == "__main__":
    main()
