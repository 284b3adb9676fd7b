"""Tables of negatives in the forms that training tools read: as files, as data sets, as records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives, checked
from foils.data.pairs import NEGATIVE, OF_SOURCE, ROLES, plain
from foils.data.records import text_field
from foils.data.run import Run, ranks_within
from foils.data.tables import Provenance, take
from foils.data.texts import DocumentTexts, texts_of
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.files import fill_folder, write_whole
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table


@dataclass(frozen=True)
class Given:
    """A document as a record gives it: text and id None where they are none, score None where there is none."""

    text: str | None
    doc_id: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class Said:
    """What a record says.

    Attributes:
        query: its text; None: no text.
        positives, negatives: documents.
        unlabelled: documents of which it has scores, and not which they are; the collection knows the positives.
    """

    query: str | None
    positives: Sequence[Given] = ()
    negatives: Sequence[Given] = ()
    unlabelled: Sequence[Given] = ()


def holds_training(columns: Iterable[str]) -> bool:
    """Tell whether a table with these columns is one of `read_records`: labels or scores stand in lists, or alone."""
    names = set(columns)
    return bool(names & {"scores", "labels", "neg_scores", "pos_doc", "positive_messages"}) or (
        bool(names & {"label", "score"}) and {"anchor", "document"} <= names
    )


def read_record(record: Mapping[str, Any]) -> Said | str:
    """Return what a record says, or, as a text, what is wrong with it."""
    if "positive_messages" in record:
        said = _of_messages(record)
    elif {"pos_doc", "neg_doc"} & record.keys():
        said = _of_documents(record)
    elif {"label", "labels", "score"} & record.keys() or "documents" in record:
        said = _of_labels(record)
    else:
        said = _of_columns(record)
    if said is None or said.query is None:
        return (
            "expected query (or anchor, question), positive, and negative or negative_1, negative_2, …; or query, "
            "documents and as many labels, numbers of which 0 is a negative's, or scores. Say other names of columns: "
            f"{OF_SOURCE}"
        )
    if any(each.score is not None and each.score != each.score for each in (*said.positives, *said.negatives)):
        return "expected as many scores, finite numbers, as documents: the positive's, then the negatives'"
    return said


def _of_columns(record: Mapping[str, Any]) -> Said | None:
    """Triplets, n-tuples, FlagEmbedding: the texts of negative, negative_1, … or neg, in order."""
    columns = sorted(
        (key for key in record if plain(key) in ROLES["negative"] or NEGATIVE.fullmatch(plain(key))),
        key=lambda key: (len(key), key),
    )
    if not columns:
        return None
    positives, negatives = _texts(record, ["positive", "pos"]), _texts(record, columns)
    scores = record.get("scores")
    if scores is None:
        of_positives, of_negatives = record.get("pos_scores"), record.get("neg_scores")
    else:
        listed = scores if isinstance(scores, list) else []
        of_positives, of_negatives = listed[: len(positives)], listed[len(positives) :]
    return Said(_query(record), _with_scores(positives, of_positives), _with_scores(negatives, of_negatives))


def _of_labels(record: Mapping[str, Any]) -> Said | None:
    """Labelled pairs and lists: the documents whose label is 0; with scores in place of labels, all of them."""
    query = _query(record)
    several = {"labels", "scores", "documents"} & record.keys()
    documents = record.get("documents") if several else [record.get("document")]
    scored = not {"label", "labels"} & record.keys()
    names = ("scores", "score") if scored else ("labels", "label")
    values = record.get(names[0]) if several else [record.get(names[1])]
    if not isinstance(documents, list) or not isinstance(values, list) or len(documents) != len(values):
        return None
    numbers = [number(value) for value in values]
    texts = [text_field(text) for text in documents]
    if None in numbers:
        return None
    if scored:
        return Said(query, unlabelled=[Given(text, None, of) for text, of in zip(texts, numbers, strict=True)])
    return Said(query, negatives=[Given(text) for text, of in zip(texts, numbers, strict=True) if of == 0])


def _of_documents(record: Mapping[str, Any]) -> Said | None:
    """NeMo AutoModel: pos_doc and neg_doc, each a text, or a dictionary with a text, or a list of them."""

    def given(value: Any) -> list[Given]:
        listed = value if isinstance(value, list) else [] if value is None else [value]
        parts = [each if isinstance(each, dict) else {"text": each} for each in listed]
        return [
            Given(text_field(each.get("text")), text_field(each.get("id")) or None, _score(each.get("score")))
            for each in parts
        ]

    return Said(_query(record), given(record.get("pos_doc")), given(record.get("neg_doc")))


def _of_messages(record: Mapping[str, Any]) -> Said | None:
    """ms-swift: messages, positive_messages, negative_messages; or one document with a label.

    A whole number is 0 for a negative, anything else a score: 1.0 is one.
    """

    def content(messages: Any) -> str | None:
        last = messages[-1] if isinstance(messages, list) and messages else None
        return text_field(last.get("content")) if isinstance(last, dict) else None

    query = content(record.get("messages"))
    positives, negatives = record["positive_messages"], record.get("negative_messages") or []
    if not isinstance(positives, list) or not isinstance(negatives, list):
        return None
    documents = [Given(content(each)) for each in positives]
    if "label" not in record:
        return Said(query, documents, [Given(content(each)) for each in negatives])
    label = number(record["label"])
    if label is None or len(documents) != 1:
        return None
    if isinstance(record["label"], int):
        return Said(query, negatives=documents if label == 0 else ())
    return Said(query, unlabelled=[Given(documents[0].text, None, label)])


def _query(record: Mapping[str, Any]) -> str | None:
    """The text under the first key by which queries are known."""
    return next((text_field(value) for key, value in record.items() if plain(key) in ROLES["query"]), None)


def _texts(record: Mapping[str, Any], names: Sequence[str]) -> list[str | None]:
    values = [record[name] for name in names if name in record]
    return [text_field(each) for value in values for each in (value if isinstance(value, list) else [value])]


def _with_scores(texts: Sequence[str | None], scores: Any) -> list[Given]:
    """Texts with their scores; NaN for each where there are not as many numbers."""
    if scores is None:
        return [Given(text) for text in texts]
    if not isinstance(scores, list) or len(scores) != len(texts):
        return [Given(text, None, float("nan")) for text in texts]
    return [Given(text, None, _score(score, float("nan"))) for text, score in zip(texts, scores, strict=True)]


def _score(value: Any, otherwise: float | None = None) -> float | None:
    found = number(value)
    return otherwise if found is None else found


def number(value: object) -> float | None:
    """Return a JSON number, NaN included, as a float, or None for infinities and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return None if np.isinf(known) else known


