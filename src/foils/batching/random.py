"""Random batches: the baseline of every comparison."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Batches, check_batch_size, check_vectors
from foils.batching.conflicts import Conflicts
from foils.batching.repair import dealt


def random_order(
    rows: int, *, batch_size: int, rng: np.random.Generator, conflicts: Conflicts | None = None
) -> Batches:
    """Return `rows` rows in random order, cut into batches; with `conflicts`, rows that conflict kept apart.

    With conflicts this is what is elsewhere called a no-duplicates sampler, known positives included.
    """
    check_batch_size(batch_size)
    line = rng.permutation(rows).astype(np.int64)
    if conflicts is None:
        return Batches(line, batch_size)
    return dealt(line, conflicts, batch_size=batch_size, rng=rng)


def random_batches(
    queries: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    batch_size: int,
    rng: np.random.Generator,
    conflicts: Conflicts | None = None,
) -> Batches:
    """Return `random_order` of the vectors' rows, with the arguments that every method of batching takes."""
    check_vectors(queries, documents)
    return random_order(queries.shape[0], batch_size=batch_size, rng=rng, conflicts=conflicts)
