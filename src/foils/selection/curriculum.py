"""Which negatives when: a fixed schedule of gaps, and one that follows the learner's progress."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foils.runtime.errors import InputError, check_names
from foils.selection.rules import (
    BOUNDS,
    DANGER,
    TIERS,
    WEIGHTS,
    Floats,
    RatedRows,
    Selection,
    select,
    tier_names,
    tier_of,
)

LATER = "too hard for this epoch"
SCHEDULE = ((1, 300.0, 0.5), (3, 200.0, 0.6), (5, 150.0, 0.7), (7, 100.0, 0.8))
"""Table 3: from this epoch on, gaps above this, with this α of the hybrid loss."""

_HISTORY = 1000


def stage_of(epoch: int) -> tuple[float, float]:
    """Return (least gap, α) of an epoch, counted from 1 (Table 3)."""
    if epoch < 1:
        raise InputError(f"epoch {epoch}; epochs are counted from 1")
    _, gap, alpha = [stage for stage in SCHEDULE if stage[0] <= epoch][-1]
    return gap, alpha


def tier_max(epoch: int) -> float:
    """Return min(3, 1 + epoch/2), the hardest tier of an epoch counted from 1, of tiers counted from the easiest.

    Source: ANMI 2.0 Algorithm 3, line 3.
    """
    stage_of(epoch)
    return min(3.0, 1 + epoch / 2)


def least_gap(epoch: int) -> float:
    """Return the gap that a negative must exceed in an epoch, counted from 1 (Table 3)."""
    return stage_of(epoch)[0]


def curriculum(rows: RatedRows, *, epoch: int = 1, schedule: str = "table3") -> Selection:
    """Keep the rows whose gap is above the epoch's least one, with Table 2's weights.

    - schedule table3: epochs 1–2 gap > 300, 3–4 > 200, 5–6 > 150, from 7 on > 100 (Table 3).
    - schedule algorithm3: tiers up to `tier_max`, easy being 1, medium 2 and goldilocks 3 (the paper does not number
      them): epoch 1 gap > 600, 2–3 > 400, from 4 on > 200.

    Raises:
        InputError: an epoch below 1.
        UnknownNameError: no such schedule.
    """
    check_names("schedule", [schedule], ("table3", "algorithm3"))
    least = least_gap(epoch) if schedule == "table3" else BOUNDS[4 - int(tier_max(epoch))]
    weight = np.asarray(WEIGHTS)[tier_of(rows.gap)]
    last = SCHEDULE[-1][1]
    rejections = {DANGER: rows.gap <= last, LATER: rows.gap <= least}
    return select(rows, rejections, weight, tier_names(rows.gap), {"least": least})


@dataclass(frozen=True)
class LearningProgress:
    """A bandit over tiers that draws those from which the learner just learns most (Exp3.S; Graves et al. 2017).

    The reward is the drop of the loss on a batch by training on it, divided by its time; it is scaled to [−1, 1] by
    the 20th and 80th percentile of the last thousand. π_i = (1 − ε) softmax(w)_i + ε/N, and after drawing tier a with
    reward r, t counted from 2: r̃_i = η r [i = a]/π_i,
    w_i ← log((1 − 1/t) e^{w_i + r̃_i} + (1/t)/(N − 1) Σ_{j≠i} e^{w_j + r̃_j}).

    Attributes:
        tiers: N, at least 2.
        rate: η; more follows faster.
        exploration: ε in [0, 1]; more draws more evenly.
        log_weights: (N,) w; empty at the start: zeros.
        history: the last raw rewards.
        steps: updates so far, t − 2.

    Raises:
        InputError: a setting out of range.
    """

    tiers: int = len(TIERS) - 1
    rate: float = 0.1
    exploration: float = 0.05
    log_weights: tuple[float, ...] = ()
    history: tuple[float, ...] = ()
    steps: int = 0

    def __post_init__(self) -> None:
        if self.tiers < 2 or self.rate <= 0 or not 0 <= self.exploration <= 1:
            raise InputError(
                f"tiers {self.tiers}, rate {self.rate}, exploration {self.exploration}; "
                "expected at least 2, above 0, in [0, 1]"
            )
        if not self.log_weights:
            object.__setattr__(self, "log_weights", (0.0,) * self.tiers)

    @property
    def probabilities(self) -> Floats:
        """(N,) π, from which the next tier is drawn."""
        weights = np.exp(np.array(self.log_weights) - max(self.log_weights))
        return np.asarray((1 - self.exploration) * weights / weights.sum() + self.exploration / self.tiers)

    def updated(self, tier: int, loss_before: float, loss_after: float, *, duration: float = 1.0) -> LearningProgress:
        """Return the bandit after training on a batch of `tier`; NaN losses or a duration of 0 are refused.

        Args:
            tier: 0 … N − 1, that was drawn.
            loss_before: on the batch, before the step.
            loss_after: on the same batch, after it.
            duration: of the step, above 0; what harder batches cost more.

        Raises:
            InputError: no such tier, losses that are not finite, or a duration not above 0.
        """
        gained = loss_before - loss_after
        if not (0 <= tier < self.tiers and np.isfinite(gained) and duration > 0):
            raise InputError(
                f"tier {tier}, progress {gained}, duration {duration}; expected 0–{self.tiers - 1}, finite, above 0"
            )
        history = (*self.history, gained / duration)[-_HISTORY:]
        low, high = np.percentile(history, [20, 80])
        reward = 0.0
        if high > low:
            reward = float(np.clip(2 * (gained / duration - low) / (high - low) - 1, -1.0, 1.0))
        moved = np.array(self.log_weights)
        moved[tier] += self.rate * reward / self.probabilities[tier]
        t = self.steps + 2
        weights = np.exp(moved - moved.max())
        others = (weights.sum() - weights) / (self.tiers - 1)
        shared = np.log((1 - 1 / t) * weights + others / t) + moved.max()
        return replace(self, log_weights=tuple(shared.tolist()), history=history, steps=self.steps + 1)
