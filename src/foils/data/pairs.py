"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import (
    DOCUMENTS,
    QRELS,
    QUERIES,
    Collection,
    Rows,
    Source,
    build_held,
    build_stored,
    cache_place,
    file_facts,
)
from foils.data.pair_index import PairIndex
from foils.data.records import Complaints, Records, parts_of, records_of, text_field
from foils.data.splitting import SHARES, SPLITS, split_queries
from foils.data.tables import BATCH, batches_of, take
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


OF_CORPUS = {**ROLES, "doc_id": (*ROLES["doc_id"], "_id", "id")}
"""The same of a table of documents alone: an `id` there is a document's."""


SOURCE_NAMES = {role: ROLES[role] for role in ("query", "positive", "negative", "query_id")}
"""What of a table of pairs is read where it is a source of negatives."""


NEGATIVE = re.compile(r"negative_\d+")


EXAMPLE = "query=COLUMN,positive=COLUMN"


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
            needed: what there must be; with "negative" it is a source.
            known: what a column can be, and by which names.

        Raises:
            InputError: a chosen column that there is not, or something that no column can be.
            FormatError: nothing is what is needed, or several columns could be.
        """
        chosen, source = dict(chosen or {}), "negative" in needed
        check_chosen(chosen, columns, where)
        free = [name for name in columns if name not in chosen.values()]
        names: dict[str, tuple[str, ...]] = dict.fromkeys(ROLES, ())
        for role, usual in known.items():
            if role in chosen:
                names[role] = (chosen[role],) if chosen[role] else ()
                continue
            fitting = [name for name in free if plain(name) in usual]
            if role == "negative":
                fitting += [name for name in free if NEGATIVE.fullmatch(plain(name))]
            elif len(fitting) > 1:
                choose = f"PATH:{role}={fitting[0]}" if source else f"{spelled('columns')} {role}={fitting[0]}"
                raise FormatError(
                    f"columns {' and '.join(fitting)} could each be the {role}; say which one is: {choose}", where
                )
            names[role] = tuple(fitting)
        if absent := [role for role in needed if not names[role]]:
            choose = OF_SOURCE if source else f"{spelled('columns')} {EXAMPLE}"
            raise FormatError(
                f"no column is known as {' or '.join(absent)}; the columns are {', '.join(map(repr, columns))} (of CSV "
                f"and TSV the first line names them). Give one such a name ({', '.join(ROLES[absent[0]])}), or say "
                f"which is which: {choose}",
                where,
            )
        return cls(names)

    def understood(self, columns: Sequence[str]) -> str:
        """Say what each of a table's columns is read as, and which are not read."""
        roles = [f"{name} as {role}" for role, names in self.names.items() for name in names]
        read = {name for names in self.names.values() for name in names}
        rest = [name for name in columns if name not in read]
        return ", ".join(roles) + (f"; not read: {', '.join(rest)}" if rest else "")

    @cached_property
    def _two_texts(self) -> tuple[str, ...]:
        """The names of the columns query and positive where there are no others: what can be read quickly."""
        names = [name for names in self.names.values() for name in names]
        quick = len(names) == 2 and self.names["query"] and self.names["positive"]
        return (*self.names["query"], *self.names["positive"]) if quick else ()

    def _value(self, role: str, fields: Mapping[str, Any]) -> Any:
        name = self.names[role]
        return _known(fields.get(name[0])) if name else None

    def read(self, fields: Mapping[str, Any]) -> PairRecord | str:
        """Return what a record says, or, as a text, what is wrong with it."""
        if self._two_texts:
            query, positive = map(fields.get, self._two_texts)
            if type(query) is type(positive) is str and query.isascii() and positive.isascii():
                query, positive = query.strip(), positive.strip()
                if query and positive:
                    return PairRecord(None, query, (Document(None, "", positive),), (), 1, "")
        query = text_field(self._value("query", fields))
        if query is None or blank(query):
            return f"the query {self._given('query', fields)}; expected a text"
        positives = list(self._documents("positive", fields))
        negatives = list(self._documents("negative", fields))
        if (self.names["positive"] and not positives) or None in positives:
            return f"the positive {self._given('positive', fields)}; expected a text, or a list of texts"
        if None in negatives:
            return f"a negative {self._given('negative', fields)}; expected a text, or a list of texts"
        grade = _grade(self._value("score", fields)) if self.names["score"] else 1
        if grade is None:
            found = fields.get(self.names["score"][0])
            return (
                f"{self.names['score'][0]} is {found!r:.40}; expected a whole number, the relevance, 0 for a negative. "
                f"Leave the column out with {spelled('columns')} score="
            )
        ids: dict[str, str | None] = {"query_id": None, "doc_id": None}
        for role in [role for role in ids if self.names[role]]:
            ids[role] = _identifier(given := self._value(role, fields))
            if ids[role] is None and given not in (None, ""):
                return f"the {role} {self._given(role, fields)}; expected a text or a whole number"
        if ids["doc_id"] is not None and len(positives) > 1:
            return f"one document id ({self.names['doc_id'][0]}) for {len(positives)} positives"
        if len(positives) == 1 and (self.names["doc_id"] or self.names["title"]):
            first = positives[0]
            title = text_field(self._value("title", fields)) or first.title
            positives = [Document(ids["doc_id"] or first.doc_id, title.strip(), first.text)]
        split = text_field(self._value("split", fields)) or ""
        return PairRecord(ids["query_id"], query.strip(), tuple(positives), tuple(negatives), grade, split.strip())

    def _given(self, role: str, fields: Mapping[str, Any]) -> str:
        """What a record gives for a role, for a complaint: `(column) is …`."""
        values = [_known(fields.get(name)) for name in self.names[role]]
        said = next((_said(value) for value in values if value is not None), "is missing")
        return f"({', '.join(self.names[role])}) {said}"

    def document(self, fields: Mapping[str, Any]) -> Document | None:
        """Return the document of a record of a corpus, or None where it has no text."""
        documents = list(self._documents("positive", fields))
        if len(documents) != 1 or documents[0] is None:
            return None
        title = text_field(self._value("title", fields)) or ""
        return Document(_identifier(self._value("doc_id", fields)), title.strip(), documents[0].text)

    def _documents(self, role: str, fields: Mapping[str, Any]) -> Iterator[Any]:
        """The documents of the columns of a role, None for what is no text; what is not given is left out."""
        for name in self.names[role]:
            value = _known(fields.get(name))
            for each in value if isinstance(value, (list, tuple)) else [] if value in (None, "") else [value]:
                yield _document(each)


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
    return not (text.strip() if text.isascii() else _seen(text))


