"""Sources of negatives: our Parquet, the forms that training tools have, tables of pairs, or a TREC run."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection
from foils.data.formats import Given, Said, holds_training, number, read_record
from foils.data.negatives import EQUAL, POSITIVE, REQUIRED, Negatives, negatives_table
from foils.data.pairs import ROLES, SOURCE_NAMES, check_chosen, hash_of, pair_negatives, parsed_columns, plain
from foils.data.read import fetched_source, fetched_table
from foils.data.records import (
    DELIMITERS,
    ENDINGS,
    Complaints,
    Records,
    arrow_table,
    is_data_set_of_splits,
    json_objects,
    magic,
    numbered_lines,
    parts_of,
    records_of_file,
    text_field,
)
from foils.data.run import Run, ranks_within
from foils.data.tables import MOST, Provenance, provenance
from foils.data.tokens import alphanumeric
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest
from foils.runtime.options import Option

log = logging.getLogger(__name__)


SHOWN = 5  # lines that a warning lists


@dataclass
class SourceRows:
    """Rows of a table in the making: for each query its passages in order, the first of repeated ones kept.

    A passage that is a positive of its query, or has the text of one, gets a rejected row: it is not a negative.

    Attributes:
        name: of the source.
        collection: that it belongs to.
        where: what is added stands, for the warning: a file, or a table in memory.
        texts: of documents that are not in the collection.
        repeated: how many were not kept.
        positives: (query id, document id) -> score that a file gives a labelled positive.
        reasons: of each row, why it is rejected; None: it is not.
        mistaken: where -> lines of those that are.
    """

    name: str
    collection: Collection
    where: str | Path
    columns: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in (*REQUIRED.names, "text")})
    seen: dict[tuple[str, str], None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    positives: dict[tuple[str, str], float] = field(default_factory=dict)
    reasons: list[str | None] = field(default_factory=list)
    mistaken: dict[str | Path, list[int]] = field(default_factory=dict)

    @cached_property
    def known(self) -> KnownPositives:
        """The positives of the collection."""
        return KnownPositives(self.collection)

    @cached_property
    def known_texts(self) -> KnownTexts:
        """The texts of the collection."""
        return KnownTexts.of(self.collection)

    def add(self, query_id: str, doc_id: str, text: str, score: float | None, line: int, *, inside: bool) -> None:
        """Add a negative, after the others of its query; `inside`: the collection has it, and the text is not kept."""
        if (query_id, doc_id) in self.seen:
            self.repeated += 1
            return
        self.seen[query_id, doc_id] = None
        rank = self.ranks[query_id] = self.ranks.get(query_id, -1) + 1
        score, own = np.nan if score is None else score, None if inside else text
        for column, value in zip(self.columns.values(), (query_id, doc_id, self.name, rank, score, own), strict=True):
            column.append(value)
        self.reasons.append(reason := self.known.reason(query_id, doc_id, text))
        if reason:
            self.mistaken.setdefault(self.where, []).append(line)

    def unknown(self, query: str) -> str:
        """Return the complaint about a query that the collection does not have."""
        return f"unknown query {query[:60]!r}: not a text of the collection {self.collection.name}"

    def negatives(self, form: str, path: Path) -> Negatives:
        """Return the table; a labelled positive whose score is known has a rejected row.

        Args:
            form: of what was read, for the provenance.
            path: the file, whose name the provenance has.
        """
        table = pa.table(
            [pa.array(self.columns[key], kind) for key, kind in zip(REQUIRED.names, REQUIRED.types, strict=True)],
            schema=REQUIRED,
        )
        if any(text is not None for text in self.columns["text"]):
            table = table.append_column("text", pa.array(self.columns["text"], pa.large_string()))
        negatives = Negatives(table, imported(form, path, self.collection, repeated=self.repeated))
        for where, lines in self.mistaken.items():
            _tell_mistaken(where, lines)
        if self.mistaken:
            for reason in (POSITIVE, EQUAL):
                negatives = negatives.reject(np.array([each == reason for each in self.reasons]), reason)
        known = {pair: score for pair, score in self.positives.items() if np.isfinite(score)}
        if not known:
            return negatives
        ids = [pa.array(column, pa.string()) for column in zip(*known, strict=True)]
        return negatives.with_rejected(ids[0], ids[1], values={"score": list(known.values())})[0]


def without_own(negatives: Negatives, collection: Collection, where: str | Path) -> Negatives:
    """Return the table, rejected what is no negative of its query: labelled positives, and the query's own document.

    Args:
        negatives: of any origin.
        collection: that it belongs to.
        where: it comes from, for the warning.

    Raises:
        InputError: it holds ids that the collection does not know.
    """
    queries, documents = negatives.rows_in(collection)
    mistaken = collection.known_positives.contain(queries, documents) & negatives.keep
    if mistaken.any():
        _tell_mistaken(where, (np.flatnonzero(mistaken) + 1).tolist(), "row")
        negatives = negatives.reject(mistaken, POSITIVE)
    own = (collection.identical[queries] == documents) & (documents >= 0)
    return negatives.reject(own, IDENTICAL) if own.any() else negatives


def _tell_mistaken(where: str | Path, lines: list[int], counted: str = "line") -> None:
    """Warn of negatives that are positives of their query, with their lines; 0 where there are none."""
    known = sorted({line for line in lines if line})
    shown = ", ".join(map(str, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
    at = f" ({counted}{'s' if len(known) > 1 else ''} {shown})" if known else ""
    said = "negative is a positive" if len(lines) == 1 else "negatives are positives"
    log.warning("%s: %s %s of the same query%s; rejected", where, f"{len(lines):,}", said, at)


class KnownPositives:
    """Tells whether a document is a positive of a query, in any split, or has the text of one.

    Texts are equal where their tokens are, in order: without case and punctuation.

    Args:
        collection: documents and judgements.
    """

    def __init__(self, collection: Collection) -> None:
        queries, documents = collection.known_positives.pairs()
        self._pairs: set[tuple[str, str]] = set()
        self._texts: set[int] = set()
        for start in range(0, len(queries), MOST):
            part = slice(start, start + MOST)
            ids = collection.queries["query_id"].take(pa.array(queries[part])).to_pylist()
            known = collection.documents["doc_id"].take(pa.array(documents[part])).to_pylist()
            self._pairs.update(zip(ids, known, strict=True))
            self._texts.update(map(_key, ids, collection.document_texts(documents[part])))

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs

    def reason(self, query_id: str, doc_id: str, text: str) -> str | None:
        """Return why a document is no negative of a query; None where nothing says so."""
        if (query_id, doc_id) in self._pairs:
            return POSITIVE
        return EQUAL if _key(query_id, text) in self._texts else None


def _key(query_id: str, text: str) -> int:
    return hash_of("\x1f".join([query_id, *(alphanumeric(text) or [text])]))


@dataclass(frozen=True)
class KnownTexts:
    """Ids of a collection by text, white space squeezed; documents by their text alone and with their title.

    Of equal texts the first id wins.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    doc_ids: frozenset[str]

    @classmethod
    def of(cls, collection: Collection) -> KnownTexts:
        """Read a collection's texts."""
        queries: dict[str, str] = {}
        columns = (collection.queries[key].to_pylist() for key in ("query_id", "text"))
        for identifier, text in zip(*columns, strict=True):
            queries.setdefault(squeezed(text), identifier)
        documents: dict[str, str] = {}
        columns = (collection.documents[key].to_pylist() for key in ("doc_id", "title", "text"))
        for identifier, title, text in zip(*columns, strict=True):
            documents.setdefault(squeezed(f"{title} {text}"), identifier)
            documents.setdefault(squeezed(text), identifier)
        return cls(queries, documents, frozenset(collection.documents["doc_id"].to_pylist()))

    def query(self, text: str) -> str | None:
        """Return the id of the query with this text."""
        return self.queries.get(squeezed(text))

    def document(self, text: str, doc_id: str | None = None) -> tuple[str, bool]:
        """Return the id of a document with this id or text, and whether the collection has it.

        One that it does not have keeps its id, or gets one that its text determines.
        """
        if doc_id in self.doc_ids:
            return str(doc_id), True
        if (known := self.documents.get(squeezed(text))) is not None:
            return known, True
        return doc_id or "text:" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), False


