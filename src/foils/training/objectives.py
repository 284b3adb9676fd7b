"""The losses as pure functions, how two become one, learned temperatures, and masks. Needs torch.

Throughout, a batch has b queries and c candidate documents; `similarities` is (b, c); each query
has one positive among the candidates, and every other candidate counts as a negative with a weight
of its own, given as its logarithm (0: as it is; −inf: left out).

Each way of mixing the contrastive loss and the regression on ratings is a module: (2,) the two
losses, and if it asks for them (2,) the norms of their gradients, → the loss. `set_epoch` tells it
the epoch, counted from 1.

Known positives are left out by what is known of pairs (`foils.training.data.PairFacts`); a mask is
of those that nobody labelled, by the similarities of a guide. A mask is log-weights of a block of
queries and candidates, and adds to those of the facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from foils.runtime.errors import InputError, check_names
from foils.runtime.options import Option
from foils.selection.rules import stage_of

Objective = Callable[..., Tensor]
"""(similarities, positives, log-weights, temperature=) → one loss a query."""


def weighted_infonce(
    similarities: Tensor, positives: Tensor, log_weights: Tensor | None = None, *, temperature: float | Tensor = 0.05
) -> Tensor:
    """Return −log[e^{s₊/τ} / (e^{s₊/τ} + Σ_i w_i e^{s_i/τ})] of each query, (b,), at least 0.

    Args:
        similarities: (b, c), higher is nearer.
        positives: (b,) int64, each query's positive among the candidates.
        log_weights: (b, c) log w, at most a few: −inf leaves a candidate out; 0 at the positives.
            None: all weigh 1, which makes it InfoNCE.
        temperature: τ, above 0; divides.

    Source: ANMI 2.0 eq. 38.
    """
    logits = similarities / temperature
    if log_weights is not None:
        logits = logits + log_weights
    return nn.functional.cross_entropy(logits, positives, reduction="none")


def debiased_infonce(
    similarities: Tensor,
    positives: Tensor,
    log_weights: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.05,
    prior: float = 0.0,
    concentration: float = 0.0,
    least: float | Tensor = -1.0,
) -> Tensor:
    """Return −log[e^{s₊/τ} / (e^{s₊/τ} + N·g)] of each query, (b,): negatives' sampling bias is taken out.

    g = max{(E − π e^{s₊/τ})/(1 − π), e^{l/τ}}, E = Σ_i w_i e^{(1+β)s_i/τ} / Σ_i w_i e^{βs_i/τ}, N =
    Σ_i w_i, sums over the negatives. π is the chance that a drawn negative is a positive; β > 0
    leans the mean towards hard negatives. With π = β = 0 it is `weighted_infonce`. A query without
    any negative has loss 0.

    Args:
        similarities: (b, c), at least l for the lower bound e^{l/τ} to mean anything.
        positives: (b,) int64.
        log_weights: (b, c) log w, as in `weighted_infonce`. The weights w are ours; the papers have none.
        temperature: τ, above 0.
        prior: π in [0, 1), τ⁺ in the papers; more corrects more.
        concentration: β, at least 0; more attends to harder negatives.
        least: l, the least that a similarity can be: −1 for cosines; or (b,) of each query.

    Source: Chuang et al. 2020 (β = 0, M = 1 positive); Robinson et al. 2021, with gradients
    through the importance weights, as in their code.
    """
    logits = similarities / temperature
    positive = logits.gather(1, positives[:, None]).squeeze(1)
    weights = torch.zeros_like(logits) if log_weights is None else log_weights
    weights = weights.scatter(1, positives[:, None], -math.inf)
    alone = torch.isinf(weights).all(1)
    weights = torch.where(alone[:, None], torch.zeros_like(weights), weights)  # finite rows, dropped below
    log_count = torch.logsumexp(weights, 1)
    log_sum = log_count + torch.logsumexp(weights + (1 + concentration) * logits, 1)
    log_sum = log_sum - torch.logsumexp(weights + concentration * logits, 1)
    peak = torch.maximum(torch.maximum(log_sum, positive), log_count + least / temperature).detach()
    corrected = (torch.exp(log_sum - peak) - prior * torch.exp(log_count + positive - peak)) / (1 - prior)
    negatives = torch.maximum(corrected, torch.exp(log_count + least / temperature - peak))
    losses = torch.log(torch.exp(positive - peak) + negatives) - (positive - peak)
    return torch.where(alone, torch.zeros_like(losses), losses)


def contrast(prior: float = 0.0, concentration: float = 0.0) -> Objective:
    """Return `weighted_infonce`, or with a prior or a concentration `debiased_infonce` with these settings.

    Raises:
        InputError: a setting out of range.
    """
    if not 0 <= prior < 1 or concentration < 0:
        raise InputError(f"prior {prior}, concentration {concentration}; expected in [0, 1), at least 0")
    if prior or concentration:
        return partial(debiased_infonce, prior=prior, concentration=concentration)
    return weighted_infonce


def rating_regression(predictions: Tensor, ratings: Tensor) -> Tensor:
    """Return mean_j (g_j − ẽ_j)² over each list, (b,); NaN for a list without any rating.

    Args:
        predictions: (b, 1 + k) g, of the positive and the negatives.
        ratings: (b, 1 + k) ẽ, standardised; NaN where there is none: left out of the mean.

    Source: ANMI 2.0 eq. 40.
    """
    rated = torch.isfinite(ratings)
    errors = torch.where(rated, predictions - torch.where(rated, ratings, torch.zeros_like(ratings)), 0.0)
    return errors.square().sum(1) / rated.sum(1)


def margin_mse(
    similarities: Tensor, teacher: Tensor, *, temperature: float = 1.0, teacher_temperature: float = 1.0
) -> Tensor:
    """Return mean_j [(s₊ − s_j)/τ − (t₊ − t_j)/τ_T]² over each query's negatives, (b,).

    Args:
        similarities: (b, 1 + k) s, of the positive and the negatives.
        teacher: (b, 1 + k) t, the teacher's scores, higher is better; NaN where there is none: left
            out of the mean. A query without a score of the positive, or of any negative, has NaN.
        temperature: τ, above 0.
        teacher_temperature: τ_T, above 0.

    Source: Hofstätter et al. 2020 (arXiv 2010.02666), where both temperatures are 1; several negatives and
    temperatures are ours.
    """
    known = torch.isfinite(teacher[:, 1:])
    margins = (teacher[:, :1] - teacher[:, 1:]) / teacher_temperature
    errors = (similarities[:, :1] - similarities[:, 1:]) / temperature - torch.where(known, margins, 0.0)
    return torch.where(known, errors, 0.0).square().sum(1) / known.sum(1)


def list_distillation(
    similarities: Tensor, teacher: Tensor, *, temperature: float = 1.0, teacher_temperature: float = 1.0
) -> Tensor:
    """Return KL(P‖Q) = Σ_j P_j (log P_j − log Q_j), P = softmax(t/τ_T), Q = softmax(s/τ) by list, (b,).

    Args:
        similarities: (b, 1 + k) s, of the positive and the negatives.
        teacher: (b, 1 + k) t, the teacher's scores, higher is better; NaN where there is none: left
            out of both.
        temperature: τ, above 0; smaller makes the student's list sharper.
        teacher_temperature: τ_T, above 0; smaller makes the teacher's list sharper.

    Source: Hinton et al. 2015, without their factor τ²; over lists as in RocketQAv2 (Ren et al. 2021, eq. 4).
    """
    known = torch.isfinite(teacher)
    wanted = torch.log_softmax((teacher / teacher_temperature).masked_fill(~known, -math.inf), 1)
    predicted = torch.log_softmax((similarities / temperature).masked_fill(~known, -math.inf), 1)
    return (wanted.exp() * torch.where(known, wanted - predicted, 0.0)).sum(1)


def weighted_listnet(scores: Tensor, relevance: Tensor, log_weights: Tensor) -> Tensor:
    """Return −Σ_j P_j (s_j − log Σ_i w_i e^{s_i}) of a list, (), with P_j = w_j e^{y_j} / Σ_i w_i e^{y_i}.

    With all weights 1 it is ListNet's cross-entropy of two softmaxes. A document of weight w counts
    as w equal ones.

    Args:
        scores: (n,) s.
        relevance: (n,) y, higher is more relevant.
        log_weights: (n,) log w, finite.

    Source: Cao et al. 2007, with top-one probabilities; the weights are ours.
    """
    shares = torch.softmax(relevance + log_weights, 0)
    return -(shares * (scores - torch.logsumexp(scores + log_weights, 0))).sum()


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

    needs_norms = False

    def __init__(self, alpha: float = 0.5, schedule: Callable[[int], float] | None = None) -> None:
        super().__init__()
        self.alpha, self.schedule = alpha if schedule is None else schedule(1), schedule
        Option(least=0, most=1).check("alpha", alpha)

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


class LearnableMixing(Mixing):
    """α = σ(a), a learned with the model (ANMI 2.0 section 7.4, item 2; σ, for α in (0, 1), is ours).

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
    """L₁/(2σ₁²) + L₂/(2σ₂²) + log σ₁σ₂, log σ² learned (Kendall et al. 2018; ANMI 2.0 § 7.4, item 1)."""

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

    With n_i = ‖∂L_i/∂E‖ over the embeddings E (the last thing the two losses share), G_i = w_i n_i
    and r_i = (L_i/L_i(0))/mean, each training step moves w_i by −rate·sign(G_i − Ḡ r_i^γ)·n_i/Ḡ,
    the gradient of Σ|G_i − Ḡ r_i^γ| with the target held fixed, in units of Ḡ (the units are ours:
    the rate then does not depend on the scale of the losses), then scales w to sum 2.

    Attributes:
        asymmetry: γ, as in the paper; more pulls slow losses back harder.
        rate: step size, as in the paper.
    """

    needs_norms = True
    asymmetry, rate = 1.5, 0.025
    weights: Tensor
    initial: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(2))
        self.register_buffer("initial", torch.full((2,), math.nan))

    def shares(self) -> Any:
        """Return w₁ and w₂ as they are now."""
        return self.weights.clone()

    def forward(self, losses: Tensor, norms: Tensor | None = None) -> Tensor:
        """Return the mixed loss under the present weights; with norms, in training, move them afterwards."""
        mixed = super().forward(losses)
        if self.training and norms is not None:
            losses, norms = losses.detach(), norms.detach()
            if torch.isnan(self.initial).any():
                self.initial.copy_(losses.clamp_min(1e-12))
            pace = losses / self.initial
            strength = self.weights * norms
            mean = strength.mean().clamp_min(1e-12)
            target = mean * (pace / pace.mean().clamp_min(1e-12)) ** self.asymmetry
            moved = (self.weights - self.rate * torch.sign(strength - target) * norms / mean).clamp_min(1e-3)
            self.weights.copy_(2 * moved / moved.sum())
        return mixed


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
    return MIXINGS[name](alpha) if name in ("fixed", "learnable") else MIXINGS[name]()


class Temperature(nn.Module):  # type: ignore[misc]
    """τ, which stays or is learned: τ = e^{−a}, a learned with the model, τ ≥ 0.01 (CLIP: 1/τ ≤ 100).

    Args:
        initial: τ, or its beginning; below 0.01 it is also the bound.
        learned: whether it is learned.

    Raises:
        InputError: it is not above 0.
    """

    def __init__(self, initial: float, *, learned: bool = False) -> None:
        super().__init__()
        Option(above=0).check("temperature", initial)
        self.initial, self.least = initial, min(0.01, initial)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(initial))) if learned else None

    def forward(self) -> float | Tensor:
        """Return τ as it is now; a step that went beyond the bound is taken back first."""
        if self.log_scale is None:
            return self.initial
        with torch.no_grad():
            self.log_scale.clamp_(max=-math.log(self.least))
        return torch.exp(-self.log_scale)


def mask_log_weights(similarities: Tensor, positives: Tensor, *, margin: float) -> Tensor:
    """Return (b, c) log w: −inf where s_ij > s_i₊ + margin, else 0; the positives' own log-weights are 0.

    Args:
        similarities: (b, c) s of a guide, another encoder than the one that trains; higher is nearer.
        positives: (b,) int64, each query's positive among the candidates.
        margin: in units of s; larger leaves out fewer.

    Source: GISTEmbed (Solatorio 2024), where the margin is 0.
    """
    of_positives = similarities.gather(1, positives[:, None]).squeeze(1)
    too_near = similarities > (of_positives + margin)[:, None]
    weights = torch.zeros_like(similarities).masked_fill(too_near, -math.inf)
    return weights.scatter(1, positives[:, None], 0.0)
