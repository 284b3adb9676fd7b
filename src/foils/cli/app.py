"""The program `foils`: its verbs, made of the library's doors, and how failures end it.

A verb parses, calls its door, writes, shows and says what to type next. Nothing is loaded before it is needed.
"""

from __future__ import annotations

import ast
import inspect
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

from cyclopts import App, Argument, CycloptsError, Group, Parameter
from cyclopts.exceptions import MissingArgumentError

import foils
from foils.runtime import files
from foils.runtime.errors import FailureError, FoilsError, InputError, UnknownNameError
from foils.runtime.options import STANDARD, Option, Setting, check_places, several, spelling
from foils.runtime.progress import bars, reporting, say
from foils.runtime.results import print_tables

Door = Any  # a function, with its settings by name
Values = Mapping[str, Any]
Advice = Callable[[Any, Values], str | None]


# Options of the program alone: mostly what to write of the result, nothing where the option is not given


def _output(text: str, writes: Sequence[str], *, name: str = "output", needed: bool = False, **option: Any) -> Setting:
    kind, default = (Path, inspect.Parameter.empty) if needed else (Path | None, None)
    details = Option(**{"metavar": "FILE", "write": "write", "writes": writes, **option})
    return Setting(name, kind, details, default, text, "Output")


JSON = _output(
    "Write the result as JSON to this file; - is standard output, in the place of the table.",
    files.JSON,
    name="json",
    write="write_json",
)
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


class Verb(NamedTuple):
    """What the program needs of a verb beside its door.

    Attributes:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is
            given the result and the values of all options.
        advice: the command that mostly follows the verb, as a template of `command`; or a function
            of the verb's result and of the options as they were typed, which returns that command,
            or None.
    """

    outputs: tuple[Setting, ...] = ()
    after: Callable[[Any, Values], None] = lambda *_: None
    advice: str | Advice = ""


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

    if sys.stdout.isatty():
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
            advice = DOORS[name].advice if result is not None else ""
            advised = advice(result, typed) if callable(advice) else advice and command(advice, typed)
            if advised:
                say(f"next: {advised}")

    headings = list(dict.fromkeys(each.heading for each in settings))
    parameters = [_parameter(each, 1 + headings.index(each.heading)) for each in settings]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = name, None
    epilogue = "\n\n".join(f"Example: {command}" for command in examples(door))
    app.command(run, name=name, help=described(door), help_epilogue=epilogue)


def settings_of_verb(name: str) -> list[Setting]:
    """Return what a verb takes: the settings of its door that the program has, and those of the program alone."""
    of_door = [each for each in door_of(name).settings.values() if each.option.in_program]
    return [*of_door, *DOORS[name].outputs, JSON]


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


def examples(door: Door) -> list[str]:
    """Return the commands that a door's docstring has under `Example:`, each on one line."""
    text = inspect.cleandoc(door.__doc__ or "").partition("\nExample:\n")[2].partition("\n\n")[0]
    return [" ".join(command.split()) for command in re.split(r"\n\s*(?=foils )", text)]


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
        if value is not None and output.option.write:
            attrgetter(output.option.write)(result)(value)
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
    if option.parse is not None or str in setting.kinds:
        # the program takes a text, where Python takes objects as well
        is_optional = option.parse is not None and setting.default is not inspect.Parameter.empty
        annotation = list[str] if option.repeated else str
        annotation = annotation | None if is_optional or type(None) in setting.kinds else annotation
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
    "columns", "corpus", "add_judgements", "split", "device", "query_prompt", "document_prompt",
    "trust_remote_code",
)  # fmt: skip
"""Settings that the next verb has to be given as well: how the collection is read, and how the model is used."""


def command(template: str, typed: Values, **more: Any) -> str | None:
    """Return a command in a shell's words; None where it needs a value that is not known.

    Args:
        template: the command, as `score {collection} {output} [--encoder {encoder}]`: a name in
            braces stands for a value, or for each of several; what stands in brackets is left out
            where its value is not known.
        typed: the values of the verb before, by name. Where the collection goes on, so do those of
            `CARRIED`.
        more: further values, which stand before those that were typed.
    """
    values = {**typed, **more}
    known = {name for name, value in values.items() if value is not None and value is not False}
    parts = [part for part in _PART.findall(template) if part[0] != "[" or {*_SLOT.findall(part)} <= known]
    words = ["foils"]
    for word in " ".join(part.strip("[]") for part in parts).split():
        slots = _SLOT.findall(word)
        if not {*slots} <= known:
            return None
        for value in several(values[slots[0]]) if slots else [""]:
            words.append(word.replace(f"{{{slots[0]}}}", str(value)) if slots else word)
    settings = door_of(words[1]).settings
    for name in CARRIED if "{collection}" in template else ():
        if name in known and name in settings and settings[name].flag not in words:
            for value in several(values[name]) if values[name] != settings[name].default else ():
                words += [settings[name].flag] if value is True else [settings[name].flag, str(value)]
    return shlex.join(words)


