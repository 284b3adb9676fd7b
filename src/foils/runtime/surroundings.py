"""What holds for all that a door does: where shards of its work are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from foils.runtime.options import Option, Settings


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """Machines.

    Attributes:
        ray: Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), or auto
            (the cluster of this machine). The result has the same bytes.
    """

    heading = "Machine"

    ray: Annotated[str | None, Option(metavar="ADDRESS")] = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give shards to Ray inside the context."""
        if self.ray is None:
            yield
            return
        from foils.runtime.scale import on_ray

        with on_ray(self.ray):
            yield
