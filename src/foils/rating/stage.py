"""From a table of negatives to the same table with `elo, elo_se, gap, gap_se`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import LABELS, POSITIVE, TOP, Negatives
from foils.data.texts import ColumnTexts, DocumentTexts
from foils.llm import ModelUse
from foils.rating.adaptive import ask_adaptively
from foils.rating.cross_query import Offsets
from foils.rating.estimators import ESTIMATORS, LINKS, Ratings, deviance_explained, lead_errors
from foils.rating.graph import (
    Keys,
    algebraic_connectivity,
    first_pairs,
    regular_pairs,
)
from foils.rating.judges import Judge
from foils.rating.llm_judge import LLMJudge
from foils.rating.opening import RatingSettings
from foils.rating.pairs import Candidates, Floats, Judgements, Pairs, Rows, agreements
from foils.rating.prior import Spread, order_noise, refined, spread_of
from foils.rating.session import JudgeSession
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import without_nan
from foils.runtime.results import Table, number

if TYPE_CHECKING:
    from foils.rating.distil import Distilled


OTHER_SPLIT = "query whose positives are in other splits"


@dataclass(frozen=True)
class Rateable:
    """What is rated.

    Attributes:
        candidates: of all queries.
        row, candidate: (r,) rows of the table, and the candidate of each.
        positive: (p,) the candidates that are labelled positives, each the last one of its query.
        labelled: (Q,) whether a query has one.
        skipped: reason -> rows that are not rated.
    """

    candidates: Candidates
    row: Rows
    candidate: Rows
    positive: Rows
    labelled: npt.NDArray[np.bool_]
    skipped: dict[str, int]

    def references(self, elo: Floats) -> Rows:
        """Return (Q,) the candidate that gaps are held against: the labelled positive, without one the best-rated.

        The first of equals; the first where none is rated.
        """
        known, offsets = np.nan_to_num(elo, nan=-np.inf), self.candidates.offsets
        spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        best = np.array([start + int(known[start:end].argmax()) for start, end in spans], np.int64)
        return np.where(self.labelled, offsets[1:] - 1, best)

    def rows_of(self, candidates: Rows) -> Rows:
        """Return the table's rows of candidates that are no labelled positives."""
        return np.asarray(self.row[np.searchsorted(self.candidate, candidates)])


def rateable(collection: Collection, negatives: Negatives, split: str) -> Rateable:
    """Put each query's kept rows, in the table's order, and its first labelled positive after them.

    A query that is labelled in no split is rated without a positive; one whose positives are in other splits alone is
    not rated. Labelled positives among the rows are rejected already, as `as_source` does.

    Raises:
        InputError: ids unknown to the collection, or no row to rate.
        UnknownNameError: an unknown split.
    """
    query, document = negatives.rows_in(collection)
    labels, known = collection.labels(split), collection.known_positives
    elsewhere = negatives.keep & (labels.places(query) < 0) & (known.places(query) >= 0)
    skipped = {"rejected before": int((~negatives.keep).sum()), OTHER_SPLIT: int(elsewhere.sum())}
    row = np.flatnonzero(negatives.keep & ~elsewhere)
    if not len(row):
        why = ", ".join(f"{n} {why}" for why, n in skipped.items() if n) or "the table has no rows"
        hint = f"; is {split!r} the split?" if skipped[OTHER_SPLIT] else "; rate a table with negatives to train on"
        raise InputError(f"no row to rate: {why}{hint}")
    row = row[np.argsort(query[row], kind="stable")]
    queries, counts = np.unique(query[row], return_counts=True)
    labelled = labels.counts_of(queries) > 0
    offsets = np.concatenate([[0], np.cumsum(counts + labelled)])
    positive = offsets[1:][labelled] - 1
    candidate = np.delete(np.arange(offsets[-1]), positive)
    of = np.empty(offsets[-1], np.int64)
    of[candidate] = np.where(document[row] < 0, -1 - row, document[row])
    of[positive] = labels.doc_rows[labels.offsets[labels.places(queries[labelled])]]
    own = negatives.table["text"] if "text" in negatives.table.column_names else None
    texts = DocumentTexts(collection, of, own)
    doc_ids = _joined_ids(negatives.table["doc_id"].take(pa.array(row)), collection, of[positive], candidate, positive)
    query_ids = collection.queries["query_id"].take(pa.array(queries)).to_pylist()
    shown = Candidates(query_ids, collection.query_texts(queries), offsets, doc_ids, texts.take)
    return Rateable(shown, row, candidate, positive, labelled, {why: n for why, n in skipped.items() if n})


