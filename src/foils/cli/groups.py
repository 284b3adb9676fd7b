"""Options that a verb takes as a group, a dataclass; and the help's panels that they stand in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

import typer

Verb = Callable[..., None]


def panel(title: str) -> Callable[..., Any]:
    """Return how an option is made, from its name and help, that stands under this title in the help."""

    def option(name: str, text: str, **more: Any) -> Any:
        return typer.Option(name, help=text, rich_help_panel=title, **more)

    return option


def takes(group: type, name: str, *, without: Sequence[str] = ()) -> Callable[[Verb], Verb]:
    """Give a verb a group of options: in place of its parameter `name` come the fields of the dataclass `group`.

    The defaults are those of the parameter's own default, or, where it has none, of the fields. Fields named in
    `without` are no options: they keep their defaults.
    """
    options = [each for each in fields(group) if each.name not in without]

    def decorate(command: Verb) -> Verb:
        hints = get_type_hints(group, include_extras=True)
        defaults = inspect.signature(command).parameters[name].default
        shared = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(each, defaults),
                annotation=hints[each.name],
            )
            for each in options
        ]

        def verb(**given: Any) -> None:
            chosen = {each.name: given.pop(each.name) for each in options}
            command(**given, **{name: group(**chosen)})

        own = parameters_of(command)
        return presented(verb, command, [one for each in own for one in (shared if each.name == name else [each])])

    return decorate


def parameters_of(command: Verb) -> list[inspect.Parameter]:
    """Return a verb's parameters, all by keyword, with annotations that are written as text read in its own module."""
    hints = get_type_hints(command, include_extras=True)
    return [
        parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in inspect.signature(command).parameters.items()
    ]


def presented(verb: Verb, command: Verb, parameters: Sequence[inspect.Parameter]) -> Verb:
    """Return `verb` with the name and the docstring of the command that it calls, and with these parameters."""
    verb.__name__, verb.__doc__ = command.__name__, command.__doc__
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return verb


def _default(field: Field[Any], defaults: Any) -> Any:
    if defaults is not inspect.Parameter.empty:
        return getattr(defaults, field.name)
    return inspect.Parameter.empty if field.default is MISSING else field.default
