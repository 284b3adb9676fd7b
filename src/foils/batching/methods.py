"""The methods of batching by name.

All methods take the same arguments; each has settings of its own, with defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foils.batching.batches import Batches, random_batches
from foils.batching.hobit import hobit_batches, mutual_batches
from foils.batching.rivals import b3_batches, batchsampler_batches, ngame_batches
from foils.runtime.errors import check_names

COMMON = frozenset({"queries", "documents", "batch_size", "rng", "conflicts"})


@dataclass(frozen=True)
class BatchingMethod:
    """A way to build the batches of an epoch.

    Attributes:
        build: `(queries, documents, *, batch_size, rng, conflicts, **settings)` → Batches.
        vectors: whose vectors it looks at: "none", "current" (embedded anew for each epoch), "cached" (left by the
            previous epoch's own forward passes) or "teacher" (fixed before training).
    """

    build: Callable[..., Batches]
    vectors: str

    @property
    def settings(self) -> dict[str, Any]:
        """Its own settings and their defaults."""
        parameters = inspect.signature(self.build).parameters
        return {name: p.default for name, p in parameters.items() if name not in COMMON and p.kind != p.VAR_KEYWORD}


METHODS: dict[str, BatchingMethod] = {
    "random": BatchingMethod(random_batches, "none"),
    "hobit": BatchingMethod(hobit_batches, "current"),
    "hobit-c": BatchingMethod(hobit_batches, "cached"),
    "mutual": BatchingMethod(mutual_batches, "current"),
    "ngame": BatchingMethod(ngame_batches, "current"),
    "walks": BatchingMethod(batchsampler_batches, "current"),
    "b3": BatchingMethod(b3_batches, "teacher"),
}


SCHEDULE = {"warmup": 0, "refresh": 1, "anneal": 0}
"""Settings that every method has beside its own, in epochs, as `BatchPlanner` takes them."""
TEACHER = "teacher"
"""A setting of B3 in a training alone: the name of its teacher."""


def method_named(name: str, settings: Mapping[str, Any]) -> BatchingMethod:
    """Return the method of this name, having checked that it knows these settings.

    Raises:
        UnknownNameError: no such method, or no such setting of it.
    """
    check_names("batching method", [name], METHODS)
    method = METHODS[name]
    more = [TEACHER] if method.vectors == "teacher" else []
    check_names(f"setting of {name}", settings, {**method.settings, **SCHEDULE, **dict.fromkeys(more)})
    return method
