"""Sources of negatives, in every form that they come in, the door that exports them, and the rows to train on.

A source is our Parquet, records of the forms that training tools have, a table of pairs, or a TREC run.
Training takes its rows from here, of one data set or of several as one, and so does the plan of
batches that is shown beforehand, so that the two agree.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, DocumentTexts, PairIndex, Rows, TextNumbers
from foils.data.negatives import ALIASES, EQUAL, FORMS, POSITIVE, TOP, Exported, Negatives, negatives_table
from foils.data.pairs import OF_SOURCE, ROLES, Columns, Example, Passage, plain, text_id
from foils.data.read import CollectionLike, CollectionSettings, read_hf
from foils.data.records import Complaints, arrow_table, listed_rows, parts_of, table_form
from foils.data.run import Run, ranks_within
from foils.data.tables import ArrowTable, DataSet, Provenance, provenance
from foils.data.tokens import comparable
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest
from foils.runtime.options import Option, Settings, door, refuse, several

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
        ids, texts = (self.collection.queries[name].to_pylist()[::-1] for name in ("query_id", "text"))
        return dict(zip(map(squeezed, texts), ids, strict=True))

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Text of a document, alone and with its title -> its id; of equal texts the first one's."""
        known: dict[str, str] = {}
        columns = (self.collection.documents[key].to_pylist()[::-1] for key in ("doc_id", "title", "text"))
        for doc_id, title, text in zip(*columns, strict=True):
            known[squeezed(f"{title} {text}")] = known[squeezed(text)] = doc_id
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
        words = TextNumbers(np.arange(len(both)), lambda at: [" ".join(comparable(text)) for text in both.take(at)])
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


#: what a row to train on can hold
ROW_FORMS = ("triplets", "lists", "pairs")
ABSENT = -1  # in place of a document that is not there, in a list that is short
MAX_POSITIVES = 64  # positives of a query that are trained on, at most (HOBIT)


@dataclass(frozen=True, kw_only=True)
class RowSettings(Settings):
    """Which rows are trained on.

    Attributes:
        split: Split of the judgements whose positives are trained on; all: of every split.
        form: What a row holds: triplets (a query, a positive and a negative), lists (a query, a
            positive and all its negatives) or pairs (a query and a positive). Default: triplets;
            without negatives, pairs.
        per_query: Negatives per query at most, by rank. Default: all.
        max_positives: Positives per query at most, the first in the judgements. Default: 64.
    """

    heading = "Rows"

    split: str = "train"
    form: Annotated[str | None, Option(names=ROW_FORMS)] = None
    per_query: Annotated[int | None, Option(least=1)] = None
    max_positives: Annotated[int | None, Option(least=1)] = None

    def completed(self, form: str) -> Self:
        """Return the settings with this form, and the most positives, in the place of what is left open.

        Raises:
            InputError: a number of negatives for rows that hold none.
        """
        form = self.form or form
        if form == "pairs":
            why = "with pairs, which have no negatives of their own; leave it out, or give a source and another form"
            refuse({"per_query": self.per_query}, why)
        return replace(self, form=form, max_positives=self.max_positives or MAX_POSITIVES)


@dataclass(frozen=True)
class TrainingRows:
    """Rows to train on, in the order of the judgements, then of the ranks of the negatives.

    Attributes:
        query_rows: (N,) the query of each row, by its row in the collection.
        doc_rows: (N,) the positive of each row, by its row in the collection; of a query that no
            split labels the candidate rated best.
        negatives: (N, k) the negatives of each row, by their rows in the table; −1 where a list is
            short. Pairs have k = 0, triplets k = 1.
        queries: how many queries of the split have a positive.
        pairs: how many (query, positive) pairs the rows are made of.
        capped: pairs left out because their query has more positives than allowed.
        uncovered: pairs left out because their query has no kept negative.
        unlabelled: of the queries without a label, whose positive is the candidate rated best.
        outside: queries without a label that are left out: their candidate rated best is not in the
            collection.
    """

    query_rows: Rows
    doc_rows: Rows
    negatives: Rows
    queries: int
    pairs: int
    capped: int
    uncovered: int
    unlabelled: int = 0
    outside: int = 0

    def __len__(self) -> int:
        return len(self.query_rows)


def training_rows(
    collection: Collection,
    negatives: Negatives | None = None,
    *,
    split: str = "train",
    form: str | None = None,
    per_query: int | None = None,
    max_positives: int = MAX_POSITIVES,
) -> TrainingRows:
    """Return the rows of a split's positives and the kept rows of a table.

    A query that no split labels has a row, too, where the table says which of its candidates was
    rated best (`foils rate`): that one stands where the positive does.

    Args:
        collection: with judgements of the split, unless the table was rated.
        negatives: a table of negatives; pairs need none, and do not look at it.
        split: whose judgements; `all`: those of every split.
        form: `triplets`: a row for each (query, positive, negative), the flattened form of ECI_sem
            eq. 13; `lists`: a row for each (query, positive) with `per_query` negatives, short
            lists marked −1; `pairs`: a row for each (query, positive). None: triplets with a table,
            pairs without.
        per_query: negatives of a query at most, by rank; None: all (for lists: the longest list's length).
        max_positives: positives of a query at most: the first ones, in the order of the judgements.

    Raises:
        InputError: no table for triplets or lists, or no row is left.
        UnknownNameError: no such split.
    """
    form = form or ("pairs" if negatives is None else "triplets")
    best_query, best_document, outside = _rated_best(negatives if form != "pairs" else None, collection)
    positives = collection.labels(split) if len(best_query) else collection.positives(split)
    query_rows, doc_rows = positives.pairs()
    allowed = ranks_within(query_rows) < max_positives
    queries = np.append(query_rows[allowed], best_query)
    documents = np.append(doc_rows[allowed], best_document)
    lists = np.empty((len(queries), 0), np.int64)
    covered = np.ones(len(queries), bool)
    if form != "pairs":
        if negatives is None:
            raise InputError(f"{form} need a table of negatives; give one, or train on pairs")
        lists = negatives.lists_in(collection, queries, per_query)
        covered = np.asarray((lists >= 0).any(axis=1))
        if not covered.any():
            raise InputError(f"nothing to train on: no query of the split {split!r} has a kept negative")
    queries, documents, lists = queries[covered], documents[covered], lists[covered]
    pairs = len(queries)
    if form == "triplets":
        row, column = np.nonzero(lists >= 0)
        queries, documents, lists = queries[row], documents[row], lists[row, column][:, None]
    return TrainingRows(
        query_rows=queries,
        doc_rows=documents,
        negatives=lists,
        queries=len(positives) + len(best_query),
        pairs=pairs,
        capped=int((~allowed).sum()),
        uncovered=int((~covered).sum()),
        unlabelled=len(best_query),
        outside=outside,
    )


def _rated_best(negatives: Negatives | None, collection: Collection) -> tuple[Rows, Rows, int]:
    """Return queries without a label, the candidate rated best of each, and how many of these the collection lacks."""
    rated = np.zeros(0, np.int64) if negatives is None else negatives.rejected_for(TOP)
    if negatives is None or not len(rated):
        return rated, rated, 0
    query, document = (rows[rated] for rows in negatives.rows_in(collection))
    unlabelled = collection.known_positives.places(query) < 0  # judgements may have been added since
    inside = unlabelled & (document >= 0)
    return query[inside], document[inside], int((unlabelled & ~inside).sum())
