"""Reading a source of negatives: our Parquet, Tevatron's JSONL, triplets and n-tuples, or a TREC run."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection
from foils.data.lines import Complaints, json_objects, magic, numbered_lines, text_field
from foils.data.negatives import REQUIRED, Negatives, negatives_table
from foils.data.pair_columns import NAMES, plain
from foils.data.pairs import pair_negatives
from foils.data.run import Run, ranks_within
from foils.data.store import Provenance, file_digest, provenance
from foils.data.tables import DELIMITERS, records_of_file
from foils.runtime.errors import FormatError, InputError

FORMS = (
    "a source is a Parquet table of negatives; JSONL with query_id, query, positive_passages, negative_passages; "
    "JSONL with query (or anchor), positive (or pos), and negative, negative_1, negative_2, … or neg; JSONL with "
    "anchor, document and label, or documents and labels; CSV, TSV or Parquet with columns query, positive and "
    "negative; or a TREC run"
)


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


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
    """Read several sources, each `[NAME=]PATH`.

    Raises:
        InputError: a file is missing, or two sources have one name (give them names).
        FormatError: what is wrong in a file, with lines.
    """
    names = [split_name(spec)[0] for spec in specs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; name them apart, as in NAME=PATH")
    return [read_source(spec, collection) for spec in specs]


def read_source(spec: str, collection: Collection) -> NamedSource:
    """Read one source, `[NAME=]PATH`, in whatever form the file has.

    In a TREC run the documents that are labelled relevant in the collection are left out: its non-positives are the
    negatives. In every form a document that has the query's own id is rejected (`Collection.identical`). In JSONL a
    passage that is not a document of the collection brings its own text.

    Raises:
        InputError: no such file.
        FormatError: what is wrong in the file, ids that the collection does not know among it, with lines.
    """
    name, path = split_name(spec)
    form = _form(path)
    negatives = Negatives.read(path) if form is None else form(path, name, collection)
    try:
        queries, documents = negatives.rows_in(collection)
    except InputError as error:
        raise FormatError(str(error), path) from error
    own = (collection.identical[queries] == documents) & (documents >= 0)
    negatives = negatives.reject(own, IDENTICAL) if own.any() else negatives
    return NamedSource(name, negatives, file_digest(path))


def _form(path: Path) -> Callable[[Path, str, Collection], Negatives] | None:
    if magic(path, 4) == b"PAR1":
        return None if is_of_negatives(records_of_file(path).columns) else _read_pair_table
    if path.name.lower().removesuffix(".gz").endswith(tuple(DELIMITERS)):
        return _read_pair_table
    complaints = Complaints(path)
    line, first = next(numbered_lines(path, complaints), (0, ""))
    complaints.settle()
    if not line:
        raise FormatError(f"the file is empty; {FORMS}", path)
    if first.lstrip().startswith("{"):
        return _read_tevatron if '"negative_passages"' in first or '"positive_passages"' in first else _read_tuples
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
    made = _imported("trec", path, collection, positives=int(positive.sum()))
    return Negatives(negatives_table(table["query_id"], table["doc_id"], name, ranks, table["score"]), made)


def _imported(form: str, path: Path, collection: Collection, **left_out: int) -> Provenance:
    """Provenance of what was read, with counts of what was left out and why."""
    file = os.fsencode(path.name).decode("utf-8", "replace")
    return provenance("import", {"form": form, "file": file, **left_out}, inputs={"collection": collection.digest})


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


@dataclass
class _Rows:
    """Rows of a table in the making: for each query its passages in order, the first of repeated ones kept.

    `texts` has those of documents that are not in the collection; `repeated` counts what was not kept.
    """

    name: str
    columns: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in (*REQUIRED.names, "text")})
    seen: dict[tuple[str, str], None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    repeated: int = 0

    def add(self, query_id: str, doc_id: str, text: str | None, score: float | None) -> None:
        if (query_id, doc_id) in self.seen:
            self.repeated += 1
            return
        self.seen[query_id, doc_id] = None
        rank = self.ranks[query_id] = self.ranks.get(query_id, -1) + 1
        values = (query_id, doc_id, self.name, rank, np.nan if score is None else score, text)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def negatives(self, form: str, path: Path, collection: Collection) -> Negatives:
        table = pa.table(
            [pa.array(self.columns[key], kind) for key, kind in zip(REQUIRED.names, REQUIRED.types, strict=True)],
            schema=REQUIRED,
        )
        if any(text is not None for text in self.columns["text"]):
            table = table.append_column("text", pa.array(self.columns["text"], pa.large_string()))
        return Negatives(table, _imported(form, path, collection, repeated=self.repeated))


def _read_tevatron(path: Path, name: str, collection: Collection) -> Negatives:
    rows, complaints = _Rows(name), Complaints(path)
    queries = set(collection.queries["query_id"].to_pylist())
    documents = {identifier: row for row, identifier in enumerate(collection.documents["doc_id"].to_pylist())}
    for line, record in json_objects(path, complaints):
        query_id = text_field(record.get("query_id"))
        passages = record.get("negative_passages")
        if query_id is None or not isinstance(passages, list):
            complaints.add("expected query_id and a list negative_passages", line)
        elif query_id not in queries:
            complaints.add(f"unknown query_id {query_id!r}: the collection {collection.name} has no such query", line)
        else:
            known = [documents.get(identifier or "", -1) for identifier in map(_docid, passages)]
            _add_passages(rows, query_id, passages, known, collection, complaints, line)
    complaints.settle()
    return rows.negatives("tevatron", path, collection)


def _docid(passage: Any) -> str | None:
    return text_field(passage.get("docid")) if isinstance(passage, dict) else None


def _add_passages(
    rows: _Rows,
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
        score = None if given is None else _number(given)
        if given is not None and score is None:
            complaints.add(f"the score {given!r:.40} of {identifier!r} is not a finite number", line)
        elif not identifier:
            complaints.add("a negative passage has no docid; expected {docid, title, text}", line)
        elif text is None:
            complaints.add(f"title or text of {identifier!r} is not a text in valid Unicode", line)
        elif document is None and not text:
            complaints.add(f"the document {identifier!r} is neither in the collection nor given with a text", line)
        elif document is not None and text and _squeezed(text) != _squeezed(document):
            where = "in the collection" if row >= 0 else "on an earlier line"
            complaints.add(f"the document {identifier!r} has another text {where}; give it an id of its own", line)
        else:
            if row < 0:
                rows.texts.setdefault(identifier, text)
            rows.add(query_id, identifier, text or document if row < 0 else None, score)


def _number(value: object) -> float | None:
    """A JSON number, NaN included, as a float, or None for infinities and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if np.isinf(number) else number