AT_ONCE = 512
"""Queries whose texts are read together."""


NOT_SCORES = ("weight", "elo_se", "gap", "gap_se", "offset")
"""Columns of numbers that are no scores of a document."""


@dataclass(frozen=True)
class Passage:
    """A document of a group.

    Attributes:
        doc_id: its id in the table or in the collection.
        title, text: as the collection has them; a text of the table's own has no title.
        whole: title and text, joined by a blank; or in their place the number by which `TextTransform` knows them.
        score: NaN where there is none.
    """

    doc_id: str
    title: str
    text: str
    whole: Any
    score: float


@dataclass(frozen=True)
class Group:
    """A query with its positives and its negatives, by rank.

    Attributes:
        query_id: of the query.
        query: its text, or its row in the collection.
        positives, negatives: documents.
        scored: whether every document has a score that is meant for training.
    """

    query_id: str
    query: Any
    positives: tuple[Passage, ...]
    negatives: tuple[Passage, ...]
    scored: bool

    @property
    def scores(self) -> list[float]:
        """Of the positives, then of the negatives."""
        return [each.score for each in (*self.positives, *self.negatives)]


@dataclass(frozen=True)
class TrainingData:
    """A split's positives and the kept rows of a table.

    A text is referred to by a number, as the rows of `DocumentTexts`: a document's row; below 0 a text of the table.

    Attributes:
        collection: documents, queries, judgements.
        table: negatives, and rejected rows of labelled positives, whose scores may be asked for.
        split: whose positives. Rows of other queries are left out.
        scores: the column of scores that go along; empty: none.

    Raises:
        InputError: ids that the collection does not know, no row for any query of the split, or a document without a
            score where scores go along.
        UnknownNameError: no such column.
    """

    collection: Collection
    table: Negatives
    split: str
    scores: str = ""

    def __post_init__(self) -> None:
        if not len(self._rows[0]):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        if self.scores:
            self._check_scores()

    @cached_property
    def negatives(self) -> Negatives:
        """The kept rows of the table."""
        return self.table.without_rejected()

    @property
    def left_out(self) -> int:
        """How many kept rows are of queries without a positive in the split."""
        return len(self.negatives) - len(self._rows[0])

    @property
    def transform(self) -> TextTransform:
        """What puts texts in the place of references."""
        return TextTransform(self.collection, self._documents.own)

    @property
    def longest(self) -> int:
        """Negatives of the positive that has most."""
        return max(len(group.negatives) for group in self.by_positive(self.references()))

    def references(self) -> Iterator[Group]:
        """Yield each query that has negatives, in the order of the judgements, its texts as references."""
        positives = self.collection.positives(self.split)
        place = {int(row): index for index, row in enumerate(positives.query_rows)}
        order, queries = self._rows
        ids = self.negatives.table["doc_id"].take(pa.array(order)).to_pylist()
        scores, references = self._numbers[order].tolist(), self._documents.rows[order].tolist()
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])
        spans = {int(queries[a]): (a, b) for a, b in zip(starts, np.r_[starts[1:], len(order)], strict=True)}
        for row in sorted(spans, key=place.__getitem__):
            documents = positives.of(place[row])
            known = self.collection.documents["doc_id"].take(pa.array(documents)).to_pylist()
            yield Group(
                self.collection.queries["query_id"][row].as_py(),
                row,
                tuple(
                    Passage(key, "", "", at, self._of_positives.get((row, at), float("nan")))
                    for key, at in zip(known, documents.tolist(), strict=True)
                ),
                tuple(Passage(ids[at], "", "", references[at], scores[at]) for at in range(*spans[row])),
                bool(self.scores),
            )

    def groups(self) -> Iterator[Group]:
        """Yield each query that has negatives, with its texts; they are read for many queries together."""
        references = self.references()
        while block := list(islice(references, AT_ONCE)):
            queries = self.collection.query_texts([group.query for group in block])
            passages = iter(self._read([each for group in block for each in (*group.positives, *group.negatives)]))
            for group, query in zip(block, queries, strict=True):
                positives, negatives = (
                    tuple(next(passages) for _ in listed) for listed in (group.positives, group.negatives)
                )
                yield replace(group, query=query, positives=positives, negatives=negatives)

    def by_positive(self, groups: Iterator[Group]) -> Iterator[Group]:
        """Yield a group for each labelled pair, with the negatives that may stand beside it.

        Where the table says in `positives` which positives a row may stand beside, it stands beside those alone.
        """
        for group in groups:
            for positive in group.positives:
                negatives = group.negatives
                if self._beside is not None:
                    negatives = tuple(
                        each for each in negatives if positive.doc_id in self._beside[group.query_id, each.doc_id]
                    )
                yield replace(group, positives=(positive,), negatives=negatives)

    def _read(self, passages: Sequence[Passage]) -> list[Passage]:
        inside = [each.whole for each in passages if each.whole >= 0]
        documents = self.collection.documents
        columns = (take(documents[name], np.asarray(inside, np.int64)).to_pylist() for name in ("title", "text"))
        stored = zip(*columns, strict=True)
        own = [each.whole for each in passages if each.whole < 0]
        texts = iter(DocumentTexts(self.collection, np.asarray(own, np.int64), self._documents.own)[:])
        read = []
        for each in passages:
            title, text = ("", next(texts)) if each.whole < 0 else next(stored)
            read.append(replace(each, title=title, text=text, whole=f"{title} {text}".strip()))
        return read

    @cached_property
    def _numbers(self) -> Rows:
        """(n,) the score of each kept row; without a column, the source's own."""
        return np.asarray(self.negatives.table[self.scores or "score"].to_numpy(), np.float64)

    @cached_property
    def _of_positives(self) -> dict[tuple[int, int], float]:
        """(query row, document row) of positives -> their scores, which rejected rows of the table have."""
        if not self.scores:
            return {}
        rejected = self.table.table.filter(pa.array(~self.table.keep))
        queries = self.collection.query_rows(rejected["query_id"])
        documents = self.collection.document_rows(rejected["doc_id"])
        scores = np.asarray(rejected[self.scores].to_numpy(), np.float64)
        known = np.flatnonzero((queries >= 0) & (documents >= 0) & np.isfinite(scores))
        rows = (values[known].tolist() for values in (queries, documents, scores))
        return {(query, document): score for query, document, score in zip(*rows, strict=True)}

    def _check_scores(self) -> None:
        kinds = {field.name: field.type for field in self.table.table.schema}
        columns = [name for name, kind in kinds.items() if kind == pa.float64() and name not in NOT_SCORES]
        if self.scores not in columns:
            raise UnknownNameError("column of scores", self.scores, columns)
        order = self._rows[0]
        missing = int((~np.isfinite(self._numbers[order])).sum())
        positives = [(group.query, each.whole) for group in self.references() for each in group.positives]
        unscored = sum(pair not in self._of_positives for pair in positives)
        if missing or unscored:
            raise InputError(
                f"{unscored:,} of {len(positives):,} positives and {missing:,} of {len(order):,} negatives have no "
                f"{self.scores}; score both: score_pairs, or rate with "
                f"positives={max(len(group.positives) for group in self.references())}"
            )

    @cached_property
    def _beside(self) -> dict[tuple[str, str], set[str]] | None:
        table = self.negatives.table
        if "positives" not in table.column_names:
            return None
        columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "positives"))
        return {(query, document): set(listed or []) for query, document, listed in zip(*columns, strict=True)}

    @cached_property
    def _known(self) -> tuple[Rows, DocumentTexts]:
        return texts_of(self.negatives, self.collection)

    @property
    def _documents(self) -> Any:
        return self._known[1]

    @cached_property
    def _rows(self) -> tuple[Rows, Rows]:
        """Rows of the split's queries, by query and rank; and their queries."""
        queries, _ = self._known
        wanted = np.isin(queries, self.collection.positives(self.split).query_rows)
        ranks = np.asarray(self.negatives.table["rank"].to_numpy())
        order = np.lexsort((ranks, queries))
        order = order[wanted[order]]
        return order, queries[order]


