"""Sources of negatives: our Parquet, records of the forms that training tools have, tables of pairs, or a TREC run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, DocumentTexts, Rows
from foils.data.negatives import EQUAL, POSITIVE, Negatives, negatives_table, texts_of
from foils.data.pairs import (
    EXPECTED,
    OF_SOURCE,
    ROLES,
    Columns,
    Example,
    Passage,
    hash_of,
    plain,
    text_id,
)
from foils.data.read import TABLE, fetched_source
from foils.data.records import (
    DELIMITERS,
    Complaints,
    Records,
    arrow_table,
    first_character,
    is_data_set_of_splits,
    magic,
    parts_of,
)
from foils.data.run import Run, ranks_within
from foils.data.tables import MOST, Provenance, provenance
from foils.data.tokens import alphanumeric
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest
from foils.runtime.options import Option

log = logging.getLogger(__name__)


def squeezed(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())


class SourceRows:
    """Rows of a table in the making: for each query its documents in order, the first of repeated ones kept.

    Args:
        name: of the source.
        collection: that it belongs to.
    """

    def __init__(self, name: str, collection: Collection) -> None:
        self.name, self.collection = name, collection
        self._rows: dict[tuple[str, str], tuple[str | None, float]] = {}  # text and score
        self._repeated = 0
        self._own: dict[str, str] = {}  # texts of documents that are given by their ids and are not in the collection
        self._positives: dict[tuple[str, str], float] = {}  # scores of labelled positives
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

    def read(self, records: Records, chosen: Mapping[str, str]) -> None:
        """Add what the records of a file or a table say.

        Raises:
            FormatError: what is wrong with them, by line.
        """
        columns, complaints = Columns.of(records, chosen, OF_SOURCE), Complaints(records.where)
        for line, fields in records.read(complaints):
            try:
                self._add(columns.example(fields))
            except InputError as error:
                complaints.add(str(error), line)
        complaints.settle()

    def _add(self, example: Example) -> None:
        """Add an example; of unlabelled documents those that are no labelled positives are negatives."""
        query_id = self._query_id(example)
        for each in example.positives:
            if each.score is not None and (pair := (query_id, self._document_id(each))) in self._known:
                self._positives.setdefault(pair, each.score)
        for each in (*example.negatives, *example.unlabelled):
            self._check(each)
            pair, score = (query_id, self._document_id(each)), np.nan if each.score is None else each.score
            if example.unlabelled and pair in self._known:
                self._positives.setdefault(pair, score)
            elif pair in self._rows:
                self._repeated += 1
            else:
                own = None if pair[1] in self._doc_rows else each.whole or self._own[pair[1]]
                self._rows[pair] = own, score

    def _query_id(self, example: Example) -> str:
        """The query's id where the collection has it, or that of the same text."""
        if example.query_id in self._query_ids:
            return str(example.query_id)
        text, name = example.query, self.collection.name
        if text is None:
            raise InputError(f"unknown query_id {example.query_id!r}: the collection {name} has no such query")
        known = own if (own := text_id(text)) in self._query_ids else self._queries.get(squeezed(text))
        if known is None:
            raise InputError(f"unknown query {text[:60]!r}: not a text of the collection {name}")
        return known

    def _document_id(self, passage: Passage) -> str:
        """The document's id, or that of the same text, or one of its own."""
        own = passage.doc_id or text_id(passage.whole)
        return own if passage.doc_id or own in self._doc_rows else self._documents.get(squeezed(passage.whole), own)

    def _check(self, passage: Passage) -> None:
        """Refuse another text, or none, of a document that is given by its id: an id has one text."""
        if (doc_id := passage.doc_id) is None:
            return
        text, row = passage.whole, self._doc_rows.get(doc_id, -1)
        if row < 0 and not (text or doc_id in self._own):
            raise InputError(f"the document {doc_id!r} is neither in the collection nor given with a text")
        if row < 0:
            known, where = [self._own.setdefault(doc_id, text)], "on an earlier line"
        else:
            title, stored = (self.collection.documents[name][row].as_py() for name in ("title", "text"))
            known, where = [f"{title} {stored}", stored], "in the collection"
        if text and squeezed(text) not in map(squeezed, known):
            raise InputError(f"the document {doc_id!r} has another text {where}; give it an id of its own")

    def negatives(self, file: str) -> Negatives:
        """Return the table: rejected what is no negative; a labelled positive whose score is known has a row.

        Args:
            file: where the rows come from.
        """
        columns = zip(*((*pair, *of) for pair, of in self._rows.items()), strict=True)
        query_ids, doc_ids, texts, scores = columns if self._rows else ((),) * 4
        queries = self.collection.query_rows(query_ids)
        order, ranks = np.argsort(queries, kind="stable"), np.zeros(len(queries), np.int32)
        ranks[order] = ranks_within(queries[order])
        table = negatives_table(
            pa.array(query_ids, pa.string()), pa.array(doc_ids, pa.string()), self.name, ranks, scores
        )
        if any(text is not None for text in texts):
            table = table.append_column("text", pa.array(texts, pa.large_string()))
        made = _imported(file, self.collection, repeated=self._repeated)
        negatives = without_own(Negatives(table, made), self.collection, file, by_text=True)
        known = {pair: score for pair, score in self._positives.items() if np.isfinite(score)}
        if not known:
            return negatives
        pairs = [pa.array(column, pa.string()) for column in zip(*known, strict=True)]
        return negatives.with_rejected(*pairs, values={"score": list(known.values())})[0]


