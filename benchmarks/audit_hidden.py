"""How well the audit finds false negatives, where every judgement is known: banking77 with hidden positives.

    python benchmarks/audit_hidden.py COLLECTION [--hide 0.8] [--seeds 3]

Hides a share of each training query's positives, mines BM25 and dense negatives (top 20 each) with what is left, and
counts how many of the negatives that are suspected most are hidden positives: by the audit's suspicion, by similarity
to the query alone, and by similarity to the labelled positives alone. Writes benchmarks/results/audit_hidden.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from foils.data import Collection, load_collection
from foils.data.store import cache_folder, write_json
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import BM25Retriever, DenseRetriever, mine_negatives
from foils.scoring import ScoreSettings, score_sources
from foils.scoring.audit import nearness_to_positives, suspicion

RESULTS = Path(__file__).parent / "results" / "audit_hidden.json"
DEPTHS = (100, 1_000, 5_000, 20_000)


def hidden(collection: Collection, share: float, seed: int) -> tuple[Collection, pa.Table]:
    """The collection with a share of its training judgements gone, at least one left for each query."""
    table = collection.qrels["train"]
    rng = np.random.default_rng(seed)
    draw = rng.random(len(table))
    query = np.asarray(table["query_id"].combine_chunks().dictionary_encode().indices)
    order = np.lexsort((draw, query))
    first = np.zeros(len(table), bool)
    first[order[np.r_[True, np.diff(query[order]) != 0]]] = True
    gone = (draw < share) & ~first
    return replace(collection, qrels={"train": table.filter(pa.array(~gone))}), table.filter(pa.array(gone))


def measured(collection: Collection, share: float, seed: int) -> dict[str, object]:
    known, gone = hidden(collection, share, seed)
    encoder = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128))
    store = VectorStore(cache_folder() / "vectors")
    queries = store.embed(encoder, known.query_texts(np.arange(len(known.queries))), "query")
    documents = store.embed(encoder, DocumentTexts(known), "document")
    sources = {
        retriever.name: mine_negatives(known, retriever, split="train", top=20)
        for retriever in (BM25Retriever(known), DenseRetriever(queries, documents))
    }
    scores = score_sources(known, sources, encoder, store, ScoreSettings(control=False, replicates=0))
    records, similarities = scores.measured.records, scores.measured.similarities
    truth = set(
        zip(known.query_rows(gone["query_id"]).tolist(), known.document_rows(gone["doc_id"]).tolist(), strict=True)
    )
    asked = zip(records.queries[records.record].tolist(), records.texts.rows[records.document].tolist(), strict=True)
    false = np.array([pair in truth for pair in asked])
    near = nearness_to_positives(scores.measured)
    positives = np.bincount(records.positive_record, minlength=len(records))
    by = {
        "suspicion": suspicion(similarities.s_n, near, positives[records.record]),
        "similarity to the query": similarities.s_n,
        "similarity to labelled positives": near,
        "margin to the first positive": similarities.s_n - similarities.s_p,
    }
    found: dict[str, object] = {"negatives": len(false), "false": int(false.sum()), "share": float(false.mean())}
    for name, amount in by.items():
        ranked = false[np.argsort(-amount, kind="stable")]
        found[name] = {
            str(depth): {"precision": float(ranked[:depth].mean()), "recall": float(ranked[:depth].sum() / false.sum())}
            for depth in DEPTHS
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--hide", type=float, default=0.8)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    collection = load_collection(given.collection)
    runs = [measured(collection, given.hide, seed) for seed in range(given.seeds)]
    every = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    every[f"{collection.name}, {100 * given.hide:g} % hidden"] = runs
    write_json(RESULTS, every)
    for name in (name for name in runs[0] if isinstance(runs[0][name], dict)):
        cells = []
        for depth in DEPTHS:
            values = [run[name][str(depth)] for run in runs]  # type: ignore[index]
            precision, recall = (np.mean([value[key] for value in values]) for key in ("precision", "recall"))
            cells.append(f"{depth}: P {precision:.3f} R {recall:.3f}")
        print(f"{name:34s}", "  ".join(cells))
    print({key: [run[key] for run in runs] for key in ("negatives", "false", "share")})


if __name__ == "__main__":
    main()
