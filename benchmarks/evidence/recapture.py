"""Does recapture find the share of false negatives of every way of mining, where it is known?

    python benchmarks/run.py recapture COLLECTION [--hide 0.5 0.9] [--seeds 3] [--top 10]

The collection's judgements must be complete (banking77, clinc150). A share of each training query's positives is
hidden, at least one left. Each way of mining is given the true number of hidden positives for each known one, and the
share of false negatives that its table's recapture then gives is held against the share that is hidden positives. The
seconds are of this process, on all its threads: of mining, and of planting beside it. Writes
benchmarks/results/recapture.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from common import false_shares, hidden, save
from foils.data import Collection, Negatives, Recapture, load_collection
from foils.data.collection import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.fusion import METHODS as FUSIONS
from foils.mining.fusion import fuse_sources
from foils.mining.planting import PLANTED, planted_by_filter, planted_by_fusion
from foils.mining.retrievers import CrossEncoderRetriever
from foils.mining.rules import Margin, PositiveScores, ScoreLimit, SimANS, TriSampler, Uniform, filter_negatives
from foils.mining.scorers import EncoderScorer
from foils.runtime.files import cache_folder

UNIONS = (("bm25 0-10", "dense 0-10"), ("random", "dense 0-10"), ("uniform of dense 0-100", "dense 0-10"))
Settings = dict[str, Any]


class Models:
    """What mines in a collection with hidden positives; vectors come from the store."""

    def __init__(self, collection: Collection) -> None:
        self.collection, rows = collection, np.arange(len(collection.queries))
        self.encoder = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128))
        self.store = VectorStore(cache_folder() / "vectors")
        self.queries = self.store.embed(self.encoder, collection.query_texts(rows), "query")
        self.documents = self.store.embed(self.encoder, DocumentTexts(collection), "document")
        self.bm25, self.dense = BM25Retriever(collection), DenseRetriever(self.queries, self.documents)
        static = load_encoder("static:all-MiniLM-L6-v2", EncoderSettings(max_length=128))
        self.ance = DenseRetriever.of_model(collection, static, self.store, name="ance")
        self.positives = PositiveScores.of(collection, self.dense, rows)

    def reranked(self, pool: Any) -> CrossEncoderRetriever:
        """The pool's first hundred, ranked anew pair by pair: as a cross-encoder that agrees with the encoder."""
        scorer: Any = EncoderScorer(self.encoder, self.store)
        return CrossEncoderRetriever(self.collection, scorer, pool)


def ways(models: Models) -> dict[str, Callable[[], Settings]]:
    """The settings of each way of mining, made when it is mined."""
    dense, collection, positives = models.dense, models.collection, models.positives
    region = TriSampler(collection, models.queries, models.documents)
    scorer = EncoderScorer(models.encoder, models.store)

    def margin(**how: Any) -> Settings:
        return {"retriever": dense, "rules": [Margin(positives, **how)], "ranks": (0, 500)}

    return {
        "random": lambda: {"retriever": RandomRetriever(collection)},
        "bm25 0-10": lambda: {"retriever": models.bm25},
        "dense 0-10": lambda: {"retriever": dense},
        "dense 50-60": lambda: {"retriever": dense, "ranks": (50, 60)},
        "dense 0-10, near-duplicates kept": lambda: {"retriever": dense, "near_duplicate": 1.1},
        "ance": lambda: {"retriever": models.ance},
        "uniform of dense 0-100": lambda: {"retriever": dense, "ranks": (0, 100), "draw": Uniform()},
        "SimANS of dense 0-100": lambda: {
            "retriever": dense, "ranks": (0, 100), "draw": SimANS(positives, a=100.0, b=-0.1),
        },
        "uniform of bm25 0-100": lambda: {"retriever": models.bm25, "ranks": (0, 100), "draw": Uniform()},
        "relative margin 5 %, minimum": lambda: margin(relative=0.05),
        "margin 0.1, mean, of bm25 0-500": lambda: {
            "retriever": models.bm25, "scorer": scorer, "ranks": (0, 500),
            "rules": [Margin(positives, absolute=0.1)],
        },
        "score at most 0.6": lambda: {"retriever": dense, "rules": [ScoreLimit(0.6)], "ranks": (0, 500)},
        "cross-encoder of dense": lambda: {"retriever": models.reranked(dense)},
        "cross-encoder of bm25": lambda: {"retriever": models.reranked(models.bm25)},
        "cross-encoder of bm25, margin 5 %": lambda: {
            "retriever": models.reranked(models.bm25), "rules": [Margin(positives, relative=0.05)],
        },
        "trisampler": lambda: {"retriever": dense, "rules": [region], "draw": region, "ranks": (0, 100)},
    }  # fmt: skip