def without_own(negatives: Negatives, collection: Collection, where: str, *, by_text: bool = False) -> Negatives:
    """Return the table, rejected what is no negative of its query, with a warning of labelled positives.

    Args:
        negatives: of any origin.
        collection: that it belongs to.
        where: it comes from, for the warning.
        by_text: whether what has the text of a labelled positive (its tokens, in order, without case and punctuation)
            is rejected, too.

    Raises:
        InputError: it holds ids that the collection does not know.
    """
    queries, documents = negatives.rows_in(collection)
    labelled = collection.known_positives.contain(queries, documents) & negatives.keep
    mistaken = labelled | _equal(negatives, collection) if by_text else labelled
    if mistaken.any():
        log.warning("%s: negatives that are positives of the same query: %d; rejected", where, mistaken.sum())
        negatives = negatives.reject(labelled, POSITIVE).reject(mistaken, EQUAL)
    own = (collection.identical[queries] == documents) & (documents >= 0)
    return negatives.reject(own, IDENTICAL) if own.any() else negatives


def _equal(negatives: Negatives, collection: Collection) -> npt.NDArray[np.bool_]:
    """(n,) which rows have the text of a positive of their query."""
    queries, texts = texts_of(negatives, collection)
    pairs = collection.known_positives.pairs()
    asked, answers = (rows[np.isin(pairs[0], queries)] for rows in pairs)
    known = set(_token_keys(asked, DocumentTexts(collection, answers)))
    return np.array([key in known for key in _token_keys(queries, texts)], bool)


def _token_keys(queries: Rows, texts: DocumentTexts) -> Iterator[int]:
    for start in range(0, len(queries), MOST):
        part = slice(start, start + MOST)
        for query, text in zip(queries[part].tolist(), texts[part], strict=True):
            yield hash_of("\x1f".join([str(query), *(alphanumeric(text) or [text])]))


def _imported(file: str, collection: Collection, **left_out: int) -> Provenance:
    return provenance("import", {"file": Path(file).name, **left_out}, inputs={"collection": collection.digest})


def _read_run(path: Path, name: str, collection: Collection) -> Negatives:
    """Read a TREC run: what is labelled relevant is left out, the rest is ranked anew."""
    if not len(table := Run.read(path).table):
        raise FormatError(f"the file is empty; a source is a Parquet table, a TREC run, or records: {EXPECTED}", path)
    every = Negatives(negatives_table(table["query_id"], table["doc_id"], name, table["rank"], table["score"]))
    queries, documents = every.rows_in(collection)
    positive = collection.known_positives.contain(queries, documents)
    kept, ranks = every.table.filter(pa.array(~positive)), ranks_within(queries[~positive])
    made = _imported(str(path), collection, positives=int(positive.sum()))
    return Negatives(kept.set_column(kept.column_names.index("rank"), "rank", pa.array(ranks)), made)


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


