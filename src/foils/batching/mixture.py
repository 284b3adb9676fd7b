"""Mixtures of data sets: build batches inside each source, and join several sources in a batch (HOBIT A.8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foils.batching.batches import Batches, Rows, check_batch_size
from foils.runtime.errors import InputError


def mixed_batches(sources: Mapping[str, tuple[Rows, Batches]], *, parts: int = 4, rng: np.random.Generator) -> Batches:
    """Join batches of several data sets: each batch takes `parts` pieces, of different sources while there is a choice.

    A batch of 4 × 64 keeps, in each piece, negatives that are hard within their source; the mask for the loss
    (`same_source`) leaves the others out. Sources are drawn in proportion to the pieces they have left, so that all
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


def same_source(source_of: Rows, rows: Rows) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return (b, b): whether rows i and j of a batch are of one source, so that j is a valid negative of i.

    Args:
        source_of: (N,) the source's number of every row.
        rows: (b,) the batch.
    """
    mine = source_of[rows]
    mask: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = mine[:, None] == mine[None, :]
    return mask


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
