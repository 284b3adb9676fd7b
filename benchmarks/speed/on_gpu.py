"""A GPU, or a processor with small numbers: encoding, tokenising, forward passes and search, each part saved at once.

    python benchmarks/run.py on_gpu [--minutes 8] [--model MODEL] [--collection FOLDER] [--texts N]

Without a model a small random one is made, and without a collection made-up texts, so that no network is needed. A part
that no time is left for is left out; each part is written to benchmarks/results/on_gpu.json (or --output) when it ends,
and what is there of the same machine and numbers is not measured again.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from common import RESULTS, seconds, unit
from foils.data import load_collection
from foils.encode import EncoderSettings, SentenceEncoder, Vectors, VectorStore
from foils.encode.models import load_model
from foils.encode.nearest import gpu, top_inner_products
from foils.encode.tokens import plain_tokenizer

LENGTH = 128  # tokens
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def small_model(folder: Path) -> str:
    """Write a random transformer of two layers whose words are numbers; return its folder."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(1_000))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    transformers.BertModel(config).save_pretrained(folder / "bert")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    module = Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[module, Pooling(64)], device="cpu").save(str(folder / "model"))
    return str(folder / "model")


def texts_of(collection: Path | None, count: int) -> list[str]:
    """Return texts of a collection's documents, or made-up ones of 5 to 100 words."""
    if collection is not None:
        loaded = load_collection(str(collection))
        return loaded.document_texts(np.arange(min(count, len(loaded.documents))))
    rng = np.random.default_rng(0)
    return [" ".join(map(str, rng.integers(0, 1_000, rng.integers(5, 100)))) for _ in range(count)]


def waited(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes, until the device is done."""

    def whole() -> None:
        work()
        if ON_GPU:
            torch.cuda.synchronize()

    return round(seconds(whole), 4)


def loaded(model: str, precision: torch.dtype = torch.float32) -> Any:
    made = load_model(model, device=DEVICE)
    made.max_seq_length = LENGTH
    return made.to(precision)


def encoding(model: str, texts: list[str]) -> dict[str, float]:
    """Seconds of encoding by sentence-transformers and through foils' store."""
    timed: dict[str, float] = {}
    for name, precision, size in (
        ("float32, 32 texts", torch.float32, 32),
        ("float32, 256 texts", torch.float32, 256),
        ("bfloat16, 256 texts", torch.bfloat16, 256),
    ):
        theirs = loaded(model, precision)
        theirs.encode(texts[:64], convert_to_tensor=True)
        work = partial(theirs.encode, texts, batch_size=size, show_progress_bar=False, convert_to_tensor=True)
        timed[f"sentence-transformers, {name}"] = waited(work)
    for precision in ("float32", "bfloat16"):
        settings = EncoderSettings(max_length=LENGTH, precision=precision)
        encoder = SentenceEncoder(loaded(model), settings)
        encoder.encode(texts[:64], "document")
        with tempfile.TemporaryDirectory() as folder:
            timed[f"foils, {precision}"] = waited(partial(VectorStore(folder).embed, encoder, texts, "document"))
    return timed


def tokenising(model: str, texts: list[str]) -> dict[str, float]:
    """Seconds of the model's own `preprocess`, 1,024 texts at a time, and of one call of the tokenizer."""
    made = loaded(model)
    tokenizer = plain_tokenizer(made)
    parts = [texts[start : start + 1_024] for start in range(0, len(texts), 1_024)]
    timed = {"preprocess": waited(lambda: [made.preprocess(part) for part in parts])}
    if tokenizer is not None:
        timed["tokens"] = waited(lambda: tokenizer(texts))
    return timed


def forward(model: str, texts: list[str]) -> dict[str, float]:
    """Seconds of padding and computing all texts, by tokens of a batch."""
    made = loaded(model, torch.bfloat16 if ON_GPU else torch.float32).eval()
    tokenizer = plain_tokenizer(made)
    if tokenizer is None:
        return {}
    tokens = tokenizer(texts)
    order = np.argsort(-tokens.lengths, kind="stable")

    def computed(size: int) -> None:
        at = 0
        with torch.inference_mode():
            while at < len(order):
                rows = order[at : at + max(1, size // int(tokens.lengths[order[at]]))]
                batch = tokens.batch(rows, pinned=ON_GPU)
                made({n: v.to(DEVICE, non_blocking=True) if hasattr(v, "to") else v for n, v in batch.items()})
                at += len(rows)

    sizes = (16_384, 65_536, 262_144) if ON_GPU else (1_024, 4_096)
    return {f"{size:,} tokens a batch": waited(partial(computed, size)) for size in sizes}


def searching(documents: int, queries: int) -> dict[str, float]:
    """Seconds of the 100 best of made-up vectors of 384 numbers: the first call, and one whose blocks are there."""
    rng = np.random.default_rng(0)
    held, asked = Vectors.of(unit(rng, documents, 384)), unit(rng, queries, 384)
    work = partial(top_inner_products, asked, held, 100, device=gpu(DEVICE))
    return {"first": waited(work), "again": waited(work)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--model")
    parser.add_argument("--collection", type=Path)
    parser.add_argument("--texts", type=int, default=32_768 if ON_GPU else 200)
    parser.add_argument("--output", type=Path, default=RESULTS / "on_gpu.json")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    machine = {
        "device": torch.cuda.get_device_name() if ON_GPU else f"processor only: {platform.machine()}",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sentence_transformers": sentence_transformers.__version__,
        "model": given.model or "small and random",
        "collection": str(given.collection or "made up"),
        "texts": given.texts,
    }
    known = json.loads(given.output.read_text("utf-8")) if given.output.is_file() else {}
    result = known if known.get("machine") == machine else {"machine": machine, "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or small_model(Path(folder))
        texts = texts_of(given.collection, given.texts)
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "encoding": partial(encoding, model, texts),
            "tokenising": partial(tokenising, model, texts),
            "forward": partial(forward, model, texts),
            "search": partial(searching, *((1_000_000, 10_000) if ON_GPU else (2_000, 50))),
        }
        for name, measure in parts.items():
            if name in result["parts"] or time.monotonic() > end:
                continue
            result["parts"][name] = measure()
            given.output.parent.mkdir(parents=True, exist_ok=True)
            given.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
            print(name, result["parts"][name], flush=True)


if __name__ == "__main__":
    main()
