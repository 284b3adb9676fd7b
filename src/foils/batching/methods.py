"""The methods of batching by name. All take the same arguments; each has settings of its own, with defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foils.batching.b3 import b3_batches
from foils.batching.batches import Batches
from foils.batching.hobit import hobit_batches
from foils.batching.ngame import ngame_batches
from foils.batching.random import random_batches
from foils.batching.walks import walks_batches
from foils.runtime.errors import InputError, UnknownNameError

COMMON = frozenset({"queries", "documents", "batch_size", "rng", "conflicts"})


@dataclass(frozen=True)
class Method:
    """A way to build the batches of an epoch.

    Attributes:
        build: (queries, documents, *, batch_size, rng, conflicts, **settings) → Batches.
        vectors: whose vectors it looks at: "none", "current" (embedded anew for each epoch), "cached" (left by the
            previous epoch's own forward passes) or "teacher" (fixed before training).
    """

    build: Callable[..., Batches]
    vectors: str

    @property
    def settings(self) -> dict[str, Any]:
        """Its own settings and their defaults."""
        parameters = inspect.signature(self.build).parameters
        return {name: p.default for name, p in parameters.items() if name not in COMMON}


METHODS: dict[str, Method] = {
    "random": Method(random_batches, "none"),
    "hobit": Method(hobit_batches, "current"),
    "hobit-c": Method(hobit_batches, "cached"),
    "ngame": Method(ngame_batches, "current"),
    "walks": Method(walks_batches, "current"),
    "b3": Method(b3_batches, "teacher"),
}


def method(name: str, settings: Mapping[str, Any]) -> Method:
    """Return the method of this name, having checked that it knows these settings.

    Raises:
        UnknownNameError: no such method.
        InputError: settings that the method does not have; all are named.
    """
    if name not in METHODS:
        raise UnknownNameError("batching method", name, METHODS)
    found = METHODS[name]
    strange = sorted(set(settings) - set(found.settings))
    if strange:
        known = ", ".join(found.settings) or "none"
        raise InputError(f"{name} has no setting {', '.join(strange)}; its settings: {known}")
    return found
