"""Forms in which training tools read negatives, and a split's positives and negatives written in one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, PairIndex, Rows
from foils.data.pairs import Example, Passage
from foils.data.tables import take
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.files import JSONL, write_whole
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
        value = {"label": int(at < len(example.positives))} if each.score is None else {"score": each.score}
        yield {"anchor": example.query, "document": each.text, **value}


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
        score = {} if each.score is None or np.isnan(each.score) else {"score": each.score}
        return {"docid": each.doc_id, "title": each.title, "text": each.text.removeprefix(each.title).lstrip(), **score}

    sides = {"positive_passages": example.positives, "negative_passages": example.negatives}
    documents = {name: [passage(each) for each in passages] for name, passages in sides.items()}
    yield {"query_id": example.query_id, "query": example.query, **documents}


class NegativesTable(Protocol):
    """What an export needs of a table of negatives (`foils.data.negatives.Negatives`)."""

    @property
    def table(self) -> pa.Table:
        """The columns."""

    @property
    def keep(self) -> npt.NDArray[np.bool_]:
        """(n,) which rows are not rejected."""

    def texts_in(self, collection: Collection) -> tuple[Rows, DocumentTexts]:
        """Return (n,) query rows, and the texts of the documents."""


class Form(NamedTuple):
    """A form of records.

    Attributes:
        tool: what reads it.
        records: yields the records of an example; the number is of negatives in an n-tuple.
        counted: how many records there are of queries with these numbers of positives and of negatives.
        ranked: whether negatives have the score of their ranking where no other is chosen.
    """

    tool: str
    records: Callable[[Example, int], Iterator[Record]]
    counted: Callable[[Rows, Rows, int], Any] = lambda answers, *_: len(answers)
    ranked: bool = False


FORMS: dict[str, Form] = {
    "triplets": Form("sentence-transformers", triplets, lambda answers, others, _: answers @ others),
    "tuples": Form("sentence-transformers", tuples, lambda answers, others, number: answers @ (others >= number)),
    "labelled-pairs": Form(
        "sentence-transformers", labelled_pairs, lambda answers, others, _: (answers + others).sum()
    ),
    "labelled-lists": Form("sentence-transformers, PyLate", labelled_lists),
    "flagembedding": Form("FlagEmbedding", flagembedding),
    "tevatron": Form("Tevatron", tevatron, ranked=True),
}
"""By name. Files are JSON lines."""
ALIASES = {
    "sentence-transformers": "triplets", "pylate": "triplets", "triplet": "triplets", "n-tuple": "tuples",
    "labeled-pair": "labelled-pairs", "labeled-list": "labelled-lists",
}  # fmt: skip
"""What other tools, and the `output_format` of sentence-transformers, call these forms."""


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
        InputError: ids that the collection does not know, no row for any query of the split, a
            document without a score where scores go along.
    """

    endings = JSONL

    collection: Collection
    table: NegativesTable
    form: str
    split: str
    scores: str = ""
    number: int | None = None

    def __post_init__(self) -> None:
        check_names("form", [self.form], FORMS)
        if self.scores:
            fields = (field for field in self.table.table.schema if field.type == pa.float64())
            columns = [field.name for field in fields if field.name not in NOT_SCORES]
            check_names("column of scores", [self.scores], columns)
        rows, sides = self._sides
        if not len(rows):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        missing = [np.isnan(side["score"].to_numpy()).sum() if self.scores else 0 for _, side in sides]
        if any(missing):
            problem, others = (f"{lost:,} of {len(side):,}" for lost, (_, side) in zip(missing, sides, strict=True))
            problem = f"{problem} positives and {others} negatives have no {self.scores}"
            raise InputError(f"{problem}; score both: score_pairs (a rating has one of each query)")

    @cached_property
    def _texts(self) -> tuple[Rows, DocumentTexts]:
        return self.table.texts_in(self.collection)

    @cached_property
    def _sides(self) -> tuple[Rows, list[tuple[Rows, pa.Table]]]:
        """Rows of the queries with negatives, by judgement; of both their positives and negatives offsets, and rows.

        Negatives lie by rank. A document has its row in the texts, its id, and its score.
        """
        (of_query, texts), keep, table = self._texts, self.table.keep, self.table.table
        positives, rows = self.collection.positives(self.split), np.asarray(texts.rows)
        places = positives.places(of_query)
        order = np.lexsort((table["rank"].to_numpy(), places))
        order = order[(keep & (places >= 0))[order]]
        listed, counts = np.unique(places[order], return_counts=True)
        of_listed = np.isin(np.repeat(np.arange(len(positives)), positives.counts), listed)
        queries, answers = (rows_of_side[of_listed] for rows_of_side in positives.pairs())
        column = self.scores or ("score" if FORMS[self.form].ranked else "")
        scores = table[column].to_numpy() if column else np.full(len(table), None)
        known = np.full(len(answers), None)
        if self.scores:  # rejected rows of the table have those of the positives
            known = np.append(scores, np.nan)[PairIndex(of_query, np.where(keep, -1, rows)).places(queries, answers)]
        sides = (
            (positives.counts[listed], answers, self.collection.documents["doc_id"].take(pa.array(answers)), known),
            (counts, rows[order], table["doc_id"].take(pa.array(order)), scores[order]),
        )
        return positives.query_rows[listed], [
            (np.cumsum([0, *count]), pa.table({"row": row, "doc_id": key, "score": score}))
            for count, row, key, score in sides
        ]

    def _passages(self, documents: pa.Table) -> Iterator[Passage]:
        """Yield documents with their titles and texts, which are read together."""
        rows = documents["row"].to_numpy()
        titles = np.full(len(rows), "", object)
        titles[rows >= 0] = take(self.collection.documents["title"], rows[rows >= 0]).to_pylist()
        texts = DocumentTexts(self.collection, rows, self._texts[1].own)[:]
        return map(Passage, texts, documents["doc_id"].to_pylist(), titles, documents["score"].to_pylist())

    @property
    def _number(self) -> int:
        return self.number or int(np.diff(self._sides[1][1][0]).max())

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        queries, sides = self._sides
        ids, number = self.collection.queries["query_id"], self._number
        for start in range(0, len(queries), AT_ONCE):
            block = queries[start : start + AT_ONCE]
            read = [self._passages(side[ends[start] : ends[start + len(block)]]) for ends, side in sides]
            asked = zip(self.collection.query_texts(block), take(ids, block).to_pylist(), strict=True)
            for at, (query, query_id) in enumerate(asked, start):
                counts = (int(ends[at + 1] - ends[at]) for ends, _ in sides)
                positives, negatives = map(list, map(islice, read, counts))
                yield from FORMS[self.form].records(Example(query, positives, negatives, query_id=query_id), number)

    def to_arrow(self) -> pa.Table:
        """Return the records as an Arrow table."""
        records = self.records()
        blocks = iter(lambda: list(islice(records, AT_ONCE)), [])
        return pa.concat_tables([pa.table({}), *map(pa.Table.from_pylist, blocks)], promote_options="permissive")

    def dataset(self) -> Dataset:
        """Return the records as a `datasets.Dataset` in memory.

        Raises:
            MissingExtraError: without the package datasets.
        """
        data_set: Dataset = require("datasets", "hub").Dataset(self.to_arrow())
        return data_set

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
        positives, negatives = (np.diff(ends) for ends, _ in self._sides[1])
        return {
            "queries": len(positives),
            "positives": int(positives.sum()),
            "negatives": int(negatives.sum()),
            "records": int(FORMS[self.form].counted(positives, negatives, self._number)),
            "rows_of_other_queries": int(self.table.keep.sum() - negatives.sum()),
        }
