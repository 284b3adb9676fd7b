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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, DocumentTexts, Rows, pair_keys, rows_of
from foils.data.pairs import Example, Passage
from foils.data.run import ranks_within
from foils.data.tables import Provenance, column_or_nulls, read_table, table_bytes, take, with_types, write_table
from foils.runtime.errors import FormatError, InputError, check_names, require
from foils.runtime.files import JSONL, write_whole
from foils.runtime.results import Result, Table

if TYPE_CHECKING:
    from datasets import Dataset

AT_ONCE = 512  # queries whose texts are read, or records that become Arrow's, together
Record = dict[str, Any]


def _scores(passages: Sequence[Passage], name: str = "scores") -> Record:
    """Their scores under a name, where they have any."""
    return {} if any(each.score is None for each in passages) else {name: [each.score for each in passages]}


def triplets(example: Example) -> Iterator[Record]:
    """Yield anchor, positive, negative: one for each negative; with scores, the positive's and its own."""
    for positive in example.positives:
        for each in example.negatives:
            record = {"anchor": example.query, "positive": positive.text, "negative": each.text}
            yield {**record, **_scores((positive, each))}


def tuples(example: Example) -> Iterator[Record]:
    """Yield anchor, positive, negative_1 … negative_n for each positive; with scores, the positive's first."""
    named = {f"negative_{at}": each.text for at, each in enumerate(example.negatives, 1)}
    for positive in example.positives:
        scores = _scores((positive, *example.negatives))
        yield {"anchor": example.query, "positive": positive.text, **named, **scores}


def labelled_pairs(example: Example) -> Iterator[Record]:
    """Yield anchor, document, label: each positive with 1, then each negative with 0; or its score."""
    for at, each in enumerate(example.documents):
        value = {"label": int(at < len(example.positives))} if each.score is None else {"score": each.score}
        yield {"anchor": example.query, "document": each.text, **value}


def labelled_lists(example: Example) -> Iterator[Record]:
    """Yield anchor, documents, labels: positives (1) before negatives (0); or their scores."""
    labels = {"labels": [1] * len(example.positives) + [0] * len(example.negatives)}
    record = {"anchor": example.query, "documents": [each.text for each in example.documents]}
    yield {**record, **(_scores(example.documents) or labels)}


def flagembedding(example: Example) -> Iterator[Record]:
    """Yield query, pos, neg; with scores, pos_scores and neg_scores."""
    texts = {"pos": [each.text for each in example.positives], "neg": [each.text for each in example.negatives]}
    scores = {**_scores(example.positives, "pos_scores"), **_scores(example.negatives, "neg_scores")}
    yield {"query": example.query, **texts, **scores}


def tevatron(example: Example) -> Iterator[Record]:
    """Yield query_id, query, positive_passages, negative_passages: docid, title, text, and a score if there is one."""

    def passage(each: Passage) -> Record:
        score = {} if each.score is None or np.isnan(each.score) else {"score": each.score}
        return {"docid": each.doc_id, "title": each.title, "text": each.text.removeprefix(each.title).lstrip(), **score}

    sides = {"positive_passages": example.positives, "negative_passages": example.negatives}
    documents = {name: [passage(each) for each in passages] for name, passages in sides.items()}
    yield {"query_id": example.query_id, "query": example.query, **documents}


# what yields the records of an example, by the name of the form; files are JSON lines
FORMS: dict[str, Callable[[Example], Iterator[Record]]] = {
    "triplets": triplets,
    "tuples": tuples,
    "labelled-pairs": labelled_pairs,
    "labelled-lists": labelled_lists,
    "flagembedding": flagembedding,
    "tevatron": tevatron,
}
# what other tools, and the `output_format` of sentence-transformers, call these forms
ALIASES = {
    "sentence-transformers": "triplets", "pylate": "triplets", "triplet": "triplets", "n-tuple": "tuples",
    "labeled-pair": "labelled-pairs", "labeled-list": "labelled-lists",
}  # fmt: skip


