"""Encoding against sentence-transformers' default on the same texts.

    python benchmarks/run.py encode [--texts 400] [--pairs 3] [--cores 2]

The texts are those of pydocs, distinct and in random order. Ratios are taken in one run, median of several pairs: of
processor's seconds with one thread, which other work on the machine changes little, and of seconds with every core.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import argument_parser, save
from foils.data import Collection, load_collection
from foils.encode import (
    DEFAULT_MODEL,
    EncoderSettings,
    EncodingSettings,
    SentenceEncoder,
    VectorStore,
    load_encoder,
)
from foils.encode.models import STATIC, load_model
from foils.encode.vectors import cosine_loss

LENGTH = 128  # tokens
MODELS = {  # name -> model, precision, how many times the texts: a bag of words takes no time for few
    "default": (DEFAULT_MODEL, "auto", 1),
    "exact": (DEFAULT_MODEL, "float32", 1),
    "bag of words": (f"static:{DEFAULT_MODEL}", "auto", 24),
}


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


def main() -> None:
    parser = argument_parser(__doc__)
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
    result = {"texts": given.texts, "cores": cores, "speed": measured}
    rows = [
        {
            "pydocs at 128 tokens": name, "texts": each["texts"], "precision": each["precision"],
            "one core": each["one thread"]["cpu"], f"{cores} cores": each["all cores"]["wall"],
        }
        for name, each in measured.items()
    ]  # fmt: skip
    save("encode", result, {"Times as fast as sentence-transformers": rows})
