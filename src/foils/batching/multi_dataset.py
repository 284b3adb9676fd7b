"""Several data sets: build batches inside each source, and join several sources in a batch (HOBIT A.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foils.batching.batches import Batches, Rows
from foils.runtime import seeds
from foils.runtime.errors import InputError

MOST_PARTS = 4
"""Pieces of a batch, at most (HOBIT A.8)."""


@dataclass(frozen=True)
class Mixture:
    """Training rows of several data sets, and how many of each an epoch takes.

    Attributes:
        names: (K,) of the data sets.
        source_of: (N,) int64, the data set of each row, by its place in `names`.
        counts: (K,) int64, rows of each data set that an epoch takes (`mixture_counts`).

    Raises:
        InputError: a data set without rows.
    """

    names: Sequence[str]
    source_of: Rows
    counts: Rows

    def __post_init__(self) -> None:
        empty = [name for name, size in zip(self.names, self.sizes, strict=True) if not size]
        if empty:
            raise InputError(f"no rows to train on in {', '.join(empty)}; leave it out of the mixture")

    @property
    def sizes(self) -> Rows:
        """(K,) rows that each data set has."""
        return np.bincount(self.source_of, minlength=len(self.names))

    @property
    def rows(self) -> int:
        """N, rows of all data sets."""
        return int(self.source_of.size)

    @property
    def epoch_rows(self) -> int:
        """Rows that an epoch takes."""
        return int(self.counts.sum())

    def parts_of(self, batch_size: int) -> int:
        """Return the pieces of a batch, each of one data set: as many as data sets, 4 at most, by which it divides."""
        return max(each for each in range(1, min(len(self.names), MOST_PARTS) + 1) if batch_size % each == 0)

    def drawn(self, epoch: int, *, seed: int) -> list[Rows]:
        """Return the rows of each data set in an epoch, ascending.

        A data set's rows are drawn in passes, each in a random order, from where the epoch before stopped: none comes
        again before all others came. What an epoch draws depends on the seed alone.

        Args:
            epoch: counted from 0.
            seed: of the orders.
        """
        rows_of = np.split(np.argsort(self.source_of, kind="stable"), np.cumsum(self.sizes)[:-1])
        return [np.sort(rows[_line(seed, k, len(rows), int(self.counts[k]), epoch)]) for k, rows in enumerate(rows_of)]


def _line(seed: int, source: int, size: int, count: int, epoch: int) -> Rows:
    """The places that an epoch draws from an endless line of permutations."""
    first, last = epoch * count // size, -(-(epoch + 1) * count // size)
    orders = [
        np.random.default_rng([seed, seeds.PASSES, source + 1, p + 1]).permutation(size) for p in range(first, last)
    ]
    begin = epoch * count - first * size
    return np.concatenate(orders)[begin : begin + count]


def mixture_counts(sizes: Sequence[int], shares: Sequence[float] | None = None) -> Rows:
    """Return how many rows of each data set an epoch takes, (K,): all once, or ⌊p_k · min_j N_j / p_j⌉, at least 1.

    By shares p one data set of N_k rows is taken once, and none more often: the expected counts of what
    `datasets.interleave_datasets` draws until the first data set has run out.

    Args:
        sizes: (K,) N_k, at least 1.
        shares: (K,) p_k above 0, in any unit; None: by the sizes.

    Raises:
        InputError: not as many shares as data sets, or one that is not above 0.
    """
    size = np.asarray(sizes, np.float64)
    weights = size if shares is None else np.asarray(shares, np.float64)
    if weights.shape != size.shape or not (np.isfinite(weights) & (weights > 0)).all():
        listed = ", ".join(f"{each:g}" for each in weights)
        raise InputError(f"shares {listed} of {len(sizes)} data sets; expected a number above 0 for each")
    return np.asarray(np.maximum(1, np.rint(weights * (size / weights).min())), np.int64)


def mixed_batches(
    sources: Sequence[tuple[Rows, Batches]], *, parts: int = 4, among: int, rng: np.random.Generator
) -> Batches:
    """Join batches of several data sets: each batch takes `parts` pieces, of different sources while there is a choice.

    A batch of 4 × 64 keeps, in each piece, negatives that are hard within their source; the mask for the loss
    leaves the others out. Sources are drawn in proportion to the pieces they have left, so that all
    run out together. Pieces shorter than the rest (at most one a source) make up the end of the epoch.

    Args:
        sources: (row numbers of a source in the whole, batches over 0..len(rows) − 1), all of one batch size.
        parts: pieces per batch (4 in HOBIT).
        among: rows of all sources.
        rng: draws the sources of each batch.

    Returns:
        batches of `parts` × the piece size.
    """
    size = sources[0][1].batch_size
    full = [[rows[piece] for piece in batches if piece.size == size] for rows, batches in sources]
    short = [rows[piece] for rows, batches in sources for piece in batches if piece.size < size]
    left = np.asarray([len(pieces) for pieces in full])
    line = [np.empty(0, np.int64)]
    while left.sum():
        for source in _draw(left, parts, rng):
            left[source] -= 1
            line.append(full[source][left[source]])
    return Batches(np.concatenate([*line, *short]), parts * size, among)


def _draw(left: Rows, parts: int, rng: np.random.Generator) -> list[int]:
    """Draw sources for a batch: different ones, in proportion to what they have left, then the fullest again.

    A source with a piece for every batch to come is due in each of them.
    """
    able, ahead = np.flatnonzero(left), -(-left.sum() // parts)
    count = min(parts, able.size)
    due = np.argsort(-left, kind="stable")[: min(count, int((left >= ahead).sum()))]
    free = np.setdiff1d(able, due)
    share = left[free] / left[free].sum() if free.size else None
    chosen = np.concatenate([due, rng.choice(free, size=count - due.size, replace=False, p=share)])
    line: list[int] = rng.permutation(chosen).astype(np.int64).tolist()
    after = left.copy()
    after[line] -= 1
    while len(line) < parts and after.sum():
        line.append(int(np.argmax(after)))
        after[line[-1]] -= 1
    return line
