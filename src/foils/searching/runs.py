"""Search over a collection in two passes over an index: texts and ids in, a run out.

1. The first pass retrieves with all dimensions; its list is the feedback.
2. Sun and moon come from the feedback (or the sun from an answer's vector); they give each query its mask.
3. The second pass searches the whole index again, with the masked query.

Two depths are independent: of the feedback (whose end is the moon), and of the result. A query
whose mask keeps everything is not searched for again: its first result stands, bit for bit. Where
no feedback is needed there is no first pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data import Collection, Run
from foils.data.collection import DocumentTexts, Rows
from foils.data.read import identical_ids_caption
from foils.data.tokens import BM25Settings
from foils.encode import Encoder, Kind, Vectors, VectorStore
from foils.encode.nearest import ExactIndex, Products, search_lists
from foils.encode.tokens import Texts
from foils.mining.retrievers import BM25Retriever
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.files import TREC
from foils.runtime.results import Result, Table
from foils.searching.dimensions import (
    FEEDBACK_DEPTH,
    DimensionSettings,
    Sharpened,
    check_search_depths,
    feedback_needed,
    sharpened_queries,
)

SLICE = 4_096  # texts encoded at once where no store keeps them


@dataclass(frozen=True)
class Ranked:
    """What a search returns.

    Attributes:
        positions: n arrays of document positions, best first.
        scores: n arrays of float32 inner products with the sharpened queries.
        sharpened: the queries of the second pass, and what became of them.
    """

    positions: list[Rows]
    scores: list[Products]
    sharpened: Sharpened


def search_vectors(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    index: ExactIndex,
    settings: DimensionSettings,
    *,
    k: int = 1000,
    feedback_depth: int = FEEDBACK_DEPTH,
    answers: npt.NDArray[np.floating] | None = None,
    without: Rows | None = None,
) -> Ranked:
    """Search with each query's useful dimensions.

    Args:
        queries: (n, d) unit vectors.
        documents: vectors of the documents.
        index: over them; every pass goes through it.
        settings: how dimensions are chosen.
        k: how many documents to return.
        feedback_depth: length of the feedback list, whose end is the moon, however many documents
            are returned.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.
        without: (n,) position of a document that neither pass returns for the query; −1: there is none.

    Returns:
        Lists of at most k documents. Ties go to the lower position.

    Raises:
        InputError: a depth out of range, or what `sharpened_queries` refuses.

    Source: Eclipse, section 3.
    """
    check_search_depths(k, feedback_depth)
    first = feedback_needed(settings, feedback_depth, answered=answers is not None)
    positions, scores = [np.empty(0, np.int64)] * len(queries), [np.empty(0, np.float32)] * len(queries)
    if first:
        positions, scores = search_lists(index, queries, max(k, first), without=without)
    lists = [rows[:feedback_depth] for rows in positions]
    sharpened = sharpened_queries(queries, documents, lists, settings, answers=answers)
    again = np.flatnonzero(sharpened.changed | (not first))
    if len(again):
        others = None if without is None else without[again]
        ranked = search_lists(index, sharpened.queries[again], k, without=others)
        for row, rows, products in zip(again, *ranked, strict=True):
            positions[row], scores[row] = rows, products
    return Ranked([rows[:k] for rows in positions], [score[:k] for score in scores], sharpened)


@dataclass(frozen=True)
class Embedded:
    """The vectors that search over a split needs.

    Attributes:
        collection: what was embedded.
        split: whose queries.
        query_rows: (n,) the queries that the split judges, in the order of its judgements.
        queries: (n, d) float32.
        documents: vectors of all documents, by position.
        answers: (n, d) vectors of an answer text per query, where there are some; NaN for a query without.
        device: torch device of the encoder, which searches exactly where it is a GPU.
    """

    collection: Collection
    split: str
    query_rows: Rows
    queries: npt.NDArray[np.float32]
    documents: Vectors
    answers: npt.NDArray[np.float32] | None = None
    device: str | None = None

    @property
    def exact_index(self) -> ExactIndex:
        """Exact search of the documents."""
        return ExactIndex(self.documents, device=self.device)

    @property
    def identical(self) -> Rows:
        """(n,) position of the document with each query's own id, which is no answer to it; −1: none."""
        return np.asarray(self.collection.identical[self.query_rows])

    @property
    def query_ids(self) -> list[str]:
        """Ids of the queries, in the order of `query_rows`."""
        return _ids(self.collection, self.query_rows)


