"""Teachers' scores of the pairs that are trained on: cross-encoders' and encoders', each pair scored once and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from foils.data.collection import Rows
from foils.data.resolve import CollectionLike, CollectionSettings, SourceLike, as_source
from foils.data.results import NegativesResult
from foils.data.store import provenance
from foils.data.texts import texts_of
from foils.encode import EmbeddingSettings
from foils.encode.opening import CrossEncoderLike, EncoderLike, description
from foils.mining.cross_encoder import CrossEncoderScorer
from foils.mining.pairs import PairScorer, Scores, TextPairs
from foils.mining.scorers import EncoderScorer
from foils.runtime.errors import InputError, UnknownNameError

TEACHER = "teacher"
AVERAGES = ("mean", "rank")


def score_pairs(
    collection: CollectionLike,
    source: SourceLike,
    *,
    cross_encoders: Sequence[CrossEncoderLike] | CrossEncoderLike = (),
    encoders: Sequence[EncoderLike] | EncoderLike = (),
    average: str = "mean",
    split: str = "train",
    embedding: EmbeddingSettings | None = None,
) -> NegativesResult:
    """Score kept negatives and labelled positives by teachers: a column `teacher`, for the losses of teachers.

    A positive's score stands in a rejected row of its own, which is added where it has none. Of several teachers the
    scores of each are in `teacher_1`, `teacher_2` and so on, cross-encoders first. Scores and vectors are kept by the
    model's weights and the texts, so that no pair is scored twice. A row that is rejected as no positive has NaN.

    Args:
        collection: with judgements of the split.
        source: of negatives.
        cross_encoders: one or several, by name or loaded: their logits, before any activation.
        encoders: one or several: the similarity of their vectors, cosine or inner product.
        average: of several teachers: mean, of their scores as they are, which suits teachers of one scale; or rank, of
            (n − rank) / (n − 1) among the n documents of a query, in [0, 1], ties at their mean rank.
        split: whose positives are scored, of queries with a kept negative.
        embedding: how teachers are used, and where their scores and vectors are kept. Default: their own maximum
            length, and the cache.

    Raises:
        InputError: no teacher, a model or table that cannot be read, or the table has the columns already.
        UnknownNameError: no such average or split.
        FailureError: a score is NaN or infinite.
    """
    if average not in AVERAGES:
        raise UnknownNameError("average", average, AVERAGES)
    use, loaded = embedding or EmbeddingSettings(), CollectionSettings().open(collection)
    named, store = as_source(source, loaded), use.open_store()
    scorers: list[PairScorer] = []
    described: list[dict[str, Any]] = []
    for each in _several(cross_encoders):
        scorer = CrossEncoderScorer(use.open_cross_encoder(each), store, name=_name(each, "cross-encoder"))
        scorers.append(scorer)
        described.append(scorer.describe())
    for each in _several(encoders):
        encoder = use.open_encoder(each, loaded)
        scorers.append(EncoderScorer(encoder, store))
        described.append(description(encoder))
    if not scorers:
        raise InputError("no teacher; give cross_encoders, encoders or both")
    negatives = named.negatives
    asked = np.unique(loaded.query_rows(negatives.kept()["query_id"]))
    queries, documents = loaded.positives(split).pairs()
    queries, documents = (rows[np.isin(queries, asked)] for rows in (queries, documents))
    ids = loaded.queries["query_id"].take(queries), loaded.documents["doc_id"].take(documents)
    widened, of_positives = negatives.with_rejected(*(column.combine_chunks() for column in ids))
    wanted = np.union1d(np.flatnonzero(widened.keep), of_positives)
    query_rows, texts = texts_of(widened, loaded)
    of_query = query_rows[wanted]
    doc_rows = np.arange(len(texts))[wanted] if texts.rows is None else texts.rows[wanted]
    pairs = TextPairs(loaded, of_query, doc_rows, np.full(len(wanted), np.nan), texts.own)
    scores = np.full((len(scorers), len(widened)), np.nan)
    scores[:, wanted] = [scorer.score(pairs) for scorer in scorers]
    columns = {f"{TEACHER}_{i}": each for i, each in enumerate(scores, 1)} if len(scorers) > 1 else {}
    joined = np.full(len(widened), np.nan)
    joined[wanted] = averaged(scores[:, wanted], of_query, average) if len(scorers) > 1 else scores[0, wanted]
    facts = {"split": split, "teachers": described, **({"average": average} if len(scorers) > 1 else {})}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    origin = provenance("score_pairs", facts, inputs=inputs, before=negatives.provenance)
    scored = widened.with_columns({**columns, TEACHER: joined})
    title = f"{named.name}, scored by {', '.join(str(each['name']) for each in described)}"
    return NegativesResult.of(scored, provenance=origin, title=title, collection=loaded, split=split)


def averaged(scores: Scores, queries: Rows, average: str) -> Scores:
    """Return (n,) the average of several teachers.

    Args:
        scores: (t, n) of each teacher and pair.
        queries: (n,) each pair's query.
        average: mean, or rank: (n_q − rank) / (n_q − 1) among the n_q pairs of a query; 1 where there is one alone.
    """
    if average == "mean":
        return np.asarray(scores.mean(0), np.float64)
    order = np.argsort(queries, kind="stable")
    lists = np.split(order, np.flatnonzero(np.diff(queries[order])) + 1)
    ranks = np.ones_like(scores)
    for rows in lists:
        if len(rows) > 1:
            ranks[:, rows] = (rankdata(scores[:, rows], axis=1) - 1) / (len(rows) - 1)
    return np.asarray(ranks.mean(0), np.float64)


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _name(given: Any, otherwise: str) -> str:
    return str(given).rstrip("/").rpartition("/")[2] if isinstance(given, str) else otherwise
