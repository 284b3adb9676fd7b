"""HOBIT's objective and its greedy maximisation, as plain NumPy: the specification of the fast code.

For a seed set S, a batch B = S ∪ X and weights w (s × b, one row per seed, one column per member of B):
hardness (eq. 6), batch hardness H (eq. 7), its smooth form H̃ (eq. 10), the marginal gain Δ (eq. 16).
Source: HOBIT (seed pairs, eq. 1–16).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from foils.runtime.errors import InputError

Matrix = NDArray[np.float64]


def hardness(
    queries: NDArray[np.floating],
    positives: NDArray[np.floating],
    documents: NDArray[np.floating],
    *,
    alpha: float = 1.0,
) -> Matrix:
    """Return w_ij = q_i·d_j − α d_i·d_j (HOBIT eq. 6): hard for the query, apart from its positive.

    Args:
        queries: (s, d) unit vectors q_i.
        positives: (s, d) unit vectors d_i, the document paired with each query.
        documents: (n, d) unit vectors d_j.
        alpha: ≥ 0; more of it keeps near-duplicates of the positive further away. 0 is plain hardness.

    Returns:
        (s, n) float64 in [−1 − α, 1 + α]; higher is a more useful negative.
    """
    check_alpha(alpha)
    q, p, d = (np.asarray(x, np.float64) for x in (queries, positives, documents))
    return np.asarray((q - alpha * p) @ d.T)


def batch_hardness(weights: Matrix) -> float:
    """Return H(B) = Σ_i max_j w_ij (HOBIT eq. 7) for weights (s, b)."""
    return float(np.max(weights, axis=1).sum())


def smooth_hardness(weights: Matrix, *, tau: float = 0.05) -> float:
    """Return H̃(B) = τ_h Σ_i log Σ_j exp(w_ij / τ_h) (HOBIT eq. 10) for weights (s, b).

    H ≤ H̃ ≤ H + s τ_h log b (eq. 11); τ_h → 0 gives H (eq. 12); for large τ_h it orders batches of equal size
    by their mean weight (eq. 14–15).
    """
    check_tau(tau)
    return float(tau * logsumexp(weights / tau, axis=1).sum())


def marginal_gain(weights: Matrix, candidates: Matrix, *, tau: float = 0.05) -> Matrix:
    """Return Δ(v) = Σ_i τ_h log(1 + exp(w_iv/τ_h) / Σ_j exp(w_ij/τ_h)) (HOBIT eq. 16) for each candidate v.

    Coded as Σ_i τ_h softplus(w_iv/τ_h − log Σ_j exp(w_ij/τ_h)), which neither overflows nor cancels.

    Args:
        weights: (s, b) of the batch so far (seeds included).
        candidates: (s, n) of the candidates.
        tau: τ_h > 0.

    Returns:
        (n,) non-negative gains.
    """
    check_tau(tau)
    total = logsumexp(weights / tau, axis=1)
    return np.asarray(tau * np.logaddexp(0.0, candidates / tau - total[:, None]).sum(axis=0))


def greedy(
    weights: Matrix,
    candidates: Matrix,
    *,
    size: int,
    tau: float = 0.05,
    admits: Callable[[int], bool] = lambda _: True,
) -> NDArray[np.int64]:
    """Choose up to `size` candidates, each time the one of highest gain (HOBIT Algorithm 2, lines 8–11).

    H̃ is monotone and submodular (Theorem 5.11), so the result reaches 1 − 1/e of the best achievable increase.
    Ties go to the candidate of lowest position.

    Args:
        weights: (s, s) of the seeds among themselves.
        candidates: (s, n).
        size: how many to choose.
        tau: τ_h > 0.
        admits: whether the candidate at a position may join what was chosen so far; asked about the best one left.

    Returns:
        (min(size, n),) or fewer positions among the candidates in the order chosen.
    """
    left, chosen = np.ones(candidates.shape[1], bool), list[int]()
    while len(chosen) < size and left.any():
        batch = np.concatenate([weights, candidates[:, chosen]], axis=1)
        best = int(np.argmax(np.where(left, marginal_gain(batch, candidates, tau=tau), -np.inf)))
        left[best] = False
        if admits(best):
            chosen.append(best)
    return np.asarray(chosen, np.int64)


def check_tau(tau: float) -> None:
    """Raise InputError unless the temperature is a positive finite number."""
    if not (np.isfinite(tau) and tau > 0):
        raise InputError(f"tau is a temperature, a positive number (0.05 in the paper); got {tau!r}")


def check_alpha(alpha: float) -> None:
    """Raise InputError unless alpha is a finite number of at least 0."""
    if not (np.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha weighs non-contradiction and is at least 0 (1 in the paper); got {alpha!r}")
