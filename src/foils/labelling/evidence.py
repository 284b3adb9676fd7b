"""What is seen of a pair before anybody judges it: a belief, likenesses, ranks, labels, scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.deciding import decide
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime import progress
from foils.scoring.measure import Measured, pair_similarities
from foils.scoring.triplets import triplets_of_rows
from foils.statistics.noisy_labels import logits_of

Floats = npt.NDArray[np.float64]

NEAREST = 3  # likenesses that a mean is taken over
FARTHEST = 5.0  # standard deviations of a square, at most
SCORERS = ("teacher", "logit", "cosine", "dot")  # columns of scores on one scale
COMPARED = 64  # positives of a query, or queries of a document, that are looked at
AT_ONCE = 128  # queries whose labels are followed at once


@dataclass(frozen=True)
class Evidence:
    """Features of the rows of a table.

    Attributes:
        rows: (k,) rows of the table whose query the split judges, and whose text is none of its positives.
        belief: (k,) logit of the probability that the decision gives each, before any label.
        most: upper end of what the decision believes of the share of relevant rows, before any label.
        names: of the features.
        features: (k, f), of mean 0 and standard deviation 1 (squares are cut at 5), a missing value 0.
    """

    rows: Rows
    belief: Floats
    most: float
    names: tuple[str, ...]
    features: Floats


def evidence_of(
    collection: Collection,
    negatives: Negatives,
    encoder: Encoder,
    store: VectorStore,
    *,
    split: str = "train",
    seed: int = 0,
) -> Evidence:
    """Return what is seen of each row before anybody judges it.

    - similarity: of query and document.
    - positives' similarity: mean of the query and its labelled positives: how near a relevant document comes.
    - resemblance: mean cosine of the document to the three nearest labelled positives; nearest: to the nearest.
    - rank: log(1 + rank) in the table, smallest first.
    - other queries: mean cosine of the query to the three nearest of the queries that the document is labelled for.
    - labelled together: log(1 + number of ways) from the query over a positive of it and another query for which that
      is labelled, too, to the document. It is 0 where each query has positives of its own.
    - score: the table's, standardised by source; gap: of ratings, where there are any, its sign turned.
    - teacher, logit, cosine, dot: the columns of these names, where there are any, each with the mean of the query's
      positives, where these have scores of their own (`foils.score_pairs`).
    - belief: that of the decision, by how much more or less than it says; and the square of each of all these.

    Args:
        collection: documents, queries, judgements.
        negatives: the table; rows that are rejected are looked at as well.
        encoder: that measures likeness.
        store: of vectors.
        split: whose judgements are known.
        seed: of the belief.

    Raises:
        InputError: no row of a query that the split judges, or a single such query.
    """
    table = negatives.table
    every = Negatives(table.drop_columns([name for name in ("keep", "reason") if name in table.column_names]))
    sources = {"rows": every}
    decision = decide(collection, sources, encoder, store, split=split, seed=seed, records=None, confidence=0.99)
    measured = decision.basis.measured
    triplet = triplets_of_rows(every, measured.records)
    rows = np.flatnonzero(triplet >= 0)
    triplet = triplet[rows]
    columns = _likenesses(measured, triplet) | _of_labels(measured, collection, every, rows, triplet, split)
    columns |= {"rank": -np.log1p(table["rank"].to_numpy()[rows]), "score": _by_source(every)[rows]}
    if "gap" in table.column_names:
        columns["gap"] = -table["gap"].to_numpy()[rows]
    columns |= _of_scorers(collection, negatives, rows, split)
    belief = logits_of(decision.basis.expected[triplet])
    kept = {}  # the columns that vary, and their squares
    for name, values in {**columns, "belief": belief}.items():
        if (plain := _scaled(values)) is not None:
            kept[name] = plain
            if (square := _scaled(plain**2)) is not None:
                kept[f"{name}, squared"] = np.minimum(square, FARTHEST)
    features = np.column_stack([np.zeros((len(rows), 0)), *kept.values()])
    return Evidence(rows, belief, decision.worths["rows"].false_share_high, tuple(kept), features)


def _likenesses(measured: Measured, triplet: Rows) -> dict[str, Floats]:
    """Likeness of documents to queries and to positives, by triplet."""
    records, geometry = measured.records, measured.geometry
    resemblance, nearest, positives = np.full((3, len(records.record)), np.nan)
    begins = np.searchsorted(records.record, np.arange(len(records) + 1))
    order = np.argsort(records.positive_record, kind="stable")
    own = np.searchsorted(records.positive_record[order], np.arange(len(records) + 1))
    with progress.task("comparing with positives", total=len(records), unit="queries") as advance:
        for record in range(len(records)):
            here = slice(begins[record], begins[record + 1])
            known = records.all_positives[order[own[record] : own[record + 1]]][:COMPARED]
            texts = geometry.documents.take(known)
            alike = geometry.documents.take(records.document[here]) @ texts.T
            few = min(NEAREST, len(known))
            resemblance[here] = np.partition(alike, -few, axis=1)[:, -few:].mean(axis=1)
            nearest[here] = alike.max(axis=1)
            positives[here] = float((texts @ geometry.queries.take(np.array([record]))[0]).mean())
            advance(1)
    columns = {"similarity": measured.similarities.s_n, "positives' similarity": positives}
    columns |= {"resemblance": resemblance, "nearest": nearest}
    return {name: np.asarray(values, np.float64)[triplet] for name, values in columns.items()}


def _of_labels(
    measured: Measured, collection: Collection, negatives: Negatives, rows: Rows, triplet: Rows, split: str
) -> dict[str, Floats]:
    """What other queries' labels say of the documents of some rows."""
    records, queries = measured.records, measured.geometry.queries
    known, documents = collection.positives(split), negatives.rows_in(collection)[1][rows]
    record_of = np.full(len(collection.queries), -1, np.int64)
    record_of[records.queries] = np.arange(len(records))
    query, document = known.pairs()
    inside = record_of[query] >= 0
    query, document = record_of[query[inside]], document[inside]
    labelled = _first(document, query, (len(collection.documents) + 1, len(records)))
    positives = _first(query, document, (len(records), len(collection.documents) + 1))
    record, documents = records.record[triplet], np.where(documents < 0, len(collection.documents), documents)
    near, ways = np.full(len(rows), np.nan), np.zeros(len(rows))
    order, begins = np.argsort(record, kind="stable"), np.arange(0, len(records), AT_ONCE)
    with progress.task("following labels", total=len(records), unit="queries") as advance:
        for begin, places in zip(begins, np.split(order, np.searchsorted(record[order], begins[1:])), strict=True):
            others = labelled[documents[places]]
            sizes = np.diff(others.indptr)
            first = pair_similarities(queries, np.repeat(record[places], sizes), queries, others.indices)
            lists = (np.sort(of)[-NEAREST:] for of in np.split(first, np.cumsum(sizes)[:-1]))
            near[places] = [of.mean() if len(of) else np.nan for of in lists]
            times = positives[begin : begin + AT_ONCE] @ labelled
            ways[places] = np.asarray(times[record[places] - begin].multiply(others).sum(axis=1)).ravel()
            advance(min(AT_ONCE, len(records) - int(begin)))
    columns = {"other queries": near, "labelled elsewhere": np.isfinite(near).astype(np.float64)}
    return {**columns, "labelled together": np.log1p(ways)}


