"""A GPU, or a processor with small numbers: encoding, tokenising, forward passes, training and search, all in seconds.

    python benchmarks/run.py on_gpu [--minutes 8] [--model MODEL] [--collection FOLDER] [--texts N] [--cells DATA]

Without a model a small random one is made, and without a collection made-up texts, so that no network is needed. A part
that no time is left for is left out; each part is written to benchmarks/results/on_gpu.json (or --output) when it ends,
and what is there of the same machine and numbers is not measured again. Training: each text's first eight words are a
query that the text answers, four other texts are its negatives; sentence-transformers' trainer and foils' take the same
rows, one for each query, and foils' default besides, one for each negative. On a GPU the tests of the rooms that
compute on it are run. With --cells the trainings of `able` follow, on the collections in DATA.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
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
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from common import RESULTS, argument_parser, seconds, unit
from foils.data import Collection, Negatives, load_collection
from foils.data.negatives import negatives_table
from foils.encode import EncoderSettings, SentenceEncoder, Vectors, VectorStore
from foils.encode.models import load_model
from foils.encode.nearest import gpu, top_inner_products
from foils.encode.tokens import plain_tokenizer
from foils.encode.vectors import EncodingSettings
from foils.runtime.files import write_json
from foils.training.data import training_set
from foils.training.fit import train_model
from foils.training.settings import TrainSettings

ROOT = Path(__file__).resolve().parents[2]
LENGTH = 128  # tokens
NEGATIVES = 4  # of each query that is trained on
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


def collection_of(texts: list[str]) -> Collection:
    """Return a collection of the texts, each the answer to its own first eight words."""
    return Collection.from_dicts(
        "made of texts",
        {f"d{at}": text for at, text in enumerate(texts)},
        {f"q{at}": " ".join(text.split()[:8]) for at, text in enumerate(texts)},
        {"train": {f"q{at}": {f"d{at}": 1} for at in range(len(texts))}},
    )


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

    def by_default() -> None:
        with tempfile.TemporaryDirectory() as folder:
            settings = EncodingSettings(encoder=model, max_length=LENGTH, vectors=folder)
            encoder, store = settings.open(collection_of(texts))
            store.embed(encoder, texts, "document")

    timed["foils, its default: loading and the choice of a precision included"] = waited(by_default)
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


def training(model: str, texts: list[str]) -> dict[str, float]:
    """Seconds of an epoch by sentence-transformers' trainer and by foils, the same rows, batches and precision."""
    count = len(texts)
    collection = collection_of(texts)
    rows = [(at, (at + rank) % count, rank - 1) for at in range(count) for rank in range(1, NEGATIVES + 1)]
    query_ids, document_ids = [f"q{at}" for at, _, _ in rows], [f"d{at}" for _, at, _ in rows]
    table = negatives_table(query_ids, document_ids, "next", [rank for *_, rank in rows], np.zeros(len(rows)))
    negatives, size = Negatives(table), 128 if ON_GPU else 4
    columns = {"anchor": collection.query_texts(np.arange(count)), "positive": texts}
    for rank in range(1, NEGATIVES + 1):
        columns[f"negative_{rank}"] = texts[rank:] + texts[:rank]
    timed: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        theirs = loaded(model)
        arguments = SentenceTransformerTrainingArguments(
            folder, per_device_train_batch_size=size, num_train_epochs=1, learning_rate=2e-5, bf16=ON_GPU,
            save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=not ON_GPU,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            theirs, arguments, Dataset.from_dict(columns), loss=MultipleNegativesRankingLoss(theirs)
        )
        timed["sentence-transformers, a row for each query"] = waited(trainer.train)
    for form, name in (("lists", "a row for each query"), ("triplets", "a row for each negative")):
        data = training_set(collection, negatives, form=form, max_positives=1)
        settings = TrainSettings(batch_size=size, learning_rate=2e-5, max_length=LENGTH)
        with tempfile.TemporaryDirectory() as folder:
            timed[f"foils, {name}"] = waited(partial(train_model, loaded(model), data, folder, settings=settings))
    return timed


def tests() -> dict[str, float]:
    """How many tests of the rooms that compute on a GPU pass, fail and are left out there."""
    rooms = [str(ROOT / "tests" / name) for name in ("encode", "training", "batching", "searching", "scoring")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *rooms]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout[-500:])
    return {name: float(count) for count, name in counts}


def cells(data: Path, seconds_left: float) -> dict[str, float]:
    """Train what `able` trains for as long as there is time; what it decides goes to its own result file."""
    start, work = time.monotonic(), ROOT / "out" / "able"
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "able"]
    try:
        subprocess.run([*command, "train", str(work), str(data)], check=True, timeout=seconds_left)
    except subprocess.TimeoutExpired:
        print("no time is left for all cells: the same command goes on with them", flush=True)
    subprocess.run([*command, "decide", str(work), str(data)], check=True)
    return {"seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--model")
    parser.add_argument("--collection", type=Path)
    parser.add_argument("--texts", type=int, default=32_768 if ON_GPU else 200)
    parser.add_argument("--cells", type=Path, metavar="DATA")
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
            "training": partial(training, model, texts[:10_000]),
            "search": partial(searching, *((1_000_000, 10_000) if ON_GPU else (2_000, 50))),
        }
        if ON_GPU:
            parts["tests"] = tests
        if given.cells is not None:
            parts["cells"] = lambda: cells(given.cells, max(60.0, end - time.monotonic()))
        for name, measure in parts.items():
            if name in result["parts"] or time.monotonic() > end:
                continue
            result["parts"][name] = measure()
            write_json(given.output, result)
            print(name, result["parts"][name], flush=True)
