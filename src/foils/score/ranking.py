"""Which source of negatives to train on: all scores of all sources and their hybrids, in one go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.errors import InputError
from foils.score.diagnostics import ambiguous, mnrl_proxy, triplet_means
from foils.score.eci import MARGINS, source_eci
from foils.score.gates import check_temperature, gated
from foils.score.information import (
    BlockedMoments,
    Bootstrap,
    assign_blocks,
    blocked_moments,
    bootstrap,
    check_regularization,
    effective_rank,
    log_det,
)
from foils.score.measure import gradient_energies
from foils.score.prepared import Measured, Prepared, measure, prepare
from foils.score.records import CONTROL, Target

CLEARLY = 0.95  # a source whose score may reach this share of the control's is flagged as easy


@dataclass(frozen=True)
class ScoreSettings:
    """How sources are scored.

    Attributes:
        split: whose positives.
        hybrids: score unions of up to this many sources; 1: none.
        temperature: τ, divides similarities.
        regularization: λ of log det(Id + I/λ).
        sample: number of records, seeded; None: all.
        tokenizer: of the lexical coverage, a name of `foils.data.tokens.TOKENIZERS`.
        idf_corpus: a name of `foils.score.lexical.IDF_CORPORA`.
        control: score random negatives beside the sources.
        replicates: of the bootstrap over blocks of records.
        confidence: of the intervals.
        seed: of sample, control, blocks and bootstrap.
    """

    split: str = "train"
    hybrids: int = 2
    temperature: float = 0.05
    regularization: float = 1.0
    sample: int | None = None
    tokenizer: str = "alphanumeric"
    idf_corpus: str = "pooled"
    control: bool = True
    replicates: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_regularization(self.regularization)
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence {self.confidence}; expected a share between 0 and 1")
        if self.hybrids < 1:
            raise InputError(f"hybrids {self.hybrids}; expected 1 (none) or the largest number of sources to unite")
        if self.sample is not None and self.sample < 1:
            raise InputError(f"sample {self.sample}; expected at least 1 record")
        if self.replicates < 0:
            raise InputError(f"replicates {self.replicates}; expected 0 (no intervals) or more")
        if self.seed < 0:
            raise InputError(f"seed {self.seed}; expected 0 or above")

    def preparation(self) -> dict[str, Any]:
        """Return the settings that `prepare` takes."""
        names = ("split", "sample", "control", "tokenizer", "idf_corpus", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class SourceScore:
    """Everything said of one source, hybrid or control; the fields are those of scores.json.

    Attributes:
        records: with at least one of its negatives. `negatives`: N. `dropped`: reason -> number left out (see
            `make_records`).
        eci_sem: log det(Id + I/λ), with the bootstrap interval `eci_sem_low`, `eci_sem_high` (NaN: not to be had).
        trace: tr I/λ, what the score would be without diversity. `diversity`: their difference, in [0, trace].
        effective_rank: of I.
        eci, signal, margin: ECI of the data set, with the margin of triplets, the reading that fits the published
            tables. `eci_per_query`: mean of each record's own. `eci_list`, `eci_list_per_query`, `margin_list`: the
            same with the margin of the list's hardest negative, the published text (`foils.score.eci.MARGINS`).
        control_ratio: score over the control's, with its interval; NaN without a control.
        easy: the score is not clearly below the control's: such negatives are easy, not good. A hybrid is easy,
            too, when one of its parts is: the score of a union is about the mean of its parts' scores.
    """

    name: str
    hybrid: bool
    records: int
    negatives: int
    dropped: dict[str, int]
    eci_sem: float
    eci_sem_low: float
    eci_sem_high: float
    eci_sem_per_dim: float
    trace: float
    diversity: float
    effective_rank: float
    eci: float
    eci_per_query: float
    signal: float
    margin: float
    eci_list: float
    eci_list_per_query: float
    margin_list: float
    rho: float
    eta: float
    coverage: float
    psi: float
    pair_loss: float
    inversion_rate: float
    gradient_energy: float
    mnrl_proxy: float
    ambiguity: float
    buckets: dict[str, float]
    control_ratio: float = math.nan
    control_ratio_low: float = math.nan
    control_ratio_high: float = math.nan
    easy: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with null for what is NaN or infinite."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Scores:
    """Scores of several sources.

    Attributes:
        settings: they were made with. `encoder`: name, fingerprint and dimension.
        sources: the sources, then the hybrids.
        control: the random control, or None.
        idf_corpus: kind, number of texts, digest.
        collection: name and digest.
        measured: what lies behind, not part of scores.json.
        moments: information sums, for other λ. `replicates`: of the bootstrap.
    """

    settings: ScoreSettings
    encoder: Mapping[str, Any]
    sources: list[SourceScore]
    control: SourceScore | None
    idf_corpus: Mapping[str, Any]
    collection: Mapping[str, str]
    measured: Measured = field(repr=False)
    moments: BlockedMoments = field(repr=False)
    replicates: Bootstrap = field(repr=False)

    @property
    def ranking(self) -> list[str]:
        """Names of sources and hybrids by ECI_sem, highest first, ties in the order given."""
        return [score.name for score in sorted(self.sources, key=lambda score: -score.eci_sem)]

    def to_json(self) -> dict[str, Any]:
        """Return scores.json."""
        return {
            "encoder": self.encoder["name"],
            "fingerprint": self.encoder["fingerprint"],
            "dim": self.encoder["dimension"],
            "collection": dict(self.collection),
            "split": self.settings.split,
            "temperature": self.settings.temperature,
            "lambda": self.settings.regularization,
            "records": len(self.measured.records),
            "sample": self.settings.sample,
            "seed": self.settings.seed,
            "confidence": self.settings.confidence,
            "tokenizer": self.settings.tokenizer,
            "idf_corpus": dict(self.idf_corpus),
            "margins": {"eci": MARGINS["triplet"], "eci_list": MARGINS["list"]},
            "sources": [score.to_json() for score in self.sources],
            "control": self.control.to_json() if self.control else None,
            "ranking": self.ranking,
        }


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
    return score_prepared(prepare(collection, sources, **settings.preparation()), encoder, store, settings)


def score_prepared(prepared: Prepared, encoder: Encoder, store: VectorStore, settings: ScoreSettings) -> Scores:
    """Score what `prepare` made ready; the settings must be those it was made with."""
    records, collection = prepared.records, prepared.records.collection
    measured = measure(prepared, encoder, store, settings.temperature)
    rng = np.random.default_rng([settings.seed, 3])
    weights = gated(measured.similarities, settings.temperature)
    moments = blocked_moments(measured.geometry, weights, records.members, assign_blocks(len(records), rng))
    targets = records.targets(settings.hybrids)
    replicates = bootstrap(
        moments, targets, rng, regularization=settings.regularization, replicates=settings.replicates
    )
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


def _score_targets(
    measured: Measured,
    moments: BlockedMoments,
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
