"""The door of rating: from a table of negatives to the same table with `elo, elo_se, gap, gap_se`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import TO_RATE, TOP, Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.vectors import AT_128, EncodingSettings
from foils.llm import AnswerStore, LLMSettings, Purse, Questions, Usage, announce, digest
from foils.rating.estimators import LINKS
from foils.rating.fitting import Fit, Offsets, fit_offsets, fit_ratings
from foils.rating.judges import Judge, JudgeSettings, Opening, QuestionSettings, heeding, open_judge, questions_of
from foils.rating.pairs import (
    Candidates,
    Floats,
    Judgements,
    Pairs,
    Rows,
    algebraic_connectivity,
    candidate_keys,
    pairs_between,
    regular_pairs,
)
from foils.rating.session import Evidence, JudgeSession, answers_between, ask_tried
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings, door, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table, number

log = logging.getLogger(__name__)

OTHER_SPLIT = "query whose positives are in other splits"


@dataclass(frozen=True, kw_only=True)
class RatingSettings(Settings):
    """Which pairs are compared, and how ratings are fitted to the answers.

    Attributes:
        degree: Number of comparisons per candidate; even.
        between: Comparisons with other queries; even. They give each query an offset.
        model: Model of the ratings.
        validate: Negatives that are also compared with the positive directly; borderline is a gap
            of 80 to 150.
    """

    heading = "Rating"

    degree: Annotated[int, Option(least=2)] = 6
    between: Annotated[int | None, Option(least=2)] = None
    model: Annotated[str, Option(flag="--rating-model", names=tuple(LINKS))] = "thurstone"
    validate: Annotated[str, Option(names=("none", "borderline", "all"))] = "none"


@dataclass(frozen=True)
class Rateable:
    """What is rated.

    Attributes:
        candidates: of all queries.
        row, candidate: (r,) rows of the table, and the candidate of each.
        positive: (p,) the candidates that are first labelled positives, each the last one of its query.
        relevant: (k,) these, and the further labelled positives that mining kept.
        labelled: (Q,) whether a query has one.
        skipped: reason -> rows that are not rated.
    """

    candidates: Candidates
    row: Rows
    candidate: Rows
    positive: Rows
    relevant: Rows
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


def rateable(collection: Collection, negatives: Negatives, split: str) -> Rateable:
    """Put each query's kept rows, in the table's order, and its first labelled positive after them.

    A query that is labelled in no split is rated without a positive; one whose positives are in
    other splits alone is not rated. Labelled positives among the rows are rejected already, as
    `as_source` does; those that mining kept to be rated are candidates, too.

    Raises:
        InputError: ids unknown to the collection, or no row to rate.
        UnknownNameError: an unknown split.
    """
    query, texts = negatives.texts_in(collection)
    labels, known = collection.labels(split), collection.known_positives
    place, kept_positive = labels.places(query), np.zeros(len(negatives), bool)
    kept_positive[negatives.rejected_for(TO_RATE)] = True
    first = np.append(labels.first, -1)[place]  # it has a place of its own
    wanted = negatives.keep | (kept_positive & (texts.rows != first))
    elsewhere = wanted & (place < 0) & (known.places(query) >= 0)
    left_out = {"rejected before": ~negatives.keep & ~kept_positive, OTHER_SPLIT: elsewhere}
    skipped = {why: int(marks.sum()) for why, marks in left_out.items() if marks.any()}
    row = np.flatnonzero(wanted & ~elsewhere)
    if not len(row):
        why = ", ".join(f"{n} {why}" for why, n in skipped.items()) or "the table has no rows"
        hint = f"; is {split!r} the split?" if elsewhere.any() else "; rate a table with negatives to train on"
        raise InputError(f"no row to rate: {why}{hint}")
    row = row[np.argsort(query[row], kind="stable")]
    queries = np.unique(query[row])
    labelled = labels.counts_of(queries) > 0
    first = labels.first[labels.places(queries[labelled])]
    query_of = np.concatenate([query[row], queries[labelled]])  # a positive comes after the rows of its query
    order = np.argsort(query_of, kind="stable")
    candidate, positive = np.split(np.argsort(order), [len(row)])
    offsets = np.searchsorted(query_of[order], np.append(queries, len(collection.queries)))
    texts = replace(texts, rows=np.concatenate([texts.select(row).rows, first])[order])
    ids = [
        table["doc_id"].take(pa.array(rows)) for table, rows in ((negatives.table, row), (collection.documents, first))
    ]
    shown = Candidates(
        collection.queries["query_id"].take(pa.array(queries)).to_pylist(), collection.query_texts(queries), offsets,
        pa.chunked_array([*ids[0].chunks, *ids[1].chunks]).take(pa.array(order)), texts.take,
    )  # fmt: skip
    return Rateable(
        candidates=shown,
        row=row,
        candidate=candidate,
        positive=positive,
        relevant=np.append(positive, candidate[kept_positive[row]]),
        labelled=labelled,
        skipped=skipped,
    )


PERCENTILES = (10, 25, 50, 75, 90)


@dataclass(frozen=True, kw_only=True)
class Rated(Negatives):
    """A table with `elo, elo_se, gap, gap_se`, and every pair that was asked about.

    Attributes:
        source: name of the table that was rated.
        summary: what the rating did, by name, as `to_json` has it:
            `queries` that were rated, `without_positive` of them, whose gaps are against the
            candidate rated best; `comparisons` asked for, the direct ones with the positive
            included, `missing` of them without a judgement; `position_bias`, see `Judgements`;
            `order_bias`, the Elo points by which the document shown first leads, as fitted;
            `positives_win`, `orders_agree`, `better_than_chance` and `judge_tested`, see
            `Evidence`; `unrated` negatives without a gap; `skipped`, reason -> rows that were not
            rated at all; `connectivity`, the mean algebraic connectivity of the graphs of judged
            pairs; `standard_error`, the median, `spread` of the prior on ratings, in Elo points;
            `dispersion`, the variance of an answer over that of one yes or no, above 1 for answers
            that come from the same few lists; `between`, of `Offsets` all but the offsets, where
            there were comparisons between queries.
        candidates: that were compared.
        pairs: that were asked about.
        judgements: of all judges together, about these pairs.
        models: name -> use, of the language models among the judges.
    """

    source: str
    summary: Mapping[str, Any]
    candidates: Candidates = field(repr=False)
    pairs: Pairs = field(repr=False)
    judgements: Judgements = field(repr=False)
    models: Mapping[str, Usage]

    def tables(self) -> list[Table]:
        """Return what the rating did, percentiles of the gaps, and what models used."""
        did, gap = self.summary, self.table["gap"].to_numpy()
        known = gap[np.isfinite(gap)]
        values = np.percentile(known, PERCENTILES) if len(known) else np.full(len(PERCENTILES), np.nan)
        rows = [
            ("queries", f"{did['queries']:,}"),
            ("of them without a positive", f"{did['without_positive']:,}"),
            ("comparisons", f"{did['comparisons']:,}"),
            ("judgements missing", f"{did['missing']:,}"),
            ("labelled positives win", number(did["positives_win"])),
            ("both orders agree, correlation", number(did["orders_agree"])),
            ("clearly better than chance", did["judge_tested"]),
            ("position bias", number(did["position_bias"])),
            ("lead of what is shown first, Elo", number(did["order_bias"], 0)),
            ("negatives without a gap", f"{did['unrated']:,}"),
            *((f"not rated: {why}", f"{count:,}") for why, count in did["skipped"].items()),
            ("algebraic connectivity, mean", number(did["connectivity"], 2)),
            ("standard error, median, Elo", number(did["standard_error"], 0)),
            ("spread of ratings (prior), Elo", number(did["spread"], 0)),
            ("dispersion of answers", number(did["dispersion"], 2)),
        ]
        if did["between"] is not None:
            rows.append(("comparisons between queries", f"{did['between']['comparisons']:,}"))
            rows.append(("of them missing", f"{did['between']['missing']:,}"))
            rows.append(("queries without an offset", f"{did['between']['unreached']:,}"))
            rows.append(("spread of queries' offsets, Elo", number(did["between"]["spread"], 0)))
        percentiles = f"gap, percentiles {' '.join(map(str, PERCENTILES))}, Elo"
        rows.append((percentiles, "  ".join(number(value, 0) for value in values)))
        rows += [row for name, use in self.models.items() for row in use.rows(name)]
        return [Table(self.title, ("", "value"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, what the rating did, and what language models used."""
        facts = {"source": self.source, **{name: self.provenance[name] for name in ("settings", "seed")}}
        facts |= self.summary
        if self.models:
            facts["language_models"] = {name: use.to_json() for name, use in self.models.items()}
        return dict(without_nan(facts))


