"""Speed of batch construction on made-up vectors with cluster structure.

    python benchmarks/run.py batch speed 58880 [--dim 768]     HOBIT's time and peak memory, beside a plain NumPy greedy
    python benchmarks/run.py batch growth 58880 200000 502939
                                                           time and memory against the number of pairs, mapped from disk
    python benchmarks/run.py batch methods 58880               every method: time, hardness, contradictions

Each run adds to benchmarks/results/batch.json. The plain greedy searches all unused documents for each batch with one
matrix product and evaluates every candidate's gain at each step; it is timed on the first batches and scaled up.
`growth` maps float16 vectors from --folder (2 · N · d · 2 bytes: 1.5 GB for 502,939 at d = 768) and counts what the
process allocates beside them; its objective is compared with exact candidates and plain greedy on the first batches.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common import load, save
from foils.batching import (
    METHODS,
    find_conflicts,
    greedy,
    hardness,
    hobit_batches,
    smooth_hardness,
)
from foils.batching.batches import Conflicts, nearest
from foils.batching.plan import measure_epoch

SIZE, SEEDS, CANDIDATES = 128, 8, 128


def fill(sides: tuple[np.ndarray, np.ndarray], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of pairs: a topic per hundred pairs, a subject per pair, noise on both sides; made by blocks."""
    rows, dim = sides[0].shape
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


