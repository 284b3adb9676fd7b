"""Collections made of pairs: a file or a table in memory of queries and what answers them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection, Keep, Rows, Tables, build, cache_place
from foils.data.pair_index import PairIndex
from foils.data.records import Complaints, Records, parts_of, records_of, text_field
from foils.data.splitting import SPLITS, split_name, split_queries
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
        query: its text; empty in a corpus.
        positives: documents that answer the query, or one that was judged otherwise, by `grade`.
        query_id: None: the record gives none.
        negatives: documents that do not.
        grade: relevance of the positives.
        split: the name that the record gives; empty: none.
    """

    query: str
    positives: tuple[Document, ...]
    query_id: str | None = None
    negatives: tuple[Document, ...] = ()
    grade: int = 1
    split: str = ""


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs: what each is -> its name; of negatives there can be several."""

    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        chosen: Mapping[str, str],
        where: str,
        known: Mapping[str, tuple[str, ...]] = ROLES,
    ) -> PairColumns:
        """Tell the columns of a table.

        Args:
            columns: their names.
            chosen: what a column is -> its name, which goes before what the names say; an empty name: no column is it.
            where: for complaints.
            known: what a column can be, and by which names.

        Raises:
            InputError: a chosen column that there is not, or something that no column can be.
            FormatError: no query or no positive where there can be one, or several columns could be one.
        """
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
                    f"{spelled('columns')} {role}={fitting[0]}",
                    where,
                )
            names.setdefault(role, tuple(fitting))
        if absent := [role for role in ("query", "positive") if role in known and not names[role]]:
            raise FormatError(
                f"no column is known as {' or '.join(absent)}; the columns are {', '.join(map(repr, columns))} (of CSV "
                f"and TSV the first line names them). Give one such a name ({', '.join(ROLES[absent[0]])}), or say "
                f"which is which: {spelled('columns')} query=COLUMN,positive=COLUMN",
                where,
            )
        return cls({role: names[role] for role in known if names[role]})

    def understood(self, columns: Sequence[str]) -> str:
        """Say what each of a table's columns is read as, and which are not read."""
        roles = {name: role for role, names in self.names.items() for name in names}
        rest = [name for name in columns if name not in roles]
        read = ", ".join(f"{name} as {role}" for name, role in roles.items())
        return read + (f"; not read: {', '.join(rest)}" if rest else "")

    def records(self, records: Records, complaints: Complaints) -> Iterator[tuple[int, PairRecord]]:
        """Yield (line, what a record says); records that say something wrong are added to the complaints."""
        only_two = {*self.names} == {"query", "positive"}
        first, second = (*self.names["query"], *self.names["positive"]) if only_two else ("", "")
        for line, fields in records.read(complaints):
            if only_two:  # what most records are is read quickly
                query, positive = fields.get(first), fields.get(second)
                if type(query) is type(positive) is str and query.isascii() and positive.isascii():
                    query, positive = query.strip(), positive.strip()
                    if query and positive:
                        yield line, PairRecord(query, (Document(None, "", positive),))
                        continue
            record = self._read(fields)
            if isinstance(record, PairRecord):
                yield line, record
            else:
                complaints.add(record, line)

    def _read(self, fields: Mapping[str, Any]) -> PairRecord | str:
        """What a record says, or, as a text, what is wrong with it."""
        said: dict[str, list[Any]] = {}
        for role, names in self.names.items():
            read, expected = READ_AS[role]
            said[role] = [read(each) for name in names for each in _listed(fields.get(name))]
            many, needed = role in ("positive", "negative"), role in ("query", "positive", "score")
            if None in said[role] or (needed and not said[role]) or (len(said[role]) > 1 and not many):
                given = [fields.get(name) for name in names]
                shown = given[0] if len(given) == 1 else given
                return f"the {role} ({', '.join(names)}) is {shown!r:.40}; expected {expected}"
        one = {role: values[0] for role, values in said.items() if values}
        positives, doc_id = said["positive"], one.get("doc_id")
        if doc_id is not None and len(positives) > 1:
            return f"one document id ({self.names['doc_id'][0]}) for {len(positives)} positives"
        if len(positives) == 1:
            first = positives[0]
            positives = [Document(doc_id or first.doc_id, one.get("title") or first.title, first.text)]
        more = one.get("query_id"), tuple(said.get("negative", ())), one.get("score", 1), one.get("split", "")
        return PairRecord(one.get("query", ""), tuple(positives), *more)


def _listed(value: Any) -> list[Any]:
    """What a field holds; nothing where it is missing, for which pandas has NaN."""
    if value is None or value == "" or value != value:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _text(value: Any) -> str:
    return (text_field(value) or "").strip()


def _query(value: Any) -> str | None:
    text = _text(value)
    return None if blank(text) else text