def _joined_ids(
    of_candidates: pa.ChunkedArray, collection: Collection, documents: Rows, candidate: Rows, positive: Rows
) -> ColumnTexts:
    """The ids of negatives and positives at their places, as Arrow has them: Python's strings would take gigabytes."""
    ids = pa.chunked_array([*of_candidates.chunks, *collection.documents["doc_id"].take(pa.array(documents)).chunks])
    return ColumnTexts(ids.take(pa.array(np.argsort(np.concatenate([candidate, positive])))))


PERCENTILES = (10, 25, 50, 75, 90)
BIASED = 0.3  # position bias that casts doubt; at ±½ only the place of a document decides
LITTLE = 0.05  # share of the deviance that ratings explain


@dataclass(frozen=True)
class JudgeSummary:
    """One of several judges.

    Attributes:
        name: of the judge.
        missing: pairs without its judgement.
        position_bias: see `Judgements`.
        agreement: how often it prefers what the mean of the others prefers.
    """

    name: str
    missing: int
    position_bias: float
    agreement: float

    def row(self) -> tuple[str, str]:
        """Return it as a row of a table."""
        facts = [
            f"agrees with the others {number(self.agreement, 2)}",
            f"position bias {number(self.position_bias)}",
            f"missing {self.missing:,}",
        ]
        return f"judge {self.name}", ", ".join(facts)


@dataclass(frozen=True)
class RatingSummary:
    """What a rating did.

    Attributes:
        queries: that were rated.
        without_positive: of them without a labelled positive, whose gaps are against the candidate rated best.
        comparisons: asked for, the direct ones with the positive included.
        missing: of them without a judgement.
        position_bias: see `Judgements`; 0 for a judge that has none by construction.
        position_bias_interval: its 95 % interval, whole queries being what was drawn; NaN for fewer than two.
        unrated: negatives without a gap: none of their judgements, or none of their reference's, succeeded, or the two
            are in parts of the graph that never met.
        skipped: reason -> rows that were not rated at all.
        connectivity: mean algebraic connectivity of the graphs of judged pairs.
        standard_error: median, in Elo points.
        spread: standard deviation of the prior on ratings, in Elo points: that of the ratings themselves, as the
            answers have it, unless it was given.
        dispersion: variance of an answer over that of one yes or no, in (0, 1]; 1 where the prior was given.
        deviance_explained: share of the answers' deviance from coin tosses that the ratings explain.
        judges: each of several judges; none for a single one.
        between: offsets of queries, where there were comparisons between them.
    """

    queries: int
    without_positive: int
    comparisons: int
    missing: int
    position_bias: float
    position_bias_interval: tuple[float, float]
    unrated: int
    skipped: dict[str, int]
    connectivity: float
    standard_error: float
    spread: float
    dispersion: float
    deviance_explained: float
    judges: Sequence[JudgeSummary] = ()
    between: Offsets | None = None

    @property
    def doubts(self) -> list[str]:
        """What speaks against the ratings, in words."""
        doubts = []
        if not abs(self.position_bias) < BIASED:
            doubts.append(
                f"the position bias is {number(self.position_bias)}: the judge goes by the place of a document more "
                "than by what it says; take another judge or question"
            )
        if np.isnan(self.deviance_explained):
            doubts.append("no answer prefers either document: the ratings say nothing; ask a better judge")
        if self.deviance_explained < LITTLE:
            doubts.append(
                f"the ratings explain {100 * self.deviance_explained:.1f} % of the answers' deviance from coin tosses: "
                "they hold little but chance; ask a better judge, or about more pairs"
            )
        return doubts

    def rows(self) -> list[tuple[str, str]]:
        """Return it as rows of a table."""
        return [
            ("queries", f"{self.queries:,}"),
            *([("of them without a positive", f"{self.without_positive:,}")] if self.without_positive else []),
            ("comparisons", f"{self.comparisons:,}"),
            ("judgements missing", f"{self.missing:,}"),
            ("position bias", self._bias()),
            ("negatives without a gap", f"{self.unrated:,}"),
            *((f"not rated: {why}", f"{count:,}") for why, count in self.skipped.items()),
            ("algebraic connectivity, mean", number(self.connectivity, 2)),
            ("standard error, median, Elo", number(self.standard_error, 0)),
            ("spread of ratings (prior), Elo", number(self.spread, 0)),
            ("dispersion of answers", number(self.dispersion, 2)),
            ("deviance explained", number(self.deviance_explained, 2)),
            *(judge.row() for judge in self.judges),
            *(self.between.rows() if self.between is not None else []),
        ]

    def _bias(self) -> str:
        low, high = self.position_bias_interval
        if max(abs(self.position_bias), abs(low), abs(high)) < 1e-9:
            return f"{number(self.position_bias)} (none by construction)"
        return f"{number(self.position_bias)} (95 % interval {number(low)} to {number(high)})"


