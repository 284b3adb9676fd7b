"""The methods of batching by name, and what a training chooses of them.

All methods take the same arguments; each has settings of its own, with defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.batching.b3 import b3_batches, community_batches, rank_communities
from foils.batching.batches import Batches, Rows
from foils.batching.conflicts import Conflicts
from foils.batching.hobit import hobit_batches
from foils.batching.hobit_c import EmbeddingCache, Vectors
from foils.batching.mixture import Mixture, mixed_batches
from foils.batching.mutual import mutual_batches
from foils.batching.ngame import ngame_batches
from foils.batching.repair import random_batches, random_order
from foils.batching.walks import walks_batches
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
    "walks": BatchingMethod(walks_batches, "current"),
    "b3": BatchingMethod(b3_batches, "teacher"),
}


SCHEDULE = {"warmup": 0, "refresh": 1, "anneal": 0}
"""Settings that every method has beside its own, in epochs, as `BatchChoice` takes them."""
APART, TEACHER, CACHE = "apart", "teacher", "cache"
OF_TRAINING = (APART, TEACHER, CACHE)
"""Settings that a training resolves before: `apart` of every method (`foils.batching.conflicts.believed_relevant`), the
name of B3's `teacher`, and the precision of HOBIT-C's `cache`."""


def method_named(name: str, settings: Mapping[str, Any]) -> BatchingMethod:
    """Return the method of this name, having checked that it knows these settings.

    Raises:
        UnknownNameError: no such method, or no such setting of it.
    """
    check_names("batching method", [name], METHODS)
    method = METHODS[name]
    own = [APART, *{"teacher": [TEACHER], "cached": [CACHE]}.get(method.vectors, [])]
    check_names(f"setting of {name}", settings, {**method.settings, **SCHEDULE, **dict.fromkeys(own)})
    return method


class BatchChoice:
    """Which batches a training builds, and from which vectors.

    Args:
        name: one of `METHODS`.
        settings: the method's own settings; `warmup`, `refresh` and `anneal` may stand among them.
        warmup: epochs of random batches before the method begins (HOBIT A.9).
        refresh: embed anew every so many epochs; in between, batches are new but the vectors old.
        anneal: epochs after the warm-up over which HOBIT's α rises linearly from 0 to its value; 0: constant.
        avoid_known: keep pairs apart that are known positives of each other, judged by the texts of the data set.
        positives: further (query text, document text) pairs known to be relevant.
        known: conflicts among the rows of the one training set, as `foils.batching.conflicts.known_conflicts` finds
            them in a collection; None: found by the texts of the data set and `positives`.
        cache: where HOBIT-C finds the vectors; a `CachingLoss` with the same cache fills it.
        teacher: (queries, documents) vectors (N, d) for B3; None: the model's own before training.
        mixture: of the one training set, which holds several data sets; None: it is one.

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
        mixture: Mixture | None = None,
    ) -> None:
        self.name, self.settings = name, dict(settings or {})
        self.method = method_named(name, self.settings)
        if given := [name for name in OF_TRAINING if name in self.settings]:
            raise InputError(
                f"{', '.join(given)}: a training reads that; here give known conflicts, a teacher's vectors, or a cache"
            )
        warmup, refresh, anneal = (
            self.settings.pop(each, given) for each, given in zip(SCHEDULE, (warmup, refresh, anneal), strict=True)
        )
        whole = all(isinstance(each, int) for each in (warmup, refresh, anneal))
        if not whole or warmup < 0 or refresh < 1 or anneal < 0:
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
        self.cache, self.teacher, self.mixture = cache, teacher, mixture
        self.history: list[dict[str, float]] = []

    def epoch_rows(self, rows: int) -> int:
        """Return how many rows an epoch of a data set has: all, or what its mixture takes."""
        return rows if self.mixture is None or self.mixture.rows != rows else self.mixture.epoch_rows

    def settings_at(self, epoch: int) -> dict[str, Any]:
        """Return the method's settings in this epoch (α annealed)."""
        if not self.anneal:
            return self.settings
        alpha = self.settings.get("alpha", self.method.settings["alpha"])
        return {**self.settings, "alpha": alpha * min(1.0, max(0, epoch - self.warmup) / self.anneal)}


