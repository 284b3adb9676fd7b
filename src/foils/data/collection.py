"""A collection: documents, queries and judgements by split, as Arrow tables that may be memory-mapped.

Ids are strings outside and row numbers inside: every stage turns ids into rows once, and works on arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.chunks import take
from foils.data.positives import Positives, pair_codes
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import spelled

Rows = npt.NDArray[np.int64]
IDENTICAL = "has the query's own id"
ALL_QUERIES = "all"  # in the place of a split: every query, judged or not, with the positives of all splits
TRAIN = "train"  # the split that is trained on, unless another is named
DEV = "dev"  # the split that settings are chosen on
TABLE = 1 << 30  # bytes of ids that one table of hashes is made of

DOCUMENTS = pa.schema([("doc_id", pa.string()), ("title", pa.large_string()), ("text", pa.large_string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.large_string())])
QRELS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int32())])


@dataclass(frozen=True, repr=False)
class Collection:
    """Documents, queries and judgements.

    Attributes:
        name: what to call it in tables and reports.
        documents: table of `doc_id, title, text`; ids unique; title or text may be empty, not both.
        queries: table of `query_id, text`; ids unique.
        qrels: split name -> table of `query_id, doc_id, relevance` (relevant where above 0).
        digest: of the contents, for provenance.
        folder: where the documents' Arrow file is, by which they go to other processes; None: they lie in memory.
        keep_identical_ids: a document whose id is a query's own may be a negative of the query and an answer to it
            (`identical`).
        columns: what a column is -> its name, as they were given for the pairs that it was made of; a source that has
            all of these columns is read by the same names.

    Made by `load_collection`, or `Collection.from_dicts`.
        read_as: what the columns of the pairs that it was made of were read as, in words; empty: it is not of pairs.
    """

    name: str
    documents: pa.Table
    queries: pa.Table
    qrels: Mapping[str, pa.Table] = field(default_factory=dict)
    digest: str = ""
    folder: Path | None = None
    keep_identical_ids: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    read_as: str = ""

    def __repr__(self) -> str:
        """Return its name and counts, on one line; `foils.describe` says more."""
        judged = ", ".join(f"{split} {len(table):,}" for split, table in self.qrels.items()) or "none"
        counts = f"{len(self.documents):,} documents, {len(self.queries):,} queries"
        return f"Collection({self.name!r}: {counts}; judgements: {judged})"

    def __reduce__(self) -> tuple[Callable[..., Collection], tuple[Any, ...]]:
        """Send a collection to other processes, its documents by their folder where they are stored."""
        more = (self.keep_identical_ids, self.columns, self.read_as)
        rest = (self.queries, dict(self.qrels), self.digest, self.folder, *more)
        if self.folder is None:
            return Collection, (self.name, self.documents, *rest)
        return _with_stored_documents, (self.name, *rest)

    @classmethod
    def from_dicts(
        cls,
        name: str,
        documents: Mapping[str, str | tuple[str, str]],
        queries: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
    ) -> Collection:
        """Make a collection in memory, from BEIR's dictionaries.

        Args:
            name: its name.
            documents: id -> text, or id -> (title, text).
            queries: id -> text.
            qrels: split -> query id -> document id -> relevance.

        Raises:
            InputError: empty texts, or judgements that name unknown ids.
        """
        from foils.data.build import build_in_memory  # the builder needs this module

        pairs = {key: ("", value) if isinstance(value, str) else value for key, value in documents.items()}
        triples = {
            split: [(query, document, grade) for query, of in judged.items() for document, grade in of.items()]
            for split, judged in qrels.items()
        }
        return build_in_memory(name, [(key, *both) for key, both in pairs.items()], list(queries.items()), triples)

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have judgements."""
        return list(self.qrels)

    def document_rows(self, ids: pa.Array | pa.ChunkedArray | Sequence[str]) -> Rows:
        """Return the row of each document id, −1 where the collection has no such document."""
        return rows_of(ids, self.documents["doc_id"])

    def query_rows(self, ids: pa.Array | pa.ChunkedArray | Sequence[str]) -> Rows:
        """Return the row of each query id, −1 where the collection has no such query."""
        return rows_of(ids, self.queries["query_id"])

    def document_texts(self, rows: npt.ArrayLike) -> list[str]:
        """Return title and text, joined by a blank (BEIR's convention), of the documents at these rows."""
        titles, texts = (
            take(self.documents[name], np.asarray(rows, np.int64)).to_pylist() for name in ("title", "text")
        )
        return [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]

    def query_texts(self, rows: npt.ArrayLike) -> list[str]:
        """Return the texts of the queries at these rows."""
        texts: list[str] = take(self.queries["text"], np.asarray(rows, np.int64)).to_pylist()
        return texts

    def judgements(self, split: str, option: str = "split") -> pa.Table:
        """Return a split's judgements; an unknown split is an error that lists the known ones.

        Args:
            split: its name.
            option: by which the caller was given the name.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: it has no judgements at all.
        """
        self._check_split(split, option)
        return self.qrels[split]

    def positives(self, split: str) -> Positives:
        """Return the relevant documents of a split's queries.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: the split has no relevant document at all.
        """
        if self._is_all(split):
            raise InputError(
                f"{split!r} stands for queries with and without positives; this needs a labelled positive of each: "
                f"name a split ({', '.join(self.splits) or 'the collection has no judgements'})"
            )
        found = _positives_of([self.judgements(split)], self)
        if not len(found):
            raise InputError(f"the split {split!r} of {self.name} judges no document relevant (score above 0)")
        return found

    def labels(self, split: str) -> Positives:
        """Return the relevant documents of a split's queries, none where it has none; of `all`, those of every split.

        The split `train` has none in a collection that judges other splits alone, as one does whose judgements are
        for the evaluation.

        Raises:
            UnknownNameError: the collection has judgements, and no such split.
        """
        if self._is_all(split) or not self.qrels:
            return self.known_positives
        if split == TRAIN and split not in self.qrels:
            return _positives_of([], self)
        self._check_split(split)
        return _positives_of([self.qrels[split]], self)

    def queries_of(self, split: str) -> Rows:
        """Return the rows of a split's queries that have a positive, in its order; of `all`, of every query.

        A split that is called `all` comes before that meaning of the word.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: the split has no relevant document at all.
        """
        if self._is_all(split):
            return np.arange(len(self.queries))
        return self.positives(split).query_rows

    def _is_all(self, split: str) -> bool:
        return split == ALL_QUERIES and split not in self.qrels

    def _check_split(self, split: str, option: str = "split") -> None:
        if not self.qrels:
            raise InputError(
                f"{self.name} has no judgements, so no split {split!r}; foils mine and foils rate take every query "
                f"with {spelled('split', ALL_QUERIES)}"
            )
        if split not in self.qrels:
            raise UnknownNameError(f"split of the collection {self.name}", split, self.splits, spelled(option))

    @cached_property
    def known_positives(self) -> Positives:
        """The relevant documents of every query in all splits together."""
        return _positives_of(list(self.qrels.values()), self)

    @cached_property
    def identical(self) -> Rows:
        """(queries,) row of the document that has the query's own id: neither a negative of it nor an answer to it.

        −1 where there is none, where it is labelled relevant for the query (in any split), and everywhere with
        `keep_identical_ids`. Such a document is the query itself (ArguAna), or shares its number by chance.

        Source: BEIR's evaluation (`ignore_identical_ids`), which leaves out those labelled relevant too.
        """
        own = np.full(len(self.queries), -1, np.int64)
        if not self.keep_identical_ids:
            queries = rows_of(self.documents["doc_id"], self.queries["query_id"])
            own[queries[queries >= 0]] = np.flatnonzero(queries >= 0)
            own[self.known_positives.contain(np.arange(len(own)), own)] = -1
        return own

    def identical_ids(self, split: str) -> int:
        """Return for how many judged queries of a split there is such a document (`identical`)."""
        return int((self.identical[self.query_rows(self.judgements(split)["query_id"].unique())] >= 0).sum())

    @property
    def measured_digest(self) -> str:
        """The digest; another where it has documents of `identical` ids, which are not measured as others are."""
        if (self.identical < 0).all():
            return self.digest
        return hashlib.blake2b(f"{self.digest} identical ids".encode(), digest_size=16).hexdigest()


