"""Is what `foils tune` gives at least as good as one plain training, and what does it say to deploy?

    python benchmarks/run.py tune COLLECTION ... [--model static:all-MiniLM-L6-v2] [--minutes N] [--seeds 2]

For each collection, model and seed, on the same documents and test queries: the model as it is, BM25, the plain
training (`foils train` on pairs, all defaults but for its steps and length, which the tuning had time for), the
tuned model (the base, where it is kept), and what is deployed. Everything is chosen on dev. What
is in the result file already is not done again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import foils
from common import load, save

MEASURE, ALONE = "nDCG@10", "pairs alone"


def measured(given: str, model: str, minutes: float | None, seed: int, work: Path) -> dict[str, Any]:
    """Tune and train plainly from one model, and measure both on test."""
    start = time.monotonic()
    tuned: Any = foils.tune(given, model=model, output=work / "better", minutes=minutes, seed=seed)
    seconds = round(time.monotonic() - start)
    steps, plain = int(tuned.plan["recipe"]["steps"]), Path(tuned.model)
    if not tuned.better or str(tuned.taken) != f"{steps} steps at {tuned.plan['recipe']['learning_rate']:.3g}, {ALONE}":
        how = {"steps": steps, "max_length": tuned.plan["recipe"].get("max_length")}
        plain = foils.train(tuned.collection, model=model, output=work / "plain", seed=seed, **how).path
    systems = {"base": model, "plain": str(plain), "tuned": tuned.model, "bm25": "bm25"}
    result = foils.evaluate(tuned.collection, systems, split="test", measures=MEASURE, precision="float32")
    means = {each.name: each.means[MEASURE] for each in result.systems}
    (test,) = (each for each in result.comparisons if {each.a, each.b} == {"plain", "tuned"})
    sign = 1 if test.a == "tuned" else -1
    low, high = sorted((sign * test.low, sign * test.high))
    return {
        "collection": Path(given).name, "model": model, "seed": seed, "minutes": minutes, "seconds": seconds,
        "steps": steps, "queries": len(tuned.collection.qrels["test"]["query_id"].unique()),
        "documents": f"{len(tuned.collection.documents):,} of {tuned.documents:,}",
        "means": {**means, "deployed": tuned.means[tuned.system]}, "taken": str(tuned.taken), "deploys": tuned.deploys,
        "difference": sign * test.difference, "low": low, "high": high,
    }  # fmt: skip


def tables_of(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Two tables for each model: a row for each tuning, and for each collection the mean of its seeds."""
    tables: dict[str, list[dict[str, Any]]] = {}
    results = sorted(results, key=lambda each: (each["minutes"], each["collection"], each["seed"]))
    for each in results:
        means = each["means"]
        tables.setdefault(f"nDCG@10 on test, {each['model']}", []).append({
            "collection": each["collection"], "seed": str(each["seed"]), "queries": each["queries"],
            "base": round(means["base"], 4), "BM25": round(means["bm25"], 4), "plain": round(means["plain"], 4),
            "tuned": round(means["tuned"], 4),
            "tuned − plain": f"{each['difference']:+.4f} [{each['low']:+.4f}, {each['high']:+.4f}]",
            "taken on dev": each["taken"], "deployed": each["deploys"], "it has": round(means["deployed"], 4),
            "documents": each["documents"].split(" of ")[0],
            "minutes": f"{each['seconds'] / 60:.1f} of {each['minutes']:g}",
        })  # fmt: skip
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for each in results:
        groups.setdefault((each["model"], each["collection"], each["minutes"]), []).append(each)
    for (model, collection, minutes), seeds in groups.items():
        means = {name: f"{np.mean([each['means'][name] for each in seeds]):.3f}" for name in seeds[0]["means"]}
        surely = sum(each["low"] > 0 for each in seeds)
        tables.setdefault(f"nDCG@10 on test, means of seeds, {model}", []).append({
            "collection": collection, "minutes": f"{minutes:g}", "base": means["base"], "BM25": means["bm25"],
            "plain": means["plain"], "tuned": means["tuned"], "surely above plain": f"{surely} of {len(seeds)}",
            "deployed": " or ".join(dict.fromkeys(each["deploys"] for each in seeds)), "it has": means["deployed"],
        })  # fmt: skip
    return tables


def main() -> None:
    """Measure what is not measured, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    results: list[dict[str, Any]] = load("tune").get("results", [])
    done = {(each["collection"], each["model"], each["seed"], each["minutes"]) for each in results}
    for seed in range(args.seeds):
        for given in args.collections:
            if (Path(given).name, args.model, seed, args.minutes) not in done:
                with tempfile.TemporaryDirectory() as work:
                    results.append(measured(given, args.model, args.minutes, seed, Path(work)))
                save("tune", {"results": results}, tables_of(results))
    save("tune", {"results": results}, tables_of(results))


if __name__ == "__main__":
    main()
