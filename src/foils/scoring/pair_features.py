"""Pairs of a query and a document as a classifier of relevance sees them: labelled, unlabelled, and the sources'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.encode.vectors import Vectors
from foils.runtime import progress
from foils.scoring.gates import Float64s
from foils.scoring.prepared import Measured
from foils.scoring.rounding import rounded

Floats = npt.NDArray[np.float32]

NEAREST = 3  # labelled positives that resemblance is the mean over
COMPARED = 64  # labelled positives of a query that a document is compared with, at most
LABELLED = 60_000  # labelled positives looked at, at most
EXACT = 512  # ranks that are counted; deeper ones are estimated
DEEP = 24  # unlabelled documents of a query beyond these ranks that stand for the others
DRAWN = 4  # unlabelled documents of a query in each step of ranks
STEPS = np.array([0, 1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, EXACT])
BLOCK = 256  # queries at once
DOCUMENTS = 8_192  # documents at once


@dataclass(frozen=True)
class PairFeatures:
    """n pairs.

    Attributes:
        record: (n,) the record of each pair's query.
        similarity: (n,) of query and document.
        rank: (n,) how many unlabelled documents of the collection are nearer the query, 0-based.
        resemblance: (n,) mean cosine of the document to the three nearest labelled positives of the query, itself left
            out, or a random one for a document that is no labelled positive; NaN where there are fewer than two.
        count: (n,) pairs of the collection that each stands for: 1, or more for those that were drawn.
    """

    record: Rows
    similarity: Float64s
    rank: Float64s
    resemblance: Float64s
    count: Float64s

    def __len__(self) -> int:
        return len(self.record)

    def select(self, rows: Rows) -> PairFeatures:
        """Return these pairs."""
        return PairFeatures(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: list[PairFeatures]) -> PairFeatures:
        """Return the pairs of all parts, in order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class Surveyed:
    """Pairs of some records.

    Attributes:
        labelled: labelled positives, 60,000 at most.
        positives: (n,) rows of their documents in the collection.
        unlabelled: drawn ones, which stand for all of the collection.
        negatives: the triplets of these records, in the order of `triplets`.
        triplets: (k,) which triplets of the scoring they are.
        records: how many.
        documents: of the collection.
    """

    labelled: PairFeatures
    positives: Rows
    unlabelled: PairFeatures
    negatives: PairFeatures
    triplets: Rows
    records: int
    documents: int


def survey_pairs(
    measured: Measured, documents: Vectors, rows: Rows, records: Rows, rng: np.random.Generator
) -> Surveyed:
    """Look at the labelled, the unlabelled and the sources' pairs of some records.

    One pass of inner products of the records' queries with the documents; ranks beyond the first 512 are estimated from
    the documents that are drawn there. Vectors are rounded (`rounded`), so that the number of threads changes no bit.

    Args:
        measured: the scoring.
        documents: (M, d) vectors of documents of the collection: all of them, or a random draw.
        rows: (M,) their rows, ascending.
        records: (r,) which records, ascending.
        rng: draws unlabelled documents, and the positive that is left out.
    """
    of, geometry = measured.records, measured.geometry
    scale = max(1.0, len(of.collection.documents) / max(1, len(rows)))
    known = _labelled_rows(measured, rows)
    own = _edges(of.positive_record, len(of))
    triplet = _edges(of.record, len(of))
    order = np.argsort(of.positive_record, kind="stable")
    drawn_positives, count = _drawn(np.flatnonzero(np.isin(of.positive_record, records)), rng)
    parts: tuple[list[PairFeatures], ...] = ([], [], [])
    chosen_positives: list[Rows] = []
    with progress.task("surveying pairs", total=len(records), unit="queries") as advance:
        for block in (records[at : at + BLOCK] for at in range(0, len(records), BLOCK)):
            queries = rounded(geometry.queries.take(block))
            for record, query, similarities in zip(block, queries, _similarities(queries, documents), strict=True):
                similarities[known[int(record)]] = -np.inf
                ladder = _Ladder.of(similarities, len(known[int(record)]), scale, rng)
                positives = order[own[record] : own[record + 1]]
                negatives = slice(triplet[record], triplet[record + 1])
                drawn = rounded(documents.take(ladder.drawn))
                texts = rounded(geometry.documents.take(of.all_positives[positives]))
                among = rounded(geometry.documents.take(of.document[negatives]))
                chosen = np.flatnonzero(drawn_positives[positives])
                chosen_positives.append(of.all_positives[positives[chosen]])
                alike = _resemblances(texts, chosen, np.concatenate([drawn, among]), rng)
                s_n, s_p = among @ query, texts[chosen] @ query
                parts[0].append(_features(record, s_p, ladder.rank(s_p), alike[0], np.full(len(chosen), count)))
                parts[1].append(
                    _features(record, similarities[ladder.drawn], ladder.ranks, alike[1][: len(drawn)], ladder.counts)
                )
                parts[2].append(_features(record, s_n, ladder.rank(s_n), alike[1][len(drawn) :]))
            advance(len(block))
    triplets = np.flatnonzero(np.isin(of.record, records))
    labelled, unlabelled, of_sources = (PairFeatures.joined(part) for part in parts)
    at = np.asarray(of.texts.rows)[np.concatenate(chosen_positives)]
    return Surveyed(labelled, at, unlabelled, of_sources, triplets, len(records), len(of.collection.documents))


