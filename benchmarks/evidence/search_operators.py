"""What can be done with a query and its feedback: which default gains, and which does harm on no split?

    python benchmarks/run.py search_operators COLLECTION ... [--models all-MiniLM-L6-v2 static:all-MiniLM-L6-v2]

Every split with judgements, at most 4,000 queries of it; documents are ranked again within the 1,000 retrieved. Each
operator at its default settings: DIME, Eclipse, RDIME and Rocchio; and Rocchio with the sun of one document on those
queries alone whose first document leads the third by 2.45 times the standard deviation of the hundred best cosines, a
gate without units: of 2,288 combinations of a gate, its threshold, k⁺ and b the one that gained most on these very
splits without breaking the bound. Also with a common component added to all vectors, so that their mean cosine is .5
or .85 (test splits).

Gains have the half width of their 95 % intervals, over queries, and so has the paired difference of Rocchio and RDIME.
The bound is the lower end of a one-sided 95 % interval of the gain in nDCG@10: a default may not lose more than .002.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from common import argument_parser, load, save
from foils.data import load_collection
from foils.encode import EncoderSettings, Vectors, VectorStore, load_encoder
from foils.runtime.files import cache_folder
from foils.searching import DimensionSettings, embed_collection, judged_queries, query_values, sharpened_queries
from foils.searching.choosing import Judged

MEASURES = ("nDCG@10", "AP")
MOST, LIST, LEAD = 4_000, 100, 2.45
GATED, PAIRED = "Rocchio, gated", "Rocchio − RDIME"
OPERATORS = {
    "DIME": DimensionSettings("dime"), "Eclipse": DimensionSettings("eclipse"), "RDIME": DimensionSettings("rdime"),
    "Rocchio": DimensionSettings("rocchio"), GATED: DimensionSettings("rocchio", k_plus=1),
}  # fmt: skip


def shifted(vectors: np.ndarray, target: float, mean: float) -> np.ndarray:
    """The vectors with a common component, so that two random documents have the mean cosine `target`."""
    common = np.random.default_rng(1).standard_normal(vectors.shape[1]).astype(np.float32)
    moved = vectors + common / np.linalg.norm(common) * np.sqrt((target - mean) / (1 - target))
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), np.float32)


def leads(judged: Judged) -> np.ndarray:
    """(n,) how far the first document leads the third, in standard deviations of the best hundred cosines."""
    found = []
    for query, rows in zip(judged.queries, judged.lists, strict=True):
        cosines = judged.documents.take(rows[:LIST]) @ query
        found.append((cosines[0] - cosines[2]) / max(float(cosines.std()), 1e-9))
    return np.array(found)


def measured(judged: Judged) -> dict[str, dict[str, Any]]:
    """Operator → gain of each measure, its 95 % interval and the one-sided bound."""
    plain = query_values(judged, judged.queries)
    result: dict[str, dict[str, Any]] = {"plain": {name: float(values.mean()) for name, values in plain.items()}}
    gains = {}
    for name, settings in OPERATORS.items():
        made = sharpened_queries(judged.queries, judged.documents, judged.feedback, settings)
        values = query_values(judged, made.queries)
        gains[name] = {measure: values[measure] - plain[measure] for measure in MEASURES}
    trusted = leads(judged) >= LEAD
    gains[GATED] = {measure: np.where(trusted, gain, 0.0) for measure, gain in gains[GATED].items()}
    gains[PAIRED] = {measure: gains["Rocchio"][measure] - gains["RDIME"][measure] for measure in MEASURES}
    for name, of in gains.items():
        result[name] = {}
        for measure, gain in of.items():
            mean, error = float(gain.mean()), float(gain.std(ddof=1)) / len(gain) ** 0.5
            result[name][measure] = [round(each, 5) for each in (mean, mean - 1.96 * error, mean + 1.96 * error)]
            result[name].setdefault("bound", round(mean - 1.645 * error, 5))  # of nDCG@10, the first
    return {**result, "queries": {"count": len(judged.queries), "trusted": float(trusted.mean())}}


def cases(path: Path, model: str) -> dict[str, dict[str, Any]]:
    """What is measured of each split, and of the test split with a common component."""
    encoder = load_encoder(model, EncoderSettings(max_length=64 if path.name == "debian" else 128))
    collection, store = load_collection(path), VectorStore(cache_folder() / "vectors")
    made = {}
    for split in collection.splits:
        embedded = embed_collection(collection, encoder, store, split=split)
        judged = part_of(judged_queries(embedded))
        made[split] = measured(judged)
        if split != "test":
            continue
        documents = np.asarray(embedded.documents.take(slice(None)), np.float32)
        sample = documents[np.random.default_rng(0).permutation(len(documents))[:1_000]]
        mean = float((sample[:500] @ sample[500:].T).mean())
        for target in (each for each in (0.5, 0.85) if each > mean):
            queries, vectors = (shifted(each, target, mean) for each in (embedded.queries, documents))
            moved = type(embedded)(collection, split, embedded.query_rows, queries, Vectors.of(vectors))
            made[f"{split}, mean cosine {target:g}"] = measured(part_of(judged_queries(moved)))
    return made


def part_of(judged: Judged) -> Judged:
    """At most so many of the queries."""
    if len(judged.queries) <= MOST:
        return judged
    rows = np.sort(np.random.default_rng(0).choice(len(judged.queries), MOST, replace=False))
    return Judged(
        judged.queries[rows], judged.documents, [judged.lists[row] for row in rows],
        [judged.relevant[row] for row in rows], measures=judged.measures,
    )  # fmt: skip


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a case: nDCG@10 / AP, gains of each operator, ! where the bound is below −.002."""
    rows = []
    for name, case in result.items():
        model, collection, split = name.split(" | ")
        row = {
            "": f"{collection} {split}", "encoder": "static" if model.startswith("static") else "MiniLM",
            "queries": case["queries"]["count"], "plain": " / ".join(f"{case['plain'][each]:.3f}" for each in MEASURES),
        }  # fmt: skip
        for operator in (*OPERATORS, PAIRED):
            marked = "!" if case[operator]["bound"] < -0.002 and operator != PAIRED else ""
            of = [case[operator][each] for each in MEASURES]
            row[operator] = " / ".join(f"{mean:+.4f} ± {(high - low) / 2:.4f}" for mean, low, high in of) + marked
        rows.append(row)
    return rows


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collections", type=Path, nargs="*")
    parser.add_argument("--models", nargs="+", default=["all-MiniLM-L6-v2", "static:all-MiniLM-L6-v2"])
    given = parser.parse_args()
    result = load("search_operators").get("cases", {})
    for path in given.collections:
        for model in given.models:
            found = {f"{model} | {path.name} | {split}": case for split, case in cases(path, model).items()}
            result = {**result, **found}
            plain = {name: case for name, case in result.items() if "mean cosine" not in name}
            shifted_ones = {name: case for name, case in result.items() if name not in plain}
            shown = {"Splits": rows_of(plain), "With a common component": rows_of(shifted_ones)}
            save("search_operators", {"cases": result}, shown)