def _first(keys: Rows, values: Rows, shape: tuple[int, int]) -> csr_matrix:
    """Return which values each key has, as a matrix of zeros and ones; of each key the first 64 count."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    few = np.arange(len(keys)) - np.searchsorted(keys, keys) < COMPARED
    return csr_matrix((np.ones(few.sum(), np.int64), (keys[few], values[few])), shape=shape)


def _of_scorers(collection: Collection, negatives: Negatives, rows: Rows, split: str) -> dict[str, Floats]:
    """What scorers of pairs say of some rows, and of the positives of their queries."""
    if not (names := [name for name in SCORERS if name in negatives.table.column_names]):
        return {}
    queries, documents = negatives.rows_in(collection)
    positive = collection.positives(split).contain(queries, documents)
    columns: dict[str, Floats] = {}
    for name in names:
        scores = np.asarray(negatives.table[name].to_numpy(), np.float64)
        there = positive & np.isfinite(scores)
        size = len(collection.queries)
        sums, counts = (np.bincount(queries[there], weights, size) for weights in (scores[there], None))
        with np.errstate(invalid="ignore"):
            columns |= {name: scores[rows], f"positives' {name}": (sums / counts)[queries[rows]]}
    return columns


def _by_source(negatives: Negatives) -> Floats:
    """The table's scores less the mean of their source, by its standard deviation."""
    score = negatives.table["score"].to_numpy()
    source = np.asarray(negatives.table["source"].combine_chunks().dictionary_encode().indices)
    standardised = np.full(len(score), np.nan)
    for each in np.unique(source):
        rows = np.flatnonzero((source == each) & np.isfinite(score))
        if len(rows) and (spread := score[rows].std()) > 0:
            standardised[rows] = (score[rows] - score[rows].mean()) / spread
    return standardised


def _scaled(values: Floats) -> Floats | None:
    """Values of mean 0 and standard deviation 1, a missing one 0; None where they do not vary."""
    if not (there := np.isfinite(values)).any() or (spread := values[there].std()) <= 1e-9:
        return None
    return np.where(there, (values - values[there].mean()) / spread, 0.0)
