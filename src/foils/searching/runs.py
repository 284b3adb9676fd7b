"""Search over a collection: texts and ids in, a run out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data import Collection, Run
from foils.data.collection import Rows
from foils.data.read import identical_ids_caption
from foils.data.run import without_identical
from foils.data.texts import DocumentTexts
from foils.encode import Encoder, Kind, Vectors, VectorStore
from foils.encode.vectors import Texts
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.results import Result, Table
from foils.searching.index import ExactIndex
from foils.searching.passes import Ranked, search_vectors
from foils.searching.ranks import Relevant
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings, SecondPass

SLICE = 4_096  # texts encoded at once where no store keeps them


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
    """

    collection: Collection
    split: str
    query_rows: Rows
    queries: npt.NDArray[np.float32]
    documents: Vectors
    answers: npt.NDArray[np.float32] | None = None

    @property
    def identical(self) -> Rows:
        """(n,) position of the document that has each query's own id, which is no answer to it; −1: there is none."""
        own: Rows = self.collection.identical[self.query_rows]
        return own

    @property
    def query_ids(self) -> list[str]:
        """Ids of the queries, in the order of `query_rows`."""
        ids: list[str] = self.collection.queries["query_id"].take(pa.array(self.query_rows)).to_pylist()
        return ids


@dataclass(frozen=True)
class Searched(Result):
    """A run, and what became of the queries' dimensions.

    Attributes:
        run: the rankings.
        ranked: positions, scores and masks.
        short: ids of the queries that kept every dimension, for want of feedback or of an answer.
        kept: mean share of dimensions kept, in (0, 1].
        embedded: what was searched.
        settings: how dimensions were chosen.
        facts: what else JSON says of the search.
    """

    run: Run
    ranked: Ranked = field(repr=False)
    short: list[str]
    kept: float
    embedded: Embedded = field(repr=False)
    settings: DimensionSettings
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def kept_all(self) -> int:
        """How many queries kept every dimension."""
        return int(self.ranked.masks.all(axis=1).sum())

    def write(self, path: str | Path) -> None:
        """Write the run in TREC form."""
        self.run.write(path)

    def tables(self) -> list[Table]:
        """Return the counts of queries, documents and dimensions."""
        rows = [
            ("queries", f"{len(self.ranked.short):,}"),
            ("documents ranked", f"{self.run.table.num_rows:,}"),
            ("dimensions kept", f"{100 * self.kept:.1f} %"),
            ("queries that kept all dimensions", f"{self.kept_all:,}"),
            ("of these, for want of feedback or answer", f"{len(self.short):,}"),
        ]
        written = f" → {self.facts['run']}" if self.facts.get("run") else ""
        of = f"{self.embedded.collection.name} ({self.embedded.split})"
        title = f"{self.settings.method} search of {of}{written}"
        remarks = [identical_ids_caption(self._identical_ids), self._untuned]
        return [Table(title, ["", ""], rows, "\n".join(filter(None, remarks)))]

    def to_json(self) -> dict[str, Any]:
        """Return how the search was made, what was kept and which queries kept all."""
        return {
            **self.facts,
            "settings": self.settings.to_json(),
            "kept": self.kept,
            "kept_all": self.kept_all,
            "short": self.short,
            "identical_ids": self._identical_ids,
        }

    @property
    def _untuned(self) -> str:
        """What must be said of settings that nobody chose."""
        if self.facts.get("chosen_by") != "default":
            return ""
        return (
            f"{self.settings.method} at its default settings, which were chosen on no query: choose them on a split "
            "of yours, or take selective, which has none to choose"
        )

    @property
    def _identical_ids(self) -> int:
        return self.embedded.collection.identical_ids(self.embedded.split)


def embed_collection(
    collection: Collection,
    encoder: Encoder,
    store: VectorStore | None,
    *,
    split: str,
    answers: Mapping[str, str | None] | None = None,
) -> Embedded:
    """Embed the documents of a collection, the queries of a split, and an answer text per query where given.

    Answers are embedded as documents.

    Args:
        collection: what to embed.
        encoder: makes the vectors that the store does not hold.
        store: keeps them; None: encode now, keep nothing.
        split: whose judged queries.
        answers: query id → answer text, for each query of the split; others are ignored. None: there is no answer, and
            the query keeps every dimension.

    Raises:
        UnknownNameError: an unknown split.
        InputError: queries without an answer, where answers are given.
    """
    ids = collection.judgements(split)["query_id"].unique()
    rows = collection.query_rows(ids)
    answered = None
    if answers is not None:
        missing = [query for query in ids.to_pylist() if query not in answers]
        if missing:
            raise InputError(
                f"{len(missing)} queries of the split {split!r} have no answer: {', '.join(missing[:5])}…; "
                "give a text for every query"
            )
        texts = [answers[query] for query in ids.to_pylist()]
        known = np.flatnonzero([text is not None for text in texts])
        answered = np.full((len(texts), encoder.dimension), np.nan, np.float32)
        written = [text for text in texts if text is not None]
        answered[known] = embed_texts(written, "document", encoder, store).take(slice(None))
    queries = embed_texts(collection.query_texts(rows), "query", encoder, store).take(slice(None))
    documents = embed_texts(DocumentTexts(collection), "document", encoder, store)
    return Embedded(collection, split, rows, _float32(queries), documents, answered)


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


