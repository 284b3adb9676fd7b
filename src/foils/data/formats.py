"""Tables of negatives in the forms that training tools read: as files, as data sets, as records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.pairs import NEGATIVE, OF_SOURCE, ROLES, plain
from foils.data.records import text_field
from foils.data.run import Run, ranks_within
from foils.data.tables import take
from foils.data.texts import DocumentTexts, texts_of
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.files import write_whole
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Passage:
    """A document of an example.

    Attributes:
        text: with its title before it; None: it has none. In place of the text the number by which `TextTransform`
            knows it.
        doc_id: its id in the table or in the collection; None: not known.
        score: None where there is none.
        title: that its text begins with, as the collection has it.
    """

    text: Any
    doc_id: Any = None
    score: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Example:
    """A query with documents, as every form of training data has it.

    Attributes:
        query: its text, or its row in the collection. None: it is known by its id, as its documents are.
        positives, negatives: documents, by rank.
        unlabelled: documents of which there are scores, and not which they are; the collection knows the positives.
        query_id: None: not known.
        scored: whether every document has a score that is meant for training.
    """

    query: Any
    positives: Sequence[Passage] = ()
    negatives: Sequence[Passage] = ()
    unlabelled: Sequence[Passage] = ()
    query_id: str | None = None
    scored: bool = False

    @property
    def documents(self) -> tuple[Passage, ...]:
        """The positives, then the negatives."""
        return (*self.positives, *self.negatives)


def holds_training(columns: Iterable[str]) -> bool:
    """Tell whether a table with these columns is one of `read_records`: labels or scores stand in lists, or alone."""
    names = set(columns)
    return bool(names & {"scores", "labels", "neg_scores", "pos_doc"}) or (
        bool(names & {"label", "score"}) and {"anchor", "document"} <= names
    )


def read_example(record: Mapping[str, Any]) -> Example | str:
    """Return what a record of any form says, or, as a text, what is wrong with it."""
    if {"positive_passages", "negative_passages"} & record.keys():
        return _of_passages(record)
    query = next((text_field(value) for key, value in record.items() if plain(key) in ROLES["query"]), None)
    if {"pos_doc", "neg_doc"} & record.keys():
        example: Example | None = Example(None, _documents(record.get("pos_doc")), _documents(record.get("neg_doc")))
    elif {"label", "labels", "score"} & record.keys() or "documents" in record:
        several = {"labels", "scores", "documents"} & record.keys()
        scored = not {"label", "labels"} & record.keys()
        name = "score" if scored else "label"
        documents, values = (record.get(f"{key}s") if several else [record.get(key)] for key in ("document", name))
        example = _of_labels(documents, values, scored=scored)
    else:
        example = _of_columns(record)
    if example is None or query is None:
        return (
            "expected query (or anchor, question), positive, and negative or negative_1, negative_2, …; or query, "
            "documents and as many labels, numbers of which 0 is a negative's, or scores. Say other names of columns: "
            f"{OF_SOURCE}"
        )
    if any(each.score is not None and each.score != each.score for each in example.documents):
        return "expected as many scores, finite numbers, as documents: the positive's, then the negatives'"
    return replace(example, query=query)


def _of_passages(record: Mapping[str, Any]) -> Example | str:
    """Tevatron: query_id, positive_passages, negative_passages, each with docid, title, text and perhaps a score."""
    query_id, listed = text_field(record.get("query_id")), record.get("negative_passages")
    if query_id is None or not isinstance(listed, list):
        return "expected query_id and a list negative_passages"
    negatives = [_passage(each) for each in listed]
    if wrong := next((each for each in negatives if isinstance(each, str)), None):
        return wrong
    answers = record.get("positive_passages")
    positives = map(_passage, answers) if isinstance(answers, list) else ()
    passages = ([each for each in side if isinstance(each, Passage)] for side in (positives, negatives))
    return Example(None, next(passages), next(passages), query_id=query_id)


def _passage(given: Any) -> Passage | str:
    given = given if isinstance(given, dict) else {}
    identifier, score = text_field(given.get("docid")), number(given.get("score"))
    parts = ["" if given.get(key) is None else text_field(given[key]) for key in ("title", "text")]
    if given.get("score") is not None and score is None:
        return f"the score {given['score']!r:.40} of {identifier!r} is not a finite number"
    if not identifier:
        return "a negative passage has no docid; expected {docid, title, text}"
    if None in parts:
        return f"title or text of {identifier!r} is not a text in valid Unicode"
    return Passage(" ".join(map(str, parts)).strip(), identifier, score)


def _of_columns(record: Mapping[str, Any]) -> Example | None:
    """Triplets, n-tuples, FlagEmbedding: the texts of negative, negative_1, … or neg, in order."""
    columns = sorted(
        (key for key in record if plain(key) in ROLES["negative"] or NEGATIVE.fullmatch(plain(key))),
        key=lambda key: (len(key), key),
    )
    if not columns:
        return None
    positives, negatives = (
        [each for name in names if name in record for each in _listed(record[name])]
        for names in (("positive", "pos"), columns)
    )
    scores = record.get("scores")
    if scores is None:
        of = record.get("pos_scores"), record.get("neg_scores")
    else:
        scores = scores if isinstance(scores, list) else []
        of = scores[: len(positives)], scores[len(positives) :]
    return Example(None, _with_scores(positives, of[0]), _with_scores(negatives, of[1]))


def _of_labels(documents: Any, values: Any, *, scored: bool) -> Example | None:
    """Labelled pairs and lists: the documents whose label is 0; with scores in place of labels, all of them."""
    if not isinstance(documents, list) or not isinstance(values, list) or len(documents) != len(values):
        return None
    numbers = [number(value) for value in values]
    if None in numbers:
        return None
    pairs = list(zip(map(text_field, documents), numbers, strict=True))
    if scored:
        return Example(None, unlabelled=[Passage(text, None, of) for text, of in pairs])
    return Example(None, negatives=[Passage(text) for text, of in pairs if of == 0])


def _documents(value: Any) -> list[Passage]:
    """NeMo AutoModel: each a text, or a dictionary with a text, or a list of them."""
    parts = [each if isinstance(each, dict) else {"text": each} for each in _listed(value) if each is not None]
    return [
        Passage(text_field(each.get("text")), text_field(each.get("id")) or None, number(each.get("score")))
        for each in parts
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _with_scores(texts: Sequence[Any], scores: Any) -> list[Passage]:
    """Texts with their scores; NaN for each where there are not as many numbers."""
    if scores is None:
        return [Passage(text_field(text)) for text in texts]
    if not isinstance(scores, list) or len(scores) != len(texts):
        scores = [None] * len(texts)
    numbers = (float("nan") if (known := number(score)) is None else known for score in scores)
    return [Passage(text_field(text), None, of) for text, of in zip(texts, numbers, strict=True)]


def number(value: object) -> float | None:
    """Return a JSON number, NaN included, as a float, or None for infinities and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return None if np.isinf(known) else known


