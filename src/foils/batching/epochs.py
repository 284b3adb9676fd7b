"""A training set's batches epoch by epoch: what they are built from, and what a checkpoint keeps of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foils.batching.batches import Batches, Rows
from foils.batching.conflicts import Conflicts, find_conflicts
from foils.batching.encoding import BLOCK, DistinctTexts, Encode
from foils.batching.hobit_c import EmbeddingCache
from foils.batching.methods import BatchBuilder, BatchChoice
from foils.batching.processes import broadcast, rank_and_count, share_cache
from foils.runtime.errors import FoilsError, FormatError, InputError


class EpochBuilder:
    """Builds each epoch's batches once, from vectors that are as new as the method asks for.

    Under several processes each embeds its share, the first builds, and all get the same batches.

    Args:
        dataset: a `datasets.Dataset`; `columns` of it, the query's first and the positive's second.
        columns: their names.
        encode: (texts, column) → (n, d) vectors by the current model.
        choice: what to build, and when to embed anew.
        seed: epoch e uses the generator of (seed, e).
        scaled: whether vectors are scaled to length 1, for a model that compares by cosine.

    Raises:
        InputError: the data set lacks a query and a positive column, or the cache, the conflicts or the mixture are
            of another number of rows.
    """

    def __init__(
        self,
        dataset: Any,
        columns: Sequence[str],
        encode: Encode,
        choice: BatchChoice,
        *,
        seed: int,
        scaled: bool = True,
    ) -> None:
        if len(columns) < 2:
            raise InputError(f"batches are built from a query and a positive column; got columns {list(columns)}")
        if choice.cache is not None and choice.cache.rows != len(dataset):
            raise InputError(f"the cache is of {choice.cache.rows} rows, the data set has {len(dataset)}")
        if choice.mixture is not None and choice.mixture.rows != len(dataset):
            raise InputError(f"the mixture is of {choice.mixture.rows} rows, the data set has {len(dataset)}")
        self.dataset, self.columns, self.encode = dataset, columns[:2], encode
        self.choice, self.seed, self.scaled = choice, seed, scaled
        self.conflicts: Conflicts | None = choice.known
        if self.conflicts is not None and self.conflicts.rows != len(dataset):
            raise InputError(f"the conflicts speak of {self.conflicts.rows} rows, the data set has {len(dataset)}")
        if choice.avoid_known and self.conflicts is None:
            texts = (dataset[:][name] for name in self.columns)
            self.conflicts = find_conflicts(*texts, positives=choice.positives)
        self._planned: tuple[int, Batches] | None = None
        self._vectors: EmbeddingCache | None = None
        self.builder = BatchBuilder(choice, len(dataset), conflicts=self.conflicts, seed=seed)
        self._texts: list[DistinctTexts] | None = None

    def batches(self, epoch: int, batch_size: int) -> Batches:
        """Return the epoch's batches, built when first asked for."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch, batch_size))
        return self._planned[1]

    def save(self, path: Path, epoch: int, batch_size: int) -> None:
        """Write the running epoch's order, and the vectors that later epochs depend on, to `path`."""
        planned = self._planned or (epoch, self.batches(epoch, batch_size))
        arrays: dict[str, Any] = {"epoch": np.asarray(planned[0]), "order": planned[1].order}
        if self._vectors is not None and self._vectors.filled.any():
            arrays.update(self._vectors.state())
        if (communities := self.builder.communities) is not None:
            arrays["community_sizes"] = np.asarray([c.size for c in communities])
            arrays["communities"] = np.concatenate(communities)
        write_arrays(path, arrays)

    def restore(self, path: Path, batch_size: int) -> None:
        """Take the order of the running epoch, and what later epochs depend on, from a checkpoint.

        Raises:
            InputError: there is no such file, it is of another data set, or it lacks the vectors of HOBIT-C's cache.
            FormatError: it is damaged.
        """
        with saved_arrays(path, "order of batches") as arrays:
            epoch, order = int(arrays["epoch"]), arrays["order"]
            communities = _communities(arrays) if "communities" in arrays else None
        expected = self.choice.epoch_rows(len(self.dataset))
        if order.size != expected:
            raise InputError(f"{path} orders {order.size} rows, an epoch of the data set has {expected}")
        try:
            planned = Batches(order, batch_size, among=None if self.choice.mixture is None else len(self.dataset))
        except InputError as error:
            raise FormatError("an order in which rows are missing; resume from another checkpoint", path) from error
        if self.choice.cache is not None and "filled" not in arrays:
            raise InputError(f"{path} lacks the vectors that HOBIT-C had cached; resume from another checkpoint")
        self._planned = (epoch, planned)
        if "filled" in arrays:
            self._vectors = self.choice.cache or EmbeddingCache(len(self.dataset), scaled=self.scaled)
            self._vectors.restore(arrays)
        self.builder.communities = communities

    def _plan(self, epoch: int, batch_size: int) -> Batches:
        begin = time.perf_counter()
        kind = self.builder.kind(epoch)
        vectors = self._current_vectors(epoch, kind)
        embedded = time.perf_counter()
        if kind == "teacher" or (kind == "current" and self.choice.refresh == 1):
            self._vectors = None  # not needed again
        built: Batches | FoilsError | None = None
        if rank_and_count()[0] == 0:
            try:
                pair = None if vectors is None else (vectors.queries, vectors.documents)
                built = self.builder.build(epoch, pair, batch_size)
            except FoilsError as error:
                built = error
        result, self.builder.communities = broadcast((built, self.builder.communities))
        if isinstance(result, FoilsError):
            raise result
        batches: Batches = result
        self.choice.history.append(
            {
                "epoch": float(epoch),
                "seconds_embedding": embedded - begin,
                "seconds_building": time.perf_counter() - embedded,
            }
        )
        return batches

    def _current_vectors(self, epoch: int, kind: str) -> EmbeddingCache | None:
        """Return the vectors that this epoch's batches are built from; embeds only what is due."""
        cache, drawn = self.choice.cache, self.builder.drawn(epoch)
        if cache is not None:  # of HOBIT-C; the passes of a warm-up fill it too
            share_cache(cache)
            self._vectors, old = cache, cache.turn()
            return None if kind == "none" else self._embedded(cache, _among(old, drawn))
        if kind == "none" or (kind == "teacher" and (self.choice.teacher or self.builder.communities)):
            return None
        due = (epoch - self.choice.warmup) % self.choice.refresh == 0 and kind == "current"
        if self._vectors is None or due:
            self._vectors = EmbeddingCache(len(self.dataset), scaled=self.scaled)
        return self._embedded(self._vectors, _among(self._vectors.missing, drawn))

    def _embedded(self, vectors: EmbeddingCache, rows: Rows) -> EmbeddingCache:
        """Return the vectors with these rows embedded anew, each process its share.

        Rows of the same query go together, so that its text is embedded once; a positive of several queries may be
        embedded in several processes.
        """
        if not rows.size:
            return vectors
        if self._texts is None:
            self._texts = [DistinctTexts(self.dataset, name) for name in self.columns]
        rank, count = rank_and_count()
        by_query = rows[np.argsort(self._texts[0].numbers[rows], kind="stable")]
        own = np.array_split(by_query, count)[rank]
        if own.size:
            (queries, query), (documents, document) = (column.embedded(own, self.encode) for column in self._texts)
            for start in range(0, own.size, BLOCK):
                part = slice(start, start + BLOCK)
                vectors.update(own[part], queries[query[part]], documents[document[part]])
        share_cache(vectors)
        return vectors


