"""Rerankers from a masked language model: does the decision foresee which negatives train them best?

    python benchmarks/rerankers.py train COLLECTION MODEL [--hide 0.9] [--queries 2500] [--test 300] [--seeds 1]
    python benchmarks/rerankers.py decide COLLECTION [--hide 0.9] [--queries 2500] [--test 300] [--score-with ENCODER]

`train`: nine sources of four negatives a query (random, five windows of BM25, three of dense retrieval by
all-MiniLM-L6-v2); MODEL, a folder with a masked language model, becomes a cross-encoder, is trained on lists for one
epoch, and orders BM25's first fifty documents of test queries; nDCG@10. `decide`: the decision on the same sources,
`--starts nothing` without labels, against these measures: Kendall's τ, regret, and beside them the published scores'.
With `--score-with` another encoder than the one that mined decides (`decisions` in the results).
Writes benchmarks/results/rerankers.json. The form of the benefit was fixed before any of these trainings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import kendalltau

from foils.data import Collection, Negatives, load_collection
from foils.data.store import cache_folder, write_json
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.scoring import DecisionSettings, ScoreSettings, decide_sources, score_sources
from study_first import hidden

RESULTS = Path(__file__).parent / "results" / "rerankers.json"
ENCODER = "all-MiniLM-L6-v2"
NEGATIVES, DEPTH, BATCH = 4, 50, 16
LENGTH = {"scifact": 128, "debian": 96}  # tokens; 64 of the others
BM25_FIRST, DENSE_FIRST = (0, 10, 20, 50, 100), (0, 20, 100)
PUBLISHED = ("eci_sem", "eci", "mnrl_proxy", "gradient_energy", "rho")


def drawn(name: Path, hide: float, queries: int, test: int) -> Collection:
    """The collection with so many training and test queries, the same for every source and seed."""
    collection = load_collection(str(name))
    if hide:
        collection, _ = hidden(collection, hide)
    rng = np.random.default_rng(5)
    qrels = {}
    for split, count in (("train", queries), ("test", test)):
        table = collection.qrels[split]
        table = table.filter(pc.greater(table["relevance"], 0)) if split == "train" else table
        kept = rng.permutation(np.unique(np.array(table["query_id"].to_pylist(), object)))[:count]
        qrels[split] = table.filter(pc.is_in(table["query_id"], value_set=pa.array(kept, table["query_id"].type)))
    return replace(collection, qrels=qrels, digest=f"{collection.digest[:20]}-{queries}-{test}")


def mined(collection: Collection) -> dict[str, Negatives]:
    """The nine sources."""
    encoder, store = load_encoder(ENCODER, EncoderSettings(max_length=128)), _store()
    queries = collection.query_texts(np.arange(len(collection.queries)))
    dense = DenseRetriever(
        store.embed(encoder, queries, "query"), store.embed(encoder, DocumentTexts(collection), "document")
    )
    bm25 = BM25Retriever(collection)
    made = {"random": mine_negatives(collection, RandomRetriever(collection, seed=0), split="train", top=NEGATIVES)}
    for name, retriever, firsts in (("bm25", bm25, BM25_FIRST), ("dense", dense, DENSE_FIRST)):
        for first in firsts:
            ranks = (first, first + NEGATIVES)
            made[f"{name} {first}-{first + NEGATIVES}"] = mine_negatives(
                collection, retriever, split="train", top=NEGATIVES, ranks=ranks
            )
    return made


def train(cell: str, collection: Collection, model: str, seeds: int) -> None:
    """Train on each source with each seed, what is there already left out."""
    from foils.encode.cross_encoders import load_cross_encoder
    from foils.evaluation import bm25_run
    from foils.evaluation.measuring import reranker_score
    from foils.training.data import training_set
    from foils.training.models import with_defaults
    from foils.training.reranker import train_reranker
    from foils.training.settings import TrainSettings

    score = reranker_score(collection, "test", bm25_run(collection, "test", depth=DEPTH), "nDCG@10")
    length = LENGTH.get(cell.split()[0], 64)
    for seed in range(seeds):
        for name, negatives in mined(collection).items():
            results = _read()
            if any(each["source"] == name and each["seed"] == seed for each in results["cells"][cell]["trained"]):
                continue
            data = training_set(
                collection, negatives, split="train", form="lists", per_query=NEGATIVES, max_positives=1
            )
            reranker = load_cross_encoder(model, max_length=length, device="cpu", new_head=True, seed=seed)
            settings = TrainSettings(
                loss="listnet", batch_size=BATCH, max_length=length, seed=seed, precision="float32"
            )
            with tempfile.TemporaryDirectory() as folder:
                train_reranker(reranker, data, Path(folder), settings=with_defaults(settings, reranker))
            made = {"source": name, "seed": seed, "rows": len(data), "nDCG@10": round(score(reranker), 5)}
            results["cells"][cell]["trained"].append(made)
            print(cell, made, flush=True)
            write_json(RESULTS, results)


def decide(cell: str, collection: Collection, score_with: str) -> None:
    """What the decision says of the sources, and how it agrees with the measures."""
    results = _read()
    after = defaultdict(list)
    for each in results["cells"][cell]["trained"]:
        after[each["source"]].append(each["nDCG@10"])
    sources = {name: negatives for name, negatives in mined(collection).items() if name in after}
    encoder = load_encoder(score_with, EncoderSettings(max_length=None if score_with.startswith("static:") else 128))
    scores = score_sources(collection, sources, encoder, _store(), ScoreSettings(hybrids=1, replicates=0, sample=2_000))
    decision = decide_sources(scores, sources, encoder, _store(), DecisionSettings(starts="nothing")).decision
    means = {name: float(np.mean(values)) for name, values in after.items()}
    order = [means[name] for name in sources]
    published = {
        name: kendalltau([getattr(next(s for s in scores.sources if s.name == each), name) for each in sources], order)[
            0
        ]
        for name in PUBLISHED
    }
    benefits = {name: decision.worths[name].benefit for name in sources}
    made = {
        "source": decision.source, "probability": decision.best_with_probability, "matters": decision.matters,
        "benefit": benefits, "kendall": float(kendalltau(list(benefits.values()), order)[0]),
        "regret": max(order) - means[decision.source or "random"],
        "published": {name: float(value) for name, value in published.items()},
        "spread": max(order) - min(order),
    }  # fmt: skip
    if score_with == ENCODER:
        results["cells"][cell]["decision"] = made
    else:
        results["cells"][cell].setdefault("decisions", {})[score_with] = made
    print(cell, json.dumps(made, indent=1))
    write_json(RESULTS, results)


def _store() -> VectorStore:
    return VectorStore(cache_folder() / "vectors")


def _read() -> dict[str, Any]:
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    cells = defaultdict(lambda: {"trained": []}, known.get("cells", {}))
    return {"cells": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["train", "decide"])
    parser.add_argument("collection", type=Path)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--hide", type=float, default=0.0)
    parser.add_argument("--queries", type=int, default=2500)
    parser.add_argument("--test", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--score-with", default=ENCODER, help="encoder that decides")
    given = parser.parse_args()
    cell = f"{given.collection.name} {given.hide:g}"
    collection = drawn(given.collection, given.hide, given.queries, given.test)
    if given.action == "train":
        train(cell, collection, given.model, given.seeds)
    else:
        decide(cell, collection, given.score_with)


if __name__ == "__main__":
    main()
