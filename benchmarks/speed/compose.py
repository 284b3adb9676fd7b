"""Composition: against greedy with a determinant per candidate, and at size.

    python benchmarks/run.py compose [--records 100000] [--candidates 40] [--dimension 384]

Made-up unit vectors. The plain greedy, which computes log det(Id + M/λ) for every candidate at every step, is timed on
two records. Writes benchmarks/results/compose.json.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from common import save, unit
from foils.encode import Vectors
from foils.scoring import compose
from foils.scoring.measure import Geometry

COUNT, LAMBDA = 10, 0.1


def plain(geometry: Geometry, weights: np.ndarray, record: int) -> list[int]:
    documents = geometry.documents.take(slice(None))
    rows = np.flatnonzero(geometry.record == record)
    residuals = documents[geometry.positive[record]] - documents[geometry.document[rows]]
    residuals = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
    matrix, chosen = np.eye(geometry.dimension), []
    for _ in range(COUNT):
        values = [
            -np.inf
            if row in chosen
            else np.linalg.slogdet(matrix + weights[rows[row]] * np.outer(r, r) / (COUNT * LAMBDA))[1]
            for row, r in enumerate(residuals)
        ]
        best = int(np.argmax(values))
        chosen.append(best)
        matrix += weights[rows[best]] * np.outer(residuals[best], residuals[best]) / (COUNT * LAMBDA)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--dimension", type=int, default=384)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    documents = Vectors.of(unit(rng, 50_000, given.dimension))
    record = np.repeat(np.arange(given.records), given.candidates)
    geometry = Geometry(
        Vectors.of(np.zeros((given.records, given.dimension), np.float32)),
        documents,
        rng.integers(50_000, size=given.records),
        record,
        rng.integers(50_000, size=len(record)),
    )
    weights = rng.random(len(record))
    start = time.perf_counter()
    found = compose(geometry, weights, count=COUNT, regularization=LAMBDA)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    choices = [plain(geometry, weights, index) for index in range(2)]
    theirs = (time.perf_counter() - start) / 2
    for index, chosen in enumerate(choices):
        order = found.order[geometry.record == index]
        if [int(np.flatnonzero(order == step)[0]) for step in range(COUNT)] != chosen:
            raise SystemExit("the two greedies differ")
    result = {
        "records": given.records,
        "candidates": given.candidates,
        "dimension": given.dimension,
        "seconds": ours,
        "times_faster_than_plain_greedy": theirs / (ours / given.records),
    }
    save("compose", result)


if __name__ == "__main__":
    main()
