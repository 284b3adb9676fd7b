"""The first study: does any score order sources of negatives as training does?

    python benchmarks/study_first.py STUDY COLLECTION [--hide 0.9] [--queries 2000] [--seeds 5] [--model MODEL]

Mines sources from random over windows of ranks of BM25 and of dense retrieval (all-MiniLM-L6-v2) to their unions, and
adds them to the study in the folder STUDY, which every call shares. --per-query is how many negatives a query gets,
and the width of the windows. With --hide a share of each training query's positives is hidden first (one stays), which
needs a collection that judges everything.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from foils.data import Collection, Negatives, load_collection
from foils.data.recapture import Recapture
from foils.data.store import cache_folder, provenance
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.fusion import fuse_sources
from foils.studies.run import run_study
from foils.studies.settings import StudySettings

FIRSTS = (0, 10, 20, 50, 100)
STATIC = {"batch_size": 256, "learning_rate": 2e-3, "warmup": 0.1}
TRANSFORMER = {"batch_size": 32, "learning_rate": 2e-5, "warmup": 0.1, "precision": "bfloat16"}


def hidden(collection: Collection, share: float, seed: int = 0) -> tuple[Collection, pa.Table]:
    """The collection with a share of its training judgements gone, at least one left for each query; and those."""
    table = collection.qrels["train"]
    draw = np.random.default_rng(seed).random(len(table))
    query = np.asarray(table["query_id"].combine_chunks().dictionary_encode().indices)
    order = np.lexsort((draw, query))
    first = np.zeros(len(table), bool)
    first[order[np.r_[True, np.diff(query[order]) != 0]]] = True
    gone = (draw < share) & ~first
    qrels = {**collection.qrels, "train": table.filter(pa.array(~gone))}
    digest = f"{collection.digest[:24]}-{100 * share:g}-{seed}"
    name = f"{collection.name}, {100 * share:g} % hidden"
    return replace(collection, name=name, qrels=qrels, digest=digest), table.filter(pa.array(gone))


def mined(collection: Collection, encoding: EncoderSettings, per_query: int) -> dict[str, Negatives]:
    """Random negatives, windows of so many BM25 and dense ranks, and unions that take turns."""
    encoder = load_encoder("all-MiniLM-L6-v2", encoding)
    store = VectorStore(cache_folder() / "vectors")
    rows = np.arange(len(collection.queries))
    dense = DenseRetriever(
        store.embed(encoder, collection.query_texts(rows), "query"),
        store.embed(encoder, DocumentTexts(collection), "document"),
    )

    def window(retriever, first: int, end: int) -> Negatives:
        made = provenance("mine", {"with": retriever.name, "ranks": [first, end]}, inputs={"c": collection.digest})
        return mine_negatives(collection, retriever, split="train", top=end - first, ranks=(first, end), made=made)

    found = {"random": window(RandomRetriever(collection, seed=0), 0, per_query)}
    for retriever in (BM25Retriever(collection), dense):
        for first in FIRSTS:
            found[f"{retriever.name} {first}-{first + per_query}"] = window(retriever, first, first + per_query)
    lexical, hard, far = (
        f"{way}-{first + per_query}" for way, first in (("bm25 0", 0), ("dense 0", 0), ("dense 100", 100))
    )
    for a, b in ((lexical, hard), ("random", hard), (hard, far)):
        both = fuse_sources(
            {name: Negatives(found[name].kept()) for name in (a, b)}, method="interleave", top=per_query
        )
        recapture = Recapture.joined([Recapture.of_table(found[name]) for name in (a, b)], kept=int(both.keep.sum()))
        if recapture is not None:
            both = both.with_provenance({"recapture": recapture.to_json()})
        found[f"{a} & {b}"] = both
    return found


def false_shares(sources: dict[str, Negatives], gone: pa.Table) -> dict[str, float]:
    """The share of each source's kept negatives that are hidden positives."""
    truth = set(zip(gone["query_id"].to_pylist(), gone["doc_id"].to_pylist(), strict=True))
    shares = {}
    for name, negatives in sources.items():
        kept = negatives.kept()
        pairs = zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True)
        shares[name] = float(np.mean([pair in truth for pair in pairs]))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("collection")
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--per-query", type=int, default=10)
    parser.add_argument("--hide", type=float)
    parser.add_argument("--only", nargs="*", help="these sources alone")
    parser.add_argument("--probe", default=None)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--openvino", action="store_true", help="embed for mining in bfloat16 by OpenVINO")
    given = parser.parse_args()
    collection = load_collection(given.collection)
    fast = {"precision": "bfloat16", "backend": "openvino"} if given.openvino else {}
    if given.hide:
        collection, _ = hidden(collection, given.hide)
    sources = mined(collection, EncoderSettings(max_length=128, **fast), given.per_query)
    if given.only:
        sources = {name: sources[name] for name in given.only}
    how = STATIC if given.model.startswith("static:") else TRANSFORMER
    settings = StudySettings(
        seeds=given.seeds,
        queries=given.queries,
        per_query=given.per_query,
        measures=("nDCG@10",),
        training={**how, **({"learning_rate": given.learning_rate} if given.learning_rate else {})},
        probe=given.probe,
    )
    run_study(given.study, collection, sources, [given.model], VectorStore(cache_folder() / "vectors"), settings)


if __name__ == "__main__":
    main()
