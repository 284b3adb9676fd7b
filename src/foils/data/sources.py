"""Sources of negatives: our Parquet, the forms that training tools have, tables of pairs, or a TREC run."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, Rows
from foils.data.formats import Example, Passage, holds_training, read_example
from foils.data.negatives import EQUAL, POSITIVE, Negatives, negatives_table
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
from foils.data.texts import DocumentTexts, texts_of
from foils.data.tokens import alphanumeric
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest
from foils.runtime.options import Option

log = logging.getLogger(__name__)
SHOWN = 5  # lines that a warning lists
Stream = Iterable[tuple[int, Example | str]]


def squeezed(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())


class SourceRows:
    """Rows of a table in the making: for each query its passages in order, the first of repeated ones kept.

    A passage that is a positive of its query, or has the text of one (its tokens, in order, without case and
    punctuation), gets a rejected row: it is not a negative.

    Args:
        name: of the source.
        collection: that it belongs to.
    """

    def __init__(self, name: str, collection: Collection) -> None:
        self.name, self.collection = name, collection
        self._rows: dict[tuple[str, str], tuple[str | None, float, str | Path, int]] = {}
        self._repeated = 0
        self._own: dict[str, str] = {}  # texts of documents that are given by their ids and are not in the collection
        self._positives: dict[tuple[str, str], float] = {}
        self._query_ids = frozenset(collection.queries["query_id"].to_pylist())
        self._doc_rows = {identifier: row for row, identifier in enumerate(collection.documents["doc_id"].to_pylist())}

    @cached_property
    def _queries(self) -> dict[str, str]:
        """Text of a query, white space squeezed -> id; of equal texts the first id wins."""
        columns = [self.collection.queries[key].to_pylist()[::-1] for key in ("text", "query_id")]
        return {squeezed(text): identifier for text, identifier in zip(*columns, strict=True)}

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Text of a document, alone and with its title -> id; of equal texts the first id wins."""
        known: dict[str, str] = {}
        columns = (self.collection.documents[key].to_pylist() for key in ("doc_id", "title", "text"))
        for identifier, title, text in zip(*columns, strict=True):
            known.setdefault(squeezed(f"{title} {text}"), identifier)
            known.setdefault(squeezed(text), identifier)
        return known

    @cached_property
    def _known(self) -> set[tuple[str, str]]:
        """(query id, document id) of the labelled positives."""
        queries, documents = self.collection.known_positives.pairs()
        ids = self.collection.queries["query_id"].take(pa.array(queries)).to_pylist()
        return set(zip(ids, self.collection.documents["doc_id"].take(pa.array(documents)).to_pylist(), strict=True))

    def add(self, stream: Stream, where: str | Path, complaints: Complaints) -> None:
        """Add what examples say, each with its line, or, as a text, what is wrong with it.

        Raises:
            FormatError: what is wrong, by line.
        """
        for line, example in stream:
            said = example if isinstance(example, str) else self._add(example, where, line)
            for complaint in [said] if isinstance(said, str) else said:
                complaints.add(complaint, line)
        complaints.settle()

    def _add(self, example: Example, where: str | Path, line: int) -> Iterator[str]:
        """Add an example, and yield what is wrong with it.

        Of unlabelled documents those that are no labelled positives are negatives.
        """
        by_id, query_id = example.query is None, example.query_id
        if query_id not in self._query_ids:
            if by_id:
                yield f"unknown query_id {query_id!r}: the collection {self.collection.name} has no such query"
                return
            if (query_id := self._queries.get(squeezed(str(example.query)))) is None:
                asked = str(example.query)[:60]
                yield f"unknown query {asked!r}: not a text of the collection {self.collection.name}"
                return
        if not by_id and any(not (each.text or "").strip() for each in (*example.negatives, *example.unlabelled)):
            yield "a negative is empty or no text"
            return
        for each in example.positives:
            pair = str(query_id), str(each.doc_id if by_id else self._document_id(each))
            if each.score is not None and pair in self._known:
                self._positives.setdefault(pair, each.score)
        for at, each in enumerate((*example.negatives, *example.unlabelled)):
            if by_id and (wrong := self._wrong(each)):
                yield wrong
                continue
            pair = str(query_id), str(each.doc_id if by_id else self._document_id(each))
            score = np.nan if each.score is None else each.score
            if at >= len(example.negatives) and pair in self._known:
                self._positives.setdefault(pair, score)
            elif pair in self._rows:
                self._repeated += 1
            else:
                own = None if pair[1] in self._doc_rows else each.text or self._own[pair[1]]
                self._rows[pair] = own, score, where, line

    def _document_id(self, passage: Passage) -> str:
        """Return the passage's id where the collection has it, or that of the same text, or one of its own."""
        if passage.doc_id in self._doc_rows:
            return str(passage.doc_id)
        text = passage.text or ""
        own = passage.doc_id or f"text:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        return self._documents.get(squeezed(text)) or own

    def _wrong(self, passage: Passage) -> str:
        """Say what is wrong with a passage that is given by its id: an id has one text."""
        row, text, where = self._doc_rows.get(passage.doc_id, -1), passage.text, "in the collection"
        stored = self.collection.document_texts([row])[0] if row >= 0 else self._own.get(passage.doc_id)
        if stored is None and not text:
            return f"the document {passage.doc_id!r} is neither in the collection nor given with a text"
        if stored is not None and text and squeezed(text) != squeezed(stored):
            where = where if row >= 0 else "on an earlier line"
            return f"the document {passage.doc_id!r} has another text {where}; give it an id of its own"
        if row < 0:
            self._own.setdefault(passage.doc_id, str(text))
        return ""

    def negatives(self, form: str, path: Path) -> Negatives:
        """Return the table; a labelled positive whose score is known has a rejected row.

        Args:
            form: of what was read, for the provenance.
            path: the file, whose name the provenance has.
        """
        ids = [pa.array(column, pa.string()) for column in (zip(*self._rows, strict=True) if self._rows else ([], []))]
        texts, scores, places, lines = zip(*self._rows.values(), strict=True) if self._rows else ((),) * 4
        queries = self.collection.query_rows(ids[0])
        order, ranks = np.argsort(queries, kind="stable"), np.zeros(len(queries), np.int32)
        ranks[order] = ranks_within(queries[order])
        table = negatives_table(ids[0], ids[1], self.name, ranks, scores)
        if any(text is not None for text in texts):
            table = table.append_column("text", pa.array(texts, pa.large_string()))
        negatives = Negatives(table, _imported(form, path, self.collection, repeated=self._repeated))
        labelled = self.collection.known_positives.contain(*negatives.rows_in(self.collection))
        mistaken = labelled | self._equal(negatives)
        for where in dict.fromkeys(places):
            _tell_mistaken(where, [lines[row] for row in np.flatnonzero(mistaken) if places[row] == where])
        if mistaken.any():
            negatives = negatives.reject(labelled, POSITIVE).reject(mistaken, EQUAL)
        known = {pair: score for pair, score in self._positives.items() if np.isfinite(score)}
        if not known:
            return negatives
        pairs = [pa.array(column, pa.string()) for column in zip(*known, strict=True)]
        return negatives.with_rejected(*pairs, values={"score": list(known.values())})[0]

    def _equal(self, negatives: Negatives) -> npt.NDArray[np.bool_]:
        """(n,) which rows have the text of a positive of their query."""
        queries, texts = texts_of(negatives, self.collection)
        pairs = self.collection.known_positives.pairs()
        asked, answers = (rows[np.isin(pairs[0], queries)] for rows in pairs)
        known = set(_token_keys(asked, DocumentTexts(self.collection, answers)))
        return np.array([key in known for key in _token_keys(queries, texts)], bool)


