"""Speed of batch construction on made-up vectors with cluster structure.

    python benchmarks/run.py batch 58880 [--dim 768]     HOBIT's time and peak memory, beside a plain NumPy greedy

Each run adds to benchmarks/results/batch.json. The plain greedy searches all unused documents for each batch with one
matrix product and evaluates every candidate's gain at each step; it is timed on the first batches and scaled up.
"""

from __future__ import annotations

import json
import os
import resource
import time
from argparse import SUPPRESS
from collections.abc import Mapping
from typing import Any

import numpy as np

from common import apart, argument_parser, load, save
from foils.batching import greedy, hardness, hobit_batches, smooth_hardness

SIZE, SEEDS, CANDIDATES = 128, 8, 128


def made_up(rows: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of pairs: a topic per hundred pairs, a subject per pair, noise on both sides; made by blocks."""
    sides = np.empty((rows, dim), np.float32), np.empty((rows, dim), np.float32)
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((max(10, rows // 100), dim)).astype(np.float32)
    topic = rng.integers(len(topics), size=rows)
    for start in range(0, rows, 8192):
        part = topic[start : start + 8192]
        subject = topics[part] + rng.standard_normal((len(part), dim), dtype=np.float32)
        for side in sides:
            noisy = subject + 0.6 * rng.standard_normal(subject.shape, dtype=np.float32)
            side[start : start + len(part)] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    return sides


def plain_epoch(queries: np.ndarray, documents: np.ndarray, batches: int) -> list[np.ndarray]:
    """HOBIT's first batches as plain NumPy: full search, full greedy."""
    line = np.random.default_rng(0).permutation(len(queries))
    unused, built = np.ones(len(queries), bool), []
    for _ in range(batches):
        seeds = line[unused[line]][:SEEDS]
        unused[seeds] = False
        scores = queries[seeds] @ documents.T
        scores[:, ~unused] = -np.inf
        pool = np.unique(np.argpartition(-scores, CANDIDATES, axis=1)[:, :CANDIDATES])
        own = hardness(queries[seeds], documents[seeds], documents[seeds])
        picked = greedy(own, hardness(queries[seeds], documents[seeds], documents[pool]), size=SIZE - SEEDS, tau=0.05)
        built.append(np.concatenate([seeds, pool[picked]]))
        unused[pool[picked]] = False
    return built


def objective(queries: np.ndarray, documents: np.ndarray, batches: list[np.ndarray]) -> float:
    return float(
        np.mean([smooth_hardness(hardness(queries[b[:SEEDS]], documents[b[:SEEDS]], documents[b])) for b in batches])
    )


def epoch(queries: np.ndarray, documents: np.ndarray) -> tuple[list[np.ndarray], dict[str, float]]:
    """One epoch of HOBIT in this process, and what it took."""
    start, cpu = time.perf_counter(), time.process_time()
    batches = hobit_batches(queries, documents, batch_size=SIZE, rng=np.random.default_rng(0))
    rows, dim = queries.shape
    return list(batches), {
        "rows": rows, "dim": dim, "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu,
    }  # fmt: skip


def lost(queries: np.ndarray, documents: np.ndarray, plain: list[np.ndarray], ours: list[np.ndarray]) -> float:
    """By what share the objective differs from exact candidates and plain greedy, in batches of the same first seed."""
    of_seed = {int(batch[0]): batch for batch in ours}
    both = [(batch, of_seed[int(batch[0])]) for batch in plain if int(batch[0]) in of_seed]
    exact, found = (objective(queries, documents, list(each)) for each in zip(*both, strict=True))
    return (found - exact) / abs(exact)


def timed(rows: int, dim: int, compare: int) -> dict[str, float]:
    """One epoch of HOBIT in this process; memory is what is needed beyond the state before the vectors were made."""
    hobit_batches(*made_up(600, dim), batch_size=SIZE, rng=np.random.default_rng(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    queries, documents = made_up(rows, dim)
    batches, found = epoch(queries, documents)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    found["peak_over_vectors"] = peak / (queries.nbytes + documents.nbytes)
    if compare:
        start, cpu = time.perf_counter(), time.process_time()
        plain = plain_epoch(queries, documents, compare)
        seconds, cpu = (
            (now - then) / compare * len(batches)
            for now, then in ((time.perf_counter(), start), (time.process_time(), cpu))
        )
        found |= {
            "plain_seconds": seconds, "plain_batches_timed": compare, "plain_cpu_seconds": cpu,
            "speedup": seconds / found["seconds"], "speedup_cpu": cpu / found["cpu_seconds"],
            "objective_difference": lost(queries, documents, plain, batches),
        }  # fmt: skip
    return found


def table_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What HOBIT takes, by number of pairs."""
    runs = sorted((each for each in result.values() if "rows" in each), key=lambda each: each["rows"])
    return [
        {"pairs": of["rows"], "time": f"{of['seconds']:.0f} s",
         "against plain": f"{of['speedup']:.0f} × faster",
         "memory, of the vectors'": f"{of['peak_over_vectors']:.2f} ×"}
        for of in runs
    ]  # fmt: skip


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("rows", type=int, nargs="+")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--plain", type=int, default=20, help="batches of the plain greedy to time")
    parser.add_argument("--one", action="store_true", help=SUPPRESS)  # in a process of its own, for its memory
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(options.rows[0], options.dim, options.plain)))
        return
    for rows in options.rows:
        result = load("batch")
        result.pop("tables", None)
        result[f"speed-{rows}-{options.dim}-exact"] = apart(
            "batch", rows, "--one", "--dim", options.dim, "--plain", options.plain
        )
        save("batch", result, {"Time and memory of one epoch of HOBIT": table_rows(result)})
