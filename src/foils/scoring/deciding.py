"""From a scoring to a decision: survey the pairs, believe, weigh, decide, and say it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.labels import Labels, LabelsLike
from foils.data.negatives import Negatives, negatives_table
from foils.data.recapture import Recapture
from foils.data.texts import DocumentTexts
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings
from foils.scoring.belief import Belief, Evidence, Labelled
from foils.scoring.compose import triplets_of_rows
from foils.scoring.decision import NEXT, Believed, Decision, decide
from foils.scoring.gates import Float64s
from foils.scoring.intervals import assign_blocks
from foils.scoring.pair_features import survey_pairs
from foils.scoring.prepared import Measured
from foils.scoring.records import CONTROL, Target
from foils.scoring.relevance import Relevance
from foils.scoring.results import Scores
from foils.scoring.wording import sentences
from foils.scoring.worth import STARTS, SourceWorth, Worth, in_batch_odds, strengths_of

RECORDS = 2_000  # that the decision looks at, at most, drawn at random
DOCUMENTS = 100_000  # of the collection that ranks are counted among, at most, drawn at random
COUNTED, UNCOUNTED, OUTSIDE = 0.05, 0.6, 1.0  # σ: what a rate may be wrong by beside chance
SLACK = 1.05
SURELY = 10.0  # recaptured positives of a source whose rate bounds o
COSTS = {"random": 1, "bm25": 2, "dense": 3, "trisampler": 3, "ance": 4, "cross-encoder": 5, "llm": 6}
UNKNOWN_COST = 4
RANKED_BY = ("benefit", "eci_sem", "eci")

if TYPE_CHECKING:
    LabelsGiven = LabelsLike
else:
    LabelsGiven = str


@dataclass(frozen=True)
class DecisionSettings(Settings):
    """How the decision is made.

    Attributes:
        labels: File of judged pairs, as `foils label` writes it. In Python also Labels, or a DataFrame.
        rank_by: What the ranking goes by: the benefit, or a published score. By a published score nothing is decided,
            and the collection's other documents need no vectors, unless labels are given.
        starts: What the training starts from: the encoder that scores, or nothing, as a reranker from a masked language
            model does.
        in_batch: Negatives that a query has in its batch anyway, as random documents; 0 for a loss of the list alone.
    """

    heading = "Decision"

    labels: Annotated[LabelsGiven | None, Option(metavar="FILE")] = None
    rank_by: Annotated[str, Option(names=RANKED_BY)] = "benefit"
    starts: Annotated[str, Option(names=STARTS)] = "encoder"
    in_batch: Annotated[int, Option(least=0)] = 127


@dataclass(frozen=True)
class Decided:
    """A decision, and what it says of each triplet that it looked at.

    Attributes:
        decision: the decision.
        triplets: (k,) triplets of the scoring, ascending.
        false_probability: (k,) π of each, at the mean belief.
    """

    decision: Decision
    triplets: Rows
    false_probability: Float64s


def decide_sources(
    scores: Scores,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: DecisionSettings | None = None,
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
        settings: see `DecisionSettings`.
        records: to look at, at most.

    Raises:
        InputError: labels that cannot be read or name unknown ids; fewer than two records.
    """
    settings = settings or DecisionSettings()
    measured, collection = scores.measured, scores.measured.records.collection
    rng = np.random.default_rng([scores.settings.seed, 9])
    judged, relevant = _judged(settings.labels, measured)
    looked_at = _looked_at(measured, measured.records.record[judged], records, rng)
    rows, documents = _documents(collection, encoder, store, rng)
    surveyed = survey_pairs(measured, documents, rows, looked_at, rng)
    relevance = Relevance.fit(surveyed, seed=scores.settings.seed)
    logs = np.full(len(measured.records.record), np.nan)
    logs[surveyed.triplets] = np.log(np.maximum(relevance.ratio(surveyed.negatives), 1e-12))
    targets = [target for target in measured.records.targets(1) if _rows_of(target, measured, surveyed.triplets).any()]
    evidence = [_evidence(target, sources, measured, surveyed.triplets, logs) for target in targets]
    belief = Belief(evidence, _bound(relevance.most, evidence, sources, targets))
    block_of = np.zeros(len(measured.records), np.int64)
    block_of[looked_at] = assign_blocks(len(looked_at), rng)
    in_batch = in_batch_odds(
        measured, surveyed.unlabelled, settings.in_batch, scores.settings.temperature, settings.starts
    )
    worths = [
        _worth(target, scores, surveyed.triplets, logs, block_of, in_batch, settings.starts) for target in targets
    ]
    labelled = _labelled(judged, relevant, targets, measured, logs)
    believed = Believed([target.name for target in targets], worths, belief, labelled, _costs(targets, sources))
    mean = belief.draw(labelled, np.random.default_rng([scores.settings.seed, 10]), draws=200)
    probability = _probabilities(targets, measured, surveyed.triplets, logs, mean.shifts.mean(axis=0))
    waiting = _waiting(surveyed.triplets, judged, probability, targets, measured, logs, rng)
    decision = decide(believed, waiting, _ability(measured), rng, confidence=scores.settings.confidence)
    worths_of_all = {**decision.worths, **_hybrids(scores, decision.worths)}
    decision = replace(decision, worths=worths_of_all)
    return Decided(replace(decision, sentences=tuple(sentences(decision))), surveyed.triplets, probability)


