"""Is BM25 with a tuned encoder better than either alone, and does choosing their weight on dev find the best one?

    python benchmarks/run.py fused COLLECTION ... [--model static:all-MiniLM-L6-v2] [--minutes N] [--seeds 1]
                                              [--work FOLDER]

For each collection, model and seed `foils tune` trains, and chooses on dev how BM25's scores and the model's are put
together; the model as it is, where no tuned one is better. On test are measured: the model as it is, tuned, BM25, both
as chosen, and both in every other way (by nine weights, and by reciprocal ranks), the best of which
is what choosing on test would have found.
Paired tests of both against the better of the two; pooled over all queries of all collections for each model.
What is in the result file already is not done again.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import foils
from common import argument_parser, load, save
from foils.data.run import Fusion, fuse_runs
from foils.evaluation import measure_run
from foils.experiments.tasks import BM25
from foils.experiments.tune import WEIGHTS
from foils.experiments.tuned import MEASURE, TUNED
from foils.statistics import bootstrap_interval, paired_test

BOTH = "both"
RANKS = ("rrf", 0.5)
WAYS = [*(("z", weight) for weight in WEIGHTS), RANKS]


def measured(given: str, name: str, minutes: float | None, seed: int, work: Path) -> dict[str, Any]:
    """Tune, and measure what can be deployed on test."""
    start = time.monotonic()
    folder = work / f"{Path(given).name}-{name.replace('/', '-').replace(':', '-')}-{seed}"
    tuned: Any = foils.tune(given, model=name, output=folder, minutes=minutes, seed=seed)
    runs = {run.name: run for run in tuned.evaluation.runs}
    half = TUNED if tuned.better else tuned.evaluation.systems[0].name

    def values(run: Any) -> np.ndarray:
        return np.asarray(measure_run(run, tuned.collection, "test", (MEASURE,)).per_query[MEASURE])

    of = {name: values(run) for name, run in runs.items()}
    hows = [{"method": "rrf"} if way == RANKS else Fusion(*way).how for way in WAYS]
    ways = [float(values(fuse_runs([runs[BM25], runs[half]], **how)).mean()) for how in hows]
    chosen = tuned.plan["retriever"]
    better = max((half, BM25), key=lambda system: float(of[system].mean()))
    both = of[f"{BM25} + {half}"]
    gain, test = both - of[better], paired_test(both, of[better])
    low, high = bootstrap_interval(gain, rng=np.random.default_rng(seed))
    return {
        "collection": Path(given).name, "model": name, "seed": seed, "minutes": minutes,
        "seconds": round(time.monotonic() - start),
        "means": {**{system: float(each.mean()) for system, each in of.items()}, BOTH: float(both.mean())},
        "way": ["z", chosen["weight"]], "deploys": tuned.deploys,
        "best_way": list(WAYS[int(np.argmax(ways))]), "best": max(ways), "better": better,
        "queries": len(gain), "sum": float(gain.sum()), "squares": float((gain**2).sum()),
        "difference": test.difference, "low": low, "high": high, "p": test.p,
    }  # fmt: skip


def tables_of(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """A table for each model: a row for each tuning, and one for all queries together."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for model in dict.fromkeys(each["model"] for each in results):
        cells = [each for each in results if each["model"] == model and each["means"]]
        rows = tables[f"nDCG@10 on test, {model}"] = [
            {
                "collection": each["collection"], "queries": each["queries"], "base": round(each["means"]["base"], 4),
                "BM25": round(each["means"][BM25], 4), "tuned": round(each["means"].get(TUNED, np.nan), 4),
                "both": round(each["means"][BOTH], 4), "weight": each["way"][1], "deployed": each["deploys"],
                "both − the better": f"{each['difference']:+.4f} [{each['low']:+.4f}, {each['high']:+.4f}]",
                "lost": round(each["best"] - each["means"][BOTH], 4),
            }
            for each in cells
        ]  # fmt: skip
        if not cells:
            continue
        count, total, squares = (sum(each[name] for each in cells) for name in ("queries", "sum", "squares"))
        mean = total / count
        bound = 1.96 * np.sqrt((squares / count - mean**2) / count)
        lost = float(np.mean([each["best"] - each["means"][BOTH] for each in cells]))
        gain = f"{mean:+.4f} [{mean - bound:+.4f}, {mean + bound:+.4f}]"
        rows.append({"collection": "all", "queries": count, "both − the better": gain, "lost": round(lost, 4)})
    return tables


def main() -> None:
    """Measure what is not measured, and write a table."""
    parser = argument_parser(__doc__)
    parser.add_argument("collections", nargs="*")
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    results: list[dict[str, Any]] = load("fused").get("results", [])
    done = {(each["collection"], each["model"], each["seed"]) for each in results}
    with tempfile.TemporaryDirectory() as temporary:
        for given in args.collections:
            for seed in range(args.seeds):
                if (Path(given).name, args.model, seed) not in done:
                    results.append(measured(given, args.model, args.minutes, seed, args.work or Path(temporary)))
                    save("fused", {"results": results}, tables_of(results))
    save("fused", {"results": results}, tables_of(results))
