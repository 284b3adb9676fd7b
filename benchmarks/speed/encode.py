"""Encoding: against sentence-transformers' default on the same texts, and how many texts a scoring encodes.

    python benchmarks/run.py encode [--texts 400] [--pairs 3] [--cores 2]

The texts are those of pydocs, distinct and in random order. Ratios are taken in one run, median of several pairs: of
processor's seconds with one thread, which other work on the machine changes little, and of seconds with every core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import save
from foils.data import Collection, load_collection
from foils.encode import (
    DEFAULT_MODEL,
    EncoderSettings,
    EncodingSettings,
    Kind,
    SentenceEncoder,
    Vectors,
    VectorStore,
    load_encoder,
)
from foils.encode.encoder import WINDOW, token_batches, tokenized_windows, tokens_on
from foils.encode.models import STATIC, load_model
from foils.encode.tokens import plain_tokenizer
from foils.encode.vectors import cosine_loss
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.scoring import ScoreSettings, score_sources

LENGTH = 128  # tokens
MODELS = {  # name -> model, precision, how many times the texts: a bag of words takes no time for few
    "default": (DEFAULT_MODEL, "auto", 1),
    "exact": (DEFAULT_MODEL, "float32", 1),
    "bag of words": (f"static:{DEFAULT_MODEL}", "auto", 24),
}


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


def speed(name: str, texts: list[str], collection: Collection, pairs: int, threads: int) -> dict[str, float]:
    """Return how many times as fast as the model's own `encode` ours is, median of pairs, by seconds and by CPU's."""
    import torch

    torch.set_num_threads(threads)
    theirs = load_model(MODELS[name][0], device="cpu")
    if not MODELS[name][0].startswith(STATIC):
        theirs.max_seq_length = LENGTH
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        encoder = opened(name, collection, Path(folder) / "chosen")
        for encode in (theirs.encode, partial(encoder.encode, kind="document")):
            encode(texts[:32])  # what is done once
        for pair in range(pairs):
            before = clocks()
            theirs.encode(texts, show_progress_bar=False, normalize_embeddings=True)
            between = clocks()
            VectorStore(Path(folder) / str(pair)).embed(encoder, texts, "document")
            after = clocks()
            ratios.append(tuple((b - a) / (c - b) for a, b, c in zip(before, between, after, strict=True)))
    wall, cpu = np.median(np.array(ratios), axis=0)
    return {"wall": round(float(wall), 3), "cpu": round(float(cpu), 3)}


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def opened(name: str, collection: Collection, store: Path) -> SentenceEncoder:
    """Return the encoder as a door opens it."""
    model, precision, _ = MODELS[name]
    settings = EncodingSettings(encoder=model, precision=precision, device="cpu", max_length=LENGTH, vectors=store)
    encoder, _ = settings.open(collection)
    assert isinstance(encoder, SentenceEncoder)
    return encoder


def lowest_cosine(encoder: SentenceEncoder, exact: SentenceEncoder, texts: list[str]) -> float:
    return cosine_loss(exact.encode(texts, "document"), encoder.encode(texts, "document"))[1]


def padding(encoder: SentenceEncoder, texts: list[str]) -> dict[str, float]:
    """Return the tokens that are computed, padding counted, by those of the texts: in batches here, and of 32 there."""
    tokenizer = plain_tokenizer(encoder.model, task="document")
    assert tokenizer is not None, "a plain transformer"
    lengths = tokenizer(texts).lengths
    theirs = lengths[np.argsort([-len(text) for text in texts], kind="stable")]
    padded = sum(theirs[at : at + 32].max() * len(theirs[at : at + 32]) for at in range(0, len(theirs), 32))
    windows = tokenized_windows(texts, tokenizer, WINDOW)
    batches = token_batches(windows, lambda: tokens_on("cpu"))
    ours = sum(each["attention_mask"].numel() for _, each in batches)
    return {"ours": round(float(ours / lengths.sum()), 3), "theirs": round(float(padded / lengths.sum()), 3)}


def encodings(encoder: SentenceEncoder, records: int) -> dict[str, int]:
    """Score three sources and their hybrids of a sample, twice, in a fresh store."""
    collection = load_collection("pydocs")
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(collection.documents), 8)).astype(np.float32)
    made_up = DenseRetriever(Vectors.of(vectors), Vectors.of(vectors))
    retrievers = (RandomRetriever(collection), BM25Retriever(collection), made_up)
    sources = {each.name: mine_negatives(collection, each, split="dev", top=3) for each in retrievers}
    counting = Counting(encoder)
    settings = ScoreSettings(split="dev", sample=records)
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
    parser.add_argument("--cores", type=int, help="default: all")
    given = parser.parse_args()
    collection = load_collection("pydocs")
    shuffled = np.random.default_rng(0).permutation(len(collection.documents))
    cores = given.cores or len(os.sched_getaffinity(0))
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            texts = collection.document_texts(shuffled[: given.texts * MODELS[name][2]])
            encoder = opened(name, collection, Path(folder))
            exact = load_encoder(MODELS[name][0], EncoderSettings(precision="float32", device="cpu", max_length=LENGTH))
            measured[name] = {
                "precision": encoder.precision,
                "texts": len(texts),
                "lowest_cosine": round(lowest_cosine(encoder, exact, texts), 6),
                "one thread": speed(name, texts, collection, given.pairs, 1),
                "all cores": speed(name, texts, collection, given.pairs, cores),
            }
    encoder = load_encoder(DEFAULT_MODEL, EncoderSettings(max_length=LENGTH, device="cpu"))
    padded = padding(encoder, collection.document_texts(shuffled[: given.texts]))
    result = {"texts": given.texts, "cores": cores, "speed": measured, "padded": padded, **encodings(encoder, 20)}
    rows = [
        {
            "pydocs at 128 tokens": name, "texts": each["texts"], "precision": each["precision"],
            "one core": each["one thread"]["cpu"], f"{cores} cores": each["all cores"]["wall"],
        }
        for name, each in measured.items()
    ]  # fmt: skip
    save("encode", result, {"Times as fast as sentence-transformers": rows})


if __name__ == "__main__":
    main()
