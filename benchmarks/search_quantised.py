"""What masking a query does over quantised documents: int8, and bits with and without rescoring.

    python benchmarks/search_quantised.py COLLECTION... [--json benchmarks/results/search_quantised.json]

Stores over the documents of a collection, all exact, each behind `SharpenedSearch` as a database would be:

- float32: inner products.
- int8: each dimension in 255 steps between its least and its largest value; inner products with float32 queries.
- binary: the sign of each dimension; inner products of float32 queries with +1 and −1.
- binary, rescored: of the 40 best by those, the 10 of largest inner product with the float32 documents.
- Hamming, rescored: the same, the 40 by bits that differ; a query's bit is 1 above 0, so that a masked dimension is 0.

The feedback's vectors are the store's own, but float32 where it rescores. For each: nDCG@10 with all dimensions, RDIME
and selective; and two one-sided tests of each against all dimensions in the same store (Shapiro–Wilk, then paired t or
Wilcoxon), that it is better and that it is worse, Holm's correction over all tests of one system and direction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import load_collection
from foils.data.store import cache_folder
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.evaluation import measure_rankings, qrels_of
from foils.searching import DimensionSettings, SharpenedSearch, embed_collection
from foils.statistics import holm, paired_test

K, RESCORED = 10, 40
SYSTEMS = {name: DimensionSettings(name) for name in ("none", "rdime", "selective")}
Floats = np.ndarray


def steps(documents: Floats) -> Floats:
    """Documents as 255 steps of each dimension, put back in floats."""
    low = documents.min(axis=0)
    width = np.maximum((documents.max(axis=0) - low) / 254, 1e-12)
    return (np.rint((documents - low) / width) * width + low).astype(np.float32)


def store(kept: Floats, exact: Floats | None = None, *, hamming: bool = False) -> Callable[[Floats, int], Any]:
    """A batched search function over what a store keeps; `exact`: the documents by which it scores the best again."""

    def search(queries: Floats, k: int) -> list[tuple[list[int], Floats]]:
        asked = np.where(queries > 0, 1, -1).astype(np.float32) if hamming else queries
        scores = asked @ kept.T
        depth = k if exact is None else max(k, RESCORED)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        if exact is None:
            return [(rows.tolist(), kept[rows]) for rows in best]
        found = []
        for query, rows in zip(queries, best, strict=True):
            again = rows[np.argsort(-(exact[rows] @ query), kind="stable")[:k]]
            found.append((again.tolist(), exact[again]))
        return found

    return search


def stores(documents: Floats) -> dict[str, Callable[[Floats, int], Any]]:
    bits = np.where(documents > 0, 1, -1).astype(np.float32)
    return {
        "float32": store(documents), "int8": store(steps(documents)), "binary": store(bits),
        "binary, rescored": store(bits, documents), "Hamming, rescored": store(bits, documents, hamming=True),
    }  # fmt: skip


def measured(path: Path) -> list[dict[str, Any]]:
    collection, encoder = load_collection(path), load_encoder(DEFAULT_MODEL, EncoderSettings(max_length=256))
    embedded = embed_collection(collection, encoder, VectorStore(cache_folder() / "vectors"), split="test")
    if (embedded.identical >= 0).any():
        raise SystemExit(f"{path}: a query is a document; these stores do not leave it out")
    ids, documents = collection.documents["doc_id"].to_pylist(), embedded.documents.take(slice(None))
    rows = []
    for name, search in stores(np.asarray(documents, np.float32)).items():
        values = {}
        for system, settings in SYSTEMS.items():
            found = SharpenedSearch(search, settings, batched=True).many(embedded.queries, K)
            rankings = {
                query: [ids[match.document] for match in of]
                for query, of in zip(embedded.query_ids, found, strict=True)
            }
            run = measure_rankings(rankings, qrels_of(collection, "test"), ["nDCG@10"], name=system)
            values[system] = run.per_query["nDCG@10"]
        for system in ("rdime", "selective"):
            better, worse = (
                paired_test(values[system], values["none"], alternative=side) for side in ("greater", "less")
            )
            rows.append({
                "collection": path.name, "queries": len(embedded.queries), "documents": len(ids), "store": name,
                "system": system, "none": float(values["none"].mean()), "mean": float(values[system].mean()),
                "gain": better.difference, "test": better.test, "p_better": better.p, "p_worse": worse.p,
            })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "search_quantised.json")
    arguments = parser.parse_args()
    rows = [row for path in arguments.collections for row in measured(path)]
    for system in ("rdime", "selective"):
        family = [row for row in rows if row["system"] == system]
        for side in ("better", "worse"):
            for row, p in zip(family, holm([row[f"p_{side}"] for row in family]), strict=True):
                row[f"p_{side}_holm"] = float(p)
    arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(*(row[key] for key in ("collection", "store", "system")), end=" ")
        print(*(f"{row[key]:.4f}" for key in ("none", "mean", "gain", "p_better_holm", "p_worse_holm")))


if __name__ == "__main__":
    main()
