"""How the contrastive loss and the regression on ratings become one, and temperatures that are learned. Needs torch.

Each way of weighting is a module: (2,) the two losses, and if it asks for them (2,) the norms of their gradients, → the
loss. `set_epoch` tells it the epoch, counted from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from foils.runtime.errors import InputError, check_names
from foils.selection.curriculum import stage_of


def scheduled_alpha(epoch: float) -> float:
    """Return α = 0.5 + 0.3·min(1, epoch/5), epochs counted from 1 (ANMI 2.0 Algorithm 3, line 4)."""
    return 0.5 + 0.3 * min(1.0, epoch / 5)


class Mixing(nn.Module):  # type: ignore[misc]
    """α·L₁ + (1 − α)·L₂ (ANMI 2.0 eq. 37) with α fixed or by epoch; what the other ways have in common.

    Args:
        alpha: α in [0, 1], the share of the contrastive loss.
        schedule: epoch, counted from 1 → α, in the place of one that stays.

    Raises:
        InputError: α outside [0, 1].
    """

    name = "fixed"
    needs_norms = False

    def __init__(self, alpha: float = 0.5, schedule: Callable[[int], float] | None = None) -> None:
        super().__init__()
        self.alpha, self.schedule = alpha if schedule is None else schedule(1), schedule
        if not 0 <= alpha <= 1:
            raise InputError(f"alpha {alpha}; expected a share in [0, 1]")

    def set_epoch(self, epoch: int) -> None:
        """Take note of the epoch, counted from 1."""
        if self.schedule is not None:
            self.alpha = self.schedule(epoch)

    def shares(self) -> Any:
        """Return by what the two losses are multiplied now."""
        return self.alpha, 1 - self.alpha

    def forward(self, losses: Tensor, norms: Tensor | None = None) -> Tensor:
        """Return the mixed loss."""
        first, second = self.shares()
        return first * losses[0] + second * losses[1]

    def describe(self) -> dict[str, Any]:
        """Return the name of the way and its shares now, for logs and model cards."""
        first, second = map(float, self.shares())
        return {"mixing": self.name, "contrastive_share": first, "regression_share": second}


class LearnableMixing(Mixing):
    """α = σ(a), a learned with the model (ANMI 2.0 section 7.4, item 2; the σ, which keeps α in (0, 1), is ours).

    Gradient descent on α alone moves it towards the smaller of the two losses.
    """

    def __init__(self, alpha: float = 0.5) -> None:
        super().__init__(alpha)
        if not 0 < alpha < 1:
            raise InputError(f"alpha {alpha}; a learnable one begins inside (0, 1)")
        self.logit = nn.Parameter(torch.tensor(math.log(alpha / (1 - alpha))))

    def shares(self) -> Any:
        """Return α and 1 − α as they are now."""
        alpha = torch.sigmoid(self.logit)
        return alpha, 1 - alpha


class UncertaintyMixing(Mixing):
    """L₁/(2σ₁²) + L₂/(2σ₂²) + log σ₁σ₂, with log σ² learned (Kendall et al. 2018; ANMI 2.0 section 7.4, item 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variances = nn.Parameter(torch.zeros(2))

    def shares(self) -> Any:
        """Return 1/(2σ₁²) and 1/(2σ₂²)."""
        return 0.5 * torch.exp(-self.log_variances)

    def forward(self, losses: Tensor, norms: Tensor | None = None) -> Tensor:
        """Return the mixed loss."""
        return super().forward(losses) + 0.5 * self.log_variances.sum()


class GradNormMixing(Mixing):
    """w₁L₁ + w₂L₂, w moved so that both gradients have a like norm (Chen et al. 2018).

    With n_i = ‖∂L_i/∂E‖ over the embeddings E (the last thing the two losses share), G_i = w_i n_i and
    r_i = (L_i/L_i(0))/mean, each training step moves w_i by −rate·sign(G_i − Ḡ r_i^γ)·n_i/Ḡ, the gradient of
    Σ|G_i − Ḡ r_i^γ| with the target held fixed, in units of Ḡ (the units are ours: the rate then does not depend on
    the scale of the losses), then scales w to sum 2.

    Args:
        asymmetry: γ, at least 0; more pulls slow losses back harder. 1.5 in the paper.
        rate: step size, above 0; 0.025 in the paper.

    Raises:
        InputError: a setting out of range.
    """

    needs_norms = True
    weights: Tensor
    initial: Tensor

    def __init__(self, asymmetry: float = 1.5, rate: float = 0.025) -> None:
        super().__init__()
        if asymmetry < 0 or rate <= 0:
            raise InputError(f"asymmetry {asymmetry}, rate {rate}; expected at least 0, above 0")
        self.asymmetry, self.rate = asymmetry, rate
        self.register_buffer("weights", torch.ones(2))
        self.register_buffer("initial", torch.full((2,), math.nan))

    def shares(self) -> Any:
        """Return w₁ and w₂ as they are now."""
        return self.weights.clone()

    def forward(self, losses: Tensor, norms: Tensor | None = None) -> Tensor:
        """Return the mixed loss under the present weights; with norms, in training, move them afterwards."""
        mixed = super().forward(losses)
        if self.training and norms is not None:
            self._move(losses.detach(), norms.detach())
        return mixed

    def _move(self, losses: Tensor, norms: Tensor) -> None:
        if torch.isnan(self.initial).any():
            self.initial.copy_(losses.clamp_min(1e-12))
        pace = losses / self.initial
        strength = self.weights * norms
        mean = strength.mean().clamp_min(1e-12)
        target = mean * (pace / pace.mean().clamp_min(1e-12)) ** self.asymmetry
        moved = (self.weights - self.rate * torch.sign(strength - target) * norms / mean).clamp_min(1e-3)
        self.weights.copy_(2 * moved / moved.sum())


MIXINGS: dict[str, Callable[..., Mixing]] = {
    "fixed": Mixing,
    "scheduled": partial(Mixing, schedule=scheduled_alpha),
    "staged": partial(Mixing, schedule=lambda epoch: stage_of(epoch)[1]),
    "learnable": LearnableMixing,
    "uncertainty": UncertaintyMixing,
    "gradnorm": GradNormMixing,
}
"""`staged` has the α of ANMI 2.0 Table 3: 0.5 in epochs 1 and 2, 0.6 in 3 and 4, 0.7 in 5 and 6, then 0.8."""


def make_mixing(name: str, alpha: float) -> Mixing:
    """Return a way of mixing by name; alpha is where `fixed` stays and `learnable` begins.

    Raises:
        UnknownNameError: no such way.
    """
    check_names("way of mixing", [name], MIXINGS)
    mixing = MIXINGS[name](alpha) if name in ("fixed", "learnable") else MIXINGS[name]()
    mixing.name = name
    return mixing


class Temperature(nn.Module):  # type: ignore[misc]
    """τ, which stays or is learned: τ = e^{−a}, a learned with the model, τ at least 0.01 (CLIP: 1/τ at most 100).

    Args:
        initial: τ, or its beginning; below 0.01 it is also the bound.
        learned: whether it is learned.

    Raises:
        InputError: it is not above 0.
    """

    def __init__(self, initial: float, *, learned: bool = False) -> None:
        super().__init__()
        if not initial > 0:
            raise InputError(f"temperature {initial}; expected above 0")
        self.initial, self.least = initial, min(0.01, initial)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(initial))) if learned else None

    def forward(self) -> float | Tensor:
        """Return τ as it is now; a step that went beyond the bound is taken back first."""
        if self.log_scale is None:
            return self.initial
        with torch.no_grad():
            self.log_scale.clamp_(max=-math.log(self.least))
        return torch.exp(-self.log_scale)

    def describe(self) -> dict[str, Any]:
        """Return τ as it is now, and whether it is learned, for a model card."""
        return {"temperature": float(self()), "temperature_learned": self.log_scale is not None}