def _token_keys(queries: Rows, texts: DocumentTexts) -> Iterator[int]:
    for start in range(0, len(queries), MOST):
        part = slice(start, start + MOST)
        for query, text in zip(queries[part].tolist(), texts[part], strict=True):
            yield hash_of("\x1f".join([str(query), *(alphanumeric(text) or [text])]))


def _tell_mistaken(where: str | Path, lines: Sequence[int], counted: str = "line") -> None:
    """Warn of negatives that are positives of their query, with their lines; 0 where there are none."""
    if not lines:
        return
    known = sorted({line for line in lines if line})
    shown = ", ".join(map(str, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
    at = f" ({counted}{'s' if len(known) > 1 else ''} {shown})" if known else ""
    said = "negative is a positive" if len(lines) == 1 else "negatives are positives"
    log.warning("%s: %s %s of the same query%s; rejected", where, f"{len(lines):,}", said, at)


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


def _imported(form: str, path: Path, collection: Collection, **left_out: int) -> Provenance:
    file = os.fsencode(path.name).decode("utf-8", "replace")
    return provenance("import", {"form": form, "file": file, **left_out}, inputs={"collection": collection.digest})


def _read_lines(path: Path, name: str, collection: Collection, form: str = "tuples") -> Negatives:
    rows, complaints = SourceRows(name, collection), Complaints(path)
    rows.add(((line, read_example(record)) for line, record in json_objects(path, complaints)), path, complaints)
    return rows.negatives(form, path)


def _read_run(path: Path, name: str, collection: Collection) -> Negatives:
    table = Run.read(path).table
    every = Negatives(negatives_table(table["query_id"], table["doc_id"], name, table["rank"], table["score"]))
    try:
        queries, documents = every.rows_in(collection)
    except InputError as error:
        line = next((at for at, text in numbered_lines(path, Complaints(path)) if _unknown(text, collection)), None)
        raise FormatError(str(error), path, line) from error
    positive = collection.known_positives.contain(queries, documents)
    table = table.filter(pa.array(~positive))
    made = _imported("trec", path, collection, positives=int(positive.sum()))
    ranks = ranks_within(queries[~positive])
    return Negatives(negatives_table(table["query_id"], table["doc_id"], name, ranks, table["score"]), made)


def _unknown(line: str, collection: Collection) -> bool:
    """Tell whether a line of a TREC run has an id that the collection does not know."""
    query, _, document, *_ = line.split()
    return bool(min(*collection.query_rows([query]), *collection.document_rows([document])) < 0)


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


def _split_columns(spec: str) -> tuple[str, dict[str, str]]:
    """Split `PATH:query=COLUMN,negative=COLUMN` of a table of pairs: what a column is -> its name, where it is said."""
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


def _read_source(spec: str, collection: Collection) -> NamedSource:
    """Read `[NAME=]PATH`, in whatever form the file has, or `[NAME=]PATH:query=COLUMN,negative=COLUMN`.

    The last is a table of pairs with columns of other names (see `foils.data.pairs.ROLES`).

    In a TREC run the documents that are labelled relevant in the collection are left out: its non-positives are the
    negatives. In every other form a document that is a positive of the query, or has the text of one, is rejected,
    with a warning that has its line; in every form one that has the query's own id (`Collection.identical`). In JSONL
    a passage that is not a document of the collection brings its own text.
    """
    spec, columns = _split_columns(spec)
    name, path = split_name(spec)
    fetched = fetched_source(path)
    try:
        if columns or not isinstance(fetched, Path):
            records = records_of_file(fetched) if isinstance(fetched, Path) else fetched
            negatives = _of_pairs(records, name, collection, columns)
        else:
            negatives = _read_file(fetched, name, collection)
        negatives = without_own(negatives, collection, path)
    except InputError as error:
        if isinstance(error, FormatError) or columns:
            raise
        raise FormatError(str(error), path) from error
    digest = file_digest(str(fetched)) if isinstance(fetched, Path) else negatives.digest
    return NamedSource(name, negatives, digest)


def _read_file(path: Path, name: str, collection: Collection) -> Negatives:
    ending = path.name.lower().removesuffix(".gz")
    if magic(path, 4) == b"PAR1":
        columns = records_of_file(path).columns
        if _is_of_negatives(columns, _columns_as_in(collection, columns)):
            return Negatives.read(path)
        return _of_pairs(records_of_file(path), name, collection)
    if ending.endswith(tuple(DELIMITERS)):
        return _of_pairs(records_of_file(path), name, collection)
    complaints = Complaints(path)
    line, first = next(numbered_lines(path, complaints), (0, ""))
    complaints.settle()
    if not line:
        raise FormatError(f"the file is empty; {FORMS}", path)
    if first.lstrip().startswith("{"):
        if '"negative_passages"' in first or '"positive_passages"' in first:
            return _read_lines(path, name, collection, "tevatron")
        _, record = next(json_objects(path, complaints), (0, {}))
        if not _columns_as_in(collection, record):
            return _read_lines(path, name, collection)
        return _of_pairs(records_of_file(path), name, collection)
    if first.lstrip().startswith("[") and ending.endswith(".json"):
        return _of_pairs(records_of_file(path), name, collection)
    if len(first.split()) == 6:
        return _read_run(path, name, collection)
    raise FormatError(f"not a source of negatives (begins {first[:40]!r}); {FORMS}", path, line)


def _columns_as_in(collection: Collection, columns: Iterable[str]) -> dict[str, str]:
    """Return how the columns of the collection's pairs were named, if all of these are among `columns`; or nothing."""
    named = {role: name for role, name in collection.columns.items() if name}
    return named if {*named.values()} <= {*columns} else {}


def _is_of_negatives(columns: Iterable[str], named: Container[str] = ()) -> bool:
    """Tell whether a table is one of negatives, or means to be, and not of pairs, some of whose columns are named."""
    names = {plain(name) for name in columns}
    of_pairs = "query" in named or names & {*ROLES["query"]} or holds_training(names)
    return {"query_id", "doc_id"} <= names or bool({"source", "rank"} & names) or not of_pairs


def _in_memory(given: Any, name: str, collection: Collection) -> Negatives:
    """Return the negatives of a table in memory, or of the splits of a dictionary of tables, one after the other."""
    parts = parts_of(given)
    first, *others = parts.values()
    for each in others:
        if set(each.columns) != set(first.columns):
            raise InputError(
                f"{each.where} has the columns {', '.join(each.columns)}, {first.where} {', '.join(first.columns)}; "
                "splits that are one source have the same columns. Give one of them alone, or each as a source"
            )
    if not _is_of_negatives(first.columns, _columns_as_in(collection, first.columns)):
        return _of_pairs(parts, name, collection)
    if not isinstance(given, Mapping):
        return Negatives(arrow_table(given))
    tables = []
    for split, part in given.items():
        try:
            tables.append(Negatives(arrow_table(part)).table)
        except InputError as error:
            raise InputError(f"{type(part).__name__} ({split}): {error}") from error
    return Negatives(pa.concat_tables(tables, promote_options="default"))


def _of_pairs(
    given: Records | Mapping[str, Records], name: str, collection: Collection, columns: Mapping[str, str] | None = None
) -> Negatives:
    """Return the negatives that a table of pairs, or several splits of one, names (see `foils.data.pairs`).

    Queries and documents are the collection's, by their ids, or else by their texts; another document brings its text.
    """
    parts = [given] if isinstance(given, Records) else list(given.values())
    first = parts[0]
    columns = columns or _columns_as_in(collection, first.columns)
    names = {column: role for role, column in columns.items()}
    rows, training = SourceRows(name, collection), holds_training(first.columns)
    for records in parts:
        complaints = Complaints(records.where)
        if training:
            check_chosen(columns, records.columns, records.where)
            stream: Stream = (
                (line, read_example({names.get(key, key): value for key, value in record.items()}))
                for line, record in records.read(complaints)
            )
        else:
            stream = _pairs(records, columns)
        rows.add(stream, records.where, complaints)
    return rows.negatives("tuples" if training else "pairs", first.files[0] if first.files else Path("table"))


def _pairs(records: Records, columns: Mapping[str, str]) -> Iterator[tuple[int, Example]]:
    for line, query_id, query, negatives in pair_negatives(records, columns):
        passages = [Passage(f"{each.title} {each.text}".strip(), each.doc_id) for each in negatives]
        yield line, Example(query, negatives=passages, query_id=query_id)


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
    sources = [as_source(each, collection) for each in given]
    names = [each.name for each in sources]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"several sources are called {', '.join(repeated)}; name them apart, as in NAME=PATH, or in a dictionary"
        )
    return sources


def as_source(given: SourceLike, collection: Collection, *, name: str = "") -> NamedSource:
    """Return one source with its name; without one, that of its file, or of what it says its rows come from.

    Raises:
        InputError: it is not a source, or holds ids that the collection does not know.
        FormatError: what is wrong in a file, with lines.
        MissingExtraError: pairs of `hf:NAME` without the extra `hub`.
    """
    if isinstance(given, (str, Path)):
        return _read_source(f"{name}={given}" if name else str(given), collection)
    if not isinstance(given, (NamedSource, Negatives)):
        given = _in_memory(given, name or OWN, collection)
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
    names = negatives.table["source"].unique().to_pylist()
    return NamedSource(str(names[0]) if len(names) == 1 else OWN, negatives, negatives.digest)