class TextTransform:
    """Puts texts in the place of references: a batched transform, and a picklable one.

    Args:
        collection: whose rows the references are.
        own: texts that references below 0 count, from −1; None: there are none.
    """

    def __init__(self, collection: Collection, own: pa.Array | pa.ChunkedArray | None) -> None:
        self._collection, self._own = collection, own

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the batch with texts; labels and scores stay."""
        return {name: self._column(name, values) for name, values in batch.items()}

    def _column(self, name: str, values: list[Any]) -> list[Any]:
        if name.endswith(("label", "labels", "score", "scores")):
            return list(values)
        if name in ("anchor", "query"):
            return self._collection.query_texts(values)
        if not values or not isinstance(values[0], list):
            return self._documents(values)
        flat = iter(self._documents([reference for listed in values for reference in listed]))
        return [[next(flat) for _ in listed] for listed in values]

    def _documents(self, references: list[int]) -> list[str]:
        return DocumentTexts(self._collection, np.asarray(references, np.int64), self._own)[:]


Record = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """A form of JSON lines.

    Attributes:
        tool: what reads it.
        records: yields the records of a group; the number is of negatives in an n-tuple.
        by_positive: whether a group is a labelled pair with its negatives, or a query with all its positives.
        flat: whether texts stand in columns of their own, so that a data set can hold references in their place.
        scores: what it does with scores: they "may" go along, "must", or "cannot".
    """

    tool: str
    records: Callable[[Group, int], Iterator[Record]]
    by_positive: bool = False
    flat: bool = True
    scores: str = "may"


def triplets(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, positive, negative: one for each negative; with scores, the positive's and its own."""
    (positive,) = group.positives
    for each in group.negatives:
        record = {"anchor": group.query, "positive": positive.whole, "negative": each.whole}
        yield {**record, **_scores(group, [positive.score, each.score])}