def _passage_text(passage: Any) -> str | None:
    """Title and text of a passage, "" where it has none, None where they are no text."""
    if not isinstance(passage, dict):
        return None
    parts = ["" if passage.get(key) is None else text_field(passage[key]) for key in ("title", "text")]
    return None if None in parts else " ".join(map(str, parts)).strip()


def is_of_negatives(columns: Iterable[str]) -> bool:
    """Tell whether a table with these columns is one of negatives, or means to be, and not of pairs."""
    names = {plain(name) for name in columns}
    return {"query_id", "doc_id"} <= names or bool({"source", "rank"} & names) or not names & {*NAMES["query"]}


def _read_pair_table(path: Path, name: str, collection: Collection) -> Negatives:
    return negatives_of_pairs(path, name, collection, where=path)


def negatives_of_pairs(given: Any, name: str, collection: Collection, *, where: str | Path = "table") -> Negatives:
    """Return the negatives that a table of pairs names beside its positives (see `foils.data.pairs.read_pairs`).

    Args:
        given: a file, or a table in memory.
        name: of the source.
        collection: whose queries and documents they are, by their ids, or else by their texts; another document
            brings its own text.
        where: for complaints.

    Raises:
        FormatError: what is wrong in it, queries that the collection does not know among it.
    """
    rows, complaints = _Rows(name), Complaints(where)
    queries, documents = (
        set(collection.queries["query_id"].to_pylist()),
        set(collection.documents["doc_id"].to_pylist()),
    )
    query_ids, doc_ids = _by_text(collection)
    for line, query_id, query, negatives in pair_negatives(given):
        known = query_id if query_id in queries else query_ids.get(_squeezed(query))
        if known is None:
            complaints.add(f"unknown query {query[:60]!r}: not a text of the collection {collection.name}", line)
            continue
        for each in negatives:
            text = f"{each.title} {each.text}".strip()
            own = each.doc_id if each.doc_id in documents else doc_ids.get(_squeezed(text))
            rows.add(known, own or str(each.doc_id), None if own else text, None)
    complaints.settle()
    return rows.negatives("pairs", Path(str(where)), collection)


