"""A table of negatives: its columns and their types, what is checked of them, and what it says of labelled positives.

How many labelled positives a way of mining would return as negatives, were they not known
(`Recapture`), stands for the relevant documents without a label. Where a label is no likelier for
one relevant document than for another, a source that would return `returned` of its labelled
positives holds o·returned false negatives among its `kept` ones, o the number of relevant documents
without a label for each labelled one: φ = min(1, o·returned/kept).
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, DocumentTexts, PairIndex, Rows, pair_keys, rows_of
from foils.data.pairs import Example, Passage
from foils.data.tables import Provenance, column_or_nulls, read_table, table_bytes, take, with_types, write_table
from foils.runtime.errors import FormatError, InputError, check_names, require
from foils.runtime.files import JSONL, write_whole
from foils.runtime.results import Result, Table, counted

if TYPE_CHECKING:
    from datasets import Dataset

AT_ONCE = 512  # queries whose texts are read, or records that become Arrow's, together
# columns of numbers that are no scores of a document
NOT_SCORES = ("weight", "elo_se", "gap", "gap_se", "offset")
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
    """Yield anchor, positive, negative_1 … negative_n, where there are n.

    With scores, theirs, the positive's first.
    """
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
    table: Negatives
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
        queries, _, sides = self._sides
        if not len(queries):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        missing = [np.isnan(side["score"].to_numpy()).sum() if self.scores else 0 for _, side in sides]
        if any(missing):
            lost = f"{missing[0]:,} positives and {missing[1]:,} negatives"
            raise InputError(f"{lost} have no {self.scores}; score both: score_pairs (a rating has one of each query)")

    @cached_property
    def _sides(self) -> tuple[Rows, DocumentTexts, list[tuple[Rows, pa.Table]]]:
        """Rows of the queries with negatives, by judgement; the texts; of positives and of negatives offsets, and rows.

        Negatives lie by rank. A document has its row in the texts, its id, and its score.
        """
        of_query, texts = self.table.texts_in(self.collection)
        keep, table, rows = self.table.keep, self.table.table, np.asarray(texts.rows)
        positives = self.collection.positives(self.split)
        places = positives.places(of_query)
        order = np.lexsort((table["rank"].to_numpy(), places))
        order = order[(keep & (places >= 0))[order]]  # kept rows of the split's queries, by query and rank
        listed, counts = np.unique(places[order], return_counts=True)
        queries = positives.query_rows[listed]
        place, answers = positives.pairs_of(queries)
        column = self.scores or ("score" if FORMS[self.form].ranked else "")
        scores = table[column].to_numpy() if column else np.full(len(table), None)
        of_answers = np.full(len(answers), None)
        if self.scores:  # rejected rows of the table have those of the positives
            rejected = PairIndex(of_query, np.where(keep, -1, rows))
            of_answers = np.append(scores, np.nan)[rejected.places(queries[place], answers)]
        answer_ids = self.collection.documents["doc_id"].take(pa.array(answers))
        ids = table["doc_id"].take(pa.array(order))
        documents = (
            pa.table({"row": answers, "doc_id": answer_ids, "score": of_answers}),
            pa.table({"row": rows[order], "doc_id": ids, "score": scores[order]}),
        )
        ends = (np.cumsum([0, *each]) for each in (positives.counts[listed], counts))
        return queries, texts, list(zip(ends, documents, strict=True))

    def _passages(self, documents: pa.Table) -> Iterator[Passage]:
        """Yield documents with their titles and texts, which are read together."""
        rows = documents["row"].to_numpy()
        titles = np.full(len(rows), "", object)
        titles[rows >= 0] = take(self.collection.documents["title"], rows[rows >= 0]).to_pylist()
        texts = DocumentTexts(self.collection, rows, self._sides[1].own)[:]
        return map(Passage, texts, documents["doc_id"].to_pylist(), titles, documents["score"].to_pylist())

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        queries, _, sides = self._sides
        ids, number = self.collection.queries["query_id"], self._number()
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
        positives, negatives = (np.diff(ends) for ends, _ in self._sides[2])
        return {
            "queries": len(positives),
            "positives": int(positives.sum()),
            "negatives": int(negatives.sum()),
            "records": int(FORMS[self.form].counted(positives, negatives, self._number())),
            "rows_of_other_queries": int(self.table.keep.sum() - negatives.sum()),
        }

    def _number(self) -> int:
        return self.number or int(np.diff(self._sides[2][1][0]).max())


IDS = {name: pa.string() for name in ("query_id", "doc_id", "source")}
REQUIRED = pa.schema({**IDS, "rank": pa.int32(), "score": pa.float64()})
KNOWN = {
    "text": pa.large_string(),
    "keep": pa.bool_(),
    **dict.fromkeys(("reason", "tier", "verdict"), pa.string()),
    **dict.fromkeys(("cosine", "dot", "elo", "elo_se", "gap", "teacher", "weight", "relevance"), pa.float64()),
}
"""Columns that later stages add, and their types."""


def negatives_table(
    query_ids: pa.Array, doc_ids: pa.Array, source: str, ranks: npt.ArrayLike, scores: npt.ArrayLike
) -> pa.Table:
    """Make the five required columns of a table whose rows come from one source; each argument is (n,)."""
    ranks, scores = np.asarray(ranks, np.int32), np.asarray(scores, np.float64)
    sources = pa.repeat(pa.scalar(source), len(ranks))
    return pa.table([query_ids, doc_ids, sources, pa.array(ranks), pa.array(scores)], schema=REQUIRED)


def _checked_table(table: pa.Table) -> pa.Table:
    """Return a table with its columns in their types; whether pairs repeat is not looked at."""
    missing = [name for name in REQUIRED.names if name not in table.column_names]
    if missing:
        raise InputError(f"no column {', '.join(missing)}; a table of negatives has {', '.join(REQUIRED.names)}")
    table = with_types(table, {**dict(zip(REQUIRED.names, REQUIRED.types, strict=True)), **KNOWN})
    if table["score"].null_count:
        table = table.set_column(table.column_names.index("score"), "score", pc.fill_null(table["score"], np.nan))
    names = set(table.column_names)
    for name in (*IDS, "rank", "keep"):
        if name in names and table[name].null_count:
            raise InputError(f"{table[name].null_count} rows have no {name}; every row needs one")
    for name in ("score", *(name for name, kind in KNOWN.items() if kind == pa.float64() and name in names)):
        infinite = pc.sum(pc.is_inf(table[name])).as_py()
        if infinite:
            raise InputError(f"{infinite} values of {name} are infinite; a missing one is NaN")
    if "weight" in names and (table["weight"].to_numpy() < 0).any():
        raise InputError("negative weights; a row that does not count has weight 0")
    if len(table) and pc.min(table["rank"]).as_py() < 0:
        raise InputError("negative ranks; ranks begin at 0")
    marked = {"keep", "reason"} & names
    if len(marked) == 1 or (marked and pc.any(pc.equal(table["keep"], table["reason"].is_valid())).as_py()):
        raise InputError("a row has a reason exactly where keep is false; keep and reason come together")
    return table


LABELS = "labels"
"""Source of rows that stand in a table for the sake of what is known of labelled positives."""


POSITIVE = "labelled positive"
"""Why they are rejected."""


EQUAL = "equal to a positive"
"""Why a document is rejected that has the text of a positive of its query."""


TO_RATE = "labelled positive, to be rated"
"""Why a labelled positive is rejected that mining kept on request.

