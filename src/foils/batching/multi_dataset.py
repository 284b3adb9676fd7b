"""Several data sets: build batches inside each source, and join several sources in a batch (HOBIT A.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foils.batching.batches import Batches, Rows, check_batch_size
from foils.runtime.errors import InputError, check_names

STOPS = ("first_exhausted", "all_exhausted")
"""When an epoch of a mixture ends, as `datasets.interleave_datasets` calls it."""
MOST_PARTS = 4
"""Pieces of a batch, at most, where their number is left open (HOBIT A.8)."""
PASSES = 2**31 + 1
"""In place of an epoch's number: the generators of the order in which a data set's rows are drawn."""


@dataclass(frozen=True)
class Mixture:
    """Training rows of several data sets, and how many of each an epoch takes.

    Attributes:
        names: (K,) of the data sets.
        source_of: (N,) int64, the data set of each row, by its place in `names`.
        counts: (K,) int64, rows of each data set that an epoch takes (`mixture_counts`).
        parts: pieces of a batch, each of one data set; None: as many as there are data sets, 4 at most, or fewer where
            the batch size does not divide by that.

    Raises:
        InputError: a data set without rows, or numbers below 1.
    """

    names: Sequence[str]
    source_of: Rows
    counts: Rows
    parts: int | None = None

    def __post_init__(self) -> None:
        empty = [name for name, size in zip(self.names, self.sizes, strict=True) if not size]
        if empty:
            raise InputError(f"no rows to train on in {', '.join(empty)}; leave it out of the mixture")
        if len(self.counts) != len(self.names) or min(self.counts) < 1 or (self.parts is not None and self.parts < 1):
            raise InputError(
                f"an epoch of {list(map(int, self.counts))} rows of {len(self.names)} data sets, in batches of "
                f"{self.parts} parts; expected at least 1 of each"
            )

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
        """Return the pieces of a batch.

        Raises:
            InputError: the batch size does not divide by the number that was given.
        """
        if self.parts is None:
            return max(each for each in range(1, min(len(self.names), MOST_PARTS) + 1) if batch_size % each == 0)
        if batch_size % self.parts:
            raise InputError(f"parts must divide the batch size {batch_size}; got {self.parts}")
        return self.parts

    def drawn(self, epoch: int, *, seed: int) -> list[Rows]:
        """Return the rows of each data set in an epoch, ascending.

        A data set's rows are drawn in passes, each in a random order, from where the epoch before stopped: none comes
        again before all others came. What an epoch draws depends on the seed alone.

        Args:
            epoch: counted from 0.
            seed: of the orders.
        """
        own = np.split(np.argsort(self.source_of, kind="stable"), np.cumsum(self.sizes)[:-1])
        return [np.sort(rows[_line(seed, k, len(rows), int(self.counts[k]), epoch)]) for k, rows in enumerate(own)]


def _line(seed: int, source: int, size: int, count: int, epoch: int) -> Rows:
    """The places that an epoch draws from an endless line of permutations."""
    first, last = epoch * count // size, -(-(epoch + 1) * count // size)
    orders = [np.random.default_rng([seed, PASSES, source + 1, p + 1]).permutation(size) for p in range(first, last)]
    begin = epoch * count - first * size
    return np.concatenate(orders)[begin : begin + count]


def mixture_counts(
    sizes: Sequence[int], shares: Sequence[float] | None = None, *, temperature: float = 1.0, stop: str = STOPS[0]
) -> Rows:
    """Return how many rows of each data set an epoch takes, (K,).

    Without shares, data set k has the share p_k ∝ N_k^(1/T) of the epoch: at T = 1 all rows are taken once. With
    first_exhausted the epoch has min_k N_k / p_k rows, so that one data set is taken once and none more often; with
    all_exhausted max_k N_k / p_k, so that one is taken once and none less often.

    Args:
        sizes: (K,) N_k, at least 1.
        shares: (K,) above 0, in any unit; None: by the sizes.
        temperature: T, at least 1; more of it makes the shares more alike. Without effect on given shares.
        stop: when the epoch ends: the expected counts of what `datasets.interleave_datasets` draws at random until the
            first or the last data set has run out.

    Returns:
        ⌊p_k · rows⌉, at least 1.

    Raises:
        InputError: a number out of range, or not as many shares as data sets.
        UnknownNameError: no such stop.
    """
    check_names("stopping strategy", [stop], STOPS)
    if shares is not None and (len(shares) != len(sizes) or not all(np.isfinite(s) and s > 0 for s in shares)):
        raise InputError(
            f"shares {', '.join(f'{each:g}' for each in shares)} of {len(sizes)} data sets; expected a number above 0 "
            "for each"
        )
    if not (np.isfinite(temperature) and temperature >= 1):
        raise InputError(f"a mixture's temperature is at least 1; got {temperature}")
    size = np.asarray(sizes, np.float64)
    weights = size ** (1 / temperature) if shares is None else np.asarray(shares, np.float64)
    passes = size / weights
    length = passes.min() if stop == STOPS[0] else passes.max()
    counts: Rows = np.maximum(1, np.rint(weights * length)).astype(np.int64)
    return counts


def mixed_batches(sources: Mapping[str, tuple[Rows, Batches]], *, parts: int = 4, rng: np.random.Generator) -> Batches:
    """Join batches of several data sets: each batch takes `parts` pieces, of different sources while there is a choice.

    A batch of 4 × 64 keeps, in each piece, negatives that are hard within their source; the mask for the loss
    leaves the others out. Sources are drawn in proportion to the pieces they have left, so that all
    run out together. Pieces shorter than the rest (at most one a source) make up the end of the epoch.

    Args:
        sources: name → (row numbers of the source in the whole, batches over 0..len(rows) − 1 of one size). The row
            numbers of all sources together are 0..N−1.
        parts: pieces per batch (4 in HOBIT).
        rng: draws the sources of each batch.

    Returns:
        batches of `parts` × the piece size over all N rows.

    Raises:
        InputError: no source, pieces of different sizes, or a source whose rows and batches disagree.
    """
    check_batch_size(parts)
    sizes = {name: batches.batch_size for name, (_, batches) in sources.items()}
    if len(set(sizes.values())) != 1:
        raise InputError(f"the sources of a mixture need batches of one size, and at least one source; got {sizes}")
    wrong = [
        f"{name} has {rows.size} rows and batches over {batches.rows}"
        for name, (rows, batches) in sources.items()
        if rows.size != batches.rows
    ]
    if wrong:
        raise InputError("; ".join(wrong))
    size = next(iter(sizes.values()))
    full = [[rows[piece] for piece in batches if piece.size == size] for rows, batches in sources.values()]
    short = [rows[piece] for rows, batches in sources.values() for piece in batches if piece.size < size]
    left = np.asarray([len(pieces) for pieces in full])
    line: list[Rows] = []
    while left.sum():
        chosen = _draw(left, parts, rng)
        for source in chosen:
            left[source] -= 1
            line.append(full[source][left[source]])
    return Batches(np.concatenate([np.empty(0, np.int64), *line, *short]), parts * size)


def _draw(left: Rows, parts: int, rng: np.random.Generator) -> Rows:
    """Draw sources for a batch: different ones, in proportion to what they have left, then the fullest again.

    A source with a piece for every batch to come is due in each of them.
    """
    able = np.flatnonzero(left)
    count = min(parts, able.size)
    ahead = -(-left.sum() // parts)
    due = np.argsort(-left, kind="stable")[: min(count, int((left >= ahead).sum()))]
    free = np.setdiff1d(able, due)
    share = left[free] / left[free].sum() if free.size else None
    chosen = np.concatenate([due, rng.choice(free, size=count - due.size, replace=False, p=share)])
    chosen = rng.permutation(chosen).astype(np.int64)
    extra: list[int] = []
    after = left.copy()
    after[chosen] -= 1
    while count + len(extra) < parts and after.sum():
        source = int(np.argmax(after))
        after[source] -= 1
        extra.append(source)
    return np.concatenate([chosen, np.asarray(extra, np.int64)])
