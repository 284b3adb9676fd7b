"""The bi-encoder's losses by name. Needs torch and sentence-transformers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from foils.runtime.errors import InputError, UnknownNameError
from foils.training.cached import CachedContrastiveLoss
from foils.training.data import TrainingSet
from foils.training.facts import LeastGap
from foils.training.losses import ContrastiveLoss, LearnableTemperature
from foils.training.mixing import MIXINGS, LearnableMixing, Mixing, ScheduledMixing
from foils.training.objectives import debiased_infonce, weighted_infonce

_COMMON = ("model", "data", "mini_batch_size")


def mnrl(model: Any, data: TrainingSet, mini_batch_size: int | None, *, temperature: float = 0.05) -> ContrastiveLoss:
    """Return the multiple-negatives ranking loss (ECI_sem eq. 13), known positives left out.

    Where no known positive of a query is among the other documents of the batch and all weights are 1, value and
    gradients are those of sentence-transformers' (Cached)MultipleNegativesRankingLoss, which knows neither.
    """
    return _ours(model, data, mini_batch_size, objective=weighted_infonce, temperature=temperature)


def weighted(
    model: Any,
    data: TrainingSet,
    mini_batch_size: int | None,
    *,
    temperature: float = 0.05,
    learn_temperature: bool = False,
    least_gap: LeastGap | None = None,
) -> ContrastiveLoss:
    """Return weighted InfoNCE (ANMI 2.0 eq. 38), known positives left out."""
    tau = _temperature(temperature, learn_temperature)
    return _ours(model, data, mini_batch_size, objective=weighted_infonce, temperature=tau, least_gap=least_gap)


def debiased(
    model: Any,
    data: TrainingSet,
    mini_batch_size: int | None,
    *,
    temperature: float = 0.05,
    learn_temperature: bool = False,
    prior: float = 0.1,
    concentration: float = 0.0,
    least_gap: LeastGap | None = None,
) -> ContrastiveLoss:
    """Return the debiased loss (Chuang et al. 2020), with concentration > 0 hard-negative-weighted."""
    tau = _temperature(temperature, learn_temperature)
    objective = _debiased(prior, concentration)
    return _ours(model, data, mini_batch_size, objective=objective, temperature=tau, least_gap=least_gap)


def hard_weighted(
    model: Any,
    data: TrainingSet,
    mini_batch_size: int | None,
    *,
    temperature: float = 0.05,
    learn_temperature: bool = False,
    prior: float = 0.1,
    concentration: float = 1.0,
    least_gap: LeastGap | None = None,
) -> ContrastiveLoss:
    """Return the hard-negative-weighted debiased loss (Robinson et al. 2021)."""
    return debiased(
        model,
        data,
        mini_batch_size,
        temperature=temperature,
        learn_temperature=learn_temperature,
        prior=prior,
        concentration=concentration,
        least_gap=least_gap,
    )


def hybrid(
    model: Any,
    data: TrainingSet,
    mini_batch_size: int | None,
    *,
    temperature: float = 0.05,
    learn_temperature: bool = False,
    mixing: str = "fixed",
    alpha: float = 0.5,
    schedule: Callable[[int], float] | None = None,
    prior: float = 0.0,
    concentration: float = 0.0,
    least_gap: LeastGap | None = None,
) -> ContrastiveLoss:
    """Return α·(debiased, weighted) InfoNCE + (1 − α)·regression on ratings (ANMI 2.0 eq. 37)."""
    objective = _debiased(prior, concentration) if prior or concentration else weighted_infonce
    return _ours(
        model,
        data,
        mini_batch_size,
        objective=objective,
        temperature=_temperature(temperature, learn_temperature),
        mixing=make_mixing(mixing, alpha, schedule),
        least_gap=least_gap,
    )


LOSSES: dict[str, Callable[..., Any]] = {
    "mnrl": mnrl,
    "weighted": weighted,
    "debiased": debiased,
    "hard-weighted": hard_weighted,
    "hybrid": hybrid,
}


def make_loss(
    name: str, model: Any, data: TrainingSet, *, mini_batch_size: int | None = None, settings: Mapping[str, Any]
) -> Any:
    """Return a loss by name, cached where `mini_batch_size` is given.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: a setting out of range, or one that needs ratings where there are none.
    """
    if name not in LOSSES:
        raise UnknownNameError("loss", name, LOSSES)
    known = [parameter for parameter in inspect.signature(LOSSES[name]).parameters if parameter not in _COMMON]
    for setting in settings:
        if setting not in known:
            raise UnknownNameError(f"setting of the loss {name}", setting, known)
    if not settings.get("temperature", 1.0) > 0:
        raise InputError(f"temperature {settings['temperature']}; expected above 0")
    return LOSSES[name](model, data, mini_batch_size, **settings)


def make_mixing(name: str, alpha: float, schedule: Callable[[int], float] | None = None) -> Mixing:
    """Return a way of mixing by name; alpha is where `fixed` stays and `learnable` begins.

    Raises:
        UnknownNameError: no such way.
    """
    if name not in MIXINGS:
        raise UnknownNameError("way of mixing", name, MIXINGS)
    if name == "scheduled" and schedule is not None:
        return ScheduledMixing(schedule)
    return MIXINGS[name](alpha) if MIXINGS[name] in (Mixing, LearnableMixing) else MIXINGS[name]()


def _debiased(prior: float, concentration: float) -> Any:
    if not 0 <= prior < 1 or concentration < 0:
        raise InputError(f"prior {prior}, concentration {concentration}; expected in [0, 1), at least 0")
    return partial(debiased_infonce, prior=prior, concentration=concentration)


def _temperature(value: float, learned: bool) -> float | LearnableTemperature:
    return LearnableTemperature(value, least=min(0.01, value)) if learned else value


def _ours(model: Any, data: TrainingSet, mini_batch_size: int | None, **settings: Any) -> ContrastiveLoss:
    if mini_batch_size is None:
        return ContrastiveLoss(model, facts=data.facts, **settings)
    return CachedContrastiveLoss(model, mini_batch_size=mini_batch_size, facts=data.facts, **settings)
