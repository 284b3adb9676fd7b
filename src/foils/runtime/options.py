"""Options: each stands once, as the field of a settings dataclass, and makes the API, the program and the provenance.

::

    @dataclass(frozen=True, kw_only=True)
    class WindowSettings(Settings):
        '''Window of ranks.  (Then a Google docstring's list of attributes, as `top: Negatives per query.`)'''

        top: Annotated[int, Option(least=1)] = 10

Name, type and default are the field's own; the help stands in the docstring; the range, what the
option needs of others to have an effect, and what the program needs beside them stand in `Option`.

A door is the one function of a stage, which the program's verb is made of. It takes its settings
one by one, as keyword arguments, and is written with them in groups::

    @door
    def mine(collection: CollectionLike, method: str = "bm25", *, window: WindowSettings, seed: int
    = 0) -> Mined: ...

    mine("scifact/", "bm25", top=10)     # top is a field of WindowSettings
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from itertools import chain
from math import inf, isfinite
from numbers import Integral, Real
from os.path import exists
from pathlib import Path, PurePath
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from foils.runtime.errors import InputError, check_names
from foils.runtime.files import check_output
from foils.runtime.memory import holding
from foils.runtime.results import Result

Value = TypeVar("Value")
Returned = TypeVar("Returned")
_PLAIN = (str, int, float, PurePath, tuple, list, dict)  # what can be compared; an array cannot

Condition = Sequence[str] | bool | Callable[[Any], bool]
"""On the value of another setting: one of these values, or the first part of `NAME:…` or `NAME,…` (of a list: any);
True: the setting has a value; False: it has none (None, False, empty); or a function of the value."""
Needs = dict[str, Any] | list[dict[str, Any]] | tuple[()]
"""Name of a setting -> Condition, all of which must hold; of several such mappings one must."""


@dataclass(frozen=True)
class Option:
    """A setting: what the API, the program and the reference are made of.

    What its `Option` does not say, as its name and type, is taken from where it is declared.

    Attributes:
        flag: Its name in the program, as `--lambda`; by default the field's own.
        short: A second, short name in the program, as `-o`.
        metavar: What stands for the value in the program's help.
        least: The smallest value allowed; -inf: no bound.
        most: The largest value allowed; inf: no bound.
        above: Values must be larger than this; -inf: no bound.
        names: The values allowed, or a function that returns them.
        parse: Makes the value of a text (of the list of texts where `repeated`), and raises an
            InputError for a text that is not of its form. None: the program reads it by its type.
        repeated: Whether the program takes the option several times.
        in_program: Whether the program has it; where not, it is an argument in Python alone.
        help: What it does, in whole sentences: what the docstring says, or else what is given here.
        needs: Conditions on other settings without which this one has no effect (see `Needs`).
        write: Of an option of the program alone: name of the result's method that writes to its value.
        writes: Of an output: how the names of what it writes end
            (`foils.runtime.files.check_output`). None: it is no output, and a text that its metavar
            calls a file, a model or a collection may name what is read.
        name: Of the keyword argument.
        annotation: Its type.
        default: `inspect.Parameter.empty` where there is none.
        heading: Of the group that it belongs to.
        positional: Whether it is an argument of the program, not an option.
        all_needs: What it needs of other settings to have an effect, by itself and in its door.
    """

    flag: str = ""
    short: str = ""
    metavar: str = ""
    least: float = -inf
    most: float = inf
    above: float = -inf
    names: Collection[str] | Callable[[], Iterable[str]] = ()
    parse: Callable[[Any], Any] | None = None
    repeated: bool = False
    in_program: bool = True
    help: str = ""
    needs: Needs = ()
    write: str = ""
    writes: tuple[str, ...] = ()
    name: str = ""
    annotation: Any = str
    default: Any = inspect.Parameter.empty
    heading: str = ""
    positional: bool = False
    all_needs: tuple[Needs, ...] = ()

    def allowed(self) -> list[str]:
        """Return the names that are allowed, in their order; empty: any value."""
        return list(self.names() if callable(self.names) else self.names)

    @property
    def range(self) -> str:
        """What values are expected, in words; empty: any."""
        bounds = {"at least": self.least, "above": self.above, "at most": self.most}
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if isfinite(bound))

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of its values: the members of a union, or the one type."""
        union = get_origin(self.annotation) in (Union, UnionType)
        return get_args(self.annotation) if union else (self.annotation,)

    def check(self, name: str, value: Any) -> None:
        """Raise an InputError where a value (or one of several) is outside the range or not an allowed name.

        Args:
            name: of the setting, as the caller knows it.
            value: None is not checked: it stands for a default.
        """
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(each, str) and self.names:
                check_names(name, [each], self.allowed())
            elif self.range and isinstance(each, Real) and not isinstance(each, bool):
                number = float(each)
                if not (self.least <= number <= self.most and number > self.above and isfinite(number)):
                    raise InputError(f"{name} {number:g}; expected {self.range}")

    def checked(self, value: Any) -> Any:
        """Return a value of it: a text is read by the option's `parse`, or as JSON where the setting takes no texts.

        A text where a list or tuple is taken is one of its values, and a whole number becomes the
        float that it stands for.

        Raises:
            InputError: the value is outside the range, no number where the setting is one, or a
                text that is not of its form.
            UnknownNameError: the value is not one of the allowed names.
        """
        kinds, name = {*self.kinds}, spelled(self.name)
        sequence = next((get_origin(kind) for kind in self.kinds if get_origin(kind) in (list, tuple)), None)
        if self.parse is not None and self.repeated and isinstance(value, (str, list)):
            value = self.parse(several(value))
        elif isinstance(value, str) and value != self.default:
            if self.parse is not None:
                value = self.parse(value)
            elif str not in kinds:
                value = sequence([value]) if sequence else _read_value(value)
        self.check(name, value)
        if bool in kinds:
            expected, fits = "true or false", not isinstance(value, str)
        else:
            kind, expected = (Real, "a number") if float in kinds else (Integral, "a whole number")
            fits = isinstance(value, kind) and not isinstance(value, bool)
        if kinds <= {bool, int, float, type(None)} and not fits and not (value is None and type(None) in kinds):
            raise InputError(f"{name} {value!r}; expected {expected}")
        return float(value) if type(value) is int and float in kinds and int not in kinds else value


