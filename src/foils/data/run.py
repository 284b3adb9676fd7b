"""Runs: documents ranked per query, read and written in TREC form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.records import Complaints, numbered_lines, whole_number
from foils.runtime.errors import InputError
from foils.runtime.files import TREC, check_output, write_whole

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """Rankings per query.

    Attributes:
        table: `query_id, doc_id, score, rank`, sorted by query (in the order of first appearance),
            then by score from high to low, ties in the order given; `rank` is 0-based.
        name: of the system.
        facts: what ranked, for the JSON of what measures it: under `bm25` how BM25 read the texts.

    Made by `Run.ranked`, `Run.from_dict` or `Run.read`, which sort.
    """

    table: pa.Table
    name: str = "run"
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def ranked(
        cls,
        query_ids: Iterable[str],
        doc_ids: Iterable[str],
        scores: npt.ArrayLike,
        *,
        name: str = "run",
        facts: Mapping[str, Any] | None = None,
    ) -> Run:
        """Sort rows (any order) into a run.

        Args:
            query_ids: (n,) query of each row.
            doc_ids: (n,) document of each row.
            scores: (n,) finite, higher is better; ties keep the order in which the rows come.
            name: of the system.
            facts: what ranked; None: not known.

        Raises:
            InputError: scores that are NaN or infinite, a document twice for one query, or columns
                of several lengths.
        """
        queries, documents = _strings(query_ids), _strings(doc_ids)
        values = np.asarray(scores, np.float64)
        if not len(queries) == len(documents) == values.size or values.ndim != 1:
            raise InputError(f"{len(queries)} queries, {len(documents)} documents, scores {values.shape}; all are (n,)")
        if not np.isfinite(values).all():
            raise InputError(f"{int((~np.isfinite(values)).sum())} scores of the run {name} are NaN or infinite")
        codes = np.asarray(queries.dictionary_encode().indices.to_numpy(), np.int64)
        order = np.lexsort((np.arange(len(values)), -values, codes))
        table = pa.table({"query_id": queries, "doc_id": documents, "score": values}).take(pa.array(order))
        table = table.append_column("rank", pa.array(ranks_within(codes[order])))
        pairs = table.group_by(["query_id", "doc_id"]).aggregate([([], "count_all")])
        if pairs.num_rows < table.num_rows:
            raise InputError(f"the run {name} names {table.num_rows - pairs.num_rows} documents twice for a query")
        return cls(table, name, facts or {})

    @classmethod
    def from_dict(cls, scores: Mapping[str, Mapping[str, float]], *, name: str = "run") -> Run:
        """Make a run from query id -> document id -> score."""
        rows = [
            (query, document, score)
            for query, scores_of_query in scores.items()
            for document, score in scores_of_query.items()
        ]
        return cls.ranked([q for q, _, _ in rows], [d for _, d, _ in rows], [s for _, _, s in rows], name=name)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a TREC run: `query Q0 document rank score tag`. The order of the lines makes no difference.

        The score decides the order of a query's documents, as in trec_eval, where the rank says
        otherwise, too; of equal scores the rank decides and, where that is equal or no whole
        number, the id, the last in the order of Unicode first (trec_eval's rule).

        Raises:
            FormatError: lines that are not of this form, with their numbers.
        """
        complaints, tags, seen = Complaints(path), set[str](), dict[tuple[str, str], int]()
        rows: dict[str, list[tuple[str, int, float]]] = {}  # of each query
        for line, text in numbered_lines(path, complaints):
            fields = text.split()
            if len(fields) != 6:
                complaints.add(f"expected 6 fields (query Q0 document rank score tag), found {len(fields)}", line)
                continue
            query, _, document, rank, written, tag = fields
            try:
                score = float(written if written.isascii() and "_" not in written else "nan")
            except ValueError:
                score = float("nan")
            if not np.isfinite(score):
                complaints.add(f"the score {written!r} is not a finite number", line)
                continue
            before = seen.setdefault((query, document), line)
            if before != line:
                complaints.add(f"{document!r} is ranked for {query!r} on line {before} already", line)
            else:
                whole = whole_number(rank)
                rows.setdefault(query, []).append((document, 0 if whole is None else whole, score))
                tags.add(tag)
        complaints.raise_if_any()
        for ranked in rows.values():  # sorted once more, by scores, below
            ranked.sort(key=itemgetter(0), reverse=True)
            ranked.sort(key=itemgetter(1))
        scores = {query: {document: score for document, _, score in ranked} for query, ranked in rows.items()}
        return cls.from_dict(scores, name=tags.pop() if len(tags) == 1 else Path(path).name.partition(".")[0])

    def first(self, depth: int) -> Run:
        """Return the first `depth` documents of each query."""
        return replace(self, table=self.table.filter(pc.less(self.table["rank"], depth)))

    def write(self, path: str | Path) -> None:
        """Write the run in TREC form, ranks from 1; whoever sorts it by score has the same order.

        Other tools order equal scores by id, and trec_eval compares in float32. So of documents
        that are equal there, each gets the next smaller float32 below the one before it; all other
        scores read back exactly.

        Raises:
            InputError: an id that is empty or has white space in it, which TREC form cannot hold.
        """
        check_output(path, TREC)
        columns = [self.table[name].to_pylist() for name in ("query_id", "doc_id", "rank")]
        scores = falling(self.table["score"].to_numpy(), self.table["rank"].to_numpy())
        tag = "_".join(self.name.split()) or "run"
        check_ids([*columns[0], *columns[1]])
        with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
            for query, document, rank, score in zip(*columns, scores, strict=True):
                out.write(f"{query} Q0 {document} {rank + 1} {score!r} {tag}\n")


