"""Settings that the program takes together, as keys of one option: `--encoder-args precision=float32,encode_batch=64`.

In Python each is a keyword argument, like any other. A setting is such a key where its `Option` names the option that
it is `within`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import Option, Setting, spelled

_NEXT = re.compile(r",\s*(?=[A-Za-z][\w-]*=)")
_FIRST = re.compile(r"(?<=\.)\s+(?=[A-Z])")  # where a sentence ends
_WORD = re.compile(
    r"(?!(?:true|false|null|NaN|Infinity)\Z)(?:[^\W\d]|\.{0,2}/|~)[\w./:~-]*"
)  # no JSON: a name or a path


def parsed_settings(texts: Iterable[str], *, option: str = "settings", words: bool = False) -> dict[str, Any]:
    """Read NAME=VALUE of each text, the value as JSON; a later one of a name holds.

    Args:
        texts: as the program is given them.
        option: name of the keyword argument that they are for.
        words: whether a value that is not JSON may be a word, as in mixing=gradnorm, or a path, as in guide=./model.

    Raises:
        InputError: a text that is not of this form.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{spelled(option)} {text}: expected NAME=VALUE, as in margin=0.1")
        try:
            settings[name] = value if words and _WORD.fullmatch(value) else json.loads(value)
        except (ValueError, RecursionError) as error:
            expected = "a number, true, false or a list as in [100, 200, 400, 600]"
            raise InputError(f"{spelled(option)} {text}: {value!r} is not {expected}") from error
    return settings


def settings_option(name: str = "settings", *, flag: str = "--set", words: bool = False) -> Option:
    """Return the option of a dictionary of settings, which the program takes as NAME=VALUE (`parsed_settings`)."""
    parse = partial(parsed_settings, option=name, words=words)
    return Option(flag=flag, metavar="NAME=VALUE", parse=parse, repeated=True)


@dataclass(frozen=True)
class KeyedSetting(Setting):
    """An option of the program whose value is KEY=VALUE,…, each key a setting of its own.

    Attributes:
        keys: the settings, in their order.
    """

    keys: tuple[Setting, ...] = ()


def options_of(settings: Sequence[Setting]) -> list[Setting]:
    """Return the program's options for these settings: those within one option are joined, where the last one stood."""
    last = {each.option.within: each for each in settings if each.option.within}
    options: list[Setting] = []
    for setting in settings:
        name = setting.option.within
        if not name:
            options.append(setting)
        elif setting is last[name]:
            keys = tuple(each for each in settings if each.option.within == name)
            text = "\n".join(["Further settings, as KEY=VALUE,KEY=VALUE:", *map(_described, keys)])
            option = Option(metavar="KEY=…", parse=partial(parsed_keys, keys=keys), repeated=True)
            options.append(KeyedSetting(name, list[str] | None, option, None, text, setting.heading, keys=keys))
    return options


def _described(setting: Setting) -> str:
    """What the help of a keyed option says of a key: its default, the first sentence of its help, and what it takes."""
    shown = "…" if setting.default in (None, (), "") else _text(setting.default)
    allowed = ", ".join(setting.option.allowed()) or setting.option.range
    return f"{setting.key}={shown}: {_FIRST.split(setting.help)[0]}" + (f" [{allowed}]" if allowed else "")


def without_keys(text: str) -> tuple[str, str]:
    """Return what stands before the first `,KEY=VALUE` of a text, and all keys with their values."""
    before, *keys = _NEXT.split(text, maxsplit=1)
    return before, "".join(keys)


def parsed_keys(texts: Iterable[str], *, keys: Sequence[Setting], option: str = "") -> dict[str, Any]:
    """Read KEY=VALUE,KEY=VALUE of each text; a later one of a key holds. A comma may stand in a value.

    Args:
        texts: as the program is given them.
        keys: the settings that there are.
        option: whose keys they are, for messages. Default: the option that they are within.

    Returns:
        Name of the keyword argument -> value.

    Raises:
        InputError: a text that is not of this form, or a value that is not of its key's type.
        UnknownNameError: an unknown key.
    """
    settings, flag = {each.key: each for each in keys}, option or keys[0].flag.partition(" ")[0]
    values: dict[str, Any] = {}
    for text in texts:
        for part in _NEXT.split(text):
            key, equals, value = part.partition("=")
            if not equals:
                raise InputError(f"{flag} {text}: expected KEY=VALUE, with one of the keys {', '.join(settings)}")
            key = key.strip().replace("-", "_")
            if key not in settings:
                raise UnknownNameError(f"key of {flag}", key, settings)
            values[settings[key].name] = _value(settings[key], value)
    return values


def _value(setting: Setting, text: str) -> Any:
    """The value of a text, by the setting's own reader or type."""
    if setting.option.parse is not None:
        return setting.option.parse([text] if setting.option.repeated else text)
    readers: dict[type, tuple[str, Callable[[str], Any]]] = {
        bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
        int: ("a whole number", int),
        float: ("a number", float),
    }
    for kind, (expected, reader) in readers.items():
        if kind in setting.kinds:
            try:
                return reader(text)
            except (KeyError, ValueError):
                raise InputError(f"{spelled(setting.name, text)}: expected {expected}") from None
    return Path(text) if Path in setting.kinds and str not in setting.kinds else text


def _text(value: Any) -> str:
    """A value as the program reads it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
