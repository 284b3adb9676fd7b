"""The program's verbs, each made from its door: signature and docstring become options and help."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, get_origin

from cyclopts import App, CycloptsError, Group, Parameter

from foils.cli.show import say
from foils.cli.verbs import DOORS, Door, UsageError, Verb
from foils.runtime.options import Setting, dashed, key_values, several, spelling

_OF_PYTHON = re.compile(r"In Python (?:[^.]|\.(?!\s|$))*\.(?:\s+|$)")  # sentences that the program's help leaves out
_QUIET: Any = {
    "result_action": "return_value",
    "exit_on_error": False,
    "print_error": False,
    "suppress_keyboard_interrupt": False,
}


def program(*verbs: str) -> App:
    """Return the program with these verbs, or with all."""
    app = App(name="foils", help_format="plaintext", help_flags=["--help", "-h"], version_flags=[], **_QUIET)
    for name in verbs or DOORS:
        add_verb(app, name, DOORS[name])
    return app


def add_verb(app: App, name: str, verb: Verb) -> None:
    """Give the program a verb."""
    door, settings = verb.function(), settings_of_verb(verb)
    places = _positional(door)

    def run(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        with spelling({each.name: _shown(each) if each.name in places else each.flag for each in settings}):
            values = {each.name: _parsed(each, given[each.name]) for each in settings if each.name in given}
            if verb.writes in ("table of negatives", "plan"):
                from foils.data.tables import check_parquet_name  # loads pyarrow: not for `foils --help`

                check_parquet_name(values.get("output", ""))
            taken = door.settings  # type: ignore[attr-defined]
            result = door(**{key: value for key, value in values.items() if key in taken})
            _finish(verb, result, values)

    headings = list(dict.fromkeys(each.heading for each in settings))
    parameters = [_parameter(each, each.name in places, 1 + headings.index(each.heading)) for each in settings]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = name, None
    usage = f"Usage: {' '.join(['foils', name, *_usage(settings, places)])}\n"
    wide = ", ".join(each.flag for each in settings if each.option.program_wide)
    epilogue = f"Options of the program, which foils --help describes: {wide}.\n\nExample: {verb.example}"
    app.command(run, name=name, usage=usage, help=described(door), help_epilogue=epilogue)


def settings_of_verb(verb: Verb) -> list[Setting]:
    """Return what a verb takes: the settings of its door that the program has, and those of the program alone."""
    every = verb.function().settings.values()  # type: ignore[attr-defined]
    return [*(each for each in every if each.option.in_program), *verb.outputs()]


def options_of_verb(verb: Verb) -> list[Setting]:
    """Return the options of a verb as its help shows them: no arguments, and none of the program as a whole."""
    places = _positional(verb.function())
    return [each for each in settings_of_verb(verb) if each.name not in places and not each.option.program_wide]


def help_text(setting: Setting) -> str:
    """Return what the program says of an option: its help without what concerns Python alone, and its range."""
    bounds = ", or ".join(filter(None, [setting.option.range, "none" if _may_be_none(setting) else ""]))
    return " ".join(filter(None, [_OF_PYTHON.sub("", setting.help).strip(), f"Range: {bounds}." if bounds else ""]))


def shown_default(setting: Setting) -> Any:
    """Return the default as the program reads it; None where there is none, or where the door alone knows it."""
    option, default = setting.option, setting.default
    if default is not inspect.Parameter.empty and option.parse is not None:
        return None if option.repeated or not isinstance(default, str) else default
    return default


def described(door: Door) -> str:
    """Return what a door's docstring says before its sections, each paragraph on one line."""
    text = inspect.cleandoc(door.__doc__ or "").partition("\nArgs:\n")[0]
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def run_verb(arguments: Sequence[str]) -> int:
    """Run the verb that the arguments begin with; return the exit status.

    Raises:
        UsageError: options that the verb does not have, or values that are not of their form.
    """
    name, verb = arguments[0], DOORS[arguments[0]]
    if len(arguments) == 1 and not verb.alone:
        program(name)([name, "--help"])
        return 2
    try:
        program(name)([*_one_by_one(arguments, {each.flag for each in settings_of_verb(verb)})])
    except CycloptsError as error:
        raise UsageError(" ".join(str(error).split())) from error
    return 0