def split_name(spec: str) -> tuple[str, Path]:
    """Split `[NAME=]PATH`; without a name it is the file's, less its endings."""
    name, equals, path = spec.partition("=")
    if not (equals and name and "/" not in name):
        name, path = Path(spec).name.partition(".")[0], spec
    return name, Path(path)


def _is_run(path: Path) -> bool:
    """Tell whether a file is no table, by its name and its first bytes, and so has to be a TREC run."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return not (ending in DELIMITERS or magic(path, 4) == b"PAR1" or first_character(path) in ("{", "["))


def _of_records(given: Any, name: str, collection: Collection) -> Negatives:
    """Return a table of negatives as it is, or what records say, of several splits one after the other.

    Queries and documents are the collection's, by their ids, or else by their texts; another document brings its text.
    Where all columns that were named for the collection are there, as in its own file, they are called so here, too.

    Args:
        given: a file, a table in memory, or a dictionary of these by split.
        name: of the source.
        collection: that it belongs to.
    """
    parts = parts_of(given)
    first = next(iter(parts.values()))
    own = {role: column for role, column in collection.columns.items() if column}
    columns = {
        role: column for role, column in own.items() if role in OF_SOURCE and {*own.values()} <= {*first.columns}
    }
    of_pairs = any(name in ROLES["query"] or name.startswith("neg") for name in map(plain, first.columns))
    if not (columns or of_pairs or isinstance(given, Mapping)):
        if not isinstance(given, Path):
            return Negatives(arrow_table(given))
        if magic(given, 4) == b"PAR1":
            return Negatives.read(given)
    rows = SourceRows(name, collection)
    for records in parts.values():
        rows.read(records, columns)
    return rows.negatives(str(first.files[0]) if first.files else "table")


A_SOURCE = (
    "Negatives, [NAME=]PATH: a Parquet table, triplets or n-tuples in any form that pairs have, whatever foils export "
    "writes, a TREC run, or hf:NAME, a table called negatives.parquet there, triplets or n-tuples. In Python also a "
    "table of negatives, a DataFrame, an Arrow table, or a data set of `datasets`, whose splits are one source."
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
        said = f"several sources are called {', '.join(repeated)}"
        raise InputError(f"{said}; name them apart, as in NAME=PATH, or in a dictionary")
    return sources


def as_source(given: SourceLike, collection: Collection, *, name: str = "") -> NamedSource:
    """Return one source with its name; without one, that of its file, or of what it says its rows come from.

    Raises:
        InputError: it is not a source, or holds ids that the collection does not know.
        FormatError: what is wrong in a file, with lines.
        MissingExtraError: pairs of `hf:NAME` without the extra `hub`.
    """
    if isinstance(given, NamedSource):
        return replace(given, name=name or given.name)
    if isinstance(given, (str, Path)):
        name, path = (name, Path(given)) if name else split_name(str(given))
        fetched = fetched_source(path)
        try:
            if isinstance(fetched, Path) and _is_run(fetched):
                negatives = _read_run(fetched, name, collection)
            else:
                negatives = _of_records(fetched, name, collection)
            negatives = without_own(negatives, collection, str(path))
        except InputError as error:
            raise error if isinstance(error, FormatError) else FormatError(str(error), path) from error
        return NamedSource(name, negatives, file_digest(fetched) if isinstance(fetched, Path) else negatives.digest)
    if not isinstance(given, Negatives):
        given = _of_records(given, name or OWN, collection)
    source = as_table(given)
    negatives = without_own(source.negatives, collection, name or source.name)
    return NamedSource(name or source.name, negatives, source.digest)


def as_table(given: SourceLike) -> NamedSource:
    """Return a table of negatives with its name, whatever the collection: of a Parquet file, a table or a DataFrame.

    Raises:
        InputError: it is not a table of negatives.
    """
    if isinstance(given, NamedSource):
        return given
    if isinstance(given, (str, Path)):
        if not isinstance(path := fetched_source(given), Path):
            raise InputError(f"{given} holds pairs; expected a table of negatives, {TABLE}")
        return NamedSource(Path(given).name, Negatives.read(path), file_digest(path))
    negatives = given if isinstance(given, Negatives) else Negatives(arrow_table(given))
    names = negatives.table["source"].unique().to_pylist()
    return NamedSource(str(names[0]) if len(names) == 1 else OWN, negatives, negatives.digest)
