"""Several processes of one sentence-transformers model, on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol


class Processes:
    """Processes that compute for a model, started when the first texts come.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
        devices: torch devices, one process each; None: all GPUs, or four processes without one.
    """

    def __init__(self, model: Any, devices: Sequence[str] | None) -> None:
        self._model, self._devices = model, None if devices is None else list(devices)

    @cached_property
    def pool(self) -> Any:
        """What `encode` and `predict` take as their pool."""
        return self._model.start_multi_process_pool(self._devices)

    def stop(self) -> None:
        """Stop those that were started."""
        if "pool" in self.__dict__:
            self._model.stop_multi_process_pool(self.pool)


class Computes(Protocol):
    """What computes with a model, and may do so in several processes."""

    model: Any
    processes: Processes | None


@contextmanager
def in_processes(one: Computes, devices: Sequence[str] | bool) -> Iterator[None]:
    """Let what computes do so in several processes inside the context; True: on all devices, False: in this process."""
    if not devices:
        yield
        return
    one.processes = Processes(one.model, None if devices is True else devices)
    try:
        yield
    finally:
        one.processes.stop()
        one.processes = None
