"""A run: documents ranked per query, as a system returns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection
from foils.data.records import Complaints, numbered_lines
from foils.runtime.errors import InputError
from foils.runtime.files import write_whole


@dataclass(frozen=True)
class Run:
    """Rankings per query.

    Attributes:
        table: `query_id, doc_id, score, rank`, sorted by query (in the order of first appearance), then by score
            from high to low, ties in the order given; `rank` is 0-based.
        name: of the system.

    Made by `Run.ranked`, `Run.from_dict` or `Run.read`, which sort.
    """

    table: pa.Table
    name: str = "run"

    @classmethod
    def ranked(
        cls, query_ids: Iterable[str], doc_ids: Iterable[str], scores: npt.ArrayLike, *, name: str = "run"
    ) -> Run:
        """Sort rows (any order) into a run.

        Args:
            query_ids: (n,) query of each row.
            doc_ids: (n,) document of each row.
            scores: (n,) finite, higher is better; ties keep the order in which the rows come.
            name: of the system.

        Raises:
            InputError: scores that are NaN or infinite, a document twice for one query, or columns of several lengths.
        """
        queries, documents = _strings(query_ids), _strings(doc_ids)
        values = np.asarray(scores, np.float64)
        if not len(queries) == len(documents) == values.size or values.ndim != 1:
            raise InputError(f"{len(queries)} queries, {len(documents)} documents, scores {values.shape}; all are (n,)")
        if not np.isfinite(values).all():
            raise InputError(f"{int((~np.isfinite(values)).sum())} scores of the run {name} are NaN or infinite")
        codes = np.asarray(queries.dictionary_encode().indices.to_numpy(), np.int64)
        order = np.lexsort((np.arange(len(values)), -values, codes))
        columns = {
            "query_id": queries.take(pa.array(order)),
            "doc_id": documents.take(pa.array(order)),
            "score": pa.array(values[order]),
            "rank": pa.array(ranks_within(codes[order])),
        }
        table = pa.table(columns)
        pairs = table.group_by(["query_id", "doc_id"]).aggregate([([], "count_all")])
        if pairs.num_rows < table.num_rows:
            raise InputError(f"the run {name} names {table.num_rows - pairs.num_rows} documents twice for a query")
        return cls(table, name)

    @classmethod
    def from_dict(cls, scores: Mapping[str, Mapping[str, float]], *, name: str = "run") -> Run:
        """Make a run from query id -> document id -> score."""
        rows = [(query, document, score) for query, of in scores.items() for document, score in of.items()]
        return cls.ranked([q for q, _, _ in rows], [d for _, d, _ in rows], [s for _, _, s in rows], name=name)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a TREC run: `query Q0 document rank score tag`; the score decides the order, not the rank.

        Raises:
            FormatError: lines that are not of this form, with their numbers.
        """
        complaints = Complaints(path)
        rows = list(_trec_rows(path, complaints))
        complaints.settle()
        tags = {tag for *_, tag in rows}
        name = tags.pop() if len(tags) == 1 else Path(path).name.partition(".")[0]
        return cls.ranked([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], name=name)

    def first(self, depth: int) -> Run:
        """Return the first `depth` documents of each query."""
        return Run(self.table.filter(pc.less(self.table["rank"], depth)), self.name)

    def write(self, path: str | Path) -> None:
        """Write the run in TREC form, ranks from 1, scores so that they read back exactly.

        Raises:
            InputError: an id that is empty or has white space in it, which TREC form cannot hold.
        """
        columns = [self.table[name].to_pylist() for name in ("query_id", "doc_id", "score", "rank")]
        tag = "_".join(self.name.split()) or "run"
        for identifier in dict.fromkeys([*columns[0], *columns[1]]):
            if identifier.split() != [identifier]:
                raise InputError(f"the id {identifier!r} is empty or has white space in it; a TREC run cannot hold it")
        with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
            for query, document, score, rank in zip(*columns, strict=True):
                out.write(f"{query} Q0 {document} {rank + 1} {score!r} {tag}\n")


def without_identical(run: Run, collection: Collection) -> Run:
    """Return a run without the document that has a query's own id (`Collection.identical`), ranked anew."""
    table = run.table
    alike = np.flatnonzero(pc.equal(table["query_id"], table["doc_id"]).to_numpy())
    queries = collection.query_rows(table["query_id"].take(pa.array(alike)))
    own = alike[(queries >= 0) & (collection.identical[queries] >= 0)] if len(alike) else alike
    if not len(own):
        return run
    table = table.take(pa.array(np.delete(np.arange(len(table)), own)))
    return Run.ranked(table["query_id"], table["doc_id"], table["score"].to_numpy(), name=run.name)


def ranks_within(groups: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return 0, 1, 2, … within each stretch of equal neighbouring values, (n,)."""
    codes = np.asarray(groups)
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]][: len(codes)])
    return (np.arange(len(codes)) - np.repeat(starts, np.diff(np.r_[starts, len(codes)]))).astype(np.int32)


def _strings(values: Iterable[str]) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks().cast(pa.string())
    return values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(list(values), pa.string())


def _trec_rows(path: str | Path, complaints: Complaints) -> Iterator[tuple[str, str, float, str]]:
    seen: dict[tuple[str, str], int] = {}
    for line, text in numbered_lines(path, complaints):
        fields = text.split()
        if len(fields) != 6:
            complaints.add(f"expected 6 fields (query Q0 document rank score tag), found {len(fields)}", line)
            continue
        query, _, document, _, written, tag = fields
        try:
            score = float(written if written.isascii() and "_" not in written else "nan")
        except ValueError:
            score = float("nan")
        if not np.isfinite(score):
            complaints.add(f"the score {written!r} is not a finite number", line)
        elif (before := seen.setdefault((query, document), line)) != line:
            complaints.add(f"{document!r} is ranked for {query!r} on line {before} already", line)
        else:
            yield query, document, score, tag
