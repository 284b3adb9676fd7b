"""The methods of batching by name, and what a training chooses of them.

All methods take the same arguments; each has settings of its own, with defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foils.batching.b3 import b3_batches
from foils.batching.batches import Batches
from foils.batching.conflicts import Conflicts
from foils.batching.hobit import hobit_batches
from foils.batching.hobit_c import EmbeddingCache, Vectors
from foils.batching.ngame import ngame_batches
from foils.batching.random import random_batches
from foils.batching.walks import walks_batches
from foils.runtime.errors import InputError, UnknownNameError

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
        return {name: p.default for name, p in parameters.items() if name not in COMMON}


METHODS: dict[str, BatchingMethod] = {
    "random": BatchingMethod(random_batches, "none"),
    "hobit": BatchingMethod(hobit_batches, "current"),
    "hobit-c": BatchingMethod(hobit_batches, "cached"),
    "ngame": BatchingMethod(ngame_batches, "current"),
    "walks": BatchingMethod(walks_batches, "current"),
    "b3": BatchingMethod(b3_batches, "teacher"),
}


def method_named(name: str, settings: Mapping[str, Any]) -> BatchingMethod:
    """Return the method of this name, having checked that it knows these settings.

    Raises:
        UnknownNameError: no such method.
        InputError: settings that the method does not have; all are named.
    """
    if name not in METHODS:
        raise UnknownNameError("batching method", name, METHODS)
    method = METHODS[name]
    if unknown := sorted(set(settings) - set(method.settings)):
        known = ", ".join(method.settings) or "none"
        raise InputError(f"{name} has no setting {', '.join(unknown)}; its settings: {known}")
    return method


class BatchChoice:
    """Which batches a training builds, and from which vectors.

    Args:
        name: one of `METHODS`.
        settings: the method's own settings.
        warmup: epochs of random batches before the method begins (HOBIT A.9).
        refresh: embed anew every so many epochs; in between, batches are new but the vectors old.
        anneal: epochs after the warm-up over which HOBIT's α rises linearly from 0 to its value; 0: constant.
        avoid_known: keep pairs apart that are known positives of each other, judged by the texts of the data set.
        positives: further (query text, document text) pairs known to be relevant.
        known: conflicts among the rows of the one training set, as `foils.batching.conflicts.known_conflicts` finds
            them in a collection; None: found by the texts of the data set and `positives`.
        cache: where HOBIT-C finds the vectors; a `CachingLoss` with the same cache fills it.
        teacher: (queries, documents) vectors (N, d) for B3; None: the model's own before training.

    Attributes:
        history: of each epoch that was built: its number, and the seconds of embedding and of building.

    Raises:
        InputError: an unknown method or setting, counts out of range, a cache without HOBIT-C or the reverse, a
            teacher without B3, positives with nothing to be kept apart, `known` beside what it replaces.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        warmup: int = 0,
        refresh: int = 1,
        anneal: int = 0,
        avoid_known: bool = True,
        positives: Sequence[tuple[str, str]] = (),
        known: Conflicts | None = None,
        cache: EmbeddingCache | None = None,
        teacher: tuple[Vectors, Vectors] | None = None,
    ) -> None:
        self.name, self.settings = name, dict(settings or {})
        self.method = method_named(name, self.settings)
        if warmup < 0 or refresh < 1 or anneal < 0:
            raise InputError(
                f"warmup and anneal are at least 0 epochs, refresh at least 1; got {warmup}, {anneal}, {refresh}"
            )
        if anneal and "alpha" not in self.method.settings:
            raise InputError(f"anneal raises the setting alpha, which {name} does not have")
        if (cache is not None) != (self.method.vectors == "cached"):
            raise InputError(f"hobit-c, and only it, works from a cache; got {name} and cache={cache!r}")
        if positives and not avoid_known:
            raise InputError(
                "positives say what to keep apart, and avoid_known=False keeps nothing apart; leave one out"
            )
        if known is not None and (positives or not avoid_known):
            raise InputError("known says all that is to be kept apart; leave out positives and avoid_known=False")
        if teacher is not None and self.method.vectors != "teacher":
            raise InputError(f"b3, and only it, works from a teacher's vectors; got them for {name}")
        self.warmup, self.refresh, self.anneal = warmup, refresh, anneal
        self.avoid_known, self.positives, self.known = avoid_known, tuple(positives), known
        self.cache, self.teacher = cache, teacher
        self.history: list[dict[str, float]] = []

    def settings_at(self, epoch: int) -> dict[str, Any]:
        """Return the method's settings in this epoch (α annealed)."""
        if not self.anneal:
            return self.settings
        alpha = self.settings.get("alpha", self.method.settings["alpha"])
        return {**self.settings, "alpha": alpha * min(1.0, max(0, epoch - self.warmup) / self.anneal)}
