"""Pairs: what a record says of a query and its documents, collections made of such records, and their splits.

Every form that pairs and training data have is read as an `Example`: the columns of a table say
what each field is. Queries without a split are divided into train, dev and test.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from foils.data.collection import DOCUMENTS, QRELS, QUERIES, SPLITS, Collection, Keep, PairIndex, Rows, build
from foils.data.records import Complaints, Fields, Records, parts_of, records_of, text_field, whole_number
from foils.data.run import grouped
from foils.data.tables import BATCH, batches_of, take
from foils.data.tokens import UNSEEN, comparable, near_pairs
from foils.runtime.errors import FormatError, InputError
from foils.runtime.options import spelled


class Passage(NamedTuple):
    """A document of an example.

    Attributes:
        text: without its title; empty: it has none. In an export the whole text.
        doc_id: its id in the table or in the collection; None: not known.
        title: empty: it has none.
        score: None where there is none.
    """

    text: str
    doc_id: str | None = None
    title: str = ""
    score: float | None = None

    @property
    def whole(self) -> str:
        """Title and text, as a collection's `document_texts` has them."""
        return f"{self.title} {self.text}".strip()


class Example(NamedTuple):
    """A query with documents.

    Attributes:
        query: its text, or its row in the collection. None: it is known by its id, or there is
            none, as in a corpus.
        positives, negatives: documents, by rank.
        query_id: None: not known.
        grade: relevance of the positives.
        split: the name that the record gives; empty: none.
    """

    query: Any
    positives: Sequence[Passage] = ()
    negatives: Sequence[Passage] = ()
    query_id: str | None = None
    grade: int = 1
    split: str = ""

    @property
    def documents(self) -> tuple[Passage, ...]:
        """The positives, then the negatives."""
        return (*self.positives, *self.negatives)


Names = Mapping[str, tuple[str, ...]]
Roles = Sequence[tuple[str, ...]]
# what a column of a table of pairs can be, and its usual names; case, blanks and hyphens make no difference
ROLES: Names = {
    "query": ("query", "question", "anchor"),
    "positive": ("positive", "positives", "pos", "answer", "document", "passage", "text", "positive_passages"),
    "negative": ("negative", "negatives", "neg", "neg_doc", "negative_passages"),
    "query_id": ("query_id", "qid", "question_id"),
    "doc_id": ("doc_id", "docid", "document_id", "corpus_id", "positive_id", "passage_id", "pid"),
    "title": ("title",),
    "score": ("score", "label", "relevance"),
    "split": ("split",),
}
# the same of a table of documents alone: an `id` there is a document's
OF_CORPUS: Names = {"positive": ROLES["positive"], "doc_id": (*ROLES["doc_id"], "_id", "id"), "title": ROLES["title"]}
# the same of a source of negatives: triplets, n-tuples, and other tools' forms
OF_SOURCE: Names = {
    **{role: ROLES[role] for role in ("query", "query_id", "negative")},
    "positive": ("positive", "positives", "pos", "pos_doc", "positive_passages"),
    **{name: (name,) for name in ("scores", "neg_scores")},
}
NEGATIVE = re.compile(r"negative_\d+")
OF_PAIRS: Roles = (("query",), ("positive",))  # what a table of pairs has: of each of these one role at least


def parsed_columns(text: str) -> dict[str, str]:
    """Return the columns that a text like `query=a,positive=b` names.

    Raises:
        InputError: it is not of this form.
    """
    parts = [part.partition("=") for part in text.split(",")]
    if not all(role and equals for role, equals, _ in parts):
        raise InputError(f"{spelled('columns')} {text}; expected what each column is, as query=COLUMN,positive=COLUMN")
    return {role.strip(): name.strip() for role, _, name in parts}