def tuples(group: Group, number: int) -> Iterator[Record]:
    """Yield anchor, positive, negative_1 … negative_n, where there are n; with scores, theirs, the positive's first."""
    if len(group.negatives) >= number:
        chosen = group.negatives[:number]
        named = {f"negative_{at}": each.whole for at, each in enumerate(chosen, 1)}
        record = {"anchor": group.query, "positive": group.positives[0].whole, **named}
        yield {**record, **_scores(group, [each.score for each in (*group.positives, *chosen)])}


def labelled_pairs(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, document, label: each positive with 1, then each negative with 0; or its score."""
    for label, documents in ((1, group.positives), (0, group.negatives)):
        for each in documents:
            record = {"anchor": group.query, "document": each.whole}
            yield {**record, **({"score": each.score} if group.scored else {"label": label})}


def labelled_lists(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, documents, labels: positives (1) before negatives (0); or their scores."""
    documents = [each.whole for each in (*group.positives, *group.negatives)]
    labels = {"labels": [1] * len(group.positives) + [0] * len(group.negatives)}
    yield {"anchor": group.query, "documents": documents, **(_scores(group, group.scores) or labels)}


def flagembedding(group: Group, _: int) -> Iterator[Record]:
    """Yield query, pos, neg; with scores, pos_scores and neg_scores."""
    record = {"query": group.query, "pos": _texts_of_forms(group.positives), "neg": _texts_of_forms(group.negatives)}
    if group.scored:
        record["pos_scores"] = [each.score for each in group.positives]
        record["neg_scores"] = [each.score for each in group.negatives]
    yield record


def tevatron(group: Group, _: int) -> Iterator[Record]:
    """Yield query_id, query, positive_passages, negative_passages: docid, title, text, and a score if there is one."""

    def passage(each: Passage) -> Record:
        score = {"score": each.score} if np.isfinite(each.score) else {}
        return {"docid": each.doc_id, "title": each.title, "text": each.text, **score}

    yield {
        "query_id": group.query_id,
        "query": group.query,
        "positive_passages": [passage(each) for each in group.positives],
        "negative_passages": [passage(each) for each in group.negatives],
    }


def nemo(group: Group, _: int) -> Iterator[Record]:
    """Yield question_id, query, pos_doc, neg_doc, each document with id and text, and with scores, its score."""

    def document(each: Passage) -> Record:
        return {"id": each.doc_id, "text": each.whole, **({"score": each.score} if group.scored else {})}

    yield {
        "question_id": group.query_id,
        "query": group.query,
        "pos_doc": [document(each) for each in group.positives],
        "neg_doc": [document(each) for each in group.negatives],
    }


def ms_swift(group: Group, _: int) -> Iterator[Record]:
    """Yield messages, positive_messages, negative_messages, for InfoNCE, which learns from no scores."""
    yield {
        "messages": _message(group.query),
        "positive_messages": [_message(each.whole) for each in group.positives],
        "negative_messages": [_message(each.whole) for each in group.negatives],
    }


def ms_swift_pairs(group: Group, number: int) -> Iterator[Record]:
    """Yield messages, positive_messages, label: each document in positive_messages, with 1 or 0, or its score."""
    for pair in labelled_pairs(group, number):
        texts = {"messages": _message(pair["anchor"]), "positive_messages": [_message(pair["document"])]}
        yield {**texts, "label": pair.get("label", pair.get("score"))}


def pylate(group: Group, _: int) -> Iterator[Record]:
    """Yield query_id, document_ids, scores: positives before negatives; the texts stand in tables of their own."""
    ids = [each.doc_id for each in (*group.positives, *group.negatives)]
    yield {"query_id": group.query_id, "document_ids": ids, "scores": group.scores}


FORMS: dict[str, Form] = {
    "triplets": Form("sentence-transformers", triplets, by_positive=True),
    "tuples": Form("sentence-transformers", tuples, by_positive=True),
    "labelled-pairs": Form("sentence-transformers", labelled_pairs),
    "labelled-lists": Form("sentence-transformers", labelled_lists),
    "flagembedding": Form("FlagEmbedding", flagembedding),
    "tevatron": Form("Tevatron", tevatron, flat=False),
    "pylate": Form("PyLate", pylate, flat=False, scores="must"),
    "nemo": Form("NeMo AutoModel", nemo, flat=False),
    "ms-swift": Form("ms-swift", ms_swift, by_positive=True, flat=False, scores="cannot"),
    "ms-swift-pairs": Form("ms-swift", ms_swift_pairs, flat=False),
}
"""By name; `export` writes them, and of `pylate` the tables of texts, too."""


def _texts_of_forms(passages: tuple[Passage, ...]) -> list[Any]:
    return [each.whole for each in passages]


def _message(text: str) -> list[Record]:
    return [{"role": "user", "content": text}]


def _scores(group: Group, scores: list[float]) -> Record:
    return {"scores": scores} if group.scored else {}


if TYPE_CHECKING:
    from datasets import Dataset


FILES = (*FORMS, "trec", "parquet")
"""Names of the forms that files have: those of JSON lines, a TREC run, and our own table, with all rows and columns."""


TABLES = ("train", "queries", "documents")
"""The files of a folder of `pylate`, each `.parquet`."""


@dataclass(frozen=True)
class Exported(Result):
    """A split's positives and the kept rows of a table, in a form that a training tool reads.

    Attributes:
        data: what the form is made of.
        form: its name in FORMS.
        number: negatives in an n-tuple; None: as many as the positive with most has.

    Raises:
        UnknownNameError: no such form.
        InputError: scores that the form has no place for, or none where it needs them; tuples of no negative.
    """

    data: TrainingData
    form: str
    number: int | None = None

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UnknownNameError("form", self.form, FORMS)
        _check_scores(self.form, self._form.scores, self.data.scores)
        if self.number is not None and self.number < 1:
            raise InputError(f"tuples with {self.number} negatives; expected at least 1")

    @property
    def _form(self) -> Form:
        return FORMS[self.form]

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        yield from self._records(self.data.groups())

    def dataset(self) -> Dataset:
        """Return the records as a `datasets.Dataset`.

        Where texts stand in columns of their own, nothing is copied: it holds references, and gives texts when it is
        read. Of other forms it holds the records.

        Raises:
            MissingExtraError: without the package datasets.
        """
        datasets = require("datasets", "hub")
        if not self._form.flat:
            return datasets.Dataset.from_list(list(self.records()))
        columns: dict[str, list[Any]] = {}
        for record in self._records(self.data.references()):
            for name, value in record.items():
                columns.setdefault(name, []).append(value)
        return datasets.Dataset.from_dict(columns).with_transform(self.data.transform)

    def to_arrow(self) -> pa.Table:
        """Return the records, with their texts, as an Arrow table."""
        return pa.Table.from_pylist(list(self.records()))

    def to_pandas(self) -> Any:
        """Return the records, with their texts, as a DataFrame of pandas.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return require("pandas", "hub").DataFrame(list(self.records()))

    def to_polars(self) -> Any:
        """Return the records, with their texts, as a DataFrame of polars.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return require("polars", "mteb").from_arrow(self.to_arrow())

    def write(self, path: str | Path) -> int:
        """Write the records as JSON lines, whole; of `pylate` a folder of tables. Return how many records there are."""
        if self.form == "pylate":
            return self._write_tables(Path(path))
        count = 0
        with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
            for record in self.records():
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        return count

    def tables(self) -> list[Table]:
        """Return how many queries, positives and negatives go along, and how many rows do not."""
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in self._counts().items()]
        scores = f", with {self.data.scores} as scores" if self.data.scores else ""
        return [Table(f"{self.form} for {self._form.tool}{scores}", ("", "count"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the form, its tool, the scores, and the counts."""
        facts = {"form": self.form, "tool": self._form.tool, "scores": self.data.scores or None}
        return {**facts, "split": self.data.split, **self._counts()}

    def _counts(self) -> dict[str, int]:
        groups = list(self.data.references())
        return {
            "queries": len(groups),
            "positives": sum(len(each.positives) for each in groups),
            "negatives": sum(len(each.negatives) for each in groups),
            "records": sum(1 for _ in self._records(iter(groups))),
            "rows_of_other_queries": self.data.left_out,
        }

    def _records(self, groups: Iterator[Group]) -> Iterator[Record]:
        number = (self.number or self.data.longest) if self.form == "tuples" else 0
        for group in self.data.by_positive(groups) if self._form.by_positive else groups:
            yield from self._form.records(group, number)

    def _write_tables(self, folder: Path) -> int:
        """Write train (query_id, document_ids, scores), and the texts that it names: queries and documents."""
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; pylate reads three tables, which are written to a folder")
        groups = list(self.data.references())
        texts: dict[str, int] = {}
        for group in groups:
            for each in (*group.positives, *group.negatives):
                texts.setdefault(each.doc_id, each.whole)
        schemas = (
            {"query_id": pa.string(), "document_ids": pa.list_(pa.string()), "scores": pa.list_(pa.float64())},
            {"query_id": pa.string(), "text": pa.large_string()},
            {"document_id": pa.string(), "text": pa.large_string()},
        )
        columns: tuple[list[list[Any]], ...] = (
            [list(column) for column in zip(*(each.values() for each in self._records(iter(groups))), strict=True)],
            [[each.query_id for each in groups], self.data.collection.query_texts([each.query for each in groups])],
            [list(texts), self.data.transform({"documents": list(texts.values())})["documents"]],
        )
        with fill_folder(folder) as aside:
            for name, schema, values in zip(TABLES, schemas, columns, strict=True):
                arrays = [pa.array(column, kind) for column, kind in zip(values, schema.values(), strict=True)]
                pq.write_table(pa.table(arrays, names=list(schema)), aside / f"{name}.parquet", compression="zstd")
        return len(groups)


def export(
    negatives: Negatives,
    collection: Collection,
    path: str | Path,
    *,
    form: str,
    split: str,
    number: int | None = None,
    scores: str = "",
) -> int:
    """Write a table in a form that training tools read, and return how many records or rows were written.

    Args:
        negatives: the table; its rejected rows are left out, except of `parquet`.
        collection: it was made from.
        path: of the file, written whole; of `pylate`, of a folder.
        form: a name in FILES: of FORMS, `trec`, a run, or `parquet`, our own, with all rows and columns.
        split: whose positives.
        number: of negatives in a tuple; None: as many as the positive with most has.
        scores: the column of scores that go along; empty: none (of `tevatron`: the source's own).

    Raises:
        UnknownNameError: no such form, or no such column.
        InputError: nothing to export, scores that are missing or have no place, or, of `trec`, documents with a text
            of their own.
    """
    if form in ("parquet", "trec"):
        _check_scores(form, "cannot", scores)
        if form == "trec":
            return _write_run(negatives, collection, path)
        negatives.write(path)
        return len(negatives)
    if form not in FORMS:
        raise UnknownNameError("form", form, FILES)
    return Exported(TrainingData(collection, negatives, split, scores), form, number).write(path)


def parsed_exports(texts: Sequence[str]) -> dict[str, Path]:
    """Read `FORM=FILE` of each text; return form -> file.

    Raises:
        InputError: a text that is not of this form, or a form twice.
        UnknownNameError: no such form.
    """
    files: dict[str, Path] = {}
    for text in texts:
        form, equals, path = text.partition("=")
        if not equals or not path:
            raise InputError(f"{spelled('export')} {text}: expected FORM=FILE, as in triplets=train.jsonl")
        if form not in FILES:
            raise UnknownNameError("form", form, FILES)
        if form in FORMS and FORMS[form].scores == "must":
            raise InputError(
                f"{spelled('export')} {text}: {form} is made of scores; write the table, and foils export with them"
            )
        if form in files:
            raise InputError(f"{spelled('export')} {text}: {form} is written to {files[form]} already")
        files[form] = Path(path)
    return files


def _check_scores(form: str, place: str, scores: str) -> None:
    if scores and place == "cannot":
        raise InputError(f"{form} has no place for scores; leave {spelled('scores')} out, or choose another form")
    if not scores and place == "must":
        raise InputError(
            f"{form} is made of scores; name their column with {spelled('scores')}, as cosine, logit or elo"
        )


def _write_run(negatives: Negatives, collection: Collection, path: str | Path) -> int:
    """Write kept rows as a run; scores are the table's where they fall with the rank, else −1, −2, … by rank."""
    queries, documents = negatives.rows_in(collection)
    keep = negatives.keep
    if (documents[keep] < 0).any():
        raise InputError("a TREC run names documents of the collection; rows with a text of their own cannot go in")
    order = np.lexsort((np.asarray(negatives.table["rank"].to_numpy()), queries))
    order = order[keep[order]]
    table = negatives.table.take(pa.array(order))
    scores = _falling(np.asarray(table["score"].to_numpy(), np.float64), queries[order])
    sources = set(table["source"].to_pylist())
    name = sources.pop() if len(sources) == 1 else "negatives"
    Run.ranked(table["query_id"], table["doc_id"], scores, name=name).write(path)
    return len(order)


def _falling(scores: npt.NDArray[np.float64], groups: Rows) -> npt.NDArray[np.float64]:
    same = groups[1:] == groups[:-1]
    if np.isfinite(scores).all() and (scores[1:] <= scores[:-1])[same].all():
        return scores
    return np.asarray(-1.0 - ranks_within(groups), np.float64)


@dataclass(frozen=True, kw_only=True)
class NegativesResult(Negatives):
    """A table of negatives with what a door says of it; the next door takes it as it takes any table.

    A door's own class adds what it counts, and shows that in `rows` and `to_json`.

    Attributes:
        title: of what is shown.
        collection: that the table was made from, for the texts of exports; None: not known.
        split: whose positives exports take.
    """

    title: str = "Negatives"
    collection: Collection | None = field(default=None, repr=False, compare=False)
    split: str = "train"

    @classmethod
    def of(cls, negatives: Negatives, **more: Any) -> Self:
        """Return a table as this result; `more` are its other attributes.

        The table's pairs are not checked again: that takes longest.
        """
        result: Self = object.__new__(cls)
        values = {"table": negatives.table, "provenance": negatives.provenance, **more}
        for each in fields(cls):
            if each.name not in values and each.default is MISSING:
                raise TypeError(f"{cls.__name__} needs {each.name}")
            object.__setattr__(result, each.name, values.pop(each.name, each.default))
        if values:
            raise TypeError(f"{cls.__name__} has no {', '.join(values)}")
        return result

    def altered(self, **more: Any) -> Self:
        """Return it with other attributes; the table's pairs are not checked again."""
        return self.of(self, **{**{each.name: getattr(self, each.name) for each in fields(self)}, **more})

    def _of_the_same_pairs(self, table: pa.Table, provenance: Provenance) -> Self:
        """Keep what the door said of the table, its collection among it."""
        return self.altered(table=checked(table), provenance=provenance)

    def rows(self) -> list[tuple[str, str]]:
        """Return what is counted, and how many there are, as the program shows it."""
        return [(str(name), str(count)) for name, count in super().tables()[0].rows]

    def tables(self) -> list[Table]:
        """Return the counts as one table; under it what `nothing_kept` says."""
        return [Table(self.title, ("", "count"), self.rows(), self.nothing_kept())]

    def nothing_kept(self) -> str:
        """Say what follows where no row is kept; return an empty text where one is."""
        if self.keep.any():
            return ""
        return f"No row is kept: there is nothing to train on. {self.looser()}"

    def looser(self) -> str:
        """Say how more rows would be kept."""
        return "The reasons for which rows are rejected say which rule to loosen."

    def export(self, path: str | Path, *, form: str = "triplets", scores: str = "") -> int:
        """Write the kept rows in a form that training tools read (see `export`).

        Args:
            path: of the file; of `pylate`, of a folder.
            form: its name.
            scores: the column of scores that go along; empty: none.

        Returns:
            How many lines or rows were written.

        Raises:
            InputError: the collection is not known, or nothing is there to export.
            UnknownNameError: no such form.
        """
        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that it was made from")
        return export(self, self.collection, path, form=form, split=self.split, scores=scores)


def rejected_rows(negatives: Negatives) -> list[tuple[str, str]]:
    """Return a row for each reason for which rows are rejected."""
    return [(f"rejected: {reason}", f"{count:,}") for reason, count in negatives.rejected().items()]
