"""What every method works with: an epoch cut into batches, nearest rows, and known positives kept apart.

In a batch every row's document is a negative of every other row's query. If it is in truth a
positive of that query, the loss pushes the right answer away. Rows i and j conflict if d_j is known
to be relevant to q_i, or d_i to q_j. Since a row's own pair is known, two rows with one query, or
with one document, always conflict.

Of several data sets (HOBIT A.8) batches are built inside each, and a batch joins pieces of several.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csr_array, eye_array
from scipy.sparse.csgraph import connected_components

from foils.data import Collection
from foils.data.collection import TextNumbers
from foils.runtime import memory
from foils.runtime.errors import InputError

Rows = NDArray[np.int64]
Matrix = Any
"""Rows (N, d) that are read by their numbers: an array, a memory map, or vectors joined as they are read."""


@dataclass(frozen=True)
class Batches:
    """The batches of one epoch: a permutation of the rows, cut every `batch_size`.

    Attributes:
        order: (N,) int64, a permutation of 0..N-1; batch k is `order[k * batch_size : (k + 1) * batch_size]`.
        batch_size: rows in each batch; only the last may be shorter.

    Raises:
        InputError: `order` is not a permutation of 0..N-1, or `batch_size` < 1.
    """

    order: Rows
    batch_size: int

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)
        order = np.asarray(self.order).astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(order.size)):
            raise InputError(f"an epoch visits each of the rows 0 to {order.size - 1} once; this order does not")
        order.flags.writeable = False
        object.__setattr__(self, "order", order)

    @property
    def rows(self) -> int:
        """How many rows the epoch has."""
        return int(self.order.size)

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def __getitem__(self, k: int) -> Rows:
        start = range(0, self.rows, self.batch_size)[k]
        return self.order[start : start + self.batch_size]

    def __iter__(self) -> Iterator[Rows]:
        return (self[k] for k in range(len(self)))


def shuffled(batches: Batches, *, rng: np.random.Generator) -> Batches:
    """Shuffle whole batches; a short last one stays last.

    Greedy methods spend the easy choices first: without this, the worst batches come at the end of an epoch.
    """
    full = batches.rows // batches.batch_size
    cut = full * batches.batch_size
    head = batches.order[:cut].reshape(full, batches.batch_size)[rng.permutation(full)]
    return Batches(np.concatenate([head.ravel(), batches.order[cut:]]), batches.batch_size)


def check_batch_size(batch_size: int) -> None:
    """Raise InputError unless `batch_size` is a positive whole number."""
    if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool) or batch_size < 1:
        raise InputError(f"batch_size is a whole number of at least 1; got {batch_size!r}")


def check_vectors(queries: NDArray[np.floating], documents: NDArray[np.floating]) -> None:
    """Raise InputError unless row i of both matrices can be the i-th training pair.

    Both must be (N, d) floating point with the same shape and finite values.
    """
    if queries.ndim != 2 or queries.shape != documents.shape or {queries.dtype.kind, documents.dtype.kind} != {"f"}:
        raise InputError(
            "row i of queries and of documents are the i-th training pair: floating-point matrices of one "
            f"shape (N, d); got {queries.dtype} {queries.shape} and {documents.dtype} {documents.shape}"
        )
    for name, matrix in (("queries", queries), ("documents", documents)):
        bad = np.flatnonzero(~np.isfinite(matrix.sum(axis=1, dtype=np.float64)))
        if bad.size:
            raise InputError(f"{name} has rows with NaN or infinity (first: {bad[:5].tolist()})")


def nearest(
    queries: NDArray[np.floating],
    documents: Matrix,
    among: Rows,
    *,
    k: int,
    block: int | None = None,
) -> tuple[Rows, NDArray[np.float32]]:
    """Return, for each query, the k rows of `documents[among]` of highest inner product.

    Only a block of the documents is gathered at a time, so the extra memory is `block` rows and the results.

    Args:
        queries: (m, d).
        documents: (N, d), or a memory map.
        among: row numbers of the documents to search, ascending.
        k: how many to return; if `among` has fewer, that many.
        block: documents per matrix product; changes speed, and results only by rounding. None: as
            many as the memory budget allows, 4096 at most.

    Returns:
        rows (m, min(k, len(among))) and inner products, best first; ties go to the lower row.
    """
    from foils.batching import kernels

    k = min(k, among.size)
    scores = np.full((queries.shape[0], k), -np.inf, np.float32)
    rows = np.full((queries.shape[0], k), np.iinfo(np.int64).max, np.int64)
    if k:
        left = np.ascontiguousarray(queries, np.float32)
        block = block or memory.rows_at_once(4 * (documents.shape[1] + len(left)), most=4096)
        for start in range(0, among.size, block):
            ids = among[start : start + block]
            right = documents[ids].astype(np.float32, copy=False)
            kernels.merge_top(left @ right.T, ids, scores, rows)
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)


Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Conflicts:
    """Who may not meet whom.

    Attributes:
        query: (N,) int32, the query of each row (rows with one query have one code).
        document: (N,) int32, the document of each row.
        relevant: (queries, documents) True where a document is known to be relevant to a query;
            compressed rows in canonical form.
    """

    query: Codes
    document: Codes
    relevant: csr_array

    @property
    def rows(self) -> int:
        """How many rows the conflicts speak of."""
        return int(self.query.size)

    @cached_property
    def classes(self) -> int | None:
        """How many classes of rows there are, where most rows of a class conflict; None where there are none.

        A class is a component of the graph of queries and the documents that they are known to be
        answered by. A batch that has a row of each cannot grow without conflicts.
        """
        graph = block_array([[None, self.relevant], [self.relevant.T, None]], format="csr")
        count, component = connected_components(graph, directed=False)
        sizes = [np.bincount(part, minlength=count) for part in np.split(component, self.relevant.shape[:1])]
        if 2 * self.relevant.nnz <= sizes[0] @ sizes[1]:  # half of the pairs that the components could have
            return None
        return len(np.unique(component[self.query]))

    def of(self, rows: Rows) -> Conflicts:
        """Return the conflicts among these rows, (m,) of the N, numbered 0..m−1."""
        return replace(self, query=self.query[rows], document=self.document[rows])

    def matrix(self, rows: Rows) -> NDArray[np.bool_]:
        """Return (b, b): entry [i, j] says that row j's document is a known positive of row i's query, i ≠ j.

        This is the mask for the loss: leave these entries out of the softmax.
        """
        mask: NDArray[np.bool_] = self.relevant[self.query[rows]][:, self.document[rows]].toarray()
        np.fill_diagonal(mask, False)
        return mask

    @cached_property
    def arrays(self) -> tuple[NDArray[np.integer], ...]:
        """The conflicts as compiled code takes them: query, document, and who answers whom.

        The documents known to be relevant to query c are `arrays[3][arrays[2][c]:arrays[2][c + 1]]`,
        ascending; the queries that document c is known to answer stand in the last two likewise.
        """
        asking = self.relevant.T.tocsr()
        lists = [(each.indptr.astype(np.int64), each.indices.astype(np.int32)) for each in (self.relevant, asking)]
        return self.query, self.document, *lists[0], *lists[1]

    def state(self) -> tuple[Any, ...]:
        """Return what compiled code keeps while it builds: used rows, the arrays, and stamps, none yet."""
        stamps = (np.zeros(size, np.int32) for size in reversed(self.relevant.shape))
        return np.zeros(self.rows, bool), self.arrays, *stamps


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
    further = [(query_code[q], document_code[d]) for q, d in positives if q in query_code and d in document_code]
    pairs = np.concatenate([np.stack([query, document], axis=1), np.asarray(further, np.int32).reshape(-1, 2)])
    shape = (len(query_code), len(document_code))
    return Conflicts(query, document, csr_array((np.ones(len(pairs), bool), pairs.T), shape=shape))


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
    each = np.arange(rows, dtype=np.int32)
    return Conflicts(each, each, eye_array(rows, dtype=bool, format="csr"))


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
    return separate_conflicts(rng.permutation(rows).astype(np.int64), conflicts, batch_size=batch_size, rng=rng)


def random_batches(queries: Matrix, documents: Matrix, **how: Any) -> Batches:
    """Return `random_order` of the vectors' rows, with the arguments that every method of batching takes."""
    return random_order(len(queries), **how)