def _seen(text: str) -> str:
    return UNSEEN.sub("", text.replace("\u200b", "")).strip()


def _said(value: Any) -> str:
    if isinstance(value, str) and not blank(value):
        return f"is {value!r:.40}" if text_field(value) else "is no valid Unicode"
    if isinstance(value, str):
        return "is empty"
    return f"is {type(value).__name__} {value!r:.40}" if value not in ([], {}) else "is empty"


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
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


SPLIT_OF = {"training": "train", "validation": "dev", "valid": "dev", "val": "dev", "eval": "dev"}


SPLIT_NAME = re.compile(r"\w[\w .-]{0,59}")


READING = 4  # another number where the same files are read otherwise than before, for the cache


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
        columns: what a column is -> its name (see `foils.data.pairs.ROLES`).
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
    reader = _PairReader(tables, more, columns or {}, tuple(shares))
    where = tables[0].records.where
    sources = Source(where, batches=reader.documents), Source(where, batches=reader.queries), reader.qrels
    read = [*(table.records for table in tables), *([more] if more else [])]
    files = list(dict.fromkeys(file for each in read for file in each.files))
    if all(each.files for each in read):
        facts = (sorted((columns or {}).items()), tuple(shares), list(parts), *map(file_facts, files))
        place = cache_place("pairs", READING, *facts)
        made = build_stored(name or files[0].name.partition(".")[0], place, *sources)
    else:
        made = build_held(name or "pairs", *sources)
    return replace(made, read_as=tables[0].columns.understood(tables[0].records.columns))


