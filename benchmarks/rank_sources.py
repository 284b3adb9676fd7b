"""Rank random, BM25 and dense negatives of collections, and their hybrids, by ECI_sem.

    python benchmarks/rank_sources.py COLLECTION... [--backend openvino --precision bfloat16]

Mines the top 10 of each kind for the training queries, scores with all-MiniLM-L6-v2 at length 128, and writes the
scores of each collection into benchmarks/results/rank_sources.json. Vectors are kept in the cache.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from foils.cli.show import Progress
from foils.data import load_collection
from foils.data.store import cache_folder, write_json
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.runtime.progress import reporting
from foils.runtime.terminal import print_tables
from foils.scoring import ScoreSettings, score_sources

RESULTS = Path(__file__).parent / "results" / "rank_sources.json"


def rank(name: str, settings: EncoderSettings) -> dict[str, object]:
    collection = load_collection(name)
    encoder, store = load_encoder("all-MiniLM-L6-v2", settings), VectorStore(cache_folder() / "vectors")
    queries = store.embed(encoder, collection.query_texts(np.arange(len(collection.queries))), "query")
    documents = store.embed(encoder, DocumentTexts(collection), "document")
    retrievers = RandomRetriever(collection), BM25Retriever(collection), DenseRetriever(queries, documents)
    sources, spent = {}, {}
    for retriever in retrievers:
        start = time.perf_counter()
        sources[retriever.name] = mine_negatives(collection, retriever, split="train", top=10)
        spent[retriever.name] = time.perf_counter() - start
    start = time.perf_counter()
    scores = score_sources(collection, sources, encoder, store, ScoreSettings())
    spent["score"] = time.perf_counter() - start
    print_tables(scores.tables())
    facts = {"documents": len(collection.documents), "backend": settings.backend, "precision": settings.precision}
    return {**scores.to_json(), **facts, "seconds": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="+")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    settings = EncoderSettings(max_length=128, backend=given.backend, precision=given.precision)
    for name in given.collection:
        with Progress() as progress, reporting(progress):
            found = rank(name, settings)
        every = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        every[found["collection"]["name"]] = found  # type: ignore[index]
        write_json(RESULTS, every)


if __name__ == "__main__":
    main()
