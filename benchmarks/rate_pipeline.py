"""Is a reranker that is trained by the whole pipeline better than one trained on binary labels, or by distillation?

    python benchmarks/rate_pipeline.py COLLECTION --base MODEL [--queries 100] [--tested 150] [--seeds 1] [--json FILE]

The collection's judgements must be complete (BANKING77: every message of the query's intent). Training queries have
twenty candidates each, the nearest by a static encoder. All rerankers start from MODEL and have the same number of
epochs over those candidates, with labels more rows in each (below); they rerank the fifty nearest documents of test
queries.

- labels: binary cross-entropy, 70 % of the relevant pairs being labelled; the hidden ones stand among the negatives. Up
  to four labelled positives of a query are trained on, each with all the negatives.
- pipeline: six random pairs of each query are answered by a judge, a pairwise judge is distilled from the answers, it
  rates all candidates at degree 6, and the reranker learns the ratings. No label is used.
- pointwise: the reranker learns the judge's own score of each candidate (plain distillation).

Judges: an oracle that knows what is relevant, with a lead of 2 logits and noise of 1 logit in every answer; and
all-MiniLM-L6-v2, a real small model. nDCG@10 by query is the mean over seeds, which draw training queries, hidden
labels and noise; tests are paired over queries, all systems against labels, with Holm's correction. Cost: questions to
the judge a query, and seconds of all training and rating.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from foils.data import Collection, Negatives, load_collection
from foils.data.negatives import negatives_table
from foils.encode import load_encoder
from foils.encode.cross_encoders import load_cross_encoder
from foils.rating import BiEncoderJudge, Judge, distil, rate_negatives
from foils.statistics.significance import compare_systems
from foils.training.data import training_set
from foils.training.reranker import train_reranker
from foils.training.settings import TrainSettings
from rate_between import Oracle

CANDIDATES, RERANKED, PAIRS, EPOCHS, HIDDEN = 20, 50, 6, 2, 0.3
STATIC, REAL = "static:all-MiniLM-L6-v2", "all-MiniLM-L6-v2"


class World:
    """A collection with the nearest documents of its queries."""

    def __init__(self, path: str) -> None:
        self.collection, self.static = load_collection(path), load_encoder(STATIC)
        texts = self.collection.document_texts(np.arange(len(self.collection.documents)))
        self.vectors = self.static.encode(texts, "document")

    def nearest(self, query_rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, count) documents of each query and their cosines."""
        cosines = self.static.encode(self.collection.query_texts(query_rows), "query") @ self.vectors.T
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        return order, np.take_along_axis(cosines, order, 1)

    def chosen(self, split: str, count: int, seed: int) -> np.ndarray:
        """Positions of queries among a split's, drawn by the seed."""
        positives = self.collection.positives(split)
        return np.random.default_rng(seed).choice(len(positives), min(count, len(positives)), replace=False)


def trained(base: str, collection: Collection, table: Negatives, loss: str, seed: int, **rows: Any) -> Any:
    """A reranker after its training."""
    settings = TrainSettings(loss=loss, batch_size=32, epochs=EPOCHS, max_length=64, seed=seed, precision="float32")
    model = load_cross_encoder(base, new_head=True, seed=seed, device="cpu")
    data = training_set(collection, table, form="lists", **rows)
    with tempfile.TemporaryDirectory() as folder:
        return train_reranker(model, data, Path(folder) / "out", settings=settings).model


