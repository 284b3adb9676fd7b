"""Keep rows that conflict apart: deal an order into batches without conflicts, swap away those that remain.

Of a random order that is the baseline of every comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Batches, Rows, check_batch_size, check_vectors
from foils.batching.conflicts import Conflicts
from foils.runtime.errors import InputError, require

TRIES = 200
"""Random partners tried for each row in conflict."""

ROUNDS = 5
"""Passes over the rows, while conflicts remain: one swap may make room for another."""

LOOKED_AT = 10**8
"""Rows that are looked at, at most, to spread conflicts that cannot be swapped away."""


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


def dealt(line: Rows, conflicts: Conflicts, *, batch_size: int, rng: np.random.Generator) -> Batches:
    """Cut an order of the rows into batches without conflicts, staying close to the order.

    A row that conflicts with its batch waits for the next one. At the end of the line only such rows may be left:
    they are dealt as they come and then swapped with rows of other batches where that helps (`repaired`).

    Args:
        line: (N,) a permutation of the rows.
        conflicts: of the same N rows.
        batch_size: rows per batch.
        rng: draws the partners of swaps.
    """
    check_batch_size(batch_size)
    _check(line.size, conflicts)
    require("numba", "batch")
    from foils.batching import kernels

    order = np.empty(line.size, np.int64)
    kernels.deal(np.ascontiguousarray(line, np.int64), batch_size, conflicts.state(), order)
    return repaired(Batches(order, batch_size), conflicts, rng=rng)


def repaired(batches: Batches, conflicts: Conflicts, *, rng: np.random.Generator) -> Batches:
    """Swap each row in conflict with a random row of another batch, where neither then conflicts.

    200 partners are tried for each, in up to 5 rounds. Where none fits, as for a query that has more rows than there
    are batches, rows are swapped as long as that leaves fewer contradictions, which spreads them over the batches; the
    more rows there are, the fewer partners are tried. What is left is for the loss to mask (`Conflicts.matrix`).
    """
    _check(batches.rows, conflicts)
    require("numba", "batch")
    from foils.batching import kernels

    order, size, known = batches.order.copy(), batches.batch_size, conflicts.arrays()
    if not any(kernels.repair(order, size, known, TRIES, rng) == 0 for _ in range(ROUNDS)):
        tries = min(TRIES, LOOKED_AT // (ROUNDS * order.size * min(size, order.size)))
        for _ in range(ROUNDS if tries else 0):
            if not kernels.spread(order, size, known, tries, rng):
                break
    return Batches(order, size)


def _check(rows: int, conflicts: Conflicts) -> None:
    if conflicts.rows != rows:
        raise InputError(f"conflicts speak of {conflicts.rows} rows, the batches of {rows}")
