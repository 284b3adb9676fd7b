"""The published analyses of a scoring, from what it measured: nothing is embedded again.

Each ablation scores all sources and hybrids under several settings, one of which is the scoring's own, and says how
stable their order is: the share of pairs, within sources and within hybrids, that stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from foils.data.collection import Rows
from foils.data.tokens import TOKENIZERS
from foils.runtime import progress
from foils.scoring.eci import MARGINS, gradient_norm, score_variance, source_eci
from foils.scoring.gates import WEIGHTINGS, Float64s, gated
from foils.scoring.information import log_det, target_moments
from foils.scoring.lexical import Lexicon
from foils.scoring.measure import Geometry, Measured
from foils.scoring.scores import Scores
from foils.scoring.triplets import CONTROL, Target
from foils.statistics.agreement import rank_stability

SHARES = (0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.03, 0.05, 0.1)
LAMBDAS = (1.0, 0.1, 0.01, 0.001, 0.0001)
CORPORA = ("pooled", "own", "pooled+queries", "uniform")  # own: idf over each source's own documents


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


def ablate(scores: Scores) -> list[Ablation]:
    """Run the ablations of a scoring: simplifications, sample size, temperature, tokenizer, idf corpus, λ.

    ECI_sem Table 4 (simplifications, with rank stability), Table 5 (sample size), Figure 1 (temperature), Table 6
    (tokenizer and idf corpus); the sweep of λ is ours.
    """
    measured, settings = scores.measured, scores.settings
    tau, lam = settings.temperature, settings.regularization
    targets = [target for target in measured.records.targets(settings.hybrids) if target.name != CONTROL]
    score = partial(_score, measured, targets, lam)
    order = np.random.default_rng([settings.seed, 6]).permutation(len(measured.records))

    def sampled(share: float) -> dict[str, float]:
        """Of a seeded sample of the records; a smaller sample is part of a larger one."""
        drawn = np.isin(measured.records.record, order[: max(1, round(share * len(order)))])
        return score(gated(measured.similarities, tau), rows=np.flatnonzero(drawn))

    runs: list[tuple[str, str, dict[str, Callable[[], dict[str, float]]]]] = [
        ("simplification", "gated",
         {name: partial(_weighted, score, measured, name, tau) for name in WEIGHTINGS}),
        ("sample size", "100 %", {f"{100 * share:g} %": partial(sampled, share) for share in SHARES}),
        ("temperature", f"{tau:g}",
         {f"{each:g}": partial(_weighted, score, measured, "gated", each) for each in sorted({*TEMPERATURES, tau})}),
        ("tokenizer", "alphanumeric",
         {name: partial(_worded, score, measured, tau, name, "pooled") for name in TOKENIZERS}),
        ("idf corpus", "pooled",
         {name: partial(_worded, score, measured, tau, "alphanumeric", name) for name in CORPORA}),
        ("lambda", f"{lam:g}",
         {f"{each:g}": partial(_regularized, scores, targets, each) for each in sorted({*LAMBDAS, lam}, reverse=True)}),
    ]  # fmt: skip
    ablations = []
    with progress.task("ablations", total=sum(len(run[2]) for run in runs), unit="settings") as advance:
        for name, base, variants in runs:
            of_settings = {}
            for setting, compute in variants.items():
                of_settings[setting] = compute()
                advance(1)
            ablations.append(Ablation(name, base, of_settings, _stability(of_settings, base, targets)))
    return ablations


def eci_variants(scores: Scores, target: Target) -> dict[str, float]:
    """Return ECI of one target in its variants, and the heuristics it was compared with (ECI Tables 3–6).

    `eci`: harmonic, data set first, with the margin of triplets; `arithmetic`: Table 5's mean; `hardest_3`: |N| fixed
    to the 3 hardest (Table 4); `list…`: the same with the margin of lists. `gradient_norm`: |N|·exp(S/τ) (eq. 11).
    `variance`: ½(S_max − S)² (eq. 12), S_max the mean of each record's highest similarity.
    """
    measured = scores.measured
    member = target.of(measured.records.members)
    record, s_n = measured.records.record[member], measured.similarities.s_n[member]
    variants = {"eci": ("harmonic", None), "arithmetic": ("arithmetic", None), "hardest_3": ("harmonic", 3)}
    values = {
        ("" if margin == "triplet" else "list_") + name: source_eci(
            record, s_n, measured.best_positive, margin=margin, mean=mean, hardest=hardest
        )
        for margin in MARGINS
        for name, (mean, hardest) in variants.items()
    }
    plain = values["eci"]
    highest = float(np.maximum.reduceat(s_n, np.unique(record, return_index=True)[1]).mean())
    return {
        **{name: each.value for name, each in values.items()},
        "per_query": plain.per_query,
        "gradient_norm": gradient_norm(plain.signal, plain.negatives, scores.settings.temperature),
        "variance": score_variance(highest, plain.signal),
    }


def _score(
    measured: Measured, targets: list[Target], regularization: float, weights: Float64s, *, rows: Rows | None = None
) -> dict[str, float]:
    """ECI_sem of the targets with these weights (m,), over these triplets."""
    geometry, members = measured.geometry, measured.records.members
    if rows is not None:
        geometry = Geometry(
            geometry.queries, geometry.documents, geometry.positive, geometry.record[rows], geometry.document[rows]
        )
        weights, members = weights[rows], members[rows]
    moments = target_moments(geometry, weights, members, targets)
    return {
        target.name: log_det(moments.of(target).information(), regularization)
        if moments.counts[target.name]
        else float("nan")
        for target in targets
    }


def _weighted(score: Callable[..., dict[str, float]], measured: Measured, name: str, tau: float) -> dict[str, float]:
    return score(WEIGHTINGS[name](measured.similarities, tau))


def _worded(
    score: Callable[..., dict[str, float]], measured: Measured, tau: float, tokenizer: str, corpus: str
) -> dict[str, float]:
    """With another tokenizer, or idf over other texts."""
    records = measured.records
    lexicon = Lexicon.of(records, tokenizer=tokenizer)

    def gates(idf: Float64s) -> Float64s:
        return gated(replace(measured.similarities, coverage=lexicon.coverage(records, idf)), tau)

    if corpus != "own":
        return score(gates(lexicon.idf(records, corpus)[0]))
    values = {}
    for target in score.args[1]:  # type: ignore[attr-defined]
        member = target.of(records.members)
        texts = np.concatenate([records.document[member], records.positives[np.unique(records.record[member])]])
        values[target.name] = score(gates(lexicon.idf_over(np.unique(texts))))[target.name]
    return values


def _regularized(scores: Scores, targets: list[Target], value: float) -> dict[str, float]:
    return {target.name: log_det(scores.moments.of(target).information(), value) for target in targets}


def _stability(
    scores: Mapping[str, Mapping[str, float]], base: str, targets: list[Target]
) -> dict[str, dict[str, float]]:
    stability: dict[str, dict[str, float]] = {}
    for setting, of in scores.items():
        stability[setting] = {}
        for group, hybrid in (("sources", False), ("hybrids", True)):
            names = [target.name for target in targets if (target.parts > 1) == hybrid]
            pairs = [[scores[base][each], of[each]] for each in names if of[each] == of[each]]
            stability[setting][group] = rank_stability(*zip(*pairs, strict=True)) if len(pairs) > 1 else float("nan")
    return stability
