"""What holds for all that a door does: how much memory blocks of work may take, and where shards of it are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated

from foils.runtime import memory as budget
from foils.runtime.options import Option, Settings


@dataclass(frozen=True)
class MemorySettings(Settings):
    """Memory.

    Attributes:
        memory: Memory for a block of work, beside the data, as 500MB or 4GiB. It does not change results. Default:
            1GiB.
    """

    heading = "Machine"

    memory: Annotated[str | None, Option(metavar="SIZE")] = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let blocks of everything inside the context take at most so much; None: what the context around it allows.

        Raises:
            InputError: the size is not of this form, or less than 1 MiB.
        """
        with budget.limited(budget.budget() if self.memory is None else budget.parsed_size(self.memory)):
            yield


@dataclass(frozen=True)
class ScaleSettings(MemorySettings):
    """Memory and machines.

    Attributes:
        ray: Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), or auto
            (the cluster of this machine). The result has the same bytes.
    """

    ray: Annotated[str | None, Option(metavar="ADDRESS")] = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Bound the memory of blocks, and give shards to Ray, inside the context."""
        with ExitStack() as around:
            around.enter_context(super().applied())
            if self.ray is not None:
                from foils.runtime.scale import on_ray

                around.enter_context(on_ray(self.ray))
            yield
