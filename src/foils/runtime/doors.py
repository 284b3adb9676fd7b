"""A door: the one function of a stage, which the program's verb is made of.

A door takes its settings one by one, as keyword arguments, and is written with them in groups::

    @door
    def mine(collection: CollectionLike, method: str = "bm25", *, window: WindowSettings, seed: int = 0) -> Mined: ...

    mine("scifact/", "bm25", top=10, ranks=(0, 100))     # top and ranks are fields of WindowSettings
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from foils.runtime.options import Needs, Setting, Settings, documented, refuse_idle, settings_of, taken_apart

Result = TypeVar("Result")
Groups = Mapping[str, tuple[type[Settings], Settings | None]]


def door(
    function: Callable[..., Result] | None = None,
    *,
    check: Callable[..., None] | None = None,
    needs: Mapping[str, Needs] | None = None,
) -> Callable[..., Any]:
    """Let a function that takes groups of settings take their fields one by one, as keyword arguments.

    A parameter whose annotation is a `Settings` class is such a group; its own default, where it has one, gives the
    defaults of the fields (None, for a field that the door leaves open). The signature and the docstring show the
    fields. The door works in the context that its groups give (`Settings.applied`).

    Args:
        function: the door, written with groups.
        check: takes some of its parameters, by their names, and raises an InputError where they do not go together. It
            is called before any surrounding is applied: no cluster is started for a mistake.
        needs: name of a setting, or of a group -> conditions without which it has no effect in this door, beside those
            that its `Option` and its `Settings` have.

    Raises:
        InputError: (of the door) a setting is given that has no effect beside the others.
        TypeError: (of the door) an unknown argument.
    """
    if function is None:
        return functools.partial(door, check=check, needs=needs)
    groups, own = _taken(function)
    settings = _settings(function, own, groups, needs or {})
    parameters = [
        own[each.name].replace(annotation=each.annotation)
        if each.name in own and each.name not in groups
        else inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.annotation
        )
        for each in settings.values()
    ]
    signature = inspect.Signature(parameters)

    @functools.wraps(function)
    def opened(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        grouped = {
            name: group(**{each.name: given.pop(each.name) for each in settings_of(group)})
            for name, (group, _) in groups.items()
        }
        given = {name: settings[name].checked(value) for name, value in given.items()}
        fields = {name: value for group in grouped.values() for name, value in vars(group).items()}
        refuse_idle(settings.values(), {**given, **fields})
        if check is not None:
            check(**{name: {**given, **grouped}[name] for name in inspect.signature(check).parameters})
        with ExitStack() as around:
            for each in grouped.values():
                around.enter_context(each.applied())
            return function(**given, **grouped)

    opened.__signature__ = signature  # type: ignore[attr-defined]
    opened.__doc__ = _with_arguments(function.__doc__ or "", settings.values())
    opened.settings = settings  # type: ignore[attr-defined]
    return opened


def _taken(function: Callable[..., Any]) -> tuple[Groups, dict[str, inspect.Parameter]]:
    """The groups of a function's parameters, with their own defaults, and all parameters, their annotations read."""
    groups, own = {}, {}
    for name, parameter in inspect.signature(function).parameters.items():
        if isinstance(parameter.annotation, str):  # read in the function's own module
            parameter = parameter.replace(annotation=eval(parameter.annotation, vars(sys.modules[function.__module__])))
        own[name], kind = parameter, taken_apart(parameter.annotation)[0]
        if isinstance(kind, type) and issubclass(kind, Settings):
            groups[name] = (kind, None if parameter.default is inspect.Parameter.empty else parameter.default)
    return groups, own


def _settings(
    function: Callable[..., Any], own: Mapping[str, inspect.Parameter], groups: Groups, needs: Mapping[str, Needs]
) -> dict[str, Setting]:
    """What a door takes, by name: its own parameters, and the fields of its groups in their places."""
    texts, taken = documented(function.__doc__ or ""), list[Setting]()
    for name, parameter in own.items():
        more = (needs[name],) if name in needs else ()
        if name not in groups:
            kind, option = taken_apart(parameter.annotation)
            text = texts.get(name) or option.help
            taken.append(Setting(name, kind, option, parameter.default, text, needs=(option.needs, *more)))
            continue
        group, base = groups[name]
        for each in settings_of(group):
            default = each.default if base is None else getattr(base, each.name)
            kind = each.annotation | None if default is None else each.annotation
            wants = (*each.needs, *more, *((needs[each.name],) if each.name in needs else ()))
            taken.append(Setting(each.name, kind, each.option, default, each.help, each.heading, wants))
    names = [each.name for each in taken]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{function.__name__}: two settings are called {min(twice)!r}")
    return dict(zip(names, taken, strict=True))


def _with_arguments(docstring: str, settings: Iterable[Setting]) -> str:
    """The docstring, its section of arguments made of the settings, in their order."""
    lines, arguments = inspect.cleandoc(docstring).splitlines(), ["Args:"]
    for each in settings:
        names, bounds = each.option.allowed(), each.option.range
        text = [each.help, f"One of {', '.join(names)}." if names else "", f"Range: {bounds}." if bounds else ""]
        arguments.append(f"    {each.name}: {' '.join(filter(None, text))}")
    if "Args:" in lines:
        start = lines.index("Args:")
        end = next((at for at in range(start, len(lines)) if not lines[at].strip()), len(lines))
    else:
        start = end = lines.index("Raises:") if "Raises:" in lines else len(lines)
        arguments = [*arguments, ""] if end < len(lines) else ["", *arguments]
    return "\n".join([*lines[:start], *arguments, *lines[end:]])
