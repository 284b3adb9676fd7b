"""Which source of negatives to train on: all scores of all sources and their hybrids, in one go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.similarity import check_temperature_of
from foils.encode.vectors import VectorStore
from foils.scoring.diagnostics import ambiguous, mnrl_proxy, triplet_means
from foils.scoring.eci import MARGINS, source_eci
from foils.scoring.gates import Float64s, gated
from foils.scoring.information import TargetMoments, effective_rank, log_det, target_moments
from foils.scoring.intervals import Bootstrap, assign_blocks, bootstrap, leave_out
from foils.scoring.measure import gradient_energies
from foils.scoring.prepared import Measured, Prepared, measure, prepare
from foils.scoring.records import CONTROL, Target
from foils.scoring.results import Scores, SourceScore
from foils.scoring.settings import ScoreSettings

CLEARLY = 0.95  # a source whose score may reach this share of the control's is flagged as easy


def score_sources(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: ScoreSettings | None = None,
) -> Scores:
    """Score sources of negatives, their hybrids and a random control with the frozen encoder training starts from.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: with the prompts and the maximum length of the training.
        store: of vectors; only texts it does not hold yet are encoded, each once, hybrids and control included.
        settings: see `ScoreSettings`.

    Raises:
        InputError: no negatives, unknown ids, settings out of range.
        FailureError: vectors that are NaN or infinite.
    """
    settings = settings or ScoreSettings()
    check_temperature_of(getattr(encoder, "similarity", "cosine"), settings.temperature)
    return score_prepared(prepare(collection, sources, **settings.preparation()), encoder, store, settings)


def score_prepared(prepared: Prepared, encoder: Encoder, store: VectorStore, settings: ScoreSettings) -> Scores:
    """Score what `prepare` made ready; the settings must be those it was made with."""
    records, collection = prepared.records, prepared.records.collection
    measured = measure(prepared, encoder, store, settings.temperature)
    targets = records.targets(settings.hybrids)
    weights = gated(measured.similarities, settings.temperature)
    moments = target_moments(measured.geometry, weights, records.members, targets)
    replicates = _replicates(measured, weights, moments, targets, settings)
    scored = _score_targets(measured, moments, replicates, targets, settings)
    control = next((score for score in scored if score.name == CONTROL), None)
    ranked = [_against(score, control, replicates, settings) for score in scored if score is not control]
    easy = {score.name for score in ranked if score.easy}
    bits = {target.name: target.bits for target in targets}
    ranked = [replace(score, easy=any(bits[name] & bits[score.name] for name in easy)) for score in ranked]
    return Scores(
        settings=settings,
        encoder={"name": encoder.name, "fingerprint": encoder.fingerprint, "dimension": encoder.dimension},
        sources=ranked,
        control=control,
        idf_corpus=prepared.idf_corpus,
        collection={"name": collection.name, "digest": collection.digest},
        measured=measured,
        moments=moments,
        replicates=replicates,
    )


def _replicates(
    measured: Measured, weights: Float64s, moments: TargetMoments, targets: list[Target], settings: ScoreSettings
) -> Bootstrap:
    if not settings.replicates:
        return Bootstrap()
    rng = np.random.default_rng([settings.seed, 3])
    blocks, lam = assign_blocks(len(measured.records), rng), settings.regularization
    scores = {target.name: log_det(moments.of(target).information(), lam) for target in targets}
    left_out = leave_out(
        measured.geometry, weights, measured.records.members, moments, targets, blocks, regularization=lam
    )
    return bootstrap(scores, left_out, rng, replicates=settings.replicates)


def _score_targets(
    measured: Measured,
    moments: TargetMoments,
    replicates: Bootstrap,
    targets: list[Target],
    settings: ScoreSettings,
) -> list[SourceScore]:
    records = measured.records
    members = [target.of(records.members) for target in targets]
    energies = gradient_energies(
        measured.geometry, measured.s_p, measured.similarities.s_n, members, settings.temperature
    )
    found = []
    for index, (target, member) in enumerate(zip(targets, members, strict=True)):
        information = moments.of(target).information()
        score = log_det(information, settings.regularization)
        trace = float(np.trace(information)) / settings.regularization
        low, high = replicates.interval(target.name, settings.confidence)
        record, s_n = records.record[member], measured.similarities.s_n[member]
        old, by_list = (source_eci(record, s_n, measured.best_positive, margin=margin) for margin in MARGINS)
        means = triplet_means(measured.gates, member)
        found.append(
            SourceScore(
                name=target.name,
                hybrid=target.parts > 1,
                records=len(np.unique(record)),
                negatives=int(member.sum()),
                dropped=dict(records.dropped.get(target.name, {})),
                eci_sem=score,
                eci_sem_low=low,
                eci_sem_high=high,
                eci_sem_bias=replicates.bias.get(target.name, math.nan),
                interval_covers=replicates.covers(target.name),
                eci_sem_per_dim=score / measured.geometry.dimension,
                trace=trace,
                diversity=trace - score,
                effective_rank=effective_rank(information),
                eci=old.value,
                eci_per_query=old.per_query,
                signal=old.signal,
                margin=old.margin,
                eci_list=by_list.value,
                eci_list_per_query=by_list.per_query,
                margin_list=by_list.margin,
                gradient_energy=float(np.nanmean(energies[:, index])),
                mnrl_proxy=float(mnrl_proxy(record, s_n, measured.s_p, settings.temperature).mean()),
                ambiguity=float(ambiguous(record, s_n, measured.s_p).mean()),
                **asdict(means),
            )
        )
    return found


def _against(
    score: SourceScore, control: SourceScore | None, replicates: Bootstrap, settings: ScoreSettings
) -> SourceScore:
    """Add the comparison with the control: easy where the ratio's interval reaches CLEARLY (0.95)."""
    if control is None or control.eci_sem <= 0:
        return score
    ratio = score.eci_sem / control.eci_sem
    low, high = replicates.ratio_interval(score.name, CONTROL, settings.confidence)
    bound = ratio if math.isnan(high) else high
    return replace(score, control_ratio=ratio, control_ratio_low=low, control_ratio_high=high, easy=bound >= CLEARLY)
