"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection, Keep, Rows, Tables, build, cache_place
from foils.data.examples import OF_CORPUS, Columns, Example, hash_of, text_id
from foils.data.pair_index import PairIndex
from foils.data.records import Complaints, Records, parts_of, records_of
from foils.data.splitting import SPLITS, split_name, split_queries
from foils.data.tables import BATCH, MOST, batches_of, take
from foils.data.texts import ColumnTexts
from foils.runtime import progress
from foils.runtime.errors import FormatError, InputError

SPLIT_NAME = re.compile(r"\w[\w .-]{0,59}")


READING = 6  # another number where the same files are read otherwise than before, for the cache


def read_pairs(
    given: Any,
    *,
    columns: Mapping[str, str] | None = None,
    corpus: Any = None,
    name: str = "",
) -> Collection:
    """Make a collection of pairs. Equal texts are one document; ids that are not given are hashes of the texts.

    Negatives among the columns are documents of the collection; the same table is a source of them.

    Args:
        given: a CSV, TSV, JSON, JSONL or Parquet file; a DataFrame, an Arrow table, a data set of `datasets`; or a
            dictionary, split -> one of these. A column `split` names the split of each query, or else a dictionary
            does; without, queries are split (`foils.data.splitting.split_queries`).
        columns: what a column is -> its name (see `foils.data.examples.ROLES`).
        corpus: more documents, which come before the pairs': a file or a table with a column of texts, and ids and
            titles where it has them. A document of the pairs without an id is the corpus's with the same text.
        name: of the collection. Default: the file's.

    Raises:
        InputError: no such file, or no table.
        FormatError: what is wrong in it, by line; columns that are not known, or could be several things.
    """
    parts, more = parts_of(given), None if corpus is None else records_of(corpus)
    reader = _PairReader(parts, more, columns or {})
    every = [*parts.values(), *([more] if more else [])]
    files = list(dict.fromkeys(file for each in every for file in each.files))
    stored = all(each.files for each in every)
    facts = ("pairs", READING, *sorted((columns or {}).items()), *parts, *files)
    made = build(
        name or (files[0].name.partition(".")[0] if stored else "pairs"),
        cache_place(*facts) if stored else None,
        reader,
    )
    first = next(iter(parts.values()))
    return replace(made, read_as=Columns.of(first, columns or {}).understood(first.columns))


