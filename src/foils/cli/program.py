"""The program's verbs, each made from its door: signature and docstring become options and help."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from cyclopts import App, CycloptsError, Group, Parameter

from foils.cli.show import say
from foils.cli.verb import Door, UsageError, Verb, option
from foils.runtime.keyed import KeyedSetting, options_of
from foils.runtime.options import Option, Setting, dashed, spelling

_ADDRESS = re.compile(r"auto|local|[^/\s:=]+:\d{1,5}")
_OF_PYTHON = re.compile(r"In Python (?:[^.]|\.(?!\s|$))*\.(?:\s+|$)")  # sentences that the program's help leaves out
Shell = Literal["bash", "zsh", "fish", "powershell"]
_QUIET: Any = {
    "result_action": "return_value",
    "exit_on_error": False,
    "print_error": False,
    "suppress_keyboard_interrupt": False,
}


JSON = option("json", Path, "Write the result as JSON to this file.", metavar="FILE")
REPORT = option("report", Path, "Write an HTML page to this file.", metavar="FILE")


def add_verb(app: App, name: str, verb: Verb) -> None:
    """Give the program a verb."""
    door = verb.function()
    taken: dict[str, Setting] = door.settings  # type: ignore[attr-defined]
    every = settings_of_verb(verb)
    options = options_of(every)
    keyed = [each.name for each in options if isinstance(each, KeyedSetting)]
    kinds = {each.name: each.kind for each in inspect.signature(door).parameters.values()}

    def run(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs).arguments
        flags = {each.name: _shown(each, kinds.get(each.name)) for each in every}
        with spelling(flags):
            values = {
                each.name: _parsed(each, bound[each.name]) for each in options if bound.get(each.name) is not None
            }
            for name in keyed:
                values |= values.pop(name, {})
            given = {key: value for key, value in values.items() if key in taken}
            if verb.before:
                verb.before(values)
            result = door(**given)
            _finish(verb, result, values)

    headings = list(dict.fromkeys(each.heading for each in options))
    parameters = [_parameter(each, kinds.get(each.name), 1 + headings.index(each.heading)) for each in options]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = name, None
    usage = f"Usage: {' '.join(['foils', name, *_usage(options, kinds)])}\n"
    app.command(run, name=name, usage=usage, help=described(door), help_epilogue=f"Example: {verb.example}")


def settings_of_verb(verb: Verb) -> list[Setting]:
    """Return what a verb takes: the settings of its door, and those of the program alone."""
    output = Setting(
        "output", Path, Option(short="-o", metavar="FILE"), inspect.Parameter.empty,
        f"Write the {verb.writes} to this file.", "Output",
    )  # fmt: skip
    own = [*([output] if verb.writes else []), *verb.more, JSON, *([REPORT] if verb.reports else [])]
    return [*verb.function().settings.values(), *own]  # type: ignore[attr-defined]


def options_of_verb(verb: Verb) -> list[Setting]:
    """Return the options of a verb as its help shows them: several settings may be keys of one; no arguments."""
    kinds = {each.name: each.kind for each in inspect.signature(verb.function()).parameters.values()}
    return [each for each in options_of(settings_of_verb(verb)) if not _positional(each, kinds.get(each.name))]


def help_text(setting: Setting) -> str:
    """Return what the program says of an option: its help without what concerns Python alone, and its range."""
    text = _OF_PYTHON.sub("", setting.help).strip()
    return " ".join(filter(None, [text, f"Range: {setting.option.range}." if setting.option.range else ""]))


def shown_default(setting: Setting) -> Any:
    """Return the default as the program reads it; None where there is none, or where the door alone knows it."""
    option, default = setting.option, setting.default
    if default is not inspect.Parameter.empty and option.parse is not None:
        return None if option.repeated or not isinstance(default, str) else default
    return default


def new_place(verb: Verb, arguments: Sequence[str]) -> str:
    """Return what to give in place of the first argument that was an option of its own once; empty: there is none."""
    places = {dashed(each.name): f"give {each.flag}" for each in settings_of_verb(verb) if each.option.within}
    places |= verb.moved
    for argument in arguments:
        flag = argument.partition("=")[0].replace("--no-", "--")
        if flag in places:
            return f"{flag} is no option of this verb: {places[flag]}"
    return ""


def program(*verbs: str) -> App:
    """Return the program with these verbs, or with all."""
    from foils.cli.verbs import DOORS

    app = App(name="foils", help_format="plaintext", help_flags=["--help", "-h"], version_flags=[], **_QUIET)
    for name in verbs or DOORS:
        add_verb(app, name, DOORS[name])
    return app


def by_door(arguments: Sequence[str]) -> int:
    """Run the verb that the arguments begin with; return the exit status.

    Raises:
        UsageError: options that the verb does not have, or values that are not of their form.
    """
    from foils.cli.verbs import DOORS

    verb = arguments[0]
    if len(arguments) == 1 and not DOORS[verb].alone:
        program(verb)([verb, "--help"])
        return 2
    try:
        program(verb)(with_address(_renamed(DOORS[verb], arguments)))
    except CycloptsError as error:
        if place := new_place(DOORS[verb], arguments):
            raise UsageError(place) from error
        raise UsageError(" ".join(str(error).split())) from error
    return 0


def _renamed(verb: Verb, arguments: Sequence[str]) -> list[str]:
    """The arguments with the present names of options that are given by former ones, and a warning of each."""
    former = {dashed(alias): each.flag for each in settings_of_verb(verb) for alias in each.option.aliases}
    renamed = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if flag in former:
            say(f"{flag} is called {former[flag]} now")
        renamed.append(f"{former.get(flag, flag)}{equals}{value}")
    return renamed


def with_address(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--ray local` where `--ray` stands alone: what follows it is no address."""
    completed: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        completed.append(argument)
        if argument == "--ray" and not _ADDRESS.fullmatch(following):
            completed.append("local")
    return completed