@dataclass(frozen=True)
class Exported(Result):
    """A split's positives and the kept rows of a table, in a form that a training tool reads.

    Attributes:
        collection: documents, queries, judgements.
        table: negatives, and rejected rows of labelled positives, whose scores may be asked for.
        form: its name in FORMS. Tuples have as many negatives as the query with most has; queries
            with fewer are left out.
        split: whose positives. Rows of other queries are left out.
        scores: the column of scores that go along; empty: none (of `tevatron`: the source's own).

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

    def __post_init__(self) -> None:
        check_names("form", [self.form], FORMS)
        table, queries, *sides = self._rows
        if not len(queries):
            raise InputError(f"no kept negative is of a query of the split {self.split!r}; nothing to export")
        if self.scores:
            columns = [field.name for field in table.table.schema if field.type == pa.float64()]
            check_names("column of scores", [self.scores], columns)
            scores = table.table[self.scores].to_numpy()
            missing = [int(np.isnan(scores[rows[rows >= 0]]).sum()) for rows in sides]
            if any(missing):
                lost = f"{missing[0]:,} positives and {missing[1]:,} negatives have no {self.scores}"
                raise InputError(f"{lost}; score both: score_pairs (a rating has one of each query)")

    @cached_property
    def _rows(self) -> tuple[Negatives, Rows, Rows, Rows]:
        """The table with a row for each positive; (n,) the queries that go along, by their rows in the collection.

        Then (n, ·) the rows in the table of each query's positives, by judgement, and of its
        negatives, by rank; −1 where a list is short.
        """
        known = self.collection.positives(self.split)
        negatives = self.table.lists_in(self.collection, known.query_rows)
        fewest = negatives.shape[1] if self.form == "tuples" else 1
        chosen = (negatives >= 0).sum(axis=1) >= max(fewest, 1)
        queries = known.query_rows[chosen]
        place, documents = known.pairs_of(queries)
        query_ids = take(self.collection.queries["query_id"], queries[place])
        table, rows = self.table.with_rejected(query_ids, take(self.collection.documents["doc_id"], documents))
        positives = np.full((len(queries), int(known.counts_of(queries).max(initial=0))), -1)
        positives[place, ranks_within(place)] = rows
        return table, queries, positives, negatives[chosen]

    def _passages(self, texts: DocumentTexts, lists: Rows, scores: str) -> Iterator[list[Passage]]:
        """Yield the documents of each list, (n, k) rows of the table, with their scores of a column, if it has a name.

        Titles and texts are read together.
        """
        rows, table = lists[lists >= 0], self._rows[0].table
        documents, titles = np.asarray(texts.rows)[rows], np.full(len(rows), "", object)
        inside = documents >= 0
        titles[inside] = take(self.collection.documents["title"], documents[inside]).to_pylist()
        values = take(table[scores], rows).to_pylist() if scores else repeat(None)
        passages = map(Passage, texts.take(rows), take(table["doc_id"], rows).to_pylist(), titles, values)
        for count in (lists >= 0).sum(axis=1).tolist():
            yield list(islice(passages, count))

    def records(self) -> Iterator[Record]:
        """Yield the records, with their texts, which are read as they are needed."""
        table, queries, positives, negatives = self._rows
        _, texts = table.texts_in(self.collection)
        ranked = self.scores or ("score" if self.form == "tevatron" else "")
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            lists = ((positives[part], self.scores), (negatives[part], ranked))
            sides = (self._passages(texts, *each) for each in lists)
            ids = take(self.collection.queries["query_id"], queries[part]).to_pylist()
            for example in map(Example, self.collection.query_texts(queries[part]), *sides, ids):
                yield from FORMS[self.form](example)

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
        return [Table(f"{self.form}{scores}", ("", "count"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the form, the split, the scores, and the counts."""
        return {"form": self.form, "scores": self.scores or None, "split": self.split, **self._counts()}

    def _counts(self) -> dict[str, int]:
        _, queries, *sides = self._rows
        counts = [len(queries), *(int((rows >= 0).sum()) for rows in sides)]
        counts.append(int(self.table.keep.sum()) - counts[-1])
        return dict(zip(("queries", "positives", "negatives", "rows_of_other_queries"), counts, strict=True))


IDS = {name: pa.string() for name in ("query_id", "doc_id", "source")}
REQUIRED = pa.schema({**IDS, "rank": pa.int32(), "score": pa.float64()})
# columns that later stages add, and their types
KNOWN = {
    "text": pa.large_string(),
    "keep": pa.bool_(),
    **dict.fromkeys(("reason", "tier", "verdict"), pa.string()),
    **dict.fromkeys(("cosine", "dot", "elo", "elo_se", "gap", "teacher", "weight", "relevance"), pa.float64()),
}


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
    table = table.set_column(table.column_names.index("score"), "score", pc.fill_null(table["score"], np.nan))
    names = {*table.column_names}
    floats = [name for name in ("score", *KNOWN) if name in names and table[name].type == pa.float64()]
    faults = {f"no {name}": table[name].is_null() for name in (*IDS, "rank", "keep") if name in names}
    faults |= {f"an infinite {name}": pc.is_inf(table[name]) for name in floats}
    faults |= {f"a negative {name}": pc.less(table[name], 0) for name in ("rank", "weight") if name in names}
    counts = {fault: pc.sum(rows).as_py() for fault, rows in faults.items()}
    wrong = [f"{count} rows have {fault}" for fault, count in counts.items() if count]
    if wrong:
        raise InputError(f"{', '.join(wrong)}; a score that is missing is NaN, and ranks and weights begin at 0")
    marked = {"keep", "reason"} & names
    if len(marked) == 1 or (marked and pc.any(pc.equal(table["keep"], table["reason"].is_valid())).as_py()):
        raise InputError("a row has a reason exactly where keep is false; keep and reason come together")
    return table


