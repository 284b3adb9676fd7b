"""Collections: documents, queries and judgements by split, as Arrow tables that may be memory-mapped.

Ids are strings outside and row numbers inside: every stage turns ids into rows once, and works on
arrays. A reader yields (line, fields); what is wrong is collected per file and raised together,
before anything is stored.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.records import Complaints, Fields, Records, records_in, text_field, whole_number
from foils.data.tables import batches_of, take, update_digest
from foils.runtime.errors import FormatError, InputError, UnknownNameError
from foils.runtime.files import DAMAGE, META, cache_place, discard, fill_folder, read_parts, write_parts
from foils.runtime.options import spelled

Rows = npt.NDArray[np.int64]


IDENTICAL = "has the query's own id"


ALL_QUERIES = "all"  # in the place of a split: every query, judged or not, with the positives of all splits


TRAIN = "train"  # the split that is trained on, unless another is named


DEV = "dev"  # the split that settings are chosen on


SPLITS = (TRAIN, DEV, "test")


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
        folder: where the documents' Arrow file is, by which they go to other processes; None: they
            lie in memory.
        keep_identical_ids: a document whose id is a query's own may be a negative of the query and
            an answer to it (`identical`).
        columns: what a column is -> its name, as they were given for the pairs that it was made of;
            a source that has all of these columns is read by the same names.
        read_as: what the columns of the pairs that it was made of were read as, in words; empty: it
            is not of pairs.

    Made by `load_collection`, or `Collection.from_dicts`.
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

    def __reduce__(self) -> tuple[Callable[..., Collection], tuple[dict[str, Any]]]:
        """Send a collection to other processes, its documents by their folder where they are stored."""
        left_out = "documents" if self.folder else ""
        return _restored, ({each.name: getattr(self, each.name) for each in fields(self) if each.name != left_out},)

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
            InputError: no text at all, or judgements that name unknown ids.
        """
        texts = {key: ("", value) if isinstance(value, str) else value for key, value in documents.items()}
        judged = {
            split: [judgement(query, *each) for query, value in queries_of.items() for each in value.items()]
            for split, queries_of in qrels.items()
        }
        document_rows = ({"_id": key, "title": title, "text": text} for key, (title, text) in texts.items())
        query_rows = ({"_id": key, "text": text} for key, text in queries.items())
        rows = row_sources(name, document_rows, query_rows, judged)
        return build(name, (), partial(checked_collection, **rows))

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
        at = np.asarray(rows, np.int64)
        titles, texts = (take(self.documents[name], at).to_pylist() for name in ("title", "text"))
        return [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]

    def query_texts(self, rows: npt.ArrayLike) -> list[str]:
        """Return the texts of the queries at these rows."""
        return list(take(self.queries["text"], np.asarray(rows, np.int64)).to_pylist())

    def judgements(self, split: str, option: str = "split") -> pa.Table:
        """Return a split's judgements; an unknown split is an error that lists the known ones.

        Args:
            split: its name.
            option: by which the caller was given the name.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: it has no judgements at all.
        """
        if not self.qrels:
            raise InputError(f"{self.name} has no judgements; take every query with {spelled('split', ALL_QUERIES)}")
        if split not in self.qrels:
            raise UnknownNameError(f"split of the collection {self.name}", split, self.splits, spelled(option))
        return self.qrels[split]

    def positives(self, split: str) -> Positives:
        """Return the relevant documents of a split's queries; of `all`, those of every query.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: the split has no relevant document at all, or some query has none in any split.
        """
        if not self._is_all(split):
            positives = _positives_of([self.judgements(split)], self)
            if not len(positives):
                raise InputError(f"the split {split!r} of {self.name} judges no document relevant (score above 0)")
            return positives
        missing = len(self.queries) - len(self.known_positives)
        if missing:
            raise InputError(f"{missing:,} of {len(self.queries):,} queries have no positive; name a split that has")
        return self.known_positives

    def labels(self, split: str) -> Positives:
        """Return the relevant documents of a split's queries, none where it has none; of `all`, those of every split.

        The split `train` has none in a collection that judges other splits alone, as one does whose
        judgements are for the evaluation.

        Raises:
            UnknownNameError: the collection has judgements, and no such split.
        """
        if self._is_all(split) or not self.qrels:
            return self.known_positives
        absent = split == TRAIN and split not in self.qrels
        return _positives_of([] if absent else [self.judgements(split)], self)

    def queries_of(self, split: str) -> Rows:
        """Return the rows of a split's queries that have a positive, in its order; of `all`, of every query.

        A split that is called `all` comes before that meaning of the word.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: the split has no relevant document at all.
        """
        return np.arange(len(self.queries)) if self._is_all(split) else self.positives(split).query_rows

    def asked(self, split: str) -> Rows:
        """Return the rows of the queries that a split judges, in its order; of `all`, of every query, judged or not.

        Raises:
            UnknownNameError: the collection has no such split.
            InputError: it has no judgements at all.
        """
        if self._is_all(split):
            return np.arange(len(self.queries))
        return self.query_rows(self.judgements(split)["query_id"].unique())

    def _is_all(self, split: str) -> bool:
        return split == ALL_QUERIES and split not in self.qrels

    @cached_property
    def known_positives(self) -> Positives:
        """The relevant documents of every query in all splits together."""
        return _positives_of(list(self.qrels.values()), self)

    @cached_property
    def identical(self) -> Rows:
        """(queries,) row of the document that has the query's own id: neither a negative of it nor an answer to it.

        −1 where there is none, where it is labelled relevant for the query (in any split), and
        everywhere with `keep_identical_ids`. Such a document is the query itself (ArguAna), or
        shares its number by chance.

        Source: BEIR's evaluation (`ignore_identical_ids`), which leaves out those labelled relevant too.
        """
        rows = self.document_rows(self.queries["query_id"])
        rows[self.known_positives.contain(np.arange(len(rows)), rows)] = -1
        return np.full_like(rows, -1) if self.keep_identical_ids else rows

    def identical_ids(self, split: str) -> int:
        """Return for how many queries of a split (`asked`) there is such a document (`identical`)."""
        return int((self.identical[self.asked(split)] >= 0).sum())

    @property
    def measured_digest(self) -> str:
        """The digest; another where it has documents of `identical` ids, which are not measured as others are."""
        if (self.identical < 0).all():
            return self.digest
        return hashlib.blake2b(f"{self.digest} identical ids".encode(), digest_size=16).hexdigest()


