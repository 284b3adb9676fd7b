"""Do the leftovers of an epoch make bad last batches? Hardness and contradictions over the epoch, on real pairs.

    python benchmarks/batch_curve.py COLLECTION [--encoder MODEL] [--backend openvino --precision bfloat16]

HOBIT builds its epoch without shuffling, so that batches stand in the order of building; the others in the order of
training. By twentieths of the epoch, means over seeds: hardness, the gains in hardness and in InfoNCE against the same
pairs in random batches, and contradictions, also where nothing is kept apart. Adds to
benchmarks/results/batch_curve.json, by collection; batch_figures.py draws it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from foils.batching import METHODS, Batches, random_order
from foils.batching.conflicts import known_conflicts
from foils.batching.measures import RowMeasures, by_batch, measure_rows, overlap
from foils.data import load_collection
from foils.data.store import cache_folder
from foils.data.texts import DocumentTexts
from foils.data.training_rows import training_rows
from foils.encode import EncoderSettings, VectorStore, load_encoder

RESULTS = Path(__file__).parent / "results" / "batch_curve.json"
PARTS, SIZE = 20, 128
VARIANTS: dict[str, tuple[str, dict]] = {
    "random": ("random", {}),
    "hobit": ("hobit", {"shuffle": False}),
    "hobit, isolated first": ("hobit", {"shuffle": False, "seed_order": "isolated-first"}),
    "hobit, alpha 0": ("hobit", {"shuffle": False, "alpha": 0.0}),
    "hobit, alpha 0, isolated first": ("hobit", {"shuffle": False, "alpha": 0.0, "seed_order": "isolated-first"}),
    "ngame": ("ngame", {}),
    "walks": ("walks", {}),
    "b3": ("b3", {}),
}


def curves(batches: Batches, rows: RowMeasures, random: RowMeasures) -> dict[str, list[float]]:
    """Means by parts of the epoch; a short last batch is left out."""
    full = np.arange(batches.rows // batches.batch_size)
    found = {
        "hardness": by_batch(batches, rows.hardness),
        "hardness_gain": by_batch(batches, rows.hardness - random.hardness),
        "loss_gain": by_batch(batches, rows.loss - random.loss),
        "contradictions": rows.contradictions.astype(float),
    }
    return {
        name: [float(values[part].mean()) for part in np.array_split(full, PARTS)] for name, values in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    collection = load_collection(options.collection)
    pairs = training_rows(collection, form="pairs")
    settings = EncoderSettings(max_length=128, backend=options.backend, precision=options.precision, encode_batch=16)
    encoder, store = load_encoder(options.encoder, settings), VectorStore(cache_folder() / "vectors")
    queries = store.embed(encoder, collection.query_texts(pairs.query_rows), "query").take(slice(None))
    documents = store.embed(encoder, DocumentTexts(collection, pairs.doc_rows), "document").take(slice(None))
    conflicts = known_conflicts(collection, pairs.query_rows, pairs.doc_rows)
    plain = random_order(len(pairs), batch_size=SIZE, rng=np.random.default_rng(99), conflicts=conflicts)
    random = measure_rows(queries, documents, plain, conflicts=conflicts)
    variants = {}
    for label, (name, given) in VARIANTS.items():
        runs, epochs, free = [], [], []
        for seed in range(options.seeds):
            build = METHODS[name].build
            batches = build(
                queries, documents, batch_size=SIZE, rng=np.random.default_rng(seed), conflicts=conflicts, **given
            )
            rows = measure_rows(queries, documents, batches, conflicts=conflicts)
            epochs.append(batches)
            runs.append(curves(batches, rows, random))
            unguarded = build(queries, documents, batch_size=SIZE, rng=np.random.default_rng(seed), **given)
            counts = np.asarray([conflicts.matrix(batch).sum() for batch in unguarded], float)
            free.append([float(part.mean()) for part in np.array_split(counts[: len(pairs) // SIZE], PARTS)])
        variants[label] = {
            **{key: np.mean([run[key] for run in runs], axis=0).round(5).tolist() for key in runs[0]},
            "contradictions_unguarded": np.mean(free, axis=0).round(4).tolist(),
            "overlap": overlap(epochs),
        }
        shown = {key: np.round(value, 3).tolist() for key, value in variants[label].items() if "hardness" not in key}
        print(label, json.dumps(shown), flush=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[collection.name] = {
        "pairs": len(pairs),
        "encoder": options.encoder,
        "backend": options.backend,
        "precision": options.precision,
        "seeds": options.seeds,
        "batch_size": SIZE,
        "overlap_random": (SIZE - 1) / (len(pairs) - 1),
        "variants": variants,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
