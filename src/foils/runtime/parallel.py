"""Work side by side: blocks in threads on this machine, shards wherever the present executor does them.

Stages cut their work at fixed places and put the results together in a fixed order, and know nothing of where it is
done. So the number of threads, workers and machines changes speed, and not one bit of a result.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from itertools import chain, islice
from typing import Protocol, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

TOGETHER = 32  # blocks of a shard: so many that sending them costs little beside the work


class Executor(Protocol):
    """Does shards of work elsewhere."""

    def map(self, work: Callable[[Item], Result], items: Iterable[Item], *, model: bool = False) -> Iterator[Result]:
        """Yield work(item) for each item, in order.

        Args:
            work: a function of the item alone, which may be done twice: what it writes, it writes whole.
            items: taken as there is room for them, so that they need not lie in memory at once.
            model: whether the work runs a neural network, for which an accelerator is to be had.
        """
        ...


_executor: ContextVar[Executor | None] = ContextVar("foils_executor", default=None)


@contextmanager
def executing(executor: Executor | None) -> Iterator[None]:
    """Give the shards of everything inside the context to `executor`; None: they are done here."""
    token = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(token)


def workers() -> int:
    """Return how many threads BLAS would use: what `OMP_NUM_THREADS` and the like say, or the number of cores."""
    pools = _pools(len(sys.modules)).info()
    return max((int(pool["num_threads"]) for pool in pools if pool["user_api"] == "blas"), default=1)


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of the libraries that are loaded; to find them, with more modules anew, takes longest."""
    return ThreadpoolController()


def map_blocks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for each item, in order, computed side by side in threads of this process.

    For work in which NumPy lets go of the interpreter: one thread a core, BLAS one thread each. The order of every sum
    inside `work` is its own, so results do not depend on the number of threads. Items are taken, and results wait, only
    some ahead of what was yielded. The memory budget of the caller holds in the threads.
    """
    count = workers()
    waiting: deque[Future[Result]] = deque()
    with _pools(len(sys.modules)).limit(limits=1, user_api="blas"), ThreadPoolExecutor(count) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(copy_context().run, work, item))
                if len(waiting) > 2 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def map_shards(work: Callable[[Item], Result], items: Iterable[Item], *, model: bool = False) -> Iterator[Result]:
    """Yield work(item) for each item, in order: here one after the other, or wherever the executor does them.

    A single item without a model is done here even so: what the work itself cuts in shards is spread then.

    Args:
        work: a function of the item alone that changes nothing here; it may be sent to other machines.
        items: shards, each worth sending.
        model: whether the work runs a neural network.
    """
    executor, source = _executor.get(), iter(items)
    ahead = [] if executor is None else list(islice(source, 2))
    if executor is None or (len(ahead) < 2 and not model):
        yield from map(work, chain(ahead, source))
    else:
        yield from executor.map(work, chain(ahead, source), model=model)


def spread_blocks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for each item, in order: by `map_blocks` here, or in shards of so many blocks elsewhere."""
    if _executor.get() is None:
        yield from map_blocks(work, items)
        return

    def shard(blocks: list[Item]) -> list[Result]:
        return list(map_blocks(work, blocks))

    source = iter(items)
    yield from chain.from_iterable(map_shards(shard, iter(lambda: list(islice(source, TOGETHER)), [])))
