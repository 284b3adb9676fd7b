"""The methods of batching by name, and what a training chooses of them.

All methods take the same arguments; each has settings of its own, with defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.batching.batches import Batches, Rows
from foils.batching.conflicts import Conflicts, random_batches, random_order
from foils.batching.hobit import hobit_batches, mutual_batches
from foils.batching.multi_dataset import Mixture, mixed_batches
from foils.batching.rivals import b3_batches, batchsampler_batches, joined, members, ngame_batches, rank_communities
from foils.batching.vectors import Vectors
from foils.runtime.errors import InputError, check_names

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
    "mutual": BatchingMethod(mutual_batches, "current"),
    "ngame": BatchingMethod(ngame_batches, "current"),
    "walks": BatchingMethod(batchsampler_batches, "current"),
    "b3": BatchingMethod(b3_batches, "teacher"),
}


SCHEDULE = {"warmup": 0, "refresh": 1, "anneal": 0}
"""Settings that every method has beside its own, in epochs, as `BatchChoice` takes them."""
TEACHER = "teacher"
"""A setting of B3 in a training alone: the name of its teacher."""


def method_named(name: str, settings: Mapping[str, Any]) -> BatchingMethod:
    """Return the method of this name, having checked that it knows these settings.

    Raises:
        UnknownNameError: no such method, or no such setting of it.
    """
    check_names("batching method", [name], METHODS)
    method = METHODS[name]
    own = [TEACHER] if method.vectors == "teacher" else []
    check_names(f"setting of {name}", settings, {**method.settings, **SCHEDULE, **dict.fromkeys(own)})
    return method


class BatchChoice:
    """Which batches a training builds, from which vectors, and how it builds them.

    Args:
        name: one of `METHODS`.
        settings: the method's own settings, and those of `SCHEDULE`: `warmup`, epochs of random batches before the
            method begins (HOBIT A.9); `refresh`, embed anew every so many epochs; `anneal`, epochs after the warm-up
            over which HOBIT's α rises linearly from 0 to its value (0: constant).
        positives: further (query text, document text) pairs known to be relevant.
        known: conflicts among the rows of the one training set, as `foils.batching.conflicts.known_conflicts` finds
            them in a collection; None: found by the texts of the data set and `positives`.
        teacher: (queries, documents) vectors (N, d) for B3; None: the model's own before training.
        mixture: of the one training set, which holds several data sets; None: it is one.
        more: further settings, as keywords.

    Attributes:
        history: of each epoch that was built: its number, and the seconds of embedding and of building.

    Raises:
        InputError: an unknown method or setting, counts out of range, a teacher without B3, `known` beside positives.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        positives: Sequence[tuple[str, str]] = (),
        known: Conflicts | None = None,
        teacher: tuple[Vectors, Vectors] | None = None,
        mixture: Mixture | None = None,
        **more: Any,
    ) -> None:
        self.name, self.settings = name, {**(settings or {}), **more}
        self.method = method_named(name, self.settings)
        if TEACHER in self.settings:
            raise InputError(f"{TEACHER}: a training reads that; here give a teacher's vectors")
        counts = [self.settings.pop(each, default) for each, default in SCHEDULE.items()]
        self.warmup, self.refresh, self.anneal = counts
        if not all(isinstance(each, int) and each >= least for each, least in zip(counts, (0, 1, 0), strict=True)):
            raise InputError(
                f"warmup and anneal are at least 0 epochs, refresh at least 1; got {self.warmup}, {self.anneal}, "
                f"{self.refresh}"
            )
        if self.anneal and "alpha" not in self.method.settings:
            raise InputError(f"anneal raises the setting alpha, which {name} does not have")
        if known is not None and positives:
            raise InputError("known holds all that is kept apart; leave out positives")
        if teacher is not None and self.method.vectors != "teacher":
            raise InputError(f"b3, and only it, works from a teacher's vectors; got them for {name}")
        self.positives, self.known = tuple(positives), known
        self.teacher, self.mixture = teacher, mixture
        self.history: list[dict[str, float]] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def epoch_rows(self, rows: int) -> int:
        """Return how many rows an epoch of a data set has: all, or what its mixture takes."""
        return rows if self.mixture is None or self.mixture.rows != rows else self.mixture.epoch_rows

    def settings_at(self, epoch: int) -> dict[str, Any]:
        """Return the method's settings in this epoch (α annealed)."""
        if not self.anneal:
            return self.settings
        alpha = self.settings.get("alpha", self.method.settings["alpha"])
        return {**self.settings, "alpha": alpha * min(1.0, max(0, epoch - self.warmup) / self.anneal)}

    def kind(self, epoch: int) -> str:
        """Return whose vectors an epoch's batches are built from, as `BatchingMethod.vectors` has it."""
        return "none" if epoch < self.warmup else self.method.vectors

    def drawn(self, epoch: int, seed: int) -> Rows | None:
        """Return the rows whose vectors an epoch's batches are built from, ascending; None: all.

        A teacher's communities are of all rows, once for the training.
        """
        if self.mixture is None or self.kind(epoch) == "teacher":
            return None
        return np.unique(np.concatenate(self.mixture.drawn(epoch, seed=seed)))

    def communities(self, vectors: tuple[Vectors, Vectors] | None) -> Rows:
        """Return (N,) the number of each row's community by a teacher's vectors; of a mixture, each data set's own."""
        queries, documents = self._needed(vectors)
        if self.mixture is None:
            return rank_communities(queries, documents, **self.settings)
        numbers = self.mixture.source_of * len(queries)
        for k in range(len(self.mixture.names)):
            rows = np.flatnonzero(self.mixture.source_of == k)
            numbers[rows] += rank_communities(queries[rows], documents[rows], **self.settings)
        return numbers

    def build(
        self,
        epoch: int,
        vectors: tuple[Vectors, Vectors] | None,
        batch_size: int,
        *,
        rows: int,
        conflicts: Conflicts | None,
        seed: int,
        communities: Rows | None = None,
    ) -> Batches:
        """Return an epoch's batches; of a mixture, each data set's apart, and joined.

        Args:
            epoch: counted from 0.
            vectors: (N, d) of queries and of documents; None where the epoch needs none. Of a mixture, rows that are
                not `drawn` are not looked at.
            batch_size: rows per batch.
            rows: N.
            conflicts: rows to keep apart.
            seed: epoch e uses the generator of (seed, e).
            communities: (N,) of a teacher's vectors.

        Raises:
            InputError: vectors are needed, and there are none.
        """

        def built(batch_size: int, rng: np.random.Generator, of: Rows | None = None) -> Batches:
            """Batches over all rows or, by their places, over some of them."""
            kind, known = self.kind(epoch), conflicts if conflicts is None or of is None else conflicts.of(of)
            options: dict[str, Any] = {"batch_size": batch_size, "rng": rng, "conflicts": known}
            if kind == "none":
                return random_order(rows if of is None else of.size, **options)
            if kind == "teacher":
                numbers = self.communities(self.teacher or vectors) if communities is None else communities
                return joined(members(numbers, of), **options)
            queries, documents = (each if of is None else each[of] for each in self._needed(vectors))
            return self.method.build(queries, documents, **options, **self.settings_at(epoch))

        if self.mixture is None:
            return built(batch_size, np.random.default_rng([seed, epoch]))
        parts, begin, sources = self.mixture.parts_of(batch_size), 0, {}
        drawn = self.mixture.drawn(epoch, seed=seed)
        for k, (name, of) in enumerate(zip(self.mixture.names, drawn, strict=True)):
            own = built(batch_size // parts, np.random.default_rng([seed, epoch, k + 1]), of)
            sources[name] = (begin + np.arange(of.size), own)
            begin += of.size
        mixed = mixed_batches(sources, parts=parts, rng=np.random.default_rng([seed, epoch]))
        return Batches(np.concatenate(drawn)[mixed.order], batch_size, among=self.mixture.rows)

    def _needed(self, vectors: tuple[Vectors, Vectors] | None) -> tuple[Vectors, Vectors]:
        if vectors is None:
            raise InputError(f"{self.name} needs vectors; attach an encoder")
        return vectors
