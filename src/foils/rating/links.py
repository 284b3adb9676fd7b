"""How a lead in rating becomes a probability to be preferred: Thurstone's normal and Bradley–Terry's logistic curve.

Both are given as what Newton's method needs of one judgement w at a lead Δ: the log-likelihood
w log F(Δ) + (1 − w) log F(−Δ), its slope, its negative second derivative, and the Fisher information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from scipy.special import entr, erfcx, expit, ndtr

from foils.rating.pairs import Floats
from foils.statistics.elo_scale import ELO_PER_LOGIT, ELO_PER_PROBIT


@dataclass(frozen=True)
class Terms:
    """Per judgement: the log-likelihood, its slope in Δ, minus its second derivative; (m,) each."""

    value: Floats
    slope: Floats
    curvature: Floats


@dataclass(frozen=True)
class Link:
    """A model of preference.

    Attributes:
        name: of the model.
        unit: in which its ratings are.
        elo_per_unit: Elo points in one unit.
        probability: F, from a lead Δ to the chance to be preferred.
        terms: (Δ, w) -> Terms.
        information: Δ -> F′(Δ)²/(F(Δ)F(−Δ)), the Fisher information of one judgement about Δ.
    """

    name: str
    unit: str
    elo_per_unit: float
    probability: Callable[[Floats], Floats]
    terms: Callable[[Floats, Floats], Terms]
    information: Callable[[Floats], Floats]


def mills(x: Floats) -> Floats:
    """Return λ(x) = φ(x)/Φ(x) as √(2/π)/erfcx(−x/√2), exact far into both tails (Algorithm 1's λ)."""
    with np.errstate(over="ignore"):
        return np.asarray(sqrt(2 / pi) / erfcx(np.asarray(x) / -sqrt(2)))


def thurstone_terms(lead: Floats, preference: Floats) -> Terms:
    """Return the terms of w log Φ(Δ) + (1 − w) log Φ(−Δ) (eq. 30).

    With a = |Δ|, w for the leader, and h = erfcx(a/√2)/2: Φ(−a) = h·exp(−a²/2), so that
    log Φ(−a) = log h − a²/2, log Φ(a) = log1p(−Φ(−a)) and λ(−a) = 1/(h√(2π)) lose no digits in either tail. Slope
    w λ(a) − (1 − w) λ(−a), curvature w λ(a)(λ(a) + a) + (1 − w) λ(−a)(λ(−a) − a).
    """
    a = np.abs(lead)
    w = np.where(lead >= 0, preference, 1 - preference)
    half = 0.5 * erfcx(a / sqrt(2))
    bell = np.exp(-0.5 * a * a)
    tail = half * bell
    ahead, behind = bell / (sqrt(2 * pi) * (1 - tail)), 1 / (sqrt(2 * pi) * half)
    value = w * np.log1p(-tail) + (1 - w) * (np.log(half) - 0.5 * a * a)
    slope = w * ahead - (1 - w) * behind
    curvature = w * ahead * (ahead + a) + (1 - w) * behind * (behind - a)
    return Terms(value, np.where(lead >= 0, slope, -slope), curvature)


def bradley_terry_terms(lead: Floats, preference: Floats) -> Terms:
    """Return the terms of w log σ(Δ) + (1 − w) log σ(−Δ) (eq. 22).

    With a = |Δ| and w for the leader: value −log(1 + e^(−a)) − (1 − w)a, slope w σ(−a) − (1 − w)σ(a) = w − σ(a), in
    the form that keeps its digits when w = 1 and a is large; curvature σ(a)σ(−a).
    """
    a = np.abs(lead)
    w = np.where(lead >= 0, preference, 1 - preference)
    small = np.exp(-a)
    ahead, behind = 1 / (1 + small), small / (1 + small)
    slope = w * behind - (1 - w) * ahead
    return Terms(-np.log1p(small) - (1 - w) * a, np.where(lead >= 0, slope, -slope), ahead * behind)


def thurstone_information(lead: Floats) -> Floats:
    """Return φ(Δ)²/(Φ(Δ)Φ(−Δ)) as λ(Δ)λ(−Δ) (eqs. 44–45, A.5)."""
    return mills(lead) * mills(-np.asarray(lead))


def bradley_terry_information(lead: Floats) -> Floats:
    """Return σ(Δ)σ(−Δ)."""
    return np.asarray(expit(lead) * expit(-np.asarray(lead)))


def comparison_bits(lead: Floats, link: Link) -> Floats:
    """Return H(F(Δ)) in bits: what one more judgement at this lead tells; 1 at Δ = 0, towards 0 far off (eq. 46)."""
    return np.asarray((entr(link.probability(lead)) + entr(link.probability(-np.asarray(lead)))) / np.log(2))


THURSTONE = Link(
    "thurstone", "probit", ELO_PER_PROBIT, lambda x: np.asarray(ndtr(x)), thurstone_terms, thurstone_information
)
BRADLEY_TERRY = Link(
    "bradley-terry",
    "logit",
    ELO_PER_LOGIT,
    lambda x: np.asarray(expit(x)),
    bradley_terry_terms,
    bradley_terry_information,
)
LINKS = {link.name: link for link in (THURSTONE, BRADLEY_TERRY)}
