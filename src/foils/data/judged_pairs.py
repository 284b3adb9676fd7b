"""What is remembered of pairs while their file is read: a few numbers for each, and no text."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.build import Record, Source
from foils.data.chunks import MOST, pieces, take
from foils.data.collection import Rows
from foils.data.lines import Complaints

RECENT = 1 << 16  # ids in a dictionary, before they are sorted into an array
Hashes = npt.NDArray[np.uint64]


def hash_of(text: str) -> int:
    """Return a 64-bit hash of a text (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class KnownTexts:
    """The hash of each id's text, 16 bytes an id, so that an id has one text.

    Args:
        what: has the ids, for complaints.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._recent: dict[int, int] = {}
        self._sorted: list[tuple[Hashes, Hashes, memoryview]] = []  # ids, hashes, ids as Python reads them

    def new(self, identifier: str, text: str, complaints: Complaints, line: int) -> bool:
        """Tell whether an id is seen for the first time; one with another text is a complaint."""
        key, own = hash_of(identifier), hash_of(text)
        known = self._known(key)
        if known is None:
            self._recent[key] = own
            if len(self._recent) == RECENT:
                self._sort()
        elif known != own:
            complaints.add(f"the {self.what} {identifier!r} has another text before; an id has one text", line)
        return known is None

    def _known(self, key: int) -> int | None:
        if key in self._recent:
            return self._recent[key]
        for _, hashes, ids in self._sorted:
            at = bisect_left(ids, key)
            if at < len(ids) and ids[at] == key:
                return int(hashes[at])
        return None

    def _sort(self) -> None:
        """Make an array of the dictionary, joined with those that are no more than twice as long."""
        ids, hashes = (np.fromiter(each, np.uint64) for each in (self._recent.keys(), self._recent.values()))
        self._recent = {}
        while self._sorted and len(self._sorted[-1][0]) <= 2 * len(ids):
            before = self._sorted.pop()
            ids, hashes = np.concatenate([before[0], ids]), np.concatenate([before[1], hashes])
        order = np.argsort(ids)
        ids = ids[order]
        self._sorted.append((ids, hashes[order], memoryview(ids)))  # type: ignore[arg-type]  # an array is a buffer


@dataclass
class JudgedPairs:
    """Pairs by the hashes of their ids, with relevance, split and line, 32 bytes each.

    Attributes:
        queries: hash of the query's id.
        documents: hash of the document's id.
        grades: relevance.
        lines: in its table.
        codes: of its split in `splits`.
        splits: name of a split -> its code; the empty one: none is given.
        begins: (place of its first pair, name for complaints) of each table.
    """

    queries: array[int] = field(default_factory=lambda: array("Q"))
    documents: array[int] = field(default_factory=lambda: array("Q"))
    grades: array[int] = field(default_factory=lambda: array("i"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("i"))
    splits: dict[str, int] = field(default_factory=dict)
    begins: list[tuple[int, str]] = field(default_factory=list)

    def begin(self, where: str) -> None:
        """Note that the pairs of another table follow."""
        self.begins.append((len(self.lines), where))

    def add(self, query_id: str, doc_ids: Sequence[str], grade: int, split: str, line: int) -> None:
        """Add a record's pairs."""
        query, code = hash_of(query_id), self.splits.setdefault(split, len(self.splits))
        for identifier in doc_ids:
            self.queries.append(query)
            self.documents.append(hash_of(identifier))
            self.grades.append(grade)
            self.lines.append(line)
            self.codes.append(code)

    def resolved(self, documents: pa.Table, queries: pa.Table) -> Resolved:
        """Return the pairs by rows of these tables, each once.

        Raises:
            FormatError: a query in two splits, or a pair with two relevances; by line.
        """
        rows = rows_of_hashes(self.queries, queries["query_id"]), rows_of_hashes(self.documents, documents["doc_id"])
        grades, lines, codes = (np.asarray(each) for each in (self.grades, self.lines, self.codes))
        query_rows, first_of_query = np.unique(rows[0], return_index=True)
        split_of = np.zeros(len(queries), np.int64)
        split_of[query_rows] = codes[first_of_query]
        _, first, inverse = np.unique((rows[0] << 32) | rows[1], return_index=True, return_inverse=True)
        other_split, other_grade = codes != split_of[rows[0]], grades != grades[first[inverse]]
        names = list(self.splits)
        complaints = [Complaints(where) for _, where in self.begins]
        for at in np.flatnonzero(other_split | other_grade).tolist():
            own = complaints[bisect_right(self.begins, at, key=lambda begin: begin[0]) - 1]
            if other_split[at]:
                text, there = queries["text"][int(rows[0][at])].as_py(), names[split_of[rows[0][at]]]
                own.add(
                    f"the query {text[:60]!r} is in {there} and in {names[codes[at]]}; give it one split",
                    int(lines[at]),
                )
            if other_grade[at]:
                before = lines[first[inverse[at]]]
                own.add(f"the pair has another relevance on line {before}", int(lines[at]))
        for each in complaints:
            each.settle()
        kept = np.sort(first)
        return Resolved(documents, queries, rows[0][kept], rows[1][kept], grades[kept], lines[kept], split_of, names)


@dataclass(frozen=True)
class Resolved:
    """Distinct pairs, in the order in which they first came.

    Attributes:
        documents: table of the documents.
        queries: table of the queries.
        query_rows: (n,) rows of the queries.
        doc_rows: (n,) rows of the documents.
        grades: (n,) relevance.
        lines: (n,) in their tables.
        split_of: (queries,) code of the split that a query is given.
        names: of the splits, by code.
    """

    documents: pa.Table
    queries: pa.Table
    query_rows: Rows
    doc_rows: Rows
    grades: npt.NDArray[np.int32]
    lines: Rows
    split_of: Rows
    names: list[str]

    def sources(self, where: str, split_of: Rows, names: Sequence[str]) -> dict[str, Source]:
        """Return the judgements of each of these splits that has some, where (queries,) `split_of` says which."""
        split = split_of[self.query_rows]
        chosen = {name: np.flatnonzero(split == code) for code, name in enumerate(names)}
        return {name: Source(f"{where} ({name})", self._stream(rows)) for name, rows in chosen.items() if len(rows)}

    def _stream(self, rows: Rows) -> Callable[[Complaints], Iterator[Record]]:
        def records(_: Complaints) -> Iterator[Record]:
            for start in range(0, len(rows), MOST):
                part = rows[start : start + MOST]
                queries = take(self.queries["query_id"], self.query_rows[part]).to_pylist()
                documents = take(self.documents["doc_id"], self.doc_rows[part]).to_pylist()
                fields = zip(queries, documents, self.grades[part].tolist(), strict=True)
                yield from zip(self.lines[part].tolist(), fields, strict=True)

        return records


def rows_of_hashes(hashes: array[int], ids: pa.ChunkedArray) -> Rows:
    """Return the row, in a column of ids, of each hash of an id, (n,); all of them are there."""
    column = np.empty(len(ids), np.uint64)
    at = 0
    for batch in pieces(pa.table({"id": ids}).to_batches()):
        column[at : at + len(batch)] = [hash_of(identifier) for identifier in batch.column(0).to_pylist()]
        at += len(batch)
    order = np.argsort(column)
    return np.asarray(order[np.searchsorted(column, np.asarray(hashes), sorter=order)], np.int64)
