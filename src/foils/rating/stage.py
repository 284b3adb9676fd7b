"""From a table of negatives to the same table with `elo, elo_se, gap, gap_se`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import LABELS, POSITIVE, TOP, Negatives
from foils.data.tables import Provenance, provenance
from foils.rating.adaptive import ESTIMATORS, ask_adaptively
from foils.rating.agreement import agreements, krippendorff_alpha, sureness
from foils.rating.answers import Asking
from foils.rating.asking import RecordsLike
from foils.rating.between import Offsets, answers_between, between_judges, fit_offsets, pairs_between
from foils.rating.candidates import Candidates
from foils.rating.drawing import Keys, candidate_keys, query_keys
from foils.rating.goodness import deviance_explained, intransitive_triples
from foils.rating.graph import algebraic_connectivity, diameter, first_pairs, random_pairs, regular_pairs
from foils.rating.judgements import Judgements
from foils.rating.judges import Judge, members
from foils.rating.links import LINKS
from foils.rating.llm_judge import LLMJudge
from foils.rating.pairs import Floats, Pairs, Rows
from foils.rating.rateable import Rateable, rateable
from foils.rating.ratings import Ratings, lead_errors
from foils.rating.results import JudgeSummary, Rated, RatingSummary
from foils.rating.settings import RatingSettings
from foils.rating.spread import Spread, refined, spread_of
from foils.runtime.doors import door

BORDERLINE = (80.0, 150.0)


@door
def rate_negatives(  # noqa: D417  (the door describes the fields of `rating`)
    collection: Collection,
    negatives: Negatives,
    judge: Judge,
    *,
    split: str = "train",
    rating: RatingSettings,
    between_judge: Judge | None = None,
    record: RecordsLike = None,
    block: int = 2048,
    seed: int = 0,
    name: str = "negatives",
    digest: str = "",
) -> Rated:
    """Add `elo, elo_se, gap, gap_se` (Elo points, mean 1500 over a query's candidates): how hard each one really is.

    A query's candidates are its rows that no stage rejected and its first labelled positives, where it has any. They
    are compared on a `degree`-regular random graph, or on one whose later pairs are chosen where they tell most, or
    in random `pairs`, and rated per query. With a `budget` every query has its first pairs, as many as go with its
    candidates. A query's graph depends on its id, its candidates' and the seed alone. gap = e_reference − e_d, so
    that a small or negative one means danger. The reference is the labelled positive, of several the one rated best;
    of a query without any it is the candidate rated best, which was chosen for its rating, so that such gaps are on
    average somewhat too large. `elo_se` is the error of e_d, `gap_se` that of the difference (`lead_errors`). With
    `validate`, the column `preference` is P(reference ≻ d), asked directly about the gaps of a first fit; these answers
    enter the ratings, whose reference stays the one that was asked about.

    With comparisons `between` queries there is a column `offset` (Elo points, mean 0 over queries), the same in all
    rows of a query: elo + offset can be compared between queries (`foils.rating.between`).

    A reference has its own elo and elo_se, and no gap: what a model that learns ratings is to learn of it. A positive
    that has no row in the given table gets one after its rows, rejected as a labelled positive; the row of a candidate
    that is the reference of its query is rejected, too, since it is no negative of it.

    Args:
        collection: texts and judgements.
        negatives: the table; rejected rows get NaN.
        judge: whom to ask.
        split: whose labelled positives; `all`: those of every split.
        between_judge: compares candidates of different queries; None: the judge.
        record: where judgements are kept and found again; for an ensemble, one for each of its judges.
        block: pairs asked, and recorded, together.
        seed: of the graphs.
        name: of the table, for titles.
        digest: of the file that the table was read from, for provenance; "": the table's own.

    Raises:
        InputError: ids unknown to the collection, an odd degree, or no row to rate.
        UnknownNameError: an unknown model, validation or split.
    """
    if rating.between is not None:
        between_judges(between_judge or judge)
    rows = rateable(collection, negatives, split, rating.positives)
    asking = Asking(judge, rows.candidates, record, block)
    answered, heard = _answered(asking, rating, candidate_keys(rows.candidates, seed))
    fit = _Fit.of(answered, heard, _spread(answered, heard, rating), rating.model)
    best = rows.references(fit.ratings.elo)
    direct = {}
    if rating.validate != "none":
        direct["preference"] = _direct(
            asking, _gaps(fit.ratings, best, rows.candidates.offsets), best, everywhere=rating.validate == "all"
        )
        fit = _Fit.of(*asking.answered(), fit.spread, rating.model)
    ratings, gap, gap_error = fit.ratings, _gaps(fit.ratings, best, rows.candidates.offsets), fit.lead_errors(best)
    tops = best[(rows.positives == 0) & np.isfinite(ratings.elo[best])]
    unrated = int(np.isnan(gap[rows.candidate]).sum())
    gap[tops] = gap_error[tops] = np.nan
    between = _between(between_judge or judge, rows.candidates, ratings, rating.between, seed)
    if between is not None:
        direct["offset"] = np.repeat(between.offset, np.diff(rows.candidates.offsets))
    columns = {"elo": ratings.elo, "elo_se": ratings.elo_error, "gap": gap, "gap_se": gap_error, **direct}
    every, judgements = asking.everything()
    return Rated.of(
        _rated_table(negatives, rows, columns, ratings, tops),
        provenance=_provenance(collection, negatives, judge, between_judge, split, rating, seed, digest),
        title=f"{name} rated by {judge.name} ({rating.model})", collection=collection, split=split, source=name,
        summary=replace(_summary(every, judgements, rows, unrated, fit), **_of_judges(asking), between=between),
        candidates=rows.candidates, pairs=every, preference=judgements.preference,
        models={each.name: each.asked.use() for each in _language_models(judge, between_judge)},
    )  # fmt: skip


def _answered(asking: Asking, settings: RatingSettings, keys: Keys) -> tuple[Pairs, Floats]:
    """The pairs that were answered, and the answers."""
    sizes = np.diff(asking.candidates.offsets)
    if settings.pairs is not None:
        pairs = random_pairs(sizes, settings.pairs, keys=keys)
    else:
        pairs = regular_pairs(sizes, degree=settings.degree, keys=keys)
    if settings.budget is not None:
        pairs = first_pairs(pairs, asking.affordable(settings.budget))
    if settings.rounds:
        goal = np.diff(pairs.pair_offsets)
        place = np.arange(len(pairs)) - pairs.pair_offsets[pairs.query]
        start = pairs.where(place < sizes[pairs.query])  # the first cycle
        pairs, preference = ask_adaptively(start, asking, goal=goal, rounds=settings.rounds, model=settings.model)
    else:
        preference = asking(pairs)
    known = np.isfinite(preference)
    return pairs.where(known), preference[known]


def _spread(pairs: Pairs, preference: Floats, settings: RatingSettings) -> Spread:
    """The prior that is given, under which an answer counts as one yes or no, or the one that fits the answers."""
    if isinstance(settings.prior_sd, str):
        rough = spread_of(pairs, preference, model=settings.model)
        return refined(pairs, preference, rough, model=settings.model)
    return Spread(settings.prior_sd)


def _rated_table(
    negatives: Negatives, rows: Rateable, columns: dict[str, Floats], ratings: Ratings, tops: Rows
) -> Negatives:
    """The table with these columns, (N,) each, a row for each positive that is rated, and the tops rejected."""
    shown = rows.candidates
    query_ids = pa.array(shown.query_ids, pa.string()).take(pa.array(shown.query_of(rows.positive)))
    doc_ids = shown.ids(rows.positive).cast(pa.string())
    widened, of_positive = negatives.with_rejected(query_ids, doc_ids, source=LABELS, reason=POSITIVE)
    values = np.full((len(columns), len(widened)), np.nan)
    values[:, rows.row] = np.stack(list(columns.values()))[:, rows.candidate]
    values[:2, of_positive] = ratings.elo[rows.positive], ratings.elo_error[rows.positive]
    if "offset" in columns:
        values[list(columns).index("offset"), of_positive] = columns["offset"][rows.positive]
    rated = widened.with_columns(dict(zip(columns, values, strict=True)))
    return rated.reject(np.isin(np.arange(len(rated)), rows.rows_of(tops)), TOP) if len(tops) else rated


def _provenance(
    collection: Collection,
    negatives: Negatives,
    judge: Judge,
    between_judge: Judge | None,
    split: str,
    rating: RatingSettings,
    seed: int,
    digest: str,
) -> Provenance:
    models = [each.describe() for each in _language_models(judge, between_judge)]
    settings: dict[str, Any] = {"split": split, "judge": judge.name, **vars(rating)}
    settings |= {"between_judge": between_judge.name} if between_judge else {}
    settings |= {"language_models": models} if models else {}
    inputs = {"collection": collection.digest, "source": digest or negatives.digest, "judge": judge.fingerprint}
    return provenance("rate", settings, inputs=inputs, seed=seed, before=negatives.provenance)


def _language_models(*given: Judge | None) -> list[LLMJudge]:
    judges = [each for judge in given if judge is not None for each in members(judge)]
    return [each for each in judges if isinstance(each, LLMJudge)]


def _between(judge: Judge, candidates: Candidates, ratings: Ratings, degree: int | None, seed: int) -> Offsets | None:
    """The offsets of queries, or None where none are asked for."""
    if degree is None:
        return None
    keys, of_query = candidate_keys(candidates, seed), query_keys(candidates.query_ids, seed)
    pairs = pairs_between(candidates.offsets, keys, of_query, np.isfinite(ratings.elo), degree)
    return fit_offsets(candidates, pairs, answers_between(judge, candidates, *pairs.T), ratings)


def _gaps(ratings: Ratings, reference: Rows, offsets: Rows) -> Floats:
    """(N,) e_reference − e_d in Elo points; NaN where the two cannot be compared."""
    of = np.repeat(reference, np.diff(offsets))
    together = ratings.component[of] == ratings.component
    return np.where(together, ratings.elo[of] - ratings.elo, np.nan)


def _direct(asking: Asking, gap: Floats, reference: Rows, *, everywhere: bool) -> Floats:
    """(N,) P(reference ≻ d | q), asked directly (eq. 35) unless it was before; NaN where there is no answer."""
    wanted = np.ones(len(gap), bool) if everywhere else (gap >= BORDERLINE[0]) & (gap <= BORDERLINE[1])
    wanted[reference] = False
    rows, offsets = np.flatnonzero(wanted), asking.candidates.offsets
    preference = np.full(len(gap), np.nan)
    pairs = Pairs(offsets, np.repeat(reference, np.diff(offsets))[rows], rows)
    answers = asking.known(pairs)
    unknown = np.isnan(answers)
    if unknown.any():
        answers[unknown] = asking(pairs.where(unknown))
    preference[rows] = answers
    return preference


@dataclass(frozen=True)
class _Fit:
    """Ratings, and what they were fitted to."""

    pairs: Pairs
    preference: Floats
    ratings: Ratings
    spread: Spread

    @classmethod
    def of(cls, pairs: Pairs, preference: Floats, spread: Spread, model: str) -> _Fit:
        """Fit the ratings."""
        ratings = ESTIMATORS[model](pairs, preference, prior_sd=spread.prior_sd)
        return cls(pairs, preference, ratings.scaled_errors(spread.dispersion**0.5), spread)

    def lead_errors(self, reference: Rows) -> Floats:
        """Return (N,) the standard errors of e_reference − e_d."""
        errors = lead_errors(self.pairs, self.ratings, reference, prior_sd=self.spread.prior_sd)
        return np.asarray(errors * self.spread.dispersion**0.5)


def _summary(every: Pairs, judgements: Judgements, rows: Rateable, unrated: int, fit: _Fit) -> RatingSummary:
    ratings, spread = fit.ratings, fit.spread
    known = ratings.elo_error[np.isfinite(ratings.elo_error)]
    circles, triples = intransitive_triples(fit.pairs, fit.preference)
    return RatingSummary(
        queries=every.queries,
        without_positive=int((rows.positives == 0).sum()),
        comparisons=len(every),
        missing=judgements.missing,
        position_bias=judgements.position_bias,
        position_bias_interval=judgements.position_bias_interval(every.query),
        unrated=unrated,
        skipped=rows.skipped,
        connectivity=float(algebraic_connectivity(fit.pairs).mean()),
        diameter=float(diameter(fit.pairs).max()),
        standard_error=float(np.median(known)) if len(known) else float("nan"),
        spread=spread.sd * LINKS[ratings.model].elo_per_unit,
        dispersion=spread.dispersion,
        deviance_explained=deviance_explained(fit.pairs, fit.preference, ratings),
        intransitive=circles,
        triples=triples,
    )


def _of_judges(asking: Asking) -> dict[str, Any]:
    """What a summary says of each of several judges."""
    judges = asking.judges()
    if len(judges) < 2:
        return {}
    answers = [each for _, each in judges]
    facts = [
        JudgeSummary(name, own.missing, own.position_bias, float(agreement), float(slope), float(weight))
        for (name, own), agreement, slope, weight in zip(
            judges, agreements(answers), sureness(answers), asking.weights(), strict=True
        )
    ]
    return {"judges": facts, "alpha": krippendorff_alpha(answers)}