A rating compares it as it does negatives.
"""


TOP = "rated best of a query without a labelled positive"
"""Why the candidate is rejected that gaps of such a query are held against.

Training takes it for its positive.
"""


@dataclass(frozen=True)
class Negatives(Result):
    """Candidate negatives of queries, as a table, with what a door says of it.

    A door's own class adds what it counts.

    Attributes:
        table: columns `query_id, doc_id, source, rank, score` always; `rank` is 0-based, `score` is
            the source's own (higher is better, NaN where it has none; a null becomes NaN); `text`
            holds the document where it is not in the collection, null elsewhere; `keep` and
            `reason` come together: false with a reason, or true without one. Later stages add more.
            A pair (query_id, doc_id) occurs once.
        provenance: what made it.
        title: of what is shown.
        collection: that the table was made from, for the texts of exports; None: not known.
        split: whose positives exports take.
        checked: that the table has been checked before, which takes long.

    Raises:
        InputError: a column is missing, repeated or of another type, an id, source or rank is null, a rank is
            negative, a number infinite, a weight below 0, a pair repeats, or a rejected row has no reason.
    """

    table: pa.Table
    provenance: Provenance = field(default_factory=dict)
    title: str = field(default="Negatives", kw_only=True)
    collection: Collection | None = field(default=None, repr=False, compare=False, kw_only=True)
    split: str = field(default="train", kw_only=True)
    checked: InitVar[bool] = field(default=False, kw_only=True)

    def __post_init__(self, checked: bool) -> None:
        if checked:
            return
        object.__setattr__(self, "table", _checked_table(self.table))
        pairs = self.table.group_by(["query_id", "doc_id"], use_threads=False).aggregate([([], "count_all")])
        if len(pairs) < len(self):
            twice = pairs.filter(pc.greater(pairs["count_all"], 1))
            query, document, _ = twice.slice(0, 1).to_pylist()[0].values()
            raise InputError(f"{len(twice)} pairs occur more than once (first: {query!r}, {document!r}); keep one row")

    @classmethod
    def of(cls, negatives: Negatives, **more: Any) -> Self:
        """Return a table as an object of this class; `more` are its other attributes.

        The table is not checked again: that takes longest.
        """
        return cls(**{"table": negatives.table, "provenance": negatives.provenance, "checked": True, **more})

    def _with_table(self, table: pa.Table) -> Self:
        return replace(self, table=_checked_table(table), checked=True)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def keep(self) -> npt.NDArray[np.bool_]:
        """(n,) which rows are not rejected; all of them where no stage has judged."""
        if "keep" not in self.table.column_names:
            return np.ones(len(self), bool)
        return np.asarray(self.table["keep"].to_numpy(), bool)

    @property
    def brief(self) -> str:
        """Its sources, and how many queries and negatives are kept."""
        kept = self.kept()
        sources = ", ".join(repr(name) for name in kept["source"].unique().to_pylist())
        queries, negatives = len(kept["query_id"].unique()), kept.num_rows
        return f"{sources or 'none'}: {counted(queries, 'queries')}, {counted(negatives, 'negatives')}"

    def kept(self) -> pa.Table:
        """Return the rows that are not rejected."""
        return self.table.filter(pa.array(self.keep))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file that `write` writes, in hexadecimal, for provenance."""
        return hashlib.sha256(table_bytes(self.table, self.provenance)).hexdigest()

    def rows(self) -> list[tuple[str, str]]:
        """Return what is counted, and how many there are, as the program shows it."""
        return [("rows", f"{len(self):,}"), ("kept", f"{int(self.keep.sum()):,}"), *self.rejected_rows()]

    def rejected_rows(self) -> list[tuple[str, str]]:
        """Return a row for each reason for which rows are rejected."""
        return [(f"rejected: {reason}", f"{count:,}") for reason, count in self.rejected().items()]

    def tables(self) -> list[Table]:
        """Return the counts as one table; under it what `nothing_kept` says."""
        return [Table(self.title, ("", "count"), self.rows(), self.nothing_kept())]

    def nothing_kept(self) -> str:
        """Say what follows where no row is kept; return an empty text where one is."""
        return "" if self.keep.any() else f"No row is kept: there is nothing to train on. {self.looser()}"

    def looser(self) -> str:
        """Say how more rows would be kept."""
        return "The reasons for which rows are rejected say which rule to loosen."

    def export(self, path: str | Path, *, form: str = "triplets", scores: str = "") -> int:
        """Write the kept rows in a form that training tools read (see `Exported`).

        Args:
            path: of the file.
            form: its name.
            scores: the column of scores that go along; empty: none.

        Returns:
            How many lines or rows were written.

        Raises:
            InputError: the collection is not known, or nothing is there to export.
            UnknownNameError: no such form.
        """
        return self._exported(form, scores).write(path)

    def to_pandas(self, form: str = "") -> Any:
        """Return the table as a DataFrame; in a form of `foils.export`, as triplets, its kept rows with their texts.

        Raises:
            MissingExtraError: pandas is not installed.
            InputError: the collection is not known, or nothing is there to export.
            UnknownNameError: no such form.
        """
        require("pandas", "hub")
        return (self._exported(form).to_arrow() if form else self.table).to_pandas()

    def _exported(self, form: str, scores: str = "") -> Exported:
        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that it was made from")
        return Exported(self.collection, self, form, self.split, scores)

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the settings that made the table."""
        settings = self.provenance.get("settings", {})
        counts = {"rows": len(self), "kept": int(self.keep.sum()), "rejected": self.rejected()}
        return {"settings": settings, **counts}

    def rejected(self) -> dict[str, int]:
        """Count the rejected rows by reason, most frequent first."""
        if "reason" not in self.table.column_names:
            return {}
        counted = pc.value_counts(self.table["reason"].drop_null()).to_pylist()
        return {each["values"]: each["counts"] for each in sorted(counted, key=lambda each: -each["counts"])}

    def with_columns(self, columns: Mapping[str, pa.Array | npt.NDArray[np.generic]]) -> Self:
        """Return the table with more columns, each (n,).

        Raises:
            InputError: a column is there already (no stage overwrites what another wrote), or has
                another length.
        """
        table = self.table
        taken = [name for name in columns if name in table.column_names]
        if taken:
            raise InputError(f"the table has {', '.join(taken)} already; a stage adds columns, it replaces none")
        for name, values in columns.items():
            if len(values) != len(self):
                raise InputError(f"column {name} has {len(values)} values for {len(self)} rows; expected one a row")
            array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
            table = table.append_column(name, array.cast(KNOWN.get(name, array.type)))
        return self._with_table(table)

    def with_provenance(self, more: Provenance) -> Self:
        """Return the table with more, or other, entries of its provenance."""
        return replace(self, provenance={**self.provenance, **more}, checked=True)

    def rejected_for(self, reason: str) -> Rows:
        """Return the rows that were rejected for this reason, ascending."""
        if "reason" not in self.table.column_names:
            return np.zeros(0, np.int64)
        same = pc.fill_null(pc.equal(self.table["reason"], reason), False)
        return np.flatnonzero(same.to_numpy(zero_copy_only=False))

    def reject(self, rows: npt.NDArray[np.bool_], reason: str) -> Self:
        """Return the table with these rows rejected; a row that was rejected before keeps its first reason.

        Args:
            rows: (n,) which rows.
            reason: why, in a few words, the same for every row of this rule.

        Raises:
            InputError: `rows` is not one truth value a row (row numbers are not).
        """
        rows = np.asarray(rows)
        if rows.dtype != bool or rows.shape != (len(self),):
            raise InputError(f"rows to reject are {rows.dtype} {rows.shape}; expected bool ({len(self)},)")
        fresh = rows & self.keep
        old = column_or_nulls(self.table, "reason", pa.string())
        table = self.table.drop_columns([name for name in ("keep", "reason") if name in self.table.column_names])
        table = table.append_column("keep", pa.array(self.keep & ~fresh))
        table = table.append_column("reason", pc.if_else(pa.array(fresh), reason, old))
        return self._with_table(table)

    def with_rejected(
        self, query_ids: pa.Array, doc_ids: pa.Array, *, values: Mapping[str, npt.ArrayLike] | None = None
    ) -> tuple[Self, Rows]:
        """Return the table with a row for each of these labelled positives, and (m,) the row of each.

        A pair that has a row keeps it as it is. One that has none gets a row after all others:
        rejected, of rank 0, without a score and whatever else the others have, but for `values`.

        Args:
            query_ids: (m,) of documents in the collection that belong in the table but are no negatives.
            doc_ids: (m,) their ids; no pair twice.
            values: name of a column of numbers -> (m,) those of the new rows.
        """
        count = len(doc_ids)
        numbers = {"score": np.full(count, np.nan), **(values or {})}
        more = negatives_table(query_ids, doc_ids, LABELS, np.zeros(count), numbers.pop("score"))
        facts = {**numbers, "keep": np.zeros(count, bool), "reason": pa.repeat(pa.scalar(POSITIVE), count)}
        for name, column in facts.items():
            more = more.append_column(name, pa.array(column))
        marked = self.reject(np.zeros(len(self), bool), "").table
        rows = rows_of(pair_keys(more), pair_keys(marked))
        present = rows >= 0
        rows[~present] = len(self) + np.arange((~present).sum())
        table = pa.concat_tables([marked, more.filter(pa.array(~present))], promote_options="default")
        return self._with_table(table), rows

    def rows_in(self, collection: Collection) -> tuple[Rows, Rows]:
        """Return (query rows, document rows), each (n,), of the table in a collection; −1 for a row with its own text.

        Raises:
            InputError: query ids, or document ids without a text, that the collection does not know.
        """
        queries = collection.query_rows(self.table["query_id"])
        documents = collection.document_rows(self.table["doc_id"])
        has_text = np.asarray(column_or_nulls(self.table, "text", pa.large_string()).is_valid().to_numpy(), bool)
        for column, unknown in (("query_id", queries < 0), ("doc_id", (documents < 0) & ~has_text)):
            if unknown.any():
                ids = pc.unique(self.table[column].filter(pa.array(unknown)))
                shown = ", ".join(map(repr, ids.to_pylist()[:5]))
                raise InputError(f"{len(ids)} {column}s are not in the collection {collection.name} (first: {shown})")
        return queries, np.where(has_text, -1, documents)

    def texts_in(self, collection: Collection) -> tuple[Rows, DocumentTexts]:
        """Return (n,) query rows in a collection, and the texts of the documents.

        What stands in `text` goes first.

        Raises:
            InputError: query ids, or document ids without a text, that the collection does not know.
        """
        queries, documents = self.rows_in(collection)
        with_text = np.flatnonzero(documents < 0)
        documents[with_text] = -1 - with_text
        text = self.table["text"] if "text" in self.table.column_names else None
        return queries, DocumentTexts(collection, documents, text)

    def write(self, path: str | Path) -> None:
        """Write the table as Parquet with its provenance."""
        write_table(path, self.table, self.provenance)

    @classmethod
    def read(cls, path: str | Path) -> Negatives:
        """Read what `write` wrote.

        Raises:
            InputError: there is no such file.
            FormatError: it is not Parquet, or not a table of negatives.
        """
        table, recorded = read_table(path, REQUIRED.names)
        try:
            return Negatives(table, recorded)
        except InputError as error:
            raise FormatError(str(error), path) from error


@dataclass(frozen=True)
class Recapture:
    """What a way of mining does with positives that it does not know.

    Attributes:
        returned: labelled positives that it would keep among its negatives, counted or estimated.
        labelled: labelled positives of its queries.
        kept: negatives.
        way: `counted`, of every labelled positive; `planted`, from one positive of each query of a
            sample, mined with its label taken away.
        queries: whose positives were looked at.
        standard_error: of `returned`, as an estimate for relevant documents like the labelled ones;
            never 0 where it was estimated. None: not known.
    """

    returned: float
    labelled: float
    kept: float
    way: str = "counted"
    queries: int = 0
    standard_error: float | None = None

    @classmethod
    def estimated(
        cls, returned: npt.ArrayLike, looked_at: npt.ArrayLike, *, labelled: float, kept: float, way: str
    ) -> Recapture:
        """Estimate `returned` = labelled·f, f = Σ r_q / Σ k_q, from queries that stand for all.

        Its standard error is labelled·√(Σ (r_q − f·k_q)² + (k̄/2)²) / Σ k_q: a ratio's, over
        queries as wholes, with half of a query's positives added, so that a share of 0 or 1 in a
        few queries does not look certain.

        Args:
            returned: (n,) how many of the query's positives were returned, r_q.
            looked_at: (n,) for how many positives the query stands, k_q > 0.
            labelled: positives of all queries.
            kept: negatives of all queries.
            way: how it was done.
        """
        r, k = np.asarray(returned, np.float64), np.asarray(looked_at, np.float64)
        share = float(r.sum() / k.sum())
        deviation = math.sqrt(float(((r - share * k) ** 2).sum()) + float(k.mean() / 2) ** 2) / float(k.sum())
        return cls(labelled * share, labelled, kept, way, len(k), labelled * deviation)

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Recapture | None:
        """Read it from a table's provenance; None where the table does not say, or not in which way.

        Raises:
            InputError: what the table says are no counts.
        """
        recapture = provenance.get("recapture")
        if recapture is None:
            return None
        known = dict(recapture) if isinstance(recapture, Mapping) else {}
        counts: dict[str, Any] = {name: known.get(name) for name in ("returned", "labelled", "kept")}
        counts |= {name: known[name] for name in ("queries", "standard_error") if known.get(name) is not None}
        if not all(isinstance(each, (int, float)) and 0 <= each <= sys.float_info.max for each in counts.values()):
            raise InputError(f"the recapture is {str(recapture)[:200]}; expected counts returned, labelled, kept")
        return cls(**counts, way=str(known["way"])) if "way" in known else None

    @classmethod
    def of_table(cls, negatives: Negatives) -> Recapture | None:
        """Read it from a table; None also where rows were rejected since: it is then that of other rows."""
        recapture = cls.of(negatives.provenance)
        return recapture if recapture is not None and recapture.kept == negatives.keep.sum() else None

    def to_json(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return asdict(self)