_SLOT, _PART = re.compile(r"\{(\w+)\}"), re.compile(r"\[[^]]+\]|\S+")
SCORE = "score {collection} {output} [--encoder {encoder}]"
TRAIN = "train {collection} {output} [--model {encoder}] -o model"


def _after_score(result: Any, typed: Values) -> str | None:
    """Label where labels may settle a tie.

    Else train on what was chosen: the sources are typed as [NAME=]PATH.
    """
    decision = result.decision
    if decision is None:
        return None
    if decision.tied and decision.label_next and not decision.labels:
        template = "label {collection} {sources} --number {number} -o labels.tsv"
        return command(template, typed, number=decision.label_next)
    chosen = decision.source
    names = {
        word: word.partition("=")[0] if "=" in word else Path(word).name.split(".")[0] for word in typed["sources"]
    }
    source = [word for word, name in names.items() if name == chosen]
    if chosen is not None and not source:  # random ones, which no file holds
        return command("mine {collection} --with random -o random.parquet", typed)
    return command("train {collection} {source} [--model {encoder}] -o model", typed, source=source)


def _after_label(_: Any, typed: Values) -> str | None:
    """Decide with the labels; or read the sheet back, once it is filled in, with the same draw."""
    if typed.get("sheet"):
        template = "label {collection} {sources} --answers {sheet} [--number {n}] [--seed {seed}] -o {output}"
        return command(template, {"output": "labels.tsv", **typed})
    return command("score {collection} {sources} --labels {output} [--encoder {encoder}]", typed)


def _after_train(_: Any, typed: Values) -> str | None:
    """Compare on test with what training started from; a reranker orders what BM25 returns."""
    if typed.get("reranker"):
        template = "evaluate {collection} --model bm25 --reranker {output}"
    else:
        template = "evaluate {collection} --model base={model} --model tuned={output}"
    return command(template, {"model": door_of("train").settings["model"].default, **typed}, split=None)


def _after_tune(result: Any, typed: Values) -> str | None:
    """Search with what was tuned; a reranker orders what its first stage returns."""
    if typed.get("explain"):
        return None
    if result.retrieves:
        return str(result.next)
    stage = typed.get("first_stage") or "bm25"
    option = "run" if Path(stage).is_file() else "model"
    template = f"evaluate {{collection}} --{option} {{stage}} --reranker {{output}} --rerank-depth 50"
    return command(template, typed, stage=stage)


DOORS: dict[str, Verb] = {
    "describe": Verb(advice="mine {collection} -o bm25.parquet"),
    "export": Verb((RECORDS,)),
    "score": Verb((REPORT,), advice=_after_score),
    "mine": Verb((NEGATIVES,), _fail_where_empty, SCORE),
    "generate": Verb((NEGATIVES,), advice=SCORE),
    "fuse": Verb((NEGATIVES,), advice="score {collection} {sources} {output}"),
    "filter": Verb((NEGATIVES,), advice=SCORE),
    "score-pairs": Verb((NEGATIVES,), advice=f"{TRAIN} --loss margin-mse"),
    "study": Verb(advice="report {output} -o report.html"),
    "report": Verb((PAGE,)),
    "demo": Verb(after=_open_report),
    "rate": Verb((NEGATIVES,), advice="select {output} -o train.parquet"),
    "label": Verb(advice=_after_label),
    "relabel": Verb((NEGATIVES, PROMOTED), advice=f"{TRAIN} [--add-judgements {{promoted}}]"),
    "select": Verb((NEGATIVES,), advice=TRAIN),
    "evaluate": Verb(),
    "batch": Verb((PLAN,)),
    "search": Verb(advice="evaluate {collection} --run {run}"),
    "train": Verb(advice=_after_train),
    "tune": Verb(after=_fail_where_kept, advice=_after_tune),
    "merge": Verb(),
    "cache": Verb(),
}
"""The verbs of the program, in the order in which `foils --help` shows them."""


# Which verb runs, and how failures end it

