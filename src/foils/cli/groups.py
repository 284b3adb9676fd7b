"""Options that a verb takes as a group, a dataclass; the panels that they stand in; and which go together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

import typer
from typer.models import OptionInfo

from foils.runtime.errors import InputError

Verb = Callable[..., None]
Check = Callable[[Mapping[str, Any], Mapping[str, object]], None]


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


def options_of(group: type) -> dict[str, str]:
    """Return the name of each option of a group, as it is typed (`--no-` forms left out), and its field's name."""
    hints = get_type_hints(group, include_extras=True)
    return {_typed(hints[each.name], each.name).partition("/")[0]: each.name for each in fields(group)}


def given(parameters: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that differ from their defaults: their names as typed, and their values.

    Args:
        parameters: of a verb; those that are arguments are left out.
        values: of each parameter, by its name.
    """
    return {
        _typed(each.annotation, each.name).partition("/")[0]: values[each.name]
        for each in parameters
        if _is_option(each.annotation) and values[each.name] != each.default
    }


def checked(command: Verb, check: Check | None) -> Verb:
    """Have a verb's options checked together before it begins.

    Args:
        command: the verb.
        check: is given the value of every parameter by its name, and the options that differ from their defaults by
            their names as typed; raises an InputError for those that would do nothing. None: there is nothing to check.
    """
    if check is None:
        return command
    parameters = parameters_of(command)

    def verb(**values: Any) -> None:
        check(values, given(parameters, values))
        command(**values)

    return presented(verb, command, parameters)


def only(options: Mapping[str, object], *names: str) -> dict[str, object]:
    """Return those of the given options that have one of these names."""
    return {name: value for name, value in options.items() if name in names}


def refuse(options: Mapping[str, object], why: str) -> None:
    """Raise an InputError where options are given that have no effect.

    Args:
        options: names as typed, and values; None: not given.
        why: completes `--option VALUE: no effect …`, and says what to do.
    """
    told = [_told(name, value) for name, value in options.items() if value is not None]
    if told:
        raise InputError(f"{', '.join(told)}: no effect {why}")


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


def _is_option(annotation: Any) -> bool:
    return any(isinstance(each, OptionInfo) for each in getattr(annotation, "__metadata__", ()))


def _typed(annotation: Any, name: str) -> str:
    """The name of an option as it is declared, or as typer makes it of the parameter's."""
    option = annotation.__metadata__[0]
    declared = [text for text in (option.default, *(option.param_decls or ())) if str(text).startswith("--")]
    return declared[0] if declared else f"--{name.replace('_', '-')}"


def _told(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else f"--no-{name.removeprefix('--')}"
    return " ".join([name, *map(str, value if isinstance(value, list) else [value])])
