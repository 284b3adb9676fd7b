"""Tables of negatives in the forms that training tools read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.run import Run, ranks_within
from foils.data.store import write_whole
from foils.data.texts import DocumentTexts, texts_of
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.options import spelled

if TYPE_CHECKING:
    from datasets import Dataset

Example = dict[str, Any]  # column -> a reference to a text, a list of them, or a label


@dataclass(frozen=True)
class TrainingData:
    """A split's positives and the kept rows of a table, by query: what the forms are made of.

    A text is referred to by a number, as the rows of `DocumentTexts`: a document's row; below 0 a text of the table.

    Attributes:
        collection: documents, queries, judgements.
        negatives: the table, less the rejected rows of the one that was given.
        split: whose positives. Rows of other queries are left out.

    Raises:
        InputError: ids that the collection does not know, or no row for any query of the split.
    """

    collection: Collection
    negatives: Negatives
    split: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "negatives", self.negatives.without_rejected())
        if not len(self._rows[0]):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")

    @property
    def texts(self) -> TextTransform:
        """What puts texts in the place of references."""
        return TextTransform(self.collection, self._documents.own)

    @cached_property
    def left_out(self) -> int:
        """How many kept rows are of queries without a positive in the split."""
        return len(self.negatives) - len(self._rows[0])

    def queries(self) -> Iterator[tuple[int, list[int], Rows]]:
        """Yield (query row, its positives, rows of the table by rank) for each query that has negatives."""
        positives = self.collection.positives(self.split)
        place = {int(row): index for index, row in enumerate(positives.query_rows)}
        order, queries = self._rows
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])
        spans = {int(queries[a]): order[a:b] for a, b in zip(starts, np.r_[starts[1:], len(order)], strict=True)}
        for row in sorted(spans, key=place.__getitem__):
            yield row, positives.of(place[row]).tolist(), spans[row]

    def pairs(self) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (query row, positive, references of its negatives by rank) for each labelled pair.

        Where the table says in `positives` which positives a row may stand beside, it stands beside those alone.
        """
        for query, positives, rows in self.queries():
            for positive in positives:
                stands = rows if self._beside is None else [row for row in rows if positive in self._beside[row]]
                yield query, positive, [int(self.references[row]) for row in stands]

    def text_of(self, reference: int) -> str:
        """Return the text that a reference names."""
        return DocumentTexts(self.collection, np.array([reference]), self._documents.own)[0]

    @property
    def references(self) -> Rows:
        """(n,) of every row of the table, what it refers to."""
        return np.asarray(self._documents.rows)

    @cached_property
    def _beside(self) -> list[set[int]] | None:
        if "positives" not in self.negatives.table.column_names:
            return None
        lists = self.negatives.table["positives"].to_pylist()
        return [set(self.collection.document_rows(listed or []).tolist()) for listed in lists]

    @cached_property
    def _known(self) -> tuple[Rows, DocumentTexts]:
        return texts_of(self.negatives, self.collection)

    @property
    def _documents(self) -> DocumentTexts:
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


def triplets(data: TrainingData) -> Iterator[Example]:
    """Yield anchor, positive, negative: one for each pair of a positive and a negative of a query."""
    for query, positive, negatives in data.pairs():
        for negative in negatives:
            yield {"anchor": query, "positive": positive, "negative": negative}


def tuples(data: TrainingData, *, number: int | None = None) -> Iterator[Example]:
    """Yield anchor, positive, negative_1 … negative_n: one for each positive with n negatives; others are left out.

    Args:
        data: what to export.
        number: n; None: as many as the positive with most has.
    """
    if number is None:
        number = max(len(negatives) for *_, negatives in data.pairs())
    if number < 1:
        raise InputError(f"tuples with {number} negatives; expected at least 1")
    for query, positive, negatives in data.pairs():
        if len(negatives) >= number:
            named = {f"negative_{at}": negative for at, negative in enumerate(negatives[:number], 1)}
            yield {"anchor": query, "positive": positive, **named}


def labelled_pairs(data: TrainingData) -> Iterator[Example]:
    """Yield anchor, document, label: each positive of a query with 1, then each negative with 0."""
    for query, positives, rows in data.queries():
        for document, label in [*((p, 1) for p in positives), *((int(data.references[row]), 0) for row in rows)]:
            yield {"anchor": query, "document": document, "label": label}


def labelled_lists(data: TrainingData) -> Iterator[Example]:
    """Yield anchor, documents, labels: one list for each query, its positives (1) before its negatives (0)."""
    for query, positives, rows in data.queries():
        negatives = [int(data.references[row]) for row in rows]
        labels = [1] * len(positives) + [0] * len(negatives)
        yield {"anchor": query, "documents": [*positives, *negatives], "labels": labels}


FORMS: dict[str, Callable[..., Iterator[Example]]] = {
    "triplets": triplets,
    "tuples": tuples,
    "labelled-pairs": labelled_pairs,
    "labelled-lists": labelled_lists,
}


