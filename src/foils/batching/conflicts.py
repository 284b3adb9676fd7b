"""Known positives: which rows must not meet in a batch, what the loss must mask, and how rows are kept apart.

In a batch every row's document is a negative of every other row's query. If it is in truth a positive of that
query, the loss pushes the right answer away. Rows i and j conflict if d_j is known to be relevant to q_i, or d_i to
q_j. Since a row's own pair is known, two rows with one query, or with one document, always conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from foils.batching.batches import Batches, Matrix, Rows, check_batch_size
from foils.data import Collection
from foils.data.training_rows import TextNumbers
from foils.runtime.errors import InputError

Codes = NDArray[np.int32]
Offsets = NDArray[np.int64]
MOSTLY = 0.5
"""Share of the pairs of a class that must be known positives for it to be one."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Conflicts:
    """Who may not meet whom, in a form that costs a few look-ups per question.

    Attributes:
        query: (N,) int32, the query of each row (rows with one query have one code).
        document: (N,) int32, the document of each row.
        relevant_start, relevant: the documents known to be relevant to query c are
            `relevant[relevant_start[c]:relevant_start[c + 1]]`, ascending.
        asking_start, asking: the queries that document c is known to answer, likewise.
    """

    query: Codes
    document: Codes
    relevant_start: Offsets
    relevant: Codes
    asking_start: Offsets
    asking: Codes

    @property
    def rows(self) -> int:
        """How many rows the conflicts speak of."""
        return int(self.query.size)

    @cached_property
    def classes(self) -> int | None:
        """How many classes of rows there are, where nearly all rows of a class conflict; None where there are none.

        A class is a component of the graph of queries and the documents that they are known to be answered by.
        """
        queries, documents = self.relevant_start.size - 1, self.asking_start.size - 1
        asking = np.repeat(np.arange(queries), np.diff(self.relevant_start))
        graph = csr_matrix(
            (np.ones(asking.size, np.int8), (asking, self.relevant + queries)), shape=(queries + documents,) * 2
        )
        count, label = connected_components(graph, directed=False)
        complete = np.bincount(label[:queries], minlength=count) * np.bincount(label[queries:], minlength=count)
        return len(np.unique(label[self.query])) if asking.size > MOSTLY * complete.sum() else None

    def of(self, rows: Rows) -> Conflicts:
        """Return the conflicts among these rows, (m,) of the N, numbered 0..m−1; a row that comes twice conflicts."""
        return replace(self, query=self.query[rows], document=self.document[rows])

    def matrix(self, rows: Rows) -> NDArray[np.bool_]:
        """Return (b, b): entry [i, j] says that row j's document is a known positive of row i's query, i ≠ j.

        This is the mask for the loss: leave these entries out of the softmax.
        """
        queries, documents = self.query[rows], self.document[rows]
        mask = np.zeros((len(rows), len(rows)), bool)
        for i, query in enumerate(queries):
            known = self.relevant[self.relevant_start[query] : self.relevant_start[query + 1]]
            mask[i] = np.isin(documents, known)
        np.fill_diagonal(mask, False)
        return mask

    def arrays(self) -> tuple[Codes, Codes, Offsets, Codes, Offsets, Codes]:
        """Return the six arrays in the order of the attributes, as compiled code takes them."""
        return self.query, self.document, self.relevant_start, self.relevant, self.asking_start, self.asking

    def state(self) -> tuple[Any, ...]:
        """Return what compiled code keeps while it builds batches: used rows, these arrays, and stamps, none yet."""
        stamps = (np.zeros(start.size, np.int32) for start in (self.asking_start, self.relevant_start))
        return np.zeros(self.rows, bool), self.arrays(), *stamps


