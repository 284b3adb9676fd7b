"""Is a reranker that is trained by the whole pipeline better than one trained on binary labels, or by distillation?

    python benchmarks/rate_pipeline.py COLLECTION --base MODEL [--learned OTHER] [--queries 120] [--tested 150]
        [--seeds 2] [--between 6] [--forms scores] [--json FILE]

The collection's judgements must be complete (BANKING77: every message of the query's intent). A new collection is met
with a reranker that knows another one, as in practice: MODEL is first trained on the labels of OTHER (without it, MODEL
is such a reranker), and all that follows begins with it, the distilled judges included. Training queries have twenty
candidates each, the nearest by a static encoder. All rerankers take the same number of steps of the same size, at the
default learning rate; what differs is what they learn. They rerank the fifty nearest documents of test queries.

- base: that reranker as it is.
- labels: binary cross-entropy, 70 % of the relevant pairs being labelled; the hidden ones stand among the negatives.
- ratings: a judge is asked at degree 6, sixty pairs of each query, and the reranker learns the ratings.
- pipeline: random pairs of each query are answered by the judge, a small judge is distilled from the answers, rates all
  candidates at degree 6, and the reranker learns the ratings. The small judge scores each document (scores) or reads
  both (pairwise). As many pairs are asked about as make twenty questions a query, those between queries included.
- pointwise: the reranker learns the judge's own score of each candidate (plain distillation).

With --between 6 the judge also compares six candidates of each query with those of others, and what the reranker learns
are ratings with the query's offset; with --between 0 each query's ratings have the mean 0.

But for labels no label of the collection is used. Judges: an oracle that knows what is relevant, with a lead of 2
logits and noise of 1 logit in every answer; and all-MiniLM-L6-v2, a real small model. nDCG@10 by query is the mean over
seeds, which draw training queries, hidden labels and noise; tests are paired over queries, all systems against labels
and those of a judge against plain distillation from it, with Holm's correction. Cost: questions to the judge a query, a
pair in both orders being two, and processor seconds of training and rating.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from foils.data import Collection, Negatives, load_collection
from foils.data.negatives import TOP, negatives_table
from foils.encode import load_encoder
from foils.encode.cross_encoders import load_cross_encoder
from foils.rating import BiEncoderJudge, Judge, distil, rate_negatives
from foils.statistics.significance import compare_systems
from foils.training.data import training_set
from foils.training.reranker import reranker_loss, reranker_set, train_reranker
from foils.training.settings import TrainSettings
from rate_between import Oracle

CANDIDATES, RERANKED, DEGREE, HIDDEN = 20, 50, 6, 0.3
BATCH, STEPS, LENGTH = 32, 300, 64
OF_BASE, STEPS_OF_BASE, RATE_OF_BASE = 400, 1400, 3e-4  # queries of OTHER, steps and learning rate on them
EPOCHS_OF_JUDGE, RATE_OF_JUDGE = 3, 1e-4
STATIC, REAL = "static:all-MiniLM-L6-v2", "all-MiniLM-L6-v2"


class World:
    """A collection with the nearest documents of its queries."""

    def __init__(self, path: str) -> None:
        self.collection, self.static = load_collection(path), load_encoder(STATIC)
        texts = self.collection.document_texts(np.arange(len(self.collection.documents)))
        self.vectors = self.static.encode(texts, "document")
        self.unlabelled = Collection(self.collection.name, self.collection.documents, self.collection.queries, {})

    def nearest(self, query_rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, count) documents of each query, none of them the query itself, and their cosines."""
        cosines = self.static.encode(self.collection.query_texts(query_rows), "query") @ self.vectors.T
        own = self.collection.identical[query_rows]
        cosines[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        return order, np.take_along_axis(cosines, order, 1)

    def chosen(self, split: str, count: int, seed: int) -> np.ndarray:
        """Positions of queries among a split's, drawn by the seed."""
        positives = self.collection.positives(split)
        return np.random.default_rng(seed).choice(len(positives), min(count, len(positives)), replace=False)


@dataclass(frozen=True)
class Drawn:
    """Training queries with their candidates, (n, CANDIDATES) documents, cosines and whether each is relevant."""

    world: World
    rows: np.ndarray
    documents: np.ndarray
    cosines: np.ndarray
    relevant: np.ndarray

    @classmethod
    def of(cls, world: World, queries: int, seed: int) -> Drawn:
        """Draw them."""
        positives, places = world.collection.positives("train"), world.chosen("train", queries, seed)
        rows = positives.query_rows[places]
        documents, cosines = world.nearest(rows, CANDIDATES)
        relevant = np.array([np.isin(of, positives.of(int(at))) for at, of in zip(places, documents, strict=True)])
        return cls(world, rows, documents, cosines, relevant)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Ids of query and document of each candidate, query by query."""
        collection = self.world.collection
        query_ids, doc_ids = collection.queries["query_id"].to_pylist(), collection.documents["doc_id"].to_pylist()
        return [(query_ids[q], doc_ids[d]) for q, of in zip(self.rows, self.documents, strict=True) for d in of]

    def table(self) -> Negatives:
        """The candidates as a table of negatives."""
        query_ids, doc_ids = map(list, zip(*self.pairs, strict=True))
        ranks = np.tile(np.arange(CANDIDATES), len(self.rows))
        return Negatives(negatives_table(query_ids, doc_ids, "static", ranks, self.cosines.ravel()))

    def scored(self, scores: np.ndarray) -> Negatives:
        """The candidates with scores to learn; the best of a query stands where the positive would."""
        best = scores.reshape(self.documents.shape).argmax(1) + CANDIDATES * np.arange(len(self.rows))
        table = self.table().with_columns({"elo": scores.ravel().astype(float)})
        return table.reject(np.isin(np.arange(len(table)), best), TOP)


def trained(
    base: str | Path, collection: Collection, table: Negatives, loss: str, seed: int, *, steps: int = STEPS, **how: Any
) -> Any:
    """A reranker after its training, in about this number of steps."""
    rate, rows = how.pop("learning_rate", None), how
    data = training_set(collection, table, form="lists", **rows)
    epochs = max(1, round(steps * BATCH / len(reranker_set(data, reranker_loss(loss, {})))))
    settings = TrainSettings(
        loss=loss,
        batch_size=BATCH,
        epochs=epochs,
        max_length=LENGTH,
        seed=seed,
        precision="float32",
        learning_rate=rate,
    )
    model = load_cross_encoder(base, new_head=True, seed=seed, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        return train_reranker(model, data, Path(folder) / "out", settings=settings).model


def base_of(model: str, other: str, place: Path) -> Path:
    """Train the model on the labels of another collection, and write it."""
    drawn = Drawn.of(World(other), OF_BASE, 0)
    table = drawn.scored(drawn.relevant)
    how: dict[str, Any] = {"split": "all", "steps": STEPS_OF_BASE, "learning_rate": RATE_OF_BASE}
    trained(model, drawn.world.unlabelled, table, "regression", 0, **how).save_pretrained(str(place))
    return place


def systems(
    world: World, base: str | Path, queries: int, seed: int, between: int, forms: Sequence[str]
) -> dict[str, tuple[Callable[[], Any], float]]:
    """Name → (what makes the reranker, questions a query)."""
    drawn, rng = Drawn.of(world, queries, seed), np.random.default_rng(seed)
    collection, table, pairs, relevant = world.collection, drawn.table(), drawn.pairs, drawn.relevant.ravel()
    truth = {pair for pair, own in zip(pairs, relevant, strict=True) if own}
    labelled = relevant & (rng.random(len(pairs)) > HIDDEN)
    of_query, of_document = (pa.array(ids).filter(pa.array(labelled)) for ids in zip(*pairs, strict=True))
    schema = collection.qrels["train"].schema
    qrels = pa.table([of_query, of_document, [1] * len(of_query)], schema=schema)
    known = Collection(collection.name, collection.documents, collection.queries, {"train": qrels})

    def asked(judge: Judge, given: Negatives = table, **how: Any) -> Any:
        return rate_negatives(world.unlabelled, given, judge, split="all", seed=seed, **how)

    def by_ratings(judge: Judge, other: Judge) -> Any:
        """From one judge's ratings, with the other's comparisons between queries."""
        offsets = {"between": between, "between_judge": other} if between else {}
        rated = Negatives(asked(judge, degree=DEGREE, **offsets).table)
        return trained(base, world.unlabelled, rated, "regression", seed, split="all")

    def by_pipeline(judge: Judge, form: str) -> Any:
        first = asked(judge, pairs=(CANDIDATES - between) // 2)
        how: dict[str, Any] = {"epochs": EPOCHS_OF_JUDGE, "learning_rate": RATE_OF_JUDGE, "max_length": 96}
        own = distil(base, first.candidates, first.pairs, first.preference, form=form, seed=seed, **how)
        print(f"  {form}: prefers what {judge.name} does in {own.agreement:.3f} of {own.held_out}", flush=True)
        return by_ratings(own.judge, judge)

    def pointwise(scores: np.ndarray) -> Any:
        return trained(base, world.unlabelled, drawn.scored(scores), "regression", seed, split="all")

    def by_labels() -> Any:
        negatives = table.reject(labelled, "labelled positive")
        return trained(base, known, negatives, "binary", seed, max_positives=4)

    def oracle() -> Judge:
        return Oracle(truth, seed, votes=False)

    real = load_encoder(REAL)
    rows, place = np.unique(drawn.documents, return_inverse=True)
    vectors = real.encode(collection.document_texts(rows), "document")[place.reshape(drawn.documents.shape)]
    similar = np.einsum("qd,qkd->qk", real.encode(collection.query_texts(drawn.rows), "query"), vectors)
    noisy = 2.0 * relevant + rng.normal(0, 1, len(pairs))
    few, many = float(CANDIDATES), float(CANDIDATES * DEGREE + between)
    made: dict[str, tuple[Callable[[], Any], float]] = {
        "base": (lambda: load_cross_encoder(base, device="cpu"), 0.0),
        "labels": (by_labels, 0.0),
        "ratings, oracle": (lambda: by_ratings(*[oracle()] * 2), many),
    }
    for form in forms:
        made[f"pipeline, {form}, oracle"] = partial(by_pipeline, oracle(), form), few
        made[f"pipeline, {form}, MiniLM"] = partial(by_pipeline, BiEncoderJudge(real), form), few
    made["pointwise, oracle"] = partial(pointwise, noisy), few
    made["pointwise, MiniLM"] = partial(pointwise, similar), few
    return made


def ndcg(scores: np.ndarray, relevant: np.ndarray, total: int) -> float:
    """nDCG@10 with relevance 0 or 1, of one query."""
    discount = 1 / np.log2(np.arange(10) + 2)
    gained = relevant[np.argsort(-scores, kind="stable")[:10]]
    return float((gained * discount[: len(gained)]).sum() / discount[: min(total, 10)].sum())


class Tested:
    """Test queries with the documents to be reranked."""

    def __init__(self, world: World, count: int) -> None:
        positives, places = world.collection.positives("test"), world.chosen("test", count, 0)
        rows = positives.query_rows[places]
        self.documents, self.cosines = world.nearest(rows, RERANKED)
        self.own = [positives.of(int(place)) for place in places]
        self.relevant = np.array([np.isin(of, known) for of, known in zip(self.documents, self.own, strict=True)])
        queries, texts = world.collection.query_texts(rows), world.collection.document_texts
        self.texts = [(query, text) for query, of in zip(queries, self.documents, strict=True) for text in texts(of)]

    def ndcg(self, scores: np.ndarray) -> np.ndarray:
        """nDCG@10 of each query."""
        each = zip(scores.reshape(self.documents.shape), self.relevant, self.own, strict=True)
        return np.array([ndcg(of, found, len(known)) for of, found, known in each])

    def of_model(self, model: Any) -> np.ndarray:
        """nDCG@10 of each query, reranked."""
        identity = torch.nn.Identity()
        logits = model.predict(self.texts, batch_size=64, activation_fn=identity, show_progress_bar=False)
        return self.ndcg(np.asarray(logits))


def compared(values: dict[str, list[np.ndarray]]) -> dict[tuple[str, str], Any]:
    """Every system against labels, and those of a judge against plain distillation from it: (system, other) → test."""
    by_name = {name: {"nDCG@10": np.mean(runs, axis=0)} for name, runs in values.items()}
    rng = np.random.default_rng(0)
    tests = list(compare_systems(by_name, rng=rng, against=["labels"]))
    for judge in ("oracle", "MiniLM"):
        of_judge = {name: each for name, each in by_name.items() if name.endswith(judge)}
        tests += compare_systems(of_judge, rng=rng, against=[f"pointwise, {judge}"])
    return {(each.a, each.b): each for each in tests}


def report(facts: dict[str, Any], values: dict[str, list[np.ndarray]], costs: dict[str, tuple[float, float]]) -> str:
    """Print a table; return the same as JSON."""
    tests = compared(values)
    other = {name: f"pointwise, {name.rpartition(', ')[2]}" for name in values}

    def difference(name: str, than: str) -> str:
        test = tests.get((name, than))
        return f"{test.difference:+.3f} ({test.p_holm:.4f})" if test else ""

    print("| system | questions a query | seconds | nDCG@10 | less labels (p) | less pointwise (p) |")
    print("|---|---:|---:|---:|---:|---:|")
    systems = {}
    for name, runs in values.items():
        questions, seconds = costs[name]
        means = [float(run.mean()) for run in runs]
        shown = f"{difference(name, 'labels')} | {difference(name, other[name])}"
        print(f"| {name} | {questions:.0f} | {seconds:.0f} | {np.mean(means):.3f} | {shown} |")
        systems[name] = {"questions": questions, "seconds": seconds, "ndcg": float(np.mean(means)), "by_seed": means}
    found = [
        {"system": a, "against": b, "difference": each.difference, "p_holm": each.p_holm}
        for (a, b), each in tests.items()
    ]
    return json.dumps({**facts, "systems": systems, "tests": found}, indent=1) + "\n"


def main() -> None:
    """Measure, print a table and write JSON after each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--base", required=True)
    parser.add_argument("--learned", help="collection whose labels the reranker is to know already")
    parser.add_argument("--queries", type=int, default=120)
    parser.add_argument("--tested", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--between", type=int, default=6)
    parser.add_argument("--forms", nargs="+", default=["scores"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    world = World(args.collection)
    tested = Tested(world, args.tested)
    values = {"not reranked": [tested.ndcg(tested.cosines)]}
    costs = {"not reranked": (0.0, 0.0)}
    names = {"collection": world.collection.name, "between": args.between}
    with tempfile.TemporaryDirectory() as folder:
        base = base_of(args.base, args.learned, Path(folder) / "base") if args.learned else args.base
        for seed in range(args.seeds):
            for name, (train, questions) in systems(world, base, args.queries, seed, args.between, args.forms).items():
                start = time.process_time()
                model = train()
                costs[name] = questions, time.process_time() - start
                values.setdefault(name, []).append(tested.of_model(model))
                print(f"seed {seed} {name}: {values[name][-1].mean():.3f} in {costs[name][1]:.0f} s", flush=True)
            facts = {**names, "queries": args.queries, "tested": args.tested, "seeds": seed + 1}
            text = report(facts, values, costs)
            if args.json:
                args.json.write_text(text)


if __name__ == "__main__":
    main()
