"""Sources of negatives, in every form that they come in, and the door that exports them.

A source is our Parquet, records of the forms that training tools have, a table of pairs, or a TREC run.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, DocumentTexts, PairIndex, Rows, TextNumbers
from foils.data.negatives import ALIASES, EQUAL, FORMS, POSITIVE, Exported, Negatives, negatives_table
from foils.data.pairs import OF_SOURCE, ROLES, Columns, Example, Passage, plain, text_id
from foils.data.read import CollectionLike, CollectionSettings, read_hf
from foils.data.records import Complaints, arrow_table, listed_rows, parts_of, table_form
from foils.data.run import Run, ranks_within
from foils.data.tables import ArrowTable, DataSet, Provenance, provenance
from foils.data.tokens import comparable
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest
from foils.runtime.options import Option, door, several

log = logging.getLogger(__name__)


NEEDED = (("query", "query_id"), ("negative",))  # of the columns of a source


def squeezed(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())


class _SourceRows:
    """Rows of a table in the making: for each query its documents in order, the first of repeated ones kept.

    Args:
        collection: that the table belongs to.
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.repeated = 0
        self._rows: dict[tuple[str, str], tuple[int, float]] = {}  # rank and score of each (query, document)
        self._texts: dict[str, str] = {}  # of documents that are not in the collection, by id
        self._counts = Counter[str]()  # documents of each query
        self._query_ids = set(collection.queries["query_id"].to_pylist())
        self._doc_rows = {key: row for row, key in enumerate(collection.documents["doc_id"].to_pylist())}

    @cached_property
    def _queries(self) -> dict[str, str]:
        """Text of a query, white space squeezed -> its id; of equal texts the first one's."""
        known: dict[str, str] = {}
        for row in self.collection.queries.to_pylist():
            known.setdefault(squeezed(row["text"]), row["query_id"])
        return known

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Text of a document, alone and with its title -> its id; of equal texts the first one's."""
        known: dict[str, str] = {}
        columns = (self.collection.documents[key].to_pylist() for key in ("doc_id", "title", "text"))
        for doc_id, title, text in zip(*columns, strict=True):
            known.setdefault(squeezed(f"{title} {text}"), doc_id)
            known.setdefault(squeezed(text), doc_id)
        return known

    def add(self, example: Example) -> None:
        """Add an example; its query is known by its id where the collection has it, or else by its text."""
        text, query = example.query, example.query_id
        if query not in self._query_ids:
            query = None if text is None else self._queries.get(squeezed(text))
        if query is None:
            asked = f"query_id {example.query_id!r}" if text is None else f"query {text[:60]!r}"
            raise InputError(f"unknown {asked}: the collection {self.collection.name} has no such query")
        for each in example.negatives:
            pair = query, self._document(each)
            if pair in self._rows:
                self.repeated += 1
            else:
                self._rows[pair] = self._counts[query], np.nan if each.score is None else each.score
                self._counts[query] += 1

    def _document(self, passage: Passage) -> str:
        """The id of a document, which is known by its id, or else by its text; a new one where it is not known.

        Another text of one that has an id is refused.
        """
        text, doc_id = passage.whole, passage.doc_id or text_id(passage.whole)
        if not passage.doc_id and doc_id not in self._doc_rows:
            doc_id = self._documents.get(squeezed(text), doc_id)
        row, known = self._doc_rows.get(doc_id, -1), self._texts.get(doc_id)
        if row < 0 and known is None:
            if not text:
                raise InputError(f"the document {doc_id!r} is neither in the collection nor given with a text")
            self._texts[doc_id] = text
        elif passage.doc_id and text:
            known = self.collection.document_texts([row])[0] if known is None else known
            if not squeezed(known).endswith(squeezed(text)):  # the title may be left out
                raise InputError(f"the document {doc_id!r} has another text elsewhere; give it an id of its own")
        return doc_id

    def negatives(self, name: str, file: str) -> Negatives:
        """Return the table, rejected what is no negative.

        Args:
            name: of the source.
            file: where the rows come from.
        """
        query_ids, doc_ids = ([pair[at] for pair in self._rows] for at in (0, 1))
        ranks, scores = ([row[at] for row in self._rows.values()] for at in (0, 1))
        table = negatives_table(query_ids, doc_ids, name, ranks, scores)
        if self._texts:
            texts = pa.array([self._texts.get(doc_id) for doc_id in doc_ids], pa.large_string())
            table = table.append_column("text", texts)
        origin = _imported(file, self.collection, repeated=self.repeated)
        return without_own(Negatives(table, origin), self.collection, file, by_text=True)


