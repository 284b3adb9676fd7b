"""Exports: tables of negatives in the forms that training tools read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, Rows
from foils.data.negatives import Negatives, texts_of
from foils.data.pairs import Example, Passage
from foils.data.tables import take
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.files import write_whole
from foils.runtime.results import Result, Table

if TYPE_CHECKING:
    from datasets import Dataset


AT_ONCE = 512  # queries whose texts are read, or records that become Arrow's, together
NOT_SCORES = ("weight", "elo_se", "gap", "gap_se", "offset")  # columns of numbers that are no scores of a document
Record = dict[str, Any]


def _scores(passages: Sequence[Passage], name: str = "scores") -> Record:
    """Their scores under a name, where they have any."""
    return {} if any(each.score is None for each in passages) else {name: [each.score for each in passages]}


def triplets(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, positive, negative: one for each negative; with scores, the positive's and its own."""
    for positive in example.positives:
        for each in example.negatives:
            record = {"anchor": example.query, "positive": positive.text, "negative": each.text}
            yield {**record, **_scores((positive, each))}


def tuples(example: Example, number: int) -> Iterator[Record]:
    """Yield anchor, positive, negative_1 … negative_n, where there are n; with scores, theirs, the positive's first."""
    chosen = example.negatives[:number]
    for positive in example.positives if len(chosen) == number else ():
        named = {f"negative_{at}": each.text for at, each in enumerate(chosen, 1)}
        yield {"anchor": example.query, "positive": positive.text, **named, **_scores((positive, *chosen))}


