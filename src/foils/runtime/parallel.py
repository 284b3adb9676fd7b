"""Work side by side: blocks in threads on this machine, shards in this process or as tasks of Ray on many machines.

Stages cut their work at fixed places and put the results together in a fixed order, and know
nothing of where it is done. So the number of threads, workers and machines changes speed, and not
one bit of a result. A worker of Ray that dies costs the shards that it was at: Ray does them again,
and what a shard wrote before is there, whole. Workers and the program that asks share a file
system: vectors and stored collections go by their path, and are mapped, not sent.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Annotated, Any, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

from foils.runtime.errors import FailureError, FoilsError, InputError, require
from foils.runtime.memory import holding
from foils.runtime.options import Option, Settings

Item = TypeVar("Item")
Result = TypeVar("Result")

TOGETHER = 32  # blocks of a shard: so many that sending them costs little beside the work
LOCAL = "local"
AHEAD = 4  # shards sent for each that can run at once: the others go on while the first in line is done again
SHARED = (
    "FOILS_CACHE", "FOILS_MEMORY", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
    "TOKENIZERS_PARALLELISM",
)  # fmt: skip
_HOST_PORT = re.compile(r"(?P<host>[^/:\s]+):(?P<port>\d+)")


Executor = Callable[..., Iterator[Any]]
"""Does shards elsewhere: takes `(work, items, *, model)` and yields work(item) for each item, in order.

`work` is a function of the item alone, which may be done twice: what it writes, it writes whole.
Items are taken as there is room for them, so that they need not lie in memory at once. `model` says
whether the work runs a neural network, for which an accelerator is to be had.
"""


_executor: ContextVar[Executor | None] = ContextVar("foils_executor", default=None)


def executing(executor: Executor | None) -> AbstractContextManager[None]:
    """Give the shards of everything inside the context to `executor`; None: they are done here."""
    return holding(_executor, executor)


def workers() -> int:
    """Return how many threads BLAS would use: what `OMP_NUM_THREADS` and the like say, or the number of cores."""
    pools = _pools(len(sys.modules)).info()
    return max((int(pool["num_threads"]) for pool in pools if pool["user_api"] == "blas"), default=1)


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Return the thread pools of the libraries that are loaded.

    To find them, with more modules anew, takes longest.
    """
    return ThreadpoolController()


def map_blocks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for each item, in order, computed side by side in threads of this process.

    For work in which NumPy lets go of the interpreter: one thread a core, BLAS one thread each. The
    order of every sum inside `work` is its own, so results do not depend on the number of threads.
    Items are taken, and results wait, only some ahead of what was yielded.
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
        yield from executor(work, chain(ahead, source), model=model)


def spread_blocks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for each item, in order: by `map_blocks` here, or in shards of so many blocks elsewhere."""
    if _executor.get() is None:
        yield from map_blocks(work, items)
        return

    source = iter(items)
    shards = iter(lambda: list(islice(source, TOGETHER)), [])
    yield from chain.from_iterable(map_shards(lambda blocks: list(map_blocks(work, blocks)), shards))


# Ray


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """Machines.

    Attributes:
        ray: Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by
            its head), or auto (the cluster of this machine). The result has the same bytes.
    """

    heading = "Machine"

    ray: Annotated[str | None, Option(metavar="ADDRESS")] = None

    def applied(self) -> AbstractContextManager[Any]:
        """Return the context in which shards are given to Ray."""
        return nullcontext() if self.ray is None else on_ray(self.ray)


@contextmanager
def on_ray(address: str = LOCAL, *, retries: int = 5) -> Iterator[None]:
    """Do the shards of everything inside the context as tasks of Ray.

    A task reserves, and computes with, as many threads as this process would: the product of two
    matrices may depend on it in its last digits. `OMP_NUM_THREADS` chooses how many. A task that
    runs a model also reserves one GPU where the cluster has any.

    Args:
        address: `local`: on the processors of this machine; `auto`, or HOST:PORT of a cluster's
            head: on the cluster, of which this machine is one. Where Ray is connected already, it
            is used as it is.
        retries: how often a shard is done again whose worker or machine died.

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: no cluster can be reached there, or it has no machine large enough for a task.
    """
    ray, threads = require("ray", "ray"), workers()
    connect = not ray.is_initialized()
    if connect:
        _connect(ray, address)
    try:
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if 0 < most < threads:  # without any, the work waits for a machine
            problem = f"a task would take {threads} processors, and no machine of the cluster offers over {most:g}"
            raise InputError(f"{problem}; set OMP_NUM_THREADS={max(1, int(most))}")
        with executing(partial(_as_tasks, ray, threads, retries)):
            yield
    finally:
        if connect:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        quiet |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        host_port = _HOST_PORT.fullmatch(address)
        if host_port:  # Ray itself would try for minutes
            socket.create_connection((host_port["host"], int(host_port["port"])), timeout=10).close()
        ray.init(address=address, **quiet)
    except (OverflowError, RuntimeError, ValueError, OSError) as error:  # also a port above 65535
        reason = str(error).strip().partition("\n")[0]
        advice = "start one with 'ray start --head' and give its HOST:PORT, or local for this machine"
        raise InputError(f"no Ray cluster can be reached at {address} ({reason}); {advice}") from error


def _as_tasks(
    ray: Any, threads: int, retries: int, work: Callable[[Item], Any], items: Iterable[Item], *, model: bool
) -> Iterator[Any]:
    """Yield work(item) for each item, in order; `work` is sent once, items as there is room for them.

    Raises:
        InputError, FailureError: as `work` does.
        FailureError: a shard's worker died more often than it is done again, or Ray itself failed.
    """
    resources, torch = ray.cluster_resources(), sys.modules.get("torch")
    gpus = 1 if model and resources.get("GPU", 0) >= 1 else 0
    task = ray.remote(_do).options(num_cpus=threads, num_gpus=gpus, max_retries=retries)
    # what decides a result, or where things lie, but no keys
    environment = {name: os.environ[name] for name in SHARED if name in os.environ}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    # the work goes by reference, in a list: Ray leaves it so
    call = ([ray.put(work)], environment, threads, torch and torch.get_num_threads())

    def result(reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, FoilsError) else error from None
        except ray.exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            problem = f"a shard failed {retries + 1} times on Ray ({type(error).__name__}: {reason})"
            raise FailureError(f"{problem}; what was finished is kept: see to the machines and run it again") from error

    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(task.remote(*call, item))
            resources = ray.cluster_resources()  # machines may come and go
            slots = int(resources.get("GPU", 0) if gpus else resources.get("CPU", 0) // threads)
            while len(waiting) >= AHEAD * max(1, slots):
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        for reference in waiting:
            ray.cancel(reference)


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Callable[[Any], Any]:
    """The work of a map, once in each worker."""
    import ray

    work: Callable[[Any], Any] = ray.get(reference)
    return work


def _do(work: list[Any], environment: Mapping[str, str], threads: int, torch_threads: int | None, item: Any) -> Any:
    """Do one shard, in a worker."""
    os.environ.update(environment)
    threadpool_limits(threads)
    shard = _fetched(work[0])
    if torch_threads and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(torch_threads)
    return shard(item)
