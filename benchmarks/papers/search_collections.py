"""DIME, Eclipse and RDIME on collections, honest and oracle, tested for significance.

    python benchmarks/run.py search_collections COLLECTION... [--reading few-relevant] [--max-length 256]
        [--experiments] [--thin] [--queries N] [--answers FILE] [--json benchmarks/results/search_collections.json]

For each collection: the encoder as it comes by exact search; then, ranking again within the 1,000 retrieved, RDIME
(nothing to tune) and the published grids of DIME and Eclipse, tuned by cross-validation (honest) and on the queries
themselves (oracle). Differences from the baseline are tested as published: Shapiro–Wilk, one-sided paired t or
Wilcoxon, Holm over the comparisons of a measure, honest ones and oracle ones apart. `--experiments` adds depth of the
feedback, share and random moons; `--reading spread` takes a spread of the published grid (2,280 settings), `--thin`
one within the reading of the authors' notebook (1,710 settings), `--queries` that many queries, drawn at random, for
collections of thousands. With `--answers` (JSONL of query_id and answer, as search_answers.py writes) the filters whose
sun is an answer come too, and the result is kept apart, over the queries with an answer alone.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from foils.data import load_collection
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.evaluation import evaluate_runs
from foils.runtime.files import cache_folder
from foils.searching import DimensionSettings, dime_grid, embed_collection, published_grid, search_collection
from foils.searching.bench import grid_values, prepare
from foils.searching.compared import compare_moons
from foils.searching.experiments import by_moon, by_share, compare_filters, depth_values, honest_and_oracle, sun_values
from foils.searching.grids import TENTHS, Grid
from foils.searching.systems import deviation
from foils.searching.tune import oracle
from foils.statistics import bootstrap_interval, compare_systems

MEASURES = ("nDCG@10", "AP")
THIN = "thinned few-relevant"


def family(named, kinds: tuple[str, ...]):
    """Systems of these kinds against the baseline; Holm's correction within them."""
    chosen = {name: s.per_query for name, s in named.items() if s.kind in kinds or name == "baseline"}
    rng = np.random.default_rng(0)
    return compare_systems(chosen, rng=rng, against=["baseline"], alternative="greater")


def thinned() -> Grid:
    """Every second k⁺, every sixth k⁻, and α or β at 1, of the grid of the authors' notebook."""
    depths = tuple((plus, minus) for plus in (2, 4, 6) for minus in (2, 8, 14))
    return Grid("eclipse", depths, tuple((a, b) for a in TENTHS for b in TENTHS if 1.0 in (a, b)))


def filters(bench, reading: str) -> tuple[dict[str, object], object]:
    grid = thinned() if reading == THIN else published_grid(reading)
    start = time.perf_counter()
    values = grid_values(bench, grid)
    seconds = time.perf_counter() - start
    grids = sun_values(bench, {"DIME": dime_grid(), "DIME, k⁺ 1..14": dime_grid(range(1, 15))})
    grids |= {"PRF Eclipse": values} | {
        f"{sun} Eclipse": grid_values(bench, grid, answers=answers)
        for sun, answers in bench.suns.items()
        if answers is not None
    }
    systems = compare_filters(bench, grids, rng=np.random.default_rng(0))
    named = {f"{s.name} ({s.kind})" if s.kind != "fixed" else s.name: s for s in systems}
    comparisons = [*family(named, ("fixed", "honest")), *family(named, ("oracle",))]
    rows = []
    for name, system in named.items():
        row: dict[str, object] = {"name": name, "kind": system.kind, "kept": system.kept, "means": system.means}
        row["intervals"] = {m: bootstrap_interval(v, rng=np.random.default_rng(0)) for m, v in system.per_query.items()}
        row["settings"] = {m: [s.to_json() for s in of] for m, of in system.settings.items()}
        row["against_baseline"] = {c.measure: asdict(c) for c in comparisons if c.a == name}
        rows.append(row)
    result = {"grid": {"reading": reading, "settings": grid.size, "seconds": round(seconds, 1)}, "systems": rows}
    return result, values