def labelled_pairs(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, document, label: each positive with 1, then each negative with 0; or its score."""
    for at, each in enumerate(example.documents):
        of = {"label": int(at < len(example.positives))} if each.score is None else {"score": each.score}
        yield {"anchor": example.query, "document": each.text, **of}


def labelled_lists(example: Example, _: int) -> Iterator[Record]:
    """Yield anchor, documents, labels: positives (1) before negatives (0); or their scores."""
    labels = {"labels": [1] * len(example.positives) + [0] * len(example.negatives)}
    record = {"anchor": example.query, "documents": [each.text for each in example.documents]}
    yield {**record, **(_scores(example.documents) or labels)}


def flagembedding(example: Example, _: int) -> Iterator[Record]:
    """Yield query, pos, neg; with scores, pos_scores and neg_scores."""
    texts = {"pos": [each.text for each in example.positives], "neg": [each.text for each in example.negatives]}
    scores = {**_scores(example.positives, "pos_scores"), **_scores(example.negatives, "neg_scores")}
    yield {"query": example.query, **texts, **scores}


def tevatron(example: Example, _: int) -> Iterator[Record]:
    """Yield query_id, query, positive_passages, negative_passages: docid, title, text, and a score if there is one."""

    def passage(each: Passage) -> Record:
        text = str(each.text).removeprefix(each.title).lstrip()
        score = {} if each.score is None or np.isnan(each.score) else {"score": each.score}
        return {"docid": each.doc_id, "title": each.title, "text": text, **score}

    sides = {"positive_passages": example.positives, "negative_passages": example.negatives}
    documents = {name: [passage(each) for each in of] for name, of in sides.items()}
    yield {"query_id": example.query_id, "query": example.query, **documents}


def nemo(example: Example, _: int) -> Iterator[Record]:
    """Yield question_id, query, pos_doc, neg_doc, each document with id and text, and with scores, its score."""

    def document(each: Passage) -> Record:
        return {"id": each.doc_id, "text": each.text, **({} if each.score is None else {"score": each.score})}

    sides = {"pos_doc": example.positives, "neg_doc": example.negatives}
    documents = {name: [document(each) for each in of] for name, of in sides.items()}
    yield {"question_id": example.query_id, "query": example.query, **documents}


class Form(NamedTuple):
    """A form of records.

    Attributes:
        tool: what reads it.
        records: yields the records of an example; the number is of negatives in an n-tuple.
        ranked: whether negatives have the score of their ranking where no other is chosen.
    """

    tool: str
    records: Callable[[Example, int], Iterator[Record]]
    ranked: bool = False


FORMS: dict[str, Form] = {
    "triplets": Form("sentence-transformers", triplets),
    "tuples": Form("sentence-transformers", tuples),
    "labelled-pairs": Form("sentence-transformers", labelled_pairs),
    "labelled-lists": Form("sentence-transformers, PyLate", labelled_lists),
    "flagembedding": Form("FlagEmbedding", flagembedding),
    "tevatron": Form("Tevatron", tevatron, ranked=True),
    "nemo": Form("NeMo AutoModel", nemo),
}
"""By name. Files are JSON lines."""


@dataclass(frozen=True)
class Exported(Result):
    """A split's positives and the kept rows of a table, in a form that a training tool reads.

    Attributes:
        collection: documents, queries, judgements.
        table: negatives, and rejected rows of labelled positives, whose scores may be asked for.
        form: its name in FORMS.
        split: whose positives. Rows of other queries are left out.
        scores: the column of scores that go along; empty: none (of `tevatron`: the source's own).
        number: negatives in an n-tuple; None: as many as the query with most has.

    Raises:
        UnknownNameError: no such form, or no such column.
        InputError: ids that the collection does not know, no row for any query of the split, a document without a score
            where scores go along.
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
        order, _ = self._order
        if not len(order):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        if self.scores:
            self._check_column()

    def _check_column(self) -> None:
        kinds = {field.name: field.type for field in self.table.table.schema}
        columns = [name for name, kind in kinds.items() if kind == pa.float64() and name not in NOT_SCORES]
        if self.scores not in columns:
            raise UnknownNameError("column of scores", self.scores, columns)
        examples = list(self._examples())
        sides = ([each.positives for each in examples], [each.negatives for each in examples])
        of = [np.array([each.score for listed in side for each in listed], np.float64) for side in sides]
        unscored, missing = (int((~np.isfinite(scores)).sum()) for scores in of)
        if missing or unscored:
            said = f"{unscored:,} of {len(of[0]):,} positives and {missing:,} of {len(of[1]):,} negatives"
            raise InputError(f"{said} have no {self.scores}; score both: score_pairs (a rating has one of each query)")

    @cached_property
    def _kept(self) -> Negatives:
        return Negatives(self.table.kept(), checked=True)

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

    def _examples(self) -> Iterator[Example]:
        """Yield each query that has negatives, in the order of the judgements, its texts as references."""
        positives, (order, places) = self.collection.positives(self.split), self._order
        references, table = np.asarray(self._known[1].rows)[order].tolist(), self._kept.table.take(pa.array(order))
        column = self.scores or ("score" if FORMS[self.form].ranked else "")
        scores = table[column].to_pylist() if column else [None] * len(table)
        negatives = map(Passage, references, table["doc_id"].to_pylist(), repeat(""), scores)
        missing = float("nan") if self.scores else None
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            row, documents = int(positives.query_rows[place]), positives.of(place)
            ids = self.collection.documents["doc_id"].take(pa.array(documents)).to_pylist()
            answers = [
                Passage(at, key, "", self._of_positives.get((row, at), missing))
                for at, key in zip(documents.tolist(), ids, strict=True)
            ]
            query_id = self.collection.queries["query_id"][row].as_py()
            yield Example(row, answers, list(islice(negatives, int(count))), query_id=query_id)

    def _with_texts(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Yield examples with their texts, which are read for many together."""
        while block := list(islice(examples, AT_ONCE)):
            rows = np.array([each.text for example in block for each in example.documents], np.int64)
            titles = np.full(len(rows), "", object)
            titles[rows >= 0] = take(self.collection.documents["title"], rows[rows >= 0]).to_pylist()
            texts = DocumentTexts(self.collection, rows, self._known[1].own)[:]
            read = zip(texts, titles, strict=True)
            queries = self.collection.query_texts([example.query for example in block])
            for example, query in zip(block, queries, strict=True):
                positives, negatives = (
                    [each._replace(text=text, title=title) for each, (text, title) in zip(side, read, strict=False)]
                    for side in (example.positives, example.negatives)
                )
                yield example._replace(query=query, positives=positives, negatives=negatives)

    def _records(self, examples: Iterator[Example]) -> Iterator[Record]:
        number = self.number or int(np.unique(self._order[1], return_counts=True)[1].max())
        return (record for example in examples for record in FORMS[self.form].records(example, number))

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        return self._records(self._with_texts(self._examples()))

    def to_arrow(self) -> pa.Table:
        """Return the records as an Arrow table."""
        records, parts = self.records(), [pa.table({})]
        while block := list(islice(records, AT_ONCE)):
            parts.append(pa.Table.from_pylist(block))
        return pa.concat_tables(parts[1:] or parts, promote_options="permissive")

    def dataset(self) -> Dataset:
        """Return the records as a `datasets.Dataset` in memory.

        Raises:
            MissingExtraError: without the package datasets.
        """
        made: Dataset = require("datasets", "hub").Dataset(self.to_arrow())
        return made

    def write(self, path: str | Path) -> int:
        """Write the records, whole, as JSON lines, and return how many there are."""
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
            "records": sum(1 for _ in self._records(iter(examples))),
            "rows_of_other_queries": len(self._kept) - len(self._order[0]),
        }
