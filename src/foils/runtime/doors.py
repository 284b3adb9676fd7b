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
from dataclasses import replace
from typing import Any, TypeVar

from foils.runtime.options import Needs, Setting, Settings, documented, refuse_idle, settings_of, taken_apart

Result = TypeVar("Result")


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
    groups, settings, parameters = _taken(function, needs or {})
    signature = inspect.Signature(parameters)

    @functools.wraps(function)
    def opened(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        grouped = {
            name: group(**{each.name: given.pop(each.name) for each in settings_of(group)})
            for name, group in groups.items()
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


def _taken(
    function: Callable[..., Any], needs: Mapping[str, Needs]
) -> tuple[dict[str, type[Settings]], dict[str, Setting], list[inspect.Parameter]]:
    """A door's groups, its settings by name (the fields of groups in their places), and its parameters."""
    texts = documented(function.__doc__ or "")
    groups, settings, parameters = dict[str, type[Settings]](), dict[str, Setting](), list[inspect.Parameter]()
    for name, parameter in inspect.signature(function).parameters.items():
        annotation, more = parameter.annotation, (needs[name],) if name in needs else ()
        if isinstance(annotation, str):  # read in the function's own module
            annotation = eval(annotation, vars(sys.modules[function.__module__]))
        kind, option = taken_apart(annotation)
        if isinstance(kind, type) and issubclass(kind, Settings):
            groups[name] = kind
            base = None if parameter.default is inspect.Parameter.empty else parameter.default
            own = [_of_group(each, base, more, needs) for each in settings_of(kind)]
        else:
            text = texts.get(name) or option.help
            own = [Setting(name, kind, option, parameter.default, text, needs=(option.needs, *more))]
        for each in own:
            if each.name in settings:
                raise TypeError(f"{function.__name__}: two settings are called {each.name!r}")
            settings[each.name] = each
            place = inspect.Parameter.KEYWORD_ONLY if name in groups else parameter.kind
            parameters.append(inspect.Parameter(each.name, place, default=each.default, annotation=each.annotation))
    return groups, settings, parameters


def _of_group(setting: Setting, base: Settings | None, more: tuple[Needs, ...], needs: Mapping[str, Needs]) -> Setting:
    """A setting of a group as a door has it: with the door's own default and needs."""
    default = setting.default if base is None else getattr(base, setting.name)
    kind = setting.annotation | None if default is None else setting.annotation
    wants = (*setting.needs, *more, *((needs[setting.name],) if setting.name in needs else ()))
    return replace(setting, annotation=kind, default=default, needs=wants)


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
