"""Training speed and peak memory against sentence-transformers' own trainer and losses, in one run.

    python benchmarks/run.py train [--queries 8000] [--batch-size 1024] [--repeats 3]

Made-up texts, so no collection is needed. Each training is a process of its own, the sides in turns; medians of the
seconds from data set and model to the trained model, and of the largest resident memory above the memory before.
Cases: a static embedding with a batch of 1,024 (the loss uncached), a one-layer BERT with the cached loss, each also
with a curriculum by learning progress, which passes every batch through once more; and the loss alone at batch 4,096,
cached against uncached. Writes benchmarks/results/train.json.
On a machine that others use set OMP_NUM_THREADS=1: threads that wait for a busy core cost more than they bring.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common import apart, argument_parser, resident_bytes, save, seconds, watched

WORDS = 4000
LOGGED = {"logging_steps": 1}


def collection_of(queries: int):
    from foils.data import Collection

    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(WORDS)])
    texts = {f"d{i}": " ".join(words[rng.zipf(1.3, 40) % WORDS]) for i in range(2 * queries)}
    asked = {f"q{i}": " ".join(texts[f"d{i}"].split()[:8]) for i in range(queries)}
    return Collection.from_dicts("made-up", texts, asked, {"train": {f"q{i}": {f"d{i}": 1} for i in range(queries)}})


def negatives_of(collection, per_query: int = 4):
    from foils.data import Negatives
    from foils.data.negatives import negatives_table

    rng, n = np.random.default_rng(1), len(collection.queries)
    rows = [(f"q{i}", f"d{n + j}", r) for i in range(n) for r, j in enumerate(rng.choice(n, per_query, replace=False))]
    queries, documents, ranks = zip(*rows, strict=True)
    table = Negatives(negatives_table(list(queries), list(documents), "random", ranks, np.zeros(len(rows))))
    return table.with_columns({"gap": rng.uniform(150, 900, len(rows))})  # for a curriculum; nothing else looks at it


def tokenizer_of():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names = {w: i for i, w in enumerate([*special, *(f"w{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(WordLevel(names, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


def model_of(kind: str, folder: Path):
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer

    torch.manual_seed(0)
    if kind == "static":
        return SentenceTransformer(modules=[StaticEmbedding(tokenizer_of(), embedding_dim=256)], device="cpu")
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer_of(), **tokens).save_pretrained(folder)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
    BertModel(BertConfig(vocab_size=WORDS + 5, max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(64)], device="cpu")


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that a piece of work takes, and its peak of resident memory above the start in MB."""
    peak: list[int] = []
    with watched(peak, resident_bytes):
        spent = seconds(work)
    return spent, (max(peak) - peak[0]) / 2**20


def theirs(model, data, folder: Path, batch_size: int, mini_batch: int | None):
    """sentence-transformers' trainer and loss over texts in memory, as its documentation has it."""
    texts = data.dataset[:]  # before the clock starts
    return lambda: their_training(model, texts, folder, batch_size, mini_batch)


def their_training(model, texts, folder: Path, batch_size: int, mini_batch: int | None) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer import losses

    dataset = Dataset.from_dict({name: texts[name] for name in texts if name != "label"})
    loss = (
        losses.MultipleNegativesRankingLoss(model)
        if mini_batch is None
        else losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=mini_batch)
    )
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        num_train_epochs=1,
        learning_rate=2e-5,
        warmup_steps=0.1,
        save_strategy="epoch",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=loss).train()


def ours(model, data, folder: Path, batch_size: int, mini_batch: int | None, loss: str):
    from foils.training.fit import train_model
    from foils.training.settings import TrainSettings
    from foils.training.tiers import outside_danger

    loss, by_progress, _ = loss.partition(", curriculum by progress")
    data = outside_danger(data) if by_progress else data
    settings = TrainSettings(
        loss=loss,
        batch_size=batch_size,
        mini_batch_size=mini_batch,
        max_length=None,
        trainer=LOGGED,
    )
    batches = "progress" if by_progress else "random"
    return lambda: train_model(model, data, folder, settings=settings, batches=batches)


def one(kind: str, side: str, queries: int, batch_size: int, mini_batch: int | None) -> dict[str, float]:
    from foils.training.data import training_set

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        collection = collection_of(queries)
        data = training_set(collection, negatives_of(collection), max_positives=1)
        model = model_of(kind, path / "base")
        if side == "sentence-transformers":
            run = theirs(model, data, path / "out", batch_size, mini_batch)
        else:
            run = ours(model, data, path / "out", batch_size, mini_batch, side.removeprefix("foils "))
        spent, peak = measured(run)
    return {"seconds": spent, "triplets_per_second": len(data) / spent, "peak_mb": peak}


def loss_alone(cached: bool, batch: int = 4096) -> dict[str, float]:
    """A step at batch 4,096 with one negative a row on a one-layer BERT: what the cache saves."""
    import torch

    from foils.training.losses import ContrastiveLoss

    with tempfile.TemporaryDirectory() as folder:
        model = model_of("bert", Path(folder))
        rng = np.random.default_rng(0)
        texts = [[" ".join(f"w{w}" for w in rng.integers(WORDS, size=12)) for _ in range(batch)] for _ in range(3)]
        features = [model.preprocess(column) for column in texts]
        loss = ContrastiveLoss(model, mini_batch_size=64 if cached else None)
        model.train()

        def step() -> None:
            value = loss([{**f} for f in features], None)
            value.backward()
            assert torch.isfinite(value)

        spent, peak = measured(step)
    return {"seconds": spent, "peak_mb": peak}


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.median([run[name] for run in runs])), 3) for name in runs[0]}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--queries", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, side, *numbers = options.one
        if kind == "loss":
            found = loss_alone(side == "cached")
        else:
            queries, size, mini = (int(n) for n in numbers)
            found = one(kind, side, queries, size, mini or None)
        print("\n" + json.dumps(found))
        return
    cases = {
        "static, batch 1024": ("static", [options.queries, options.batch_size, 0]),
        "one-layer BERT, cached, batch 256": ("bert", [max(options.queries // 2, 100), 256, 64]),
    }
    report: dict[str, object] = {"queries": options.queries, "repeats": options.repeats}
    for name, (kind, numbers) in cases.items():
        sides = ["sentence-transformers", "foils mnrl", "foils weighted", "foils mnrl, curriculum by progress"]
        report[name] = compared({side: [kind, side, *map(str, numbers)] for side in sides}, options.repeats)
        print(name, json.dumps(report[name], indent=1), flush=True)
    name = "one step of the loss, batch 4096, one-layer BERT"
    report[name] = compared({"uncached": ["loss", "uncached"], "cached": ["loss", "cached"]}, 1)
    print(name, json.dumps(report[name], indent=1), flush=True)
    save("train", report)


def compared(sides: dict[str, list[str]], repeats: int) -> dict[str, object]:
    """Run the sides in turns; medians, and their ratio to the first side's."""
    runs: dict[str, list] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, arguments in sides.items():
            runs[side].append(apart("train", "--one", *arguments))
    found: dict[str, object] = {side: median(of) for side, of in runs.items()}
    first = next(iter(sides))
    base = median(runs[first])
    for side in sides:
        if side != first:
            own = median(runs[side])
            found[f"{side} / {first}"] = {k: round(own[k] / base[k], 3) for k in ("seconds", "peak_mb")}
    return found
