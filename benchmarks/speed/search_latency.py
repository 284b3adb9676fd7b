"""What a sharpened search adds to a single query's search, at the median and at the 99th percentile.

    python benchmarks/run.py search_latency COLLECTION [--rounds 3]

An index of faiss over the documents of a collection (flat and HNSW, M 32, efSearch 128), 10 documents for each of its
test queries, one at a time: the search alone, without vectors; and `SharpenedSearch` over it, whose function reads the
vectors from the index. The ways take turns at every query, so that what else the machine does meets them alike.
Processor time of the calling thread (faiss on one thread), encoding of the query left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from common import argument_parser, save
from foils.data import load_collection
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.runtime.files import cache_folder
from foils.searching import DimensionSettings, SharpenedSearch, embed_collection

K = 10
RDIME, ROCCHIO = DimensionSettings("rdime"), DimensionSettings("rocchio")


def ways(index: Any) -> dict[str, Callable[[np.ndarray], object]]:
    def search(query: np.ndarray, k: int) -> tuple[list[int], np.ndarray]:
        rows = index.search(query[None], k)[1][0]
        rows = rows[rows >= 0]
        return rows.tolist(), index.reconstruct_batch(rows)

    again = {"rdime": RDIME, "rocchio": ROCCHIO}
    sharpened = {name: SharpenedSearch(search, settings) for name, settings in again.items()}
    plain = {"search alone": lambda query: index.search(query[None], K)}
    return plain | {name: lambda query, of=of: of(query, K) for name, of in sharpened.items()}


def measured(index: Any, queries: np.ndarray, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each way at the 50th and 99th percentile over queries, of the fastest round of each query."""
    every = ways(index)
    times = {name: np.full((rounds, len(queries)), np.inf) for name in every}
    for each in every.values():
        each(queries[0])  # warms up
    for turn in range(rounds):
        for row, query in enumerate(queries):
            for name, each in every.items():
                start = time.thread_time_ns()
                each(query)
                times[name][turn, row] = (time.thread_time_ns() - start) / 1e6
    return {
        name: {f"p{p}": round(float(np.percentile(of.min(axis=0), p)), 3) for p in (50, 99)}
        for name, of in times.items()
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    encoder = load_encoder(DEFAULT_MODEL, EncoderSettings(max_length=256))
    collection = load_collection(arguments.collection)
    embedded = embed_collection(collection, encoder, VectorStore(cache_folder() / "vectors"), split="test")
    result: dict[str, Any] = {
        "collection": collection.name, "documents": len(embedded.documents), "queries": len(embedded.queries), "k": K,
        "dimension": embedded.queries.shape[1], "unit": "milliseconds of processor time", "index": {},
    }  # fmt: skip
    for kind, factory in (("flat", "Flat"), ("hnsw", "HNSW32,Flat")):
        index = faiss.index_factory(embedded.documents.dimension, factory, faiss.METRIC_INNER_PRODUCT)
        if kind == "hnsw":
            index.hnsw.efConstruction, index.hnsw.efSearch = 200, 128
        index.add(embedded.documents.take(slice(None)))
        result["index"][kind] = measured(index, embedded.queries, arguments.rounds)
    rows = [
        {"": name, **{f"{kind} {p}": of[name][p] for kind, of in result["index"].items() for p in ("p50", "p99")}}
        for name in result["index"]["flat"]
    ]
    save("search_latency", result, {"": rows})
