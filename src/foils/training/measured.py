"""A loss that can be measured again after a step on the same batch. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foils.runtime.errors import InputError


class MeasuredLoss(nn.Module):  # type: ignore[misc]
    """A loss that can be computed again on its last training batch, with the same dropout and precision.

    Args:
        loss: takes (sentence_features, labels).
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self._last: tuple[Any, ...] | None = None

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None) -> Any:
        """Return the wrapped loss; in training, keep what is needed to compute it again."""
        features = [dict(column) for column in sentence_features]
        if not (self.training and torch.is_grad_enabled()):
            return self.loss(features, labels)
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            raise InputError("a curriculum goes by each row's number; expected them in the column label")
        kept, device = [dict(column) for column in features], labels.device
        states = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        precision = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        value = self.loss(features, labels)
        self._last = kept, labels, states, precision, value.detach()
        return value

    def again(self) -> tuple[float, float, NDArray[np.int64]]:
        """Return the loss of the last batch as it was, as it is now, and the batch's labels.

        Raises:
            InputError: the loss was not computed in training since the last call.
        """
        if self._last is None:
            raise InputError(
                "no batch was trained on through this loss; train with what `TierCurriculum.wrapped` returns"
            )
        features, labels, (state, on_gpu), (enabled, kind), before = self._last
        self._last, device = None, labels.device
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=[device] if on_gpu is not None else []),
            torch.autocast(device.type, enabled=enabled, dtype=kind),
        ):
            torch.set_rng_state(state)
            if on_gpu is not None:
                torch.cuda.set_rng_state(on_gpu, device)
            after = self.loss(features, labels)
        return float(before), float(after), labels.cpu().numpy()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the wrapped loss' settings, for the model card."""
        return dict(getattr(self.loss, "get_config_dict", dict)())
