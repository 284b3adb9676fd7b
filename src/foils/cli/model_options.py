"""The encoder options of verbs that name their encoders with `--model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from foils.cli import options as opt


def takes_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the encoder options, as `takes_encoder`, less --encoder; texts are cut at the model's own length."""
    verb = opt.takes_encoder(command)
    parameters = [
        parameter.replace(default=None) if name == "max_length" else parameter
        for name, parameter in inspect.signature(verb).parameters.items()
        if name != "encoder"
    ]

    def named(**given: Any) -> None:
        verb(encoder=opt.DEFAULT_ENCODER, **given)

    named.__name__, named.__doc__ = command.__name__, command.__doc__
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    named.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return named
