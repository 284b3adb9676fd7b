"""What a large collection takes: shards, disk, memory and hours, from the rates that other benchmarks measured.

    python benchmarks/plan.py [--cores 64] [--gpus 8] [--gpu-texts 8000]

Rates: embedding and composing from results/scale.json (one thread), mining from results/memory.json and rating from
results/rate.json (two threads), scoring from results/score.json (two threads; three passes over the vectors). Each is
divided by its threads and taken to grow with the cores: shards do not wait for one another. `--gpu-texts` is an
assumption, texts of 128 tokens a second on one GPU: measure yours. Prints the tables of docs/scale.md and writes
benchmarks/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from foils.data.store import write_json
from foils.encode.vectors import shard_size

HERE = Path(__file__).parent / "results"
DIMENSION, EFFICIENCY, PASSES = 384, 0.7, 3
QUERY_BLOCK = 4_096


@dataclass(frozen=True)
class Job:
    """A collection, and what is asked of it: negatives of each query from so many sources."""

    name: str
    documents: int
    queries: int
    sources: int = 4
    negatives: int = 30
    rated: int = 20  # candidates of each query that are compared


JOBS = (
    Job("MS MARCO passages", 8_841_823, 502_939),
    Job("100 M documents", 100_000_000, 500_000),
)


@dataclass(frozen=True)
class Rates:
    """Of one core: texts, floating-point operations, triplets, queries and records a second."""

    texts: float
    flops: float
    triplets: float
    rated: float
    composed: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=64, help="of all machines together")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--gpu-texts", type=float, default=8_000, help="an assumption: texts a second on one GPU")
    given = parser.parse_args()
    rates = measured()
    plans = [plan(job, rates, given.cores, given.gpus, given.gpu_texts) for job in JOBS]
    write_json(HERE / "plan.json", {"rates_of_one_core": asdict(rates), "settings": vars(given), "plans": plans})
    for key in plans[0]:
        print("|", key.replace("_", " "), "|", " | ".join(shown(each[key]) for each in plans), "|")


def measured() -> Rates:
    scale, memory, rate, score = (json.loads((HERE / f"{name}.json").read_text()) for name in
                                  ("scale", "memory", "rate", "score"))  # fmt: skip
    flops = 2 * memory["documents"] * memory["queries"] * DIMENSION / memory["seconds"]
    seconds = rate["thurstone_with_errors_seconds_for_all"]
    return Rates(
        texts=scale["embedding"]["a_cpu_second"],
        flops=flops / 2,
        triplets=1e6 / score["speed_d384"]["microseconds_per_triplet"] / 2,
        rated=rate["queries"] / seconds / int(rate["threads"]),
        composed=scale["composing"]["a_cpu_second"],
    )


def plan(job: Job, rates: Rates, cores: int, gpus: int, gpu_texts: float) -> dict[str, float | str]:
    texts, triplets = job.documents + job.queries, job.queries * job.sources * job.negatives
    size = shard_size(job.documents)

    def hours(amount: float, rate: float, workers: float = cores * EFFICIENCY) -> float:
        return amount / rate / workers / 3_600

    return {
        "job": job.name,
        "texts": float(texts),
        "shards_of_vectors": float(-(-job.documents // size) + -(-job.queries // shard_size(job.queries))),
        "texts_of_a_shard": float(size),
        "vectors_on_disk_GB_float16": texts * (16 + 2 * DIMENSION) / 1e9,
        "vectors_on_disk_GB_float32": texts * (16 + 4 * DIMENSION) / 1e9,
        "memory_of_the_driver_GB": texts * (16 + 8 + 8) / 1e9 + triplets * 150 / 1e9,
        "tasks_of_mining": float(-(-job.queries // QUERY_BLOCK)),
        "core_hours_of_one_mining_task": hours(2 * QUERY_BLOCK * job.documents * DIMENSION, rates.flops, 1),
        "hours_embedding_on_the_cores": hours(texts, rates.texts),
        "hours_embedding_on_the_GPUs": hours(texts, gpu_texts, gpus),
        "hours_mining_dense": hours(2 * job.queries * job.documents * DIMENSION, rates.flops),
        "hours_scoring": hours(PASSES * triplets, rates.triplets),
        "hours_composing": hours(triplets, rates.composed),
        "hours_fitting_ratings": hours(job.queries * job.rated / 100, rates.rated),
    }


def shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


if __name__ == "__main__":
    main()