def rows_of(ids: pa.Array | pa.ChunkedArray | Sequence[str], among: pa.ChunkedArray) -> Rows:
    """Return the position of each id in `among` (the first, where it repeats), −1 where it is missing, or null."""
    if not isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = pa.array(ids, among.type)
    wide = pa.large_string()  # the ids of a hash table may have more than 2 GiB
    rows = pc.index_in(ids.cast(wide), value_set=among.cast(wide), skip_nulls=True)
    return np.asarray(pc.fill_null(rows, -1).to_numpy(), np.int64)


def pair_keys(table: pa.Table) -> pa.ChunkedArray:
    """Return (n,) one text for each row's query and document, joined from their ids."""
    ids = (table[name].cast(pa.large_string()) for name in ("query_id", "doc_id"))
    return pc.binary_join_element_wise(*ids, pa.scalar("\0", pa.large_string()))


def _restored(state: dict[str, Any]) -> Collection:
    return Collection(**({"documents": open_stored(state["folder"]).documents} if state["folder"] else {}) | state)


def _positives_of(tables: list[pa.Table], collection: Collection) -> Positives:
    judged = pa.concat_tables(tables) if tables else QRELS.empty_table()
    relevant = judged.filter(pc.greater(judged["relevance"], 0))
    queries = collection.query_rows(relevant["query_id"])
    documents = collection.document_rows(relevant["doc_id"])
    if len(tables) > 1 and len(queries):
        kept = PairIndex(queries, documents).distinct
        queries, documents = queries[kept], documents[kept]
    encoded = pa.array(queries).dictionary_encode()  # queries are numbered as they first come
    number = np.asarray(encoded.indices, np.int64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(encoded.dictionary)))])
    return Positives(np.asarray(encoded.dictionary, np.int64), offsets, documents[np.argsort(number, kind="stable")])