def falling(scores: Scores, ranks: npt.NDArray[np.integer]) -> list[float]:
    """Return scores that fall from rank to rank of each query, as float32, too; those that do stay as they are.

    Args:
        scores: (n,) each query's from high to low.
        ranks: (n,) counted from 0 in each query.
    """
    limits, last = np.finfo(np.float32), np.inf
    held = np.clip(scores, limits.min / 2, limits.max)  # room below the last one
    strict: list[float] = held.tolist()
    single = held.astype(np.float32).tolist()
    for at, (rank, value) in enumerate(zip(ranks.tolist(), single, strict=True)):
        if rank and value >= last:
            strict[at] = value = float(np.nextafter(np.float32(last), np.float32(-np.inf)))
        last = value
    return strict


def check_ids(ids: Iterable[str]) -> None:
    """Refuse ids that a file in TREC form cannot hold; a stage that is to write one calls it before it works.

    Raises:
        InputError: an id is empty, or has white space in it.
    """
    for identifier in ids:
        if identifier.split() != [identifier]:
            problem = f"the id {identifier!r} is empty or has white space in it; a TREC run cannot hold it"
            raise InputError(f"{problem}; give it another id, or write no run")


def without_identical(run: Run, collection: Collection) -> Run:
    """Return a run without the document that has a query's own id (`Collection.identical`), ranked anew."""
    table = run.table
    alike = np.flatnonzero(pc.equal(table["query_id"], table["doc_id"]).to_numpy())
    queries = collection.query_rows(table["query_id"].take(pa.array(alike)))
    identical = alike[(queries >= 0) & (collection.identical[queries] >= 0)] if len(alike) else alike
    if not len(identical):
        return run
    table = table.take(pa.array(np.delete(np.arange(len(table)), identical)))
    scores = table["score"].to_numpy()
    return Run.ranked(table["query_id"], table["doc_id"], scores, name=run.name, facts=run.facts)


def ranks_within(groups: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return 0, 1, 2, … within each stretch of equal neighbouring values, (n,)."""
    starts, count = starts_of(np.asarray(groups)), len(np.asarray(groups))
    return np.asarray(np.arange(count) - np.repeat(starts, np.diff(np.r_[starts, count])), np.int32)


def _strings(values: Iterable[str]) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks().cast(pa.string())
    return values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(list(values), pa.string())


def starts_of(queries: Rows) -> Rows:
    """Return where each stretch of equal neighbouring numbers begins."""
    return np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]][: len(queries)])