NAMES_INPUT = re.compile(  # metavars, or names without one, of options whose value may be a file or folder
    r"\b(FILE|FOLDER|MODEL|COLLECTION|SOURCE|STUDY|BASE|TUNED|RATED|JUDGE|TEACHER|ENCODER|RUN|WHO)\b"
)


def _checked(settings: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings, each checked; an InputError names all that are outside their ranges."""
    checked, wrong = {}, list[InputError]()
    for setting in settings:
        try:
            checked[setting.name] = setting.checked(values[setting.name])
        except InputError as error:
            wrong.append(error)
    if wrong:
        raise wrong[0] if len(wrong) == 1 else InputError("; ".join(map(str, wrong)))
    return checked


class Settings:
    """Base of the frozen dataclasses that define options; ranges and names are checked when one is made.

    Attributes:
        heading: of these options in the program's help.

    Raises:
        InputError: values outside their ranges; all are named.
        UnknownNameError: a name that is not one of those allowed, where nothing else is wrong.
    """

    heading: ClassVar[str] = ""

    def __post_init__(self) -> None:
        filled = [setting for setting in settings_of(type(self)) if getattr(self, setting.name) is not None]
        for name, value in _checked(filled, vars(self)).items():
            object.__setattr__(self, name, value)

    def applied(self) -> AbstractContextManager[None]:
        """Return the context in which a door with these settings works: none of its own."""
        return nullcontext()

    def changed(self, *names: str) -> dict[str, Any]:
        """Return the named settings (all, where none is named) that differ from their defaults."""
        chosen = [setting for setting in settings_of(type(self)) if not names or setting.name in names]
        return {each.name: getattr(self, each.name) for each in chosen if getattr(self, each.name) != each.default}


def settings_of(cls: type[Settings]) -> tuple[Option, ...]:
    """Return the settings that a dataclass defines, in their order.

    A class may leave the help of inherited fields to the class that it has them from.
    """
    return _read(cls)  # type: ignore[arg-type]  # mypy takes a class for its instances here


@functools.cache
def _read(cls: Any) -> tuple[Option, ...]:
    hints, plain = get_type_hints(cls, include_extras=True), get_type_hints(cls)
    texts = {name: text for each in reversed(cls.__mro__) for name, text in _documented(each.__doc__ or "").items()}
    settings = []
    for field in fields(cls):
        default = field.default if field.default is not MISSING else inspect.Parameter.empty
        if field.default_factory is not MISSING:
            default = field.default_factory()
        setting = _setting(field.name, hints[field.name], plain[field.name], default, texts)
        settings.append(replace(setting, heading=cls.heading))
    return tuple(settings)


def _setting(name: str, annotation: Any, plain: Any, default: Any, texts: Mapping[str, str]) -> Option:
    """A setting whose `Option`, where it has one, is the outermost of its annotation; `plain` is that without any."""
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    option = next((each for each in reversed(notes) if isinstance(each, Option)), Option())
    return replace(option, name=name, annotation=plain, default=default, help=texts.get(name) or option.help)


def _documented(docstring: str) -> dict[str, str]:
    """Return what a Google docstring says of each argument or attribute, each text on one line."""
    from docstring_parser.google import GoogleParser

    parsed = GoogleParser().parse(inspect.cleandoc(docstring))
    return {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


def door(
    function: Callable[..., Returned] | None = None,
    *,
    check: Callable[..., None] | None = None,
    needs: Mapping[str, Needs] | None = None,
) -> Callable[..., Any]:
    """Let a function that takes groups of settings take their fields one by one, as keyword arguments.

    A parameter whose annotation is a `Settings` class is such a group; its own default, where it
    has one, gives the defaults of the fields (None, for a field that the door leaves open). The
    signature and the docstring show the fields. The door works in the context that its groups give
    (`Settings.applied`).

    Args:
        function: the door, written with groups.
        check: takes some of its parameters, by their names, and raises an InputError where they do
            not go together. It is called before any surrounding is applied: no cluster is started
            for a mistake.
        needs: name of a setting, or of a group -> conditions without which it has no effect in this
            door, beside those that its `Option` and its `Settings` have.

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
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in settings), "")
            near = get_close_matches(unknown, settings, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(settings)}"
            raise TypeError(f"foils.{function.__name__}(): {error}; {hint}") from None
        bound.apply_defaults()
        checked = _checked(settings.values(), bound.arguments)
        grouped = {name: kind(**{each.name: checked[each.name] for each in settings_of(kind)}) for name, kind in groups}
        as_grouped = {name: value for group in grouped.values() for name, value in vars(group).items()}
        refuse_idle(settings, checked, checked | as_grouped)
        read = check_places(settings.values(), checked)
        checked |= grouped
        if check is not None:
            check(**{name: checked[name] for name in inspect.signature(check).parameters})
        with ExitStack() as around:
            for each in grouped.values():
                around.enter_context(each.applied())
            result = function(**{name: checked[name] for name in inspect.signature(function).parameters})
        if isinstance(result, Result):
            result.remember(read)
        return result

    arguments = ""
    for each in settings.values():
        names, bounds = each.allowed(), each.range
        words = [each.help, f"One of {', '.join(names)}." if names else "", f"Range: {bounds}." if bounds else ""]
        arguments += f"    {each.name}: {' '.join(filter(None, words))}\n"
    before, separator, after = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")
    before, raises, after = (before, "", after.partition("\n\n")[2]) if separator else before.partition("Raises:\n")
    opened.__signature__ = signature  # type: ignore[attr-defined]
    opened.__doc__ = f"{before.rstrip()}\n\nArgs:\n{arguments}\n{raises}{after}".rstrip()
    opened.settings = settings  # type: ignore[attr-defined]
    return opened