def _one_by_one(arguments: Sequence[str], flags: set[str]) -> Iterator[str]:
    """The arguments with options of their own in the place of `--encoder-args KEY=VALUE,…`, as 0.2.0 had them."""
    rest = iter(arguments)
    for argument in rest:
        flag, _, text = argument.partition("=")
        if not flag.endswith("-args") or flag in flags:
            yield argument
            continue
        for key, value in key_values(f",{text or next(rest, '')}")[1].items():
            own = (f"{flag.removesuffix('-args')}-{key}".replace("_", "-"), dashed(key))
            yield f"{next((each for each in own if each in flags), own[1])}={value}"


def _finish(verb: Verb, result: Any, values: Mapping[str, Any]) -> None:
    """Write, report and show a result, its files first: a closed pipe loses none. None: a verb has nothing to say."""
    from foils.runtime.terminal import print_tables

    if result is None or int(os.environ.get("RANK", "0")):  # under torchrun the first process writes and shows
        return
    tables = result.tables()
    for output in verb.outputs():
        if (value := values.get(output.name)) is not None and output.write:
            attrgetter(output.write)(result)(value)
            if output.name == "output" and verb.writes:
                tables = [replace(tables[0], title=f"{tables[0].title} → {value}"), *tables[1:]]
    print_tables(tables)
    if page := values.get("report", values.get("page")):
        say(f"report: {page}")
    if verb.after:
        verb.after(result, values)
    if verb.next:
        places = {name: shlex.join(map(str, several(value))) for name, value in values.items()}
        with suppress(KeyError):  # what it names was left to its default
            say(f"next: {verb.next.format_map(places)}")


def _positional(door: Door) -> set[str]:
    """Names of the settings that are arguments of the program, not options."""
    parameters, settings = inspect.signature(door).parameters, door.settings  # type: ignore[attr-defined]
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    return {name for name in positional if not settings[name].option.flag}


def _shown(argument: Setting) -> str:
    """The name of an argument in messages and in the help."""
    return argument.option.metavar or argument.name.upper()


def _may_be_none(setting: Setting) -> bool:
    """Whether `none` is a value of an option that has another default, as in `--max-length none`."""
    return type(None) in setting.kinds and int in setting.kinds and isinstance(setting.default, int)


def _parsed(setting: Setting, value: Any) -> Any:
    parse = setting.option.parse
    return value if parse is None or value == setting.default else parse(value)


def _usage(settings: Sequence[Setting], places: set[str]) -> Iterator[str]:
    """What a command needs, and may have: `-o FILE [OPTIONS] COLLECTION [SOURCE]`."""
    for each in settings:
        if each.name not in places and each.default is inspect.Parameter.empty:
            yield f"{each.option.short or each.flag} {each.option.metavar}"
    yield "[OPTIONS]"
    for each in settings:
        if each.name in places:
            name = _shown(each) + ("..." if get_origin(each.annotation) is list else "")
            yield name if each.default is inspect.Parameter.empty else f"[{name}]"


def _parameter(setting: Setting, positional: bool, place: int) -> inspect.Parameter:
    """One parameter of a verb, as cyclopts reads it; `place` is that of its heading."""
    option, annotation, default = setting.option, setting.annotation, shown_default(setting)
    if option.parse is not None:
        annotation = list[str] if option.repeated else str
        annotation = annotation if setting.default is inspect.Parameter.empty else annotation | None
    more: dict[str, Any] = {"help": help_text(setting), "negative_iterable": (), "negative_none": ()}
    more["show"] = not option.program_wide
    if names := option.allowed():
        more["choices"] = names
    if option.metavar or (not names and annotation in (str, str | None)):
        more["metavar"] = option.metavar or setting.name.split("_")[-1].upper()
    if setting.heading:
        more["group"] = Group(setting.heading, sort_key=place)
    if default in (None, (), ""):
        more["show_default"] = False
    if _may_be_none(setting):
        more["converter"] = _whole_or_none
    more["name"] = _shown(setting) if positional else [*filter(None, [option.short]), setting.flag]
    kind = inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(setting.name, kind, default=default, annotation=Annotated[annotation, Parameter(**more)])


def _whole_or_none(_: Any, tokens: Sequence[Any]) -> int | None:
    return None if tokens[0].value.lower() == "none" else int(tokens[0].value)