AT_ONCE = 512  # queries whose texts are read together
NOT_SCORES = ("weight", "elo_se", "gap", "gap_se", "offset")  # columns of numbers that are no scores of a document
Record = dict[str, Any]


@dataclass(frozen=True)
class TextTransform:
    """Puts texts in the place of references: a batched transform, and a picklable one.

    Attributes:
        collection: whose rows the references are.
        own: texts that references below 0 count, from −1; None: there are none.
    """

    collection: Collection
    own: pa.Array | pa.ChunkedArray | None

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the batch with texts; labels and scores stay."""
        return {name: self._column(name, values) for name, values in batch.items()}

    def _column(self, name: str, values: list[Any]) -> list[Any]:
        if name.endswith(("label", "labels", "score", "scores")):
            return list(values)
        if name in ("anchor", "query"):
            return self.collection.query_texts(values)
        if not values or not isinstance(values[0], list):
            return self.documents(values)
        flat = iter(self.documents([reference for listed in values for reference in listed]))
        return [[next(flat) for _ in listed] for listed in values]

    def documents(self, references: Sequence[int]) -> list[str]:
        """Return the texts of documents."""
        return DocumentTexts(self.collection, np.asarray(references, np.int64), self.own)[:]


@dataclass(frozen=True)
class Form:
    """A form of JSON lines.

    Attributes:
        tool: what reads it.
        records: yields the records of an example; the number is of negatives in an n-tuple.
        by_positive: whether an example is a labelled pair with its negatives, or a query with all its positives.
        flat: whether texts stand in columns of their own, so that a data set can hold references in their place.
    """

    tool: str
    records: Callable[[Example, int], Iterator[Record]]
    by_positive: bool = False
    flat: bool = True


def _scores(example: Example, passages: Iterable[Passage], name: str = "scores") -> Record:
    return {name: [each.score for each in passages]} if example.scored else {}


def triplets(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, positive, negative: one for each negative; with scores, the positive's and its own."""
    (positive,) = example.positives
    for each in example.negatives:
        record = {"anchor": example.query, "positive": positive.text, "negative": each.text}
        yield {**record, **_scores(example, (positive, each))}