@dataclass(frozen=True, kw_only=True)
class Rated(Negatives):
    """A table with `elo, elo_se, gap, gap_se`, and every pair that was asked about.

    Attributes:
        source: name of the table that was rated.
        summary: what the rating did.
        candidates: that were compared.
        pairs: that were asked about.
        preference: (m,) of each of them P(first ≻ second); NaN: no answer.
        models: name -> use, of the language models among the judges.
        distilled: the judge that was trained on the answers, or None.
        folder: where that one is.
    """

    source: str
    summary: RatingSummary
    candidates: Candidates = field(repr=False)
    pairs: Pairs = field(repr=False)
    preference: Floats = field(repr=False)
    models: Mapping[str, ModelUse]
    distilled: Distilled | None = field(default=None, repr=False)
    folder: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return what the rating did, percentiles of the gaps, and what language models used."""
        gap = self.table["gap"].to_numpy()
        known = gap[np.isfinite(gap)]
        values = np.percentile(known, PERCENTILES) if len(known) else np.full(len(PERCENTILES), np.nan)
        percentiles = f"gap, percentiles {' '.join(map(str, PERCENTILES))}, Elo"
        return [
            *self.summary.rows(),
            (percentiles, "  ".join(number(value, 0) for value in values)),
            *(row for name, use in self.models.items() for row in use.rows(name)),
        ]

    def tables(self) -> list[Table]:
        """Return what the rating did, and how the distilled judge does."""
        rating = Table(self.title, ("", "value"), self.rows())
        if self.distilled is None:
            return [rating]
        return [rating, Table(f"distilled → {self.folder}", ("", "value"), self.distilled.rows())]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, what the rating did, what language models used, and how the distilled judge does."""
        more: dict[str, Any] = {}
        if self.models:
            more["language_models"] = {name: use.usage.to_json(use.price) for name, use in self.models.items()}
        if self.distilled is not None:
            more["distilled"] = self.distilled.to_json()
        settings, seed = self.provenance["settings"], self.provenance["seed"]
        summary = asdict(self.summary)
        if summary["between"]:
            del summary["between"]["offset"]  # it is in the table
        facts = {"source": self.source, "settings": settings, "seed": seed, **summary, **more}
        return dict(without_nan(facts))


BORDERLINE = (80.0, 150.0)  # gaps, as in `foils.selection`, which is not imported for them alone


def refuse_silence(judges: Sequence[Judge], answers: int) -> None:
    """Raise a FailureError where language models were asked, and each question failed: no table is to look rated."""
    failed = [each for each in judges if isinstance(each, LLMJudge) and each.asked.failures]
    if failed and not answers:
        why = "; ".join(
            f"{each.name} at {each.client.server or 'the default server'}: {each.asked.failures.most_common(1)[0][0]}"
            for each in failed
        )
        raise FailureError(f"no question was answered ({why}); the next run asks them again")


def pairs_of(asking: JudgeSession, settings: RatingSettings, keys: Keys) -> Pairs:
    """Return the pairs to ask about: a random regular graph, or what a budget leaves of it."""
    pairs = regular_pairs(np.diff(asking.candidates.offsets), degree=settings.degree, keys=keys)
    return pairs if settings.budget is None else first_pairs(pairs, asking.affordable(settings.budget))