def _judged(labels: Any, measured: Measured) -> tuple[Rows, Float64s]:
    """Triplets that are judged, each once, and whether their negative is relevant."""
    if labels is None:
        return np.zeros(0, np.int64), np.zeros(0)
    records = measured.records
    given = Labels.of(labels, records.collection)
    relevant = given.match(given.table)[0]
    for program in given.programs():
        relevant = np.where(np.isnan(relevant), given.match(given.table, judge=program)[0], relevant)
    if np.isnan(relevant).all():
        raise InputError("labels without a judgement; judge some pairs first (foils label), or leave the labels out")
    count = len(given)
    table = negatives_table(
        given.table["query_id"], given.table["doc_id"], "labels", np.zeros(count, np.int64), np.zeros(count)
    ).append_column("text", given.table["text"])
    triplet = triplets_of_rows(Negatives(table), records)
    known = (triplet >= 0) & ~np.isnan(relevant)
    if not known.any():
        raise InputError("none of the judged pairs is a negative of these sources; give the labels that belong to them")
    judged, first = np.unique(triplet[known], return_index=True)
    return judged, relevant[known][first]


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


def _rows_of(target: Target, measured: Measured, triplets: Rows) -> Any:
    return target.of(measured.records.members[triplets])


def _evidence(
    target: Target, sources: Mapping[str, Negatives], measured: Measured, triplets: Rows, logs: Float64s
) -> Evidence:
    """What is known of a source before labels: its recaptured positives, or the pairs alone."""
    own = triplets[_rows_of(target, measured, triplets)]
    ratios = np.exp(logs[own])
    negatives = sources.get(target.name)
    if negatives is None:  # the control: random documents, of which any may be relevant
        return Evidence(ratios, math.nan, UNCOUNTED)
    outside = float((np.asarray(measured.records.texts.rows)[measured.records.document[own]] < 0).mean())
    recapture = Recapture.of_table(negatives)
    if recapture is None or not recapture.kept:
        return Evidence(ratios, math.nan, OUTSIDE if outside > 0.5 else UNCOUNTED)
    error = math.sqrt(recapture.returned) if recapture.standard_error is None else recapture.standard_error
    counted = max(recapture.returned, 0.5)
    return Evidence(ratios, counted / recapture.kept, math.hypot(max(error, 0.5) / counted, COUNTED))