def _taken(
    function: Callable[..., Any], needs: Mapping[str, Needs]
) -> tuple[list[tuple[str, type[Settings]]], dict[str, Option], list[inspect.Parameter]]:
    """A door's groups, its settings by name (the fields of groups in their places), and its parameters."""
    hints, plain = get_type_hints(function, include_extras=True), get_type_hints(function)
    texts = _documented(function.__doc__ or "")
    groups, settings, parameters = list[tuple[str, type[Settings]]](), dict[str, Option](), list[inspect.Parameter]()
    for name, parameter in inspect.signature(function).parameters.items():
        setting, place = _setting(name, hints[name], plain[name], parameter.default, texts), parameter.kind
        members: tuple[Option, ...] = (setting,)
        kind = setting.annotation
        if isinstance(kind, type) and issubclass(kind, Settings):
            groups.append((name, kind))
            members, place = settings_of(kind), inspect.Parameter.KEYWORD_ONLY
            base = parameter.default
            if base is not inspect.Parameter.empty:
                members = tuple(replace(each, default=getattr(base, each.name)) for each in members)
        for each in members:
            wanted = (needs[key] for key in dict.fromkeys((name, each.name)) if key in needs)
            annotation = each.annotation | None if each.default is None else each.annotation
            positional = place is inspect.Parameter.POSITIONAL_OR_KEYWORD and not each.flag
            flag = each.metavar or each.name.upper() if positional else each.flag or f"--{each.name.replace('_', '-')}"
            settings[each.name] = replace(
                each, annotation=annotation, flag=flag, positional=positional, all_needs=(each.needs, *wanted)
            )
            parameters.append(inspect.Parameter(each.name, place, default=each.default, annotation=annotation))
    return groups, settings, parameters


