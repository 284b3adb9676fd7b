"""The benefit of training on a source: what its true negatives teach less what its false ones spoil.

B = (1 − φ)·G − φ·D (ANMI 2.0, proof of Theorem 4, eq. A.1), φ the share of false negatives. A false negative is
pushed away where it should be pulled near: its pull has the size of a true one's and the opposite sign, so D = G and
B = (1 − 2φ)·G for a source whose false negatives are no harder than its true ones.

φ is estimated by recapture (`foils.data.recapture`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from foils.data.recapture import Recapture
from foils.scoring.gates import Float64s
from foils.scoring.prepared import Measured
from foils.scoring.results import SourceScore


def benefits(
    measured: Measured,
    member: npt.NDArray[np.bool_],
    score: SourceScore,
    recapture: Recapture | None,
    unlabelled: float,
    temperature: float,
) -> dict[str, float]:
    """Return the forms of B for one source, and 1 − φ; NaN where φ is not known.

    Args:
        measured: similarities of all triplets.
        member: (m,) which triplets are the source's.
        score: of the source.
        recapture: of the source.
        unlabelled: o, relevant documents without a label for each labelled one.
        temperature: τ.
    """
    rate = math.nan if recapture is None else recapture.false_negatives(unlabelled)
    posterior = false_probabilities(measured, member, rate)
    return {
        "few_false": 1 - rate,
        "benefit_loss": (1 - 2 * rate) * score.mnrl_proxy,
        "benefit_energy": (1 - 2 * rate) * score.gradient_energy,
        "benefit_posterior": net_pull(measured, member, posterior, temperature),
    }


def false_probabilities(measured: Measured, member: npt.NDArray[np.bool_], rate: float) -> Float64s:
    """Return (k,) each negative's probability of being false, with mean φ: more similar to the query, likelier.

    The odds rise with the similarity of query and document as a logistic regression of labelled positives against the
    source's negatives has it, its intercept then set so that the mean is φ.

    Args:
        measured: similarities of all triplets.
        member: (m,) which triplets are the source's.
        rate: φ in [0, 1]; NaN gives NaN.
    """
    s_n = measured.similarities.s_n[member]
    if not 0 < rate < 1:
        return np.full(len(s_n), rate)
    from scipy.optimize import brentq
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    s_p = measured.s_p[np.unique(measured.records.record[member])]
    both, label = np.concatenate([s_p, s_n]), np.r_[np.ones(len(s_p)), np.zeros(len(s_n))]
    slope = float(LogisticRegression(class_weight="balanced").fit(10 * both[:, None], label).coef_[0, 0]) * 10
    rise = max(0.0, slope) * (s_n - s_n.mean())
    shift = brentq(lambda a: float(expit(a + rise).mean()) - rate, -60.0, 60.0)
    return np.asarray(expit(shift + rise))


def net_pull(measured: Measured, member: npt.NDArray[np.bool_], posterior: Float64s, temperature: float) -> float:
    """Return the mean over records of Σ_j P_j·(1 − 2π_j), P the softmax over positive and negatives at τ.

    P_j/τ is the pull of negative j on the query (ECI_sem's gradient, eq. 24 for one negative); 1 − 2π_j is its
    expected sign, π_j the probability that it is false.
    """
    record, s_n = measured.records.record[member], measured.similarities.s_n[member]
    records, start = np.unique(record, return_index=True)
    own = measured.s_p[records] / temperature
    top = np.maximum(np.maximum.reduceat(s_n, start) / temperature, own)
    counts = np.diff(np.r_[start, len(record)])
    spread = np.exp(s_n / temperature - np.repeat(top, counts))
    total = np.add.reduceat(spread, start) + np.exp(own - top)
    return float((np.add.reduceat(spread * (1 - 2 * posterior), start) / total).mean())