class _PairReader:
    """Reads tables of pairs once: documents go on as they come, queries are held, and pairs are noted as numbers.

    Args:
        tables: of the pairs.
        corpus: more documents.
        chosen: what a column is -> its name.
        shares: of the queries in train, dev and test, where nothing says their splits.
    """

    def __init__(
        self, tables: Sequence[PairTable], corpus: Records | None, chosen: Mapping[str, str], shares: tuple[float, ...]
    ) -> None:
        self.tables, self.corpus, self.shares = tables, corpus, shares
        self._chosen = {role: name for role, name in chosen.items() if role in ("positive", "doc_id", "title")}
        self._queries: dict[str, int] = {}  # id -> row
        self._query_texts: list[str] = []
        self._documents: dict[str, int] = {}  # id -> number, in the order in which they are first named
        self._rows = array("q")  # by number: row in the table, -1 while it is not there
        self._text_of_id: dict[str, int] = {}  # id that is given -> hash of its text
        self._splits: dict[str, int] = {}
        self._count = 0  # of the documents that are there
        self._pairs = array("q")  # query, number of the document, relevance, split, table and line of each pair

    def documents(self) -> Iterator[pa.RecordBatch]:
        """Yield the distinct documents, and note queries and pairs."""
        return batches_of(self._distinct(), DOCUMENTS)

    def _distinct(self) -> Iterator[tuple[str, str, str]]:
        for at, table in enumerate(self.tables):
            complaints, begin = Complaints(table.records.where), len(self._pairs)
            with progress.task("reading pairs", unit="pairs") as advance:
                for line, record in table.read(complaints):
                    split = self._splits.setdefault(table.split or _split_name(record.split), len(self._splits))
                    query = self._query(record, complaints, line)
                    positives = len(record.positives)
                    for place, each in enumerate((*record.positives, *record.negatives)):
                        identifier = self._id_of(each)
                        number = self._number(identifier)
                        if place < positives:
                            self._pairs.extend((query, number, record.grade, split, at, line))
                        of_corpus = self.corpus is not None and identifier == self._ids_of_corpus.get(_key(each))
                        if not of_corpus and self._is_new(number, identifier, each, complaints, line):
                            yield identifier, each.title, each.text
                    advance(1)
            complaints.settle()
            if len(self._pairs) == begin:
                what = "in this split; leave it out" if len(self.tables) > 1 else "in it; expected at least one record"
                raise FormatError(f"no pairs {what}", table.records.where)
        complaints = Complaints(self.corpus.where if self.corpus else "")
        for line, document in self._of_corpus(complaints):
            identifier = document_id(document)
            if self._is_new(self._number(identifier), identifier, document, complaints, line):
                yield identifier, document.title, document.text
        complaints.settle()

    def _query(self, record: PairRecord, complaints: Complaints, line: int) -> int:
        identifier = _query_id(record)
        row = self._queries.setdefault(identifier, len(self._queries))
        if row == len(self._query_texts):
            self._query_texts.append(record.query)
        elif self._query_texts[row] != record.query:
            complaints.add(f"the query {identifier!r} has another text before; an id has one text", line)
        return row

    def _number(self, identifier: str) -> int:
        number = self._documents.setdefault(identifier, len(self._documents))
        if number == len(self._rows):
            self._rows.append(-1)
        return number

    def _is_new(self, number: int, identifier: str, document: Document, complaints: Complaints, line: int) -> bool:
        """Tell whether a document is not there yet; an id with another text than before is a complaint."""
        if document.doc_id is not None:
            own = hash_of(f"{document.title}\x1f{document.text}")
            if self._text_of_id.setdefault(identifier, own) != own:
                complaints.add(f"the document {identifier!r} has another text before; an id has one text", line)
        if self._rows[number] >= 0:
            return False
        self._rows[number] = self._count
        self._count += 1
        return True

    def _of_corpus(self, complaints: Complaints) -> Iterator[tuple[int, Document]]:
        if self.corpus is None:
            return
        chosen = {role: name for role, name in self._chosen.items() if name in self.corpus.columns}
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
                ids.setdefault(_key(document._replace(title="")), document.doc_id)
        return ids

    def _id_of(self, document: Document) -> str:
        """The document's id; without one, that of the corpus's document of the same text, or a hash."""
        known = self._ids_of_corpus.get(_key(document)) if self.corpus and document.doc_id is None else None
        return known or document_id(document)

    def queries(self) -> Iterator[pa.RecordBatch]:
        """Yield the distinct queries."""
        return batches_of(zip(self._queries, self._query_texts, strict=True), QUERIES)

    def qrels(self, documents: pa.Table, queries: pa.Table) -> dict[str, Source]:
        """Return the judgements by split, of the pairs that `documents` noted, each once, as they first come.

        Raises:
            FormatError: a query in two splits, or a pair with two relevances, by line; a split's name that cannot be
                one, or queries without a split where others have one.
        """
        query_rows, numbers, grades, splits, _, _ = pairs = np.asarray(self._pairs, np.int64).reshape(-1, 6).T
        doc_rows = np.asarray(self._rows, np.int64)[numbers]
        first = PairIndex(query_rows, doc_rows).first
        split_of = np.zeros(len(queries), np.int64)
        split_of[query_rows[::-1]] = splits[::-1]  # the first that a query is given
        self._refuse_contradictions(pairs, first, split_of)
        names, where = list(self._splits), self.tables[0].records.where
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
        split_of_pair = split_of[query_rows[kept]]

        def judged(split: int) -> Iterator[pa.RecordBatch]:
            rows = kept[split_of_pair == split]
            ids = take(queries["query_id"], query_rows[rows]), take(documents["doc_id"], doc_rows[rows])
            table = pa.table([*ids, pa.array(grades[rows].astype(np.int32))], schema=QRELS)
            return iter(table.to_batches(max_chunksize=BATCH))

        codes = {names[code]: code for code in np.unique(split_of_pair).tolist()}
        return {name: Source(where, batches=partial(judged, codes[name])) for name in sorted(codes, key=_order)}

    def _refuse_contradictions(self, pairs: Rows, first: Rows, split_of: Rows) -> None:
        """Raise for queries in two splits, and pairs with two relevances, of the first file that has some."""
        query_rows, _, grades, splits, tables, lines = pairs
        other_split, other_grade = splits != split_of[query_rows], grades != grades[first]
        names, complaints = list(self._splits), [Complaints(table.records.where) for table in self.tables]
        for at in np.flatnonzero(other_split | other_grade).tolist():
            own, line, query = complaints[tables[at]], int(lines[at]), query_rows[at]
            if other_split[at]:
                text, there = self._query_texts[query], names[split_of[query]]
                own.add(f"the query {text[:60]!r} is in {there} and in {names[splits[at]]}; give it one split", line)
            if other_grade[at]:
                own.add(f"the pair has another relevance on line {lines[first[at]]}", line)
        for each in complaints:
            each.settle()


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


