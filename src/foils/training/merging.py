"""Weights between those of two models: the linear merge."""

from __future__ import annotations

from typing import Any

import torch

from foils.runtime.errors import InputError


def merged(base: Any, tuned: Any, alpha: float) -> Any:
    """Return `tuned`, its weights changed to (1 − α)·base + α·tuned.

    Sums are made in float64 and kept in the tuned model's precision. Tensors of whole numbers stay the tuned model's.

    Args:
        base: a SentenceTransformer; it stays as it is.
        tuned: one of the same architecture; it is changed.
        alpha: α in [0, 1]; 0 gives the base's weights, 1 the tuned model's.

    Raises:
        InputError: α out of range, or models whose weights are not of the same names and shapes.

    Source: Wortsman et al. 2022 (WiSE-FT), eq. 1.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha {alpha:g}; expected a number from 0 to 1")
    first, second = base.state_dict(), tuned.state_dict()
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (first, second)]
    other = sorted(name for name in {**first, **second} if shapes[0].get(name) != shapes[1].get(name))
    if other:
        shown = ", ".join(other[:3])
        raise InputError(
            f"{len(other)} weights are not of the same names and shapes ({shown}{', …' if len(other) > 3 else ''}); "
            "only a model and what was trained from it can be merged"
        )
    with torch.no_grad():
        for name, value in second.items():
            if value.is_floating_point():
                between = (1 - alpha) * first[name].double().to(value.device) + alpha * value.double()
                value.copy_(between)
    return tuned
