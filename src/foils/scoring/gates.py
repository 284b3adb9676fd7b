"""The gates of ECI_sem and its simplifications, as functions of similarities. Symbols follow the paper.

s_p = u·v⁺, s_n = u·v⁻, s_pn = v⁺·v⁻ are inner products of unit vectors; every array is (m,), one entry a triplet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit

Float64s = npt.NDArray[np.float64]


def target_consistency(s_p: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return ρ = σ((s_p − s_n)/τ) in [0, 1]: does the encoder prefer the positive? (ECI_sem eq. 5)."""
    rho: Float64s = expit((s_p - s_n) / temperature)
    return rho


def semantic_locality(s_pn: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return η = σ((s_pn − s_n)/τ) in [0, 1]: is the negative nearer the positive than the query? (ECI_sem eq. 6)."""
    eta: Float64s = expit((s_pn - s_n) / temperature)
    return eta


def pair_loss(s_p: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return −log ρ, the two-document contrastive loss, in a form that does not overflow."""
    loss: Float64s = -log_expit((s_p - s_n) / temperature)
    return loss


@dataclass(frozen=True)
class Similarities:
    """What a weighting may depend on, per triplet, each (m,): s_p, s_n, s_pn, the coverage C, and ‖v⁺ − v⁻‖²."""

    s_p: Float64s
    s_n: Float64s
    s_pn: Float64s
    coverage: Float64s
    distance: Float64s

    def take(self, rows: npt.NDArray[np.generic]) -> Similarities:
        """Return these triplets."""
        return Similarities(self.s_p[rows], self.s_n[rows], self.s_pn[rows], self.coverage[rows], self.distance[rows])


Weighting = Callable[[Similarities, float], Float64s]


def gated(similarities: Similarities, temperature: float) -> Float64s:
    """Return w = ρ·η·ψ with ψ = 1 − C: full ECI_sem (before eq. 10)."""
    rho = target_consistency(similarities.s_p, similarities.s_n, temperature)
    eta = semantic_locality(similarities.s_pn, similarities.s_n, temperature)
    return rho * eta * (1 - similarities.coverage)


def residual_only(similarities: Similarities, temperature: float) -> Float64s:
    """Return ω = 1 (Table 4)."""
    return np.ones_like(similarities.s_n)


def margin_hardness(similarities: Similarities, temperature: float) -> Float64s:
    """Return ω = (1−ρ)²/τ² · ‖v⁺ − v⁻‖², the energy of the local query gradient (eq. 24, Table 4)."""
    rho = target_consistency(similarities.s_p, similarities.s_n, temperature)
    return ((1 - rho) / temperature) ** 2 * similarities.distance


def gradient_weighted(similarities: Similarities, temperature: float) -> Float64s:
    """Return ω = (1−ρ)²/τ² · ‖v⁺ − v⁻‖² · η · ψ (Table 4)."""
    eta = semantic_locality(similarities.s_pn, similarities.s_n, temperature)
    return margin_hardness(similarities, temperature) * eta * (1 - similarities.coverage)


WEIGHTINGS: dict[str, Weighting] = {
    "gated": gated,
    "residual_only": residual_only,
    "gradient_weighted": gradient_weighted,
    "margin_hardness": margin_hardness,
}