def _split_name(name: str) -> str:
    """What a split is called here: train, dev or test for its usual names, whatever their case."""
    usual = name.lower()
    return SPLIT_OF.get(usual, usual if usual in SPLITS else name)


def _order(split: str) -> tuple[int, str]:
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS)), split


SLICE = 1_024  # texts that are Python's at once


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
    given = {"query": queries, "positive": positives, **({} if more is None else {"text of the corpus": more})}
    for what, column in given.items():
        _check_texts(what, column)
    query_codes, query_ids, query_texts = _distinct([queries])
    codes, doc_ids, texts = _distinct([positives] if more is None else [more, positives])
    of_positives = codes[-len(positives) :]
    _, first = np.unique(query_codes * len(texts) + of_positives, return_index=True)
    judged = np.sort(first)
    qrels = pa.table(
        [
            query_ids.take(pa.array(query_codes[judged])),
            doc_ids.take(pa.array(of_positives[judged])),
            pa.array(np.ones(len(judged), np.int32)),
        ],
        schema=QRELS,
    )
    documents = pa.table([doc_ids, pa.repeat(pa.scalar("", pa.large_string()), len(texts)), texts], schema=DOCUMENTS)
    asked = pa.table([query_ids, query_texts], schema=QUERIES)
    return Collection(name, documents, asked, {SPLIT: qrels}, _digest(documents, asked, qrels), keep_identical_ids=True)


def _check_texts(what: str, column: pa.ChunkedArray) -> None:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f"the {what} column holds {column.type}; expected texts")
    blank = pc.fill_null(pc.or_(pc.utf8_is_space(column), pc.equal(pc.binary_length(column), 0)), True)
    if rows := np.flatnonzero(blank.to_numpy()).tolist():
        shown = ", ".join(map(str, rows[:5]))
        raise InputError(
            f"{len(rows):,} rows without a {what} (first: {shown}, counted from 0); give each one a text, or leave "
            "them out"
        )


def _distinct(columns: list[pa.ChunkedArray]) -> tuple[npt.NDArray[np.int64], pa.Array, pa.Array]:
    """Return each row's place among the distinct texts; these texts' ids, and they themselves, as they first come.

    Ids stand for texts: a table of the texts themselves would take several times their memory.
    """
    chunks = [chunk.cast(pa.large_string()) for column in columns for chunk in column.chunks if len(chunk)]
    parts = (chunk.slice(start, SLICE) for chunk in chunks for start in range(0, len(chunk), SLICE))
    ids = pa.array([text_id(text) for part in parts for text in part.to_pylist()], pa.string()).dictionary_encode()
    codes = np.asarray(ids.indices, np.int64)
    first = np.zeros(len(codes), bool)
    first[np.unique(codes, return_index=True)[1]] = True
    marks = np.split(first, np.cumsum([len(chunk) for chunk in chunks])[:-1])
    kept = [chunk if mark.all() else chunk.filter(pa.array(mark)) for chunk, mark in zip(chunks, marks, strict=True)]
    return codes, ids.dictionary, _joined(kept)


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """One array of those that have a text: without a copy where that is one."""
    some = [chunk for chunk in chunks if len(chunk)]
    return some[0] if len(some) == 1 else pa.concat_arrays(some)


def _digest(*tables: pa.Table) -> str:
    """Digest of the ids, which are digests of the texts, and of the pairs."""
    hasher = hashlib.blake2b(digest_size=16)
    for table in tables:
        for column in (column for name, column in zip(table.column_names, table.columns, strict=True) if "_id" in name):
            hasher.update("\x1f".join(column.to_pylist()).encode() + b"\x1e")
    return hasher.hexdigest()