@dataclass(frozen=True)
class _Ladder:
    """The unlabelled documents of one query by similarity: the first ranks exactly, deeper ones by a draw.

    `top` and `far` are ascending similarities, `drawn` places of documents, `counts` how many each stands for.
    """

    top: Floats
    far: Floats
    deep: float
    scale: float
    drawn: Rows
    ranks: Float64s
    counts: Float64s

    @classmethod
    def of(cls, similarities: Floats, labelled: int, scale: float, rng: np.random.Generator) -> _Ladder:
        unlabelled = len(similarities) - labelled
        exact = min(EXACT, unlabelled)
        if not exact:  # every document is labelled relevant
            none, nothing = np.zeros(0, np.float32), np.zeros(0)
            return cls(none, none, 0.0, scale, np.zeros(0, np.int64), nothing, nothing)
        first = np.argpartition(-similarities, exact - 1)[:exact] if exact < len(similarities) else np.arange(exact)
        first = first[np.argsort(-similarities[first], kind="stable")]
        places, counts = [], []
        for low, high in zip(STEPS, np.minimum(STEPS[1:], exact), strict=False):
            if low < high:
                chosen = min(DRAWN, int(high - low))
                places.append(low + np.sort(rng.permutation(int(high - low))[:chosen]))
                counts.append(np.full(chosen, (high - low) / chosen))
        drawn, rank = first[np.concatenate(places)], np.concatenate(places).astype(np.float64)
        below = np.flatnonzero((similarities < similarities[first[-1]]) & np.isfinite(similarities))
        far = np.sort(rng.choice(below, min(DEEP, len(below)), replace=False)) if len(below) else below
        far = far[np.argsort(-similarities[far], kind="stable")]
        deep = float(len(below))
        if len(far):
            drawn = np.concatenate([drawn, far])
            rank = np.concatenate([rank, exact + (np.arange(len(far)) + 0.5) * deep / len(far)])
            counts.append(np.full(len(far), deep / len(far)))
        return cls(
            similarities[first][::-1], similarities[far][::-1], deep, scale, drawn, rank * scale,
            np.concatenate(counts) * scale,
        )  # fmt: skip

    def rank(self, similarity: Floats) -> Float64s:
        """Return how many unlabelled documents have a larger similarity."""
        above = len(self.top) - np.searchsorted(self.top, similarity, side="right")
        if len(self.far):
            deeper = len(self.far) - np.searchsorted(self.far, similarity, side="right")
            above = above + deeper * (self.deep / len(self.far))
        return np.asarray(above * self.scale, np.float64)


def _similarities(queries: Floats, documents: Vectors) -> Floats:
    return np.concatenate([queries @ rounded(block).T for _, block in documents.blocks(DOCUMENTS)], axis=1)


def _drawn(positives: Rows, rng: np.random.Generator) -> tuple[npt.NDArray[np.bool_], float]:
    """Mark labelled positives to look at, 60,000 at most, and tell how many each stands for."""
    chosen = rng.permutation(positives)[:LABELLED]
    marks = np.zeros(int(positives.max(initial=-1)) + 1, bool)
    marks[chosen] = True
    return marks, len(positives) / max(1, len(chosen))


def _resemblances(
    positives: Floats, chosen: Rows, others: Floats, rng: np.random.Generator
) -> tuple[Float64s, Float64s]:
    """Mean cosine to the nearest positives: of chosen ones, themselves left out; of others, a random one left out."""
    if len(positives) < 2:
        return np.full(len(chosen), np.nan), np.full(len(others), np.nan)
    with_them = rng.permutation(len(positives))[: COMPARED + 1]
    compared = positives[with_them]
    nearest = min(NEAREST, len(with_them) - 1)
    among = positives[chosen] @ compared.T
    among[chosen[:, None] == with_them[None, :]] = -np.inf
    return _mean_of_nearest(among, nearest), _mean_of_nearest(others @ compared[1:].T, nearest)


def _mean_of_nearest(cosines: Floats, nearest: int) -> Float64s:
    return np.asarray(np.partition(cosines, -nearest, axis=1)[:, -nearest:].mean(axis=1, dtype=np.float64))


def _features(
    record: int,
    similarity: npt.NDArray[np.floating],
    rank: Float64s,
    resemblance: Float64s,
    count: Float64s | None = None,
) -> PairFeatures:
    number = len(similarity)
    counts = np.ones(number) if count is None else count
    return PairFeatures(np.full(number, record), similarity.astype(np.float64), rank, resemblance, counts)


def _labelled_rows(measured: Measured, rows: Rows) -> dict[int, Rows]:
    """Record → places among `rows` of the documents that are labelled relevant for its query."""
    collection = measured.records.collection
    known = collection.known_positives
    place = {int(query): index for index, query in enumerate(known.query_rows)}
    labelled = {}
    for record, query in enumerate(measured.records.queries):
        own = np.unique(known.of(place[int(query)])) if int(query) in place else np.zeros(0, np.int64)
        at = np.searchsorted(rows, own)
        inside = at < len(rows)
        labelled[record] = at[inside][rows[at[inside]] == own[inside]]
    return labelled


def _edges(groups: Rows, count: int) -> Rows:
    """Where each of `count` groups begins, and the last ends, in a sorted order of `groups`."""
    return np.searchsorted(np.sort(groups), np.arange(count + 1))
