"""Ray beside one process: what it costs, what two workers gain, and whether the bytes are the same.

    OMP_NUM_THREADS=1 python benchmarks/run.py scale [--texts 512] [--triplets 200000]

One process computes with one thread; Ray has one worker a core of this machine, each with one thread. Texts are random
words of about the length of a passage; all-MiniLM-L6-v2 embeds them in shards of 64. Triplets are made-up vectors,
d 384. Writes benchmarks/results/scale.json; other programs on the machine disturb seconds, and
ratios less; `a_cpu_second` is how much one thread does in a second of its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from common import argument_parser, save, unit
from foils.encode import EncoderSettings, Vectors, VectorStore, load_encoder, vectors
from foils.runtime.parallel import map_shards, on_ray
from foils.scoring.measure import Geometry, information_sums, triplet_similarities
from foils.scoring.triplets import Target

DIMENSION, EACH, SHARD, SHARDS = 384, 40, 64, 200


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--triplets", type=int, default=200_000)
    given = parser.parse_args()
    os.environ |= {"RAY_worker_niceness": "0"}
    vectors.BLOCK = SHARD
    works = {
        "embedding": embedding(given.texts),
        "scoring": scoring(given.triplets),
    }
    counts = {"embedding": given.texts, "scoring": given.triplets}
    found: dict[str, Any] = {"workers": os.cpu_count()}
    digests = {}
    for name, work in works.items():
        wall, processor, digests[name] = timed(work)
        found[name] = {
            "count": counts[name],
            "one_process_seconds": wall,
            "one_process_cpu_seconds": processor,
            "a_cpu_second": counts[name] / processor,
        }
    start = time.perf_counter()
    with on_ray():
        list(map_shards(abs, range(4)))
        found["seconds_to_start_ray"] = time.perf_counter() - start
        seconds, *_ = timed(lambda: bytes(abs(each) % 2 for each in map_shards(abs, range(SHARDS))))
        found["milliseconds_per_empty_shard"] = 1_000 * seconds / SHARDS
        for name, work in works.items():
            wall, _, digest = timed(work)
            alone = found[name]["one_process_seconds"]
            found[name] |= {"ray_seconds": wall, "times_faster": alone / wall, "same_bytes": digest == digests[name]}
        save("scale", found)


def timed(work: Callable[[], bytes]) -> tuple[float, float, str]:
    """Return wall-clock seconds, seconds of this process' processor time, and the digest of the result."""
    start, processor = time.perf_counter(), time.process_time()
    found = work()
    spent = time.perf_counter() - start, time.process_time() - processor
    return *spent, hashlib.blake2b(found, digest_size=16).hexdigest()


def embedding(count: int) -> Callable[[], bytes]:
    rng = np.random.default_rng(0)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "nrst"]
    texts = [" ".join(rng.choice(words, rng.integers(20, 70))) for _ in range(count)]
    encoder = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128))

    def work() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return VectorStore(folder).embed(encoder, texts, "document").take(slice(None)).tobytes()

    return work


def geometry(count: int) -> tuple[Geometry, np.ndarray]:
    rng, records = np.random.default_rng(0), count // EACH
    documents = Vectors.of(unit(rng, 20_000, DIMENSION))
    record = np.repeat(np.arange(records), EACH)
    made = Geometry(
        Vectors.of(unit(rng, records, DIMENSION)),
        documents,
        rng.integers(20_000, size=records),
        record,
        rng.integers(20_000, size=len(record)),
    )
    return made, rng.random(len(record))


def scoring(count: int) -> Callable[[], bytes]:
    made, weights = geometry(count)
    members = 1 + np.arange(len(weights)) % 3
    targets = [Target("a", 1), Target("b", 2), Target("a+b", 3)]

    def work() -> bytes:
        similarities = triplet_similarities(made)
        sums = information_sums(made, weights, members, targets)
        return b"".join(array.tobytes() for array in (*similarities, *sums.values()))

    return work