STANDARD = "-"  # in the place of a file: standard input or output
_flags: ContextVar[Mapping[str, str]] = ContextVar("foils_flags", default=MappingProxyType({}))


def spelling(flags: Mapping[str, str]) -> AbstractContextManager[None]:
    """Let messages call options as the program does: name of the keyword argument -> name in the program."""
    return holding(_flags, flags)


def spelled(name: str, value: object = None) -> str:
    """Return an option's name as the caller knows it, the keyword argument's or the program's, and a value after it."""
    flag = _flags.get().get(name, name)
    return flag if value is None else f"{flag} {value}"


def refuse(options: Mapping[str, Any], why: str) -> None:
    """Raise an InputError where options are given that have no effect.

    For what depends on more than settings; what an option needs of other settings is declared in
    `Option(needs=…)`.

    Args:
        options: names of keyword arguments, and values; None: not given.
        why: completes `NAME VALUE: no effect …`, and says what to do.
    """
    named = [_with_value(name, value) for name, value in options.items() if value is not None]
    if named:
        raise InputError(f"{', '.join(named)}: no effect {why}")


def refuse_idle(settings: Mapping[str, Option], values: dict[str, Any], grouped: dict[str, Any]) -> None:
    """Raise an InputError that names every setting that is given and has no effect beside the others.

    Args:
        settings: of a door, by name.
        values: of all of them, by name, as the caller gave them.
        grouped: the same, as their groups have them, as bi-encoder:MODEL for a bare MODEL.
    """
    idle = []
    for name, setting in settings.items():
        value = values[name]
        if value is setting.default or (isinstance(value, _PLAIN) and value == setting.default):
            continue
        why = next(filter(None, (_why_idle(needs, grouped) for needs in setting.all_needs if needs)), "")
        if why:
            idle.append(f"{_with_value(name, value)}: no effect {why}")
    if idle:
        raise InputError("; ".join(idle))


def _why_idle(needs: Needs, values: Mapping[str, Any]) -> str:
    """Say what is missing where none of several alternatives holds; empty: one does."""
    missing: dict[str, Condition] = {}  # of each alternative the first condition that does not hold
    for alternative in several(needs):
        conditions = {name: condition for name, condition in alternative.items() if name in values}  # of this door
        unmet = [name for name, condition in conditions.items() if not _holds(condition, values[name])]
        if not unmet:
            return ""
        missing.setdefault(unmet[0], conditions[unmet[0]])
    first = next(iter(missing))
    state = f"with {_with_value(first, values[first])}" if _has_value(values[first]) else f"without {spelled(first)}"
    named = [(name, condition) for name, condition in missing.items() if isinstance(condition, Sequence)]
    wanted = " or ".join(spelled(name, " or ".join(several(condition))) for name, condition in named)
    return f"{state}; leave it out" + (f", or give {wanted}" if wanted else "")


def _holds(condition: Condition, value: Any) -> bool:
    if isinstance(condition, bool):
        return condition == _has_value(value)
    if callable(condition):
        return bool(condition(value))
    allowed: list[str] = several(condition)
    return any(each in allowed or re.split("[:,]", str(each))[0] in allowed for each in several(value))


def _has_value(value: Any) -> bool:
    return value is not None and value is not False and not (isinstance(value, _PLAIN) and value in ("", (), [], {}))


def _with_value(name: str, value: Any) -> str:
    """An option and its value as the caller would write them."""
    name = spelled(name)
    if isinstance(value, bool) and name.startswith("--"):
        return name if value else f"--no-{name.removeprefix('--')}"
    values = [f"{key}={each}" for key, each in value.items()] if isinstance(value, Mapping) else several(value)
    return " ".join([name, *(str(each) if isinstance(each, _PLAIN) else type(each).__name__ for each in values)])


