"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import (
    DOCUMENTS,
    QRELS,
    QUERIES,
    Collection,
    Record,
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
from foils.data.tables import MOST, pieces, take
from foils.data.texts import ColumnTexts
from foils.data.tokens import UNSEEN
from foils.runtime import memory
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


@dataclass(frozen=True)
class Document:
    """A document as a record gives it; id None: the record gives none."""

    doc_id: str | None
    title: str
    text: str


@dataclass(frozen=True)
class PairRecord:
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

    def _value(self, role: str, fields: Mapping[str, Any]) -> Any:
        name = self.names[role]
        return _known(fields.get(name[0])) if name else None

    def read(self, fields: Mapping[str, Any]) -> PairRecord | str:
        """Return what a record says, or, as a text, what is wrong with it."""
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
        ids = [_identifier(self._value(role, fields)) for role in ("query_id", "doc_id")]
        for role, identifier in zip(("query_id", "doc_id"), ids, strict=True):
            if identifier is None and self._value(role, fields) not in (None, ""):
                return f"the {role} {self._given(role, fields)}; expected a text or a whole number"
        if ids[1] is not None and len(positives) > 1:
            return f"one document id ({self.names['doc_id'][0]}) for {len(positives)} positives"
        if len(positives) == 1:
            first = positives[0]
            title = text_field(self._value("title", fields)) or first.title
            positives = [Document(ids[1] or first.doc_id, title.strip(), first.text)]
        split = text_field(self._value("split", fields)) or ""
        return PairRecord(ids[0], query.strip(), tuple(positives), tuple(negatives), grade, split.strip())

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


class KnownTexts:
    """The hash of each id's text, so that an id has one text.

    Args:
        what: has the ids, for complaints.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._hashes: dict[int, int] = {}

    def new(self, identifier: str, text: str, complaints: Complaints, line: int) -> bool:
        """Tell whether an id is seen for the first time; one with another text is a complaint."""
        own, count = hash_of(text), len(self._hashes)
        if self._hashes.setdefault(hash_of(identifier), own) != own:
            complaints.add(f"the {self.what} {identifier!r} has another text before; an id has one text", line)
        return len(self._hashes) > count


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
    made = _Pairs(tables, more, columns, tuple(shares))
    where = tables[0].records.where
    documents = Source(where, made.documents, lambda: made.plain.document_table() if made.plain else None)
    queries = Source(where, made.queries, lambda: made.plain.query_table() if made.plain else None)
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
class PlainPairs:
    """Pairs of a text of a query and a text of a document, held in memory.

    Attributes:
        queries: text -> id of the distinct queries, as they first come.
        documents: text -> id of the distinct documents.
        query_rows: (n,) rows in `queries` of the distinct pairs.
        doc_rows: (n,) rows in `documents`.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    query_rows: Rows
    doc_rows: Rows

    @classmethod
    def read(cls, table: PairTable) -> PlainPairs | None:
        """Read a table of these two columns; None where it has others, is too large, or something is wrong in it.

        What is wrong, and on which line, the slower way of any table says.
        """
        names = {role: names for role, names in table.columns.names.items() if names}
        if names.keys() != {"query", "positive"} or len(names["positive"]) > 1:
            return None
        (query,), (positive,) = names["query"], names["positive"]
        complaints, room = Complaints(table.records.where), memory.budget() // 16
        queries, documents, codes = dict[str, int](), dict[str, int](), array("q")
        for _, fields in table.records.read(complaints):
            for text, rows in ((fields.get(query), queries), (fields.get(positive), documents)):
                if not isinstance(text, str) or not (text := text.strip()):
                    return None
                row = rows.setdefault(text, len(rows))
                if row == len(rows) - 1:
                    room -= len(text)
                codes.append(row)
            if room < 0:
                return None
        if complaints or not codes:
            return None
        ids = [_ids_of(texts) for texts in (queries, documents)]
        if ids[0] is None or ids[1] is None:
            return None
        pairs = np.asarray(codes, np.int64).reshape(-1, 2)
        kept = PairIndex(pairs[:, 0], pairs[:, 1]).distinct
        return cls(ids[0], ids[1], pairs[kept, 0], pairs[kept, 1])

    def document_table(self) -> pa.Table:
        """Return the documents, without titles."""
        titles = pa.repeat(pa.scalar("", pa.large_string()), len(self.documents))
        return pa.table([pa.array(list(self.documents.values())), titles, _texts(self.documents)], schema=DOCUMENTS)

    def query_table(self) -> pa.Table:
        """Return the queries."""
        return pa.table([pa.array(list(self.queries.values())), _texts(self.queries)], schema=QUERIES)

    def qrels(self, where: str, documents: pa.Table, queries: pa.Table, shares: Sequence[float]) -> dict[str, Source]:
        """Return the judgements by split (see `foils.data.splitting.split_queries`)."""
        split_of = np.array(split_queries(list(self.queries), self.query_rows, self.doc_rows, shares))[self.query_rows]

        def judged(split: str) -> pa.Table:
            rows = np.flatnonzero(split_of == split)
            ids = take(queries["query_id"], self.query_rows[rows]), take(documents["doc_id"], self.doc_rows[rows])
            return pa.table([*ids, pa.array(np.ones(len(rows), np.int32))], schema=QRELS)

        splits = [split for split in SPLITS if (split_of == split).any()]
        return {split: Source(where, lambda _: iter(()), partial(judged, split)) for split in splits}


def _texts(of: Iterable[str]) -> pa.Array:
    return pa.array(list(of), pa.large_string())


def _ids_of(texts: Iterable[str]) -> dict[str, str] | None:
    """The id of each of these distinct texts; None where one is blank or no Unicode, or two have the same id."""
    if any(not text.isascii() and blank(text) for text in texts):
        return None
    try:
        ids = {text: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in texts}
    except UnicodeEncodeError:
        return None
    return ids if len(set(ids.values())) == len(ids) else None


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

    @cached_property
    def plain(self) -> PlainPairs | None:
        """The pairs where each is a text of a query and one of a document, and nothing is wrong with any; else None."""
        alone = len(self.tables) == 1 and self.corpus is None
        return PlainPairs.read(self.tables[0]) if alone else None

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
        if self.plain is not None:
            return self.plain.qrels(where, documents, queries, self.shares)
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
        return pairs.sources(where, np.array([SPLITS.index(split) for split in split_of]), SPLITS)


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
