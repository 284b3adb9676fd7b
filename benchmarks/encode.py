"""Encoding: against the model's own encode on the same texts, and how many texts a scoring encodes.

    python benchmarks/encode.py [--texts 400] [--pairs 3]

The texts are those of pydocs, distinct and in random order. Ratios are taken in one run, median of several pairs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foils.data import load_collection
from foils.data.store import write_json
from foils.encode import EncoderSettings, Kind, SentenceEncoder, Vectors, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.scoring import ScoreSettings, score_sources

RESULTS = Path(__file__).parent / "results" / "encode.json"


class Counting:
    """An encoder that counts the texts it encodes."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder, self.texts = encoder, 0
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def route(self, kind: Kind) -> str:
        return self.encoder.route(kind)

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        self.texts += len(texts)
        return self.encoder.encode(texts, kind)


def ratio(encoder: SentenceEncoder, texts: list[str], pairs: int) -> float:
    found = []
    for _ in range(pairs):
        start = time.perf_counter()
        encoder.model.encode(texts, show_progress_bar=False, normalize_embeddings=True)
        theirs = time.perf_counter() - start
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            VectorStore(folder).embed(encoder, texts, "document")
            found.append(theirs / (time.perf_counter() - start))
    return float(np.median(found))


def encodings(encoder: SentenceEncoder, records: int) -> dict[str, int]:
    """Score three sources and their hybrids of a sample, twice, in a fresh store."""
    collection = load_collection("pydocs")
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(collection.documents), 8)).astype(np.float32)
    made_up = DenseRetriever(Vectors.of(vectors), Vectors.of(vectors))
    retrievers = (RandomRetriever(collection), BM25Retriever(collection), made_up)
    sources = {each.name: mine_negatives(collection, each, split="dev", top=3) for each in retrievers}
    counting = Counting(encoder)
    settings = ScoreSettings(split="dev", sample=records, replicates=0)
    with tempfile.TemporaryDirectory() as folder:
        first = score_sources(collection, sources, counting, VectorStore(folder), settings)
        once = counting.texts
        score_sources(collection, sources, counting, VectorStore(folder), settings)
    found = first.measured.records
    return {
        "records": records,
        "distinct_texts": len(set(collection.query_texts(found.queries))) + len(found.texts),
        "encoded": once,
        "encoded_again": counting.texts - once,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    encoder = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128))
    documents = load_collection("pydocs")
    rows = np.random.default_rng(0).choice(len(documents.documents), given.texts, replace=False)
    found = {
        "texts": given.texts,
        "times_faster_than_encode": ratio(encoder, documents.document_texts(rows), given.pairs),
        **encodings(encoder, 20),
    }
    write_json(RESULTS, found)
    print(found)


if __name__ == "__main__":
    main()