def check_places(settings: Iterable[Option], values: Mapping[str, Any]) -> list[Path]:
    """Refuse outputs that another option reads or writes, or whose names say another form; return what is read.

    Args:
        settings: of a verb or a door.
        values: by name, of those that are given.

    Raises:
        InputError: what `foils.runtime.files.check_output` refuses, or two outputs in one place.
    """
    settings_given = [(setting, values[setting.name]) for setting in settings if setting.name in values]
    read = [
        path
        for setting, value in settings_given
        if not setting.writes and NAMES_INPUT.search(setting.metavar or setting.name.upper())
        for path in _existing(value)
    ]
    places = dict[Path, str]()
    for setting, value in settings_given:
        if setting.writes and isinstance(value, (str, PurePath)) and str(value) != STANDARD:
            place = Path(value)
            check_output(place, setting.writes, read, spelled(setting.name))
            before = places.setdefault(place.resolve(), setting.name)
            if before != setting.name and (place.is_file() or not place.exists()):
                problem = f"{spelled(before)} and {spelled(setting.name)} both write {value}"
                raise InputError(f"{problem}; give each a place of its own")
    return read


def _existing(value: Any) -> Iterator[Path]:
    """The files and folders that a value, or one of several, names: PATH, NAME=PATH, KIND:PATH,… or hf:PATH:PART."""
    if isinstance(value, (Mapping, list, tuple)):
        yield from chain.from_iterable(map(_existing, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, (str, PurePath)):
        whole, _, after = str(value).partition("=")
        parts = (str(value), *(part for each in (whole, after) for part in each.split(":", 2)))
        named = {each for part in parts for each in (part, part.partition(",")[0])}
        yield from (Path(each) for each in sorted(named) if each and exists(each))  # noqa: PTH110  (any text)


def several(value: Value | Sequence[Value]) -> list[Value]:
    """Return what was given as a list: the values of a sequence, or the one value; a text is one value."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


_NEXT = re.compile(r",\s*(?=[A-Za-z][\w-]*=)")


def key_values(text: str) -> tuple[str, dict[str, str]]:
    """Return what stands before the first `,KEY=VALUE` of a text, and the values by key.

    A comma may stand in one.
    """
    before, *pairs = _NEXT.split(text)
    split = (pair.partition("=") for pair in pairs)
    return before, {key.strip().replace("-", "_"): value for key, _, value in split}


OF_PYTHON = {"True": "true", "False": "false", "None": "null"}


def parsed_settings(texts: Iterable[str], *, option: str = "settings") -> dict[str, Any]:
    """Read NAME=VALUE of each text, with the value as `_read_value` has it; a later one of a name holds.

    Args:
        texts: as the program is given them.
        option: name of the keyword argument that they are for.

    Raises:
        InputError: a text that is not of this form.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{spelled(option)} {text}: expected NAME=VALUE, as in margin=0.1")
        settings[name] = _read_value(value)
    return settings


def _read_value(text: str) -> Any:
    """Return what a text says: JSON, or .5, or True, False or None as Python spells them, or else the text itself."""
    try:
        return json.loads(re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", OF_PYTHON.get(text, text)))
    except (ValueError, RecursionError):
        return text


def settings_checked(what: str, known: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method, a loss or a rule, its defaults where none are given.

    Raises:
        UnknownNameError: no such setting of it.
        InputError: one of another type than its default: where that is None, no number; where it is a
            tuple of numbers, no list of numbers.
    """
    check_names(f"setting of {what}", settings, known)
    wider = {float: (int, float), type(None): (int, float, type(None))}

    def fits(value: Any, default: Any) -> bool:
        if isinstance(default, tuple):
            return isinstance(value, (list, tuple)) and all(isinstance(each, (int, float)) for each in value)
        kinds = wider.get(type(default), type(default))
        return isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)

    wrong = {key: value for key, value in settings.items() if not fits(value, known[key])}
    if wrong:
        named = ", ".join(f"{key}={value!r} (default {known[key]!r})" for key, value in wrong.items())
        raise InputError(f"settings of {what} of another type than its defaults: {named}; give one of its type")
    return {**known, **settings}


def settings_option(name: str = "settings", *, flag: str = "--set") -> Option:
    """Return the option of a dictionary of settings, which the program takes as NAME=VALUE (`parsed_settings`)."""
    parse = functools.partial(parsed_settings, option=name)
    return Option(flag=flag, metavar="NAME=VALUE", parse=parse, repeated=True)