OF_POSITIVES = ("elo", "elo_se", "offset")  # columns that the rows of positives have, too
BORDERLINE = (80.0, 150.0)  # gaps, as in `foils.selection`, which is not imported for them alone


@door(
    needs={
        **dict.fromkeys(("question", "llm"), heeding("question")),
        "between_judge": {"between": True},
        **{name: heeding(name) for name in ("temperature", *EncodingSettings.__dataclass_fields__)},
    }
)
def rate(
    collection: CollectionLike,
    source: SourceLike,
    *,
    judging: JudgeSettings,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    rating: RatingSettings,
    question: QuestionSettings,
    llm: LLMSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Rated:
    """Rate negatives by pairwise judgements: add elo, elo_se, gap and gap_se, in Elo points.

    A query's negatives and its positive, where it has one, are compared in pairs on a sparse random
    graph by a judge, and ratings are fitted to its answers. A gap is the positive's rating less the
    negative's; of a query without a positive that of the candidate rated best. A stopped run
    continues where it was.

    Args:
        split: Split whose positives are rated; all: every split's.
        seed: Seed of the graphs of comparisons.

    Example:
        foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet

    Raises:
        InputError: a collection, source or judge that cannot be read, settings that no judge heeds,
            or nothing to rate.
        FailureError: a judge failed; what it answered is kept.
    """
    opening = Opening(judging, encoding, llm, question, Purse(llm.max_cost))
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    rows = rateable(loaded, named.negatives, split)
    judges, between_judges = _opened(opening, loaded, between=rating.between is not None)
    name = "+".join(each.name for each in judges)
    asking = JudgeSession(judges, rows.candidates, AnswerStore(llm.folder(loaded)))
    keys = candidate_keys(rows.candidates, seed)
    pairs = regular_pairs(np.diff(rows.candidates.offsets), degree=rating.degree, keys=keys)
    questions: list[tuple[Any, Rows, Rows]] = [(judge, pairs.first, pairs.second) for judge in judges]
    if rating.between is not None:
        every = np.ones(pairs.candidates, bool)
        first, second = pairs_between(rows.candidates, every, degree=rating.between, seed=seed).T
        questions += [(judge, first, second) for judge in between_judges]
    paid = [each for each in questions if hasattr(each[0], "questions")]
    announce([(judge.questions.llm, judge.cost(rows.candidates, *ends)) for judge, *ends in paid])
    evidence = ask_tried(asking, pairs, rows.relevant, accepted=judging.accept_judge)
    fit, best, direct = _fit(asking, rows, rating)
    offsets = None
    more = dict[str, Floats]() if direct is None else {"preference": direct}
    if rating.between is not None:
        known = np.isfinite(fit.ratings.elo)
        drawn = pairs_between(rows.candidates, known, degree=rating.between, seed=seed)
        preference = answers_between(between_judges, rows.candidates, *drawn.T)
        offsets = fit_offsets(rows.candidates, drawn, preference, fit.ratings)
        more["offset"] = np.repeat(offsets.offset, np.diff(rows.candidates.offsets))
    models = questions_of([*judges, *between_judges])
    settings: dict[str, Any] = {"split": split, "judge": name, **vars(rating)}
    if judging.between_judge is not None:
        settings["between_judge"] = between_judges[0].name
    if models:
        settings["language_models"] = [each.described for each in models]
    fingerprints = [each.fingerprint for each in judges]
    judged_by = fingerprints[0] if len(judges) == 1 else digest("ensemble", *fingerprints)
    inputs = {"collection": loaded.digest, "source": named.digest, "judge": judged_by}
    table, unrated = rated_table(named.negatives, rows, fit, best, more)
    if offsets is not None and offsets.unreached:
        log.warning(
            "%d queries have no offset: no comparison with others was answered; a regression leaves them out",
            offsets.unreached,
        )
    return Rated.of(
        table,
        provenance=provenance("rate", settings, inputs=inputs, seed=seed, before=named.negatives.provenance),
        title=f"{named.name} rated by {name} ({rating.model})", collection=loaded, split=split, source=named.name,
        summary=_summary(asking, rows, fit, evidence, unrated, offsets),
        candidates=rows.candidates, pairs=asking.pairs, judgements=asking.judgements,
        models=_uses(models),
    )  # fmt: skip


def _opened(opening: Opening, collection: Collection, *, between: bool) -> tuple[list[Judge], list[Judge]]:
    """Return the judges of the ratings and those between queries.

    Raises:
        InputError: a judge cannot be opened, or compares documents of one query alone and is to
            compare queries.
    """
    settings = opening.judges
    judges = others = [open_judge(each, opening, collection) for each in settings.judges]
    if settings.between_judge is not None:
        others = [open_judge(settings.between_judge, opening, collection)]
    for judge in others:
        if between and not hasattr(judge, "between"):
            raise InputError(
                f"the judge {judge.name} compares documents of one query alone; for comparisons between queries give "
                f"{spelled('between_judge')} a language model, a bi-encoder or a cross-encoder"
            )
    return judges, others if between else []


def _uses(models: Sequence[Questions]) -> dict[str, Usage]:
    """What each model used; where several questions are asked of one name, each has a number."""
    names = [each.llm.llm_model for each in models]
    numbers = [names[: at + 1].count(name) for at, name in enumerate(names)]
    called = [name if number == 1 else f"{name} ({number})" for name, number in zip(names, numbers, strict=True)]
    return {name: each.asked for name, each in zip(called, models, strict=True)}


def _fit(asking: JudgeSession, rows: Rateable, settings: RatingSettings) -> tuple[Fit, Rows, Floats | None]:
    """Return the fit, (Q,) the references of gaps, and (N,) direct answers about these, where they are asked."""
    fit = fit_ratings(asking.pairs, asking.answers, model=settings.model)
    best = rows.references(fit.ratings.elo)
    if settings.validate == "none":
        return fit, best, None
    direct = direct_answers(asking, fit.gaps(best), best, everywhere=settings.validate == "all")
    return fit_ratings(asking.pairs, asking.answers, model=settings.model, spread=fit.spread), best, direct


def rated_table(
    negatives: Negatives, rows: Rateable, fit: Fit, best: Rows, more: Mapping[str, Floats]
) -> tuple[Negatives, int]:
    """The table with ratings and gaps, and how many of its rated rows have no gap.

    It has a row for each positive that is rated; candidates that stand for a positive are rejected.

    Args:
        negatives: the table.
        rows: what of it is rated.
        fit: the ratings.
        best: (Q,) the references of gaps.
        more: further columns, (N,) each.
    """
    gap, elo, shown = fit.gaps(best), fit.ratings.elo, rows.candidates
    gap_error = fit.gap_errors(best, gap)
    tops = best[~rows.labelled & np.isfinite(elo[best])]
    gap[tops] = gap_error[tops] = np.nan
    columns = {"elo": elo, "elo_se": fit.ratings.elo_error, "gap": gap, "gap_se": gap_error, **more}
    query_ids = pa.array(shown.query_ids, pa.string()).take(pa.array(shown.query_of(rows.positive)))
    widened, of_positive = negatives.with_rejected(query_ids, shown.ids(rows.positive).cast(pa.string()))
    values = {name: np.full(len(widened), np.nan) for name in columns}
    for name, column in values.items():
        shown_for = np.ones(len(rows.row), bool) if name in OF_POSITIVES else negatives.keep[rows.row]
        column[rows.row[shown_for]] = columns[name][rows.candidate[shown_for]]
        if name in OF_POSITIVES:
            column[of_positive] = columns[name][rows.positive]
    rated, is_top = widened.with_columns(values), np.isin(rows.candidate, tops)
    if len(tops):
        rated = rated.reject(np.isin(np.arange(len(rated)), rows.row[is_top]), TOP)
    return rated, int(np.isnan(gap[rows.candidate[~is_top]]).sum())


def direct_answers(asking: JudgeSession, gap: Floats, reference: Rows, *, everywhere: bool) -> Floats:
    """(N,) P(reference ≻ d | q), asked directly (eq. 35); NaN where there is no answer."""
    wanted = np.ones(len(gap), bool) if everywhere else (gap >= BORDERLINE[0]) & (gap <= BORDERLINE[1])
    wanted[reference] = False
    opposite = np.repeat(reference, np.diff(asking.candidates.offsets))
    asking.ask(Pairs(asking.candidates.offsets, opposite[wanted], np.flatnonzero(wanted)))
    first, second, answers = asking.pairs.first, asking.pairs.second, asking.judgements.preference
    preference, straight, turned = np.full(len(gap), np.nan), opposite[second] == first, opposite[first] == second
    preference[second[straight]], preference[first[turned]] = answers[straight], 1 - answers[turned]
    return np.where(wanted, preference, np.nan)


def _summary(
    asking: JudgeSession, rows: Rateable, fit: Fit, evidence: Evidence, unrated: int, between: Offsets | None
) -> dict[str, Any]:
    judgements, ratings, unit = asking.judgements, fit.ratings, LINKS[fit.ratings.model].elo_per_unit
    errors = ratings.elo_error[np.isfinite(ratings.elo_error)]
    return {
        "queries": fit.pairs.queries,
        "without_positive": int((~rows.labelled).sum()),
        "comparisons": len(asking.pairs),
        "missing": int(np.isnan(judgements.preference).sum()),
        "position_bias": judgements.position_bias,
        "unrated": unrated,
        "skipped": rows.skipped,
        "connectivity": float(algebraic_connectivity(fit.pairs).mean()),
        "standard_error": float(np.median(errors)) if len(errors) else float("nan"),
        "spread": fit.spread.sd * unit,
        "dispersion": fit.spread.dispersion,
        "positives_win": evidence.positives_win,
        "orders_agree": evidence.orders_agree,
        "better_than_chance": evidence.better_than_chance,
        "judge_tested": evidence.verdict,
        "order_bias": ratings.order_bias * unit,
        "between": between and {name: value for name, value in vars(between).items() if name != "offset"},
    }