def without_own(negatives: Negatives, collection: Collection, where: str, *, by_text: bool = False) -> Negatives:
    """Return the table, rejected what is no negative of its query, with a warning of labelled positives.

    Args:
        negatives: of any origin.
        collection: that it belongs to.
        where: it comes from, for the warning.
        by_text: whether what has the text of a labelled positive (its tokens, in order, without
            case and punctuation) is rejected, too.

    Raises:
        InputError: it holds ids that the collection does not know.
    """
    queries, documents = negatives.rows_in(collection)
    labelled = collection.known_positives.contain(queries, documents) & negatives.keep
    mistaken = labelled
    if by_text:
        asked, texts = negatives.texts_in(collection)
        known, answers = collection.known_positives.pairs()
        inside = np.isin(known, asked)
        both = DocumentTexts(collection, np.append(np.asarray(texts.rows), answers[inside]), texts.own)

        def words_of(places: Rows) -> list[str]:
            return [" ".join(comparable(text)) for text in both.take(places)]

        words = TextNumbers(np.arange(len(both)), words_of)
        of_negatives, of_answers = np.split(words.numbers, [len(asked)])
        mistaken = labelled | PairIndex(known[inside], of_answers).contain(asked, of_negatives)
    if mistaken.any():
        log.warning("%s: negatives that are positives of the same query: %d; rejected", where, mistaken.sum())
        negatives = negatives.reject(labelled, POSITIVE).reject(mistaken, EQUAL)
    identical = (collection.identical[queries] == documents) & (documents >= 0)
    return negatives.reject(identical, IDENTICAL) if identical.any() else negatives


def _imported(file: str, collection: Collection, **left_out: int) -> Provenance:
    return provenance("import", {"file": Path(file).name, **left_out}, inputs={"collection": collection.digest})


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


def _read(source: Any, name: str, collection: Collection) -> Negatives:
    """Return a table of negatives as it is, or what a run or records say, of several splits one after the other.

    Of a run, what is labelled relevant is left out, and the rest is ranked anew. Of records,
    queries and documents are the collection's, by their ids, or else by their texts; another
    document brings its text. Where all columns that were named for the collection are there, as in
    its own file, they are called so here, too.

    Args:
        source: a file, a table in memory, or a dictionary of these by split.
        name: of the source.
        collection: that it belongs to.
    """
    form = table_form(source) if isinstance(source, Path) else ".parquet"
    if not form:  # what is no table by its name or first byte has to be a TREC run
        return _read_run(source, name, collection)
    parts = parts_of(source)
    first = next(iter(parts.values()))
    columns = {role: column for role, column in collection.columns.items() if column}
    if not {*columns.values()} <= {*first.columns}:
        columns = {}
    columns = {role: column for role, column in columns.items() if role in OF_SOURCE}
    of_pairs = any(name in ROLES["query"] or name.startswith("neg") for name in map(plain, first.columns))
    if form == ".parquet" and not (columns or of_pairs or isinstance(source, Mapping)):
        return Negatives.read(source) if isinstance(source, Path) else Negatives(arrow_table(source))
    rows = _SourceRows(collection)
    for records in parts.values():
        complaints = Complaints(records.where)
        of_source = Columns.of(records, columns, OF_SOURCE, NEEDED)
        for line, fields in records.counted("pairs", complaints):
            with complaints.at(line):
                rows.add(of_source.example(fields))
        complaints.raise_if_any()
    return rows.negatives(name, str(first.files[0]) if first.files else "table")


def _read_run(path: Path, name: str, collection: Collection) -> Negatives:
    """Return the documents of a TREC run that are not labelled relevant, ranked anew."""
    table = Run.read(path).table
    if not len(table):
        raise FormatError("the file is empty; a source is a Parquet table, a TREC run, or records", path)
    every = Negatives(negatives_table(table["query_id"], table["doc_id"], name, table["rank"], table["score"]))
    queries, documents = every.rows_in(collection)
    positive = collection.known_positives.contain(queries, documents)
    kept, ranks = every.table.filter(pa.array(~positive)), ranks_within(queries[~positive])
    origin = _imported(str(path), collection, positives=int(positive.sum()))
    return Negatives(kept.set_column(kept.column_names.index("rank"), "rank", pa.array(ranks)), origin)