@dataclass(frozen=True)
class Positives:
    """The relevant documents of each judged query, by rows: a ragged array.

    Attributes:
        query_rows: (n,) rows of the queries that have a positive, in the order in which the
            judgements name them.
        offsets: (n + 1,) where each query's positives begin and end in `doc_rows`.
        doc_rows: (m,) rows of the positives, in the order of the judgements; a query's first is its *first
            labelled positive*.
    """

    query_rows: Rows
    offsets: Rows
    doc_rows: Rows

    def __len__(self) -> int:
        return len(self.query_rows)

    @property
    def first(self) -> Rows:
        """(n,) the first labelled positive of each query."""
        return self.doc_rows[self.offsets[:-1]]

    @property
    def counts(self) -> Rows:
        """(n,) how many positives each query has."""
        return np.diff(self.offsets)

    def places(self, query_rows: Rows) -> Rows:
        """Return the position of each query in `query_rows`, (n,); −1 where it has no positive."""
        return self._queries.places(query_rows, 0)

    @cached_property
    def _queries(self) -> PairIndex:
        return PairIndex(self.query_rows, 0)

    def counts_of(self, query_rows: Rows) -> Rows:
        """Return how many positives each query has, (n,)."""
        return np.append(self.counts, 0)[self.places(query_rows)]

    def of(self, index: int) -> Rows:
        """Return the positives of the query at position `index` of `query_rows`."""
        return self.doc_rows[self.offsets[index] : self.offsets[index + 1]]

    def pairs(self) -> tuple[Rows, Rows]:
        """Return (query row, document row) of every positive pair, each (m,)."""
        return np.repeat(self.query_rows, self.counts), self.doc_rows

    def pairs_of(self, query_rows: Rows) -> tuple[Rows, Rows]:
        """Return (place in `query_rows`, document row) of every positive of these queries, query by query."""
        counts = self.counts_of(query_rows)
        place = np.repeat(np.arange(len(query_rows)), counts)
        begins = np.cumsum(counts) - counts
        nth = np.arange(len(place)) - np.repeat(begins, counts)
        return place, self.doc_rows[np.repeat(self.offsets[self.places(query_rows)], counts) + nth]

    def contain(self, query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.bool_]:
        """Tell for each (query, document) pair whether it is labelled relevant; rows below 0 are not."""
        known = (np.asarray(query_rows) >= 0) & (np.asarray(doc_rows) >= 0)
        return known & self._index.contain(query_rows, doc_rows)

    @cached_property
    def _index(self) -> PairIndex:
        return PairIndex(*self.pairs())


