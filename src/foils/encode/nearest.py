"""The documents of largest inner product, exactly: what dense mining and search both need.

A matrix product's last digits depend on the shape of the matrices, so it only screens: whatever may
be among the best is multiplied again pair by pair. So neither order nor score of a document depends
on how the work was cut in blocks, or on where it was screened: a torch device may do that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.data.run import ranks_within
from foils.encode.tokens import one_ahead
from foils.encode.vectors import Vectors
from foils.runtime import memory, progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import map_blocks, workers

BLOCK = 4_096  # documents of a block, and queries that go well with it
DEVICE_BLOCK, DEVICE_QUERIES = 65_536, 65_536  # of a torch device, whose blocks stay there where they fit
PRODUCTS = 1 << 27  # that a torch device computes at once: 512 MiB
SPARE = 64  # documents that it keeps of a query beyond the depth, or an eighth of the depth
STRIP = 512  # queries that a thread multiplies with a block at once: 8 MiB of products
TOGETHER = 64  # queries whose documents a thread ranks
MANY = 256  # parts to join, and candidates too many: below it, sparing them is not worth the while

Floats = npt.NDArray[np.floating]
Products = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Result = TypeVar("Result")
Candidates = npt.NDArray[np.void]  # by query, then by row
CANDIDATE = np.dtype([("query", "i8"), ("row", "i8"), ("product", "f4")])

log = logging.getLogger(__name__)

_DEVICE = Lock()  # one search of a device at a time: its precision is set for the whole process
_HELD: WeakKeyDictionary[Vectors, dict[tuple[str, int], list[tuple[int, Any]]]] = WeakKeyDictionary()


def gpu(device: str | None) -> str | None:
    """Return a torch device if it is a GPU of CUDA that this process has; None stands for the processor."""
    if device is None or not device.startswith("cuda"):
        return None
    import torch

    return device if torch.cuda.is_available() else None


def top_inner_products(
    queries: Floats,
    documents: Vectors,
    depth: int,
    *,
    device: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Rows, Scores]:
    """Return the documents with the largest inner products, exactly.

    Args:
        queries: (n, d), read in float32, finite.
        documents: (m, d), read in float32, finite.
        depth: how many; rows beyond m are −1, with NaN.
        device: torch device that screens, e.g. cuda:0, where blocks of documents stay from call to
            call as long as `documents` is there. The processor multiplies the best again, and those
            within the bound of rounding below them, so that the device does not change one bit of
            the result either. None: the processor, without torch.
        advance: told of queries that are done, by their number.

    Returns:
        Rows (n, depth), best first, ties by row, and inner products (n, depth), those of `rank_rows`.
    """
    asked = np.ascontiguousarray(queries, np.float32)
    rows, scores = np.full((len(asked), depth), -1, np.int64), np.full((len(asked), depth), np.nan)
    size = BLOCK if device is None else DEVICE_QUERIES
    for start in range(0, len(asked) if depth and len(documents) else 0, size):
        part = asked[start : start + size]
        ranked = rank_rows(part, documents, _candidates(part, documents, depth, device))
        for row, (best, products) in enumerate(zip(*ranked, strict=True), start):
            count = min(depth, len(best))
            rows[row, :count], scores[row, :count] = best[:count], products[:count]
        advance(len(part))
    return rows, scores


def _candidates(asked: Products, documents: Vectors, depth: int, device: str | None) -> list[Rows]:
    """Return for each query the rows, ascending, that may be among its `depth` best."""
    lists, left = [np.zeros(0, np.int64)] * len(asked), np.arange(len(asked))
    if device is not None:
        import torch

        try:
            lists, left = _on_device(asked, documents, depth, device)
        except torch.OutOfMemoryError:
            _HELD.pop(documents, None)
            log.warning("%s is out of memory: the processor searches %d documents", device, len(documents))
    if len(left):
        screen = _Screen(asked[left], documents, depth)
        # products, a mask and a partition of them; vectors as stored and in float32
        row_bytes = 9 * min(len(left), STRIP * workers()) + 8 * asked.shape[1]
        for start, vectors in documents.blocks(memory.rows_at_once(row_bytes, most=BLOCK)):
            screen.add(start, np.ascontiguousarray(vectors, np.float32))
        for row, rows in zip(left, screen.rows(), strict=True):
            lists[row] = rows
    return lists


def rank_rows(queries: Floats, documents: Vectors, lists: Sequence[Rows]) -> tuple[list[Rows], list[Products]]:
    """Order each query's own documents by inner product, ties by row.

    The product of a pair is one float32 sum of its own: the same bits whatever else is asked for.

    Args:
        queries: (n, d), read in float32, finite.
        documents: vectors of all documents, read in float32, finite.
        lists: n arrays of rows, each row once; any lengths.

    Returns:
        n arrays of rows, best first, and n arrays of products.
    """
    asked = np.ascontiguousarray(queries, np.float32)

    def ranked(query: int) -> tuple[Rows, Products]:
        rows = np.sort(np.asarray(lists[query], np.int64))
        vectors = np.asarray(documents.take(rows), np.float32)
        products = np.matmul(vectors[:, None, :], asked[query, :, None])[:, 0, 0] + np.float32(0)  # −0 becomes 0
        order = np.argsort(-products, kind="stable")
        return rows[order], products[order]

    def ranked_group(start: int) -> list[tuple[Rows, Products]]:
        return [ranked(query) for query in range(start, min(start + TOGETHER, len(lists)))]

    groups = _side_by_side(ranked_group, range(0, len(lists), TOGETHER))
    pairs = [pair for group in groups for pair in group]
    return [rows for rows, _ in pairs], [products for _, products in pairs]


def _side_by_side(work: Callable[[int], Result], starts: range) -> list[Result]:
    return list(map(work, starts) if len(starts) == 1 else map_blocks(work, starts))


class _Screen:
    """What may be among the `depth` best of each query, by matrix products of any rounding.

    A sum of d products in float32, in any order, is within γ·|q|·|v| of the true one, γ = d·u/(1 −
    d·u), u = 2⁻²⁴ (Higham 2002, eq. 3.5). So two such sums of one pair differ by at most twice
    that, and whatever is among the best by one is, by the other, at most four times that below the
    last of the best.
    """

    def __init__(self, queries: Products, documents: Vectors, depth: int) -> None:
        self._queries, self._documents, self._depth = queries, documents, depth
        self._slack = _slack(queries)
        self._longest = 0.0  # of the documents seen
        self._last = np.full(len(queries), -np.inf)  # a product that `depth` documents reach
        self._kept = np.zeros(0, CANDIDATE)
        self._new: list[Candidates] = []

    def add(self, start: int, vectors: Products) -> None:
        """Screen a block of documents, from row `start`."""
        squares = np.matmul(vectors[:, None, :], vectors[:, :, None])
        self._longest = max(self._longest, float(np.sqrt(squares.max())) * (1 + 2.0**-10))

        def screened(first: int) -> Candidates:
            strip = slice(first, first + STRIP)
            products = self._queries[strip] @ vectors.T
            if self._depth < len(vectors) and not np.isfinite(self._last[first]):
                self._last[strip] = np.partition(products, -self._depth, axis=1)[:, -self._depth]
            query, column = np.divmod(np.flatnonzero(products >= self._floor(strip)[:, None]), len(vectors))
            candidates = np.empty(len(query), CANDIDATE)
            candidates["query"], candidates["row"] = query + first, column + start
            candidates["product"] = products[query, column]
            return candidates

        self._new += _side_by_side(screened, range(0, len(self._queries), STRIP))
        if sum(map(len, self._new)) > len(self._queries) * self._depth // 4 or len(self._new) > MANY:
            self._settle()

    def rows(self) -> list[Rows]:
        """Return the candidates of each query, ascending."""
        self._settle()
        return np.split(self._kept["row"], np.searchsorted(self._kept["query"], np.arange(1, len(self._queries))))

    def _floor(self, part: slice = slice(None)) -> Products:
        return _below(self._last[part], self._slack[part] * self._longest)

    def _settle(self) -> None:
        """Take in what is new, and let go of what can no longer be among the best."""
        kept, self._new = np.concatenate([self._kept, *self._new]), []
        self._kept = kept[np.argsort(kept["query"], kind="stable")]  # rows rise from part to part
        counts = self._counts()
        if counts.max() <= self._depth:
            return
        table = np.full((len(counts), counts.max()), -np.inf, np.float32)
        table[self._kept["query"], ranks_within(self._kept["query"])] = self._kept["product"]
        self._last = np.maximum(self._last, np.partition(table, -self._depth, axis=1)[:, -self._depth])
        self._kept = self._kept[self._kept["product"] >= self._floor()[self._kept["query"]]]
        crowded = np.flatnonzero(self._counts() > max(4 * self._depth, MANY))  # by documents that are alike
        if not len(crowded):
            return
        # Of these queries the best `depth` alone are kept.
        queries, rows = self._kept["query"], self._kept["row"]
        keep = ~np.isin(queries, crowded)
        starts, ends = (np.searchsorted(queries, crowded, side) for side in ("left", "right"))
        stretches = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        ranked, _ = rank_rows(self._queries[crowded], self._documents, [rows[at] for at in stretches])
        for at, best in zip(stretches, ranked, strict=True):
            keep[at] = np.isin(rows[at], best[: self._depth])
        self._kept = self._kept[keep]

    def _counts(self) -> Rows:
        return np.bincount(self._kept["query"], minlength=len(self._queries))


def _on_device(queries: Products, documents: Vectors, depth: int, device: str) -> tuple[list[Rows], Rows]:
    """Let a torch device choose the documents that may be among the `depth` best of each query.

    Its products are whole float32, so that the bound of `_Screen` holds. A query keeps some
    documents (`SPARE`) more than the depth; where even the last of them is within the bound, there
    may be others: the query is crowded.

    Returns:
        For each query its candidates, ascending; and the rows of the crowded queries.
    """
    import torch

    block = memory.rows_at_once(16 * queries.shape[1], most=DEVICE_BLOCK)  # two blocks, as stored and in float32
    width = min(depth + max(SPARE, depth // 8), len(documents))
    strip = max(1, PRODUCTS // min(block, len(documents)))
    with _DEVICE, torch.inference_mode():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # a training may have allowed fewer bits
        try:
            asked = torch.from_numpy(queries).to(device)
            products = torch.full((len(queries), width), -torch.inf, device=device)
            rows = torch.zeros((len(queries), width), dtype=torch.int64, device=device)
            longest = torch.zeros((), device=device)
            for start, vectors in _device_blocks(documents, block, device):
                longest = torch.maximum(longest, torch.linalg.vector_norm(vectors, dim=1).max())
                for first in range(0, len(queries), strip):
                    part = slice(first, first + strip)
                    best, columns = (asked[part] @ vectors.T).topk(min(width, len(vectors)), dim=1)
                    products[part], which = torch.cat([products[part], best], 1).topk(width, dim=1)
                    rows[part] = torch.cat([rows[part], columns + start], 1).gather(1, which)
        finally:
            torch.set_float32_matmul_precision(before)
        values, chosen, norm = products.cpu().numpy(), rows.cpu().numpy(), float(longest) * (1 + 2.0**-10)
    floor = _below(values[:, min(depth, width) - 1], _slack(queries) * norm)
    inside = values >= floor[:, None]
    lists = [np.sort(listed[kept]) for listed, kept in zip(chosen, inside, strict=True)]
    crowded = inside.all(axis=1) if width < len(documents) else np.zeros(len(queries), bool)
    return lists, np.flatnonzero(crowded)


def _device_blocks(documents: Vectors, block: int, device: str) -> Iterator[tuple[int, Any]]:
    """Yield (first row, vectors on a torch device); what half its memory holds stays as long as `documents`.

    The next block is read while the device computes.
    """
    import torch

    held = _HELD.setdefault(documents, {}).setdefault((device, block), [])
    yield from held
    done = sum(len(vectors) for _, vectors in held)
    staying = True
    for start, vectors in one_ahead(documents.select(np.arange(done, len(documents))).blocks(block)):
        copied = torch.from_numpy(np.ascontiguousarray(vectors, np.float32)).to(device)
        if copied.is_cuda:
            free, total = torch.cuda.mem_get_info(copied.device)
            staying = staying and free > total // 2
        if staying:
            held.append((done + start, copied))
        yield done + start, copied


def _slack(queries: Products) -> Scores:
    """Return (n,) how much two float32 sums of a pair may differ, fourfold, for a document of length 1."""
    unit = queries.shape[1] * 2.0**-24
    return np.asarray(4 * unit / (1 - unit) * np.linalg.norm(queries.astype(np.float64), axis=1))


def _below(last: npt.NDArray[np.floating], slack: Scores) -> Products:
    lower = (last - slack).astype(np.float32)
    return np.asarray(np.nextafter(lower, np.float32(-np.inf)))


# An index answers queries with documents


@dataclass(frozen=True)
class ExactIndex:
    """Every inner product; ties go to the lower position.

    Attributes:
        documents: N vectors of dimension d.
        device: torch device of the model that made the vectors: it searches, too, where it is a GPU
            of CUDA that this process has; else the processor does. The result is the same, bit for
            bit.
    """

    documents: Vectors
    device: str | None = None

    def __post_init__(self) -> None:
        if not len(self.documents):
            raise InputError("expected at least one document; found none")

    def search(self, queries: npt.NDArray[np.floating], k: int) -> tuple[Rows, Products]:
        """Return positions and float32 inner products, each (n, min(k, N)), best first.

        Raises:
            InputError: queries of another dimension, values that are not finite, or k < 1.
        """
        dimension, device = self.documents.dimension, gpu(self.device)
        if queries.ndim != 2 or queries.shape[1] != dimension or k < 1 or not np.isfinite(queries).all():
            problem = f"expected finite queries (n, {dimension}) and k of at least 1"
            raise InputError(f"{problem}; found {queries.shape}, k={k}")
        with progress.task("searching", total=len(queries), unit="queries") as advance:
            rows, scores = top_inner_products(
                queries, self.documents, min(k, len(self.documents)), device=device, advance=advance
            )
        return rows, scores.astype(np.float32)


def search_lists(
    index: ExactIndex, queries: npt.NDArray[np.floating], k: int, *, without: Rows | None = None
) -> tuple[list[Rows], list[Products]]:
    """Return each query's list of at most k positions, best first, and their scores.

    Args:
        index: what retrieves; places after the end of a list, which are −1, are left out.
        queries: (n, d).
        k: at least 1.
        without: (n,) a position that is left out of the query's list, to which the next moves up; −1: none.
    """
    left_out = np.full(len(queries), -1, np.int64) if without is None else without
    positions, scores = index.search(queries, k + int((left_out >= 0).any()))
    kept = (positions >= 0) & (positions != left_out[:, None])
    kept &= np.cumsum(kept, axis=1) <= k
    return [p[at] for p, at in zip(positions, kept, strict=True)], [s[at] for s, at in zip(scores, kept, strict=True)]