class _PairReader:
    """Reads tables of pairs once: documents go on as they come, queries are held, and pairs are noted as numbers.

    Args:
        parts: tables of the pairs, by split.
        corpus: more documents, which come first.
        chosen: what a column is -> its name.
    """

    def __init__(self, parts: Mapping[str, Records], corpus: Records | None, chosen: Mapping[str, str]) -> None:
        # a data set of one split says nothing about what to test on
        names = map(split_name, parts) if len(parts) > 1 else [""]
        self.tables = [(each, Columns.of(each, chosen), name) for each, name in zip(parts.values(), names, strict=True)]
        self.where = self.tables[0][0].where
        if corpus is not None:
            own = {role: name for role, name in chosen.items() if role in OF_CORPUS and name in corpus.columns}
            self.tables.insert(0, (corpus, Columns.of(corpus, own, OF_CORPUS), ""))
        self._queries: dict[str, int] = {}  # id -> row
        self._query_texts: list[str] = []
        self._query_splits = array("q")
        self._documents: dict[str, int] = {}  # id -> row
        self._text_of_id: dict[str, int] = {}  # id that is given -> hash of its text
        self._id_of_text: dict[str, str] = {}  # of the corpus's documents that are given an id
        self._splits: dict[str, int] = {}
        self._pairs = array("q")  # query, document, relevance, table and line of each pair

    def __call__(self, keep: Keep) -> Tables:
        """Return the tables of the collection."""
        found = chain.from_iterable(map(self._read, range(len(self.tables))))
        documents = keep("documents", DOCUMENTS, batches_of(found, DOCUMENTS))
        for held in (self._documents, self._text_of_id, self._id_of_text):
            held.clear()  # memory for what follows
        asked = zip(self._queries, self._query_texts, strict=True)
        queries = keep("queries", QUERIES, batches_of(asked, QUERIES))
        self._queries.clear()
        self._query_texts.clear()
        judged = self._qrels(documents, queries)
        return Tables(documents, queries, {name: keep(f"qrels-{name}", QRELS, of) for name, of in judged.items()})

    def _read(self, at: int) -> Iterator[tuple[str, str, str]]:
        """Yield the documents of a table that are new, and note queries and pairs."""
        records, columns, split_of_table = self.tables[at]
        complaints, begin, of_pairs = Complaints(records.where), len(self._pairs), "query" in columns.names
        with progress.task("reading pairs", unit="pairs") as advance:
            for line, record in columns.pairs(records, complaints):
                query, positives = -1, len(record.positives) if of_pairs else 0
                if of_pairs:
                    query = self._query(record, split_of_table, complaints, line)
                for place, each in enumerate(record.documents):
                    identifier, whole = each.doc_id, f"{each.title}\x1f{each.text}" if each.title else each.text
                    if identifier is None and self._id_of_text:
                        identifier = self._id_of_text.get(text_id(each.whole))
                    elif identifier is not None:
                        if self._text_of_id.setdefault(identifier, own := hash_of(whole)) != own:
                            said = f"the document {identifier!r} has another text before; an id has one text"
                            complaints.add(said, line)
                        if not of_pairs:
                            for key in (each.whole, each.text):
                                self._id_of_text.setdefault(text_id(key), identifier)
                    count, identifier = len(self._documents), identifier or text_id(whole)
                    row = self._documents.setdefault(identifier, count)
                    if row == count:
                        yield identifier, each.title, each.text
                    if place < positives:
                        self._pairs.extend((query, row, record.grade, at, line))
                advance(1)
        complaints.settle()
        if of_pairs and len(self._pairs) == begin:
            what = "in this split; leave it out" if split_of_table else "in it; expected at least one record"
            raise FormatError(f"no pairs {what}", records.where)

    def _query(self, record: Example, split_of_table: str, complaints: Complaints, line: int) -> int:
        """Return the row of a record's query, and note its text and split."""
        name = split_of_table or (record.split and split_name(record.split))
        split = self._splits.setdefault(name, len(self._splits))
        query_id = record.query_id or text_id(record.query)
        row = self._queries.setdefault(query_id, len(self._queries))
        if row == len(self._query_texts):
            self._query_texts.append(record.query)
            self._query_splits.append(split)
        elif self._query_texts[row] != record.query:
            complaints.add(f"the query {query_id!r} has another text before; an id has one text", line)
        elif self._query_splits[row] != split:
            text, there = record.query, [*self._splits][self._query_splits[row]]
            complaints.add(f"the query {text[:60]!r} is in {there} and in {name}; give it one split", line)
        return row

    def _qrels(self, documents: pa.Table, queries: pa.Table) -> dict[str, list[pa.RecordBatch]]:
        """Return the judgements by split, of the pairs that were noted, each once, as they first come.

        Raises:
            FormatError: a pair with two relevances, by line; a split's name that cannot be one, or queries without a
                split where others have one.
        """
        query_rows, doc_rows, grades, tables, lines = np.asarray(self._pairs, np.int64).reshape(-1, 5).T
        first, split_of = PairIndex(query_rows, doc_rows).first, np.asarray(self._query_splits, np.int64)
        if len(wrong := np.flatnonzero(grades != grades[first])):
            complaints = Complaints(self.tables[tables[wrong[0]]][0].where)
            for at in wrong[tables[wrong] == tables[wrong[0]]].tolist():
                complaints.add(f"the pair has another relevance on line {lines[first[at]]}", int(lines[at]))
            complaints.settle()
        names = list(self._splits)
        if odd := [name for name in names if name and not SPLIT_NAME.fullmatch(name)]:
            said = f"a split called {odd[0]!r:.60}; expected letters, digits, blanks and . _ - alone, at most 60"
            raise FormatError(said, self.where)
        if missing := int((split_of == self._splits.get("", -1)).sum()):
            if missing < len(queries):
                raise FormatError(f"{missing} queries have no split, others have; give each one, or none", self.where)
            relevant, texts = grades > 0, ColumnTexts(queries["text"])
            chosen = split_queries(texts, query_rows[relevant], doc_rows[relevant])
            split_of, names = np.array([SPLITS.index(split) for split in chosen]), list(SPLITS)
        kept = np.flatnonzero(first == np.arange(len(first)))
        by_split = {name: kept[split_of[query_rows[kept]] == code] for code, name in enumerate(names)}
        return {
            name: _judgements(documents, queries, query_rows[rows], doc_rows[rows], grades[rows])
            for name, rows in sorted(by_split.items(), key=lambda each: _order(each[0]))
            if len(rows)
        }