def imported(form: str, path: Path, collection: Collection, **left_out: int) -> Provenance:
    """Return the provenance of what was read, with counts of what was left out and why."""
    file = os.fsencode(path.name).decode("utf-8", "replace")
    return provenance("import", {"form": form, "file": file, **left_out}, inputs={"collection": collection.digest})


def squeezed(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())


PYLATE = ("train", "queries", "documents")
"""The tables of PyLate's form, each a file `.parquet` of a folder."""


def read_lines(path: Path, name: str, collection: Collection) -> Negatives:
    """Read JSON lines: triplets, n-tuples, labelled pairs or lists, FlagEmbedding's, NeMo AutoModel's or ms-swift's.

    Raises:
        FormatError: what is wrong in the file, by line.
    """
    rows, complaints = SourceRows(name, collection, path), Complaints(path)
    stream = ((line, read_record(record)) for line, record in json_objects(path, complaints))
    _add_said(rows, stream, complaints)
    return rows.negatives("tuples", path)


def add_records(rows: SourceRows, records: Records, names: Mapping[str, str]) -> None:
    """Add a table of what `read_lines` reads.

    Args:
        rows: that it is added to.
        records: of the table.
        names: name of a column -> what it is, as "query", where its own name does not say so.

    Raises:
        FormatError: what is wrong in it, by line.
    """

    def said(record: Mapping[str, Any]) -> Said | str:
        return read_record({names.get(key, key): value for key, value in record.items()})

    complaints = Complaints(records.where)
    _add_said(rows, ((line, said(record)) for line, record in records.read(complaints)), complaints)