def _among(rows: Rows, drawn: Rows | None) -> Rows:
    """The rows that an epoch draws; all where it draws from nothing."""
    return rows if drawn is None else np.intersect1d(rows, drawn)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays into a checkpoint, whole."""
    aside = path.with_suffix(".part.npz")
    np.savez(aside, **arrays)
    aside.replace(path)


@contextmanager
def saved_arrays(path: Path, what: str) -> Iterator[dict[str, Any]]:
    """Hand out the arrays of a checkpoint's file; what goes wrong while they are read tells that it is damaged.

    Raises:
        InputError: there is no such file.
        FormatError: it is damaged.
    """
    if not path.is_file():
        raise InputError(
            f"resuming needs the {what} saved with the checkpoint, {path}, which is not there; start anew, or resume "
            "from a checkpoint that was saved with it in the same folder"
        )
    try:
        with np.load(path, allow_pickle=False) as saved:
            yield dict(saved)
    except InputError:
        raise
    except Exception as error:  # NumPy's, zip's and JSON's readers raise what the damage leads them to
        raise FormatError(f"damaged {what} ({error}); resume from another checkpoint", path) from error


def _communities(arrays: dict[str, Any]) -> list[Rows]:
    joined, sizes = arrays["communities"], arrays["community_sizes"]
    if not (np.bincount(joined) == 1).all() or sizes.sum() != joined.size:
        raise ValueError("communities in which rows are missing")
    return np.split(joined, np.cumsum(sizes)[:-1])