def rows_of(ids: pa.Array | pa.ChunkedArray | Sequence[str], among: pa.ChunkedArray) -> Rows:
    """Return the position of each id in `among` (the first, where it repeats), −1 where it is missing."""
    if not isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = pa.array(ids, among.type)
    ids = ids.cast(among.type)
    rows, start = np.full(len(ids), -1, np.int64), 0
    for part in _joined(among.chunks):
        found = np.asarray(pc.fill_null(pc.index_in(ids, value_set=part), -1).to_numpy(), np.int64)
        rows = np.where((rows < 0) & (found >= 0), found + start, rows)
        start += len(part)
    return rows


def _joined(chunks: Sequence[pa.Array]) -> Iterator[pa.Array]:
    """Yield chunks joined into arrays of at most `TABLE` bytes: an array of strings ends at 2 GiB."""
    group: list[pa.Array] = []
    for chunk in chunks:
        if group and sum(each.nbytes for each in group) + chunk.nbytes > TABLE:
            yield pa.concat_arrays(group)
            group = []
        group.append(chunk)
    if group:
        yield pa.concat_arrays(group)


def _with_stored_documents(
    name: str, queries: pa.Table, qrels: Mapping[str, pa.Table], digest: str, folder: Path, *rest: Any
) -> Collection:
    from foils.data.build import open_stored  # the builder needs this module

    return Collection(name, open_stored(folder).documents, queries, qrels, digest, folder, *rest)


def _positives_of(tables: list[pa.Table], collection: Collection) -> Positives:
    judged = pa.concat_tables(tables) if tables else QRELS.empty_table()
    relevant = judged.filter(pc.greater(judged["relevance"], 0))
    queries = collection.query_rows(relevant["query_id"])
    documents = collection.document_rows(relevant["doc_id"])
    if len(tables) > 1 and len(queries):
        _, kept = np.unique(pair_codes(queries, documents), return_index=True)
        queries, documents = queries[np.sort(kept)], documents[np.sort(kept)]
    distinct, first, inverse = np.unique(queries, return_index=True, return_inverse=True)
    order_of_query = np.argsort(np.argsort(first))
    order = np.argsort(order_of_query[inverse], kind="stable")
    counts = np.bincount(order_of_query[inverse], minlength=len(distinct))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Positives(distinct[np.argsort(first)], offsets, documents[order])