def _bound(most: float, evidence: list[Evidence], sources: Mapping[str, Negatives], targets: list[Target]) -> float:
    """ō: no source can have more false negatives than it has negatives."""
    bounds = [most]
    for each, target in zip(evidence, targets, strict=True):
        recapture = Recapture.of_table(sources[target.name]) if target.name in sources else None
        if recapture is not None and recapture.returned >= SURELY:
            bounds.append(math.exp(2.6 * each.spread) / each.rate)
    return SLACK * min(bounds)


def _worth(
    target: Target,
    scores: Scores,
    triplets: Rows,
    logs: Float64s,
    block_of: Rows,
    in_batch: Float64s,
    starts: str,
) -> Worth:
    measured = scores.measured
    own = triplets[_rows_of(target, measured, triplets)]
    parts, learnabilities = strengths_of(measured, own, in_batch, scores.settings.temperature, starts)
    return Worth.of(parts, learnabilities, logs[own], measured.records.record[own], block_of)


def _membership(targets: list[Target], measured: Measured, triplets: Rows) -> Float64s:
    """(n, S): 1/(number of sources) where the source has the triplet."""
    has = np.column_stack([_rows_of(target, measured, triplets) for target in targets]).astype(np.float64)
    return np.asarray(has / np.maximum(has.sum(axis=1, keepdims=True), 1))


def _labelled(judged: Rows, relevant: Float64s, targets: list[Target], measured: Measured, logs: Float64s) -> Labelled:
    return Labelled(relevant, _membership(targets, measured, judged), logs[judged])


def _probabilities(
    targets: list[Target], measured: Measured, triplets: Rows, logs: Float64s, shifts: Float64s
) -> Float64s:
    from scipy.special import expit

    probabilities: Float64s = expit(_membership(targets, measured, triplets) @ shifts + logs[triplets])
    return probabilities


def _waiting(
    triplets: Rows,
    judged: Rows,
    probability: Float64s,
    targets: list[Target],
    measured: Measured,
    logs: Float64s,
    rng: np.random.Generator,
) -> Labelled:
    """The pairs that would be judged next, drawn nearly as `foils label --draw uncertain` does."""
    has = np.column_stack([_rows_of(target, measured, triplets) for target in targets]).astype(np.float64)
    size = (has / np.maximum(has.sum(axis=0), 1)).sum(axis=1) * np.sqrt(probability * (1 - probability))
    size[np.isin(triplets, judged)] = 0.0
    order = rng.random(len(size)) / np.maximum(size, 1e-300)
    chosen = triplets[np.argsort(order, kind="stable")[: max(NEXT)]]
    return Labelled(np.zeros(len(chosen)), _membership(targets, measured, chosen), logs[chosen])


def _ability(measured: Measured) -> float:
    """Share of random negatives that the encoder puts below the positive; NaN without a control."""
    records = measured.records
    control = next((target for target in records.targets(1) if target.name == CONTROL), None)
    if control is None:
        return math.nan
    member = control.of(records.members)
    return float((measured.similarities.s_n[member] < measured.s_p[records.record[member]]).mean())


def _costs(targets: list[Target], sources: Mapping[str, Negatives]) -> list[int]:
    costs = []
    for target in targets:
        if target.name == CONTROL:
            costs.append(0)
            continue
        ways = {str(way) for way in sources[target.name].table["source"].unique().to_pylist()}
        costs.append(max((COSTS.get(way, UNKNOWN_COST) for way in ways), default=UNKNOWN_COST))
    return costs


def _hybrids(scores: Scores, worths: Mapping[str, SourceWorth]) -> dict[str, SourceWorth]:
    """Hybrids that take turns: the means of their parts."""
    hybrids = {}
    for score in scores.sources:
        parts = [worths[name] for name in score.name.split("+") if name in worths]
        if not score.hybrid or len(parts) < score.name.count("+") + 1:
            continue
        means = {
            name: float(np.mean([getattr(part, name) for part in parts]))
            for name in SourceWorth.__dataclass_fields__
            if name not in ("name", "verdict", "best_with_probability")
        }
        hybrids[score.name] = SourceWorth(name=score.name, verdict="", best_with_probability=0.0, **means)
    return hybrids
