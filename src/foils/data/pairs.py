"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.build import Record, Source, build_held, build_stored, cache_place, file_facts
from foils.data.collection import Collection
from foils.data.judged_pairs import JudgedPairs, KnownTexts
from foils.data.lines import Complaints
from foils.data.pair_columns import OF_CORPUS, SOURCE_NAMES, Document, PairColumns, PairRecord
from foils.data.splitting import NAMES, SHARES, split_queries
from foils.data.tables import Records, parts_of, records_of
from foils.data.texts import ColumnTexts
from foils.runtime.errors import FormatError

SPLIT_OF = {"training": "train", "validation": "dev", "valid": "dev", "val": "dev", "eval": "dev"}
SPLIT_NAME = re.compile(r"\w[\w .-]{0,59}")
READING = 3  # another number where the same files are read otherwise than before, for the cache


@dataclass(frozen=True)
class PairTable:
    """A table of pairs: its records, and what its columns are.

    Attributes:
        records: of the table.
        columns: what each is.
        split: of all its queries; empty: what the records say.
    """

    records: Records
    columns: PairColumns
    split: str = ""

    def read(self, complaints: Complaints) -> Iterator[tuple[int, PairRecord]]:
        """Yield (line, what the record says); records that say something wrong are added to the complaints."""
        for number, (line, fields) in enumerate(self.records.read(complaints), start=1):
            record = self.columns.read(fields)
            if isinstance(record, str):
                complaints.add(f"{self.records.counted} {number}: {record}".removeprefix(f" {number}: "), line)
            else:
                yield line, record


def read_pairs(
    given: Any,
    *,
    columns: Mapping[str, str] | None = None,
    corpus: Any = None,
    shares: Sequence[float] = SHARES,
    name: str = "",
) -> Collection:
    """Make a collection of pairs. Equal texts are one document; ids that are not given are hashes of the texts.

    Negatives among the columns are documents of the collection; the same table is a source of them.

    Args:
        given: a CSV, TSV, JSON, JSONL or Parquet file; a DataFrame, an Arrow table, a data set of `datasets`; or a
            dictionary, split -> one of these. A column `split` names the split of each query, or else a dictionary
            does; without, queries are split (`foils.data.splitting.split_queries`).
        columns: what a column is -> its name (see `foils.data.pair_columns.NAMES`).
        corpus: more documents: a file or a table with a column of texts, and ids and titles where it has them.
        shares: of the queries in train, dev and test, where nothing says their splits.
        name: of the collection. Default: the file's.

    Raises:
        InputError: no such file, or no table.
        FormatError: what is wrong in it, by line; columns that are not known, or could be several things.
    """
    tables = []
    for split, part in (parts := parts_of(given)).items():
        names = PairColumns.of(part.columns, columns, part.where, needed=("query", "positive"))
        alone = len(parts) == 1  # a data set of one split says nothing about what to test on
        tables.append(PairTable(part, names, "" if alone else _split_name(split)))
    more = None if corpus is None else records_of(corpus)
    made = _Pairs(tables, more, columns, tuple(shares))
    documents = Source(tables[0].records.where, made.documents)
    queries = Source(tables[0].records.where, made.queries)
    read = [*(table.records for table in tables), *([more] if more else [])]
    files = list(dict.fromkeys(file for each in read for file in each.files))
    read_as = tables[0].columns.understood(tables[0].records.columns)
    if not all(each.files for each in read):
        return replace(build_held(name or "pairs", documents, queries, made.qrels), read_as=read_as)
    facts = (sorted((columns or {}).items()), tuple(shares), list(parts), *map(file_facts, files))
    place = cache_place("pairs", READING, *facts)
    stored = build_stored(name or files[0].name.partition(".")[0], place, documents, queries, made.qrels)
    return replace(stored, read_as=read_as)


def pair_negatives(
    records: Records, columns: Mapping[str, str] | None = None
) -> Iterator[tuple[int, str, str, list[Document]]]:
    """Yield (line, query id, query, negatives) of a table of pairs; ids are those that `read_pairs` gives.

    Args:
        records: of the table; positives may be missing, since the collection has them.
        columns: what a column is -> its name.

    Raises:
        InputError: a column that there is not.
        FormatError: what is wrong in it; no column of negatives.
    """
    needed = ("query", "negative")
    names = PairColumns.of(records.columns, columns, records.where, needed=needed, known=SOURCE_NAMES)
    complaints = Complaints(records.where)
    for line, record in PairTable(records, names).read(complaints):
        negatives = [Document(document_id(each), each.title, each.text) for each in record.negatives]
        yield line, _query_id(record), record.query, negatives
    complaints.settle()


def document_id(document: Document) -> str:
    """Return the document's id, or a hash of what it says, the same wherever it stands."""
    return document.doc_id or text_id(f"{document.title}\x1f{document.text}" if document.title else document.text)


def _query_id(record: PairRecord) -> str:
    return record.query_id or text_id(record.query)