def experiments(bench, values) -> dict[str, object]:
    curves = {m: {share: s.means[m] for share, s in by_share(values, m).items()} for m in MEASURES}
    few, rng = published_grid("spread"), np.random.default_rng(0)
    bench = replace(bench, embedded=replace(bench.embedded, answers=None))
    systems = honest_and_oracle(depth_values(bench, few, rng=rng), rng=rng)
    depths = [{"depth": s.name.removeprefix("PRF "), "kind": s.kind, "means": s.means} for s in systems]
    fixed = {m: oracle(values, m).settings for m in MEASURES}
    drawn = by_moon(bench, fixed, kind="oracle", rng=np.random.default_rng(0))
    moons = {
        name: {m: [float(np.mean([s.means[m] for s in of])), deviation([s.means[m] for s in of])] for m in MEASURES}
        for name, of in drawn.items()
    }
    tests = compare_moons(drawn, rng=np.random.default_rng(0))
    return {
        "oracle_by_share": curves,
        "by_depth": {"settings": few.size, "rows": depths},
        "moons": {
            "settings": {m: of[0].to_json() for m, of in fixed.items()},
            "mean_and_deviation": moons,
            "against_exact": [
                {**asdict(of.difference), "p_as_good": of.as_good, "p_as_good_holm": of.as_good_holm}
                for of in tests.values()
            ],
        },
    }


def one(
    path: str, split: str, encoder, store, reading: str, further: bool, answers: Path | None, queries: int | None
) -> dict[str, object]:
    collection, texts = load_collection(path), None
    if answers is not None:
        asked = collection.judgements(split)["query_id"].to_pylist()
        said = {row["query_id"]: row["answer"] for row in map(json.loads, answers.read_text("utf-8").splitlines())}
        texts = {query: said.get(query) for query in asked}
    embedded = embed_collection(collection, encoder, store, split=split, answers=texts)
    run = search_collection(embedded, DimensionSettings("none"), name="all dimensions").run
    as_it_comes = evaluate_runs(collection, [run], split=split, rng=np.random.default_rng(0)).systems[0].means
    if queries is not None and queries < len(embedded.queries):
        drawn = np.sort(np.random.default_rng(0).choice(len(embedded.queries), queries, replace=False))
        embedded = replace(embedded, query_rows=embedded.query_rows[drawn], queries=embedded.queries[drawn])
    if embedded.answers is not None:
        having = ~np.isnan(embedded.answers).any(axis=1)
        parts = {name: getattr(embedded, name)[having] for name in ("query_rows", "queries", "answers")}
        embedded = replace(embedded, **parts)
    bench = prepare(embedded, k=1000, longest=len(collection.documents) if further else 0)
    result, values = filters(bench, reading)
    result = {
        "collection": collection.name,
        "split": split,
        "queries": len(bench.lists),
        "queries_of_split": len(collection.judgements(split)["query_id"].unique()),
        "documents": len(collection.documents),
        "encoder": encoder.describe(),
        "as_it_comes": as_it_comes,
        **result,
    }
    if texts is not None:
        result["answers"] = {"queries": len(texts), "answered": sum(text is not None for text in texts.values())}
    if further:
        result["experiments"] = experiments(bench, values)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--max-length", type=int, default=256)
    readings = parser.add_mutually_exclusive_group()
    readings.add_argument("--reading", default="few-relevant")
    readings.add_argument("--thin", action="store_const", const=THIN, dest="reading")
    parser.add_argument("--experiments", action="store_true")
    parser.add_argument("--queries", type=int, help="at most so many queries of each collection, drawn at random")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "search_collections.json")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.model, EncoderSettings(max_length=arguments.max_length))
    store = VectorStore(cache_folder() / "vectors")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.is_file() else {}
    for path in arguments.collections:
        ways = (arguments.reading, arguments.experiments, arguments.answers, arguments.queries)
        result = one(path, arguments.split, encoder, store, *ways)
        done[f"{result['collection']}{', answers' if arguments.answers else ''}"] = result
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
