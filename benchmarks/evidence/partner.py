"""Does an encoder that is trained for its partner BM25 make a better pair than one that is trained alone?

    python benchmarks/run.py partner COLLECTION ... [--model static:all-MiniLM-L6-v2] [--seeds 3] [--steps 200]
        [--batch 128] [--length 128] [--rate RATE]

A model is trained by contrast in batches, each query with its positive, the other queries' positives, and one
negative that is drawn anew from the first 30 documents of an order: BM25's, or the fused order of BM25 and the
untrained model, which is what the pair that is deployed gets wrong. With `residual` the logit has BM25's score as a
fixed part (over the query's largest, times 10; Gao et al. 2021, CLEAR), so that the encoder learns what BM25 leaves.
All have the same steps and learning rate (without --rate that of `foils train`), and at most 2,000 queries. Then each
is fused with BM25, by the way that is best on dev, and measured on test: nDCG@10 by query, the mean over seeds, against
BM25's negatives without residual, by a paired test; pooled over all queries. What is in the result file already is not
done again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import load, save
from foils.data import Collection, Run, load_collection
from foils.data.run import NORMALISATIONS, RANKS, Fusion, fuse_runs
from foils.data.splitting import with_three_splits
from foils.encode.models import load_model
from foils.evaluation import bm25_run, dense_run, measure_run
from foils.experiments.plan import with_queries
from foils.experiments.tune import MEASURE, WEIGHTS
from foils.mining.retrievers import BM25Retriever
from foils.statistics import bootstrap_interval, paired_test
from foils.training.models import learning_rate_of

POOL, TAU, GAMMA = 30, 0.05, 10.0
ARMS = {
    "bm25": ("bm25", False), "bm25, residual": ("bm25", True),
    "fused": ("fused", False), "fused, residual": ("fused", True),
}  # fmt: skip
QUERIES = {"train": 2_000, "dev": 300, "test": 1_000}  # at most
AGAINST = "bm25"
WAYS = [*(Fusion(name, weight) for name in NORMALISATIONS for weight in WEIGHTS), Fusion(RANKS, 0.5)]


def by_query(collection: Collection, split: str, run: Run) -> np.ndarray:
    """The measure of each query."""
    return np.asarray(measure_run(run, collection, split, (MEASURE,)).per_query[MEASURE])


class World:
    """A collection with BM25 and its orders of documents for the training queries."""

    def __init__(self, given: str, model: str, length: int) -> None:
        self.collection = with_queries(with_three_splits(load_collection(given)), QUERIES, 0)
        self.positives, self.bm25 = self.collection.positives("train"), BM25Retriever(self.collection)
        self.model, self.length = model, length
        self.lexical = {split: bm25_run(self.collection, split, depth=1_000) for split in ("dev", "test")}
        lexical = bm25_run(self.collection, "train", depth=100)
        dense = dense_run(self._loaded(), self.collection, "train", depth=100)
        fused = fuse_runs([lexical, dense], **Fusion("z", 0.5).how)
        self.orders = {"bm25": self._order(lexical), "fused": self._order(fused)}

    def _loaded(self) -> Any:
        """The untrained model, which reads the first tokens of a text."""
        model = load_model(self.model)
        if math.isfinite(model.max_seq_length):  # a word table has no limit
            model.max_seq_length = min(model.max_seq_length, self.length)
        return model

    def _order(self, run: Run) -> dict[int, np.ndarray]:
        """The first documents of each query of a run that are not its positives, by rows."""
        table = run.first(POOL + 10).table
        queries, documents = (
            self.collection.query_rows(table["query_id"]),
            self.collection.document_rows(table["doc_id"]),
        )
        places = self.positives.places(queries)
        wrong = np.array(
            [place < 0 or doc not in self.positives.of(place) for place, doc in zip(places, documents, strict=True)]
        )
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])
        parts = zip(np.split(documents, starts[1:]), np.split(wrong, starts[1:]), strict=True)
        return {int(queries[at]): of[kept][:POOL] for at, (of, kept) in zip(starts, parts, strict=True)}

    def batches(
        self, negatives: str, steps: int, batch: int, rng: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Query rows and document rows: a positive of each, then a negative of each that has one."""
        order: list[int] = []
        for _ in range(steps):
            if len(order) < batch:
                order = rng.permutation(len(self.positives)).tolist()
            places, order = order[:batch], order[batch:]
            queries = self.positives.query_rows[places]
            documents = [rng.choice(self.positives.of(place)) for place in places]
            pools = [self.orders[negatives].get(int(query), ()) for query in queries]
            yield queries, np.array([*documents, *(rng.choice(pool) for pool in pools if len(pool))])

    def known(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(q, d) whether a document is a positive of a query."""
        return np.stack([np.isin(documents, self.positives.of(place)) for place in self.positives.places(queries)])

    def lexical_part(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(q, d) BM25's score over the query's largest."""
        parts = []
        for _, _, counts in self.bm25._counted(queries):
            product = counts @ self.bm25._scores
            largest = np.maximum(product.max(axis=1).toarray().ravel(), 1e-9)
            parts.append(product[:, documents].toarray() / largest[:, None])
        return np.concatenate(parts)

    def trained(self, negatives: str, *, residual: bool, steps: int, batch: int, rate: float | None, seed: int) -> Any:
        """The model after the training."""
        model, rng = self._loaded(), np.random.default_rng([seed, 1])
        rate = rate or learning_rate_of(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        for step, (queries, documents) in enumerate(self.batches(negatives, steps, batch, rng)):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
            texts = self.collection.query_texts(queries), self.collection.document_texts(documents)
            vectors = [model(model.tokenize(list(of)))["sentence_embedding"] for of in texts]
            q, d = (torch.nn.functional.normalize(each, dim=1) for each in vectors)
            logits = q @ d.T / TAU
            if residual:
                logits = logits + GAMMA * torch.as_tensor(self.lexical_part(queries, documents), dtype=logits.dtype)
            masked = torch.as_tensor(self.known(queries, documents))
            masked[torch.arange(len(queries)), torch.arange(len(queries))] = False
            loss = torch.nn.functional.cross_entropy(logits.masked_fill(masked, -torch.inf), torch.arange(len(queries)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    def measured(self, model: Any) -> dict[str, Any]:
        """On test, by query: the model alone, and with BM25 by the way that is best on dev."""
        dense = {split: dense_run(model, self.collection, split, depth=1_000) for split in ("dev", "test")}
        on_dev = [
            by_query(self.collection, "dev", fuse_runs([self.lexical["dev"], dense["dev"]], **way.how)).mean()
            for way in WAYS
        ]
        way = WAYS[int(np.argmax(on_dev))]
        both = fuse_runs([self.lexical["test"], dense["test"]], **way.how)
        return {
            "alone": by_query(self.collection, "test", dense["test"]),
            "both": by_query(self.collection, "test", both), "way": [way.normalisation, way.weight],
        }  # fmt: skip


def compared(given: str, model: str, length: int, seeds: int, **how: Any) -> dict[str, Any]:
    """Train all arms on a collection, and compare the pairs."""
    world = World(given, model, length)
    start = world.measured(world._loaded())
    arms, both = {}, {}
    for name, (negatives, residual) in ARMS.items():
        runs = [world.measured(world.trained(negatives, residual=residual, seed=seed, **how)) for seed in range(seeds)]
        both[name] = np.mean([each["both"] for each in runs], axis=0)
        arms[name] = {
            "alone": float(np.mean([each["alone"] for each in runs])), "both": float(both[name].mean()),
            "by_seed": [float(each["both"].mean()) for each in runs], "ways": [each["way"] for each in runs],
        }  # fmt: skip
        print(world.collection.name, name, arms[name], flush=True)
    for name, values in both.items():
        gain, test = values - both[AGAINST], paired_test(values, both[AGAINST])
        low, high = bootstrap_interval(gain, rng=np.random.default_rng(0))
        arms[name] |= {
            "sum": float(gain.sum()),
            "squares": float((gain**2).sum()),
            "low": low,
            "high": high,
            "p": test.p,
        }
    bm25 = float(by_query(world.collection, "test", world.lexical["test"]).mean())
    return {"collection": Path(given).name, "model": model, "length": length, "seeds": seeds, **how,
            "untrained": {name: float(start[name].mean()) for name in ("alone", "both")},
            "queries": len(both[AGAINST]), "bm25": bm25, "arms": arms}  # fmt: skip


def tables(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Of each model, both together by collection, and what each arm gains over BM25's negatives, pooled."""
    made = {}
    for model in dict.fromkeys(each["model"] for each in results):
        values, gains = of_model([each for each in results if each["model"] == model])
        made[f"Both together, nDCG@10 on test, {model}"] = values
        made[f"Against BM25's negatives without residual, {model}"] = gains
    return made


def of_model(results: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The two tables of a model."""
    values = [
        {"collection": each["collection"], "bm25 alone": round(each["bm25"], 4),
         **({"untrained": round(each["untrained"]["both"], 4)} if "untrained" in each else {}),
         **{name: round(arm["both"], 4) for name, arm in each["arms"].items()}}
        for each in results
    ]  # fmt: skip
    gains = []
    for name in ARMS:
        count = sum(each["queries"] for each in results)
        mean = sum(each["arms"][name]["sum"] for each in results) / count
        bound = 1.96 * np.sqrt(max(sum(each["arms"][name]["squares"] for each in results) / count - mean**2, 0) / count)
        surely = [each["collection"] for each in results if each["arms"][name]["p"] < 0.05]
        gains.append({
            "negatives": name, "alone": round(float(np.mean([each["arms"][name]["alone"] for each in results])), 4),
            "both": round(float(np.mean([each["arms"][name]["both"] for each in results])), 4),
            "gain, all queries": f"{mean:+.4f} [{mean - bound:+.4f}, {mean + bound:+.4f}]",
            "p < .05 on": ", ".join(surely) or "none",
        })  # fmt: skip
    return values, gains


def main() -> None:
    """Measure what is not measured, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=128, help="queries a step")
    parser.add_argument("--rate", type=float, help="peak of the learning rate")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text, at most")
    args = parser.parse_args()
    results: list[dict[str, Any]] = load("partner").get("results", [])
    done = {(each["collection"], each["model"]) for each in results}
    for given in args.collections:
        if (Path(given).name, args.model) not in done:
            how = {"steps": args.steps, "batch": args.batch, "rate": args.rate}
            results.append(compared(given, args.model, args.length, args.seeds, **how))
            save("partner", {"results": results}, tables(results))
    save("partner", {"results": results}, tables(results))


if __name__ == "__main__":
    main()
