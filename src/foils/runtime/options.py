"""Options: each stands once, as the field of a settings dataclass, and makes the API, the program and the provenance.

::

    @dataclass(frozen=True, kw_only=True)
    class WindowSettings(Settings):
        '''Window of ranks.

Attributes:
            top: Negatives per query.
        '''

        top: Annotated[int, Option(least=1)] = 10

Name, type and default are the field's own; the help stands in the docstring; the range and what the program needs
beside them stand in `Option`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields
from functools import cache
from math import isfinite
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from foils.runtime.errors import InputError, UnknownNameError

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Option:
    """What a setting has beside its name, type, default and help.

    Attributes:
        flag: Its name in the program, as `--lambda`, where that is not the field's own.
        short: A second, short name in the program, as `-o`.
        metavar: What stands for the value in the program's help.
        least: The smallest value allowed; None: no bound.
        most: The largest value allowed; None: no bound.
        above: Values must be larger than this; None: no bound.
        names: The values allowed, or a function that returns them.
        parse: Makes the value of the text that the program is given (of the list of texts where `repeated`), and
            raises an InputError for a text that is not of its form. None: the program reads it by its type.
        repeated: Whether the program takes the option several times.
        within: Name of the option of which it is a key in the program, as encoder_args for --encoder-args KEY=VALUE
            (see `foils.runtime.keyed`); empty: it is an option of its own.
        help: What it is, where the docstring does not say it: of a type that many doors take.
    """

    flag: str = ""
    short: str = ""
    metavar: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    names: Collection[str] | Callable[[], Iterable[str]] = ()
    parse: Callable[[Any], Any] | None = None
    repeated: bool = False
    within: str = ""
    help: str = ""

    def allowed(self) -> list[str]:
        """Return the names that are allowed, in their order; empty: any value."""
        return list(self.names() if callable(self.names) else self.names)

    @property
    def range(self) -> str:
        """What values are expected, in words; empty: any."""
        bounds = [
            f"at least {self.least:g}" if self.least is not None else "",
            f"above {self.above:g}" if self.above is not None else "",
            f"at most {self.most:g}" if self.most is not None else "",
        ]
        return " and ".join(filter(None, bounds))

    def check(self, name: str, value: Any) -> None:
        """Raise an InputError where a value (or one of several) is outside the range or not an allowed name.

        Args:
            name: of the setting, as the caller knows it.
            value: None is not checked: it stands for a default.
        """
        if value is None:
            return
        for each in value if isinstance(value, (list, tuple)) and not isinstance(value, str) else [value]:
            if isinstance(each, str) and (allowed := self.allowed()) and each not in allowed:
                raise UnknownNameError(name, each, allowed)
            if isinstance(each, bool) or not isinstance(each, (int, float)):
                continue
            low = (self.least is not None and each < self.least) or (self.above is not None and each <= self.above)
            if low or (self.most is not None and each > self.most):
                raise InputError(f"{_valued(name, f'{each:g}')}; expected {self.range}")
            if self.range and not isfinite(each):
                raise InputError(f"{_valued(name, f'{each:g}')}; expected a finite number")


@dataclass(frozen=True)
class Setting:
    """One option: what the API, the program and the reference are made of.

    Attributes:
        name: of the keyword argument.
        annotation: its type.
        option: its range, and what the program needs.
        default: `inspect.Parameter.empty` where there is none.
        help: what it does, in whole sentences.
        heading: of the group that it belongs to.
    """

    name: str
    annotation: Any
    option: Option
    default: Any
    help: str
    heading: str = ""

    @property
    def key(self) -> str:
        """Its name within a keyed option."""
        return self.option.flag or self.name

    @property
    def flag(self) -> str:
        """The name that the program has for it; of a key, with its option, as `--encoder-args backend=…`."""
        if self.option.within:
            return f"{dashed(self.option.within)} {self.key}=…"
        return self.option.flag or dashed(self.name)

    def checked(self, value: Any) -> Any:
        """Return a value of it, whole numbers as the floats that the program reads.

        Raises:
            InputError: the value is outside the range.
            UnknownNameError: the value is not one of the allowed names.
        """
        self.option.check(spelled(self.name), value)
        if type(value) is int and float in (self.annotation, *get_args(self.annotation)):
            return value if int in get_args(self.annotation) else float(value)
        return value

    def parameter(self) -> inspect.Parameter:
        """Return it as a keyword parameter of a signature."""
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=self.annotation
        )


class Settings:
    """Base of the frozen dataclasses that define options; ranges and names are checked when one is made.

    Attributes:
        heading: of these options in the program's help.

    Raises:
        InputError: values outside their ranges; all are named.
        UnknownNameError: a name that is not one of those allowed.
    """

    heading: ClassVar[str] = ""

    def __post_init__(self) -> None:
        outside: list[str] = []
        for setting in settings_of(type(self)):
            try:
                object.__setattr__(self, setting.name, setting.checked(getattr(self, setting.name)))
            except UnknownNameError:
                raise
            except InputError as error:
                outside.append(str(error))
        if outside:
            raise InputError("; ".join(outside))

    def changed(self, *names: str, base: Settings | None = None) -> dict[str, Any]:
        """Return those of the named settings (of all, where none is named) that differ from their defaults.

        Args:
            names: of settings.
            base: has the defaults, where they are not the fields' own.
        """
        return {
            setting.name: value
            for setting in settings_of(type(self))
            if (not names or setting.name in names)
            and (value := getattr(self, setting.name)) != getattr(base, setting.name, setting.default)
        }


def settings_of(cls: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings that a dataclass defines, in their order."""
    return _read(cls)  # type: ignore[arg-type]  # mypy takes a class for its instances here


