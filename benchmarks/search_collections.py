"""DIME, Eclipse and RDIME on collections, honest and oracle, tested for significance.

    python benchmarks/search_collections.py COLLECTION... [--reading both] [--max-length 256] [--experiments]
        [--json benchmarks/results/search_collections.json]

For each collection: the encoder as it comes by exact search; then, ranking again within the 1,000 retrieved, RDIME
(nothing to tune) and the published grids of DIME and Eclipse, tuned by cross-validation (honest) and on the queries
themselves (oracle). Differences from the baseline are tested as published: Shapiro–Wilk, one-sided paired t or
Wilcoxon, Holm over the comparisons of a measure, honest ones and oracle ones apart. `--experiments` adds depth of the
feedback, share and random moons; `--reading few` takes a spread of the published grid (2,280 settings).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from foils.data import load_collection
from foils.data.store import cache_folder
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.evaluate import bootstrap_interval, compare_systems, evaluate_runs
from foils.search import (
    DimensionSettings,
    Grid,
    by_depth,
    by_moon,
    by_share,
    compare_filters,
    dime_grid,
    embed_collection,
    grid_values,
    prepare,
    published_grid,
    search_collection,
)

MEASURES = ("nDCG@10", "AP")


def few_settings(grid: Grid) -> Grid:
    """A spread of the published grid, for experiments that evaluate it many times."""
    depths = tuple((plus, minus) for plus, minus in grid.depths if plus in (2, 5, 9, 14) and minus in (2, 4, 6))
    weights = tuple((alpha, beta) for alpha, beta in grid.weights if alpha == 1.0 or beta == 1.0)
    return Grid(grid.method, depths, weights, grid.shares)


def family(named, kinds: tuple[str, ...]):
    """Systems of these kinds against the baseline; Holm's correction within them."""
    chosen = {name: s.per_query for name, s in named.items() if s.kind in kinds or name == "baseline"}
    rng = np.random.default_rng(0)
    return compare_systems(chosen, rng=rng, against=["baseline"], alternative="greater")


def filters(bench, reading: str) -> tuple[dict[str, object], object]:
    grid = few_settings(published_grid()) if reading == "few" else published_grid(reading)
    start = time.perf_counter()
    values = grid_values(bench, grid, measures=MEASURES)
    seconds = time.perf_counter() - start
    grids = {"DIME": dime_grid(), "DIME, k⁺ 1..14": dime_grid(range(1, 15)), "Eclipse": grid}
    systems = compare_filters(
        bench, grids, rng=np.random.default_rng(0), measures=MEASURES, tuned={"PRF Eclipse": values}
    )
    named = {f"{s.name} ({s.kind})" if s.kind != "fixed" else s.name: s for s in systems}
    comparisons = [*family(named, ("fixed", "honest")), *family(named, ("oracle",))]
    rows = []
    for name, system in named.items():
        row: dict[str, object] = {"name": name, "kind": system.kind, "kept": system.kept, "means": system.means}
        row["intervals"] = {m: bootstrap_interval(v, rng=np.random.default_rng(0)) for m, v in system.per_query.items()}
        row["settings"] = {m: [asdict(s) for s in of] for m, of in system.settings.items()}
        row["against_baseline"] = {c.measure: asdict(c) for c in comparisons if c.a == name}
        rows.append(row)
    result = {"grid": {"reading": reading, "settings": grid.size, "seconds": round(seconds, 1)}, "systems": rows}
    return result, values


def experiments(bench, values) -> dict[str, object]:
    curves = {m: {share: s.means[m] for share, s in by_share(values, m).items()} for m in MEASURES}
    few = few_settings(published_grid())
    depths = [
        {"depth": s.name, "kind": s.kind, "means": s.means} for s in by_depth(bench, few, rng=np.random.default_rng(0))
    ]
    fixed = DimensionSettings("eclipse", 5, 5, 1.0, 0.5, 0.8)
    moons = {
        name: {m: [float(np.mean([s.means[m] for s in of])), float(np.std([s.means[m] for s in of]))] for m in MEASURES}
        for name, of in by_moon(bench, fixed, rng=np.random.default_rng(0)).items()
    }
    return {
        "oracle_by_share": curves,
        "by_depth": {"settings": few.size, "rows": depths},
        "moons": {"settings": asdict(fixed), "mean_and_deviation": moons},
    }


def one(path: str, split: str, encoder, store, reading: str, further: bool) -> dict[str, object]:
    collection = load_collection(path)
    embedded = embed_collection(collection, encoder, store, split=split)
    run = search_collection(embedded, DimensionSettings("none"), name="all dimensions").run
    as_it_comes = evaluate_runs(collection, [run], split=split, rng=np.random.default_rng(0)).systems[0].means
    bench = prepare(embedded, k=1000, depth=len(collection.documents) if further else None)
    result, values = filters(bench, reading)
    result = {
        "collection": collection.name,
        "split": split,
        "queries": len(bench.lists),
        "documents": len(collection.documents),
        "encoder": encoder.describe(),
        "as_it_comes": as_it_comes,
        **result,
    }
    if further:
        result["experiments"] = experiments(bench, values)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--reading", default="both")
    parser.add_argument("--experiments", action="store_true")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "search_collections.json")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.model, EncoderSettings(max_length=arguments.max_length))
    store = VectorStore(cache_folder() / "vectors")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.is_file() else {}
    for path in arguments.collections:
        result = one(path, arguments.split, encoder, store, arguments.reading, arguments.experiments)
        done[str(result["collection"])] = result
        arguments.json.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(result["collection"], json.dumps(result["as_it_comes"]), json.dumps(result["grid"]))
        for row in result["systems"]:
            against = row["against_baseline"]
            cells = [
                f"{m} {row['means'][m]:.4f}" + (f" (p_holm {against[m]['p_holm']:.3f})" if m in against else "")
                for m in MEASURES
            ]
            print(f"  {row['name']:32} {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
