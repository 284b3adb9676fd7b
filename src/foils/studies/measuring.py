"""A model measured on a split: by exact search over the collection, or by the order a reranker gives a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.encode import DocumentTexts
from foils.encode.nearest import BLOCK, top_inner_products
from foils.encode.similarity import similarity_of
from foils.encode.vectors import Vectors
from foils.evaluation import Measured, measure_rankings, qrels_of, rankings_of, rerank_run

DEPTH = 100
TEXTS = 4_096  # documents encoded at once


def measure_encoder(
    model: Any, collection: Collection, split: str, measures: Sequence[str], *, depth: int = DEPTH
) -> Measured:
    """Measure exact search by a model over the whole collection; nothing is stored.

    A document that has the query's own id is left out (`Collection.identical`).

    Args:
        model: a SentenceTransformer; its own prompts and its own similarity are used.
        collection: with judgements of the split.
        split: whose queries, all of which count.
        measures: ir_measures' names, none that looks deeper than `depth`.
        depth: documents returned for a query.

    Raises:
        UnknownNameError: no such split.
        InputError: what `measure_rankings` refuses.
    """
    qrels = qrels_of(collection, split)
    texts = DocumentTexts(collection)
    settings = {"normalize_embeddings": similarity_of(model) == "cosine", "show_progress_bar": False}
    chunks = tuple(
        model.encode_document(list(texts[start : start + TEXTS]), **settings) for start in range(0, len(texts), TEXTS)
    )
    documents = Vectors(chunks, np.arange(len(texts)))
    rows_of_queries = collection.query_rows(list(qrels))
    asked = model.encode_query(collection.query_texts(rows_of_queries), **settings)
    ids = np.asarray(collection.documents["doc_id"].to_pylist(), object)
    identical = collection.identical[rows_of_queries]
    deepest = min(depth + int((identical >= 0).any()), len(ids))
    rankings: dict[str, list[str]] = {}
    for start in range(0, len(asked), BLOCK):
        part = slice(start, start + BLOCK)
        found, _ = top_inner_products(asked[part], documents, deepest)
        for query, own, rows in zip(list(qrels)[part], identical[part], found, strict=True):
            rankings[query] = ids[rows[rows != own][:depth]].tolist()
    return measure_rankings(rankings, qrels, measures)


def encoder_score(collection: Collection, split: str, measure: str) -> Callable[[Any], float]:
    """Return the function from a model to its mean measure on a split, as training on dev asks for it."""
    return lambda model: measure_encoder(model, collection, split, [measure]).means[measure]


def reranker_score(collection: Collection, split: str, run: Run, measure: str) -> Callable[[Any], float]:
    """Return the function from a cross-encoder to the mean measure of the run as it orders it."""
    qrels = qrels_of(collection, split)

    def score(model: Any) -> float:
        from torch import nn

        def scorer(pairs: Any) -> Any:
            return model.predict(list(pairs), show_progress_bar=False, activation_fn=nn.Identity())

        return measure_rankings(rankings_of(rerank_run(run, collection, scorer)), qrels, [measure]).means[measure]

    return score
