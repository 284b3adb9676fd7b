"""How fast is Eclipse's grid in one pass, against its settings one by one?

    python benchmarks/run.py search [--queries 200] [--sample 24]

The published grid (5 × 13 × 10 × 10 × 10 settings) for 200 queries × 1,000 documents × d 384 in one pass, against the
same settings one by one: in plain NumPy (mean, sort, mask, product, sort, measure), and with a run measured by
ir_measures. One by one is timed on a sample of settings spread over the grid; its values must be the grid's.
"""

from __future__ import annotations

import os
import time

import ir_measures
import numpy as np

from common import argument_parser, flat, save
from foils.encode import ExactIndex, Vectors
from foils.searching import Judged, evaluate_grid, published_grid
from foils.searching.choosing import UNREACHED, Relevant, measure_ranks
from foils.searching.dimensions import dimension_order, kept_count

MEASURES = ("nDCG@10", "AP")
D, K = 384, 1000


def topical(rng: np.random.Generator, n: int, topics: np.ndarray, noise: float) -> np.ndarray:
    x = topics[rng.integers(len(topics), size=n)] + noise * rng.normal(size=(n, D)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def one_setting(queries, gathered, lists, relevant, setting):
    """All queries under one setting, in plain NumPy: (queries, measures), and the rankings."""
    values, rankings = [], []
    for query, documents, found, of in zip(queries, gathered, lists, relevant, strict=True):
        s, m = documents[: setting.k_plus].mean(axis=0), documents[-setting.k_minus :].mean(axis=0)
        order = dimension_order(query * (setting.alpha * s - setting.beta * m))
        masked = np.zeros_like(query)
        kept = order[: kept_count(D, setting.share)]
        masked[kept] = query[kept]
        ranking = found[np.argsort(-(documents @ masked), kind="stable")]
        place = {position: rank for rank, position in enumerate(ranking.tolist())}
        ranks = np.array([place.get(position, UNREACHED) for position in of.rows.tolist()])
        values.append([float(measure_ranks(measure, ranks, of)) for measure in MEASURES])
        rankings.append(ranking)
    return np.array(values), rankings


def grid_benchmark(queries_count: int, sample: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(50, D)).astype(np.float32)
    documents, queries = topical(rng, 20_000, topics, 1.0), topical(rng, queries_count, topics, 1.0)
    vectors = Vectors.of(documents)
    lists = list(ExactIndex(vectors).search(queries, K)[0])
    relevant = [Relevant(rng.choice(found[:300], 5, replace=False), np.array([1, 1, 2, 1, 3])) for found in lists]
    gathered = [documents[found] for found in lists]
    grid = published_grid("few-irrelevant")
    evaluate_grid(Judged(queries[:1], vectors, lists[:1], relevant[:1]), grid)  # compiles
    start = time.perf_counter()
    found = evaluate_grid(Judged(queries, vectors, lists, relevant, measures=MEASURES), grid)
    batched = time.perf_counter() - start
    columns = np.linspace(0, len(found.settings) - 1, sample).astype(int)
    plain = measured = 0.0
    differences = []
    qrels = {
        str(row): {str(p): int(g) for p, g in zip(of.rows, of.grades, strict=True)} for row, of in enumerate(relevant)
    }
    evaluator = ir_measures.evaluator([ir_measures.parse_measure(measure) for measure in MEASURES], qrels)
    for at, column in enumerate(columns):
        start = time.perf_counter()
        values, rankings = one_setting(queries, gathered, lists, relevant, found.settings[column])
        plain += time.perf_counter() - start
        grid_row = np.stack([found.values[measure][:, column] for measure in MEASURES], axis=1)
        differences.append(np.abs(values - grid_row).mean())
        if at < 3:
            start = time.perf_counter()
            run = {
                str(row): {str(p): -float(rank) for rank, p in enumerate(ranking.tolist())}
                for row, ranking in enumerate(rankings)
            }
            list(evaluator.iter_calc(run))
            measured += time.perf_counter() - start
    each = plain / sample
    size = len(grid.depths) * len(grid.weights) * len(grid.shares)
    with_runs = each + measured / min(3, sample)
    return {
        "settings": size,
        "queries": queries_count,
        "documents": K,
        "dimension": D,
        "grid_seconds": round(batched, 1),
        "seconds_a_setting_one_by_one": round(each, 4),
        "seconds_a_setting_with_ir_measures": round(with_runs, 4),
        "ratio_one_by_one": round(each * size / batched, 1),
        "ratio_one_by_one_with_ir_measures": round(with_runs * size / batched, 1),
        "mean_absolute_difference_of_values": float(np.mean(differences)),
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--sample", type=int, default=24)
    arguments = parser.parse_args()
    found = grid_benchmark(arguments.queries, arguments.sample)
    save("search", {"grid": found, "threads": os.environ.get("OMP_NUM_THREADS")}, {"": flat(found)})
