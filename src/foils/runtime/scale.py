"""The same stages on more than one machine: an executor whose shards are tasks of Ray.

Stages cut their work at fixed places and merge in a fixed order (`foils.runtime.parallel`), so a result has the same
bytes on one process and on a hundred workers. A worker that dies costs the shards that it was at: Ray does them
again, and what a shard wrote before is there, whole. Workers and the program that asks share a file system: vectors
and stored collections go by their path, and are mapped, not sent.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from threadpoolctl import threadpool_limits

from foils.runtime import memory
from foils.runtime.errors import FailureError, FoilsError, InputError, require
from foils.runtime.options import Option, Settings
from foils.runtime.parallel import executing, workers

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL = "local"
RETRIES = 5
AHEAD = 4  # shards sent for each that can run at once: the others go on while the first in line is done again
SHARED = ("FOILS_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM")
_HOST_PORT = re.compile(r"(?P<host>[^/:\s]+):(?P<port>\d+)")


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """Machines.

    Attributes:
        ray: Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), or auto
            (the cluster of this machine). The result has the same bytes.
    """

    heading = "Machine"

    ray: Annotated[str | None, Option(metavar="ADDRESS", program_wide=True)] = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give shards to Ray inside the context."""
        if self.ray is None:
            yield
            return
        with on_ray(self.ray):
            yield


class RayExecutor:
    """Does shards as Ray tasks; Ray is connected (`on_ray`, or the caller's own `ray.init`).

    A task reserves, and computes with, as many threads as this process would: the product of two matrices may depend
    on it in its last digits. `OMP_NUM_THREADS` chooses how many. A task that runs a model also reserves one GPU where
    the cluster has any.

    Args:
        retries: how often a shard is done again whose worker or machine died.

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: no machine of the cluster has so many processors.
    """

    def __init__(self, *, retries: int = RETRIES) -> None:
        self._ray = require("ray", "ray")
        self._retries, self._threads = retries, workers()
        most = max((node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]), default=0)
        if most < self._threads:
            raise InputError(
                f"a task would take {self._threads} processors, and no machine of the cluster offers more than "
                f"{most:g}; set OMP_NUM_THREADS={max(1, int(most))}"
            )

    def map(self, work: Callable[[Item], Result], items: Iterable[Item], *, model: bool = False) -> Iterator[Result]:
        """Yield work(item) for each item, in order; `work` is sent once, items as there is room for them.

        Raises:
            InputError, FailureError: as `work` does.
            FailureError: a shard's worker died more often than it is done again, or Ray itself failed.
        """
        ray = self._ray
        there = ray.cluster_resources()
        gpus = 1 if model and there.get("GPU", 0) >= 1 else 0
        slots = int(there.get("GPU", 0) if gpus else there.get("CPU", 0) // self._threads)
        task = ray.remote(_do).options(num_cpus=self._threads, num_gpus=gpus, max_retries=self._retries)
        call = _Call(
            uuid4().hex, [ray.put(work)], _environment(self._threads), self._threads, _torch_threads(), memory.budget()
        )
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(task.remote(call, item))
                if len(waiting) >= AHEAD * max(1, slots):
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for reference in waiting:
                ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        try:
            part = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise FailureError(
                f"a shard failed {self._retries + 1} times on Ray ({type(error).__name__}: {reason}); what was "
                "finished is kept: see to the machines and run it again"
            ) from error
        if isinstance(part, _Refusal):
            raise part.kind(part.message)
        return part


@contextmanager
def on_ray(address: str = LOCAL) -> Iterator[RayExecutor]:
    """Do the shards of everything inside the context on Ray.

    Args:
        address: `local`: on the processors of this machine; `auto`, or HOST:PORT of a cluster's head: on the cluster,
            of which this machine is one. Where Ray is connected already, it is used as it is.

    Raises:
        MissingExtraError: Ray is not installed.
        InputError: no cluster can be reached there, or it has no machine large enough for a task.
    """
    ray = require("ray", "ray")
    connect = not ray.is_initialized()
    if connect:
        _connect(ray, address)
    try:
        executor = RayExecutor()
        with executing(executor):
            yield executor
    finally:
        if connect:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        ray.init(address=LOCAL, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        return
    try:
        if host_port := _HOST_PORT.fullmatch(address):  # Ray itself would try for minutes
            socket.create_connection((host_port["host"], int(host_port["port"])), timeout=10).close()
        ray.init(address=address, **quiet)
    except (OverflowError, RuntimeError, ValueError, OSError) as error:  # also a port above 65535
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"no Ray cluster can be reached at {address} ({reason}); start one with 'ray start --head' and give its "
            "HOST:PORT, or local for this machine"
        ) from error


@dataclass(frozen=True)
class _Call:
    """What all tasks of one map have in common; the work by reference, so that each worker fetches it once."""

    key: str
    work: list[Any]
    environment: Mapping[str, str]
    threads: int
    torch_threads: int | None
    memory: int


@dataclass(frozen=True)
class _Refusal:
    """An error that foils raised on purpose, as a value: it is the work's result, not a fault of the worker."""

    kind: type[FoilsError]
    message: str


_fetched: dict[str, Callable[[Any], Any]] = {}


def _do(call: _Call, item: Any) -> Any:
    """Do one shard, in a worker."""
    import ray

    os.environ.update(call.environment)
    threadpool_limits(call.threads)
    try:
        if call.key not in _fetched:
            _fetched.clear()
            _fetched[call.key] = ray.get(call.work[0])
        if call.torch_threads and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(call.torch_threads)
        with memory.limited(call.memory):
            return _fetched[call.key](item)
    except FoilsError as error:
        return _Refusal(InputError if isinstance(error, InputError) else FailureError, str(error))


def _environment(threads: int) -> dict[str, str]:
    """What of this process' environment decides a result, or where things lie; no keys."""
    shared = {name: os.environ[name] for name in SHARED if name in os.environ}
    return shared | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())