def is_folder_of_tables(path: Path) -> bool:
    """Tell whether a path is a folder as PyLate's form has it: train, queries and documents, in Parquet."""
    return all((path / f"{table}.parquet").is_file() for table in PYLATE)


def read_pylate(path: Path, name: str, collection: Collection) -> Negatives:
    """Read PyLate's tables: train (query_id, document_ids, scores), queries and documents (their ids, text).

    Raises:
        FormatError: what is wrong in them, by row.
    """
    train, queries, documents = (records_of_file(path / f"{table}.parquet") for table in PYLATE)
    complaints = Complaints(train.where)
    texts: list[dict[Any, Any]] = [
        {record.get(key): record.get("text") for _, record in table.read(complaints)}
        for key, table in (("query_id", queries), ("document_id", documents))
    ]

    def said(record: Mapping[str, Any]) -> Said | str:
        ids, scores = record.get("document_ids") or (), record.get("scores") or ()
        if len(ids) != len(scores) or record.get("query_id") not in texts[0] or not set(ids) <= texts[1].keys():
            return "expected query_id, and as many scores as document_ids, with their texts in queries and documents"
        given = [Given(text_field(texts[1][key]), key, number(of)) for key, of in zip(ids, scores, strict=True)]
        return Said(text_field(texts[0][record["query_id"]]), unlabelled=given)

    rows = SourceRows(name, collection, path)
    _add_said(rows, ((line, said(record)) for line, record in train.read(complaints)), complaints)
    return rows.negatives("tuples", path)


def _add_said(rows: SourceRows, stream: Iterable[tuple[int, Said | str]], complaints: Complaints) -> None:
    for line, said in stream:
        if isinstance(said, str):
            complaints.add(said, line)
        elif (query_id := rows.known_texts.query(str(said.query))) is None:
            complaints.add(rows.unknown(str(said.query)), line)
        elif any(each.text is None or not each.text.strip() for each in (*said.negatives, *said.unlabelled)):
            complaints.add("a negative is empty or no text", line)
        else:
            _add(rows, query_id, said, line)
    complaints.settle()


def _add(rows: SourceRows, query_id: str, said: Said, line: int) -> None:
    """Add what a record says of a query; of unlabelled documents those that are no labelled positives are negatives."""
    for each in said.positives:
        identifier, _ = rows.known_texts.document(each.text or "", each.doc_id)
        if each.score is not None and (query_id, identifier) in rows.known:
            rows.positives.setdefault((query_id, identifier), each.score)
    for at, each in enumerate((*said.negatives, *said.unlabelled)):
        identifier, inside = rows.known_texts.document(str(each.text), each.doc_id)
        if at >= len(said.negatives) and (query_id, identifier) in rows.known:
            rows.positives.setdefault((query_id, identifier), float("nan") if each.score is None else each.score)
        else:
            rows.add(query_id, identifier, str(each.text), each.score, line, inside=inside)