@dataclass(frozen=True)
class Columns:
    """The columns of a table of pairs or of a source: what each is -> its name.

    Of negatives there can be several.
    """

    names: Names
    of_source: bool = False

    @classmethod
    def of(cls, records: Records, chosen: Mapping[str, str], known: Names = ROLES, needed: Roles = OF_PAIRS) -> Columns:
        """Tell the columns of a table.

        Args:
            records: of the table.
            chosen: what a column is -> its name, which goes before what the names say; an empty
                name: no column is it.
            known: what a column can be, and by which names.
            needed: what there has to be, of each of these one role at least.

        Raises:
            InputError: a chosen column that there is not, or something that no column can be.
            FormatError: nothing of what is needed, or several columns that could be one.
        """
        columns, where = records.columns, records.where
        chosen_names = [name for name in chosen.values() if name]
        wrong = [f"{role}={name}" for role, name in chosen.items() if role not in known or name not in (*columns, "")]
        if wrong:
            expected = f"expected one of {', '.join(known)} to be one of its columns {', '.join(columns)}"
            raise InputError(f"{where}: {spelled('columns')} {', '.join(wrong)}; {expected}")
        free = {name: plain(name) for name in columns if name not in chosen_names}
        names = {role: tuple(name for name in free if free[name] in usual) for role, usual in known.items()}
        if "negative" in known:
            numbered = [name for name in free if NEGATIVE.fullmatch(free[name])]
            names["negative"] += tuple(sorted(numbered, key=lambda name: (len(name), name)))
        names |= {role: (name,) if name else () for role, name in chosen.items()}
        for role, fitting in names.items():
            if len(fitting) > 1 and role != "negative" and known is not OF_SOURCE:
                advice = f"say which one is: {spelled('columns')} {role}={fitting[0]}"
                raise FormatError(f"columns {' and '.join(fitting)} could each be the {role}; {advice}", where)
        for roles in needed:
            if roles[0] in known and not any(names[role] for role in roles):
                listed = ", ".join(map(repr, columns))
                problem = f"no column is known as {' or '.join(roles)}; the columns are {listed:.150}"
                advice = f"give one such a name ({', '.join(known[roles[0]])})"
                if needed is OF_PAIRS:
                    advice += f", or say {spelled('columns', 'query=…,positive=…')}"
                raise FormatError(f"{problem}; {advice}", where, 1 if records.files else None)
        return cls(names, known is OF_SOURCE)

    def example(self, fields: Fields) -> Example:
        """Return what a record says.

        Raises:
            InputError: what is wrong with it.
        """
        values = {role: self.values(fields, role) for role, names in self.names.items() if names}
        first = {role: listed[0] for role, listed in values.items() if listed}
        for role, listed in values.items():
            wrong = role in ONE and len(listed) > 1 if listed else role in NEEDED
            if wrong and not self.of_source:
                raise self._wrong(role, fields.get(self.names[role][0]), READ_AS[role][1])
        positives, negatives = values.get("positive", []), values.get("negative", [])
        doc_id, title = first.get("doc_id"), first.get("title")
        if doc_id or title:
            positives = [each._replace(doc_id=doc_id or each.doc_id, title=title or each.title) for each in positives]
        scores = values.get("neg_scores") or None
        if values.get("scores"):  # those of the positives come first
            scores = values["scores"][len(positives) :]
        if scores is not None:
            if len(scores) != len(negatives):
                raise InputError("expected as many scores as documents, the positive's first")
            negatives = [each._replace(score=score) for each, score in zip(negatives, scores, strict=True)]
        return Example(
            query=first.get("query"),
            positives=positives,
            negatives=negatives,
            query_id=first.get("query_id"),
            grade=first.get("score", 1),
            split=first.get("split", ""),
        )

    def values(self, fields: Fields, role: str, readers: Readers | None = None) -> list[Any]:
        """Return what the columns of a role say.

        Args:
            fields: of a record.
            role: of the columns.
            readers: what reads the values; None: `READ_AS`.

        Raises:
            InputError: something that cannot be read so.
        """
        read, expected = (readers or READ_AS)[role]
        raw = [each for name in self.names[role] for each in _listed(fields.get(name))]
        values = list(map(read, raw))
        if None in values:
            raise self._wrong(role, raw[values.index(None)], expected)
        return values

    def _wrong(self, role: str, value: Any, expected: str) -> InputError:
        return InputError(f"the {role} ({', '.join(self.names[role])}) is {value!r:.40}; expected {expected}")


def _listed(value: Any) -> list[Any]:
    """What a field holds; nothing where it is missing, for which pandas has NaN."""
    if value is None or value == "" or value != value:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _text(value: Any) -> str:
    text = (text_field(value) or "").strip()
    return text if text.isascii() or _seen(text) else ""


def _passage(value: Any) -> Passage | None:
    """A text, or a dictionary with an id, a title, a text and a score; one of id and text at least."""
    if isinstance(value, str) and value.isascii():
        return Passage(value.strip()) if value.strip() else None
    fields = value if isinstance(value, Mapping) else {"text": value}
    title, text = (text_field("" if fields.get(key) is None else fields[key]) for key in ("title", "text"))
    ids = (_identifier(fields.get(key)) for key in ("docid", "doc_id", "_id", "id"))
    doc_id, scores = next((each for each in ids if each is not None), None), _listed(fields.get("score"))
    if title is None or text is None or None in map(_number, scores) or not (doc_id or _seen(title + text)):
        return None
    return Passage(text.strip(), doc_id, title.strip(), *scores)


