"""What forms for training are made of: a split's positives and the kept rows of a table, query by query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.chunks import take
from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.texts import DocumentTexts, texts_of
from foils.runtime.errors import InputError, UnknownNameError

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
                f"{self.scores}; score both: filter with score_positives and a scorer, score_pairs, or rate with "
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