class BatchBuilder:
    """Builds the batches of a training set epoch by epoch from vectors that are handed in.

    Args:
        choice: what to build.
        rows: N, how many pairs there are.
        conflicts: rows to keep apart.
        seed: epoch e uses the generator of (seed, e).

    Attributes:
        communities: of a teacher's rank graph, once they are known.
    """

    def __init__(self, choice: BatchChoice, rows: int, *, conflicts: Conflicts | None, seed: int) -> None:
        self.choice, self.rows, self.conflicts, self.seed = choice, rows, conflicts, seed
        self.communities: list[Rows] | None = None

    def kind(self, epoch: int) -> str:
        """Return whose vectors an epoch's batches are built from, as `BatchingMethod.vectors` has it."""
        return "none" if epoch < self.choice.warmup else self.choice.method.vectors

    def drawn(self, epoch: int) -> Rows | None:
        """Return the rows whose vectors an epoch's batches are built from, ascending; None: all.

        A teacher's communities are of all rows, once for the training.
        """
        mixture = self.choice.mixture
        if mixture is None or self.kind(epoch) == "teacher":
            return None
        return np.unique(np.concatenate(mixture.drawn(epoch, seed=self.seed)))

    def build(self, epoch: int, vectors: tuple[Vectors, Vectors] | None, batch_size: int) -> Batches:
        """Return an epoch's batches; of a mixture, each data set's apart, and joined.

        Args:
            epoch: counted from 0.
            vectors: (N, d) of queries and of documents; None where the epoch needs none. Of a mixture, rows that are
                not `drawn` are not looked at.
            batch_size: rows per batch.

        Raises:
            InputError: vectors are needed, and there are none.
        """
        mixture = self.choice.mixture
        if mixture is None:
            return self._built(epoch, vectors, batch_size, np.random.default_rng([self.seed, epoch]))
        parts, begin, sources = mixture.parts_of(batch_size), 0, {}
        drawn = mixture.drawn(epoch, seed=self.seed)
        for k, (name, rows) in enumerate(zip(mixture.names, drawn, strict=True)):
            rng = np.random.default_rng([self.seed, epoch, k + 1])
            own = self._built(epoch, vectors, batch_size // parts, rng, rows)
            sources[name] = (begin + np.arange(rows.size), own)
            begin += rows.size
        joined = mixed_batches(sources, parts=parts, rng=np.random.default_rng([self.seed, epoch]))
        return Batches(np.concatenate(drawn)[joined.order], batch_size, among=mixture.rows)

    def _built(
        self,
        epoch: int,
        vectors: tuple[Vectors, Vectors] | None,
        batch_size: int,
        rng: np.random.Generator,
        rows: Rows | None = None,
    ) -> Batches:
        """Return batches over all rows or, by their places, over some of them."""
        kind, conflicts = self.kind(epoch), self.conflicts
        if conflicts is not None and rows is not None:
            conflicts = conflicts.of(rows)
        options: dict[str, Any] = {"batch_size": batch_size, "rng": rng, "conflicts": conflicts}
        if kind == "none":
            return random_order(self.rows if rows is None else rows.size, **options)
        if kind == "teacher":
            self.communities = self.communities or self._found(self.choice.teacher or vectors)
            groups = self.communities if rows is None else places_of(self.communities, rows)
            return community_batches(groups, **options)
        queries, documents = self._needed(vectors)
        if rows is not None:
            queries, documents = queries[rows], documents[rows]
        return self.choice.method.build(queries, documents, **options, **self.choice.settings_at(epoch))

    def _found(self, vectors: tuple[Vectors, Vectors] | None) -> list[Rows]:
        """The communities of all rows; of a mixture, each data set's own."""
        queries, documents = self._needed(vectors)
        mixture, settings = self.choice.mixture, self.choice.settings
        if mixture is None:
            return rank_communities(queries, documents, **settings)
        own = (np.flatnonzero(mixture.source_of == k) for k in range(len(mixture.names)))
        found = ((rows, rank_communities(queries[rows], documents[rows], **settings)) for rows in own)
        return [rows[group] for rows, groups in found for group in groups]

    def _needed(self, vectors: tuple[Vectors, Vectors] | None) -> tuple[Vectors, Vectors]:
        if vectors is None:
            raise InputError(f"{self.choice.name} needs vectors; attach an encoder")
        return vectors


def places_of(groups: Sequence[Rows], rows: Rows) -> list[Rows]:
    """Return groups of rows as groups of their places among the rows that are drawn, ascending.

    A row that was drawn several times is in as many copies of its group.

    Args:
        groups: disjoint row numbers.
        rows: (m,) ascending, each in one of the groups.
    """
    group_of = np.zeros(int(max(group.max(initial=0) for group in groups)) + 1, np.int64)
    for number, group in enumerate(groups):
        group_of[group] = number
    copy = np.arange(rows.size) - np.searchsorted(rows, rows)
    order = np.lexsort((copy, group_of[rows]))
    changes = (np.diff(group_of[rows][order]) != 0) | (np.diff(copy[order]) != 0)
    return np.split(order, np.flatnonzero(changes) + 1)