def find_conflicts(
    queries: Sequence[Hashable],
    documents: Sequence[Hashable],
    *,
    positives: Iterable[tuple[Hashable, Hashable]] = (),
) -> Conflicts:
    """Work out which rows may not share a batch.

    Args:
        queries: (N,) id, or text, of each row's query. Texts find duplicates that ids hide.
        documents: (N,) id, or text, of each row's document, named as in `positives`.
        positives: further (query, document) pairs known to be relevant, beyond the rows' own; those that name
            a query or document of no row are without effect.
    """
    query, query_code = _codes(queries)
    document, document_code = _codes(documents)
    extra = [(query_code[q], document_code[d]) for q, d in positives if q in query_code and d in document_code]
    pairs = np.concatenate([np.stack([query, document], axis=1), np.asarray(extra, np.int32).reshape(-1, 2)])
    shape = (len(query_code), len(document_code))
    known = csr_matrix((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=shape, dtype=np.int8)
    known.sum_duplicates()
    back = known.T.tocsr()
    back.sort_indices()
    return Conflicts(
        query,
        document,
        known.indptr.astype(np.int64),
        known.indices.astype(np.int32),
        back.indptr.astype(np.int64),
        back.indices.astype(np.int32),
    )


def known_conflicts(collection: Collection, query_rows: Rows, doc_rows: Rows) -> Conflicts:
    """Return which rows may not meet: by the collection's judgements of all splits, and by equal texts.

    Args:
        collection: whose judgements and texts.
        query_rows: (N,) the query of each training row, by its row in the collection.
        doc_rows: (N,) the positive of each training row, likewise.
    """
    known_queries, known_documents = collection.known_positives.pairs()
    query = TextNumbers(np.concatenate([query_rows, known_queries]), collection.query_texts)
    document = TextNumbers(np.concatenate([doc_rows, known_documents]), collection.document_texts)
    known = zip(query(known_queries).tolist(), document(known_documents).tolist(), strict=True)
    return find_conflicts(query(query_rows).tolist(), document(doc_rows).tolist(), positives=known)


def no_conflicts(rows: int) -> Conflicts:
    """Return the conflicts of `rows` rows whose queries and documents are all different: none."""
    own, start = np.arange(rows, dtype=np.int32), np.arange(rows + 1, dtype=np.int64)
    return Conflicts(own, own, start, own, start, own)


def _codes(names: Sequence[Hashable]) -> tuple[Codes, dict[Hashable, int]]:
    """Number the names by first appearance."""
    code: dict[Hashable, int] = {}
    codes = np.fromiter((code.setdefault(name, len(code)) for name in names), np.int32, count=len(names))
    return codes, code


TRIES = 200
"""Random partners tried for each row in conflict."""
ROUNDS = 5
"""Passes over the rows, while they make progress: one swap may make room for another."""


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
    return separate_conflicts(line, conflicts, batch_size=batch_size, rng=rng)


def random_batches(queries: Matrix, documents: Matrix, **how: Any) -> Batches:
    """Return `random_order` of the vectors' rows, with the arguments that every method of batching takes."""
    return random_order(len(queries), **how)


def separate_conflicts(line: Rows, conflicts: Conflicts, *, batch_size: int, rng: np.random.Generator) -> Batches:
    """Cut an order of the rows into batches without conflicts, staying close to the order.

    A row that conflicts with its batch waits for the next one. At the end of the line only such rows may be left: they
    are swapped with rows of other batches where that helps (`swap_conflicts`). Where a batch has more rows than there
    are classes of rows that conflict with each other, the classes are dealt in turn.

    Args:
        line: (N,) a permutation of the rows.
        conflicts: of the same N rows.
        batch_size: rows per batch.
        rng: draws the partners of swaps.
    """
    check_rows(line.size, conflicts)
    from foils.batching import kernels

    order = np.empty(line.size, np.int64)
    kernels.deal(np.ascontiguousarray(line, np.int64), batch_size, conflicts.state(), order)
    return swap_conflicts(Batches(order, batch_size), conflicts, rng=rng)


def swap_conflicts(batches: Batches, conflicts: Conflicts, *, rng: np.random.Generator) -> Batches:
    """Swap each row in conflict with a random row of another batch, where neither then conflicts.

    200 partners are tried for each, in up to 5 rounds, as long as a round makes progress. Where none fits, as for a
    query that has more rows than there are batches, the rest is for the loss to mask (`Conflicts.matrix`).
    """
    check_rows(batches.rows, conflicts)
    from foils.batching import kernels

    order, size, known = batches.order.copy(), batches.batch_size, conflicts.arrays()
    before = order.size + 1
    for _ in range(ROUNDS):
        left = kernels.repair(order, size, known, TRIES, rng)
        if left == 0 or left >= before:
            break
        before = left
    return Batches(order, size)


def warn_of_classes(conflicts: Conflicts, batch_size: int) -> None:
    """Say so where a batch has more rows than there are classes, so that known positives must meet in it."""
    if (classes := conflicts.classes) is not None and classes < min(batch_size, conflicts.rows):
        log.warning(
            "your batch of %d exceeds the %d classes of rows that can be kept apart: each class comes several times "
            "in a batch, and the loss leaves its own rows out; a batch size of at most %d avoids it",
            batch_size, classes, classes,
        )  # fmt: skip


def check_rows(rows: int, conflicts: Conflicts) -> None:
    """Raise InputError unless the conflicts are of so many rows."""
    if conflicts.rows != rows:
        raise InputError(f"conflicts speak of {conflicts.rows} rows, the batches of {rows}")
