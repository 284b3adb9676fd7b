"""Runs of a split, and what they measure: a model's exact search, BM25's, the order that a reranker gives a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data import Collection, Run
from foils.data.run import without_identical
from foils.encode import EncoderSettings, VectorStore, as_encoder
from foils.encode.opening import EncoderLike
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from foils.searching import DimensionSettings, embed_collection, search_collection
from foils.statistics.measures import Measured, Qrels, Rankings, measure_rankings

DEPTH = 100
PAIRS = 256  # handed to a reranker at a time
PairScorer = Callable[[Sequence[tuple[str, str]]], npt.ArrayLike]


def dense_run(
    model: EncoderLike,
    collection: Collection,
    split: str,
    *,
    depth: int = DEPTH,
    store: VectorStore | None = None,
    name: str = "",
) -> Run:
    """Search exactly for every judged query of a split.

    A document that has the query's own id is left out (`Collection.identical`).

    Args:
        model: a name, a folder, a SentenceTransformer with its own prompts, length and similarity, or an `Encoder`.
        collection: what is searched.
        split: whose queries.
        depth: documents of each ranking.
        store: keeps the vectors; None: encode now, keep nothing, as for a model in training.
        name: of the run; empty: the encoder's.

    Raises:
        UnknownNameError: no such split.
        InputError: a model that cannot be loaded.
    """
    encoder = as_encoder(model, EncoderSettings())
    embedded = embed_collection(collection, encoder, store, split=split)
    return search_collection(embedded, DimensionSettings("none"), k=depth, name=name or encoder.name).run


def first_documents(run: Run, collection: Collection, depth: int, *, split: str | None = None) -> Run:
    """Return the first `depth` documents of each query of a run, those with the query's own id left out before.

    Args:
        run: of the first stage.
        collection: that the run was made on.
        depth: how many documents of each query, at least 1.
        split: whose judged queries are kept; None: all queries of the run are.

    Raises:
        InputError: ids of the run that the collection does not have, or no query of the split in it.
        UnknownNameError: no such split.
    """
    table = without_identical(run, collection).table
    if split is not None:
        judged = collection.judgements(split)["query_id"].combine_chunks().unique()
        table = table.filter(pc.is_in(table["query_id"], value_set=judged.cast(table["query_id"].type)))
        if not len(table):
            raise InputError(
                f"no query of the split {split!r} of {collection.name} is in the run {run.name}; check the split "
                f"(there are {', '.join(collection.splits)}) and the query ids"
            )
    table = table.filter(pc.less(table["rank"], depth))
    for column, rows in (
        ("query_id", collection.query_rows(table["query_id"])),
        ("doc_id", collection.document_rows(table["doc_id"])),
    ):
        if len(unknown := np.flatnonzero(rows < 0)):
            examples = table[column].take(pa.array(unknown[:5])).to_pylist()
            raise InputError(
                f"{len(unknown)} rows of the run {run.name} name a {column} that {collection.name} does not "
                f"have: {', '.join(examples)}…; use the collection the run was made on"
            )
    return Run(table, run.name)


def rerank_run(
    run: Run, collection: Collection, scorer: PairScorer, *, depth: int = 100, name: str = "reranked"
) -> Run:
    """Score the first `depth` documents of each query again and sort them; the rest is left out.

    So is a document that has the query's own id (`Collection.identical`), before the first are counted.

    Args:
        run: of the first stage.
        collection: holds the texts.
        scorer: list of (query text, document text) → one score a pair, higher is better; as a sentence-transformers
            CrossEncoder's `predict`.
        depth: how many documents of each query, at least 1.
        name: of the new run.

    Returns:
        A run of at most `depth` documents a query; ties keep the first stage's order.

    Raises:
        InputError: a depth below 1, or ids of the run that the collection does not have.
        FailureError: the scorer gave another number of scores, or one that is not finite.
    """
    if depth < 1:
        raise InputError(f"depth {depth}; expected at least 1")
    table = first_documents(run, collection, depth).table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    scores = np.empty(len(queries))
    with progress.task("reranking", total=len(scores), unit="pairs") as advance:
        for start in range(0, len(scores), PAIRS):
            part = slice(start, start + PAIRS)
            texts = zip(collection.query_texts(queries[part]), collection.document_texts(documents[part]), strict=True)
            of_block = np.asarray(scorer(list(texts)), np.float64)
            if of_block.shape != scores[part].shape or not np.isfinite(of_block).all():
                raise FailureError(
                    f"the reranker gave scores of shape {of_block.shape} for {len(scores[part])} pairs, "
                    f"{int((~np.isfinite(of_block)).sum())} of them not finite; expected one finite score a pair"
                )
            scores[part] = of_block
            advance(len(of_block))
    return Run.ranked(table["query_id"], table["doc_id"], scores, name=name)


def qrels_of(collection: Collection, split: str) -> Qrels:
    """Return a split's judgements as query id → document id → grade, queries in the order of the judgements."""
    table = collection.judgements(split)
    qrels: dict[str, dict[str, int]] = {}
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
    for query, document, grade in zip(*columns, strict=True):
        qrels.setdefault(query, {})[document] = grade
    return qrels


def rankings_of(run: Run) -> Rankings:
    """Return a run as query id → document ids, best first."""
    rows = zip(run.table["query_id"].to_pylist(), run.table["doc_id"].to_pylist(), strict=True)
    return {query: [document for _, document in of] for query, of in groupby(rows, key=lambda row: row[0])}


def measure_run(run: Run, collection: Collection, split: str, measures: Sequence[str]) -> Measured:
    """Measure a run on a split; all judged queries count, and documents count in the run's own order.

    Args:
        run: as `dense_run`, `bm25_run` and `rerank_run` make it.
        collection: with judgements of the split.
        split: whose queries.
        measures: ir_measures' names, none that looks deeper than the run.

    Raises:
        UnknownNameError: no such split.
        InputError: what `measure_rankings` refuses.
    """
    return measure_rankings(rankings_of(run), qrels_of(collection, split), measures, name=run.name)


def measure_encoder(
    model: EncoderLike,
    collection: Collection,
    split: str,
    measures: Sequence[str],
    *,
    depth: int = DEPTH,
    store: VectorStore | None = None,
) -> Measured:
    """Measure exact search by a model over the whole collection: `dense_run`, then `measure_run`."""
    return measure_run(dense_run(model, collection, split, depth=depth, store=store), collection, split, measures)