_NEGATIVE = re.compile(r"(negative(_\d+)?|neg)$")


def _read_tuples(path: Path, name: str, collection: Collection) -> Negatives:
    rows, complaints = _Rows(name), Complaints(path)
    query_ids, doc_ids = _by_text(collection)
    for line, record in json_objects(path, complaints):
        query = text_field(record.get("query", record.get("anchor")))
        texts = _labelled_negatives(record) if {"label", "labels"} & record.keys() else _negative_columns(record)
        if query is None or texts is None:
            complaints.add(
                "expected query (or anchor), positive, and negative or negative_1, negative_2, …; or query, documents "
                "and as many labels, numbers of which 0 is a negative's",
                line,
            )
        elif _squeezed(query) not in query_ids:
            complaints.add(f"unknown query {query[:60]!r}: not a text of the collection {collection.name}", line)
        elif any(text is None or not text.strip() for text in texts):
            complaints.add("a negative is empty or no text", line)
        else:
            for text in texts:
                known = doc_ids.get(_squeezed(str(text)))
                own = "text:" + hashlib.blake2b(str(text).encode(), digest_size=8).hexdigest()
                rows.add(query_ids[_squeezed(query)], known or own, None if known else str(text), None)
    complaints.settle()
    return rows.negatives("tuples", path, collection)


def _negative_columns(record: dict[str, Any]) -> list[str | None] | None:
    """The texts of negative, negative_1, … or neg, in order; None without such a column."""
    columns = sorted((key for key in record if _NEGATIVE.match(key)), key=lambda key: (len(key), key))
    return list(_texts(record[key] for key in columns)) if columns else None


def _labelled_negatives(record: dict[str, Any]) -> list[str | None] | None:
    """The document, or those of the documents, whose label is 0; None where there is not a number for each."""
    several = "labels" in record
    documents = record.get("documents") if several else [record.get("document")]
    labels = record["labels"] if several else [record["label"]]
    if not isinstance(documents, list) or not isinstance(labels, list) or len(documents) != len(labels):
        return None
    numbers = [_number(label) for label in labels]
    if None in numbers:
        return None
    return [text_field(text) for text, number in zip(documents, numbers, strict=True) if number == 0]


def _texts(values: Iterator[Any]) -> Iterator[str | None]:
    for value in values:
        if isinstance(value, list):
            yield from (text_field(item) for item in value)
        else:
            yield text_field(value)


def _by_text(collection: Collection) -> tuple[dict[str, str], dict[str, str]]:
    """Ids by text, white space squeezed; documents by their text alone and with their title, first id wins."""
    queries: dict[str, str] = {}
    for identifier, text in zip(*(collection.queries[key].to_pylist() for key in ("query_id", "text")), strict=True):
        queries.setdefault(_squeezed(text), identifier)
    documents: dict[str, str] = {}
    columns = (collection.documents[key].to_pylist() for key in ("doc_id", "title", "text"))
    for identifier, title, text in zip(*columns, strict=True):
        documents.setdefault(_squeezed(f"{title} {text}"), identifier)
        documents.setdefault(_squeezed(text), identifier)
    return queries, documents


def _squeezed(text: str) -> str:
    return " ".join(text.split())