def answered(asking: JudgeSession, pairs: Pairs, settings: RatingSettings) -> tuple[Pairs, Floats]:
    """Return the pairs that were answered, and the answers; with rounds, of as many pairs as these."""
    if settings.rounds:
        goal = np.diff(pairs.pair_offsets)
        place = np.arange(len(pairs)) - pairs.pair_offsets[pairs.query]
        start = pairs.where(place < pairs.sizes[pairs.query])  # the first cycle
        pairs, preference = ask_adaptively(start, asking, goal=goal, rounds=settings.rounds, model=settings.model)
    else:
        preference = asking(pairs)
    known = np.isfinite(preference)
    return pairs.where(known), preference[known]


def spread_that_fits(asking: JudgeSession, pairs: Pairs, preference: Floats, settings: RatingSettings) -> Spread:
    """The prior that is given, under which an answer counts as one yes or no, or the one that fits the answers.

    Its spread comes from the pairs that were drawn at random alone: those that rounds choose lie close together.
    """
    if isinstance(settings.prior_sd, str):
        rough = spread_of(*asking.first_answered(), model=settings.model)
        return refined(pairs, preference, rough, model=settings.model)
    return Spread(settings.prior_sd)


def rated_table(
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


def gaps_of(ratings: Ratings, reference: Rows, offsets: Rows) -> Floats:
    """(N,) e_reference − e_d in Elo points; NaN where the two cannot be compared."""
    of = np.repeat(reference, np.diff(offsets))
    together = ratings.component[of] == ratings.component
    return np.where(together, ratings.elo[of] - ratings.elo, np.nan)


def direct_answers(asking: JudgeSession, gap: Floats, reference: Rows, *, everywhere: bool) -> Floats:
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
class Fit:
    """Ratings, and what they were fitted to."""

    pairs: Pairs
    preference: Floats
    ratings: Ratings
    spread: Spread

    @classmethod
    def of(cls, pairs: Pairs, preference: Floats, spread: Spread, model: str) -> Fit:
        """Fit the ratings."""
        ratings = ESTIMATORS[model](pairs, preference, prior_sd=spread.prior_sd)
        return cls(pairs, preference, ratings.scaled_errors(spread.dispersion**0.5), spread)

    def lead_errors(self, reference: Rows) -> Floats:
        """Return (N,) the standard errors of e_reference − e_d."""
        errors = lead_errors(self.pairs, self.ratings, reference, prior_sd=self.spread.prior_sd)
        return np.asarray(errors * self.spread.dispersion**0.5)

    def gap_errors(self, reference: Rows, gap: Floats, every: Pairs, judgements: Judgements) -> Floats:
        """Return (N,) the errors of gaps, √((f·se)² + ((κ − 1)·gap)²), f and κ by `order_noise`."""
        lead = self.ratings.rating[every.first] - self.ratings.rating[every.second]
        fitted = LINKS[self.ratings.model].probability(lead)
        factor, shrunken = order_noise(judgements, fitted, self.spread.dispersion)
        if factor == shrunken == 1:
            return self.lead_errors(reference)
        return np.hypot(shrunken * factor * self.lead_errors(reference), (shrunken - 1) * gap)


def summary_of(every: Pairs, judgements: Judgements, rows: Rateable, unrated: int, fit: Fit) -> RatingSummary:
    """Return what a rating did, but for its single judges and the comparisons between queries."""
    ratings, spread = fit.ratings, fit.spread
    known = ratings.elo_error[np.isfinite(ratings.elo_error)]
    return RatingSummary(
        queries=every.queries,
        without_positive=int((~rows.labelled).sum()),
        comparisons=len(every),
        missing=judgements.missing,
        position_bias=judgements.position_bias,
        position_bias_interval=judgements.position_bias_interval(every.query),
        unrated=unrated,
        skipped=rows.skipped,
        connectivity=float(algebraic_connectivity(fit.pairs).mean()),
        standard_error=float(np.median(known)) if len(known) else float("nan"),
        spread=spread.sd * LINKS[ratings.model].elo_per_unit,
        dispersion=spread.dispersion,
        deviance_explained=deviance_explained(fit.pairs, fit.preference, ratings),
    )


def summaries_of(asking: JudgeSession) -> list[JudgeSummary]:
    """Return what a summary says of each of several judges; nothing of a single one."""
    if len(asking.judges) < 2:
        return []
    each = zip(asking.judges, asking.parts, agreements(asking.parts), strict=True)
    return [JudgeSummary(judge.name, own.missing, own.position_bias, float(share)) for judge, own, share in each]