def timed(collection: Collection, settings: Settings) -> tuple[Negatives, float]:
    retriever = settings["retriever"]
    rest = {name: value for name, value in settings.items() if name != "retriever"}
    start = time.process_time()
    found = mine_negatives(collection, retriever, split="train", **rest)
    return found, time.process_time() - start


def union(
    collection: Collection, tables: dict[str, Negatives], parts: Sequence[str], method: str, top: int
) -> Negatives:
    """Several tables as one, as `foils fuse` makes it."""
    named = {part.replace(" ", "-"): tables[part] for part in parts}
    fuse = partial(fuse_sources, method=method, top=top)
    fused = fuse(named)
    return fused.with_provenance(planted_by_fusion(named, fused, collection, fuse))


def row(negatives: Negatives, gone: Any, unlabelled: float) -> dict[str, float | str | None]:
    """The true and the estimated share of false negatives, and the standard error of the estimate."""
    recapture = Recapture.of_table(negatives)
    facts: dict[str, float | str | None] = {"true": false_shares({"": negatives}, gone)[""]}
    if recapture is not None and recapture.standard_error is not None:
        error = unlabelled * recapture.standard_error / recapture.kept
        facts |= {
            "estimated": min(1.0, unlabelled * recapture.returned / recapture.kept),
            "error": error,
            "way": recapture.way,
        }
    return facts


def measured(whole: Collection, share: float, seed: int, top: int) -> dict[str, Any]:
    collection, gone = hidden(whole, share, seed)
    models = Models(collection)
    unlabelled = len(gone) / len(collection.positives("train").doc_rows)
    tables, rows = {}, {}
    for name, settings in ways(models).items():
        _, alone = timed(collection, {"top": top, "seed": seed, **settings()})
        tables[name], both = timed(collection, {"top": top, "seed": seed, "plant": PLANTED, **settings()})
        rows[name] = {**row(tables[name], gone, unlabelled), "mining": alone, "planting": both - alone}
        print(share, seed, name, rows[name], flush=True)
    for parts in UNIONS:
        for method in FUSIONS:
            if method == "weighted":  # random negatives have no score
                continue
            start = time.process_time()
            name = f"{method} of {' & '.join(parts)}"
            rows[name] = row(union(collection, tables, parts, method, top), gone, unlabelled)
            rows[name] |= {"planting": time.process_time() - start}
            print(share, seed, name, rows[name], flush=True)
    rules = [Margin(models.positives, relative=0.05)]
    for name in ("dense 0-10", "uniform of dense 0-100"):
        marked = filter_negatives(tables[name], collection, rules)
        carried = planted_by_filter(tables[name], marked, collection, rules)
        rows[f"{name}, then relative margin 5 %"] = row(marked.with_provenance(carried), gone, unlabelled)
    return {"unlabelled": unlabelled, "ways": rows}


def rows_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the true and the estimated share of each source of negatives, means over seeds."""
    rows = []
    for name in runs[0]["ways"]:
        of = [run["ways"][name] for run in runs]
        row: dict[str, Any] = {"negatives": name, "true": float(np.mean([each["true"] for each in of]))}
        if all("estimated" in each for each in of):
            row["estimated"] = float(np.mean([each["estimated"] for each in of]))
            row["± standard error"] = float(np.linalg.norm([each["error"] for each in of])) / len(of)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--hide", type=float, nargs="+", default=[0.5, 0.9])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--top", type=int, default=10)
    given = parser.parse_args()
    whole, tables = load_collection(given.collection), {}
    for share in given.hide:
        runs = [measured(whole, share, seed, given.top) for seed in range(given.seeds)]
        tables[f"{whole.name}, {100 * share:g} % hidden, {given.seeds} seeds"] = rows_of(runs)
    save("recapture", {}, tables)


if __name__ == "__main__":
    main()