def search_collection(
    embedded: Embedded,
    settings: DimensionSettings,
    *,
    index: Any = None,
    k: int = 1000,
    feedback_depth: int = FEEDBACK_DEPTH,
    rerank_depth: int | None = None,
    feedback: Run | None = None,
    second_pass: SecondPass = "index",
    rng: np.random.Generator | None = None,
    name: str = "run",
) -> Searched:
    """Search for every query of a split, with the dimensions that `settings` choose.

    A document that has the query's own id is in no list, nor in the feedback (`Collection.identical`).

    Args:
        embedded: vectors of queries, documents and, where the sun is to come from a text, answers.
        settings: how dimensions are chosen.
        index: what retrieves, as `search_vectors`; None: exact search.
        k: documents of each list.
        feedback_depth: length of the feedback, whose end is the moon.
        rerank_depth: documents of the first pass that are ranked again, as `search_vectors`.
        feedback: a run to take sun and moon from, in place of the first pass' own; a query that it does not answer
            keeps every dimension.
        second_pass: `index` or `retrieved`, as `search_vectors`.
        rng: source of the draws of a random moon.
        name: of the run.

    Raises:
        InputError: a feedback run with documents that the collection does not have, or what `search_vectors` refuses.
    """
    lists = None if feedback is None else feedback_lists(embedded, feedback)
    ranked = search_vectors(
        embedded.queries,
        embedded.documents,
        ExactIndex(embedded.documents) if index is None else index,
        settings,
        k=k,
        feedback_depth=feedback_depth,
        rerank_depth=rerank_depth,
        feedback=lists,
        answers=embedded.answers,
        second_pass=second_pass,
        without=embedded.identical,
        rng=rng,
    )
    ids = np.array(embedded.query_ids, object)
    lengths = [len(positions) for positions in ranked.positions]
    documents = embedded.collection.documents["doc_id"].take(pa.array(np.concatenate(ranked.positions)))
    run = Run.ranked(np.repeat(ids, lengths).tolist(), documents, np.concatenate(ranked.scores), name=name)
    return Searched(run, ranked, ids[ranked.short].tolist(), float(ranked.masks.mean()), embedded, settings)


def feedback_lists(embedded: Embedded, run: Run) -> list[Rows]:
    """Return a run's rankings as document positions, for each query of the split; empty where it has no answer.

    Raises:
        InputError: documents that the collection does not have.
    """
    run = without_identical(run, embedded.collection)
    positions = embedded.collection.document_rows(run.table["doc_id"])
    if (positions < 0).any():
        unknown = run.table["doc_id"].take(pa.array(np.flatnonzero(positions < 0)[:5])).to_pylist()
        raise InputError(
            f"{int((positions < 0).sum())} rows of the run {run.name} name documents that "
            f"{embedded.collection.name} does not have: {', '.join(unknown)}…; use a run made on this collection"
        )
    queries = embedded.collection.query_rows(run.table["query_id"])
    order = np.argsort(queries, kind="stable")
    ordered = queries[order]
    left = np.searchsorted(ordered, embedded.query_rows, side="left")
    right = np.searchsorted(ordered, embedded.query_rows, side="right")
    return [positions[order[start:end]] for start, end in zip(left, right, strict=True)]


def relevant_of(embedded: Embedded) -> tuple[Rows, list[Relevant]]:
    """Return which queries of the split, as indices of `query_rows`, have a relevant document, and those documents."""
    collection = embedded.collection
    table = collection.judgements(embedded.split)
    grades = np.asarray(table["relevance"].to_numpy(), np.int64)
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    order = np.argsort(queries, kind="stable")
    order = order[grades[order] > 0]
    starts, ends = (np.searchsorted(queries[order], embedded.query_rows, side=side) for side in ("left", "right"))
    having = np.flatnonzero(ends > starts)
    kept = [order[starts[index] : ends[index]] for index in having]
    return having, [Relevant(documents[rows], grades[rows]) for rows in kept]


def _float32(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(vectors, np.float32)
