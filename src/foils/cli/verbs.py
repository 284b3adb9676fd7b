"""The program's verbs: the door of each, its options and help, what it writes and shows, and what to type next."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

from cyclopts import App, Group, Parameter

import foils
from foils.runtime import files
from foils.runtime.errors import FailureError
from foils.runtime.options import STANDARD, Option, Setting, check_places, several, spelling
from foils.runtime.progress import say
from foils.runtime.results import print_tables

EVERYWHERE = {
    "--json FILE": "Write the result as JSON to this file; - is standard output, in the place of the table.",
    "--device DEVICE": "torch device, e.g. cuda:0. Default: the first one available.",
    "--ray ADDRESS": "Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), "
    "or auto (the cluster of this machine). The result has the same bytes.",
    "--trust-remote-code": "Run code that comes with a model.",
}
Door = Any  # a function, with its settings by name
Values = Mapping[str, Any]
Advice = Callable[[Any, Values], str | None]


@dataclass(frozen=True)
class Output(Setting):
    """An option of the program alone, mostly what to write of the result; nothing where it is not given.

    Attributes:
        write: name of the result's method that writes to the value of the option; empty: the option is for
            `Verb.after`.
    """

    write: str = ""


def _output(
    text: str, writes: Sequence[str], *, name: str = "output", write: str = "write", needed: bool = False, **option: Any
) -> Output:
    kind, default = (Path, inspect.Parameter.empty) if needed else (Path | None, None)
    details = Option(**{"metavar": "FILE", "writes": writes, **option})
    return Output(name, kind, details, default, text, "Output", write=write)


JSON = _output(EVERYWHERE["--json FILE"], files.JSON, name="json", write="write_json")
REPORT = _output("Write an HTML page to this file.", files.HTML, name="report", write="report")
PAGE = _output("Write the page to this file.", files.HTML, name="page", write="report", flag="--output", short="-o")
NEGATIVES = _output("Write the table of negatives to this file.", files.PARQUET, needed=True, short="-o")
PLAN = _output("Write the plan to this file.", files.PARQUET, needed=True, short="-o")
RECORDS = _output("Write the records to this file.", files.JSONL, needed=True, short="-o")
PROMOTED = _output(
    "Write the rows that are called positive to this file, as labels (.tsv, .csv, .jsonl or .parquet): give it to "
    "--add-judgements.",
    files.LABEL_FILES,
    name="promoted",
    write="promoted.write",
)
JUDGEMENTS = _output(
    "Write the answers of all judges together to this file, as a judge for later: --judge recorded:FILE.",
    files.PARQUET,
    name="judgements",
    write="write_judgements",
)
OPEN = Output(
    "open_report", bool | None, Option(flag="--open"), None,
    "Open the report in a browser (on a terminal). Default: yes.", "Output",
)  # fmt: skip


class Verb(NamedTuple):
    """What the program needs of a verb beside its door.

    Attributes:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is
            given the result and the values of all options.
        advice: returns the command that mostly follows the verb, of its result and of the options
            as they were typed; None where none does, or where what it needs is not known.
    """

    outputs: tuple[Output, ...] = ()
    after: Callable[[Any, Values], None] = lambda *_: None
    advice: Advice = lambda *_: None


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    return getattr(foils, verb.replace("-", "_"))


def _fail_where_empty(result: Any, _: Values) -> None:
    if not result.keep.any():
        raise FailureError("no row is kept: there is nothing to train on")


def _fail_where_kept(result: Any, _: Values) -> None:
    if not getattr(result, "better", True):
        raise FailureError("no better model: the base is kept")


def _open_report(_: Any, values: Values) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if values.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((values.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


# sentences that the program's help leaves out
_OF_PYTHON = re.compile(r"In Python (?:[^.]|\.(?!\s|$))*\.(?:\s+|$)")
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
            check_places(settings, typed)
            result = door(**{key: value for key, value in typed.items() if key in door.settings})
            _finish(name, result, typed)
            advised = None if result is None else DOORS[name].advice(result, typed)
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
    """Return the program's help of an option, without what concerns Python alone, and its range."""
    # as --max-length none
    none = "none" if type(None) in setting.kinds and isinstance(setting.default, int) else ""
    bounds = ", or ".join(filter(None, [setting.option.range, none]))
    return " ".join(filter(None, [_OF_PYTHON.sub("", setting.help).strip(), f"Range: {bounds}." if bounds else ""]))


