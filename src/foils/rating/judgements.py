"""What judges said about pairs, in both orders, and the mean of several judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from foils.rating.pairs import Floats, Rows


@dataclass(frozen=True)
class Judgements:
    """Answers about pairs.

    Attributes:
        forward: (m,) P(first ≻ second), the first shown first; NaN where the judge failed.
        backward: (m,) P(second ≻ first), the second shown first; NaN where the judge failed.
    """

    forward: Floats
    backward: Floats

    @property
    def preference(self) -> Floats:
        """(m,) P(first ≻ second), the mean of both orders; NaN unless both were answered (one alone is biased)."""
        return (self.forward + 1 - self.backward) / 2

    @property
    def missing(self) -> int:
        """How many pairs have no judgement."""
        return int(np.isnan(self.preference).sum())

    @property
    def position_bias(self) -> float:
        """Mean of P(shown first ≻ shown second) − 1/2 over both orders: 0 without bias, above where first wins."""
        both = self._bias
        return float(np.nanmean(both)) if np.isfinite(both).any() else float("nan")

    def position_bias_interval(self, query: Rows, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return a normal interval of the position bias: b̄ ± z·se, whole queries being what was drawn.

        se² = Q/(Q − 1) · Σ_q (Σ_{i in q} (b_i − b̄))²/m², b_i the bias of a pair, m the pairs: pairs of one query share
        its texts, so they count less than as many of different queries.

        Args:
            query: (m,) of each pair.
            confidence: in (0, 1).

        Returns:
            (NaN, NaN) with answers about fewer than two queries.
        """
        bias = self._bias
        known = np.isfinite(bias)
        bias, query = bias[known], np.asarray(query)[known]
        sums = np.bincount(query, bias - bias.mean())[np.bincount(query) > 0] if len(bias) else np.zeros(0)
        if len(sums) < 2:
            return float("nan"), float("nan")
        spread = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(bias)
        reach = float(ndtri((1 + confidence) / 2) * spread)
        return self.position_bias - reach, self.position_bias + reach

    @property
    def _bias(self) -> Floats:
        return (self.forward + self.backward) / 2 - 0.5


def combined(answers: Sequence[Judgements], weights: npt.ArrayLike | None = None) -> Judgements:
    """Return the mean of several judges' judgements of the same pairs, p = Σ_p w_p (f_p + 1 − b_p)/2 / Σ_p w_p.

    f_p and b_p are judge p's answers in both orders. A judge that lacks one order of a pair is left out of that pair,
    with the order that it has: its position bias would stay in the mean. NaN where every judge is left out.

    Args:
        answers: of at least one judge, all about the same pairs.
        weights: (J,) w, at least 0; a judge of weight 0 is left out. None: all count alike, as published.

    Source: ANMI 2.0 eq. 29, each R_p being the mean of both orders; the weights are ours.
    """
    forward = backward = count = np.zeros(())
    for one, weight in zip(answers, np.ones(len(answers)) if weights is None else np.asarray(weights), strict=True):
        whole = np.isfinite(one.preference) & (weight > 0)
        forward = forward + np.where(whole, weight * one.forward, 0.0)
        backward = backward + np.where(whole, weight * one.backward, 0.0)
        count = count + weight * whole
    with np.errstate(invalid="ignore"):
        return Judgements(forward / count, backward / count)
