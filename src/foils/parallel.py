"""Threads over blocks of work, where NumPy lets go of the interpreter: one worker a core, BLAS one thread each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_info, threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")


def workers() -> int:
    """Return how many threads BLAS would use: what `OMP_NUM_THREADS` and the like say, or the number of cores."""
    return max((int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def map_blocks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for each item, in order, computed side by side.

    The order of every sum inside `work` is its own, so results do not depend on the number of threads.
    """
    count = workers()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(count) as pool:
        yield from pool.map(work, items)