def _key(document: Document) -> bytes:
    text = f"{document.title} {document.text}".strip()
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def text_id(text: str) -> str:
    """Return the id of a text that has none: a hash of it."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True)
class _Pairs:
    """Documents, queries and judgements of tables of pairs, as streams of their records."""

    tables: Sequence[PairTable]
    corpus: Records | None
    chosen: Mapping[str, str] | None
    shares: tuple[float, ...]
    judged: JudgedPairs = field(default_factory=JudgedPairs)

    def _each(self, complaints: Complaints) -> Iterator[tuple[PairTable, int, PairRecord]]:
        for table in self.tables:
            own = complaints if table is self.tables[0] else Complaints(table.records.where)
            empty = True
            for line, record in table.read(own):
                empty = False
                yield table, line, record
            own.settle()
            if empty and len(self.tables) > 1:
                raise FormatError("no pairs in this split; leave it out", table.records.where)

    def documents(self, complaints: Complaints) -> Iterator[Record]:
        """Yield the distinct documents, and note the pairs."""
        texts, last = KnownTexts("document"), None
        for table, line, record in self._each(complaints):
            if table is not last:
                self.judged.begin(table.records.where)
                last = table
            split = table.split or _split_name(record.split)
            positives = [self._document_id(each) for each in record.positives]
            self.judged.add(_query_id(record), positives, record.grade, split, line)
            for each in (*record.positives, *record.negatives):
                identifier = self._document_id(each)
                of_corpus = identifier == self._ids_of_corpus.get(_key(each))
                if not of_corpus and texts.new(identifier, f"{each.title}\x1f{each.text}", complaints, line):
                    yield line, (identifier, each.title, each.text)
        own = Complaints(self.corpus.where if self.corpus else "")
        for line, document in self._of_corpus(own):
            identifier = document_id(document)
            if texts.new(identifier, f"{document.title}\x1f{document.text}", own, line):
                yield line, (identifier, document.title, document.text)
        own.settle()

    def _of_corpus(self, complaints: Complaints) -> Iterator[tuple[int, Document]]:
        if self.corpus is None:
            return
        chosen = {role: name for role, name in (self.chosen or {}).items() if name in self.corpus.columns}
        chosen = {role: name for role, name in chosen.items() if role in ("positive", "doc_id", "title")}
        columns = PairColumns.of(self.corpus.columns, chosen, self.corpus.where, needed=("positive",), known=OF_CORPUS)
        for line, fields in self.corpus.read(complaints):
            document = columns.document(fields)
            if document is None:
                complaints.add(f"the document ({columns.names['positive'][0]}) is empty or no text", line)
            else:
                yield line, document

    @cached_property
    def _ids_of_corpus(self) -> dict[bytes, str]:
        """The id of each document that the corpus gives one, by its text alone and with its title; the first wins."""
        ids: dict[bytes, str] = {}
        unread = Complaints(self.corpus.where if self.corpus else "")  # said again when the documents are read
        for _, document in self._of_corpus(unread):
            if document.doc_id is not None:
                ids.setdefault(_key(document), document.doc_id)
                ids.setdefault(_key(replace(document, title="")), document.doc_id)
        return ids

    def _document_id(self, document: Document) -> str:
        """The document's id; without one, that of the corpus's document of the same text, or a hash."""
        return document.doc_id or self._ids_of_corpus.get(_key(document)) or document_id(document)

    def queries(self, complaints: Complaints) -> Iterator[Record]:
        """Yield the distinct queries."""
        texts = KnownTexts("query")
        for _, line, record in self._each(complaints):
            if texts.new(_query_id(record), record.query, complaints, line):
                yield line, (_query_id(record), record.query)

    def qrels(self, documents: pa.Table, queries: pa.Table) -> dict[str, Source]:
        """Return the judgements by split, of the pairs that `documents` noted."""
        where = self.tables[0].records.where
        pairs = self.judged.resolved(documents, queries)
        if odd := [name for name in pairs.names if name and not SPLIT_NAME.fullmatch(name)]:
            raise FormatError(
                f"a split called {odd[0]!r:.60}; expected letters, digits, blanks and . _ - alone, at most 60", where
            )
        given = np.array([bool(name) for name in pairs.names])[pairs.split_of]
        if given.any() and not given.all():
            missing = int((~given).sum())
            raise FormatError(f"{missing} queries have no split, others have; give each one, or none", where)
        if given.all():
            order = sorted(range(len(pairs.names)), key=lambda code: _order(pairs.names[code]))
            return pairs.sources(where, np.argsort(order)[pairs.split_of], [pairs.names[code] for code in order])
        positive = pairs.grades > 0
        texts = ColumnTexts(queries["text"])
        split_of = split_queries(texts, pairs.query_rows[positive], pairs.doc_rows[positive], self.shares)
        return pairs.sources(where, np.array([NAMES.index(split) for split in split_of]), NAMES)


def _split_name(name: str) -> str:
    """What a split is called here: train, dev or test for its usual names, whatever their case."""
    usual = name.lower()
    return SPLIT_OF.get(usual, usual if usual in NAMES else name)


def _order(split: str) -> tuple[int, str]:
    return (NAMES.index(split) if split in NAMES else len(NAMES)), split