def _judgements(
    documents: pa.Table, queries: pa.Table, query_rows: Rows, doc_rows: Rows, grades: Rows
) -> list[pa.RecordBatch]:
    ids = take(queries["query_id"], query_rows), take(documents["doc_id"], doc_rows)
    table = pa.table([*ids, pa.array(grades.astype(np.int32))], schema=QRELS)
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=BATCH)
    return batches


def _order(split: str) -> tuple[int, str]:
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS)), split


SPLIT = "train"


def collection_of_texts(
    queries: pa.ChunkedArray, positives: pa.ChunkedArray, more: pa.ChunkedArray | None = None, *, name: str = "pairs"
) -> Collection:
    """Make a collection of pairs of texts, all in one split. Equal texts are one query, and one document.

    Nothing is stripped or split. Ids are those that `read_pairs` gives the same texts, so that tables of negatives fit
    a collection that was read from the same pairs.

    Args:
        queries: (n,) texts.
        positives: (n,) texts, each a document that answers the query at its place.
        more: (m,) texts of further documents, which come before the positives.
        name: of the collection.

    Raises:
        InputError: no pair at all, or a text that is missing or blank; the message says which.
    """
    if not len(queries):
        raise InputError(f"{name} is empty; expected at least one pair of a query and its positive")
    texts = [_texts("query", queries), _texts("positive", positives)]
    if more is not None:
        texts[1] = pa.chunked_array([*_texts("text of the corpus", more).chunks, *texts[1].chunks])
    (query_rows, query_ids, asked), (doc_rows, doc_ids, found) = map(_distinct, texts)
    doc_rows = doc_rows[-len(positives) :]
    kept = PairIndex(query_rows, doc_rows).distinct
    documents = pa.table([doc_ids, pa.repeat(pa.scalar("", pa.large_string()), len(found)), found], schema=DOCUMENTS)
    asked = pa.table([query_ids, asked], schema=QUERIES)
    judged = _judgements(documents, asked, query_rows[kept], doc_rows[kept], np.ones(len(kept), np.int64))
    made = build(name, None, lambda _: Tables(documents, asked, {SPLIT: pa.Table.from_batches(judged)}))
    return replace(made, keep_identical_ids=True)


def _texts(what: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as it is stored; refused where a text is missing or blank."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f"the {what} column holds {column.type}; expected texts")
    blank = pc.fill_null(pc.or_(pc.utf8_is_space(column), pc.equal(pc.binary_length(column), 0)), True)
    if rows := np.flatnonzero(blank.to_numpy()).tolist():
        said = f"{len(rows):,} rows without a {what} (first: {', '.join(map(str, rows[:5]))}, counted from 0)"
        raise InputError(f"{said}; give each one a text, or leave them out")
    return column.cast(pa.large_string())


def _distinct(column: pa.ChunkedArray) -> tuple[Rows, pa.Array, pa.ChunkedArray]:
    """Return each row's place among the distinct texts; these texts' ids, and they themselves, as they first come.

    Ids stand for texts: a table of the texts themselves would take several times their memory.
    """
    texts = ColumnTexts(column)
    ids = [text_id(text) for start in range(0, len(texts), MOST) for text in texts[start : start + MOST]]
    encoded = pa.array(ids, pa.string()).dictionary_encode()
    rows = np.asarray(encoded.indices, np.int64)
    first = np.unique(rows, return_index=True)[1]
    return rows, encoded.dictionary, column if len(first) == len(column) else pa.chunked_array([take(column, first)])
