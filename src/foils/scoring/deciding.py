"""From a scoring to a decision: survey the pairs, believe, weigh, decide, and say it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.splitting import expected_recurrence
from foils.data.texts import DocumentTexts
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.scoring.answers import Labelled, logits_of
from foils.scoring.belief import LEAST_ODDS, Belief
from foils.scoring.cross_checks import skewed_logs, skewed_shares, with_checks
from foils.scoring.decision import NEXT, Believed, Decision, decide
from foils.scoring.evidence import KnownLogs, bound_of, costs_of, evidence_of, rows_of, shared
from foils.scoring.gates import Float64s
from foils.scoring.intervals import assign_blocks
from foils.scoring.judged import Judged
from foils.scoring.odds import Odds
from foils.scoring.pair_features import survey_pairs
from foils.scoring.prepared import Measured
from foils.scoring.records import CONTROL, Target
from foils.scoring.relevance import Relevance
from foils.scoring.results import Scores
from foils.scoring.settings import BeliefSettings
from foils.scoring.wording import sentences
from foils.scoring.worth import SourceWorth, Worth, in_batch_odds, strengths_of
from foils.statistics.survey import draw, importance

MEANS = 200  # draws that means over the belief are taken of
RECORDS = 2_000  # that the decision looks at, at most, drawn at random
DOCUMENTS = 100_000  # of the collection that ranks are counted among, at most, drawn at random


@dataclass(frozen=True)
class Ground:
    """What decisions rest on, about sources and about parts of them.

    Attributes:
        triplets: (k,) triplets of the scoring that are looked at, ascending.
        logs: (m,) log n_L/n_U of each triplet; NaN where it is not looked at.
        known: log n_L/n_U of labelled positives.
        most: upper bound of o by the pairs.
        judged: which of all triplets are judged, and how.
        block_of: (T,) the block of each record.
        in_batch: (T,) log(M·E[x]) of each record.
        starts: what the training starts from.
        recurrence: R, the share of the queries to come whose relevant documents are positives of training queries too;
            None: the training starts from nothing.
        counted: records that every benefit is a mean over; None: those with a negative of the source.
    """

    triplets: Rows
    logs: Float64s
    known: KnownLogs
    most: float
    judged: Judged
    block_of: Rows
    in_batch: Float64s
    starts: str
    recurrence: float | None = None
    counted: Rows | None = None


@dataclass(frozen=True)
class Decided:
    """A decision, and what it says of each triplet that it looked at.

    Attributes:
        decision: the decision.
        triplets: (k,) triplets of the scoring, ascending.
        false_probability: (k,) π of each, at the mean belief.
        expected: (k,) π of each, the mean over the belief.
        ground: what the decision rests on.
    """

    decision: Decision
    triplets: Rows
    false_probability: Float64s
    expected: Float64s = field(repr=False)
    ground: Ground = field(repr=False)


def decide_sources(
    scores: Scores,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: BeliefSettings | None = None,
    *,
    records: int = RECORDS,
) -> Decided:
    """Decide which of the scored sources to train on.

    It looks at 2,000 records, drawn at random, and those that have labels. Ranks are counted among all documents of
    the collection, or 100,000 that are drawn; those that the store does not hold yet are embedded.

    Args:
        scores: of the sources.
        sources: name -> the table, whose provenance may say how many positives it recaptures.
        encoder: that scored.
        store: of vectors.
        settings: see `BeliefSettings`.
        records: to look at, at most.

    Raises:
        InputError: labels that cannot be read or name unknown ids; fewer than two records.
    """
    settings = settings or BeliefSettings()
    rng = np.random.default_rng([scores.settings.seed, 9])
    decided = decide_on(_ground(scores, encoder, store, settings, records, rng), scores, sources, rng)
    return _with_checks(decided, scores, sources)


def _ground(
    scores: Scores,
    encoder: Encoder,
    store: VectorStore,
    settings: BeliefSettings,
    records: int,
    rng: np.random.Generator,
) -> Ground:
    """Survey the pairs of the records that are looked at."""
    measured, collection = scores.measured, scores.measured.records.collection
    judged = Judged.of(settings.labels, measured.records)
    looked_at = _looked_at(measured, measured.records.record[judged.triplets], records, rng)
    rows, documents = _documents(collection, encoder, store, rng)
    surveyed = survey_pairs(measured, documents, rows, looked_at, rng)
    relevance = Relevance.fit(surveyed, seed=scores.settings.seed)
    logs = np.full(len(measured.records.record), np.nan)
    logs[surveyed.triplets] = np.log(np.maximum(relevance.ratio(surveyed.negatives), LEAST_ODDS))
    block_of = np.zeros(len(measured.records), np.int64)
    block_of[looked_at] = assign_blocks(len(looked_at), rng)
    in_batch = in_batch_odds(
        measured, surveyed.unlabelled, settings.in_batch, scores.settings.temperature, settings.starts
    )
    known = KnownLogs.of(measured, surveyed, np.log(np.maximum(relevance.ratio(surveyed.labelled), LEAST_ODDS)))
    recurrence = recurrence_of(settings, encoder, collection, scores.settings.split)
    return Ground(
        surveyed.triplets, logs, known, relevance.most, judged, block_of, in_batch, settings.starts, recurrence
    )


def recurrence_of(settings: BeliefSettings, encoder: Encoder, collection: Collection, split: str) -> float | None:
    """Return R: as given, or for a static embedding what is expected of the collection, and 1 for other encoders.

    None where the training starts from nothing, since R changes nothing there.

    Args:
        settings: may give R.
        encoder: that training starts from.
        collection: with judgements.
        split: whose queries are trained on.
    """
    if settings.starts == "nothing":
        return None
    if settings.recurrence is not None:
        return settings.recurrence
    return expected_recurrence(collection, split) if getattr(encoder, "static", False) else 1.0


def decide_on(
    ground: Ground,
    scores: Scores,
    sources: Mapping[str, Negatives],
    rng: np.random.Generator,
    *,
    rivals: Sequence[str] = (),
) -> Decided:
    """Decide which of the sources to train on, the pairs having been surveyed.

    Args:
        ground: the survey.
        scores: whose records say which triplets are a source's.
        sources: name -> the table.
        rng: of all draws.
        rivals: names of the sources that are decided between; none: all.
    """
    measured, logs = scores.measured, ground.logs
    targets = [target for target in measured.records.targets(1) if rows_of(target, measured, ground.triplets).any()]
    evidence = [evidence_of(target, sources, measured, ground.triplets, logs, ground.known) for target in targets]
    membership = _membership(targets, measured, ground.triplets)
    belief = Belief(evidence, bound_of(ground.most, evidence, sources, targets), shared(membership))
    valued = [_worth(target, scores, ground, odds) for target, odds in zip(targets, belief.odds, strict=True)]
    labelled = _labelled(ground.judged, targets, measured, logs)
    names = [target.name for target in targets]
    believed = Believed(names, valued, belief, labelled, costs_of(targets, sources), tuple(rivals))
    mean = belief.draw(labelled, np.random.default_rng([scores.settings.seed, 10]), draws=MEANS)
    probability = _probabilities(membership, logs[ground.triplets], mean.lines.mean(axis=0))
    expected = np.zeros(len(probability))
    for lines in mean.lines:
        expected += _probabilities(membership, logs[ground.triplets], lines) / len(mean.lines)
    waiting = _waiting(ground.triplets, ground.judged, probability, targets, measured, logs, rng)
    decision = decide(believed, waiting, _ability(measured), rng, confidence=scores.settings.confidence)
    worths = {**decision.worths, **_hybrids(scores, decision.worths)}
    decision = replace(decision, worths=worths, recurrence=ground.recurrence)
    decision = replace(decision, sentences=tuple(sentences(decision)))
    return Decided(decision, ground.triplets, probability, expected, ground)


def _with_checks(decided: Decided, scores: Scores, sources: Mapping[str, Negatives]) -> Decided:
    """The decision with what stands beside the belief, and with its words."""
    measured, ground, decision = scores.measured, decided.ground, decided.decision
    targets = [target for target in measured.records.targets(1) if target.name in decision.worths]
    skewed = skewed_shares(
        targets, sources, measured, ground.triplets, ground.logs, ground.known, decision.unlabelled_most,
        _labelled(ground.judged, targets, measured, skewed_logs(measured, ground.logs)),
        np.random.default_rng([scores.settings.seed, 10]), draws=MEANS,
    )  # fmt: skip
    worths = with_checks(decision.worths, measured, sources, ground.triplets, decided.expected, ground.judged)
    worths |= {name: replace(worths[name], false_share_skewed=share) for name, share in skewed.items()}
    decision = replace(decision, worths=worths)
    return replace(decided, decision=replace(decision, sentences=tuple(sentences(decision))))


def _looked_at(measured: Measured, needed: Rows, count: int, rng: np.random.Generator) -> Rows:
    drawn = rng.permutation(len(measured.records))[:count]
    return np.unique(np.concatenate([drawn, needed]))


def _documents(
    collection: Collection, encoder: Encoder, store: VectorStore, rng: np.random.Generator
) -> tuple[Rows, Any]:
    """Rows and vectors of the documents that ranks are counted among."""
    rows = np.arange(len(collection.documents))
    if len(rows) > DOCUMENTS:
        rows = np.sort(rng.choice(rows, DOCUMENTS, replace=False))
    return rows, store.embed(encoder, DocumentTexts(collection, rows), "document")


def _worth(target: Target, scores: Scores, ground: Ground, odds: Odds) -> Worth:
    measured = scores.measured
    own = ground.triplets[rows_of(target, measured, ground.triplets)]
    temperature = scores.settings.temperature
    parts, learnabilities = strengths_of(measured, own, ground.in_batch, temperature, ground.starts, ground.recurrence)
    record = measured.records.record[own]
    return Worth.of(parts, learnabilities, odds, record, ground.block_of, ground.counted)


def _membership(targets: list[Target], measured: Measured, triplets: Rows) -> Float64s:
    """(n, S): 1/(number of sources) where the source has the triplet."""
    has = np.column_stack([rows_of(target, measured, triplets) for target in targets]).astype(np.float64)
    return np.asarray(has / np.maximum(has.sum(axis=1, keepdims=True), 1))


def _labelled(judged: Judged, targets: list[Target], measured: Measured, logs: Float64s) -> Labelled:
    membership = _membership(targets, measured, judged.triplets)
    return Labelled(judged.relevant, membership, logs[judged.triplets], judged.programs, judged.answers)


def _probabilities(membership: Float64s, logs: Float64s, lines: Float64s) -> Float64s:
    return np.asarray(expit(logits_of(membership, logs, lines)))


def _waiting(
    triplets: Rows,
    judged: Judged,
    probability: Float64s,
    targets: list[Target],
    measured: Measured,
    logs: Float64s,
    rng: np.random.Generator,
) -> Labelled:
    """The pairs that would be judged next, drawn as `foils label --draw uncertain` draws them."""
    sources = [target for target in targets if target.name != CONTROL]
    members = [np.flatnonzero(rows_of(target, measured, triplets)) for target in sources]
    sizes = importance(members, len(triplets), belief=probability)
    sizes[np.isin(triplets, judged.triplets[~np.isnan(judged.relevant)])] = 0.0
    chosen = triplets[draw(sizes, rng.random(len(sizes)), max(NEXT)).rows]
    return Labelled(np.zeros(len(chosen)), _membership(targets, measured, chosen), logs[chosen])


def _ability(measured: Measured) -> float:
    """Share of random negatives that the encoder puts below the positive; NaN without a control."""
    records = measured.records
    control = next((target for target in records.targets(1) if target.name == CONTROL), None)
    if control is None:
        return math.nan
    member = control.of(records.members)
    return float((measured.similarities.s_n[member] < measured.s_p[records.record[member]]).mean())


def _hybrids(scores: Scores, worths: Mapping[str, SourceWorth]) -> dict[str, SourceWorth]:
    """Hybrids that take turns: the means of their parts."""
    hybrids = {}
    for score in scores.sources:
        parts = [worths[name] for name in score.name.split("+") if name in worths]
        if not score.hybrid or len(parts) < score.name.count("+") + 1:
            continue
        means: dict[str, Any] = {
            name: float(np.mean([getattr(part, name) for part in parts]))
            for name in SourceWorth.__dataclass_fields__
            if name not in ("name", "verdict", "best_with_probability", "contradicted")
        }
        hybrids[score.name] = SourceWorth(name=score.name, verdict="", best_with_probability=0.0, **means)
    return hybrids