@cache
def _read(cls: Any) -> tuple[Setting, ...]:
    hints, texts = get_type_hints(cls, include_extras=True), _texts(cls)
    settings = []
    for field in fields(cls):
        default = field.default if field.default is not MISSING else inspect.Parameter.empty
        if field.default_factory is not MISSING:
            default = field.default_factory()
        annotation, option = taken_apart(hints[field.name])
        text = texts.get(field.name) or option.help
        settings.append(Setting(field.name, annotation, option, default, text, cls.heading))
    return tuple(settings)


def _texts(cls: type[Settings]) -> dict[str, str]:
    """The help of each field; a class may leave that of inherited ones to the class that it has them from."""
    return {name: text for each in reversed(cls.__mro__) for name, text in documented(each.__doc__ or "").items()}


def taken_apart(annotation: Any) -> tuple[Any, Option]:
    """Return a type, and the `Option` that it is annotated with; of several, the outermost."""
    if get_origin(annotation) is not Annotated:
        return annotation, Option()
    kind, *rest = get_args(annotation)
    return kind, next((each for each in reversed(rest) if isinstance(each, Option)), Option())


def documented(docstring: str) -> dict[str, str]:
    """Return what a Google docstring says of each argument or attribute, each text on one line."""
    from docstring_parser.google import GoogleParser

    parsed = GoogleParser().parse(inspect.cleandoc(docstring))
    return {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


_flags: ContextVar[Mapping[str, str]] = ContextVar("foils_flags", default=MappingProxyType({}))


@contextmanager
def spelling(flags: Mapping[str, str]) -> Iterator[None]:
    """Let messages call options as the program does: name of the keyword argument -> name in the program."""
    token = _flags.set(flags)
    try:
        yield
    finally:
        _flags.reset(token)


def spelled(name: str, value: object = None) -> str:
    """Return an option's name as the caller knows it, the keyword argument's or the program's, and a value after it."""
    flag = _flags.get().get(name, name)
    return flag if value is None else _valued(flag, value)


def _valued(flag: str, value: object) -> str:
    """A name and a value; within a keyed option, `--encoder-args backend=…`, the value takes the place of the dots."""
    return f"{flag[:-1]}{value}" if flag.endswith("=…") else f"{flag} {value}"


def dashed(name: str) -> str:
    """Return the program's name of a keyword argument: --name-of-it."""
    return f"--{name.replace('_', '-')}"


def refuse(given: Mapping[str, Any], why: str) -> None:
    """Raise an InputError where options are given that have no effect.

    Args:
        given: names of keyword arguments, and values; None: not given.
        why: completes `NAME VALUE: no effect …`, and says what to do.
    """
    named = [_with_value(name, value) for name, value in given.items() if value is not None]
    if named:
        raise InputError(f"{', '.join(named)}: no effect {why}")


def _with_value(name: str, value: Any) -> str:
    name = spelled(name)
    if isinstance(value, bool) and name.startswith("--"):
        if name.endswith("=…"):
            return _valued(name, str(value).lower())
        return name if value else f"--no-{name.removeprefix('--')}"
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    values = value if isinstance(value, (list, tuple)) else [value]
    plain = (str, int, float, PurePath)
    return _valued(name, " ".join(str(each) if isinstance(each, plain) else type(each).__name__ for each in values))


def numbers_of(kind: Callable[[str], N], name: str, expected: str, text: str) -> tuple[N, ...]:
    """Return the numbers that stand in a text, separated by commas.

    Args:
        kind: makes a number of a part of the text: int or float.
        name: of the option that has it.
        expected: what stands there, in words, with an example.
        text: as `2,1`.

    Raises:
        InputError: something else stands there.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{spelled(name, text)}; expected {expected}") from None
