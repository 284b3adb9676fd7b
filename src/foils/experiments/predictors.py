"""What can be said of sources before any training: one number a source and predictor, as published or as we add."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from foils.deciding import Candidate
from foils.scoring.gates import WEIGHTINGS
from foils.scoring.information import log_det, target_moments
from foils.scoring.scores import Scores, gradient_norm, score_variance, source_eci

PREDICTORS: dict[str, str] = {
    "eci_sem": "ECI_sem, λ = 1",
    "residual_only": "log det with weight 1 (Table 4)",
    "gradient_weighted": "gradient-weighted log det (Table 4)",
    "margin_hardness": "margin hardness (Table 4)",
    "eci": "ECI, margin of triplets, averaged over the data set first",
    "eci_per_query": "ECI, margin of triplets, per query",
    "eci_arithmetic": "ECI, margin of triplets, with the arithmetic mean",
    "eci_list": "ECI, margin of lists, averaged over the data set first",
    "eci_list_per_query": "ECI, margin of lists, per query",
    "signal": "mean similarity of query and negative",
    "margin": "best positive less negative, mean over negatives",
    "margin_list": "best positive less hardest negative, mean over queries",
    "gradient_norm": "estimated gradient norm (ECI eq. 11)",
    "variance": "estimated score variance (ECI eq. 12)",
    "rho": "mean ρ",
    "eta": "mean η",
    "psi": "mean ψ",
    "pair_loss": "mean −log ρ",
    "inversion_rate": "share with ρ < 0.5",
    "gradient_energy": "gradient energy, listwise",
    "mnrl_proxy": "MNRL proxy, listwise",
    "ambiguity": "share of lists with a negative above the positive",
    "benefit": "the decision's benefit, without labels",
}
"""Predictor → what it is. Higher is taken to mean better to train on; a negative agreement says that lower is."""


def predict(scores: Scores, worths: Mapping[str, Candidate]) -> dict[str, dict[str, float]]:
    """Return source → predictor → value, from a scoring; values that do not exist are left out.

    Args:
        scores: of the sources by the frozen encoder that training starts from, hybrids as sources of their own.
        worths: source → what the decision says of it (`foils.deciding.decide`).
    """
    measured, tau = scores.measured, scores.settings.temperature
    records = measured.records
    targets = {target.name: target for target in records.targets(1)}
    informations = {
        name: target_moments(
            measured.geometry, weigh(measured.similarities, tau), records.members, list(targets.values())
        )
        for name, weigh in WEIGHTINGS.items()
        if name != "gated"
    }
    by_source: dict[str, dict[str, float]] = {}
    for score in scores.sources:
        target = targets[score.name]
        values = {name: float(getattr(score, name)) for name in PREDICTORS if hasattr(score, name)}
        values |= {name: log_det(moments[target.name].information()) for name, moments in informations.items()}
        member = target.of(records.members)
        record, s_n = records.record[member], measured.similarities.s_n[member]
        old = source_eci(record, s_n, measured.best_positive, mean="arithmetic")
        highest = float(np.maximum.reduceat(s_n, np.unique(record, return_index=True)[1]).mean())
        values["eci_arithmetic"] = old.value
        values["gradient_norm"] = gradient_norm(old.signal, old.negatives, tau)
        values["variance"] = score_variance(highest, old.signal)
        values["benefit"] = worths[score.name].benefit
        by_source[score.name] = {name: value for name, value in values.items() if math.isfinite(value)}
    return by_source
