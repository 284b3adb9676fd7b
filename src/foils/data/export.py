"""Tables of negatives in the forms that training tools read: as files, as data sets, as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from foils.data.collection import Collection, Rows
from foils.data.forms import FORMS, Form, Record
from foils.data.negatives import Negatives
from foils.data.run import Run, ranks_within
from foils.data.store import fill_folder, write_whole
from foils.data.training_data import Group, TrainingData
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

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
