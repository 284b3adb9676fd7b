"""Groups of options that a verb takes as one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


def takes(group: type, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb a group of options: its parameter `name` becomes the fields of the dataclass `group`.

    The defaults are those of the parameter's own default.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        options = get_type_hints(group, include_extras=True)
        defaults = inspect.signature(command).parameters[name].default
        own = [
            parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
            for key, parameter in inspect.signature(command).parameters.items()
            if key != name
        ]
        shared = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(defaults, each.name),
                annotation=options[each.name],
            )
            for each in fields(group)
        ]

        def verb(**given: Any) -> None:
            chosen = {each.name: given.pop(each.name) for each in fields(group)}
            command(**given, **{name: group(**chosen)})

        verb.__name__, verb.__doc__ = command.__name__, command.__doc__
        verb.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        verb.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        return verb

    return decorate