def shown_default(setting: Setting) -> Any:
    """Return the default as the program reads it; None where there is none, or where the door alone knows it."""
    option, default = setting.option, setting.default
    if default is not inspect.Parameter.empty and option.parse is not None:
        return None if option.repeated or not isinstance(default, str) else default
    return default


def summary(verb: str) -> str:
    """Return the first line of a door's docstring, read from its source: `foils --help` imports no door."""
    name = verb.replace("-", "_")
    homes: dict[str, list[str]] = vars(foils)["HOMES"]
    module = next(module for module, names in homes.items() if name in names)
    source = Path(foils.__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    docstring = next(ast.get_docstring(each) or "" for each in functions if each.name == name)
    return " ".join(docstring.partition("\n\n")[0].split())


def described(door: Door) -> str:
    """Return what a door's docstring says before its sections, each paragraph on one line."""
    text = inspect.cleandoc(door.__doc__ or "").partition("\nArgs:\n")[0]
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def example(door: Door) -> str:
    """Return the command that a door's docstring has under `Example:`."""
    return " ".join((door.__doc__ or "").partition("\nExample:\n")[2].partition("\n\n")[0].split())


def _finish(name: str, result: Any, values: Mapping[str, Any]) -> None:
    """Write, report and show a result, its files first.

    A closed pipe loses none. None: a verb has nothing to say.
    """
    # under torchrun the first process writes and shows
    if result is None or int(os.environ.get("RANK", "0")):
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
    elif str in setting.kinds:  # the program takes a name, where Python takes objects as well
        annotation = list[str] if option.repeated else str
        annotation = annotation | None if type(None) in setting.kinds else annotation
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


# What to type next: the command that mostly follows a verb, made from what it was given and what it wrote

CARRIED = (
    "columns", "corpus", "add_judgements", "split", "device", "query_prompt", "document_prompt", "similarity",
    "trust_remote_code",
)  # fmt: skip
"""Settings that the next verb has to be given as well: how the collection is read, and how the model is used."""


def command(verb: str, arguments: list[Any], typed: Values, **options: Any) -> str | None:
    """Return a command in a shell's words; None where one of its arguments or options is not known.

    Args:
        verb: of the command.
        arguments: its arguments; a list stands for several.
        typed: the values of the verb before, of which `CARRIED` go on.
        options: by their names in the program, `output` for `-o`; a list stands for the option several times.
    """
    settings = door_of(verb).settings
    words = [str(word) for argument in arguments for word in several(argument)]
    flags = {"-o" if name == "output" else f"--{name.replace('_', '-')}": value for name, value in options.items()}
    for name in CARRIED:
        value = typed.get(name)
        if name in settings and value not in (None, settings[name].default):
            flags.setdefault(settings[name].flag, value)
    for flag, value in flags.items():
        for each in several(value):
            words += [flag] if each is True else [flag, str(each)]
    return None if "None" in words else shlex.join(["foils", verb, *words])


def _encoder(typed: Values, option: str = "encoder") -> dict[str, Any]:
    """The encoder, where one was named, as an option of the next verb."""
    return {option: typed["encoder"]} if typed.get("encoder") else {}


def _after_mine(_: Any, typed: Values) -> str | None:
    return command("score", [typed["collection"], typed["output"]], typed, **_encoder(typed))


def _after_fuse(_: Any, typed: Values) -> str | None:
    return command("score", [typed["collection"], typed["sources"], typed["output"]], typed)


def _after_score(result: Any, typed: Values) -> str | None:
    """Label where labels may settle a tie.

    Else train on what was chosen: the sources are typed as [NAME=]PATH.
    """
    decision = result.decision
    if decision is None:
        return None
    if decision.tied and decision.label_next and not decision.labels:
        arguments = [typed["collection"], typed["sources"]]
        return command("label", arguments, typed, number=decision.label_next, output="labels.tsv")
    chosen = decision.source
    names = {
        word: word.partition("=")[0] if "=" in word else Path(word).name.split(".")[0] for word in typed["sources"]
    }
    source = [word for word, name in names.items() if name == chosen]
    if chosen is not None and not source:  # random ones, which no file holds
        return command("mine", [typed["collection"]], typed, output="random.parquet", **{"with": "random"})
    return command("train", [typed["collection"], *source], typed, **_encoder(typed, "model"), output="model")


def _after_label(_: Any, typed: Values) -> str | None:
    """Decide with the labels; or read the sheet back, once it is filled in, with the same draw."""
    draw = {name: typed[key] for name, key in (("number", "n"), ("seed", "seed")) if key in typed}
    sources = [typed["collection"], typed["sources"]]
    if typed.get("sheet"):
        output = typed.get("output") or "labels.tsv"
        return command("label", sources, typed, answers=typed["sheet"], **draw, output=output)
    if not typed.get("output"):
        return None
    return command("score", sources, typed, labels=typed["output"], **_encoder(typed))


def _train_on_output(_: Any, typed: Values, **options: Any) -> str | None:
    arguments = [typed.get("collection"), typed["output"]]
    return command("train", arguments, typed, **_encoder(typed, "model"), **options, output="model")


def _after_relabel(_: Any, typed: Values) -> str | None:
    promoted = {"add_judgements": typed["promoted"]} if typed.get("promoted") else {}
    return _train_on_output(_, typed, **promoted)


def _after_train(_: Any, typed: Values) -> str | None:
    """Compare on test with what training started from; a reranker orders what BM25 returns."""
    model = door_of("train").settings["model"].default if typed.get("model") is None else typed["model"]
    if typed.get("reranker"):
        options: dict[str, Any] = {"model": "bm25", "reranker": typed["output"]}
    else:
        options = {"model": [f"base={model}", f"tuned={typed['output']}"]}
    return command("evaluate", [typed["collection"]], {**typed, "split": None}, **options)


def _after_tune(result: Any, typed: Values) -> str | None:
    """Search with what was tuned; a reranker orders what its first stage returns."""
    if typed.get("explain"):
        return None
    if result.retrieves:
        return str(result.next)
    stage = typed.get("first_stage") or "bm25"
    first = {"run" if Path(stage).is_file() else "model": stage}
    return command("evaluate", [typed.get("collection")], typed, **first, reranker=typed["output"], rerank_depth=50)


def _advise(verb: str, argument: str = "collection", **options: Any) -> Advice:
    """Advise a verb on an argument or output of the verb before it."""
    return lambda _, typed: command(verb, [typed[argument]], typed if argument == "collection" else {}, **options)


DOORS: dict[str, Verb] = {
    "describe": Verb(advice=_advise("mine", output="bm25.parquet")),
    "export": Verb((RECORDS,)),
    "score": Verb((REPORT,), advice=_after_score),
    "mine": Verb((NEGATIVES,), _fail_where_empty, _after_mine),
    "generate": Verb((NEGATIVES,), advice=_after_mine),
    "fuse": Verb((NEGATIVES,), advice=_after_fuse),
    "filter": Verb((NEGATIVES,), advice=_after_mine),
    "score-pairs": Verb((NEGATIVES,), advice=partial(_train_on_output, loss="margin-mse")),
    "study": Verb(advice=_advise("report", "output", output="report.html")),
    "report": Verb((PAGE,)),
    "demo": Verb((OPEN,), _open_report),
    "rate": Verb((NEGATIVES, JUDGEMENTS), advice=_advise("select", "output", output="train.parquet")),
    "label": Verb(advice=_after_label),
    "relabel": Verb((NEGATIVES, PROMOTED), advice=_after_relabel),
    "select": Verb((NEGATIVES,), advice=_train_on_output),
    "compose": Verb((NEGATIVES,), advice=_train_on_output),
    "evaluate": Verb(),
    "batch": Verb((PLAN,)),
    "search": Verb(advice=lambda _, typed: command("evaluate", [typed["collection"]], typed, run=typed.get("run"))),
    "train": Verb(advice=_after_train),
    "tune": Verb(after=_fail_where_kept, advice=_after_tune),
    "merge": Verb(),
    "cache": Verb(),
}
"""The verbs of the program, in the order in which `foils --help` shows them."""
