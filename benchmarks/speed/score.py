"""Scoring from vectors at hand: against a plain loop, and against the machine's own matrix product.

    python benchmarks/run.py score [--dimension 768] [--records 20000] [--large]

Ratios are taken in one run, median of several pairs, since machines drift. The plain loop does per triplet what the
formulas say (gates, residual, outer product). `--large` scores four million triplets from a memory-mapped file and
reports the memory that this takes beyond the file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from common import argument_parser, load, save, seconds, unit, watched
from foils.data.collection import Rows
from foils.encode.vectors import Vectors
from foils.scoring.gates import Similarities, gated
from foils.scoring.measure import Geometry, information_sums, log_det, triplet_similarities
from foils.scoring.triplets import Target

PER_RECORD = 10
TEMPERATURE = 0.05


def geometry_of(queries: Vectors, documents: Vectors, rng: np.random.Generator) -> Geometry:
    records = len(queries)
    record: Rows = np.repeat(np.arange(records), PER_RECORD)
    positive = rng.integers(len(documents), size=records)
    return Geometry(queries, documents, positive, record, rng.integers(len(documents), size=len(record)))


def score(geometry: Geometry, coverage: np.ndarray) -> float:
    s_p, s_n, s_pn, distance = triplet_similarities(geometry)
    weights = gated(Similarities(s_p[geometry.record], s_n, s_pn, coverage, distance, TEMPERATURE))
    source = Target("source", 1)
    sums = information_sums(geometry, weights, np.ones(len(geometry.record), np.int64), [source])
    return log_det(sums[source.name] / len(geometry.record))


def plain(geometry: Geometry, coverage: np.ndarray, triplets: int) -> float:
    queries, documents = geometry.queries.take(slice(None)), geometry.documents.take(slice(None))
    total = np.zeros((geometry.dimension, geometry.dimension))
    for index in range(triplets):
        record = geometry.record[index]
        u, p, n = queries[record], documents[geometry.positive[record]], documents[geometry.document[index]]
        rho = 1 / (1 + np.exp(-(u @ p - u @ n) / TEMPERATURE))
        eta = 1 / (1 + np.exp(-(p @ n - u @ n) / TEMPERATURE))
        residual = p - n
        norm = np.linalg.norm(residual)
        r = residual / norm if norm > 0 else residual
        total += rho * eta * (1 - coverage[index]) * np.outer(r, r)
    return float(np.linalg.slogdet(np.eye(geometry.dimension) + total / triplets)[1])


def sgemm_rate(size: int = 4096) -> float:
    a = np.ones((size, size), np.float32)
    return 2 * size**3 / seconds(lambda: a @ a)


def speed(dimension: int, records: int, pairs: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    geometry = geometry_of(Vectors.of(unit(rng, records, dimension)), Vectors.of(unit(rng, records, dimension)), rng)
    coverage = rng.random(len(geometry.record))
    few = 200
    ours, loop, gemm = [], [], []
    sgemm_rate()
    for _ in range(pairs):
        gemm.append(sgemm_rate())
        ours.append(seconds(lambda: score(geometry, coverage)) / len(geometry.record))
        loop.append(seconds(lambda: plain(geometry, coverage, few)) / few)
    rate = dimension**2 / np.array(ours)
    head = Geometry(
        geometry.queries, geometry.documents, geometry.positive, geometry.record[:few], geometry.document[:few]
    )
    difference = abs(score(head, coverage[:few]) - plain(geometry, coverage, few))
    return {
        "dimension": dimension,
        "triplets": len(geometry.record),
        "microseconds_per_triplet": float(np.median(ours) * 1e6),
        "times_faster_than_plain_loop": float(np.median(np.array(loop) / np.array(ours))),
        "share_of_sgemm": float(np.median(rate / np.array(gemm))),
        "sgemm_gflops": float(np.median(gemm) / 1e9),
        "difference_to_plain_loop": difference,
        "pairs": pairs,
    }


def large(dimension: int, records: int = 400_000, documents: int = 500_000) -> dict[str, object]:
    """Four million triplets over memory-mapped vectors."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        mapped = []
        for name, count in (("queries", records), ("documents", documents)):
            path = Path(folder) / name
            array = np.memmap(path, np.float32, "w+", shape=(count, dimension))
            for start in range(0, count, 20_000):
                array[start : start + 20_000] = unit(rng, min(20_000, count - start), dimension)
            array.flush()
            mapped.append(Vectors.of(np.memmap(path, np.float32, "r", shape=(count, dimension))))
        geometry = geometry_of(mapped[0], mapped[1], rng)
        coverage = rng.random(len(geometry.record))
        peak: list[int] = []
        with watched(peak):
            spent = seconds(lambda: score(geometry, coverage))
    return {
        "triplets": len(geometry.record),
        "dimension": dimension,
        "seconds": spent,
        "mapped_gib": (records + documents) * dimension * 4 / 2**30,
        "gib_beyond_mapped_vectors": (max(peak) - peak[0]) / 2**30,
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--dimension", type=int, default=768)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    found = load("score")
    if given.large:
        found["large"] = large(given.dimension)
    else:
        found[f"speed_d{given.dimension}"] = speed(given.dimension, given.records, given.pairs)
    found["threads"] = os.environ.get("OMP_NUM_THREADS", "all")
    save("score", found)
