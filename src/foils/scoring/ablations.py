"""The published analyses of a scoring, from what it measured: nothing is embedded again.

Each ablation scores all sources and hybrids under several settings, one of which is the scoring's own, and says how
stable their order is: the share of pairs, within sources and within hybrids, that stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from foils.data.collection import Rows
from foils.data.tokens import TOKENIZERS
from foils.runtime import progress
from foils.scoring.eci import MARGINS, gradient_norm, score_variance, source_eci
from foils.scoring.gates import WEIGHTINGS, Float64s, gated
from foils.scoring.information import effective_rank, log_det, target_moments
from foils.scoring.lexical import Lexicon
from foils.scoring.measure import Geometry
from foils.scoring.prepared import Measured
from foils.scoring.records import CONTROL, Target
from foils.scoring.results import Scores
from foils.statistics.agreement import rank_stability

SHARES = (0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.03, 0.05, 0.1)
LAMBDAS = (1.0, 0.1, 0.01, 0.001, 0.0001)
OWN = "own"  # idf over each source's own documents


@dataclass(frozen=True)
class Ablation:
    """Scores of all targets under several settings.

    Attributes:
        name: what varies. `base`: the setting that is the scoring's own.
        scores: setting -> target -> ECI_sem (NaN: the sample has none of the target's triplets).
        stability: setting -> {"sources", "hybrids"} -> share of pairs in the base's order (NaN: fewer than two).
    """

    name: str
    base: str
    scores: Mapping[str, Mapping[str, float]]
    stability: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Spectrum:
    """What λ does to one target's score.

    Attributes:
        name: of the target. `effective_rank`: of its information I.
        score: λ -> log det(Id + I/λ). `trace`: λ -> tr I/λ, the score were all directions counted apart.
        diversity: λ -> 1 − score/trace in [0, 1), the share that repeated directions take away.
        volume: λ -> score over its largest value at this trace, d·log(1 + tr I/(dλ)), in (0, 1].
    """

    name: str
    effective_rank: float
    score: Mapping[str, float]
    trace: Mapping[str, float]
    diversity: Mapping[str, float]
    volume: Mapping[str, float]


@dataclass(frozen=True)
class OldScores:
    """ECI of one target in its variants, and the heuristics it was compared with (ECI Tables 3–6).

    Attributes:
        name: of the target. `eci`: harmonic, data set first, with the margin of triplets. `arithmetic`: Table 5's mean.
            `hardest_3`: |N| fixed to the 3 hardest (Table 4). `per_query`: mean of each record's own ECI. `by_list`,
            `by_list_arithmetic`, `by_list_hardest_3`: the first three with the margin of lists.
        gradient_norm: |N|·exp(S/τ) (eq. 11). `variance`: ½(S_max − S)² (eq. 12), S_max the mean of each record's
            highest similarity.
    """

    name: str
    eci: float
    arithmetic: float
    hardest_3: float
    per_query: float
    by_list: float
    by_list_arithmetic: float
    by_list_hardest_3: float
    gradient_norm: float
    variance: float


@dataclass(frozen=True)
class Ablations:
    """All analyses of one scoring."""

    tables: tuple[Ablation, ...]
    spectra: tuple[Spectrum, ...]
    eci: tuple[OldScores, ...]

    def to_json(self) -> dict[str, object]:
        """Return plain dictionaries."""
        return {
            "tables": [asdict(table) for table in self.tables],
            "lambda": [asdict(spectrum) for spectrum in self.spectra],
            "eci": [asdict(old) for old in self.eci],
        }


def ablate(scores: Scores) -> Ablations:
    """Run every ablation of a scoring: simplifications, sample size, temperature, tokenizer, idf corpus, λ, ECI.

    ECI_sem Table 4 (simplifications, with rank stability), Table 5 (sample size), Figure 1 (temperature), Table 6
    (tokenizer and idf corpus); the sweep of λ is ours.
    """
    measured, settings = scores.measured, scores.settings
    targets = [target for target in measured.records.targets(settings.hybrids) if target.name != CONTROL]
    work = _Work(measured, targets, settings.regularization)
    runs: list[tuple[str, str, dict[str, Callable[[], dict[str, float]]]]] = [
        ("simplification", "gated", {name: _simplified(work, name, settings.temperature) for name in WEIGHTINGS}),
        (
            "sample size",
            "100 %",
            {f"{share:.0%}".replace("%", " %"): _sampled(work, scores, share) for share in SHARES},
        ),
        (
            "temperature",
            f"{settings.temperature:g}",
            {f"{tau:g}": _tempered(work, tau) for tau in sorted({*TEMPERATURES, settings.temperature})},
        ),
        ("tokenizer", settings.tokenizer, {name: _tokenized(work, scores, name) for name in TOKENIZERS}),
        (
            "idf corpus",
            settings.idf_corpus,
            {
                name: _weighted_idf(work, scores, name)
                for name in dict.fromkeys([settings.idf_corpus, "pooled", OWN, "pooled+queries", "uniform"])
            },
        ),
    ]
    tables = []
    with progress.task("ablations", total=sum(len(run[2]) for run in runs), unit="settings") as advance:
        for name, base, variants in runs:
            found = {}
            for setting, compute in variants.items():
                found[setting] = compute()
                advance(1)
            tables.append(_ablation(name, base, found, targets))
    every = measured.records.targets(settings.hybrids)
    spectra = tuple(_spectrum(scores, target) for target in every)
    return Ablations(tuple(tables), spectra, tuple(_old(scores, target) for target in every))


@dataclass(frozen=True)
class _Work:
    """Scores targets under other weights."""

    measured: Measured
    targets: list[Target]
    regularization: float

    def score(self, weights: Float64s, *, rows: Rows | None = None, only: Target | None = None) -> dict[str, float]:
        """Score the targets (or one) with these weights (m,), over these triplets."""
        geometry, members = self.measured.geometry, self.measured.records.members
        if only is not None:
            rows = np.flatnonzero(only.of(members))
            members = np.full(len(members), only.bits)
        if rows is not None:
            geometry = Geometry(
                geometry.queries, geometry.documents, geometry.positive, geometry.record[rows], geometry.document[rows]
            )
            weights, members = weights[rows], members[rows]
        targets = self.targets if only is None else [only]
        moments = target_moments(geometry, weights, members, targets)
        return {
            target.name: log_det(moments.of(target).information(), self.regularization)
            if moments.counts[target.name]
            else float("nan")
            for target in targets
        }


def _simplified(work: _Work, name: str, temperature: float) -> Callable[[], dict[str, float]]:
    return lambda: work.score(WEIGHTINGS[name](work.measured.similarities, temperature))


def _tempered(work: _Work, temperature: float) -> Callable[[], dict[str, float]]:
    return lambda: work.score(gated(work.measured.similarities, temperature))


def _sampled(work: _Work, scores: Scores, share: float) -> Callable[[], dict[str, float]]:
    """Scores of a seeded sample of the records; a smaller sample is part of a larger one."""

    def compute() -> dict[str, float]:
        records = len(work.measured.records)
        order = np.random.default_rng([scores.settings.seed, 6]).permutation(records)
        drawn = np.zeros(records, bool)
        drawn[order[: max(1, round(share * records))]] = True
        rows = np.flatnonzero(drawn[work.measured.records.record])
        return work.score(gated(work.measured.similarities, scores.settings.temperature), rows=rows)

    return compute


def _tokenized(work: _Work, scores: Scores, name: str) -> Callable[[], dict[str, float]]:
    def compute() -> dict[str, float]:
        records = work.measured.records
        lexicon = Lexicon.of(records, tokenizer=name)
        idf, _ = lexicon.idf(records, scores.settings.idf_corpus)
        return work.score(_with_coverage(work.measured, lexicon.coverage(records, idf), scores.settings.temperature))

    return compute


def _weighted_idf(work: _Work, scores: Scores, corpus: str) -> Callable[[], dict[str, float]]:
    def compute() -> dict[str, float]:
        records, lexicon = work.measured.records, work.measured.lexicon
        if corpus != OWN:
            idf, _ = lexicon.idf(records, corpus)
            coverage = lexicon.coverage(records, idf)
            return work.score(_with_coverage(work.measured, coverage, scores.settings.temperature))
        found: dict[str, float] = {}
        for target in work.targets:
            member = target.of(records.members)
            texts = np.concatenate([records.document[member], records.positives[np.unique(records.record[member])]])
            coverage = lexicon.coverage(records, lexicon.idf_over(np.unique(texts)))
            weights = _with_coverage(work.measured, coverage, scores.settings.temperature)
            found |= work.score(weights, only=target)
        return found

    return compute


def _with_coverage(measured: Measured, coverage: Float64s, temperature: float) -> Float64s:
    old = measured.similarities
    return gated(type(old)(old.s_p, old.s_n, old.s_pn, coverage, old.distance), temperature)


def _ablation(name: str, base: str, scores: dict[str, dict[str, float]], targets: list[Target]) -> Ablation:
    stability: dict[str, dict[str, float]] = {}
    for setting, of in scores.items():
        stability[setting] = {}
        for group, hybrid in (("sources", False), ("hybrids", True)):
            names = [target.name for target in targets if (target.parts > 1) == hybrid]
            pairs = [[scores[base][each], of[each]] for each in names if of[each] == of[each]]
            stability[setting][group] = rank_stability(*zip(*pairs, strict=True)) if len(pairs) > 1 else float("nan")
    return Ablation(name, base, scores, stability)


def _spectrum(scores: Scores, target: Target) -> Spectrum:
    information = scores.moments.of(target).information()
    values = np.clip(np.linalg.eigvalsh(information), 0, None)
    d, total = len(values), float(values.sum())
    score, trace, diversity, volume = {}, {}, {}, {}
    for value in sorted({*LAMBDAS, scores.settings.regularization}, reverse=True):
        key = f"{value:g}"
        score[key], trace[key] = float(np.log1p(values / value).sum()), total / value
        diversity[key] = 1 - score[key] / trace[key] if total else float("nan")
        volume[key] = score[key] / (d * np.log1p(total / (d * value))) if total else float("nan")
    return Spectrum(target.name, effective_rank(information), score, trace, diversity, volume)


def _old(scores: Scores, target: Target) -> OldScores:
    measured = scores.measured
    member = target.of(measured.records.members)
    record, s_n = measured.records.record[member], measured.similarities.s_n[member]
    plain, arithmetic, hardest_3, by_list, by_list_arithmetic, by_list_hardest_3 = (
        source_eci(record, s_n, measured.best_positive, margin=margin, mean=mean, hardest=hardest)
        for margin in MARGINS
        for mean, hardest in (("harmonic", None), ("arithmetic", None), ("harmonic", 3))
    )
    start = np.flatnonzero(np.r_[True, np.diff(record) != 0])
    highest = float(np.maximum.reduceat(s_n, start).mean())
    return OldScores(
        target.name,
        plain.value,
        arithmetic.value,
        hardest_3.value,
        plain.per_query,
        by_list.value,
        by_list_arithmetic.value,
        by_list_hardest_3.value,
        gradient_norm(plain.signal, plain.negatives, scores.settings.temperature),
        score_variance(highest, plain.signal),
    )