# source of rows that stand in a table for the sake of what is known of labelled positives
LABELS = "labels"
POSITIVE = "labelled positive"  # why they are rejected
# why a document is rejected that has the text of a positive of its query
EQUAL = "equal to a positive"
# why a labelled positive is rejected that mining kept on request; a rating compares it as it does negatives
TO_RATE = "labelled positive, to be rated"
# why the candidate is rejected that gaps of such a query are held against; training takes it for its positive
TOP = "rated best of a query without a labelled positive"


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
        return np.asarray(pc.fill_null(column_or_nulls(self.table, "keep", pa.bool_()), True).to_numpy(), bool)

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
        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that it was made from")
        return Exported(self.collection, self, form, self.split, scores).write(path)

    def to_pandas(self) -> Any:
        """Return the table as a DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        require("pandas", "hub")
        return self.table.to_pandas()

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and the settings that made the table."""
        settings = self.provenance.get("settings", {})
        counts = {"rows": len(self), "kept": int(self.keep.sum()), "rejected": self.rejected()}
        return {"settings": settings, **counts}

    def rejected(self) -> dict[str, int]:
        """Count the rejected rows by reason, most frequent first."""
        counted = pc.value_counts(column_or_nulls(self.table, "reason", pa.string()).drop_null()).to_pylist()
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
        same = pc.equal(column_or_nulls(self.table, "reason", pa.string()), reason)
        return np.flatnonzero(pc.fill_null(same, False).to_numpy())

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

    def with_rejected(self, query_ids: pa.Array, doc_ids: pa.Array) -> tuple[Self, Rows]:
        """Return the table with a row for each of these labelled positives, and (m,) the row of each.

        A pair that has a row keeps it as it is. One that has none gets a row after all others:
        rejected, of rank 0, without a score and whatever else the others have.

        Args:
            query_ids: (m,) of documents in the collection that belong in the table but are no negatives.
            doc_ids: (m,) their ids; no pair twice.
        """
        count = len(doc_ids)
        more = negatives_table(query_ids, doc_ids, LABELS, np.zeros(count), np.full(count, np.nan))
        more = more.append_column("keep", pa.array(np.zeros(count, bool)))
        more = more.append_column("reason", pa.repeat(pa.scalar(POSITIVE), count))
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

    def lists_in(self, collection: Collection, query_rows: Rows, most: int | None = None) -> Rows:
        """Return the kept rows of each query by rank, (n, k); −1 where a list is short.

        Args:
            collection: that the table belongs to.
            query_rows: (n,) rows of queries in the collection.
            most: rows of a query, at most, the first by rank; None: k is the length of the longest list.

        Raises:
            InputError: ids that the collection does not know.
        """
        kept = np.flatnonzero(self.keep)
        of_query, rank = self.rows_in(collection)[0][kept], self.table["rank"].to_numpy()[kept]
        order = np.lexsort((rank, of_query))
        begin, end = (np.searchsorted(of_query[order], query_rows, side) for side in ("left", "right"))
        longest = int((end - begin).max(initial=0))
        place = begin[:, None] + np.arange(min(longest, most or longest))
        return np.append(kept[order], -1)[np.where(place < end[:, None], place, -1)]

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
        table, recorded = read_table(path)
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
        squares = float(((r - share * k) ** 2).sum()) + float(k.mean() / 2) ** 2
        deviation = float(np.sqrt(squares)) / float(k.sum())
        return cls(labelled * share, labelled, kept, way, len(k), labelled * deviation)

    @classmethod
    def of(cls, negatives: Negatives) -> Recapture | None:
        """Read it from a table's provenance; None where the table does not say, or not in which way.

        None also where rows were rejected since: it is then that of other rows.

        Raises:
            InputError: what the table says are no counts.
        """
        recapture = negatives.provenance.get("recapture")
        if recapture is None:
            return None
        try:
            known = cls(**recapture)
            counts = known.returned, known.labelled, known.kept, known.standard_error or 0
            if min(counts) < 0 or not np.isfinite(counts).all():
                raise ValueError("a count is below 0, or infinite")
        except (TypeError, ValueError) as error:
            expected = "expected counts returned, labelled, kept"
            raise InputError(f"the recapture is {str(recapture)[:200]}; {expected}") from error
        return known if "way" in recapture and known.kept == negatives.keep.sum() else None