def read_tevatron(path: Path, name: str, collection: Collection) -> Negatives:
    """Read Tevatron's records: query_id, positive_passages, negative_passages.

    Raises:
        FormatError: what is wrong in the file, by line.
    """
    rows, complaints = SourceRows(name, collection, path), Complaints(path)
    queries = set(collection.queries["query_id"].to_pylist())
    documents = {identifier: row for row, identifier in enumerate(collection.documents["doc_id"].to_pylist())}
    for line, record in json_objects(path, complaints):
        query_id = text_field(record.get("query_id"))
        passages, positives = record.get("negative_passages"), record.get("positive_passages")
        if query_id is None or not isinstance(passages, list):
            complaints.add("expected query_id and a list negative_passages", line)
        elif query_id not in queries:
            complaints.add(f"unknown query_id {query_id!r}: the collection {collection.name} has no such query", line)
        else:
            known = [documents.get(identifier or "", -1) for identifier in map(_docid, passages)]
            _add_passages(rows, query_id, passages, known, collection, complaints, line)
            for each in positives if isinstance(positives, list) else []:
                score = number(each.get("score")) if isinstance(each, dict) else None
                if score is not None and (query_id, str(identifier := _docid(each))) in rows.known:
                    rows.positives.setdefault((query_id, str(identifier)), score)
    complaints.settle()
    return rows.negatives("tevatron", path)


def _docid(passage: Any) -> str | None:
    return text_field(passage.get("docid")) if isinstance(passage, dict) else None


def _add_passages(
    rows: SourceRows,
    query_id: str,
    passages: list[Any],
    known: list[int],
    collection: Collection,
    complaints: Complaints,
    line: int,
) -> None:
    """Add passages; `known` has the row in the collection of each, −1 where it is not there."""
    stored = iter(collection.document_texts([row for row in known if row >= 0]))
    for passage, row in zip(passages, known, strict=True):
        identifier, text = _docid(passage), _passage_text(passage)
        document = next(stored) if row >= 0 else rows.texts.get(identifier or "")
        given = passage.get("score") if isinstance(passage, dict) else None
        score = None if given is None else number(given)
        if given is not None and score is None:
            complaints.add(f"the score {given!r:.40} of {identifier!r} is not a finite number", line)
        elif not identifier:
            complaints.add("a negative passage has no docid; expected {docid, title, text}", line)
        elif text is None:
            complaints.add(f"title or text of {identifier!r} is not a text in valid Unicode", line)
        elif document is None and not text:
            complaints.add(f"the document {identifier!r} is neither in the collection nor given with a text", line)
        elif document is not None and text and squeezed(text) != squeezed(document):
            where = "in the collection" if row >= 0 else "on an earlier line"
            complaints.add(f"the document {identifier!r} has another text {where}; give it an id of its own", line)
        else:
            if row < 0:
                rows.texts.setdefault(identifier, text)
            rows.add(query_id, identifier, text or str(document), score, line, inside=row >= 0)


def _passage_text(passage: Any) -> str | None:
    """Title and text of a passage, "" where it has none, None where they are no text."""
    if not isinstance(passage, dict):
        return None
    parts = ["" if passage.get(key) is None else text_field(passage[key]) for key in ("title", "text")]
    return None if None in parts else " ".join(map(str, parts)).strip()


FORMS = (
    "a source is a Parquet table of negatives; JSONL with query_id, query, positive_passages, negative_passages; "
    "JSONL with query (or anchor, question), positive (or pos), and negative, negative_1, negative_2, … or neg; JSONL "
    "with anchor, document and label, or documents and labels; CSV, TSV, Parquet or a JSON list with columns query, "
    "positive and negative; or a TREC run"
)