def separate_conflicts(
    line: Rows, conflicts: Conflicts | None, *, batch_size: int, rng: np.random.Generator
) -> Batches:
    """Cut an order of the rows into batches without conflicts, staying close to the order.

    A row that conflicts with its batch waits for the next one. At the end of the line only such
    rows may be left: they are swapped with rows of other batches where that helps
    (`swap_conflicts`). Where a batch has more rows than there are classes of rows that conflict
    with each other, the classes are dealt in turn.

    Args:
        line: (N,) a permutation of the rows.
        conflicts: of the same N rows; None: the order is cut as it is.
        batch_size: rows per batch.
        rng: draws the partners of swaps.
    """
    check_batch_size(batch_size)
    if conflicts is None:
        return Batches(line, batch_size)
    check_rows(line.size, conflicts)
    from foils.batching import kernels

    order = np.empty(line.size, np.int64)
    kernels.deal(np.ascontiguousarray(line, np.int64), batch_size, conflicts.state(), order)
    return swap_conflicts(Batches(order, batch_size), conflicts, rng=rng)


def swap_conflicts(batches: Batches, conflicts: Conflicts, *, rng: np.random.Generator) -> Batches:
    """Swap each row in conflict with a random row of another batch, where neither then conflicts.

    200 partners are tried for each, in up to 5 rounds, as long as a round makes progress. Where
    none fits, as for a query that has more rows than there are batches, the rest is for the loss to
    mask (`Conflicts.matrix`).
    """
    check_rows(batches.rows, conflicts)
    from foils.batching import kernels

    order, size, known = batches.order.copy(), batches.batch_size, conflicts.arrays
    before = order.size + 1
    for _ in range(ROUNDS):
        left = kernels.repair(order, size, known, TRIES, rng)
        if left == 0 or left >= before:
            break
        before = left
    return Batches(order, size)


