"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection, Keep, Rows, Tables, build, cache_place
from foils.data.pair_index import PairIndex
from foils.data.records import Complaints, Records, parts_of, records_of, text_field
from foils.data.splitting import SHARES, SPLITS, split_name, split_queries
from foils.data.tables import BATCH, MOST, batches_of, take
from foils.data.texts import ColumnTexts
from foils.data.tokens import UNSEEN
from foils.runtime import progress
from foils.runtime.errors import FormatError, InputError
from foils.runtime.options import spelled

ROLES: dict[str, tuple[str, ...]] = {
    "query": ("query", "question", "anchor"),
    "positive": ("positive", "positives", "pos", "answer", "document", "passage", "text", "positive_passages"),
    "negative": ("negative", "negatives", "neg", "negative_passages"),
    "query_id": ("query_id", "qid", "question_id"),
    "doc_id": ("doc_id", "docid", "document_id", "corpus_id", "positive_id", "passage_id", "pid"),
    "title": ("title",),
    "score": ("score", "label", "relevance"),
    "split": ("split",),
}
"""What a column can be, and the names by which it is known; case, blanks and hyphens make no difference."""


OF_CORPUS = {"positive": ROLES["positive"], "doc_id": (*ROLES["doc_id"], "_id", "id"), "title": ROLES["title"]}
"""The same of a table of documents alone: an `id` there is a document's."""


SOURCE_NAMES = {role: ROLES[role] for role in ("query", "positive", "negative", "query_id")}
"""What of a table of pairs is read where it is a source of negatives."""


NEGATIVE = re.compile(r"negative_\d+")


OF_SOURCE = "PATH:query=COLUMN,negative=COLUMN"


def parsed_columns(text: str) -> dict[str, str]:
    """Return the columns that a text like `query=a,positive=b` names.

    Raises:
        InputError: it is not of this form.
    """
    parts = [part.partition("=") for part in text.split(",")]
    if not all(role and equals for role, equals, _ in parts):
        raise InputError(f"{spelled('columns')} {text}; expected what each column is, as query=COLUMN,positive=COLUMN")
    return {role.strip(): name.strip() for role, _, name in parts}