def _identifier(value: Any) -> str | None:
    """An id as text; 12.0, which pandas makes of 12 beside a missing one, is 12."""
    return text_field(int(value) if isinstance(value, float) and value.is_integer() else value) or None


def _number(value: Any) -> float | None:
    """A finite number of JSON."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return float(value) if known else None


Readers = Mapping[str, tuple[Callable[[Any], Any], str]]
# what reads a value of a column, None where it cannot be one, and what is expected of it
READ_AS: Readers = {
    "query": (lambda value: _text(value) or None, "a text"),
    **dict.fromkeys(("positive", "negative"), (_passage, "a text, or a list of texts")),
    **dict.fromkeys(("query_id", "doc_id"), (_identifier, "a text or a whole number")),
    **dict.fromkeys(("title", "split"), (_text, "a text")),
    "score": (whole_number, "a whole number, the relevance, 0 for a negative; score= leaves the column out"),
    **dict.fromkeys(("scores", "neg_scores"), (_number, "finite numbers")),
}
NEEDED = ("query", "positive", "score")  # of pairs, where there is such a column
ONE = ("query", "query_id", "doc_id", "title", "score", "split")  # of which a record of pairs has one at most


def _seen(text: str) -> str:
    """What is seen of a text: it without white space at its ends, joiners, direction marks and the like."""
    return text.strip() if text.isascii() else UNSEEN.sub("", text.replace("\u200b", "")).strip()


def plain(name: str) -> str:
    """Return a column's name without what makes no difference."""
    return re.sub(r"[\s-]+", "_", _seen(name).lower())


