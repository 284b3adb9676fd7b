"""The memory budget: what it says decides how large blocks are, and nothing of what comes out."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from fakes import memory_of
from foils.batching.batches import nearest as nearest_rows
from foils.data import Collection
from foils.encode import ExactIndex, Vectors
from foils.encode.nearest import top_inner_products
from foils.encode.vectors import paired_products
from foils.mining import BM25Retriever
from foils.mining.rules import TextPairs, TriSampler
from foils.runtime import memory
from refusals import refused

SMALL = 2**20


def peak(work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work gives, and the most memory that NumPy and Python held for it."""
    tracemalloc.start()
    try:
        found = work()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def unit(count: int, dimension: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@cache
def many_documents() -> Collection:
    """2,000 documents that all share a word, and 200 queries with that word."""
    documents = {f"d{i}": f"boat word{i % 7} word{i % 11}" for i in range(2_000)}
    queries = {f"q{i}": f"boat word{i % 5}" for i in range(200)}
    return Collection.from_dicts("many", documents, queries, {"train": {"q0": {"d0": 1}}})


@cache
def index() -> BM25Retriever:
    return BM25Retriever(many_documents())


def trisampler() -> Any:
    vectors, rows = Vectors.of(unit(2_000, 256, 3)), np.zeros(4_000, np.int64)
    pairs = TextPairs(many_documents(), rows, np.arange(4_000) % 2_000, np.full(4_000, np.nan))
    return TriSampler(many_documents(), vectors, vectors).log_weights(pairs)


def paired() -> Any:
    vectors, rows = Vectors.of(unit(2_000, 512, 3)), np.arange(4_000) % 2_000
    return paired_products(vectors, rows, vectors, rows[::-1])


def nearest_for_batches() -> Any:
    found, scores = nearest_rows(unit(400, 16, 1), unit(20_000, 16, 2), np.arange(20_000), k=5)
    return found, scores.round(4)


EXACT = {
    "nearest": lambda: top_inner_products(unit(400, 16, 1), Vectors.of(unit(20_000, 16, 2)), 5),
    "exact index": lambda: ExactIndex(Vectors.of(unit(20_000, 16, 2))).search(unit(400, 16, 1), 5),
    "bm25": lambda: index().search(np.arange(200), 5),
    "trisampler": trisampler,
    "paired": paired,
}
ROUNDED = {"batches": nearest_for_batches}  # other blocks are other matrix products, whose last digits may differ


@pytest.mark.parametrize(("name", "work"), {**EXACT, **ROUNDED}.items())
def test_a_smaller_budget_takes_less_and_gives_the_same(name, work):
    work()  # what is made once is made now
    whole, much = peak(work)
    with memory_of(SMALL):
        limited, little = peak(work)
    assert little < 0.6 * much
    for one, other in zip(np.atleast_1d(whole), np.atleast_1d(limited), strict=True):
        same = np.asarray(one) == np.asarray(other)
        assert one.tobytes() == other.tobytes() if name in EXACT else same.mean() > 0.999


def test_a_block_has_as_many_rows_as_the_budget_holds_at_least_one():
    assert memory.budget() == 2**30
    with memory_of(2**21):
        assert memory.budget() == 2**21
        assert memory.rows_at_once(2**20, most=100) == 2
        assert memory.rows_at_once(2**30, most=100) == 1
        assert memory.rows_at_once(1, most=100) == 100
        assert memory.rows_at_once(0, most=100) == 100


def test_sizes():
    sizes = {"1048576": 2**20, "2GiB": 2**31, "500MB": 500_000_000, " 1.5 kib ": 1536}
    assert {text: memory.parsed_size(text) for text in sizes} == sizes
    for text in ("3 g", "", "-1GiB", "GiB"):
        refused("expected a number with a unit, as in 2GiB", memory.parsed_size, text)


def test_the_environment_sets_the_budget(monkeypatch):
    monkeypatch.setenv("FOILS_MEMORY", "2MiB")
    assert memory.budget() == 2**21
    monkeypatch.setenv("FOILS_MEMORY", "2KiB")
    refused("at least 1 MiB", memory.budget)


# Blocks side by side: one thread of BLAS each, and as many as before afterwards


PROGRAM = """
import numpy
from threadpoolctl import threadpool_info
from foils.runtime.parallel import map_blocks, workers

def threads(_):
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

first = list(map_blocks(threads, range(2)))
import scipy.linalg
import sklearn
later = list(map_blocks(threads, range(2)))
print(workers(), threads(0), first, later, sep="\\n")
"""


def test_each_block_has_one_thread_also_of_libraries_that_were_loaded_later():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    workers, after, first, later = map(eval, done.stdout.splitlines())
    assert {workers, *after} <= {1, 2}  # 1 where the machine has one core
    assert workers == max(after)
    assert {number for listed in (*first, *later) for number in listed} == {1}
    assert len(later[0]) >= len(first[0])