def tuples(example: Example, number: int) -> Iterator[Record]:
    """Yield anchor, positive, negative_1 … negative_n, where there are n; with scores, theirs, the positive's first."""
    if len(example.negatives) >= number:
        positive, *chosen = example.documents[: number + 1]
        named = {f"negative_{at}": each.text for at, each in enumerate(chosen, 1)}
        record = {"anchor": example.query, "positive": positive.text, **named}
        yield {**record, **_scores(example, (positive, *chosen))}


def labelled_pairs(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, document, label: each positive with 1, then each negative with 0; or its score."""
    for at, each in enumerate(example.documents):
        of = {"score": each.score} if example.scored else {"label": int(at < len(example.positives))}
        yield {"anchor": example.query, "document": each.text, **of}


def labelled_lists(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, documents, labels: positives (1) before negatives (0); or their scores."""
    labels = {"labels": [1] * len(example.positives) + [0] * len(example.negatives)}
    record = {"anchor": example.query, "documents": [each.text for each in example.documents]}
    yield {**record, **(_scores(example, example.documents) or labels)}


def flagembedding(example: Example, _: int) -> Iterator[Record]:
    """Yield query, pos, neg; with scores, pos_scores and neg_scores."""
    sides = {"pos": example.positives, "neg": example.negatives}
    yield {
        "query": example.query,
        **{name: [each.text for each in passages] for name, passages in sides.items()},
        **_scores(example, example.positives, "pos_scores"),
        **_scores(example, example.negatives, "neg_scores"),
    }


def tevatron(example: Example, _: int) -> Iterator[Record]:
    """Yield query_id, query, positive_passages, negative_passages: docid, title, text, and a score if there is one."""

    def passage(each: Passage) -> Record:
        text = str(each.text).removeprefix(each.title).lstrip()
        score = {} if each.score is None or np.isnan(each.score) else {"score": each.score}
        return {"docid": each.doc_id, "title": each.title, "text": text, **score}

    yield {
        "query_id": example.query_id,
        "query": example.query,
        "positive_passages": [passage(each) for each in example.positives],
        "negative_passages": [passage(each) for each in example.negatives],
    }


def nemo(example: Example, _: int) -> Iterator[Record]:
    """Yield question_id, query, pos_doc, neg_doc, each document with id and text, and with scores, its score."""

    def document(each: Passage) -> Record:
        return {"id": each.doc_id, "text": each.text, **({"score": each.score} if example.scored else {})}

    yield {
        "question_id": example.query_id,
        "query": example.query,
        "pos_doc": [document(each) for each in example.positives],
        "neg_doc": [document(each) for each in example.negatives],
    }


FORMS: dict[str, Form] = {
    "triplets": Form("sentence-transformers", triplets, by_positive=True),
    "tuples": Form("sentence-transformers", tuples, by_positive=True),
    "labelled-pairs": Form("sentence-transformers", labelled_pairs),
    "labelled-lists": Form("sentence-transformers", labelled_lists),
    "flagembedding": Form("FlagEmbedding", flagembedding),
    "tevatron": Form("Tevatron", tevatron, flat=False),
    "nemo": Form("NeMo AutoModel", nemo, flat=False),
}
"""By name."""
FILES = (*FORMS, "trec")
"""Names of the forms that files have: those of JSON lines, and a TREC run."""


@dataclass(frozen=True)
class Exported(Result):
    """A split's positives and the kept rows of a table, in a form that a training tool reads.

    Attributes:
        collection: documents, queries, judgements.
        table: negatives, and rejected rows of labelled positives, whose scores may be asked for.
        form: its name in FORMS.
        split: whose positives. Rows of other queries are left out.
        scores: the column of scores that go along; empty: none (of `tevatron`: the source's own).
        number: negatives in an n-tuple; None: as many as the positive with most has.

    Raises:
        UnknownNameError: no such form, or no such column.
        InputError: ids that the collection does not know, no row for any query of the split, a document without a score
            where scores go along, or tuples of no negative.
    """

    collection: Collection
    table: Negatives
    form: str
    split: str
    scores: str = ""
    number: int | None = None

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UnknownNameError("form", self.form, FORMS)
        if self.number is not None and self.number < 1:
            raise InputError(f"tuples with {self.number} negatives; expected at least 1")
        if not len(self._order[0]):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        if self.scores:
            self._check_column()

    def _check_column(self) -> None:
        kinds = {field.name: field.type for field in self.table.table.schema}
        columns = [name for name, kind in kinds.items() if kind == pa.float64() and name not in NOT_SCORES]
        if self.scores not in columns:
            raise UnknownNameError("column of scores", self.scores, columns)
        examples = list(self._examples())
        positives = np.array([each.score for example in examples for each in example.positives], np.float64)
        negatives = np.array([each.score for example in examples for each in example.negatives], np.float64)
        unscored, missing = (int((~np.isfinite(of)).sum()) for of in (positives, negatives))
        if missing or unscored:
            raise InputError(
                f"{unscored:,} of {len(positives):,} positives and {missing:,} of {len(negatives):,} negatives have no "
                f"{self.scores}; score both: score_pairs, or rate with "
                f"positives={max(len(example.positives) for example in examples)}"
            )

    @cached_property
    def _kept(self) -> Negatives:
        return self.table.without_rejected()

    @cached_property
    def _known(self) -> tuple[Rows, DocumentTexts]:
        return texts_of(self._kept, self.collection)

    @cached_property
    def _order(self) -> tuple[Rows, Rows]:
        """Kept rows of the split's queries, by judgement and rank; and the places of their queries."""
        places = self.collection.positives(self.split).places(self._known[0])
        order = np.lexsort((np.asarray(self._kept.table["rank"].to_numpy()), places))
        order = order[places[order] >= 0]
        return order, places[order]

    @cached_property
    def _of_positives(self) -> dict[tuple[int, int], float]:
        """(query row, document row) of positives -> their scores, which rejected rows of the table have."""
        if not self.scores:
            return {}
        rejected = self.table.table.filter(pa.array(~self.table.keep))
        queries = self.collection.query_rows(rejected["query_id"]).tolist()
        documents = self.collection.document_rows(rejected["doc_id"]).tolist()
        return dict(zip(zip(queries, documents, strict=True), rejected[self.scores].to_pylist(), strict=True))

    @property
    def _transform(self) -> TextTransform:
        return TextTransform(self.collection, self._known[1].own)

    def _examples(self) -> Iterator[Example]:
        """Yield each query that has negatives, in the order of the judgements, its texts as references."""
        positives, (order, places) = self.collection.positives(self.split), self._order
        table = self._kept.table.take(pa.array(order))
        references = np.asarray(self._known[1].rows)[order]
        starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        for begin, end in zip(starts, [*starts[1:], len(places)], strict=True):
            row, documents = int(positives.query_rows[places[begin]]), positives.of(places[begin])
            part = table.slice(begin, end - begin)
            columns = (part[name].to_pylist() for name in ("doc_id", self.scores or "score"))
            ids = self.collection.documents["doc_id"].take(pa.array(documents)).to_pylist()
            yield Example(
                row,
                [
                    Passage(at, key, self._of_positives.get((row, at), float("nan")))
                    for key, at in zip(ids, documents.tolist(), strict=True)
                ],
                [
                    Passage(at, key, score)
                    for at, key, score in zip(references[begin:end].tolist(), *columns, strict=True)
                ],
                query_id=self.collection.queries["query_id"][row].as_py(),
                scored=bool(self.scores),
            )

    def _with_texts(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Yield examples with their texts, which are read for many together."""
        while block := list(islice(examples, AT_ONCE)):
            references = [each.text for example in block for each in example.documents]
            rows = np.asarray(references, np.int64)
            titles = np.full(len(rows), "", object)
            titles[rows >= 0] = take(self.collection.documents["title"], rows[rows >= 0]).to_pylist()
            read = iter(zip(self._transform.documents(references), titles, strict=True))
            queries = self.collection.query_texts([example.query for example in block])
            for example, query in zip(block, queries, strict=True):
                pairs = zip(example.documents, islice(read, len(example.documents)), strict=True)
                documents = [replace(each, text=text, title=title) for each, (text, title) in pairs]
                positives, negatives = documents[: len(example.positives)], documents[len(example.positives) :]
                yield replace(example, query=query, positives=positives, negatives=negatives)

    def _by_positive(self, examples: Iterable[Example]) -> Iterator[Example]:
        """Yield an example for each labelled pair."""
        for example in examples:
            for positive in example.positives:
                yield replace(example, positives=[positive])

    def _records(self, examples: Iterable[Example]) -> Iterator[Record]:
        form, number = FORMS[self.form], self.number or 0
        if self.form == "tuples" and not number:
            number = max(len(example.negatives) for example in self._by_positive(self._examples()))
        for example in self._by_positive(examples) if form.by_positive else examples:
            yield from form.records(example, number)

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        yield from self._records(self._with_texts(self._examples()))

    def dataset(self) -> Dataset:
        """Return the records as a `datasets.Dataset`.

        Where texts stand in columns of their own, nothing is copied: it holds references, and gives texts when it is
        read. Of other forms it holds the records.

        Raises:
            MissingExtraError: without the package datasets.
        """
        datasets = require("datasets", "hub")
        if not FORMS[self.form].flat:
            return datasets.Dataset.from_list(list(self.records()))
        return datasets.Dataset.from_list(list(self._records(self._examples()))).with_transform(self._transform)

    def to_arrow(self) -> pa.Table:
        """Return the records, with their texts, as an Arrow table."""
        return pa.Table.from_pylist(list(self.records()))

    def write(self, path: str | Path) -> int:
        """Write the records as JSON lines, whole, and return how many there are."""
        count = 0
        with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
            for record in self.records():
                count += 1
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
        return count

    def tables(self) -> list[Table]:
        """Return how many queries, positives and negatives go along, and how many rows do not."""
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in self._counts().items()]
        scores = f", with {self.scores} as scores" if self.scores else ""
        return [Table(f"{self.form} for {FORMS[self.form].tool}{scores}", ("", "count"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the form, its tool, the scores, and the counts."""
        facts = {"form": self.form, "tool": FORMS[self.form].tool, "scores": self.scores or None}
        return {**facts, "split": self.split, **self._counts()}

    def _counts(self) -> dict[str, int]:
        examples = list(self._examples())
        return {
            "queries": len(examples),
            "positives": sum(len(each.positives) for each in examples),
            "negatives": len(self._order[0]),
            "records": sum(1 for _ in self._records(examples)),
            "rows_of_other_queries": len(self._kept) - len(self._order[0]),
        }


def export(
    negatives: Negatives, collection: Collection, path: str | Path, *, form: str, split: str, scores: str = ""
) -> int:
    """Write the kept rows of a table in a form that training tools read, and return how many records were written.

    Args:
        negatives: the table.
        collection: it was made from.
        path: of the file, written whole.
        form: a name in FILES: of FORMS, or `trec`, a run.
        split: whose positives.
        scores: the column of scores that go along; empty: none (of `tevatron`: the source's own).

    Raises:
        UnknownNameError: no such form, or no such column.
        InputError: nothing to export, or scores that are missing; of `trec`, scores, or documents with a text of
            their own.
    """
    if form not in FILES:
        raise UnknownNameError("form", form, FILES)
    if form in FORMS:
        return Exported(collection, negatives, form, split, scores).write(path)
    if scores:
        raise InputError("a TREC run has the scores of its ranking; leave scores out, or choose another form")
    return _write_run(negatives, collection, path)


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
        if form in files:
            raise InputError(f"{spelled('export')} {text}: {form} is written to {files[form]} already")
        files[form] = Path(path)
    return files


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