def check_chosen(chosen: Mapping[str, str], columns: Sequence[str], where: str) -> None:
    """Refuse names that people give to columns which are not there, or are several things.

    Args:
        chosen: what a column is -> its name; an empty name: no column is it.
        columns: names of those that there are.
        where: for complaints.

    Raises:
        InputError: a chosen column that there is not, or something that no column can be.
    """
    if unknown := [role for role in chosen if role not in ROLES]:
        raise InputError(f"{spelled('columns')} {', '.join(unknown)}: a column is one of {', '.join(ROLES)}")
    given = [name for name in chosen.values() if name]
    if missing := [name for name in given if name not in columns]:
        raise InputError(f"{where} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"{spelled('columns')}: {', '.join(twice)} is given twice; a column is one thing")


class Document(NamedTuple):
    """A document as a record gives it; id None: the record gives none."""

    doc_id: str | None
    title: str
    text: str


class PairRecord(NamedTuple):
    """What a record of a table of pairs says.

    Attributes:
        query_id: None: the record gives none.
        query: its text.
        positives: documents that answer the query, or one that was judged otherwise, by `grade`.
        negatives: documents that do not.
        grade: relevance of the positives.
        split: the name that the record gives; empty: none.
    """

    query_id: str | None
    query: str
    positives: tuple[Document, ...]
    negatives: tuple[Document, ...]
    grade: int
    split: str


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs: what each is -> its name; of negatives there can be several."""

    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        chosen: Mapping[str, str] | None,
        where: str,
        *,
        needed: Sequence[str],
        known: Mapping[str, tuple[str, ...]] = ROLES,
    ) -> PairColumns:
        """Tell the columns of a table.

        Args:
            columns: their names.
            chosen: what a column is -> its name, which goes before what the names say; an empty name: no column is it.
            where: for complaints.
            needed: what there must be; with "negative" it is a source, without "query" a corpus.
            known: what a column can be, and by which names.

        Raises:
            InputError: a chosen column that there is not, or something that no column can be.
            FormatError: nothing is what is needed, or several columns could be.
        """
        chosen, option = dict(chosen or {}), "PATH:" if "negative" in needed else f"{spelled('columns')} "
        check_chosen(chosen, columns, where)
        names: dict[str, tuple[str, ...]] = {role: (name,) if name else () for role, name in chosen.items()}
        free = [(name, plain(name)) for name in columns if name not in chosen.values()]
        for role, usual in known.items():
            fitting = [name for name, as_known in free if as_known in usual]
            if role == "negative":
                fitting += [name for name, as_known in free if NEGATIVE.fullmatch(as_known)]
            elif len(fitting) > 1 and role not in names:
                raise FormatError(
                    f"columns {' and '.join(fitting)} could each be the {role}; say which one is: "
                    f"{option}{role}={fitting[0]}",
                    where,
                )
            names.setdefault(role, tuple(fitting))
        names = {role: names.get(role, ()) for role in ROLES}
        if absent := [role for role in needed if not names[role]]:
            raise FormatError(
                f"no column is known as {' or '.join(absent)}; the columns are {', '.join(map(repr, columns))} (of CSV "
                f"and TSV the first line names them). Give one such a name ({', '.join(ROLES[absent[0]])}), or say "
                f"which is which: {option}query=COLUMN,{needed[-1]}=COLUMN",
                where,
            )
        return cls(names)

    def understood(self, columns: Sequence[str]) -> str:
        """Say what each of a table's columns is read as, and which are not read."""
        roles = {name: role for role, names in self.names.items() for name in names}
        rest = [name for name in columns if name not in roles]
        read = ", ".join(f"{name} as {role}" for name, role in roles.items())
        return read + (f"; not read: {', '.join(rest)}" if rest else "")

    def records(self, records: Records, complaints: Complaints) -> Iterator[tuple[int, PairRecord]]:
        """Yield (line, what a record says); records that say something wrong are added to the complaints."""
        for number, (line, fields) in enumerate(records.read(complaints), start=1):
            query, positive = fields.get(self._two[0]), fields.get(self._two[1])
            if type(query) is type(positive) is str and query.isascii() and positive.isascii():
                query, positive = query.strip(), positive.strip()
                if query and positive:  # what most records are is read quickly
                    yield line, PairRecord(None, query, (Document(None, "", positive),), (), 1, "")
                    continue
            try:
                yield line, self._read(fields)
            except _WrongError as wrong:
                complaints.add(f"{records.counted} {number}: {wrong}" if records.counted else str(wrong), line)

    @cached_property
    def _two(self) -> tuple[Any, Any]:
        """The names of the columns query and positive where there are no others, else None, which no column is."""
        used = {role: name for role, names in self.names.items() for name in names}
        return (used["query"], used["positive"]) if used.keys() == {"query", "positive"} else (None, None)

    def _read(self, fields: Mapping[str, Any]) -> PairRecord:
        query = self._text("query", fields)
        if self.names["query"] and blank(query):
            raise self._wrong("query", fields, "a text")
        positives, negatives = self._documents("positive", fields), self._documents("negative", fields)
        if self.names["positive"] and not positives:
            raise self._wrong("positive", fields, A_DOCUMENT)
        grade = _grade(self._value("score", fields)) if self.names["score"] else 1
        if grade is None:
            expected = f"a whole number, the relevance, 0 for a negative. Leave it out with {spelled('columns')} score="
            raise self._wrong("score", fields, expected)
        query_id, doc_id = self._identifier("query_id", fields), self._identifier("doc_id", fields)
        if doc_id is not None and len(positives) > 1:
            raise _WrongError(f"one document id ({self.names['doc_id'][0]}) for {len(positives)} positives")
        if len(positives) == 1:
            first, title = positives[0], self._text("title", fields)
            positives = [Document(doc_id or first.doc_id, title or first.title, first.text)]
        return PairRecord(query_id, query, tuple(positives), tuple(negatives), grade, self._text("split", fields))

    def _value(self, role: str, fields: Mapping[str, Any]) -> Any:
        name = self.names[role]
        return _known(fields.get(name[0])) if name else None

    def _text(self, role: str, fields: Mapping[str, Any]) -> str:
        return (text_field(self._value(role, fields)) or "").strip()

    def _wrong(self, role: str, fields: Mapping[str, Any], expected: str) -> _WrongError:
        role_and_columns = f"{role} ({', '.join(self.names[role])})"
        return _WrongError(f"the {role_and_columns} is {self._value(role, fields)!r:.40}; expected {expected}")

    def _identifier(self, role: str, fields: Mapping[str, Any]) -> str | None:
        given = self._value(role, fields)
        identifier = _identifier(given)
        if identifier is None and given not in (None, ""):
            raise self._wrong(role, fields, "a text or a whole number")
        return identifier

    def _documents(self, role: str, fields: Mapping[str, Any]) -> list[Document]:
        """The documents of the columns of a role; what is not given is left out."""
        documents = []
        for name in self.names[role]:
            value = _known(fields.get(name))
            for each in value if isinstance(value, (list, tuple)) else [] if value in (None, "") else [value]:
                if (document := _document(each)) is None:
                    raise _WrongError(f"the {role} ({name}) is {each!r:.40}; expected {A_DOCUMENT}")
                documents.append(document)
        return documents


A_DOCUMENT = "a text, or a list of texts"


class _WrongError(ValueError):
    """What is wrong with a record."""


def _document(value: Any) -> Document | None:
    if isinstance(value, str) and value.isascii():
        return None if blank(value) else Document(None, "", value.strip())
    given = value if isinstance(value, Mapping) else {"text": value}
    text, title = (text_field(given.get(key) or "") for key in ("text", "title"))
    if text is None or title is None or blank(f"{title}{text}"):
        return None
    ids = (_identifier(given.get(key)) for key in ("docid", "doc_id", "_id", "id"))
    return Document(next((each for each in ids if each is not None), None), title.strip(), text.strip())


def blank(text: str) -> bool:
    """Tell whether nothing of a text is seen: white space, joiners, direction marks and the like."""
    return not _seen(text)


def _seen(text: str) -> str:
    return text.strip() if text.isascii() else UNSEEN.sub("", text.replace("\u200b", "")).strip()


def _known(value: Any) -> Any:
    """A value, None where it is not a number: what pandas has in the place of what is missing."""
    return None if isinstance(value, float) and value != value else value


def _identifier(value: Any) -> str | None:
    """An id as text; 12.0, which pandas makes of 12 beside a missing one, is 12."""
    value = _known(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return text_field(value) or None


def _grade(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**31 else None


def plain(name: str) -> str:
    """Return a column's name without what makes no difference."""
    return re.sub(r"[\s-]+", "_", _seen(name).lower())


def hash_of(text: str) -> int:
    """Return a 64-bit hash of a text (BLAKE2b)."""
    return int(text_id(text), 16)


SPLIT_NAME = re.compile(r"\w[\w .-]{0,59}")


READING = 5  # another number where the same files are read otherwise than before, for the cache


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
        columns: what a column is -> its name (see `foils.data.pairs.ROLES`).
        corpus: more documents, which come before the pairs': a file or a table with a column of texts, and ids and
            titles where it has them. A document of the pairs without an id is the corpus's with the same text.
        shares: of the queries in train, dev and test, where nothing says their splits.
        name: of the collection. Default: the file's.

    Raises:
        InputError: no such file, or no table.
        FormatError: what is wrong in it, by line; columns that are not known, or could be several things.
    """
    parts, more = parts_of(given), None if corpus is None else records_of(corpus)
    reader = _PairReader(parts, more, columns or {}, tuple(shares))
    every = [*parts.values(), *([more] if more else [])]
    files = list(dict.fromkeys(file for each in every for file in each.files))
    stored = all(each.files for each in every)
    facts = ("pairs", READING, *sorted((columns or {}).items()), tuple(shares), *parts, *files)
    made = build(
        name or (files[0].name.partition(".")[0] if stored else "pairs"),
        cache_place(*facts) if stored else None,
        reader,
    )
    first = next(iter(parts.values()))
    return replace(made, read_as=reader.columns[0].understood(first.columns))


class _PairReader:
    """Reads tables of pairs once: documents go on as they come, queries are held, and pairs are noted as numbers.

    Args:
        parts: tables of the pairs, by split.
        corpus: more documents.
        chosen: what a column is -> its name.
        shares: of the queries in train, dev and test, where nothing says their splits.
    """

    def __init__(
        self, parts: Mapping[str, Records], corpus: Records | None, chosen: Mapping[str, str], shares: tuple[float, ...]
    ) -> None:
        self.tables, self.corpus, self.shares = list(parts.values()), corpus, shares
        needed = ("query", "positive")
        self.columns = [PairColumns.of(each.columns, chosen, each.where, needed=needed) for each in self.tables]
        # a data set of one split says nothing about what to test on
        self._split_of_table = [split_name(split) for split in parts] if len(parts) > 1 else [""]
        self._chosen = chosen
        self._queries: dict[str, int] = {}  # id -> row
        self._query_texts: list[str] = []
        self._documents: dict[str, int] = {}  # id -> row
        self._text_of_id: dict[str, int] = {}  # id that is given -> hash of its text
        self._id_of_text: dict[str, str] = {}  # of the corpus's documents that are given an id
        self._splits: dict[str, int] = {}
        self._pairs = array("q")  # query, document, relevance, split, table and line of each pair

    def __call__(self, keep: Keep) -> Tables:
        """Return the tables of the collection."""
        documents = keep(
            "documents",
            DOCUMENTS,
            batches_of(chain(self._of_corpus(), *map(self._of_pairs, range(len(self.tables)))), DOCUMENTS),
        )
        asked = zip(self._queries, self._query_texts, strict=True)
        queries = keep("queries", QUERIES, batches_of(asked, QUERIES))
        judged = self._qrels(documents, queries)
        return Tables(documents, queries, {name: keep(f"qrels-{name}", QRELS, of) for name, of in judged.items()})

    def _of_corpus(self) -> Iterator[tuple[str, str, str]]:
        if self.corpus is None:
            return
        names, where = self.corpus.columns, self.corpus.where
        chosen = {role: name for role, name in self._chosen.items() if role in OF_CORPUS and name in names}
        columns = PairColumns.of(names, chosen, where, needed=("positive",), known=OF_CORPUS)
        complaints = Complaints(where)
        for line, record in columns.records(self.corpus, complaints):
            for document in record.positives:
                if document.doc_id is not None:
                    for key in (_key(document), _key(document._replace(title=""))):
                        self._id_of_text.setdefault(key, document.doc_id)
                    self._check_text(document.doc_id, document, complaints, line)
                count, identifier = len(self._documents), document_id(document)
                if self._documents.setdefault(identifier, count) == count:
                    yield identifier, document.title, document.text
        complaints.settle()

    def _of_pairs(self, at: int) -> Iterator[tuple[str, str, str]]:
        """Yield the documents of a table that are new, and note queries and pairs."""
        records, split_of_table, begin = self.tables[at], self._split_of_table[at], len(self._pairs)
        complaints = Complaints(records.where)
        with progress.task("reading pairs", unit="pairs") as advance:
            for line, record in self.columns[at].records(records, complaints):
                name = split_of_table or (record.split and split_name(record.split))
                split = self._splits.setdefault(name, len(self._splits))
                query_id = record.query_id or text_id(record.query)
                query = self._queries.setdefault(query_id, len(self._queries))
                if query == len(self._query_texts):
                    self._query_texts.append(record.query)
                elif self._query_texts[query] != record.query:
                    complaints.add(f"the query {query_id!r} has another text before; an id has one text", line)
                positives = len(record.positives)
                for place, each in enumerate((*record.positives, *record.negatives)):
                    known = self._id_of_text.get(_key(each)) if self._id_of_text and each.doc_id is None else None
                    count, identifier = len(self._documents), known or document_id(each)
                    if each.doc_id is not None:
                        self._check_text(identifier, each, complaints, line)
                    row = self._documents.setdefault(identifier, count)
                    if row == count:
                        yield identifier, each.title, each.text
                    if place < positives:
                        self._pairs.extend((query, row, record.grade, split, at, line))
                advance(1)
        complaints.settle()
        if len(self._pairs) == begin:
            what = "in this split; leave it out" if len(self.tables) > 1 else "in it; expected at least one record"
            raise FormatError(f"no pairs {what}", records.where)

    def _check_text(self, identifier: str, document: Document, complaints: Complaints, line: int) -> None:
        own = hash_of(f"{document.title}\x1f{document.text}")
        if self._text_of_id.setdefault(identifier, own) != own:
            complaints.add(f"the document {identifier!r} has another text before; an id has one text", line)

    def _qrels(self, documents: pa.Table, queries: pa.Table) -> dict[str, list[pa.RecordBatch]]:
        """Return the judgements by split, of the pairs that were noted, each once, as they first come.

        Raises:
            FormatError: a query in two splits, or a pair with two relevances, by line; a split's name that cannot be
                one, or queries without a split where others have one.
        """
        query_rows, doc_rows, grades, splits, _, _ = pairs = np.asarray(self._pairs, np.int64).reshape(-1, 6).T
        first = PairIndex(query_rows, doc_rows).first
        split_of = np.zeros(len(queries), np.int64)
        split_of[query_rows[::-1]] = splits[::-1]  # the first that a query is given
        self._refuse_contradictions(pairs, first, split_of)
        names, where = list(self._splits), self.tables[0].where
        if odd := [name for name in names if name and not SPLIT_NAME.fullmatch(name)]:
            raise FormatError(
                f"a split called {odd[0]!r:.60}; expected letters, digits, blanks and . _ - alone, at most 60", where
            )
        if missing := int((split_of == self._splits.get("", -1)).sum()):
            if missing < len(queries):
                raise FormatError(f"{missing} queries have no split, others have; give each one, or none", where)
            relevant, texts = grades > 0, ColumnTexts(queries["text"])
            chosen = split_queries(texts, query_rows[relevant], doc_rows[relevant], self.shares)
            split_of, names = np.array([SPLITS.index(split) for split in chosen]), list(SPLITS)
        kept = np.flatnonzero(first == np.arange(len(first)))
        by_split = {name: kept[split_of[query_rows[kept]] == code] for code, name in enumerate(names)}
        return {
            name: _judgements(documents, queries, query_rows[rows], doc_rows[rows], grades[rows])
            for name, rows in sorted(by_split.items(), key=lambda each: _order(each[0]))
            if len(rows)
        }

    def _refuse_contradictions(self, pairs: Rows, first: Rows, split_of: Rows) -> None:
        """Raise for queries in two splits, and pairs with two relevances, of the first file that has some."""
        query_rows, _, grades, splits, tables, lines = pairs
        other_split, other_grade = splits != split_of[query_rows], grades != grades[first]
        names, complaints = list(self._splits), [Complaints(table.where) for table in self.tables]
        for at in np.flatnonzero(other_split | other_grade).tolist():
            own, line, query = complaints[tables[at]], int(lines[at]), query_rows[at]
            if other_split[at]:
                text, there = self._query_texts[query], names[split_of[query]]
                own.add(f"the query {text[:60]!r} is in {there} and in {names[splits[at]]}; give it one split", line)
            if other_grade[at]:
                own.add(f"the pair has another relevance on line {lines[first[at]]}", line)
        for each in complaints:
            each.settle()


def _judgements(
    documents: pa.Table, queries: pa.Table, query_rows: Rows, doc_rows: Rows, grades: Rows
) -> list[pa.RecordBatch]:
    ids = take(queries["query_id"], query_rows), take(documents["doc_id"], doc_rows)
    table = pa.table([*ids, pa.array(grades.astype(np.int32))], schema=QRELS)
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=BATCH)
    return batches


def document_id(document: Document) -> str:
    """Return the document's id, or a hash of what it says, the same wherever it stands."""
    return document.doc_id or text_id(f"{document.title}\x1f{document.text}" if document.title else document.text)


def _key(document: Document) -> str:
    return text_id(f"{document.title} {document.text}".strip())


def text_id(text: str) -> str:
    """Return the id of a text that has none: a hash of it."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


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
        shown = ", ".join(map(str, rows[:5]))
        raise InputError(
            f"{len(rows):,} rows without a {what} (first: {shown}, counted from 0); give each one a text, or leave "
            "them out"
        )
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
