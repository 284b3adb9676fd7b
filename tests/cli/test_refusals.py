"""What options declare of themselves is refused by every verb, in Python and in the program: ranges, names, needs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from foils.cli.app import DOORS, door_of
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import Option
from refusals import refused

EVERY = {verb: door_of(verb).settings for verb in DOORS}


def call(verb: str, **given: Any) -> Any:
    """Call a verb's door with nothing but what must be given, and this."""
    needed = {name: "nowhere.tsv" for name, each in EVERY[verb].items() if each.default is inspect.Parameter.empty}
    return door_of(verb)(**{**needed, **given})


def outside(setting: Option) -> list[float]:
    """Values that are not in the range of a setting."""
    bounds = ((setting.least, -1.0), (setting.above, 0.0), (setting.most, 1.0))
    return [bound + step for bound, step in bounds if math.isfinite(bound)] + ([float("nan")] if setting.range else [])


@pytest.mark.parametrize("verb", DOORS)
def test_a_value_outside_its_range_and_a_name_that_is_none(verb):
    for name, setting in EVERY[verb].items():
        wrap = tuple if {list, tuple} & {getattr(kind, "__origin__", kind) for kind in setting.kinds} else None
        for value in outside(setting) if setting.parse is None else ():
            value = int(value) if value == value and int in setting.kinds and float not in setting.kinds else value
            refused(rf"{name} \S+; expected ", call, verb, **{name: wrap([value]) if wrap else value})
        if setting.allowed():
            with pytest.raises(UnknownNameError, match=rf"unknown {name} 'no such'; expected one of: "):
                call(verb, **{name: wrap(["no such"]) if wrap else "no such"})


def other_value(setting: Option) -> Any:
    """A value of a setting that is not its default; None: there is none that is known here."""
    kinds = setting.kinds
    if setting.name == "ray":
        return "local"  # the program takes an address alone for its value
    if names := [each for each in setting.allowed() if each != setting.default]:
        return names[0]
    if bool in kinds:
        return not setting.default
    if (int in kinds or float in kinds) and not isinstance(setting.default, tuple):
        value = (setting.default or max(setting.least, setting.above, 0)) + (1 if int in kinds else 0.01)
        return value if value <= setting.most else setting.default - 0.01
    return "something" if str in kinds and setting.parse is None else None


def idle() -> Iterator[tuple[str, str, Any]]:
    """Verb, setting and value of each setting that has no effect where all others have their defaults."""
    known = set().union(*EVERY.values())
    for verb, settings in EVERY.items():
        for name, setting in settings.items():
            for needs in filter(None, setting.all_needs):
                alternatives = [needs] if isinstance(needs, dict) else needs
                assert known.issuperset(chain(*alternatives)), f"{verb} {name} needs what is no setting: {needs}"
                held = any(
                    all(holds(settings[other].default, each[other]) for other in {*each} & {*settings} - {name})
                    for each in alternatives
                )
                if not held and (value := other_value(setting)) is not None:
                    yield verb, name, value
                    break


def holds(value: Any, condition: Any) -> bool:
    if isinstance(condition, bool):
        return condition == (value not in (None, False, (), "", []))
    if callable(condition):
        return bool(condition(value))
    return value in ({condition} if isinstance(condition, str) else condition)


@pytest.mark.parametrize(("verb", "name", "value"), list(idle()))
def test_a_setting_without_what_it_needs(verb, name, value):
    with pytest.raises(InputError, match=rf"\b{name} .*: no effect with"):
        call(verb, **{name: value})


LINES = """
mine nowhere --pool dense --pool-depth 9 -o out
mine nowhere --with trisampler --draw uniform -o out
mine nowhere --with cross-encoder --cross-encoder m --pool random --encoder e -o out
filter nowhere a --min-score 1 --encoder e -o out
rate nowhere s --judge llm:m --temperature 0.5 -o out
rate nowhere s --judge llm:m --max-length 9 -o out
search nowhere --run r --dimensions rdime --share 0.5
train nowhere a --reranker --similarity dot -o out
train nowhere --model static:m --max-length 64 -o out
""".strip().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_an_option_that_would_do_nothing(foils, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    ended = foils(*line.split())
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ": no effect " in ended.err
    assert not list(tmp_path.iterdir())


TAKEN = """
mine nowhere --with trisampler --ranks 0-50 --margin 0.1 --seed 3 -o out
mine nowhere --with random --scorer encoder --relative-margin 0.1 --encoder e --seed 3 -o out
mine nowhere --with cross-encoder --cross-encoder m --pool dense --pool-depth 50 -o out
filter nowhere a --scorer cross-encoder --cross-encoder m --margin 0.1 --max-length 9 -o out
rate nowhere s --judge llm:m --judge cross-encoder:c --temperature 2 -o out
evaluate nowhere --run r --reranker m --rerank-depth 9 --max-length 9 --seed 3
search nowhere --run r --dimensions eclipse --tune dev --measure AP --precision float32
train nowhere --model m --mini-batch-size 8 --max-length 64 -o out
""".strip().splitlines()


@pytest.mark.parametrize("line", TAKEN)
def test_options_that_do_something_together(foils, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    ended = foils(*line.split())
    assert ended.status == 2
    assert "nowhere: no such folder" in ended.err
