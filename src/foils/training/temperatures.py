"""The temperature of a contrast: a number, or one that is learned. Needs torch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from foils.runtime.errors import InputError


class LearnableTemperature(nn.Module):  # type: ignore[misc]
    """τ = e^{−a}, a learned with the model, kept at or above `least` (CLIP: begins at 0.07, 1/τ at most 100).

    Args:
        initial: τ at the start.
        least: the smallest τ, above 0.

    Raises:
        InputError: not 0 < least ≤ initial.
    """

    def __init__(self, initial: float = 0.07, least: float = 0.01) -> None:
        super().__init__()
        if not 0 < least <= initial:
            raise InputError(f"temperature {initial}, at least {least}; expected 0 < least ≤ temperature")
        self.least = least
        self.log_scale = nn.Parameter(torch.tensor(-math.log(initial)))

    def forward(self) -> Tensor:
        """Return τ; a step that went beyond the bound is taken back first."""
        with torch.no_grad():
            self.log_scale.clamp_(max=-math.log(self.least))
        return torch.exp(-self.log_scale)


def make_temperature(temperature: float, *, learned: bool) -> float | LearnableTemperature:
    """Return a temperature that stays, or one that is learned from there on.

    Raises:
        InputError: it is not above 0.
    """
    if not learned or not temperature > 0:
        return checked_temperature(temperature)
    return LearnableTemperature(temperature, least=min(0.01, temperature))


def checked_temperature(temperature: float | LearnableTemperature) -> float | LearnableTemperature:
    """Return it.

    Raises:
        InputError: a number that is not above 0.
    """
    if not isinstance(temperature, LearnableTemperature) and not temperature > 0:
        raise InputError(f"temperature {temperature}; expected above 0")
    return temperature


def tau_of(temperature: float | LearnableTemperature) -> float | Tensor:
    """Return τ as it is now."""
    return temperature() if isinstance(temperature, LearnableTemperature) else temperature


def described_temperature(temperature: float | LearnableTemperature) -> dict[str, Any]:
    """Return it as it is now, and whether it is learned, for a model card."""
    tau = tau_of(temperature)
    value = tau.item() if isinstance(tau, Tensor) else tau
    return {"temperature": value, "temperature_learned": isinstance(temperature, LearnableTemperature)}
