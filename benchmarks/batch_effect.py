"""Does it matter who meets whom? Train a static embedding from scratch with each sampler, through the trainer's hook.

    python benchmarks/batch_effect.py COLLECTION [--seeds 3] [--epochs 10] [--dim 128] [--samplers random hobit ...]

Same pairs, steps and start for every sampler of a seed; all keep known positives apart, but those that say "ignored".
nDCG@10 and R@10 on the test split over the whole corpus, averaged over seeds per query, against random with intervals
and Holm's correction. Writes benchmarks/results/batch_effect_NAME.json.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from foils.batch.caching import CachingLoss
from foils.batch.hobit_c import EmbeddingCache
from foils.batch.pairs import training_pairs
from foils.batch.sampler import BatchPlanner, with_rows
from foils.data import Collection, load_collection
from foils.evaluate import compare_systems, measure_rankings, qrels_of

RESULTS = Path(__file__).parent / "results"
MEASURES = ["nDCG@10", "R@10"]
SAMPLERS: dict[str, tuple[str, dict, dict]] = {
    "random": ("random", {}, {}),
    "random, conflicts ignored": ("random", {}, {"avoid_known": False}),
    "hobit": ("hobit", {}, {}),
    "hobit, conflicts ignored": ("hobit", {}, {"avoid_known": False}),
    "hobit, alpha 0": ("hobit", {"alpha": 0.0}, {}),
    "hobit, warm-up 2": ("hobit", {}, {"warmup": 2}),
    "hobit-c": ("hobit-c", {}, {}),
    "ngame": ("ngame", {}, {}),
    "walks": ("walks", {}, {}),
    "b3": ("b3", {}, {"warmup": 1}),
}


def tokenizer_of(texts: list[str], words: int = 30000) -> Tokenizer:
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text.lower()))
    known = ["[UNK]", *(word for word, _ in counts.most_common(words))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer


def train(name: str, dataset: Dataset, tokenizer: Tokenizer, options: argparse.Namespace, seed: int):
    """Train with one sampler; return the model, the seconds it took and what the planner noted."""
    method, settings, more = SAMPLERS[name]
    torch.manual_seed(seed)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=options.dim)], device="cpu")
    cache = EmbeddingCache(len(dataset)) if method == "hobit-c" else None
    planner = BatchPlanner(method, settings, cache=cache, **more)
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            learning_rate=options.lr,
            warmup_steps=50,
            seed=seed,
            batch_sampler=planner.sampler,
            save_strategy="no",
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=args,
            train_dataset=with_rows(dataset) if cache is not None else dataset,
            loss=CachingLoss(loss, model=model, cache=cache) if cache is not None else loss,
            callbacks=[planner],
        )
        start = time.perf_counter()
        trainer.train()
    losses = [round(entry["loss"], 4) for entry in trainer.state.log_history if "loss" in entry]
    return model, time.perf_counter() - start, planner.history, losses


def measured(model: SentenceTransformer, collection: Collection) -> dict[str, np.ndarray]:
    qrels = qrels_of(collection, "test")
    rows = collection.query_rows(list(qrels))
    queries = model.encode(collection.query_texts(rows), normalize_embeddings=True, show_progress_bar=False)
    documents = model.encode(
        collection.document_texts(np.arange(len(collection.documents))),
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    ids = np.asarray(collection.documents["doc_id"].to_pylist(), object)
    rankings = {}
    for start in range(0, len(rows), 512):
        scores = queries[start : start + 512] @ documents.T
        top = np.argsort(-scores, axis=1, kind="stable")[:, :100]
        rankings.update(zip(list(qrels)[start : start + 512], (ids[row].tolist() for row in top), strict=True))
    return measure_rankings(rankings, qrels, MEASURES).per_query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    options = parser.parse_args()
    collection = load_collection(options.collection)
    pairs = training_pairs(collection, rng=np.random.default_rng(0))
    queries, documents = collection.query_texts(pairs.query_rows), collection.document_texts(pairs.doc_rows)
    tokenizer = tokenizer_of(queries + collection.document_texts(np.arange(len(collection.documents))))
    dataset = Dataset.from_dict({"query": queries, "text": documents})
    runs: dict[str, list] = {name: [] for name in options.samplers}
    facts: dict[str, list] = {name: [] for name in options.samplers}
    for seed in range(options.seeds):
        for name in options.samplers:
            model, seconds, history, losses = train(name, dataset, tokenizer, options, seed)
            runs[name].append(measured(model, collection))
            means = {m: float(v.mean()) for m, v in runs[name][-1].items()}
            planning = sum(h["seconds_embedding"] + h["seconds_building"] for h in history)
            facts[name].append(
                {"seed": seed, **means, "seconds": seconds, "planning_seconds": planning, "losses": losses}
            )
            print(name, json.dumps(facts[name][-1]), flush=True)
    systems = {name: {m: np.mean([run[m] for run in of], axis=0) for m in MEASURES} for name, of in runs.items()}
    comparisons = compare_systems(systems, rng=np.random.default_rng(0), against=["random"])
    result = {
        "collection": collection.name,
        "pairs": len(dataset),
        "settings": {k: v for k, v in vars(options).items() if k != "collection"},
        "runs": facts,
        "comparisons": [vars(c) for c in comparisons],
    }
    (RESULTS / f"batch_effect_{collection.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    for c in comparisons:
        print(f"{c.a} − {c.b} {c.measure}: {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] p {c.p_holm:.3g}")


if __name__ == "__main__":
    main()
