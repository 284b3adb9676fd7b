"""The gap that tells most for its risk (ANMI 2.0, Theorem 12), and its adaptation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import entr, ndtr

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, RatedRows, Selection, select
from foils.selection.rules import tier_names
from foils.statistics.elo_scale import ELO_PER_PROBIT

RISK = "more risk than information"
LITTLE = "tells too little"
_BIN = 2.0


def information(gap: Floats) -> Floats:
    """Return I(Δ) = H(Φ(Δ/295.7)) in bits, for gaps in Elo points: 1 at 0, 0.63 at 296 (eq. 46)."""
    lead = np.asarray(gap, np.float64) / ELO_PER_PROBIT
    return np.asarray((entr(ndtr(lead)) + entr(ndtr(-lead))) / np.log(2))


def optimal_gap(risk: Callable[[Floats], Floats], *, damage: float, longest: float = 1200.0) -> float:
    """Return Δ* = argmax over Δ ≥ 0 of I(Δ) − λ P(false negative | Δ), λ = damage, to one Elo point (Theorem 12)."""
    grid = np.arange(0.0, longest + 1.0)
    return float(grid[np.argmax(information(grid) - damage * risk(grid))])


def two_group_risk(gap: Floats, *, rate: float, spread: float) -> Callable[[Floats], Floats]:
    """Return P(false negative | Δ) = min(1, ρ N(Δ; 0, spread²)/f(Δ)), made not to rise with Δ.

    A false negative is as good as the positive, so its true gap is 0 and its measured one scatters around it; f is the
    density of all gaps given (normal kernel, Silverman's width). It is the local false discovery rate of the two-group
    model. At gaps below 0 it is at least the risk at 0.

    Args:
        gap: (n,) finite gaps of the whole table, in Elo points.
        rate: ρ, the share of false negatives, in (0, 1); ANMI 2.0's Table 1 has values by miner.
        spread: standard deviation of a false negative's measured gap, in Elo points, above 0.

    Raises:
        InputError: a rate or spread out of range, or fewer than two gaps.

    Source: Efron (2008), Microarrays, empirical Bayes and the two-groups model.
    """
    if not (0 < rate < 1 and spread > 0):
        raise InputError(f"rate {rate}, spread {spread}; expected a rate in (0, 1) and a spread above 0")
    if len(gap) < 2:
        raise InputError(f"{len(gap)} rated rows are too few to estimate how gaps are distributed")
    width = max(_BIN, 1.06 * float(gap.std()) * len(gap) ** -0.2)
    low, high = min(0.0, float(gap.min())) - 4 * width, max(0.0, float(gap.max())) + 4 * width
    edges = np.arange(low, high + _BIN, _BIN)
    counts = np.histogram(gap, edges)[0] / (len(gap) * _BIN)
    density = gaussian_filter1d(counts, width / _BIN, mode="constant")
    grid = (edges[:-1] + edges[1:]) / 2
    bell = np.exp(-0.5 * (grid / spread) ** 2) / (np.sqrt(2 * np.pi) * spread)
    raw = np.minimum(1.0, rate * bell / np.maximum(density, 1e-300))
    raw = np.where(grid < 0, raw[np.searchsorted(grid, 0.0)], raw)
    falling = np.minimum.accumulate(raw)
    return lambda gaps: np.asarray(np.interp(gaps, grid, falling))


def optimal(
    rows: RatedRows, *, rate: float = 0.15, spread: float = 120.0, damage: float = 2.0, floor: float = 0.1
) -> Selection:
    """Weigh each row by its benefit I(Δ) − λ P(false negative | Δ), over the largest benefit; reject where it is small.

    The paper gives neither λ nor the form of the risk. With the two-group risk and λ = 2 the optimum for rates of
    0.10–0.15 falls into the [150, 300] that Theorem 12 states, for gaps distributed as is usual.

    Args:
        rows: the rows.
        rate: ρ, the share of false negatives among them.
        spread: standard deviation of a false negative's measured gap, in Elo points.
        damage: λ, at least 0; more moves the optimum away from the positive.
        floor: in [0, 1]; weights below it are rejected.

    Raises:
        InputError: settings out of range, or fewer than two rated rows.

    Source: ANMI 2.0 Theorem 12.
    """
    if damage < 0 or not 0 <= floor <= 1:
        raise InputError(f"damage {damage}, floor {floor}; expected at least 0, and in [0, 1]")
    risk = two_group_risk(rows.gap[rows.rated], rate=rate, spread=spread)
    best = optimal_gap(risk, damage=damage)
    peak = float((information(np.array([best])) - damage * risk(np.array([best])))[0])
    gap = np.nan_to_num(rows.gap)
    benefit = information(gap) - damage * risk(gap)
    weight = np.clip(benefit / max(peak, 1e-12), 0.0, 1.0)
    rejections = {RISK: (gap < best) & (weight < max(floor, 1e-12)), LITTLE: weight < max(floor, 1e-12)}
    return select(rows, rejections, weight, tier_names(rows.gap), {"optimal": best})


def adapted_gap(rate: float, *, relative_sd: float = 1.0, domain: float = 1.0) -> float:
    """Return the gap to aim at, 200·(1 + 2ρ)·relative_sd·domain, in Elo points.

    Args:
        rate: ρ, share of false negatives, in [0, 1].
        relative_sd: standard deviation of the ratings over the usual one (the paper's σ_ELO, which must have no unit).
        domain: tolerance of risk, in [0.8, 1.2].

    Raises:
        InputError: a number out of its range.

    Source: ANMI 2.0 section 8.3, "principled adaptation".
    """
    if not (0 <= rate <= 1 and relative_sd > 0 and 0.8 <= domain <= 1.2):
        raise InputError(
            f"rate {rate}, relative_sd {relative_sd}, domain {domain}; expected in [0, 1], above 0, in [0.8, 1.2]"
        )
    return 200 * (1 + 2 * rate) * relative_sd * domain
