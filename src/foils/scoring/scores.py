"""The published scores of all sources and their hybrids, in one go, with what lies behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime import seeds
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings
from foils.runtime.results import Result, Table, number
from foils.scoring.gates import (
    Float64s,
    Lexicon,
    Marks,
    ambiguous,
    digest_of_texts,
    gated,
    mnrl_proxy,
    triplet_means,
)
from foils.scoring.measure import (
    CONFIDENCE,
    Measured,
    assign_blocks,
    bootstrap,
    gradient_energies,
    information_sums,
    interval,
    leave_out,
    log_det,
    measure,
)
from foils.scoring.triplets import CONTROL, Target, left_out, make_records

REPLICATES = 1000  # of the bootstrap over blocks of records
CLEARLY = 0.95  # a source whose score may reach this share of the control's is flagged as easy
ALIKE = 0.9  # share of the records that every source has, below which their scores are of different queries
MARGINS = {
    "triplet": "mean over negatives of MaxSim_p − s_n, which fits the published tables",
    "list": "mean over records of MaxSim_p − MaxSim_n (the hardest negative), which is the published text",
}
"""The two readings of Δ. MaxSim_p is the similarity of the query and its most similar labelled positive."""


@dataclass(frozen=True)
class ECI:
    """ECI of a source with what it is made of.

    Attributes:
        value: of the data set: S and Δ' averaged first, combined after (the published form).
        signal: S_n, mean query–negative similarity.
        margin: Δ' by one of `MARGINS`, averaged and then clamped at 0.
        negatives: |N|, negatives per record.
    """

    value: float
    signal: float
    margin: float
    negatives: float


def eci(signal: float, margin: float, negatives: float) -> float:
    """Return ln(1 + |N|) · 2·S·Δ' / (S + Δ') with Δ' = max(0, Δ) (ECI eq. 1, 8–10).

    Args:
        signal: S, mean query–negative similarity; where it is not above 0 the mean counts as 0.
        margin: Δ, best positive less negative (`MARGINS`); below 0 it is unsafe and counts as 0.
        negatives: |N|, negatives per query.
    """
    if signal <= 0 or margin <= 0:
        return 0.0
    return float(np.log1p(negatives) * (2 * signal * margin / (signal + margin)))


def source_eci(record: Rows, s_n: Float64s, best_positive: Float64s, *, margin: str = "triplet") -> ECI:
    """Return ECI of one source from its similarities.

    The text of the paper takes Δ from the hardest negative of a list, its tables do not: there a
    union has a larger margin than a part of it (.192 > .175), and the three hardest negatives a
    smaller one than all (.093 < .175), where the hardest is the same. The mean over negatives
    explains both, and S + Δ is .780 for the two sources whose S and Δ are printed; two of three
    unions at three negatives fit neither reading.

    Args:
        record: (k,) record of each negative, ascending.
        s_n: (k,) similarity of query and negative.
        best_positive: (T,) similarity of each record's query and its most similar labelled positive.
        margin: which Δ, a name of `MARGINS`.
    """
    records, start, counts = np.unique(record, return_index=True, return_counts=True)
    by_triplet = margin == "triplet"
    nearest = np.add.reduceat(s_n, start) / counts if by_triplet else np.maximum.reduceat(s_n, start)
    deltas = best_positive[records] - nearest
    average = float(np.average(deltas, weights=counts if by_triplet else None))
    signal, delta, size = float(s_n.mean()), max(0.0, average), float(counts.mean())
    return ECI(eci(signal, delta, size), signal, delta, size)


def gradient_norm(signal: float, negatives: float, temperature: float) -> float:
    """Return the estimated gradient norm |N|·exp(S/τ), τ > 0 (ECI eq. 11), a heuristic that ECI is compared with."""
    return float(negatives * np.exp(signal / temperature))


def score_variance(highest: float, signal: float) -> float:
    """Return the estimated score variance ½(S_max − S)² (ECI eq. 12), a heuristic that ECI is compared with."""
    return 0.5 * (highest - signal) ** 2


@dataclass(frozen=True)
class ScoreSettings(Settings):
    """How sources are scored.

    Attributes:
        split: Split of the judgements whose positives are used.
        hybrids: Score unions of up to this many sources; 1 scores none.
        temperature: Temperature τ, which divides similarities; 0.05 is 1/20, the scale of
            multiple-negatives ranking.
        regularization: λ of log det(Id + I/λ); the smaller it is, the more diversity counts.
        sample: Compute the published scores of a seeded sample of this many records, those that
            every source covers first. Default: all records.
        seed: Seed of sample, random negatives, blocks and resamplings; the same seed gives the same bytes.
    """

    split: str = "train"
    hybrids: Annotated[int, Option(least=1)] = 2
    temperature: Annotated[float, Option(above=0)] = 0.05
    regularization: Annotated[float, Option(flag="--lambda", above=0)] = 1.0
    sample: Annotated[int | None, Option(least=1)] = None
    seed: Annotated[int, Option(least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class SourceScore:
    """The published scores of one source, hybrid or control; the fields are those of scores.json.

    Attributes:
        records: with at least one of its negatives. `negatives`: N. `dropped`: reason -> number left out (see
            `make_records`).
        eci_sem: log det(Id + I/λ). `eci_sem_low`, `eci_sem_high`: interval of the score that many
            records like these would have; NaN with fewer than two blocks of records, and where no
            interval would cover as often as it says (a small λ, few records).
        trace: tr I/λ, what the score would be without diversity. `diversity`: their difference, in
            [0, trace].
        eci, signal, margin: ECI of the data set, with the margin of triplets, the reading that fits
            the published tables. `eci_list`, `margin_list`: the same with the margin of the list's
            hardest negative, the published text (`foils.scoring.scores.MARGINS`).
        rho, eta, coverage, psi, pair_loss, inversion_rate, buckets: see `triplet_means`.
        control_ratio: score over the control's, with its interval; NaN without a control.
        easy: the score is not clearly below the control's: such negatives are easy, not good. A
            hybrid is easy, too, when one of its parts is: the score of a union is about the mean of
            its parts' scores.
    """

    name: str
    hybrid: bool
    records: int
    negatives: int
    dropped: dict[str, int]
    eci_sem: float
    eci_sem_low: float = math.nan
    eci_sem_high: float = math.nan
    eci_sem_per_dim: float
    trace: float
    diversity: float
    eci: float
    signal: float
    margin: float
    eci_list: float
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
        return dict(without_nan(asdict(self)))


@dataclass(frozen=True)
class Scores(Result):
    """Published scores of several sources.

    Attributes:
        settings: they were made with. `encoder`: name, fingerprint and dimension.
        sources: the sources, then the hybrids.
        control: the random control, or None.
        idf_corpus: kind, number and digest of the texts that idf was counted over.
        collection: name and digest.
        measured: what lies behind, not part of scores.json.
        by: what the ranking goes by, eci_sem or eci.
    """

    settings: ScoreSettings
    encoder: Mapping[str, Any]
    sources: list[SourceScore]
    control: SourceScore | None
    idf_corpus: Mapping[str, Any]
    collection: Mapping[str, str]
    measured: Measured = field(repr=False)
    by: str = "eci_sem"

    @property
    def ranked(self) -> list[SourceScore]:
        """Sources and hybrids by score, highest first, ties in the order given."""
        return sorted(self.sources, key=lambda score: -float(getattr(score, self.by)))

    @property
    def ranking(self) -> list[str]:
        """Their names in that order."""
        return [score.name for score in self.ranked]

    @property
    def warnings(self) -> list[str]:
        """What a reader of the scores has to know, in sentences."""
        records = self.measured.records
        shared = len(records.shared())
        if shared >= ALIKE * len(records):
            return []
        return [
            f"the sources cover different records: {shared:,} of {len(records):,} are in every source; "
            f"score a sample of the shared ones (--sample {max(1, shared)})"
        ]

    def tables(self) -> list[Table]:
        """Return the ranking, best first, with what lies behind it."""
        title = f"Sources of negatives by {'ECI_sem' if self.by == 'eci_sem' else 'ECI'}"
        columns = ["source", "ECI_sem", f"{100 * CONFIDENCE:g} % interval", "÷ control", "ρ", "η", "ψ",
                   "inverted", "MNRL", "ECI", "ECI, list", "records", "negatives", ""]  # fmt: skip
        listed = [*self.ranked, *([self.control] if self.control else [])]
        rows = []
        for each in listed:
            ends = "–" if math.isnan(each.eci_sem_low) else f"{each.eci_sem_low:.4f}–{each.eci_sem_high:.4f}"
            gates = number(each.rho), number(each.eta), number(each.psi), f"{100 * each.inversion_rate:.1f} %"
            others = number(each.mnrl_proxy), number(each.eci), number(each.eci_list)
            counts = f"{each.records:,}", f"{each.negatives:,}", "easy" if each.easy else ""
            scores = number(each.eci_sem, 4), ends, number(each.control_ratio, 2)
            rows.append((each.name, *scores, *gates, *others, *counts))
        notes = [
            f"{len(self.measured.records):,} records of {self.collection['name']} ({self.settings.split}), "
            f"{self.encoder['name']}, τ {self.settings.temperature:g}, λ {self.settings.regularization:g}",
            f"the margin of ECI: {MARGINS['triplet']}; of ECI, list: {MARGINS['list']}",
        ]
        if any(score.easy for score in self.sources):
            notes.append("easy: not clearly below random negatives; its score shows easiness, not quality")
        notes += self.warnings
        notes += [f"{each.name}: left out {left_out(each.dropped)}" for each in self.sources if each.dropped]
        easy = frozenset(index for index, score in enumerate(listed) if score.easy)
        return [Table(title, columns, rows, "\n".join(notes), easy)]

    def to_json(self) -> dict[str, Any]:
        """Return the published part of scores.json."""
        return {
            "encoder": self.encoder["name"],
            "fingerprint": self.encoder["fingerprint"],
            "dim": self.encoder["dimension"],
            "collection": dict(self.collection),
            "split": self.settings.split,
            "temperature": self.settings.temperature,
            "lambda": self.settings.regularization,
            "records": len(self.measured.records),
            "shared_records": len(self.measured.records.shared()),
            "sample": self.settings.sample,
            "seed": self.settings.seed,
            "confidence": CONFIDENCE,
            "idf_corpus": dict(self.idf_corpus),
            "warnings": self.warnings,
            "margins": {"eci": MARGINS["triplet"], "eci_list": MARGINS["list"]},
            "sources": [score.to_json() for score in self.sources],
            "control": self.control.to_json() if self.control else None,
            "ranked_by": self.by,
            "ranking": self.ranking,
        }


def score_sources(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: ScoreSettings | None = None,
    *,
    control: bool = True,
    replicates: int = REPLICATES,
) -> Scores:
    """Score sources of negatives, hybrids and a random control with the frozen encoder training starts from.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: with the prompts and the maximum length of the training.
        store: of vectors; only texts it does not hold yet are encoded, each once, hybrids and
            control included.
        settings: see `ScoreSettings`.
        control: also score random negatives, beside which easy sources show themselves.
        replicates: of the bootstrap over blocks of records; 0 gives no intervals.

    Raises:
        InputError: no negatives, unknown ids, settings out of range.
        FailureError: vectors that are NaN or infinite.
    """
    settings = settings or ScoreSettings()
    records = make_records(
        collection, sources, split=settings.split, sample=settings.sample, control=control, seed=settings.seed
    )
    return score_measured(measure(records, encoder, store, settings.temperature), encoder, settings, replicates)


def score_measured(
    measured: Measured, encoder: Encoder, settings: ScoreSettings, replicates: int = REPLICATES
) -> Scores:
    """Return the published scores of what was measured, the control among it where there is one.

    Args:
        measured: the triplets of the sources and of the control.
        encoder: that they were measured with.
        settings: see `ScoreSettings`; the records are those that are measured.
        replicates: of the bootstrap over blocks of records; 0 gives no intervals.
    """
    records, collection = measured.records, measured.records.collection
    lexicon = Lexicon.of(records)
    measured = measured.with_coverage(lexicon.coverage(records, lexicon.idf(records.corpus)))
    targets, lam = records.targets(settings.hybrids), settings.regularization
    weights = gated(measured.similarities)
    sums = information_sums(measured.geometry, weights, records.members, targets)
    members = [target.of(records.members) for target in targets]
    energies = gradient_energies(
        measured.geometry, measured.s_p, measured.similarities.s_n, members, settings.temperature
    )
    scored = [
        score_target(target, member, measured, sums[target.name], energy, settings)
        for target, member, energy in zip(targets, members, energies.T, strict=True)
    ]
    replicated: dict[str, Float64s] = {}
    if replicates:
        rng = np.random.default_rng([settings.seed, seeds.RESAMPLED])
        blocks = assign_blocks(len(records), rng)
        without = leave_out(measured.geometry, weights, records.members, sums, targets, blocks, regularization=lam)
        replicated = bootstrap({each.name: each.eci_sem for each in scored}, without, rng, replicates=replicates)
        for at, each in enumerate(scored):
            low, high = interval(replicated[each.name])
            scored[at] = replace(each, eci_sem_low=low, eci_sem_high=high)
    # Sources beside the random control; a hybrid with an easy part is easy, too.
    random = next((score for score in scored if score.name == CONTROL), None)
    ranked = [score for score in scored if score is not random]
    if random is not None and random.eci_sem > 0:
        ranked = [_beside_control(score, random, replicated) for score in ranked]
    easy = {score.name for score in ranked if score.easy}
    bits = {target.name: target.bits for target in targets}
    ranked = [replace(score, easy=any(bits[name] & bits[score.name] for name in easy)) for score in ranked]
    corpus = records.texts.select(records.corpus)
    return Scores(
        settings=settings,
        encoder={"name": encoder.name, "fingerprint": encoder.fingerprint, "dimension": encoder.dimension},
        sources=ranked,
        control=random,
        idf_corpus={"kind": "pooled", "texts": len(corpus), "digest": digest_of_texts(corpus)},
        collection={"name": collection.name, "digest": collection.digest},
        measured=measured,
    )


def score_target(
    target: Target, member: Marks, measured: Measured, total: Float64s, energies: Float64s, settings: ScoreSettings
) -> SourceScore:
    """Return the scores of one source, hybrid or control, without intervals.

    Args:
        target: which.
        member: (m,) marks of its triplets.
        measured: all triplets, with their coverage.
        total: (d, d) Σ w·r·rᵀ over its triplets.
        energies: (T,) gradient energy of each record, NaN where it has no negative.
        settings: temperature and λ.
    """
    record, s_n = measured.records.record[member], measured.similarities.s_n[member]
    information = total / len(record)
    eci_sem = log_det(information, settings.regularization)
    trace = float(np.trace(information)) / settings.regularization
    of_triplets, of_lists = (source_eci(record, s_n, measured.best_positive, margin=margin) for margin in MARGINS)
    return SourceScore(
        name=target.name,
        hybrid="+" in target.name,
        records=len(np.unique(record)),
        negatives=len(record),
        dropped=dict(measured.records.dropped.get(target.name, {})),
        eci_sem=eci_sem,
        eci_sem_per_dim=eci_sem / measured.geometry.dimension,
        trace=trace,
        diversity=trace - eci_sem,
        eci=of_triplets.value,
        signal=of_triplets.signal,
        margin=of_triplets.margin,
        eci_list=of_lists.value,
        margin_list=of_lists.margin,
        gradient_energy=float(np.nanmean(energies)),
        mnrl_proxy=float(mnrl_proxy(record, s_n, measured.s_p, settings.temperature).mean()),
        ambiguity=float(ambiguous(record, s_n, measured.s_p).mean()),
        **triplet_means(measured.similarities, member),
    )


def _beside_control(score: SourceScore, control: SourceScore, replicated: Mapping[str, Float64s]) -> SourceScore:
    """Return a score with its ratio to the control's, and if it is easy: it may reach `CLEARLY` of it."""
    ratio = score.eci_sem / control.eci_sem
    of_source, of_control = (replicated.get(name, np.zeros(0)) for name in (score.name, control.name))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(np.divide(of_source, of_control))
    most = ratio if math.isnan(high) else high
    return replace(score, control_ratio=ratio, control_ratio_low=low, control_ratio_high=high, easy=most >= CLEARLY)
