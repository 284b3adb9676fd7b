"""A model measured on a split: by exact search over the collection, or by the order that a reranker gives a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data import Collection, Run
from foils.encode import EncoderSettings, VectorStore, as_encoder
from foils.encode.cross_encoders import logits
from foils.encode.opening import EncoderLike
from foils.evaluation.measures import Measured, measure_rankings
from foils.evaluation.rerank import rerank_run
from foils.evaluation.systems import qrels_of, rankings_of
from foils.mining.bm25 import BM25Retriever
from foils.runtime.errors import InputError
from foils.searching.runs import embed_collection, search_collection
from foils.searching.settings import DimensionSettings

DEPTH = 100


def dense_run(
    model: EncoderLike,
    collection: Collection,
    split: str,
    *,
    depth: int = DEPTH,
    store: VectorStore | None = None,
    name: str = "",
    dimensions: int | None = None,
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
        dimensions: at which vectors are cut, what is left made of length 1; None: they stay whole.

    Raises:
        UnknownNameError: no such split.
        InputError: a model that cannot be loaded, or more dimensions than it has.
    """
    encoder = as_encoder(model, EncoderSettings())
    embedded = embed_collection(collection, encoder, store, split=split)
    if dimensions is not None:
        embedded = replace(
            embedded,
            queries=_cut(embedded.queries, dimensions),
            documents=replace(
                embedded.documents, chunks=tuple(_cut(chunk, dimensions) for chunk in embedded.documents.chunks)
            ),
        )
    return search_collection(embedded, DimensionSettings("none"), k=depth, name=name or encoder.name).run


def _cut(vectors: npt.NDArray[np.floating], dimensions: int) -> npt.NDArray[np.float32]:
    """The first dimensions of (n, d) vectors, of length 1; zeros stay zeros."""
    if not 1 <= dimensions <= vectors.shape[1]:
        raise InputError(f"vectors cut to {dimensions} dimensions; expected 1 to the model's {vectors.shape[1]}")
    parts = np.asarray(vectors[:, :dimensions], np.float32)
    lengths = np.linalg.norm(parts, axis=1, keepdims=True)
    cut: npt.NDArray[np.float32] = np.divide(parts, lengths, out=np.zeros_like(parts), where=lengths > 0)
    return cut


def measure_encoder(
    model: EncoderLike,
    collection: Collection,
    split: str,
    measures: Sequence[str],
    *,
    depth: int = DEPTH,
    store: VectorStore | None = None,
) -> Measured:
    """Measure exact search by a model over the whole collection; all queries of the split count.

    Args:
        model: as `dense_run`.
        collection: with judgements of the split.
        split: whose queries.
        measures: ir_measures' names, none that looks deeper than `depth`.
        depth: documents of each ranking.
        store: as `dense_run`.

    Raises:
        UnknownNameError: no such split.
        InputError: what `dense_run` and `measure_rankings` refuse.
    """
    run = dense_run(model, collection, split, depth=depth, store=store)
    return measure_rankings(rankings_of(run), qrels_of(collection, split), measures, name=run.name)


def bm25_run(collection: Collection, split: str, *, depth: int = DEPTH, name: str = "bm25") -> Run:
    """Search with BM25 for every judged query of a split.

    Lucene's variant with k1 = 1.2 and b = 0.75, English stop words left out, Snowball stemming (`BM25Retriever`). A
    document that shares no term with the query is not ranked; one that has the query's own id is left out
    (`Collection.identical`). Ties are broken by document position.

    Args:
        collection: what is searched.
        split: whose queries.
        depth: documents of each ranking, at most.
        name: of the run.

    Raises:
        UnknownNameError: no such split.
        InputError: a depth below 1.
    """
    if depth < 1:
        raise InputError(f"depth {depth}; expected at least 1")
    ids = collection.judgements(split)["query_id"].unique()
    rows = collection.query_rows(ids)
    documents, scores = BM25Retriever(collection).search(rows, depth + 1)
    ranked = (documents >= 0) & (documents != collection.identical[rows][:, None])
    ranked &= np.cumsum(ranked, axis=1) <= depth
    query, _ = np.nonzero(ranked)
    doc_ids = collection.documents["doc_id"].take(pa.array(documents[ranked]))
    return Run.ranked(ids.take(pa.array(query)), doc_ids, scores[ranked], name=name)


def measure_reranker(
    model: Any, collection: Collection, split: str, run: Run, measures: Sequence[str], *, depth: int = DEPTH
) -> Measured:
    """Measure the order that a cross-encoder gives the first documents of a run; all queries of the split count.

    Args:
        model: a CrossEncoder with one output.
        collection: with judgements of the split.
        split: whose queries.
        run: of the first stage.
        measures: ir_measures' names.
        depth: documents of each query that are reranked; the rest is left out.

    Raises:
        UnknownNameError: no such split.
        InputError: what `rerank_run` and `measure_rankings` refuse.
    """
    reranked = rerank_run(run, collection, partial(logits, model), depth=depth)
    return measure_rankings(rankings_of(reranked), qrels_of(collection, split), measures, name=reranked.name)


def encoder_score(collection: Collection, split: str, measure: str) -> Callable[[Any], float]:
    """Return the function from a model to its mean measure on a split, as training on dev asks for it."""
    return lambda model: measure_encoder(model, collection, split, [measure]).means[measure]


def reranker_score(collection: Collection, split: str, run: Run, measure: str) -> Callable[[Any], float]:
    """Return the function from a cross-encoder to the mean measure of the run as it orders it."""
    return lambda model: measure_reranker(model, collection, split, run, [measure]).means[measure]
