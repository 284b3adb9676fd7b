"""Grids of settings for DIME and Eclipse, as published and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from foils.runtime.errors import InputError, UnknownNameError
from foils.searching.settings import READINGS, DimensionSettings, Reading

TENTHS = tuple(tenth / 10 for tenth in range(1, 11))


@dataclass(frozen=True)
class Grid:
    """Settings to search.

    Attributes:
        method: `dime` or `eclipse`.
        depths: pairs (k⁺, k⁻), each at least 1; dime uses k⁺ alone.
        weights: pairs (α, β), α > 0 and β ≥ 0; dime uses none.
        shares: retained shares.
        moon_pool: draw moons at random from so many of the last documents; None: the last k⁻.
    """

    method: Literal["dime", "eclipse"]
    depths: tuple[tuple[int, int], ...]
    weights: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    shares: tuple[float, ...] = TENTHS
    moon_pool: int | None = None

    def __post_init__(self) -> None:
        if self.method not in ("dime", "eclipse"):
            raise UnknownNameError("method with a grid", self.method, ("dime", "eclipse"))
        if not (self.depths and self.weights and self.shares):
            raise InputError("an empty grid; expected at least one pair of depths, one of weights and one share")
        for plus, minus in self.depths:  # the settings check their ranges
            DimensionSettings(self.method, k_plus=plus, k_minus=minus, moon_pool=self.moon_pool)
        for alpha, beta in self.weights:
            DimensionSettings(self.method, alpha=alpha, beta=beta)
        for share in self.shares:
            DimensionSettings(self.method, share=share)

    @property
    def size(self) -> int:
        """How many settings the grid names, those that order dimensions alike counted each."""
        return len(self.depths) * len(self.weights) * len(self.shares)

    @property
    def ratios(self) -> tuple[tuple[float, float], ...]:
        """The first pair of weights of each distinct β/α, in the order in which they come."""
        first: dict[float, tuple[float, float]] = {}
        for alpha, beta in self.weights:
            first.setdefault(round(beta / alpha, 12), (alpha, beta))
        return tuple(first.values())

    @property
    def settings(self) -> list[DimensionSettings]:
        """The settings that can differ, depths slowest, then ratios, then shares."""
        return [
            DimensionSettings(
                self.method,
                k_plus=plus,
                k_minus=minus,
                alpha=alpha,
                beta=beta,
                share=share,
                moon_pool=self.moon_pool,
            )
            for plus, minus in self.depths
            for alpha, beta in self.ratios
            for share in self.shares
        ]

    @property
    def answered(self) -> Grid:
        """The grid for answers, which take the sun's place: of depths that differ in k⁺ alone, the first."""
        first = {minus if self.method == "eclipse" else 0: (plus, minus) for plus, minus in reversed(self.depths)}
        return replace(self, depths=tuple(pair for pair in self.depths if pair in first.values()))


def published_grid(reading: Reading = "few-relevant", *, moon_pool: int | None = None) -> Grid:
    """Return Eclipse's grid: α, β and share in 0.1..1 by 0.1; k⁺ in 2..6, k⁻ in 2..14.

    Args:
        reading: the paper's sentence can be read both ways. `few-relevant`, 65,000 settings: k⁺ in 2..6, as in the
            authors' notebook; `few-irrelevant`: k⁻ in 2..6; `both` together (105,000, their overlap once); or `spread`,
            2,280 of both: k⁺ in 2, 5, 9, 14, k⁻ in 2, 4, 6, and α or β at 1, which covers every β/α down to 0.1.
        moon_pool: draw the moons at random from so many of the last documents (Table 3).

    Raises:
        UnknownNameError: an unknown reading.

    Source: Eclipse, section 4 (hyperparameters).
    """
    if reading not in READINGS:
        raise UnknownNameError("reading of the published grid", reading, READINGS)
    if reading == "spread":
        spread = [(plus, minus) for plus in (2, 5, 9, 14) for minus in (2, 4, 6)]
        ratios = [(alpha, beta) for alpha in TENTHS for beta in TENTHS if 1.0 in (alpha, beta)]
        return Grid("eclipse", tuple(spread), tuple(ratios), TENTHS, moon_pool)
    few, many = range(2, 7), range(2, 15)
    depths = [(plus, minus) for plus in many for minus in few] if reading != "few-relevant" else []
    if reading != "few-irrelevant":
        depths += [(plus, minus) for plus in few for minus in many if (plus, minus) not in set(depths)]
    weights = tuple((alpha, beta) for alpha in TENTHS for beta in TENTHS)
    return Grid("eclipse", tuple(depths), weights, TENTHS, moon_pool)


def dime_grid(k_plus: Sequence[int] = (1,)) -> Grid:
    """Return DIME's grid: the retained share in 0.1..1 by 0.1, at k⁺ = 1 as published, or at others."""
    return Grid("dime", tuple((plus, 1) for plus in k_plus))
