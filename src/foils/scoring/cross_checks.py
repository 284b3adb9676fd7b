"""What stands beside the belief: labels by themselves, labels that likeness makes likelier, and texts from outside.

Labels by themselves: where pairs were drawn with known probabilities and people judged them, each source has a share of
false negatives that rests on the draw alone (the difference estimator in logits, `foils.statistics.estimate_share`).
Where it and the belief lie outside each other's intervals, the belief is wrong.

Likeness: let a relevant document most like its query be labelled twice as often as one least like it, c ∝ 2^t with t
rising evenly in the similarity from 0 to 1. With o as it is, π_j ∝ n_L/n_U·2^−t_j·k, 1/k the mean of 2^−t over
labelled positives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from foils.data.collection import Rows
from foils.data.negatives import Negatives
from foils.scoring.answers import Labelled
from foils.scoring.belief import Belief, Evidence
from foils.scoring.evidence import KnownLogs, evidence_of, outside_of, rows_of, shared
from foils.scoring.gates import Float64s
from foils.scoring.judged import Judged
from foils.scoring.prepared import Measured
from foils.scoring.records import CONTROL, Target
from foils.scoring.worth import SourceWorth
from foils.statistics.survey import estimate_share

ENDS = (0.01, 0.99)  # quantiles of the positives' similarity between which t rises
THINNED = 4_000  # negatives of a source that a belief with other odds looks at, about


def with_checks(
    worths: Mapping[str, SourceWorth],
    measured: Measured,
    sources: Mapping[str, Negatives],
    triplets: Rows,
    expected: Float64s,
    judged: Judged,
) -> dict[str, SourceWorth]:
    """Return what is believed of sources with what labels alone say, and how many of their texts are from outside.

    Args:
        worths: by name, those of hybrids among them.
        measured: the scoring.
        sources: name -> the table.
        triplets: (k,) that the decision looked at.
        expected: (k,) π of each, the mean over the belief.
        judged: pairs that people judged; those count that were drawn from the source with a known probability.
    """
    targets = {target.name: target for target in measured.records.targets(1) if target.name in worths}
    by_labels = np.isfinite(judged.relevant) & np.isfinite(judged.probability)
    checked = dict(worths)
    for name, target in targets.items():
        own = rows_of(target, measured, triplets)
        outside = outside_of(measured, triplets[own]) if name in sources else 0.0
        checked[name] = replace(worths[name], outside=outside)
        drawn = by_labels & np.array([name in each for each in judged.holders], bool)
        drawn &= np.isin(judged.triplets, triplets[own])
        if not drawn.any() or name == CONTROL:
            continue
        relevant, probability = judged.relevant[drawn], judged.probability[drawn]
        belief = expected[np.searchsorted(triplets, judged.triplets[drawn])]
        level = 1 - 0.05 / max(1, len(sources))  # of all sources together
        share, wide = (
            estimate_share(relevant, probability, belief=belief, population=expected[own], level=each)
            for each in (0.95, level)
        )
        worth = checked[name]
        checked[name] = replace(
            worth,
            false_share_by_labels=share.share,
            false_share_by_labels_low=share.low,
            false_share_by_labels_high=share.high,
            contradicted=not wide.low <= worth.false_share <= wide.high
            and not worth.false_share_low <= share.share <= worth.false_share_high,
        )
    return checked


def skewed_logs(measured: Measured, logs: Float64s) -> Float64s:
    """Return log n_L/n_U of each triplet, (m,), were likeness to double the chance of a label, o being what it is.

    Args:
        measured: the scoring.
        logs: (m,) as labels of one chance make them.
    """
    low, high = np.quantile(measured.s_p, ENDS)

    def tilt(similarity: Float64s) -> Float64s:
        return np.asarray(np.clip((similarity - low) / max(high - low, 1e-12), 0.0, 1.0))

    scale = float(np.mean(np.exp2(-tilt(measured.s_p))))
    return np.asarray(logs - np.log(2) * tilt(measured.similarities.s_n) - np.log(scale))


def skewed_shares(
    targets: list[Target],
    sources: Mapping[str, Negatives],
    measured: Measured,
    triplets: Rows,
    logs: Float64s,
    known: KnownLogs,
    most: float,
    labelled: Labelled,
    rng: np.random.Generator,
    *,
    draws: int,
) -> dict[str, float]:
    """Return φ of each source, the mean of the belief, were likeness to double the chance of a label.

    Args:
        targets: the sources, in the order of the labels' memberships.
        sources: name -> the table.
        measured: the scoring.
        triplets: (k,) that the decision looked at.
        logs: (m,) log n_L/n_U of each triplet, as it is believed.
        known: log n_L/n_U of labelled positives, as it is believed.
        most: ō.
        labelled: what was judged, its logs from `skewed_logs`.
        rng: of the draws.
        draws: how many.
    """
    skewed, evidence = skewed_logs(measured, logs), []
    for target in targets:
        as_believed = evidence_of(target, sources, measured, triplets, logs, known)
        own = triplets[rows_of(target, measured, triplets)]
        ratios = np.exp(skewed[own])
        rate = as_believed.rate * ratios.mean() / as_believed.ratios.mean()
        evidence.append(Evidence(ratios[:: 1 + len(own) // THINNED], rate, as_believed.spread, as_believed.slope))
    has = np.column_stack([rows_of(target, measured, triplets) for target in targets])
    shares = Belief(evidence, most, shared(has)).draw(labelled, rng, draws=draws).shares.mean(axis=0)
    return {target.name: float(share) for target, share in zip(targets, shares, strict=True)}