EXIT_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 1, 130
PURPOSE = (
    "Hard negatives for retrievers and rerankers: mine them, decide before any training which to train on, and measure "
    "whether it helped."
)
OPTIONS = {
    "-h, --help": "Show this help; foils VERB --help shows a verb's.",
    "--version": "Print the version.",
    "--install-completion": "Let the shell that runs complete verbs and options.",
}


class UsageError(InputError):
    """A command that the program does not understand."""


def main() -> None:
    """Run the program. Exit status: 0; 2 for bad input or usage, with a message; 1 for a failure."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of other libraries, warnings alone are shown
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for name in ("bm25s", "sentence_transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII alone
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the program with these arguments and return its exit status; messages go to stderr."""
    first, status = arguments[0] if arguments else "", EXIT_FAILURE
    try:
        if first in DOORS:
            return _run_verb(first, arguments)
        if first in ("", "-h", "--help"):
            print(overview())
            return 0 if first else EXIT_INPUT
        if first == "--install-completion":
            print(f"completion of foils is installed in {program().install_completion()}; start a new shell to use it")
            return 0
        if first == "--version":
            from importlib.metadata import version

            print(f"foils {version('foils')}")
            return 0
        if first.startswith("-"):
            raise UsageError(f"unknown option {first!r}; options of a verb stand after it: foils VERB {first}")
        raise UsageError(str(UnknownNameError("verb", first, DOORS)))
    except InputError as error:
        verb = f" {first}" if first in DOORS else ""
        see = f" (see: foils{verb} --help)" if isinstance(error, UsageError) else ""
        status, message = EXIT_INPUT, f"error: {error}{see}"
    except FoilsError as error:
        message = f"failed: {error}"
    except MemoryError:
        message = "failed: the memory of this machine is used up; give less, or a machine with more"
    except KeyboardInterrupt:
        again = "run the same command to continue" + (", with --resume" if first == "train" else "")
        status, message = EXIT_INTERRUPTED, f"interrupted; what was finished is kept: {again}"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status
    print(f"foils: {message}", file=sys.stderr)
    return status


def _run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Run a verb; without arguments, where it needs some, show its help.

    Raises:
        UsageError: options that the verb does not have, or values that are not of their form.
    """
    needed = [each for each in door_of(verb).settings.values() if each.default is inspect.Parameter.empty]
    bare = needed and len(arguments) == 1
    try:
        with reporting(bars), messages():
            program(verb)([verb, "--help"] if bare else standard_joined(arguments))
    except MissingArgumentError as error:
        raise UsageError(_missing(verb, error.argument)) from error
    except CycloptsError as error:
        message = " ".join(str(error).split())
        if message.startswith(("Unknown option: -o.", "Unknown option: --output.")):
            writes = [f"{each.flag} {each.option.metavar}" for each in settings_of_verb(verb) if each.option.writes]
            message = f"foils {verb} has no -o; it writes {', '.join(writes)}"
        raise UsageError(message) from error
    return EXIT_INPUT if bare else 0


def _missing(verb: str, argument: Argument | None) -> str:
    """Say which argument or option of a verb is missing, and what it is."""
    if argument is None:
        return f"foils {verb} needs another argument"
    name, option = argument.name, argument.parameter
    value = f" {option.metavar}" if option.metavar and name.startswith("-") else ""
    return f"foils {verb} needs {name}{value}, which is missing. {option.help or ''}".strip()


def standard_joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a lone `-` joined to the option before it.

    Cyclopts takes it for an option.
    """
    words: list[str] = []
    for argument in arguments:
        if argument == STANDARD and words and words[-1].startswith("--"):
            words[-1] = f"{words[-1]}={STANDARD}"
        else:
            words.append(argument)
    return words


@contextmanager
def messages() -> Iterator[None]:
    """Print what the library logs, from INFO on, to stderr; each message once."""
    logger, handler, printed = logging.getLogger("foils"), logging.Handler(), set[str]()

    def emit(record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in printed:
            printed.add(message)
            say(message)

    handler.emit = emit  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def overview() -> str:
    """Return the help of the program, as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    parts = ["Usage: foils VERB [ARGUMENTS] [OPTIONS]", "", textwrap.fill(PURPOSE, width), ""]
    for title, rows in (("Verbs:", {verb: summary(verb) for verb in DOORS}), ("Options:", OPTIONS)):
        first = max(map(len, rows)) + 4
        lines = {name: textwrap.wrap(text, max(width - first, 20)) for name, text in rows.items()}
        aligned = [f"  {name}".ljust(first) + ("\n" + " " * first).join(text) for name, text in lines.items()]
        parts += [title, *aligned, ""]
    return "\n".join([*parts, "Start with: foils demo"])