COLUMNS = re.compile(
    rf"((?:[^=]*=)?hf:[^=]*|.*(?:{'|'.join(map(re.escape, ENDINGS))})(?:\.gz)?):(\w+=.*)", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


def split_columns(spec: str) -> tuple[str, dict[str, str]]:
    """Split `PATH:query=COLUMN,negative=COLUMN` of a table of pairs: what a column is -> its name, where it is said.

    Raises:
        InputError: the columns are not of this form.
    """
    match = COLUMNS.fullmatch(spec)
    spec, columns = (match[1], parsed_columns(match[2])) if match else (spec, {})
    if unknown := [role for role in columns if role not in SOURCE_NAMES]:
        raise InputError(f"{spec}: {', '.join(unknown)}: a source's column is one of {', '.join(SOURCE_NAMES)}")
    return spec, columns


def split_name(spec: str) -> tuple[str, Path]:
    """Split `[NAME=]PATH`; without a name it is the file's, less its endings.

    Raises:
        InputError: a name that is not valid Unicode.
    """
    name, equals, path = spec.partition("=")
    if not (equals and name and "/" not in name):
        name, path = Path(spec).name.partition(".")[0], spec
    if text_field(name) is None:
        raise InputError(f"the name {name!r} is not valid Unicode; name the source, as in NAME=PATH")
    return name, Path(path)


def read_sources(specs: list[str], collection: Collection) -> list[NamedSource]:
    """Read several sources, each `[NAME=]PATH[:COLUMNS]`.

    Raises:
        InputError: a file is missing, or two sources have one name (give them names).
        FormatError: what is wrong in a file, with lines.
    """
    names = [split_name(split_columns(spec)[0])[0] for spec in specs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; name them apart, as in NAME=PATH")
    return [read_source(spec, collection) for spec in specs]


def read_source(spec: str, collection: Collection) -> NamedSource:
    """Read one source, `[NAME=]PATH`, in whatever form the file has, or `[NAME=]PATH:query=COLUMN,negative=COLUMN`.

    The last is a table of pairs with columns of other names (see `foils.data.pairs.ROLES`).

    In a TREC run the documents that are labelled relevant in the collection are left out: its non-positives are the
    negatives. In every other form a document that is a positive of the query, or has the text of one, is rejected,
    with a warning that has its line; in every form one that has the query's own id (`Collection.identical`). In JSONL
    a passage that is not a document of the collection brings its own text.

    Raises:
        InputError: no such file, or `hf:NAME` that cannot be fetched.
        MissingExtraError: pairs of `hf:NAME` without the extra `hub`.
        FormatError: what is wrong in the file, ids that the collection does not know among it, with lines.
    """
    spec, columns = split_columns(spec)
    name, path = split_name(spec)
    fetched = fetched_source(path)
    if columns or not isinstance(fetched, Path):
        records = records_of_file(fetched) if isinstance(fetched, Path) else fetched
        negatives = negatives_of_pairs(records, name, collection, columns)
    else:
        form = _form(fetched, collection)
        negatives = Negatives.read(fetched) if form is None else form(fetched, name, collection)
    try:
        negatives = without_own(negatives, collection, path)
    except InputError as error:
        raise FormatError(str(error), path) from error
    of_file = isinstance(fetched, Path) and not fetched.is_dir()
    return NamedSource(name, negatives, file_digest(str(fetched)) if of_file else negatives.digest)


def _form(path: Path, collection: Collection) -> Callable[[Path, str, Collection], Negatives] | None:
    if is_folder_of_tables(path):
        return read_pylate
    if magic(path, 4) == b"PAR1":
        columns = records_of_file(path).columns
        return None if is_of_negatives(columns, columns_as_in(collection, columns)) else _read_pair_table
    if path.name.lower().removesuffix(".gz").endswith(tuple(DELIMITERS)):
        return _read_pair_table
    complaints = Complaints(path)
    line, first = next(numbered_lines(path, complaints), (0, ""))
    complaints.settle()
    if not line:
        raise FormatError(f"the file is empty; {FORMS}", path)
    if first.lstrip().startswith("{"):
        if '"negative_passages"' in first or '"positive_passages"' in first:
            return read_tevatron
        _, record = next(json_objects(path, complaints), (0, {}))
        return _read_pair_table if columns_as_in(collection, record) else read_lines
    if first.lstrip().startswith("[") and path.name.lower().removesuffix(".gz").endswith(".json"):
        return _read_pair_table
    if len(first.split()) == 6:
        return _read_run
    raise FormatError(f"not a source of negatives (begins {first[:40]!r}); {FORMS}", path, line)


def _read_run(path: Path, name: str, collection: Collection) -> Negatives:
    table = Run.read(path).table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    if (queries < 0).any() or (documents < 0).any():
        _complain_of_ids(path, collection)
    positive = collection.known_positives.contain(queries, documents)
    table = table.filter(pa.array(~positive))
    ranks = ranks_within(queries[~positive])
    made = imported("trec", path, collection, positives=int(positive.sum()))
    return Negatives(negatives_table(table["query_id"], table["doc_id"], name, ranks, table["score"]), made)


def _complain_of_ids(path: Path, collection: Collection) -> None:
    """Read a TREC run again to say on which lines the ids are that the collection does not know."""
    complaints = Complaints(path)
    known = [set(collection.queries["query_id"].to_pylist()), set(collection.documents["doc_id"].to_pylist())]
    for line, text in numbered_lines(path, complaints):
        query, _, document, *_ = text.split()
        for what, identifier, among in (("query_id", query, known[0]), ("doc_id", document, known[1])):
            if identifier not in among:
                complaints.add(f"unknown {what} {identifier!r}: not in the collection {collection.name}", line)
    complaints.settle()


def columns_as_in(collection: Collection, columns: Iterable[str]) -> dict[str, str]:
    """Return how the columns of the collection's pairs were named, if all of these are among `columns`; or nothing."""
    named = {role: name for role, name in collection.columns.items() if name}
    return named if {*named.values()} <= {*columns} else {}


def is_of_negatives(columns: Iterable[str], named: Container[str] = ()) -> bool:
    """Tell whether a table is one of negatives, or means to be, and not of pairs.

    Args:
        columns: their names.
        named: what of a table of pairs some are said to be.
    """
    names = {plain(name) for name in columns}
    return (
        {"query_id", "doc_id"} <= names
        or bool({"source", "rank"} & names)
        or not ("query" in named or names & {*ROLES["query"]} or holds_training(names))
    )


def _read_pair_table(path: Path, name: str, collection: Collection) -> Negatives:
    return negatives_of_pairs(records_of_file(path), name, collection)


def negatives_in_memory(given: Any, name: str, collection: Collection) -> Negatives:
    """Return the negatives of a table in memory, or of the splits of a dictionary of tables, one after the other.

    Args:
        given: a table of negatives, or of pairs with negatives; of several, all of the same columns.
        name: of the source, where the table does not say one.
        collection: that they belong to.

    Raises:
        InputError: no table, splits that have other columns than the first, or what is wrong in one.
    """
    parts = parts_of(given)
    first, *others = parts.values()
    for each in others:
        if set(each.columns) != set(first.columns):
            raise InputError(
                f"{each.where} has the columns {', '.join(each.columns)}, {first.where} {', '.join(first.columns)}; "
                "splits that are one source have the same columns. Give one of them alone, or each as a source"
            )
    if not is_of_negatives(first.columns, columns_as_in(collection, first.columns)):
        return negatives_of_pairs(parts, name, collection)
    if not isinstance(given, Mapping):
        return Negatives(arrow_table(given))
    return Negatives(pa.concat_tables(map(_checked_split, given, given.values()), promote_options="default"))


def _checked_split(split: str, given: Any) -> pa.Table:
    try:
        return Negatives(arrow_table(given)).table
    except InputError as error:
        raise InputError(f"{type(given).__name__} ({split}): {error}") from error


def negatives_of_pairs(
    given: Records | Mapping[str, Records], name: str, collection: Collection, columns: Mapping[str, str] | None = None
) -> Negatives:
    """Return the negatives that a table of pairs names beside its positives (see `foils.data.pairs.read_pairs`).

    Args:
        given: the table, or several by split.
        name: of the source.
        collection: whose queries and documents they are, by their ids, or else by their texts; another document
            brings its own text.
        columns: what a column is -> its name. Default: as of the collection's pairs, if all of these columns are there.

    Raises:
        InputError: a column that there is not.
        FormatError: what is wrong in it, queries that the collection does not know among it.
    """
    parts = list(given.values()) if isinstance(given, Mapping) else [given]
    columns = columns or columns_as_in(collection, parts[0].columns)
    rows, training = SourceRows(name, collection, parts[0].where), holds_training(parts[0].columns)
    for records in parts:
        rows.where = records.where
        if training:
            check_chosen(columns, records.columns, records.where)
            add_records(rows, records, {column: role for role, column in columns.items()})
        else:
            _add_pairs(rows, records, columns)
    return rows.negatives("tuples" if training else "pairs", parts[0].files[0] if parts[0].files else Path("table"))


def _add_pairs(rows: SourceRows, records: Records, columns: Mapping[str, str]) -> None:
    complaints = Complaints(records.where)
    queries = set(rows.collection.queries["query_id"].to_pylist())
    for line, query_id, query, negatives in pair_negatives(records, columns):
        own = query_id if query_id in queries else rows.known_texts.query(query)
        if own is None:
            complaints.add(rows.unknown(query), line)
            continue
        for each in negatives:
            text = f"{each.title} {each.text}".strip()
            identifier, inside = rows.known_texts.document(text, each.doc_id)
            rows.add(own, identifier, text, None, line, inside=inside)
    complaints.settle()


A_SOURCE = (
    "Negatives, [NAME=]PATH: a Parquet table, triplets or n-tuples in any form that pairs have, whatever foils export "
    "writes, a TREC run, or hf:NAME, a table that foils push put there, triplets or n-tuples. Columns of other names: "
    "PATH:query=COLUMN,negative=COLUMN. In Python also a table of negatives, a DataFrame, an Arrow table, or a data "
    "set of `datasets`, whose splits are one source."
)


SOURCES = A_SOURCE.removesuffix(".") + "; several by name, or in a list. Several may be given."


OWN = "negatives"  # name of a source that has none


if TYPE_CHECKING:
    SourceLike = str | Path | Negatives | NamedSource | Any  # Any: a DataFrame of pandas or polars, an Arrow table
    SourcesLike = Mapping[str, SourceLike] | Sequence[SourceLike]
else:
    SourceLike = Annotated[str, Option(metavar="SOURCE", help=A_SOURCE)]
    SourcesLike = Annotated[list[str], Option(metavar="SOURCE", help=SOURCES)]


def as_sources(given: SourcesLike, collection: Collection) -> list[NamedSource]:
    """Return sources of negatives, each with its name.

    Args:
        given: name -> source, or sources: each a table of negatives, a DataFrame with its columns or those of pairs
            with negatives, a dictionary of such tables by split, as a `DatasetDict` is, or a file, `[NAME=]PATH`. A
            `DatasetDict` by itself is one source.
        collection: that they belong to.

    Raises:
        InputError: a source cannot be read, or two have one name.
    """
    if isinstance(given, Mapping) and not is_data_set_of_splits(given):
        return [as_source(source, collection, name=name) for name, source in given.items()]
    if isinstance(given, (str, Path)) or not isinstance(given, Sequence):
        given = [given]
    if all(isinstance(each, (str, Path)) for each in given):
        return read_sources([str(each) for each in given], collection)
    sources = [as_source(each, collection) for each in given]
    names = [each.name for each in sources]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; give them as a dictionary, by name")
    return sources


def as_source(given: SourceLike, collection: Collection, *, name: str = "") -> NamedSource:
    """Return one source with its name; without one, that of its file, or of what it says its rows come from.

    Raises:
        InputError: it is not a source, or holds ids that the collection does not know.
    """
    if isinstance(given, (str, Path)):
        return read_source(f"{name}={given}" if name else str(given), collection)
    if not isinstance(given, (NamedSource, Negatives)):
        given = negatives_in_memory(given, name or OWN, collection)
    source = as_table(given)
    if source is not given:
        source = replace(source, negatives=without_own(source.negatives, collection, name or source.name))
    return replace(source, name=name or source.name)


def as_table(given: SourceLike) -> NamedSource:
    """Return a table of negatives with its name, whatever the collection: of a Parquet file, a table or a DataFrame.

    Raises:
        InputError: it is not a table of negatives.
    """
    if isinstance(given, NamedSource):
        return given
    if isinstance(given, (str, Path)):
        path = fetched_table(given)
        return NamedSource(Path(given).name, Negatives.read(path), file_digest(path))
    negatives = given if isinstance(given, Negatives) else Negatives(arrow_table(given))
    return NamedSource(_own_name(negatives), negatives, negatives.digest)


def _own_name(negatives: Negatives) -> str:
    names = negatives.table["source"].unique().to_pylist()
    return str(names[0]) if len(names) == 1 else OWN