class TextTransform:
    """Puts texts in the place of references: a batched transform, and a picklable one.

    Args:
        collection: whose rows the references are.
        own: texts that references below 0 count, from −1; None: there are none.
    """

    def __init__(self, collection: Collection, own: pa.Array | pa.ChunkedArray | None) -> None:
        self._collection, self._own = collection, own

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Return the batch with texts; labels stay."""
        return {name: self._column(name, values) for name, values in batch.items()}

    def _column(self, name: str, values: list[Any]) -> list[Any]:
        if name in ("label", "labels"):
            return list(values)
        if name == "anchor":
            return self._collection.query_texts(values)
        if name != "documents":
            return self._documents(values)
        flat = iter(self._documents([reference for listed in values for reference in listed]))
        return [[next(flat) for _ in listed] for listed in values]

    def _documents(self, references: list[int]) -> list[str]:
        return DocumentTexts(self._collection, np.asarray(references, np.int64), self._own)[:]


def as_dataset(
    negatives: Negatives, collection: Collection, *, form: str, split: str, number: int | None = None
) -> Dataset:
    """Return a `datasets.Dataset` for sentence-transformers, in one of its forms.

    Nothing is copied: it holds references, and gives texts when it is read.

    Args:
        negatives: the table; its rejected rows are left out.
        collection: it was made from.
        form: a name in FORMS; the columns, in order, are what the functions of that name yield.
        split: whose positives.
        number: of negatives in a tuple; None: as many as the positive with most has.

    Raises:
        UnknownNameError: no such form.
        InputError: nothing to export.
        MissingExtraError: without the package datasets.
    """
    datasets = require("datasets", "train")
    data = TrainingData(collection, negatives, split)
    columns: dict[str, list[Any]] = {}
    for example in _examples(data, form, number):
        for name, value in example.items():
            columns.setdefault(name, []).append(value)
    return datasets.Dataset.from_dict(columns).with_transform(data.texts)


def export(
    negatives: Negatives, collection: Collection, path: str | Path, *, form: str, split: str, number: int | None = None
) -> int:
    """Write a table in a form that training tools read, and return how many lines or rows were written.

    Forms: those of FORMS as JSON lines; `tevatron` (query_id, query, positive_passages, negative_passages, with
    scores); `flagembedding` (query, pos, neg); `trec`, a run; `parquet`, our own, with all rows and columns.

    Args:
        negatives: the table; its rejected rows are left out, except of `parquet`.
        collection: it was made from.
        path: of the file, written whole.
        form: as above.
        split: whose positives.
        number: of negatives in a tuple; None: as many as the positive with most has.

    Raises:
        UnknownNameError: no such form.
        InputError: nothing to export, or, of `trec`, documents with a text of their own.
    """
    if form == "parquet":
        negatives.write(path)
        return len(negatives)
    if form == "trec":
        return _write_run(negatives, collection, path)
    lines = 0
    with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
        for record in _records(TrainingData(collection, negatives, split), form, number):
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            lines += 1
    return lines


FILES = (*FORMS, "tevatron", "flagembedding", "trec", "parquet")


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


def _records(data: TrainingData, form: str, number: int | None) -> Iterator[dict[str, Any]]:
    if form == "tevatron":
        yield from _tevatron(data)
    elif form == "flagembedding":
        yield from _flagembedding(data)
    else:
        texts = data.texts
        for example in _examples(data, form, number):
            yield {name: values[0] for name, values in texts({key: [value] for key, value in example.items()}).items()}


def _examples(data: TrainingData, form: str, number: int | None) -> Iterator[Example]:
    if form not in FORMS:
        raise UnknownNameError("form", form, FILES)
    return tuples(data, number=number) if form == "tuples" else FORMS[form](data)


def _tevatron(data: TrainingData) -> Iterator[dict[str, Any]]:
    ids, scores = data.negatives.table["doc_id"], np.asarray(data.negatives.table["score"].to_numpy())
    for query, positives, rows in data.queries():
        passages = _passages(data, [int(data.references[row]) for row in rows])
        for passage, row in zip(passages, rows.tolist(), strict=True):
            passage["docid"] = ids[row].as_py()
            if np.isfinite(scores[row]):
                passage["score"] = float(scores[row])
        yield {
            "query_id": data.collection.queries["query_id"][query].as_py(),
            "query": data.collection.query_texts([query])[0],
            "positive_passages": _passages(data, positives),
            "negative_passages": passages,
        }


def _passages(data: TrainingData, references: list[int]) -> list[dict[str, Any]]:
    inside = [row for row in references if row >= 0]
    stored = iter(data.collection.documents.take(pa.array(inside, pa.int64())).to_pylist())
    passages: list[dict[str, Any]] = []
    for row in references:
        if row >= 0:
            document = next(stored)
            passages.append({"docid": document["doc_id"], "title": document["title"], "text": document["text"]})
        else:
            passages.append({"docid": "", "title": "", "text": data.text_of(row)})
    return passages


def _flagembedding(data: TrainingData) -> Iterator[dict[str, Any]]:
    texts = data.texts
    for query, positives, rows in data.queries():
        negatives = [int(data.references[row]) for row in rows]
        batch = texts({"anchor": [query], "documents": [positives, negatives]})
        yield {"query": batch["anchor"][0], "pos": batch["documents"][0], "neg": batch["documents"][1]}


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
