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
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from foils.runtime.options import Needs, Option, Setting, Settings, documented, refuse_idle, settings_of, taken_apart

Result = TypeVar("Result")


@runtime_checkable
class Surrounding(Protocol):
    """A group of settings that holds for all that a door does, as a budget of memory does."""

    def applied(self) -> AbstractContextManager[None]:
        """Return the context in which the door works."""
        ...


@overload
def door(function: Callable[..., Result]) -> Callable[..., Result]: ...
@overload
def door(
    *, check: Callable[..., None] | None = None, needs: Mapping[str, Needs] | None = None
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...
def door(
    function: Callable[..., Any] | None = None,
    *,
    check: Callable[..., None] | None = None,
    needs: Mapping[str, Needs] | None = None,
) -> Any:
    """Let a function that takes groups of settings take their fields one by one, as keyword arguments.

    A parameter whose annotation is a `Settings` class is such a group; its own default, where it has one, gives the
    defaults of the fields (None, for a field that the door leaves open). The signature and the docstring show the
    fields. Groups that are `Surrounding` are applied.

    Args:
        function: the door, written with groups.
        check: takes some of its parameters, by their names, and raises an InputError where they do not go together. It
            is called before any surrounding is applied: no cluster is started for a mistake.
        needs: name of a setting, or of a group -> conditions without which it has no effect in this door, beside those
            that its `Option` and its `Settings` have.

    Raises:
        InputError: (of the door) a setting is given that has no effect beside the others.
        TypeError: (of the door) an unknown argument; the message names the nearest.
    """
    if function is None:
        return functools.partial(_opened, check=check, needs=needs or {})
    return _opened(function, check=check, needs=needs or {})


def _opened(
    function: Callable[..., Result], *, check: Callable[..., None] | None, needs: Mapping[str, Needs]
) -> Callable[..., Result]:
    groups = _groups(function)
    settings = _with_needs(settings_taken(function), needs, groups)
    former = {alias: each.name for each in settings.values() for alias in each.option.aliases}
    own = {name: each for name, each in inspect.signature(function).parameters.items() if name not in groups}
    signature = inspect.Signature([_parameter(each, own.get(each.name)) for each in settings.values()])

    @functools.wraps(function)
    def opened(*args: Any, **kwargs: Any) -> Result:
        for name in former.keys() & kwargs.keys():
            warnings.warn(f"{name} is called {former[name]} now", FutureWarning, stacklevel=2)
            kwargs.setdefault(former[name], kwargs.pop(name))
        for name in kwargs:
            if name not in settings:
                near = get_close_matches(name, settings, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; expected some of {', '.join(settings)}"
                raise TypeError(f"{function.__name__}() got an unexpected argument {name!r}{hint}")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        grouped = {
            name: group(**{each.name: given.pop(each.name) for each in settings_of(group)})
            for name, (group, _) in groups.items()
        }
        given = {name: settings[name].checked(value) for name, value in given.items()}
        refuse_idle(
            settings.values(),
            {**given, **{key: value for each in grouped.values() for key, value in vars(each).items()}},
        )
        if check is not None:
            check(**{name: {**given, **grouped}[name] for name in inspect.signature(check).parameters})
        with ExitStack() as around:
            for each in grouped.values():
                if isinstance(each, Surrounding):
                    around.enter_context(each.applied())
            return function(**given, **grouped)

    opened.__signature__ = signature  # type: ignore[attr-defined]
    opened.__doc__ = _with_arguments(function.__doc__ or "", settings.values())
    opened.settings = settings  # type: ignore[attr-defined]
    return opened


def settings_taken(function: Callable[..., Any]) -> dict[str, Setting]:
    """Return what a door takes, by name: its own parameters, and the fields of its groups in their places."""
    if hasattr(function, "settings"):
        return dict(function.settings)
    texts, groups = documented(function.__doc__ or ""), _groups(function)
    taken: dict[str, Setting] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            kind, option = taken_apart(_annotation(function, parameter))
            text = texts.get(name) or option.help
            taken[name] = Setting(name, kind, option, parameter.default, text, needs=(option.needs,))
            continue
        group, base = groups[name]
        for each in settings_of(group):
            default = each.default if base is None else getattr(base, each.name)
            if each.name in taken:
                raise TypeError(f"{function.__name__}: two settings are called {each.name!r}")
            kind = each.annotation | None if default is None else each.annotation
            taken[each.name] = Setting(each.name, kind, each.option, default, each.help, each.heading, each.needs)
    return taken


def _with_needs(
    settings: dict[str, Setting], needs: Mapping[str, Needs], groups: Mapping[str, tuple[type[Settings], Any]]
) -> dict[str, Setting]:
    """The settings with what they need in this door; what a group needs, all of its settings do."""
    for name, conditions in needs.items():
        members = [each.name for each in settings_of(groups[name][0])] if name in groups else [name]
        for member in members:
            settings[member] = replace(settings[member], needs=(*settings[member].needs, conditions))
    return settings


def _groups(function: Callable[..., Any]) -> dict[str, tuple[type[Settings], Settings | None]]:
    groups = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = taken_apart(_annotation(function, parameter))[0]
        if isinstance(kind, type) and issubclass(kind, Settings):
            groups[name] = (kind, None if parameter.default is inspect.Parameter.empty else parameter.default)
    return groups


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter; one that is written as text is read in the function's own module."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    return eval(parameter.annotation, vars(sys.modules[function.__module__]))


def _parameter(setting: Setting, own: inspect.Parameter | None) -> inspect.Parameter:
    """A parameter of the door's signature: the function's own, or a field's."""
    return setting.parameter() if own is None else own.replace(annotation=setting.annotation)


def _with_arguments(docstring: str, settings: Iterable[Setting]) -> str:
    """The docstring, its section of arguments made of the settings, in their order."""
    lines = inspect.cleandoc(docstring).splitlines()
    arguments = ["Args:", *(f"    {each.name}: {_help(each)}" for each in settings)]
    if "Args:" in lines:
        start = lines.index("Args:")
        end = next((at for at in range(start, len(lines)) if not lines[at].strip()), len(lines))
    else:
        start = end = lines.index("Raises:") if "Raises:" in lines else len(lines)
        arguments = [*arguments, ""] if end < len(lines) else ["", *arguments]
    return "\n".join([*lines[:start], *arguments, *lines[end:]])


def _help(setting: Setting) -> str:
    option: Option = setting.option
    names = option.allowed()
    more = [f"One of {', '.join(names)}." if names else "", f"Range: {option.range}." if option.range else ""]
    return " ".join(filter(None, [setting.help, *more]))