def described(door: Door) -> str:
    """Return what a door's docstring says before its sections, each paragraph on one line."""
    text = inspect.cleandoc(door.__doc__ or "").partition("\nArgs:\n")[0]
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def _finish(verb: Verb, result: Any, values: Mapping[str, Any]) -> None:
    """Write, report and show a result, its files first: a closed pipe loses none. None: a verb has nothing to say."""
    from dataclasses import replace

    from foils.runtime.files import write_json
    from foils.runtime.terminal import print_tables

    if result is None or int(os.environ.get("RANK", "0")):  # under torchrun the first process writes and shows
        return
    tables = result.tables()
    if verb.writes and hasattr(result, "write"):
        result.write(values["output"])
        tables = [replace(tables[0], title=f"{tables[0].title} → {values['output']}"), *tables[1:]]
    if values.get("json"):
        write_json(values["json"], result.to_json())
    if values.get("report"):
        result.report(values["report"])
    print_tables(tables)
    if values.get("report"):
        say(f"report: {values['report']}")
    if verb.after:
        verb.after(result, values)


def _positional(setting: Setting, kind: Any) -> bool:
    return kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and not setting.option.flag


def _shown(setting: Setting, kind: Any) -> str:
    """The name of an option, or the metavar of an argument, for messages."""
    return setting.option.metavar or setting.name.upper() if _positional(setting, kind) else setting.flag


def _parsed(setting: Setting, value: Any) -> Any:
    parse = setting.option.parse
    return value if parse is None or value == setting.default else parse(value)


def _usage(settings: Sequence[Setting], kinds: Mapping[str, Any]) -> Iterator[str]:
    """What a command needs, and may have: `-o FILE [OPTIONS] COLLECTION [SOURCE]`."""
    arguments = [each for each in settings if _positional(each, kinds.get(each.name))]
    for each in settings:
        if each not in arguments and each.default is inspect.Parameter.empty:
            yield f"{each.option.short or each.flag} {each.option.metavar}"
    yield "[OPTIONS]"
    for each in arguments:
        name = _shown(each, kinds.get(each.name)) + ("..." if get_origin(each.annotation) is list else "")
        yield name if each.default is inspect.Parameter.empty else f"[{name}]"


def _parameter(setting: Setting, kind: Any, place: int) -> inspect.Parameter:
    """One parameter of a verb, as cyclopts reads it; `place` is that of its heading."""
    option, positional = setting.option, _positional(setting, kind)
    optional = setting.default is not inspect.Parameter.empty
    annotation: Any = setting.annotation
    if option.parse is not None:
        annotation = list[str] if option.repeated else str
        annotation = annotation | None if optional else annotation
    default = shown_default(setting)
    more: dict[str, Any] = {"help": help_text(setting), "negative_iterable": (), "negative_none": ()}
    names = option.allowed()
    if names:
        more["choices"] = names
    if option.metavar or (not names and annotation in (str, str | None)):
        more["metavar"] = option.metavar or setting.name.split("_")[-1].upper()
    if setting.heading:
        more["group"] = Group(setting.heading, sort_key=place)
    if default in (None, (), ""):
        more["show_default"] = False
    if positional:
        more["name"] = option.metavar or setting.name.upper()
    else:
        more["name"] = [*([option.short] if option.short else []), setting.flag]
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, Parameter(**more)],
    )