@dataclass(frozen=True)
class Searched(Result):
    """A run, and what became of the queries' dimensions.

    Attributes:
        run: the rankings.
        collection: that was searched.
        split: whose queries.
        ranked_by: what ranked, in words, as `dense`, `rocchio`, `BM25` or `BM25 + dense`.
        settings: how dimensions were chosen; None where BM25 alone ranks.
        ranked: positions, scores and masks; None likewise.
        facts: what else JSON says of the search.
    """

    endings = TREC

    run: Run
    collection: Collection = field(repr=False)
    split: str
    ranked_by: str
    settings: DimensionSettings | None = None
    ranked: Ranked | None = field(default=None, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        """How many queries were searched for."""
        return len(self.collection.asked(self.split))

    @property
    def kept(self) -> float:
        """Mean share of dimensions kept, in (0, 1]."""
        return 1.0 if self.ranked is None else float(self.ranked.sharpened.masks.mean())

    @property
    def counts(self) -> dict[str, int]:
        """How many queries lost dimensions, were moved, and stayed for want of feedback or of an answer."""
        if self.ranked is None:
            return {}
        sharpened = self.ranked.sharpened
        each = {"masked": ~sharpened.masks.all(axis=1), "moved": sharpened.moved, "no_feedback": sharpened.no_feedback}
        return {name: int(which.sum()) for name, which in each.items()}

    def write(self, path: str | Path) -> None:
        """Write the run in TREC form."""
        self.run.write(path)

    def tables(self) -> list[Table]:
        """Return the counts of queries, documents and dimensions."""
        rows = [("queries", f"{self.queries:,}"), ("documents ranked", f"{self.run.table.num_rows:,}")]
        if self.ranked is not None and self.settings is not None and self.settings.method != "none":
            changed = int(self.ranked.sharpened.changed.sum())
            rows += [
                ("dimensions kept", f"{100 * self.kept:.1f} %"),
                ("queries moved towards their feedback", f"{self.counts['moved']:,}"),
                ("queries that stayed as they were", f"{self.queries - changed:,}"),
                ("of these, for want of feedback or answer", f"{self.counts['no_feedback']:,}"),
            ]
        written = f" → {self.facts['run']}" if self.facts.get("run") else ""
        title = f"{self.ranked_by} search of {self.collection.name} ({self.split}){written}"
        return [Table(title, ["", ""], rows, identical_ids_caption(self.collection.identical_ids(self.split)))]

    def to_json(self) -> dict[str, Any]:
        """Return how the search was made, what was kept, and how many queries were masked or moved."""
        facts: dict[str, Any] = {"queries": self.queries}
        if self.settings is not None:
            facts = {"settings": self.settings.to_json(), "kept": self.kept, **self.counts}
        return {**self.facts, **facts, "identical_ids": self.collection.identical_ids(self.split)}


def embed_collection(
    collection: Collection,
    encoder: Encoder,
    store: VectorStore | None,
    *,
    split: str,
    answers: Mapping[str, str | None] | None = None,
    device: str | None = None,
) -> Embedded:
    """Embed the documents of a collection, the queries of a split, and an answer text per query where given.

    Answers are embedded as documents.

    Args:
        collection: what to embed.
        encoder: makes the vectors that the store does not hold.
        store: keeps them; None: encode now, keep nothing.
        split: whose judged queries.
        answers: query id → answer text, for each query of the split; others are ignored. None:
            there is no answer, and the query keeps every dimension.
        device: torch device that searches exactly where it is a GPU; None: the encoder's.

    Raises:
        UnknownNameError: an unknown split.
        InputError: queries without an answer, where answers are given.
    """
    rows = collection.asked(split)
    ids = _ids(collection, rows)
    answered = None
    if answers is not None:
        if missing := [query for query in ids if query not in answers]:
            listed = f"{len(missing)} queries of the split {split!r} have no answer"
            raise InputError(f"{listed}: {', '.join(missing[:5])}…; give a text, or null, for every query")
        written = {at: text for at, query in enumerate(ids) if (text := answers[query]) is not None}
        answered = np.full((len(ids), encoder.dimension), np.nan, np.float32)
        answered[list(written)] = embed_texts([*written.values()], "document", encoder, store).take(slice(None))
    queries = embed_texts(collection.query_texts(rows), "query", encoder, store).take(slice(None))
    documents = embed_texts(DocumentTexts(collection), "document", encoder, store)
    return Embedded(
        collection=collection,
        split=split,
        query_rows=rows,
        queries=np.ascontiguousarray(queries, np.float32),
        documents=documents,
        answers=answered,
        device=device or getattr(encoder, "device", None),
    )


def embed_texts(texts: Texts, kind: Kind, encoder: Encoder, store: VectorStore | None) -> Vectors:
    """Return the vectors of texts, from the store or, without one, encoded now and not kept."""
    if store is not None:
        return store.embed(encoder, texts, kind)
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    with progress.task(f"embedding {kind} texts", total=len(texts), unit="texts") as advance:
        for start in range(0, len(texts), SLICE):
            part = texts[start : start + SLICE]
            vectors[start : start + SLICE] = encoder.encode(part, kind)
            advance(len(part))
    return Vectors.of(vectors)


def search_collection(embedded: Embedded, settings: DimensionSettings, *, name: str = "run", **how: Any) -> Searched:
    """Search for every query of a split, with the dimensions that `settings` choose.

    A document that has the query's own id is in no list, nor in the feedback (`Collection.identical`).

    Args:
        embedded: vectors of queries, documents and, where the sun is to come from a text, answers.
        settings: how dimensions are chosen.
        name: of the run.
        how: `k` and `feedback_depth` of `search_vectors`.

    Raises:
        InputError: what `search_vectors` refuses.
    """
    vectors = embedded.queries, embedded.documents, embedded.exact_index
    ranked = search_vectors(*vectors, settings, answers=embedded.answers, without=embedded.identical, **how)
    run = _run_of(embedded.collection, embedded.query_ids, ranked.positions, ranked.scores, name)
    ranked_by = "dense" if settings.method == "none" else settings.method
    return Searched(run, embedded.collection, embedded.split, ranked_by, settings, ranked)


def _ids(collection: Collection, rows: Rows) -> list[str]:
    ids: list[str] = collection.queries["query_id"].take(pa.array(rows)).to_pylist()
    return ids


def _run_of(
    collection: Collection, query_ids: Sequence[str], lists: Sequence[Rows], scores: Sequence[Products], name: str
) -> Run:
    queries = np.repeat(np.array(query_ids, object), [len(listed) for listed in lists]).tolist()
    documents = collection.documents["doc_id"].take(pa.array(np.concatenate(lists)))
    return Run.ranked(queries, documents, np.concatenate(scores), name=name)


def bm25_run(
    collection: Collection, split: str, *, depth: int = 100, name: str = "bm25", lexical: BM25Settings | None = None
) -> Run:
    """Search with BM25 for every query of a split (`Collection.asked`).

    Lucene's variant (`BM25Retriever`). A document that shares no term with the query is not ranked;
    one that has the query's own id is left out (`Collection.identical`). Ties are broken by
    document position.

    Args:
        collection: what is searched.
        split: whose queries.
        depth: documents of each ranking, at most.
        name: of the run.
        lexical: language, k1 and b; None: the language that the documents' script suggests, 1.2 and 0.75.

    Raises:
        UnknownNameError: no such split.
    """
    rows: Any = collection.asked(split)
    retriever: Any = BM25Retriever(collection, **vars(lexical or BM25Settings()))
    lists, scores = search_lists(retriever, rows, depth, without=collection.identical[rows])
    run = _run_of(collection, _ids(collection, rows), lists, scores, name)
    return replace(run, facts={"bm25": retriever.settings.facts})