class PairIndex:
    """Finds pairs (query, document) among n pairs, by two numbers each: rows of a collection, or any other.

    A pair is one 64-bit code, the query's number above the document's lower 32 bits, so that codes
    ascend by query, then by document, and one binary search finds a pair. Numbers go from −1 to 2³¹
    − 1.

    Args:
        queries: (n,) numbers of the queries.
        documents: (n,) numbers of the documents.

    Attributes:
        first: (n,) the place of the first pair that equals each of the n: its own, unless it repeats
            an earlier one.
        distinct: (k,) places of the distinct pairs, each where it comes first, ascending.
    """

    def __init__(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> None:
        codes = pair_codes(queries, documents)
        self._ascending, self._first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        self.first, self.distinct = self._first[inverse], np.sort(self._first)

    def places(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> Rows:
        """Return the place of each pair among the n, (m,): the first of equal ones; −1 where it is not there."""
        wanted = pair_codes(queries, documents)
        if not len(self._first):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._ascending, wanted), len(self._first) - 1)
        return np.where(self._ascending[at] == wanted, self._first[at], -1)

    def contain(self, queries: npt.ArrayLike, documents: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tell for each pair whether it is among the n, (m,)."""
        return self.places(queries, documents) >= 0


def pair_codes(queries: npt.ArrayLike, documents: npt.ArrayLike) -> Rows:
    """Return a number for each (query, document) pair, the same for the same pair."""
    queries, documents = np.asarray(queries, np.int64), np.asarray(documents, np.int64)
    return (queries << 32) | (documents & 0xFFFFFFFF)


TEXTS_AT_ONCE = 4096  # texts read together where equal ones are looked for


class TextNumbers:
    """Numbers for the rows of a collection, equal for equal texts; row −1 stays −1.

    Texts are numbered in the order of their rows, and are read block by block.

    Args:
        rows: (n,) all rows to be numbered.
        texts_of: rows → their texts, or what stands for them where texts that differ are to be equal.
    """

    def __init__(self, rows: Rows, texts_of: Callable[[Rows], Sequence[str]]) -> None:
        self.known = np.unique(rows)
        seen: dict[bytes, int] = {}
        blocks = (self.known[start : start + TEXTS_AT_ONCE] for start in range(0, len(self.known), TEXTS_AT_ONCE))
        keys = (hashlib.blake2b(text.encode(), digest_size=16).digest() for block in blocks for text in texts_of(block))
        self.numbers = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(self.known))

    def __call__(self, rows: Rows) -> Rows:
        """Return the numbers of these rows, in their shape."""
        return np.append(self.numbers, -1)[np.where(rows < 0, -1, np.searchsorted(self.known, rows))]


@dataclass(frozen=True)
class DocumentTexts:
    """Texts of documents, read in slices from where they are stored.

    Attributes:
        collection: has the documents of rows from 0 on.
        rows: (n,) of documents; −1 − i is text i of `own`. None: all documents of the collection.
        own: (m,) texts that are not in the collection; None: there are none.
    """

    collection: Collection
    rows: Rows | None = None
    own: pa.Array | pa.ChunkedArray | None = None

    def __len__(self) -> int:
        return len(self.collection.documents) if self.rows is None else len(self.rows)

    def __getitem__(self, index: int | slice) -> Any:
        """Return the text at a place, or the list of those of a slice."""
        return self.take(index) if isinstance(index, slice) else self.take([index])[0]

    def take(self, places: npt.ArrayLike | slice) -> list[str]:
        """Return these of the texts, (k,) places or a slice."""
        rows = np.asarray(self._rows[places])
        inside, texts = rows >= 0, np.empty(len(rows), object)
        texts[inside] = self.collection.document_texts(rows[inside])
        if not inside.all():
            texts[~inside] = take(self.own, -1 - rows[~inside]).to_pylist()
        return list(texts)

    def select(self, places: Rows) -> DocumentTexts:
        """Return these of the texts, (k,) places."""
        return DocumentTexts(self.collection, self._rows[places], self.own)

    @property
    def _rows(self) -> Any:
        return np.arange(len(self)) if self.rows is None else self.rows


# stores the batches of a table under a name, and returns the table
Keep = Callable[[str, pa.Schema, Iterable[pa.RecordBatch]], pa.Table]


_FORMAT = 3  # of the stored Arrow files


def build(name: str, facts: Sequence[object], make: Callable[[Keep], Collection]) -> Collection:
    """Make a collection in memory, or as Arrow files in a folder of the cache, which appears whole and is mapped.

    One that is there is opened, and nothing is made; one that is damaged is removed and made again.

    Args:
        name: what to call it.
        facts: that determine the collection, for the name of the folder; none: it is in memory. A
            path stands for the file that it names, as it was last written or replaced.
        make: gives it, each table kept by what `make` is given; its own name goes after the other.

    Raises:
        FormatError: every complaint of the first file that has any, with lines.
        FailureError: the folder cannot be written.
    """
    if not facts:
        collection = make(lambda _, schema, batches: pa.Table.from_batches(batches, schema))
        return replace(collection, name=f"{name}{collection.name}", digest=_digest(collection))
    known = tuple(_state(each) if isinstance(each, Path) else each for each in facts)
    key = hashlib.blake2b(repr((_FORMAT, known)).encode(), digest_size=16).hexdigest()
    folder = cache_place("collections", key)
    if (folder / META).is_file():
        try:
            return open_stored(folder)
        except FormatError as error:
            discard(folder, "collection", error)
    with fill_folder(folder, mark=META) as aside:

        def store(kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
            path = aside / f"{kind}.arrow"
            path.unlink(missing_ok=True)  # what was mapped stays there for those that read it
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return _mapped(path)

        collection = make(store)
        write_parts(
            aside, {"name": f"{name}{collection.name}", "digest": _digest(collection), "splits": list(collection.qrels)}
        )
    return open_stored(folder)


def _state(path: Path) -> tuple[str, int, int, int]:
    state = path.stat()
    return str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _digest(collection: Collection) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    update_digest(collection.documents, hasher)
    update_digest(collection.queries, hasher)
    for split, table in collection.qrels.items():
        hasher.update(split.encode())
        update_digest(table, hasher)
    return hasher.hexdigest()


def open_stored(folder: Path) -> Collection:
    """Map a collection that `build` wrote (`read_parts`).

    Arrow trusts the offsets in a file: a flipped bit would end in other texts, or in a segmentation fault.

    Raises:
        FormatError: a file of it is missing or damaged.
    """
    try:
        meta = read_parts(folder)
        qrels = {split: _mapped(folder / f"qrels-{split}.arrow") for split in meta["splits"]}
        documents, queries = (_mapped(folder / f"{kind}.arrow") for kind in ("documents", "queries"))
        return Collection(meta["name"], documents, queries, qrels, meta["digest"], folder.absolute())
    except (*DAMAGE, pa.ArrowException) as error:
        raise FormatError(f"damaged collection in the cache ({error}); remove the folder", folder) from error


def _mapped(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def row_sources(
    where: str, documents: Iterable[Fields], queries: Iterable[Fields], qrels: Mapping[str, Iterable[Fields]]
) -> dict[str, Any]:
    """Return what `checked_collection` reads of rows that something else gives, counted from 1.

    Args:
        where: they come from, for complaints.
        documents: rows, each read once; what fails then is an InputError.
        queries: as documents.
        qrels: split -> judgements, likewise.
    """
    return {
        "documents": records_in(f"{where} (documents)", documents),
        "queries": records_in(f"{where} (queries)", queries),
        "qrels": {split: records_in(f"{where} (qrels {split})", rows) for split, rows in qrels.items()},
    }


def checked_collection(
    keep: Keep, documents: Records, queries: Records, qrels: Mapping[str, Records], *, lenient: bool = False
) -> Collection:
    """Make the tables of a collection from records by BEIR's keys; a file's complaints come together.

    Left out, and counted in the collection's name, are documents and queries without a text,
    judgements of these, and records that repeat an earlier one. A repeated id with another text, or
    pair with another relevance, is a complaint.

    Args:
        keep: stores a table, in the place of an earlier one of its name.
        documents: of `_id` (or `id`), `title` (or none), `text` (None where there is a title alone).
        queries: of `_id` (or `id`), `text`.
        qrels: split -> judgements, of `query-id`, `corpus-id`, `score`.
        lenient: leave out all judgements of what is not there, which are complaints without.

    Returns:
        The collection; its name is what was left out.

    Raises:
        FormatError: every complaint of the first source that has any, with lines.
    """
    reader = _Reader(keep, lenient)
    texts = reader.texts("documents", documents, DOCUMENTS)
    asked = reader.texts("queries", queries, QUERIES)
    judged = {split: reader.judgements(split, source) for split, source in qrels.items()}
    counts = ", ".join(f"{count:,} {kind}" for kind, count in reader.left_out.items())
    return Collection(f" (left out: {counts})" if counts else "", texts, asked, judged)


class _Reader:
    """Makes the tables of a collection (`checked_collection`): the texts, then the judgements of them.

    Attributes:
        left_out: what is left out -> how many records.
        ids: column of ids -> the ids that there are.
        without: column of ids -> the ids of records without a text.
    """

    def __init__(self, keep: Keep, lenient: bool) -> None:
        self.keep, self.lenient, self.left_out = keep, lenient, Counter[str]()
        self.ids, self.without = dict[str, pa.ChunkedArray](), dict[str, set[str]]()

    def texts(self, kind: str, source: Records, schema: pa.Schema) -> pa.Table:
        """Return a table of texts."""
        column, *names = schema.names
        complaints, lines, without = Complaints(source.where), array("q"), set[str]()

        def rows() -> Iterator[tuple[Any, ...]]:
            for line, record in source.counted(kind, complaints):
                texts = ["" if record.get(name) is None else record[name] for name in names]
                values = tuple(map(text_field, (record.get("_id", record.get("id")), *texts)))
                if None in values or not values[0] or not ("text" in record or any(texts)):
                    complaints.add(f"expected {', '.join(['_id', *names])} as text in valid Unicode, and an id", line)
                elif any(str(text).strip() for text in texts):
                    lines.append(line)
                    yield values
                else:
                    self.left_out[f"{kind} without a text"] += 1
                    without.add(values[0])

        table = self.keep(kind, schema, batches_of(rows(), schema))
        repeated = self._repeated(kind, table, rows_of(table[column], table[column]), lines, complaints)
        if not len(table):
            raise FormatError(f"no {kind} in it; expected at least one record with a text", source.where)
        if repeated.any():
            table = self.keep(kind, schema, table.filter(pa.array(~repeated)).to_batches())
        self.ids[column], self.without[column] = table[column], without
        return table

    def judgements(self, split: str, source: Records) -> pa.Table:
        """Return a split's judgements."""
        complaints, lines = Complaints(source.where), array("q")

        def rows() -> Iterator[tuple[Any, ...]]:
            for line, record in source.counted("judgements", complaints):
                ids = map(text_field, (record.get("query-id"), record.get("corpus-id")))
                values = *ids, whole_number(record.get("score"))
                if None in values:
                    expected = "expected two ids as text and the relevance as a whole number"
                    complaints.add(f"{expected}: query-id<TAB>corpus-id<TAB>score, or TREC's four columns", line)
                else:
                    lines.append(line)
                    yield values

        judged = pa.Table.from_batches(batches_of(rows(), QRELS), QRELS)
        unknown, pairs = np.zeros(len(judged), bool), []
        for column, file in (("query_id", "queries"), ("doc_id", "documents")):
            pairs.append(rows_of(judged[column], self.ids[column]))
            for row in np.flatnonzero(pairs[-1] < 0).tolist():
                identifier, unknown[row] = judged[column][row].as_py(), True
                if not self.lenient and identifier not in self.without[column]:
                    complaints.add(f"unknown {column} {identifier!r}: it is not among the {file}", lines[row])
        if unknown.any():
            self.left_out["judgements of what is not there"] += int(unknown.sum())
        first = np.where(unknown, np.arange(len(judged)), PairIndex(*pairs).first)
        repeated = self._repeated("judgements", judged, first, lines, complaints)
        return self.keep(f"qrels-{split}", QRELS, judged.filter(pa.array(~(unknown | repeated))).to_batches())

    def _repeated(
        self, kind: str, table: pa.Table, first: Rows, lines: array[int], complaints: Complaints
    ) -> npt.NDArray[np.bool_]:
        """Return (n,) which rows have an earlier one of their ids, and count them.

        Args:
            kind: of the rows.
            table: n rows, whose other columns may not differ where their ids are the same.
            first: (n,) the first row of the same ids.
            lines: (n,) where the rows stand.
            complaints: of what reads the table, raised if there are any.
        """
        repeated = np.not_equal(first, np.arange(len(first)))
        rows = np.flatnonzero(repeated)
        earlier, later = (
            pa.table([take(column, at) for column in table.columns], table.schema).to_pylist()
            for at in (first[rows], rows)
        )
        for row, one, other in zip(rows.tolist(), earlier, later, strict=True):
            if one != other:
                ids = ", ".join(repr(value) for name, value in other.items() if name.endswith("_id"))
                earliest = f"first on line {lines[first[row]]}"
                complaints.add(f"duplicate id {ids} ({earliest}) with another {table.column_names[-1]}", lines[row])
        complaints.raise_if_any()
        if len(rows):
            self.left_out[f"repeated {kind}"] += len(rows)
        return repeated


def judgement(query_id: Any, doc_id: Any, relevance: Any) -> dict[str, Any]:
    """Return a record of judgements."""
    return {"query-id": query_id, "corpus-id": doc_id, "score": relevance}