def made_up(rows: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return fill((np.empty((rows, dim), np.float32), np.empty((rows, dim), np.float32)), seed)


def shared(queries: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, Conflicts]:
    """Let a tenth of the pairs ask for another one's document and a twentieth put another one's query: true pairs.

    A pair that takes over a side brings a noisy copy of that side as its own other side.
    """
    rng, rows = np.random.default_rng(1), len(queries)
    queries, documents = queries.copy(), documents.copy()
    who, what = np.arange(rows), np.arange(rows)
    taking = rng.permutation(rows)[: 3 * rows // 20]
    of_document, of_query = np.split(taking, [rows // 10])
    for taken, code, kept, made in (
        (of_document, what, documents, queries),
        (of_query, who, queries, documents),
    ):
        code[taken] = giving = rng.choice(np.setdiff1d(np.arange(rows), taking), taken.size)
        kept[taken] = kept[giving]
        noisy = kept[giving] + 0.6 * rng.standard_normal((taken.size, kept.shape[1])) / np.sqrt(kept.shape[1])
        made[taken] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    return queries, documents, find_conflicts(who.tolist(), what.tolist())


def plain_epoch(queries: np.ndarray, documents: np.ndarray, batches: int, *, mapped: bool = False) -> list[np.ndarray]:
    """HOBIT's first batches as plain NumPy: full search (of mapped vectors by blocks), full greedy."""
    line = np.random.default_rng(0).permutation(len(queries))
    unused, built = np.ones(len(queries), bool), []
    for _ in range(batches):
        seeds = line[unused[line]][:SEEDS]
        unused[seeds] = False
        if mapped:
            pool = np.unique(nearest(queries[seeds], documents, np.flatnonzero(unused), k=CANDIDATES)[0])
        else:
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


class Watch(threading.Thread):
    """Samples the memory that this process holds beside mapped files; its peak, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.done = self.held(), threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.peak = max(self.peak, self.held())

    @staticmethod
    def held() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def grown(rows: int, dim: int, compare: int, folder: Path) -> dict[str, float]:
    """One epoch of HOBIT over mapped float16 vectors, in this process."""
    hobit_batches(*made_up(600, dim), batch_size=SIZE, rng=np.random.default_rng(0))
    paths = [folder / f"{rows}-{side}.npy" for side in ("queries", "documents")]
    if not all(path.is_file() for path in paths):
        made = [path.with_suffix(".part") for path in paths]
        fill(tuple(np.lib.format.open_memmap(p, "w+", np.float16, (rows, dim)) for p in made))
        for aside, path in zip(made, paths, strict=True):
            aside.rename(path)
    queries, documents = (np.load(path, mmap_mode="r") for path in paths)
    watch = Watch()
    before = watch.held()
    watch.start()
    batches, found = epoch(queries, documents)
    watch.done.set()
    plain = plain_epoch(queries, documents, compare, mapped=True)
    vectors, beside = queries.nbytes + documents.nbytes, watch.peak - before
    return {
        **found, "dtype": "float16", "gib_mapped": vectors / 2**30, "gib_beside": beside / 2**30,
        "peak_over_vectors": 1 + beside / vectors, "batches_compared": compare,
        "objective_difference": lost(queries, documents, plain, batches),
    }  # fmt: skip


def of_methods(rows: int, dim: int) -> dict[str, object]:
    """Every method on pairs of which a tenth take another one's document and a twentieth another one's query."""
    queries, documents, conflicts = shared(*made_up(rows, dim))
    found: dict[str, object] = {"rows": rows, "dim": dim}
    variants = {
        **{name: (name, {}, conflicts) for name in METHODS if name != "hobit-c"},
        "hobit, k-means": ("hobit", {"seed_order": "k-means"}, conflicts),
        "hobit, facility location": ("hobit", {"seed_order": "facility-location"}, conflicts),
        "hobit, alpha 0": ("hobit", {"alpha": 0.0}, conflicts),
        "hobit, conflicts ignored": ("hobit", {}, None),
        "random, conflicts ignored": ("random", {}, None),
    }
    for label, (name, settings, kept_apart) in variants.items():
        start = time.perf_counter()
        batches = METHODS[name].build(
            queries, documents, batch_size=SIZE, rng=np.random.default_rng(0), conflicts=kept_apart, **settings
        )
        seconds = time.perf_counter() - start
        found[label] = {**measure_epoch(queries, documents, batches, conflicts=conflicts), "seconds": seconds}
        print(label, found[label], file=sys.stderr)
    return found


def tables(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What HOBIT takes, and how that grows."""
    runs = sorted((each for each in result.items() if "rows" in each[1]), key=lambda each: each[1]["rows"])
    speed = [
        {"pairs": of["rows"], "time": f"{of['seconds']:.0f} s",
         "against plain": f"{of['speedup']:.0f} × faster",
         "memory, of the vectors'": f"{of['peak_over_vectors']:.2f} ×"}
        for key, of in runs if key.startswith("speed")
    ]  # fmt: skip
    growth = [
        {"pairs": of["rows"], "time, one thread": f"{of['seconds']:.0f} s",
         "vectors on disk": f"{of['gib_mapped']:.2f} GiB",
         "memory beside them": f"{of['gib_beside']:.2f} GiB",
         "objective below exact greedy's": f"{100 * abs(of['objective_difference']):.2f} %"}
        for key, of in runs if key.startswith("growth")
    ]  # fmt: skip
    grown = {"Growth with the number of pairs, vectors mapped from disk": growth} if growth else {}
    return {"Time and memory of one epoch of HOBIT": speed, **grown}


def record(key: str, value: object) -> None:
    result = {**load("batch"), key: value}
    result.pop("tables", None)
    save("batch", result, tables(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "growth", "methods", "one", "one-mapped"])
    parser.add_argument("rows", type=int, nargs="*")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--plain", type=int, default=20, help="batches of the plain greedy to time")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "batch_growth")
    options = parser.parse_args()
    if options.what == "methods":
        record(f"methods-{options.rows[0]}", of_methods(options.rows[0], options.dim))
    elif options.what == "one":  # in a process of its own, for its memory
        print(json.dumps(timed(options.rows[0], options.dim, options.plain)))
    elif options.what == "one-mapped":
        options.folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(grown(options.rows[0], options.dim, options.plain, options.folder)))
    else:
        one = "one" if options.what == "speed" else "one-mapped"
        for rows in options.rows:
            command = [sys.executable, __file__, one, str(rows), "--dim", str(options.dim)]
            command += ["--plain", str(options.plain), "--folder", str(options.folder)]
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            record(f"{options.what}-{rows}-{options.dim}-exact", json.loads(ran.stdout))


if __name__ == "__main__":
    main()