A_SOURCE = (
    "Negatives, [NAME=]PATH: a Parquet table, triplets or n-tuples in any form that pairs have, the forms of Tevatron "
    "and FlagEmbedding, a TREC run, or hf:NAME, triplets or n-tuples there. In Python also a table of negatives, a "
    "DataFrame, an Arrow table, or a data set of `datasets`, whose splits are one source."
)
SOURCES = A_SOURCE.removesuffix(".") + "; several by name, or in a list. Several may be given."
OWN = "negatives"  # name of a source that has none
SourceLike = Annotated[str | Path | Negatives | ArrowTable | DataSet, Option(metavar="SOURCE", help=A_SOURCE)]
SourcesLike = Annotated[
    SourceLike | Mapping[str, SourceLike] | Sequence[SourceLike],
    Option(metavar="SOURCE", help=SOURCES, repeated=True),
]


def as_sources(sources: SourcesLike, collection: Collection) -> list[NamedSource]:
    """Return sources of negatives, each with its name.

    Args:
        sources: name -> source, or sources: each a table of negatives, a DataFrame with its columns
            or those of pairs with negatives, a dictionary of such tables by split, as a
            `DatasetDict` is, or a file, `[NAME=]PATH`. A `DatasetDict` by itself is one source.
        collection: that they belong to.

    Raises:
        InputError: a source cannot be read, or two have one name.
    """
    if isinstance(sources, Mapping) and not hasattr(sources, "with_format"):  # a `DatasetDict` is one source
        return [as_source(source, collection, name=name) for name, source in sources.items()]
    listed: list[Any] = [sources] if listed_rows(sources) is not None else several(sources)
    opened = [as_source(each, collection) for each in listed]
    names = [each.name for each in opened]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{', '.join(repeated)}: given twice; leave one out, or name them apart, as in NAME=PATH")
    return opened


def as_source(source: SourceLike, collection: Collection | None, *, name: str = "") -> NamedSource:
    """Return one source with its name; without one, that of its file, or of what it says its rows come from.

    Args:
        source: the source.
        collection: that it belongs to. None: not known; then a table of negatives is taken as it is.
        name: to call it by.

    Raises:
        InputError: it is not a source, or holds ids that the collection does not know.
        FormatError: what is wrong in a file, with lines.
        MissingExtraError: pairs of `hf:NAME` without the extra `hub`.
    """
    path, read = None, cast(Any, source)
    if isinstance(source, (str, Path)):
        before, equals, after = str(source).partition("=")
        if name or not (equals and before and "/" not in before):
            before, after = name or Path(source).name.partition(".")[0], str(source)
        path = Path(after)
        name, read = before, path
        if str(path).startswith("hf:"):
            read = read_hf(str(path).removeprefix("hf:"))
    try:
        if isinstance(read, Negatives):
            negatives = read
        elif collection is not None:
            negatives = _read(read, name or OWN, collection)
        else:
            negatives = Negatives.read(read) if isinstance(read, Path) else Negatives(arrow_table(read))
        sources = negatives.table["source"].unique().to_pylist()
        name = name or (str(sources[0]) if len(sources) == 1 else OWN)
        digest = file_digest(read) if isinstance(read, Path) else negatives.digest
        if collection is not None:
            negatives = without_own(negatives, collection, str(path or name))
    except InputError as error:
        if path is None or isinstance(error, FormatError) or str(error).startswith(f"{path}: "):
            raise
        raise FormatError(str(error), path) from error
    return NamedSource(name, negatives, digest)


@door
def export(
    collection: CollectionLike,
    source: SourceLike,
    *,
    form: Annotated[str, Option(names=(*FORMS, *ALIASES))] = "triplets",
    scores: Annotated[str | None, Option(metavar="COLUMN")] = None,
    split: str = "train",
    reading: CollectionSettings,
) -> Exported:
    """Export the kept negatives, with their queries and positives, in a form that a training tool reads.

    Forms: triplets, tuples, labelled-pairs and labelled-lists (sentence-transformers, PyLate),
    flagembedding and tevatron. sentence-transformers and pylate stand for triplets, which both
    train on; triplet, n-tuple, labeled-pair and labeled-list are sentence-transformers' names. A
    tuple has as many negatives as the query with most has; queries with fewer are left out. Files
    are JSON lines.

    Args:
        form: Form of the records.
        scores: Column of the table whose scores go along, of positives and negatives: score,
            cosine, logit, elo, … The table of foils rate and of foils score-pairs has those of
            positives.
        split: Split of the judgements whose positives go along.

    Example:
        foils export scifact/ rated.parquet --form flagembedding --scores elo -o train.jsonl

    Raises:
        InputError: nothing to export, or scores that are missing.
        UnknownNameError: no such form, split or column.
    """
    loaded = reading.open(collection)
    return Exported(loaded, as_source(source, loaded).negatives, ALIASES.get(form, form), split, scores or "")