def _document(value: Any) -> Document | None:
    if isinstance(value, str) and value.isascii():
        return None if blank(value) else Document(None, "", value.strip())
    given = value if isinstance(value, Mapping) else {"text": value}
    text, title = (text_field(given.get(key) or "") for key in ("text", "title"))
    if text is None or title is None or blank(f"{title}{text}"):
        return None
    ids = (_identifier(given.get(key)) for key in ("docid", "doc_id", "_id", "id"))
    return Document(next((each for each in ids if each is not None), None), title.strip(), text.strip())


def _identifier(value: Any) -> str | None:
    """An id as text; 12.0, which pandas makes of 12 beside a missing one, is 12."""
    return text_field(int(value) if isinstance(value, float) and value.is_integer() else value) or None


def _grade(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**31 else None


READ_AS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "query": (_query, "a text"),
    "positive": (_document, "a text, or a list of texts"),
    "negative": (_document, "a text, or a list of texts"),
    "query_id": (_identifier, "a text or a whole number"),
    "doc_id": (_identifier, "a text or a whole number"),
    "title": (_text, "a text"),
    "score": (_grade, "a whole number, the relevance, 0 for a negative; score= leaves the column out"),
    "split": (_text, "a text"),
}
"""What reads a value of a column, None where it cannot be one, and what is expected of it."""


def blank(text: str) -> bool:
    """Tell whether nothing of a text is seen: white space, joiners, direction marks and the like."""
    return not _seen(text)


def _seen(text: str) -> str:
    return text.strip() if text.isascii() else UNSEEN.sub("", text.replace("\u200b", "")).strip()


def plain(name: str) -> str:
    """Return a column's name without what makes no difference."""
    return re.sub(r"[\s-]+", "_", _seen(name).lower())


def hash_of(text: str) -> int:
    """Return a 64-bit hash of a text (BLAKE2b)."""
    return int(text_id(text), 16)


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
        columns: what a column is -> its name (see `foils.data.pairs.ROLES`).
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
    return replace(made, read_as=reader.columns[0].understood(first.columns))


class _PairReader:
    """Reads tables of pairs once: documents go on as they come, queries are held, and pairs are noted as numbers.

    Args:
        parts: tables of the pairs, by split.
        corpus: more documents.
        chosen: what a column is -> its name.
    """

    def __init__(self, parts: Mapping[str, Records], corpus: Records | None, chosen: Mapping[str, str]) -> None:
        self.tables, self.corpus = list(parts.values()), corpus
        self.columns = [PairColumns.of(each.columns, chosen, each.where) for each in self.tables]
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
        found = chain(self._of_corpus(), *map(self._of_pairs, range(len(self.tables))))
        documents = keep("documents", DOCUMENTS, batches_of(found, DOCUMENTS))
        for held in (self._documents, self._text_of_id, self._id_of_text):
            held.clear()  # memory for what follows
        asked = zip(self._queries, self._query_texts, strict=True)
        queries = keep("queries", QUERIES, batches_of(asked, QUERIES))
        self._queries.clear()
        self._query_texts.clear()
        judged = self._qrels(documents, queries)
        return Tables(documents, queries, {name: keep(f"qrels-{name}", QRELS, of) for name, of in judged.items()})

    def _of_corpus(self) -> Iterator[tuple[str, str, str]]:
        if self.corpus is None:
            return
        names, where = self.corpus.columns, self.corpus.where
        chosen = {role: name for role, name in self._chosen.items() if role in OF_CORPUS and name in names}
        columns = PairColumns.of(names, chosen, where, OF_CORPUS)
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
        self._refuse_contradictions(pairs, first, split_of, queries["text"])
        names, where = list(self._splits), self.tables[0].where
        if odd := [name for name in names if name and not SPLIT_NAME.fullmatch(name)]:
            raise FormatError(
                f"a split called {odd[0]!r:.60}; expected letters, digits, blanks and . _ - alone, at most 60", where
            )
        if missing := int((split_of == self._splits.get("", -1)).sum()):
            if missing < len(queries):
                raise FormatError(f"{missing} queries have no split, others have; give each one, or none", where)
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

    def _refuse_contradictions(self, pairs: Rows, first: Rows, split_of: Rows, texts: pa.ChunkedArray) -> None:
        """Raise for queries in two splits, and pairs with two relevances, of the first file that has some."""
        query_rows, _, grades, splits, tables, lines = pairs
        other_split, other_grade = splits != split_of[query_rows], grades != grades[first]
        names, complaints = list(self._splits), [Complaints(table.where) for table in self.tables]
        for at in np.flatnonzero(other_split | other_grade).tolist():
            own, line, query = complaints[tables[at]], int(lines[at]), query_rows[at]
            if other_split[at]:
                text, there = texts[int(query)].as_py(), names[split_of[query]]
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