def text_id(text: str) -> str:
    """Return the id of a text that has none: a hash of it."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


# names by which splits are known
USUAL = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val", "eval"), "test": ("test",)}
# Jaccard similarity of the tokens of two queries of one document from which on they are near-twins
TWINS = 0.7


def split_name(name: str) -> str:
    """Return what a split is called here: train, dev or test for its usual names, whatever their case."""
    return next((split for split, usual in USUAL.items() if name.lower() in usual), name)


def split_sizes(queries: int) -> tuple[float, float, float]:
    """Return the shares of queries in train, dev and test.

    A tenth each of many; of few, about 60 to choose on and 100 to test on, but no more than a fifth
    and three tenths.

    Args:
        queries: that are divided.
    """
    dev, test = (min(most, max(0.1, wanted / max(1, queries))) for most, wanted in ((0.2, 60), (0.3, 100)))
    return 1 - dev - test, dev, test


def split_queries(
    texts: Sequence[str], query_rows: Rows, doc_rows: Rows, shares: Sequence[float] | None = None
) -> list[str]:
    """Return a split for each query.

    Queries with the same tokens, and queries of one document whose tokens have a Jaccard similarity
    of 0.7 or more, go to one split together. Which split that is depends on their texts alone, not
    on the order of the queries: groups are taken in the order of a hash of their first text, and
    fill test, then dev; all others are train's. A group that is larger than what is free in test or
    dev goes on to the next.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
        shares: of the queries in train, dev and test; they sum to 1. Default: `split_sizes`.
    """
    shares = shares or split_sizes(len(texts))
    # compared in this process alone
    words = np.fromiter((hash(frozenset(comparable(text))) for text in texts), np.int64, len(texts))
    _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
    equal = np.stack([np.arange(len(texts)), first[inverse]], axis=1)
    edges = np.concatenate([equal, twin_pairs(texts, query_rows, doc_rows)])
    joined = coo_matrix((np.ones(len(edges), bool), (edges[:, 0], edges[:, 1])), shape=(len(texts), len(texts)))
    group = connected_components(joined, directed=False)[1].tolist()
    sizes, first_texts = Counter(group), dict[int, str]()
    for number, text in zip(group, texts, strict=True):
        first_texts[number] = min(text, first_texts.get(number, text))
    hashes = {number: blake2b(text.encode(), digest_size=16).digest() for number, text in first_texts.items()}
    free = {"test": round(shares[2] * len(texts)), "dev": round(shares[1] * len(texts))}
    chosen = dict[int, str]()
    for number in sorted(hashes, key=hashes.__getitem__):
        chosen[number] = next((name for name in free if sizes[number] <= free[name]), "train")
        if chosen[number] in free:
            free[chosen[number]] -= sizes[number]
    return [chosen[number] for number in group]


def twin_pairs(texts: Sequence[str], query_rows: Rows, doc_rows: Rows) -> npt.NDArray[np.int64]:
    """Return (k, 2) near-twin queries: of one document, their tokens with a Jaccard similarity of 0.7 or more.

    Args:
        texts: of the n queries.
        query_rows: (m,) the query of each positive pair.
        doc_rows: (m,) its document.
    """
    pairs: list[tuple[int, int]] = []
    for places in grouped(np.asarray(doc_rows)):
        if len(places) > 1:
            rows = np.unique(np.asarray(query_rows)[places])
            sets = [comparable(texts[row]) for row in rows.tolist()]
            pairs += [(int(rows[i]), int(rows[j])) for i, j in near_pairs(sets, threshold=TWINS)]
    return np.asarray(pairs, np.int64).reshape(-1, 2)


SPLIT_NAME = re.compile(r"\w[\w .-]{0,59}")
READING = 6  # another number where the same files are read otherwise than before, for the cache


def read_pairs(
    pairs: Any, *, columns: Mapping[str, str] | None = None, corpus: Any = None, name: str = "", split: str = ""
) -> Collection:
    """Make a collection of pairs.

    Equal texts are one document; ids that are not given are hashes of the texts.

    Negatives among the columns are documents of the collection; the same table is a source of them.

    Args:
        pairs: a CSV, TSV, JSON, JSONL or Parquet file; a DataFrame, an Arrow table, a data set of
            `datasets`; or a dictionary, split -> one of these. A column `split` names the split of
            each query, or else a dictionary does; without, queries are split
            (`split_queries`).
        columns: what a column is -> its name (see `ROLES`).
        corpus: more documents, which come before the pairs': a file or a table with a column of
            texts, and ids and titles where it has them. A document of the pairs without an id is
            the corpus's with the same text.
        name: of the collection. Default: the file's.
        split: of all queries, where nothing names their splits.

    Raises:
        InputError: no such file, or no table.
        FormatError: what is wrong in it, by line; columns that are not known, or could be several things.
    """
    parts, more = parts_of(pairs), None if corpus is None else records_of(corpus)
    reader = _PairReader(parts, more, columns or {}, split)
    every = [*parts.values(), *([more] if more else [])]
    files = list(dict.fromkeys(file for each in every for file in each.files))
    stored = all(each.files for each in every)
    facts = ("pairs", READING, split, *sorted((columns or {}).items()), *parts, *files)
    name = name or (files[0].name.partition(".")[0] if stored else "pairs")
    collection = build(name, facts if stored else (), reader)
    records, of_records, _ = reader.tables[-1]
    roles = {name: role for role, names in of_records.names.items() for name in names}
    read, rest = ", ".join(f"{name} as {role}" for name, role in roles.items()), {*records.columns} - {*roles}
    return replace(collection, read_as=read + f"; not read: {', '.join(sorted(rest))}" * bool(rest))


class _PairReader:
    """Reads tables of pairs once.

    Documents go on as they come, queries are held, and pairs are noted as numbers.

    Args:
        parts: tables of the pairs, by split.
        corpus: more documents, which come first.
        chosen: what a column is -> its name.
        split: of all queries, where nothing names their splits.
    """

    def __init__(
        self, parts: Mapping[str, Records], corpus: Records | None, chosen: Mapping[str, str], split: str
    ) -> None:
        # a data set of one split says nothing about what to test on
        names = map(split_name, parts) if len(parts) > 1 else [split]
        self.tables = [(each, Columns.of(each, chosen), name) for each, name in zip(parts.values(), names, strict=True)]
        if corpus is not None:
            of_corpus = {role: name for role, name in chosen.items() if role in OF_CORPUS and name in corpus.columns}
            self.tables.insert(0, (corpus, Columns.of(corpus, of_corpus, OF_CORPUS), ""))
        self._queries: dict[str, tuple[int, str, str]] = {}  # id -> row, text, split
        self._documents: dict[str, int] = {}  # id -> row
        self._text_of_id: dict[str, int] = {}  # id that is given -> hash of its text
        self._id_of_text: dict[str, str] = {}  # of the corpus's documents that are given an id
        self._pairs = array("q")  # query, document, relevance, table and line of each pair

    def __call__(self, keep: Keep) -> Collection:
        """Return the tables of the collection."""
        new_documents = chain.from_iterable(map(self._read, range(len(self.tables))))
        documents = keep("documents", DOCUMENTS, batches_of(new_documents, DOCUMENTS))
        texts = ((query_id, text) for query_id, (_, text, _) in self._queries.items())
        queries = keep("queries", QUERIES, batches_of(texts, QUERIES))
        judged = self._qrels(documents, queries)
        return Collection("", documents, queries, {name: keep(f"qrels-{name}", QRELS, judged[name]) for name in judged})

    def _read(self, at: int) -> Iterator[tuple[str, str, str]]:
        """Yield the documents of a table that are new, and note queries and pairs."""
        records, columns, split_of_table = self.tables[at]
        complaints, begin, of_pairs = Complaints(records.where), len(self._pairs), "query" in columns.names
        for line, fields in records.counted("pairs", complaints):
            with complaints.at(line):
                record = columns.example(fields)
                query = self._query(record, split_of_table) if of_pairs else -1
                for place, document in enumerate(record.documents):
                    identifier, new = self._identifier(document, of_pairs), len(self._documents)
                    row = self._documents.setdefault(identifier, new)
                    if row == new:
                        yield identifier, document.title, document.text
                    if of_pairs and place < len(record.positives):
                        self._pairs.extend((query, row, record.grade, at, line))
        complaints.raise_if_any()
        if of_pairs and len(self._pairs) == begin:
            raise FormatError("no pairs in it; expected at least one record", records.where)

    def _query(self, record: Example, split_of_table: str) -> int:
        """Return the row of a record's query, and note its text and split."""
        split = split_of_table or (record.split and split_name(record.split))
        if split and not SPLIT_NAME.fullmatch(split):
            raise InputError(f"a split called {split!r:.60}; expected letters, digits, blanks, . _ -")
        query_id = record.query_id or text_id(record.query)
        row, text, before = self._queries.setdefault(query_id, (len(self._queries), record.query, split))
        if text != record.query:
            raise InputError(f"the query {query_id!r} has another text before")
        if before != split:
            raise InputError(f"the query {text[:60]!r} is in {before} and in {split}; give it one split")
        return row

    def _identifier(self, document: Passage, of_pairs: bool) -> str:
        """Return the id of a document: its own, that of its text in the corpus, or a hash of its text."""
        identifier, title, text = document.doc_id, document.title, document.text
        whole = f"{title}\x1f{text}" if title else text
        if identifier is None:
            return self._id_of_text.get(text_id(document.whole)) or text_id(whole)
        if not whole:
            raise InputError(f"the document {identifier!r} has no text; give each its text")
        text_hash = hash(whole)
        if self._text_of_id.setdefault(identifier, text_hash) != text_hash:
            raise InputError(f"the document {identifier!r} has another text before")
        if not of_pairs:
            for key in (document.whole, text):
                self._id_of_text.setdefault(text_id(key), identifier)
        return identifier

    def _qrels(self, documents: pa.Table, queries: pa.Table) -> dict[str, list[pa.RecordBatch]]:
        """Return the judgements by split, of the pairs that were noted, each once, as they first come.

        Raises:
            FormatError: a pair with two relevances, by line; queries without a split where others have one.
        """
        query_rows, doc_rows, grades, tables, lines = np.asarray(self._pairs, np.int64).reshape(-1, 5).T
        first = PairIndex(query_rows, doc_rows).first
        if (grades != grades[first]).any():
            at = int(np.argmax(grades != grades[first]))
            problem = f"the pair has another relevance on line {lines[first[at]]}"
            raise FormatError(problem, self.tables[tables[at]][0].where, int(lines[at]))
        _, texts, splits = map(list, zip(*self._queries.values(), strict=True))
        missing = splits.count("")
        if 0 < missing < len(splits):
            problem = f"{missing} queries have no split, others have; give each one, or none"
            raise FormatError(problem, self.tables[-1][0].where)
        if missing:
            splits = split_queries(texts, query_rows[grades > 0], doc_rows[grades > 0])
        kept, judged = np.flatnonzero(first == np.arange(len(first))), {}
        split_of_pair = np.array(splits, object)[query_rows[kept]]
        for name in [*SPLITS, *sorted({*splits} - {*SPLITS})]:
            rows = kept[split_of_pair == name]
            if len(rows):
                ids = take(queries["query_id"], query_rows[rows]), take(documents["doc_id"], doc_rows[rows])
                table = pa.table([*ids, pa.array(grades[rows].astype(np.int32))], schema=QRELS)
                judged[name] = table.to_batches(max_chunksize=BATCH)
        return judged