def systems(world: World, base: str, queries: int, seed: int) -> dict[str, tuple[Callable[[], Any], float]]:
    """Name → (what trains the reranker, questions a query)."""
    collection, rng = world.collection, np.random.default_rng(seed)
    positives = collection.positives("train")
    places = world.chosen("train", queries, seed)
    rows = positives.query_rows[places]
    documents, cosines = world.nearest(rows, CANDIDATES)
    query_ids, doc_ids = collection.queries["query_id"].to_pylist(), collection.documents["doc_id"].to_pylist()
    pairs = [(query_ids[q], doc_ids[d]) for q, of in zip(rows, documents, strict=True) for d in of]
    asked, found = map(list, zip(*pairs, strict=True))
    table = Negatives(
        negatives_table(asked, found, "static", np.tile(np.arange(CANDIDATES), len(rows)), cosines.ravel())
    )
    truth = {(query_ids[q], doc_ids[d]) for at, q in zip(places, rows, strict=True) for d in positives.of(int(at))}
    known = [pair for pair in sorted(truth & set(pairs)) if rng.random() > HIDDEN]
    unlabelled = Collection(collection.name, collection.documents, collection.queries, {})
    schema = collection.qrels["train"].schema
    qrels = pa.table([[q for q, _ in known], [d for _, d in known], [1] * len(known)], schema=schema)
    labelled = Collection(collection.name, collection.documents, collection.queries, {"train": qrels})

    def by_labels() -> Any:
        label = set(known)
        negatives = table.reject(np.array([pair in label for pair in pairs]), "labelled positive")
        return trained(base, labelled, negatives, "binary", seed, max_positives=4)

    def rated(judge: Judge) -> Negatives:
        first = rate_negatives(unlabelled, table, judge, split="all", pairs=PAIRS, seed=seed)
        own = distil(base, first.candidates, first.pairs, first.preference, epochs=3, max_length=96, seed=seed)
        return Negatives(rate_negatives(unlabelled, table, own.judge, split="all", seed=seed).table)

    def by_pipeline(judge: Judge) -> Any:
        return trained(base, unlabelled, rated(judge), "regression", seed, split="all")

    def pointwise(scores: np.ndarray) -> Any:
        """The best-scored candidate stands where the positive would; every score is learned."""
        best = np.arange(len(pairs)).reshape(len(rows), -1)[
            np.arange(len(rows)), scores.reshape(len(rows), -1).argmax(1)
        ]
        top = "rated best of a query without a labelled positive"
        given = table.with_columns({"elo": scores}).reject(np.isin(np.arange(len(pairs)), best), top)
        return trained(base, unlabelled, given, "regression", seed, split="all")

    real = load_encoder(REAL)
    vectors = real.encode(collection.document_texts(documents.ravel()), "document").reshape(*documents.shape, -1)
    similar = np.einsum("qd,qkd->qk", real.encode(collection.query_texts(rows), "query"), vectors).ravel()
    noisy = 2.0 * np.array([pair in truth for pair in pairs]) + rng.normal(0, 1, len(pairs))
    return {
        "labels": (by_labels, 0.0),
        "pipeline, oracle": (lambda: by_pipeline(Oracle(truth, seed, votes=False)), 2.0 * PAIRS),
        "pointwise, oracle": (lambda: pointwise(noisy), float(CANDIDATES)),
        "pipeline, MiniLM": (lambda: by_pipeline(BiEncoderJudge(real)), 2.0 * PAIRS),
        "pointwise, MiniLM": (lambda: pointwise(similar), float(CANDIDATES)),
    }


def ndcg(scores: np.ndarray, relevant: np.ndarray, total: int) -> float:
    """nDCG@10 with relevance 0 or 1, of one query."""
    discount = 1 / np.log2(np.arange(10) + 2)
    gained = relevant[np.argsort(-scores, kind="stable")[:10]]
    return float((gained * discount[: len(gained)]).sum() / discount[: min(total, 10)].sum())


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--base", required=True)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--tested", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    world = World(args.collection)
    positives = world.collection.positives("test")
    places = world.chosen("test", args.tested, 0)
    rows = positives.query_rows[places]
    documents, cosines = world.nearest(rows, RERANKED)
    own = [positives.of(int(place)) for place in places]
    relevant = np.array([np.isin(of, known) for of, known in zip(documents, own, strict=True)])
    texts = [
        (query, document)
        for query, of in zip(world.collection.query_texts(rows), documents, strict=True)
        for document in world.collection.document_texts(of)
    ]

    def measured(scores: np.ndarray) -> np.ndarray:
        each = zip(scores.reshape(documents.shape), relevant, own, strict=True)
        return np.array([ndcg(of, found, len(known)) for of, found, known in each])

    values: dict[str, list[np.ndarray]] = {"not reranked": [measured(cosines)]}
    costs: dict[str, tuple[float, float]] = {"not reranked": (0.0, 0.0)}
    for seed in range(args.seeds):
        for name, (train, questions) in systems(world, args.base, args.queries, seed).items():
            start = time.perf_counter()
            model = train()
            costs[name] = questions, time.perf_counter() - start
            logits = model.predict(texts, batch_size=64, activation_fn=torch.nn.Identity(), show_progress_bar=False)
            values.setdefault(name, []).append(measured(np.asarray(logits)))
            print(f"seed {seed} {name}: {values[name][-1].mean():.3f} in {costs[name][1]:.0f} s", flush=True)
    means = {name: np.mean(each, axis=0) for name, each in values.items()}
    by_name = {name: {"nDCG@10": each} for name, each in means.items()}
    tests = compare_systems(by_name, rng=np.random.default_rng(0), against=["labels"])
    against = {each.a: each for each in tests}
    print("| system | questions a query | seconds | nDCG@10 | less labels | p (Holm) |\n|---|---:|---:|---:|---:|---:|")
    for name, each in means.items():
        test = against.get(name)
        rest = f"{test.difference:+.3f} | {test.p_holm:.4f}" if test else " | "
        print(f"| {name} | {costs[name][0]:.0f} | {costs[name][1]:.0f} | {each.mean():.3f} | {rest} |")
    if args.json:
        facts = {
            "collection": world.collection.name, "queries": args.queries, "tested": args.tested, "seeds": args.seeds,
            "systems": {
                name: {
                    "questions": costs[name][0], "seconds": costs[name][1], "ndcg": float(each.mean()),
                    "by_seed": [float(run.mean()) for run in values[name]],
                    "less_labels": against[name].difference if name in against else None,
                    "p_holm": against[name].p_holm if name in against else None,
                }
                for name, each in means.items()
            },
        }  # fmt: skip
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
