"""The program's verbs, each made from its door: signature and docstring become options and help."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, get_origin

from cyclopts import App, Group, Parameter

from foils.cli.advice import following
from foils.cli.verbs import DOORS, EVERYWHERE, JSON, Door, door_of
from foils.runtime.options import STANDARD, Setting, check_places, spelling
from foils.runtime.progress import say
from foils.runtime.results import print_tables

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
        add_verb(app, name)
    return app


def add_verb(app: App, name: str) -> None:
    """Give the program a verb."""
    door, settings = door_of(name), settings_of_verb(name)

    def run(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs).arguments
        with spelling({each.name: each.flag for each in settings}):
            typed = {each.name: bound[each.name] for each in settings if each.name in bound}
            values = dict(typed)
            for each in settings:
                if each.option.parse is not None and values.get(each.name, each.default) != each.default:
                    values[each.name] = each.option.parse(values[each.name])
            check_places(settings, values)
            result = door(**{key: value for key, value in values.items() if key in door.settings})
            _finish(name, result, values)
            advised = "" if result is None else following(name, result, typed)
            if advised:
                say(f"next: {advised}")

    headings = list(dict.fromkeys(each.heading for each in settings))
    parameters = [_parameter(each, 1 + headings.index(each.heading)) for each in settings]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = name, None
    wide = ", ".join(each.flag for each in settings if is_wide(each))
    epilogue = f"Options as of most verbs: {wide} (foils --help).\n\nExample: {example(door)}"
    app.command(run, name=name, help=described(door), help_epilogue=epilogue)


def settings_of_verb(name: str) -> list[Setting]:
    """Return what a verb takes: the settings of its door that the program has, and those of the program alone."""
    of_door = [each for each in door_of(name).settings.values() if each.option.in_program]
    return [*of_door, *DOORS[name].outputs, JSON]


def is_wide(setting: Setting) -> bool:
    """Whether an option is one of most verbs, which `foils --help` describes once."""
    return setting.flag in {name.split()[0] for name in EVERYWHERE}


def help_text(setting: Setting) -> str:
    """Return what the program says of an option: its help without what concerns Python alone, and its range."""
    none = "none" if type(None) in setting.kinds and isinstance(setting.default, int) else ""  # as --max-length none
    bounds = ", or ".join(filter(None, [setting.option.range, none]))
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


def example(door: Door) -> str:
    """Return the command that a door's docstring has under `Example:`."""
    return " ".join((door.__doc__ or "").partition("\nExample:\n")[2].partition("\n\n")[0].split())


def _finish(name: str, result: Any, values: Mapping[str, Any]) -> None:
    """Write, report and show a result, its files first: a closed pipe loses none. None: a verb has nothing to say."""
    if result is None or int(os.environ.get("RANK", "0")):  # under torchrun the first process writes and shows
        return
    verb, tables = DOORS[name], result.tables()
    to_standard_output = values.get(JSON.name) == Path(STANDARD)
    for output in (*verb.outputs, *([] if to_standard_output else [JSON])):
        value = values.get(output.name)
        if value is not None and output.write:
            attrgetter(output.write)(result)(value)
            if output.name == "output":
                tables = [replace(tables[0], title=f"{tables[0].title} → {value}"), *tables[1:]]
    if to_standard_output:
        print(result.json_text(), end="")
    else:
        print_tables(tables)
    page = values.get("report", values.get("page"))
    if page:
        say(f"report: {page}")
    verb.after(result, values)


def _parameter(setting: Setting, place: int) -> inspect.Parameter:
    """One parameter of a verb, as cyclopts reads it; `place` is that of its heading."""
    option, annotation, default = setting.option, setting.annotation, shown_default(setting)
    if option.parse is not None:
        annotation = list[str] if option.repeated else str
        annotation = annotation if setting.default is inspect.Parameter.empty else annotation | None
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
    if default is False:
        more["negative"] = ()  # --no-dry-run would say nothing
    more["show"] = not is_wide(setting)
    more["name"] = [*filter(None, [option.short]), setting.flag]
    kind: Any = inspect.Parameter.POSITIONAL_ONLY if setting.positional else inspect.Parameter.KEYWORD_ONLY
    if setting.positional and get_origin(annotation) is list:
        # Of a list that is positional only, cyclopts refuses the words that stand behind an option.
        kind, annotation = inspect.Parameter.VAR_POSITIONAL, str
        more["required"] = default is inspect.Parameter.empty
        default = inspect.Parameter.empty
    return inspect.Parameter(setting.name, kind, default=default, annotation=Annotated[annotation, Parameter(**more)])