def check_rows(rows: int, conflicts: Conflicts) -> None:
    """Raise InputError unless the conflicts are of so many rows."""
    if conflicts.rows != rows:
        raise InputError(f"conflicts speak of {conflicts.rows} rows, the batches of {rows}")


MOST_PARTS = 4
"""Pieces of a batch, at most (HOBIT A.8)."""


def parts_of(batch_size: int, sources: int) -> int:
    """Return the pieces of a batch, one data set each: as many as these, 4 at most, by which it divides."""
    return max(each for each in range(1, min(sources, MOST_PARTS) + 1) if batch_size % each == 0)


def mixed_batches(sources: Sequence[tuple[Rows, Batches]], *, parts: int, rng: np.random.Generator) -> Batches:
    """Join batches of several data sets: each takes `parts` pieces, of different sources while it can choose.

    A batch of 4 × 64 keeps, in each piece, negatives that are hard within their source; the mask for the loss
    leaves the others out. The sources with the most pieces left come first, and the batches are
    shuffled. Pieces shorter than the rest (at most one a source) make up the end of the epoch.

    Args:
        sources: (row numbers of a source in the whole, batches over 0..len(rows) − 1), all of one batch size.
        parts: pieces per batch (4 in HOBIT).
        rng: decides between sources with as many pieces left, and draws the order of the batches.

    Returns:
        batches of `parts` × the piece size.
    """
    size = sources[0][1].batch_size
    full = [[rows[piece] for piece in batches if piece.size == size] for rows, batches in sources]
    short = [rows[piece] for rows, batches in sources for piece in batches if piece.size < size]
    left = np.asarray([len(pieces) for pieces in full])
    line = [np.empty(0, np.int64)]
    while left.any():
        in_batch = np.zeros(len(left), np.int64)
        for _ in range(min(parts, left.sum())):
            source = np.lexsort((rng.random(len(left)), -left, in_batch, left == 0))[0]
            in_batch[source] += 1
            left[source] -= 1
            line.append(full[source][left[source]])
    return shuffled(Batches(np.concatenate([*line, *short]), parts * size), rng=rng)
