"""From a table of negatives to the same table with `elo, elo_se, gap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.store import Provenance
from foils.rating.adaptive import ESTIMATORS, rate_adaptively
from foils.rating.asking import Records, ask
from foils.rating.candidates import Candidates, TableDocuments
from foils.rating.graph import algebraic_connectivity, diameter, regular_pairs
from foils.rating.judgements import Judgements
from foils.rating.judges import Judge
from foils.rating.pairs import Floats, Pairs, Rows
from foils.rating.ratings import Ratings, lead_errors
from foils.runtime.errors import InputError, UnknownNameError

VALIDATIONS = ("none", "borderline", "all")
BORDERLINE = (80.0, 150.0)
NO_POSITIVE = "query without a positive in the split"
POSITIVE = "labelled positive"
LABELS = "labels"


@dataclass(frozen=True)
class RatingReport:
    """What a rating did.

    Attributes:
        queries: with a positive and a negative.
        comparisons: asked for, the direct ones with the positive included.
        missing: of them without a judgement.
        position_bias: see `Judgements`; 0 for a judge that has none by construction.
        position_bias_interval: its 95 % interval, whole queries being what was drawn; NaN for fewer than two.
        unrated: negatives without a gap: none of their judgements, or none of their positive's, succeeded, or the two
            are in parts of the graph that never met.
        skipped: reason -> rows that were not rated at all.
        connectivity: mean algebraic connectivity of the graphs of judged pairs.
        diameter: the largest; inf where a graph fell apart.
        standard_error: median, in Elo points.
    """

    queries: int
    comparisons: int
    missing: int
    position_bias: float
    position_bias_interval: tuple[float, float]
    unrated: int
    skipped: dict[str, int]
    connectivity: float
    diameter: float
    standard_error: float


@dataclass(frozen=True)
class Rated:
    """A rated table, what the rating did, and every pair that was asked about with its preference (NaN: no answer)."""

    negatives: Negatives
    report: RatingReport
    candidates: Candidates
    pairs: Pairs
    preference: Floats


def rate_negatives(
    collection: Collection,
    negatives: Negatives,
    judge: Judge,
    *,
    split: str,
    positives: int = 1,
    degree: int = 6,
    model: str = "thurstone",
    prior_sd: float = 10.0,
    rounds: int = 0,
    validate: str = "none",
    record: Records = None,
    block: int = 2048,
    seed: int = 0,
    made: Provenance | None = None,
) -> Rated:
    """Add `elo, elo_se, gap, gap_se` (Elo points, mean 1500 over a query's candidates): how hard each one really is.

    A query's candidates are its negatives that no stage rejected and its first labelled positives. They are compared
    on a `degree`-regular random graph, or on one whose later pairs are chosen where they tell most, and rated per
    query. gap = e_positive − e_d, so that a small or negative one means danger; of several positives the one rated best
    counts. `elo_se` is the error of e_d, `gap_se` that of the difference (`lead_errors`).

    A positive that was rated has a row with its own elo and elo_se, and no gap: what a model that learns ratings is to
    learn of it. A row that is not in the given table comes after its rows, rejected as a labelled positive.

    Args:
        collection: texts and judgements.
        negatives: the table; rejected rows get NaN.
        judge: whom to ask.
        split: whose labelled positives.
        positives: how many of a query's labelled positives are rated, at least 1. More make the gap depend less on a
            first one that happens to be poor.
        degree: comparisons per candidate, even.
        model: thurstone or bradley-terry.
        prior_sd: of the weak Gaussian prior, in the model's unit.
        rounds: 0: the random graph; else rounds of informative pairs after a first random cycle.
        validate: also ask about (positive, negative) directly, for the column `preference`, P(positive ≻ d): `none`;
            `borderline`, where the gap is 80–150 (eq. 35); `all`.
        record: where judgements are kept and found again; for an ensemble, one for each of its judges.
        block: pairs asked, and recorded, together.
        seed: of the graphs.
        made: provenance of the new table; None: the old one's.

    Raises:
        InputError: ids unknown to the collection, an odd degree, positives below 1, or no query with both a positive
            and a negative.
        UnknownNameError: an unknown model, validation or split.
    """
    for what, given, known in (("model", model, ESTIMATORS), ("validation", validate, VALIDATIONS)):
        if given not in known:
            raise UnknownNameError(what, given, known)
    if positives < 1:
        raise InputError(f"positives {positives}; expected at least 1 for each query")
    found = _candidates(collection, negatives, split, positives)
    candidates = found.candidates
    asked: list[tuple[Pairs, Judgements]] = []

    def judged(pairs: Pairs) -> Floats:
        asked.append((pairs, ask(judge, candidates, pairs, record=record, block=block)))
        return asked[-1][1].preference

    sizes, rng = np.diff(candidates.offsets), np.random.default_rng(seed)
    if rounds:
        pairs, preference, ratings = rate_adaptively(
            sizes, judged, degree=degree, rounds=rounds, model=model, prior_sd=prior_sd, rng=rng
        )
    else:
        pairs = regular_pairs(sizes, degree=degree, rng=rng)
        preference = judged(pairs)
        ratings = ESTIMATORS[model](pairs, preference, prior_sd=prior_sd)
    best = _best(ratings, candidates.offsets, found.positives)
    gap = _gaps(ratings, candidates.offsets, best)
    answered = pairs.where(np.isfinite(preference))
    gap_error = lead_errors(answered, ratings, best, prior_sd=prior_sd)
    columns = {"elo": ratings.elo, "elo_se": ratings.elo_error, "gap": gap, "gap_se": gap_error}
    if validate != "none":
        columns["preference"] = _direct(judged, candidates.offsets, gap, best, validate)
    widened, of_positive = _with_positives(negatives, found)
    rows = np.full((len(columns), len(widened)), np.nan)
    rows[:, found.row] = np.stack(list(columns.values()))[:, found.candidate]
    rows[:2, of_positive] = ratings.elo[found.positive], ratings.elo_error[found.positive]
    table = widened.with_columns(dict(zip(columns, rows, strict=True))).table
    every, judgements = _every(candidates.offsets, asked)
    report = _report(every, judgements, answered, ratings, gap[found.candidate], found.skipped)
    return Rated(Negatives(table, made or negatives.provenance), report, candidates, every, judgements.preference)


@dataclass(frozen=True)
class _Found:
    """What is rated.

    Attributes:
        candidates: of all queries.
        row, candidate: (r,) rows of the table, and the candidate of each.
        positive: (p,) the candidates that are positives.
        positives: (Q,) how many of them end each query.
        skipped: reason -> rows that are not rated.
    """

    candidates: Candidates
    row: Rows
    candidate: Rows
    positive: Rows
    positives: Rows
    skipped: dict[str, int]


def _candidates(collection: Collection, negatives: Negatives, split: str, most: int) -> _Found:
    """Put each query's kept negatives, in the table's order, and its first labelled positives after them."""
    query, document = negatives.rows_in(collection)
    positives = collection.positives(split)
    at = np.full(len(collection.queries), -1)
    at[positives.query_rows] = np.arange(len(positives))
    usable = negatives.keep & (at[query] >= 0) & ~collection.known_positives.contain(query, document)
    skipped = {
        "rejected before": int((~negatives.keep).sum()),
        NO_POSITIVE: int((negatives.keep & (at[query] < 0)).sum()),
        POSITIVE: int((negatives.keep & (at[query] >= 0)).sum() - usable.sum()),
    }
    row = np.flatnonzero(usable)
    if not len(row):
        raise InputError(
            f"no row to rate: {', '.join(f'{n} {why}' for why, n in skipped.items() if n)}; is {split!r} the split?"
        )
    row = row[np.argsort(query[row], kind="stable")]
    queries, counts = np.unique(query[row], return_counts=True)
    added = np.minimum(positives.counts[at[queries]], most)
    offsets = np.concatenate([[0], np.cumsum(counts + added)])
    place = np.arange(added.sum()) - np.repeat(np.cumsum(added) - added, added)  # 0, 1, … within each query
    positive = np.repeat(offsets[1:] - added, added) + place
    candidate = np.delete(np.arange(offsets[-1]), positive)
    of = np.empty(offsets[-1], np.int64)
    of[candidate] = np.where(document[row] < 0, -1 - row, document[row])
    of[positive] = positives.doc_rows[np.repeat(positives.offsets[at[queries]], added) + place]
    documents = TableDocuments(collection, negatives.table, of)
    query_ids = collection.queries["query_id"].take(pa.array(queries)).to_pylist()
    shown = Candidates(query_ids, collection.query_texts(queries), offsets, documents, documents.texts)
    return _Found(shown, row, candidate, positive, added, {why: n for why, n in skipped.items() if n})


def _with_positives(negatives: Negatives, found: _Found) -> tuple[Negatives, Rows]:
    """Return the table with a row for each positive that is rated, and (p,) these rows."""
    shown = found.candidates
    query_ids = pa.array(shown.query_ids, pa.string()).take(pa.array(shown.query_of(found.positive)))
    doc_ids = shown.ids(found.positive).cast(pa.string())
    return negatives.with_rejected(query_ids, doc_ids, source=LABELS, reason=POSITIVE)


def _best(ratings: Ratings, offsets: Rows, positives: Rows) -> Rows:
    """(Q,) the positive rated best, the first of equals, and the first where none is rated."""
    elo = np.nan_to_num(ratings.elo, nan=-np.inf)
    spans = zip(offsets[1:] - positives, offsets[1:], strict=True)
    return np.array([start + int(elo[start:end].argmax()) for start, end in spans], np.int64)


def _gaps(ratings: Ratings, offsets: Rows, positive: Rows) -> Floats:
    """(N,) e_positive − e_d in Elo points; NaN where the two cannot be compared."""
    of = np.repeat(positive, np.diff(offsets))
    together = ratings.component[of] == ratings.component
    return np.where(together, ratings.elo[of] - ratings.elo, np.nan)


def _direct(judged: Callable[[Pairs], Floats], offsets: Rows, gap: Floats, positive: Rows, validate: str) -> Floats:
    """(N,) P(positive ≻ d | q), asked directly (eq. 35); NaN where it was not asked or has no answer."""
    wanted = np.ones(len(gap), bool) if validate == "all" else (gap >= BORDERLINE[0]) & (gap <= BORDERLINE[1])
    wanted[positive] = False
    rows = np.flatnonzero(wanted)
    found = np.full(len(gap), np.nan)
    found[rows] = judged(Pairs(offsets, np.repeat(positive, np.diff(offsets))[rows], rows))
    return found


def _every(offsets: Rows, asked: list[tuple[Pairs, Judgements]]) -> tuple[Pairs, Judgements]:
    """Everything that was asked, query by query."""
    if len(asked) == 1:
        return asked[0]
    first, second = (np.concatenate([getattr(pairs, name) for pairs, _ in asked]) for name in ("first", "second"))
    order = np.argsort(np.searchsorted(offsets, first, side="right"), kind="stable")
    answers = (np.concatenate([getattr(part, name) for _, part in asked])[order] for name in ("forward", "backward"))
    return Pairs(offsets, first[order], second[order]), Judgements(*answers)


def _report(
    every: Pairs, judgements: Judgements, answered: Pairs, ratings: Ratings, gap: Floats, skipped: dict[str, int]
) -> RatingReport:
    known = ratings.elo_error[np.isfinite(ratings.elo_error)]
    return RatingReport(
        queries=every.queries,
        comparisons=len(every),
        missing=judgements.missing,
        position_bias=judgements.position_bias,
        position_bias_interval=judgements.position_bias_interval(every.query),
        unrated=int(np.isnan(gap).sum()),
        skipped=skipped,
        connectivity=float(algebraic_connectivity(answered).mean()),
        diameter=float(diameter(answered).max()),
        standard_error=float(np.median(known)) if len(known) else float("nan"),
    )
