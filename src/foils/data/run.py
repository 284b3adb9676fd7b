"""Runs: documents ranked per query, in TREC form, and one ranking made of several, as `foils tune` writes it down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, PairIndex, Rows
from foils.data.records import Complaints, numbered_lines, read_sealed, whole_number
from foils.data.tables import codes
from foils.data.tokens import bm25_tokenizer
from foils.runtime.errors import FormatError, InputError, check_names
from foils.runtime.files import TREC, check_output, write_sealed, write_whole
from foils.runtime.options import Option

Scores = npt.NDArray[np.float64]
RANKED = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float64())])
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


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
        query_ids: Sequence[str] | pa.ChunkedArray,
        doc_ids: Sequence[str] | pa.ChunkedArray,
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
            InputError: scores that are NaN or infinite, or a document twice for one query.
            ValueError: columns of several lengths (Arrow's own).
        """
        values = np.asarray(scores, np.float64)
        if not np.isfinite(values).all():
            raise InputError(f"{int((~np.isfinite(values)).sum())} scores of the run {name} are NaN or infinite")
        columns = {"query_id": query_ids, "doc_id": doc_ids, "score": values}
        table = pa.table(columns, RANKED).combine_chunks()
        query = codes(table["query_id"])
        order = np.lexsort((np.arange(len(values)), -values, query))
        table = table.take(pa.array(order))
        table = table.append_column("rank", pa.array(ranks_within(query[order])))
        pairs = table.group_by(["query_id", "doc_id"]).aggregate([([], "count_all")])
        if pairs.num_rows < table.num_rows:
            raise InputError(f"the run {name} names {table.num_rows - pairs.num_rows} documents twice for a query")
        return cls(table, name, facts or {})

    @classmethod
    def from_dict(cls, scores: Mapping[str, Mapping[str, float]], *, name: str = "run") -> Run:
        """Make a run from query id -> document id -> score."""
        rows = [(query, *pair) for query, scores_of_query in scores.items() for pair in scores_of_query.items()]
        queries, documents, values = zip(*rows, strict=True) if rows else ((), (), ())
        return cls.ranked(queries, documents, values, name=name)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a TREC run: `query Q0 document rank score tag`. The order of the lines makes no difference.

        The score decides the order of a query's documents, as in trec_eval, where the rank says
        otherwise, too; of equal scores the rank decides and, where that is equal or no whole
        number, the id, the last in the order of Unicode first (trec_eval's rule).

        Raises:
            FormatError: lines that are not of this form, with their numbers.
        """
        complaints, tags = Complaints(path), set[str]()
        rows: dict[str, dict[str, tuple[int, int, float]]] = {}  # query -> document -> line, rank, score
        for line, text in numbered_lines(path, complaints):
            fields = text.split()
            if len(fields) != 6:
                complaints.add(f"expected 6 fields (query Q0 document rank score tag), found {len(fields)}", line)
                continue
            query, _, document, rank, written, tag = fields
            score, ranked = float(written) if NUMBER.fullmatch(written) else np.nan, rows.setdefault(query, {})
            if not np.isfinite(score):
                complaints.add(f"the score {written!r} is not a finite number", line)
            elif document in ranked:
                complaints.add(f"{document!r} is ranked for {query!r} on line {ranked[document][0]} already", line)
            else:
                ranked[document] = line, whole_number(rank) or 0, score
                tags.add(tag)
        complaints.raise_if_any()
        scores = dict[str, dict[str, float]]()
        for query, ranked in rows.items():  # which are sorted once more, by scores, below
            by_id = sorted(ranked.items(), reverse=True)
            scores[query] = {document: row[2] for document, row in sorted(by_id, key=lambda item: item[1][1])}
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
        check_ids(self.table["query_id"], self.table["doc_id"])
        with write_whole(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as out:
            for query, document, rank, score in zip(*columns, scores, strict=True):
                out.write(f"{query} Q0 {document} {rank + 1} {score!r} {tag}\n")


def falling(scores: Scores, ranks: npt.NDArray[np.integer]) -> list[float]:
    """Return scores that fall from rank to rank of each query, as float32, too.

    Those that do stay as they are.

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


def check_ids(*columns: pa.ChunkedArray) -> None:
    """Refuse ids that a file in TREC form cannot hold; a stage that is to write one calls it before it works.

    Raises:
        InputError: an id is empty, or has white space in it.
    """
    for chunk in chain.from_iterable(column.chunks for column in columns):
        for identifier in chunk.to_pylist():
            if identifier.split() != [identifier]:
                raise InputError(f"the id {identifier!r} is empty or has white space in it; a TREC run cannot hold it")


def without_identical(run: Run, collection: Collection) -> Run:
    """Return a run without the document that has a query's own id (`Collection.identical`), ranked anew."""
    table = run.table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    identical = (documents >= 0) & (queries >= 0) & (collection.identical[queries] == documents)
    if not identical.any():
        return run
    table = table.filter(pa.array(~identical))
    return Run.ranked(table["query_id"], table["doc_id"], table["score"], name=run.name, facts=run.facts)


def ranks_within(groups: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return 0, 1, 2, … within each stretch of equal neighbouring values, (n,)."""
    starts, count = starts_of(np.asarray(groups)), len(np.asarray(groups))
    return np.asarray(np.arange(count) - np.repeat(starts, np.diff(np.r_[starts, count])), np.int32)


def starts_of(queries: Rows) -> Rows:
    """Return where each stretch of equal neighbouring numbers begins."""
    return np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]][: len(queries)])


def grouped(values: Rows) -> list[Rows]:
    """Return the places of each value together, ascending, of (n,) values, the smallest value's first."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


FUSED_DEPTH = 1_000  # documents of each ranking that are put together, and more where more are asked for
METHODS = ("union", "rrf")  # of several sources
TUNED_FILE = "retriever.json"  # of a folder that `foils tune` wrote: its model lies in the folder model
D = TypeVar("D")


def reciprocal_ranks(ranks: npt.NDArray[np.integer], *, k: float = 60.0) -> Scores:
    """Return RRF(d) = Σ_r 1/(k + rank_r(d)), (n,), ranks counted from 1, over the rankings r that have the pair.

    Args:
        ranks: (n, m), counted from 0; below 0 where a ranking does not have the pair.
        k: at least 0; more makes the tops of the lists count less.

    Raises:
        InputError: a negative k.

    Source: ANMI 2.0 eq. 33; Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    Option(least=0).check("k", k)
    known = ranks >= 0
    return np.asarray(np.where(known, 1.0 / (k + 1.0 + np.where(known, ranks, 0)), 0.0).sum(axis=1))


def weighted_sum(queries: Rows, scores: Scores, weights: Sequence[float]) -> Scores:
    """Return Σ_r w_r z(s_r), (n,), z(s) = (s − mean)/(standard deviation) within the query's list in the ranking r.

    Where all scores of a list are equal, z is 0. A pair that a ranking does not have counts as the
    lowest of the query's list there, and as 0 where there is no list.

    Args:
        queries: (n,) number of each pair's query, equal numbers side by side.
        scores: (n, m), NaN where a ranking does not have the pair.
        weights: (m,) each at least 0.

    Source: Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval" (TOIS 2023).
    """
    total = np.zeros(len(queries))
    for values, weight in zip(scores.T, weights, strict=True):
        listed = np.flatnonzero(~np.isnan(values))
        if not len(listed):
            continue
        starts = starts_of(queries[listed])
        counts = np.diff(np.r_[starts, len(listed)])
        above = values[listed] - np.repeat(np.add.reduceat(values[listed], starts) / counts, counts)
        spread = np.repeat(np.sqrt(np.add.reduceat(above**2, starts) / counts), counts)
        normal = np.divide(above, spread, out=np.zeros(len(listed)), where=spread > 0)
        lowest = np.zeros(int(queries.max()) + 1)
        lowest[queries[listed][starts]] = np.minimum.reduceat(normal, starts)
        of_ranking = lowest[queries]
        of_ranking[listed] = normal
        total += weight * of_ranking
    return total


class FusedLists(NamedTuple):
    """m rankings as one: a row for each of p distinct (query, document) pairs, query after query, best first.

    Attributes:
        rows: (p,) the first of the rows that hold the pair.
        scores: (p,) the fused score, NaN with `union`.
        places: (n,) the place among the p of each row's pair.
        own_ranks: (p, m) the rank in each ranking, −1 where it does not have the pair.
        own_scores: (p, m) the score there, NaN where it does not have the pair.
    """

    rows: Rows
    scores: Scores
    places: Rows
    own_ranks: Rows
    own_scores: Scores


def fuse_lists(
    queries: Rows,
    documents: Rows,
    origins: Rows,
    ranks: Rows,
    scores: Scores,
    *,
    count: int = 2,
    method: str = "rrf",
    k: float = 60.0,
    weights: Sequence[float] | None = None,
) -> FusedLists:
    """Fuse the n rows of m ≥ 2 rankings, given one ranking after the other.

    Pairs of a query are ordered by the fused score, ties by the best rank in any ranking, then by
    the order of the rankings.

    Args:
        queries: (n,) number of each row's query.
        documents: (n,) number of its document.
        origins: (n,) which ranking it is of, from 0.
        ranks: (n,) its rank, from 0.
        scores: (n,) its score.
        count: m.
        method: `union`: by best rank, without a score; `rrf`: `reciprocal_ranks`.
        k: of rrf.
        weights: (m,) in the place of the method: by `weighted_sum`. None: by the method.

    Raises:
        UnknownNameError: no such method.
        InputError: settings out of range.
    """
    check_names("way of fusing", [method], METHODS)
    index = PairIndex(queries, documents)
    first = index.distinct[np.argsort(queries[index.distinct], kind="stable")]
    pair = np.empty(len(queries), np.int64)
    pair[first] = np.arange(len(first))
    pair = pair[index.first]
    own_ranks, own_scores = np.full((len(first), count), -1), np.full((len(first), count), np.nan)
    own_ranks[pair, origins], own_scores[pair, origins] = ranks, scores
    # scores of several rankings do not compare: best ranks order the union
    fused = np.full(len(first), np.nan)
    if weights is not None:
        fused = weighted_sum(queries[first], own_scores, weights)
    elif method == "rrf":
        fused = reciprocal_ranks(own_ranks, k=k)
    known = np.where(own_ranks < 0, np.iinfo(np.int64).max, own_ranks)
    order = np.lexsort((known.argmin(axis=1), known.min(axis=1), -np.nan_to_num(fused), queries[first]))
    return FusedLists(first[order], fused[order], np.argsort(order)[pair], own_ranks[order], own_scores[order])


def fuse_runs(runs: Sequence[Run], *, name: str = "", **settings: Any) -> Run:
    """Return the run that several runs make together.

    Args:
        runs: two or more.
        name: of the new run; empty: the names of the runs, joined.
        settings: settings of `fuse_lists`.

    Raises:
        UnknownNameError: no such method.
    """
    stacked = pa.concat_tables([run.table for run in runs])
    queries, documents = codes(stacked["query_id"]), codes(stacked["doc_id"])
    origins = np.repeat(np.arange(len(runs)), [len(run.table) for run in runs])
    ranks, scores = stacked["rank"].to_numpy(), stacked["score"].to_numpy()
    lists = fuse_lists(queries, documents, origins, ranks, scores, count=len(runs), **settings)
    chosen = stacked.take(pa.array(lists.rows))
    name = name or "+".join(run.name for run in runs)
    facts = {key: value for run in runs for key, value in run.facts.items()}
    return Run.ranked(chosen["query_id"], chosen["doc_id"], lists.scores, name=name, facts=facts)


@dataclass(frozen=True)
class Fusion:
    """How BM25's scores and a model's are put together: what `foils tune` found, in a small file beside the model.

    Attributes:
        normalisation: of the scores: z, as `weighted_sum` does it.
        weight: of the model's, in [0, 1]; BM25's is 1 less it.
        deploys: what was best: both, the model alone, or bm25 alone.
        base: the model, where no tuned one was better: a name, or a folder; empty: it lies in the
            folder `model`.
        bm25: how BM25 reads texts: analyser, language, k1, b (`foils.data.tokens.BM25Settings.facts`).
        collection: whose documents it was tuned on: source, columns, corpus, and the digest of the
            documents; empty: they came from memory.
    """

    normalisation: str
    weight: float
    deploys: str = "both"
    base: str = ""
    bm25: Mapping[str, Any] = field(default_factory=dict)
    collection: Mapping[str, Any] = field(default_factory=dict)

    @property
    def how(self) -> dict[str, Any]:
        """Settings of `fuse_lists` for BM25's ranking and the model's, in this order."""
        return {"weights": (1 - self.weight, self.weight)}

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the terms of each text as BM25 read them when this was measured, for a BM25 elsewhere.

        Args:
            texts: (n,) of documents, or of queries.

        Raises:
            InputError: it does not say how BM25 reads texts, as where a plain model was loaded.
        """
        if "language" not in self.bm25:
            raise InputError("how BM25 reads texts is not known here; load a folder that foils tune wrote")
        tokenizer = bm25_tokenizer(self.bm25["language"])
        return list(tokenizer.tokenize(list(texts), update_vocab=True, return_as="string", show_progress=False))

    def fuse(self, bm25: Mapping[D, float], model: Mapping[D, float]) -> list[tuple[D, float]]:
        """Put two lists of one query together, as a search engine returned them.

        Args:
            bm25: BM25's score of each of its best documents, 1,000 at most where the weight is to
                be worth what it was.
            model: the similarity of each of the model's best documents.

        Returns:
            Documents, best first, with the fused score; of one list alone where that is what is
            deployed. A document that one list lacks has the lowest score there.
        """
        lists = [sorted(each.items(), key=lambda item: -item[1]) for each in (bm25, model)]
        if self.deploys != "both":
            return lists[self.deploys == "model"]
        documents = [document for ranked in lists for document, _ in ranked]
        numbers = {document: number for number, document in enumerate(dict.fromkeys(documents))}
        fused = fuse_lists(
            np.zeros(len(documents), np.int64),
            np.array([numbers[document] for document in documents], np.int64),
            np.repeat([0, 1], [len(bm25), len(model)]),
            np.concatenate([np.arange(len(ranked)) for ranked in lists]),
            np.array([score for ranked in lists for _, score in ranked]),
            **self.how,
        )
        return [(documents[row], float(score)) for row, score in zip(fused.rows, fused.scores, strict=True)]

    def write(self, path: str | Path) -> None:
        """Write the file."""
        write_sealed(path, vars(self))

    @classmethod
    def of(cls, folder: Any) -> Fusion | None:
        """Read the fusion of a folder that `foils tune` wrote; None: it is something else.

        Raises:
            FormatError: the file is damaged.
        """
        path = Path(folder) / TUNED_FILE if isinstance(folder, (str, Path)) else Path()
        if not path.is_file():
            return None
        try:
            return cls(**read_sealed(path))
        except (TypeError, FormatError) as error:
            raise FormatError("no retriever as foils tune writes it; tune again", path) from error


def deployed(model: Any) -> str:
    """Return what ranks where a model is named: bm25, model, or both, as the folder of `foils tune` says.

    The name bm25 is BM25 (a folder of this name is `./bm25`); whatever is no such folder is a model.
    """
    if isinstance(model, str) and model == "bm25":
        return model
    fusion = Fusion.of(model)
    return "model" if fusion is None else fusion.deploys
