"""The program `foils`: its verbs, made of the library's doors, and how failures end it.

A verb parses, calls its door, writes, shows and says what to type next. Nothing is loaded before it
is needed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import MissingArgumentError

import foils
from foils.runtime import files
from foils.runtime.errors import FailureError, FoilsError, InputError, UnknownNameError
from foils.runtime.options import STANDARD, Option, check_places, several, spelling
from foils.runtime.progress import bars, reporting, say
from foils.runtime.results import print_tables

Door = Any  # a function, with its settings by name
Values = Mapping[str, Any]


# Options of the program alone: mostly what to write of the result, nothing where the option is not given


def _output(name: str, text: str, writes: Sequence[str], *, needed: bool = False, **option: Any) -> Option:
    common = {"flag": f"--{name}", "metavar": "FILE", "write": "write", "heading": "Output"}
    kind = {"annotation": Path} if needed else {"annotation": Path | None, "default": None}
    return Option(**{"name": name, "help": text, "writes": writes, **common, **kind, **option})


TO_JSON = "Write the result as JSON to this file; - is standard output, in the place of the table."
JSON = _output("json", TO_JSON, files.JSON, write="write_json")
REPORT = _output("report", "Write an HTML page to this file.", files.HTML, write="report")
PAGE = _output("page", "Write the page to this file.", files.HTML, write="report", flag="--output", short="-o")
NEGATIVES = _output("output", "Write the table of negatives to this file.", files.PARQUET, needed=True, short="-o")
PLAN = _output("output", "Write the plan to this file.", files.PARQUET, needed=True, short="-o")
RECORDS = _output("output", "Write the records to this file.", files.JSONL, needed=True, short="-o")
LABELS = "Write the rows that are called positive to this file, as labels for --add-judgements."
PROMOTED = _output("promoted", LABELS, files.LABEL_FILES, write="promoted.write")


class Verb(NamedTuple):
    """What the program needs of a verb beside its door.

    Attributes:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown, and
            returns the command that mostly follows the verb, or None; it is given the result and
            the options as they were typed.
    """

    outputs: tuple[Option, ...] = ()
    after: Callable[[Any, Values], str | None] = lambda *_: None


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    return getattr(foils, verb.replace("-", "_"))


# sentences that the program's help leaves out
_OF_PYTHON = re.compile(r"In Python (?:[^.]|\.(?!\s|$))*\.(?:\s+|$)")
_PROGRAM: Any = {
    "name": "foils",
    "help_format": "plaintext",
    "help_flags": ["--help", "-h"],
    "result_action": "return_value",
    "exit_on_error": False,
    "print_error": False,
    "suppress_keyboard_interrupt": False,
}


def program(*verbs: str) -> App:
    """Return the program with these verbs, or with all."""
    app = App(version_flags=[], **_PROGRAM)
    for name in verbs or DOORS:
        _add_verb(app, name)
    return app


def _add_verb(app: App, name: str) -> None:
    door, settings = door_of(name), settings_of_verb(name)

    def run(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs).arguments
        with spelling({each.name: each.flag for each in settings}):
            typed = {each.name: bound[each.name] for each in settings if each.name in bound}
            check_places(settings, typed)
            _finish(name, door(**{key: value for key, value in typed.items() if key in door.settings}), typed)

    headings = list(dict.fromkeys(each.heading for each in settings))
    parameters = [_parameter(each, 1 + headings.index(each.heading)) for each in settings]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = name, None
    epilogue = "\n\n".join(f"Example: {command}" for command in examples(door))
    app.command(run, name=name, help=described(door), help_epilogue=epilogue)


def settings_of_verb(name: str) -> list[Option]:
    """Return what a verb takes: the settings of its door that the program has, and those of the program alone."""
    of_door = [each for each in door_of(name).settings.values() if each.in_program]
    return [*of_door, *DOORS[name].outputs, JSON]


def help_text(setting: Option) -> str:
    """Return the program's help of an option, without what concerns Python alone, and its range."""
    # as --max-length none
    none = "none" if type(None) in setting.kinds and isinstance(setting.default, int) else ""
    bounds = ", or ".join(filter(None, [setting.range, none]))
    return " ".join(filter(None, [_OF_PYTHON.sub("", setting.help).strip(), f"Range: {bounds}." if bounds else ""]))


def shown_default(setting: Option) -> Any:
    """Return the default as the program reads it; None where there is none, or where the door alone knows it."""
    if setting.default is not inspect.Parameter.empty and setting.parse is not None:
        return None if setting.repeated or not isinstance(setting.default, str) else setting.default
    return setting.default


def summary(verb: str) -> str:
    """Return the first line of a door's docstring, read from its source: `foils --help` imports no door."""
    name = verb.replace("-", "_")
    homes: dict[str, list[str]] = vars(foils)["HOMES"]
    module = next(module for module, names in homes.items() if name in names)
    source = Path(foils.__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    functions = (each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef))
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
    for output in verb.outputs if to_standard_output else (*verb.outputs, JSON):
        value = values.get(output.name)
        if value is not None:
            attrgetter(output.write)(result)(value)
            if output.name == "output":
                tables = [replace(tables[0], title=f"{tables[0].title} → {value}"), *tables[1:]]
    if to_standard_output:
        print(result.json_text(), end="")
    else:
        print_tables(tables)
    following = verb.after(result, values)
    if following:
        say(f"next: {following}")


def _parameter(setting: Option, place: int) -> inspect.Parameter:
    """One parameter of a verb, as cyclopts reads it; `place` is that of its heading."""
    annotation, default = setting.annotation, shown_default(setting)
    if setting.parse is not None or str in setting.kinds:
        # the program takes a text, where Python takes objects as well
        is_optional = setting.parse is not None and setting.default is not inspect.Parameter.empty
        annotation = list[str] if setting.repeated else str
        annotation = annotation | None if is_optional or type(None) in setting.kinds else annotation
    more: dict[str, Any] = {"help": help_text(setting), "negative_iterable": (), "negative_none": ()}
    names = setting.allowed()
    if names:
        more["choices"] = names
    if setting.metavar or (not names and annotation in (str, str | None)):
        more["metavar"] = setting.metavar or setting.name.split("_")[-1].upper()
    if setting.heading:
        more["group"] = Group(setting.heading, sort_key=place)
    if default in (None, (), ""):
        more["show_default"] = False
    if default is False:
        more["negative"] = ()  # --no-dry-run would say nothing
    more["name"] = [*filter(None, [setting.short]), setting.flag]
    kind: Any = inspect.Parameter.POSITIONAL_ONLY if setting.positional else inspect.Parameter.KEYWORD_ONLY
    if setting.positional and get_origin(annotation) is list:
        # Of a list that is positional only, cyclopts refuses the words that stand behind an option.
        kind, annotation = inspect.Parameter.VAR_POSITIONAL, str
        more["required"] = default is inspect.Parameter.empty
        default = inspect.Parameter.empty
    return inspect.Parameter(setting.name, kind, default=default, annotation=Annotated[annotation, Parameter(**more)])


# What to type next: the command that mostly follows a verb, made from what it was given and what it wrote

CARRIED = (
    "collection", "columns", "corpus", "add_judgements", "split", "device", "query_prompt", "document_prompt",
    "trust_remote_code",
)  # fmt: skip
"""Settings that the next verb has to be given as well: how the collection is read, and how the model is used."""


def command(verb: str, typed: Values, **given: Any) -> str | None:
    """Return a command in a shell's words; None where it needs a value that is not known.

    Args:
        verb: of the command.
        typed: the values of the verb before, by name, of which those of `CARRIED` go on.
        given: further values of the command, by name, in the place of those that were typed; None: not known.
    """
    values = {name: typed[name] for name in CARRIED if name in typed} | given
    words = ["foils", verb]
    for setting in settings_of_verb(verb):
        value = values.get(setting.name)
        flag = [] if setting.positional else ["-o" if setting.short == "-o" else setting.flag]
        if value is True:
            words += flag
        elif value is not None and value is not False:
            for each in several(value):
                words += [*flag, str(each)]
        elif setting.default is inspect.Parameter.empty:
            return None
    return shlex.join(words)


def _then_score(_: Any, typed: Values, **given: Any) -> str | None:
    own = {"sources": [*typed.get("sources", ()), typed["output"]], "encoder": typed.get("encoder")}
    return command("score", typed, **{**own, **given})


def _then_train(_: Any, typed: Values, **given: Any) -> str | None:
    labels = typed.get("promoted", typed.get("add_judgements"))
    own = {"source": typed.get("output"), "model": typed.get("encoder"), "add_judgements": labels, "output": "model"}
    return command("train", typed, **{**own, **given})


def _after_mine(result: Any, typed: Values) -> str | None:
    if not result.keep.any():
        raise FailureError("no row is kept: there is nothing to train on")
    return _then_score(result, typed)


def _after_rate(_: Any, typed: Values) -> str | None:
    return command("select", {}, rated=typed["output"], output="train.parquet")


def _after_demo(_: Any, typed: Values) -> None:
    """Open the report in a browser, where there is somebody to look at it."""
    import webbrowser

    if sys.stdout.isatty():
        webbrowser.open((typed.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


def _after_score(result: Any, typed: Values) -> str | None:
    """Label where labels may settle a tie.

    Else train on what was chosen: the sources are typed as [NAME=]PATH.
    """
    decision = result.decision
    if decision is None:
        return None
    if decision.tied and decision.label_next and not decision.labels:
        asked = {"n": decision.label_next, "output": "labels.tsv"}
        return command("label", typed, sources=typed["sources"], **asked)
    named = [(word.partition("=")[0] if "=" in word else Path(word).name.split(".")[0]) for word in typed["sources"]]
    words = dict(zip(named, typed["sources"], strict=True))
    if decision.source is not None and decision.source not in words:  # random ones, which no file holds
        return command("mine", typed, method="random", output="random.parquet")
    return _then_train(result, typed, source=words.get(decision.source))


def _after_label(result: Any, typed: Values) -> str | None:
    """Decide with the labels; or read the sheet back, once it is filled in, with the same draw."""
    sources, output = typed["sources"], typed.get("output")
    if typed.get("sheet"):
        same = {"n": typed.get("n"), "seed": typed.get("seed"), "output": output or "labels.tsv"}
        return command("label", typed, sources=sources, answers=typed["sheet"], **same)
    return output and _then_score(result, typed, sources=sources, labels=output)


def _after_train(_: Any, typed: Values) -> str | None:
    """Compare on test with what training started from; a reranker orders what BM25 returns."""
    output = typed["output"]
    if typed.get("reranker"):
        return command("evaluate", typed, systems="bm25", reranker=output, split=None)
    base = typed.get("model", door_of("train").settings["model"].default)
    return command("evaluate", typed, systems=[f"base={base}", f"tuned={output}"], split=None)


def _after_tune(result: Any, typed: Values) -> str | None:
    """Search with what was tuned; a reranker orders what its first stage returns."""
    if typed.get("explain"):
        return None
    if not result.better:
        raise FailureError("no better model: the base is kept")
    if result.retrieves:
        return str(result.next)
    stage = typed.get("first_stage") or "bm25"
    first = {"run" if Path(stage).is_file() else "systems": stage}
    return command("evaluate", typed, **first, reranker=typed["output"], rerank_depth=50)


DOORS: dict[str, Verb] = {
    "describe": Verb(after=lambda _, typed: command("mine", typed, output="bm25.parquet")),
    "export": Verb((RECORDS,)),
    "score": Verb((REPORT,), _after_score),
    "mine": Verb((NEGATIVES,), _after_mine),
    "generate": Verb((NEGATIVES,), _then_score),
    "fuse": Verb((NEGATIVES,), _then_score),
    "filter": Verb((NEGATIVES,), _then_score),
    "score-pairs": Verb((NEGATIVES,), lambda result, typed: _then_train(result, typed, loss="margin-mse")),
    "study": Verb(after=lambda _, typed: command("report", {}, studies=typed["output"], page="report.html")),
    "report": Verb((PAGE,)),
    "demo": Verb(after=_after_demo),
    "rate": Verb((NEGATIVES,), _after_rate),
    "label": Verb(after=_after_label),
    "relabel": Verb((NEGATIVES, PROMOTED), _then_train),
    "select": Verb((NEGATIVES,), _then_train),
    "evaluate": Verb(),
    "batch": Verb((PLAN,)),
    "search": Verb(after=lambda _, typed: typed.get("run") and command("evaluate", typed, run=typed["run"])),
    "train": Verb(after=_after_train),
    "tune": Verb(after=_after_tune),
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
        if first in ("", "-h", "--help", "--version", "--install-completion"):
            overview()([first or "--help"])
            return 0 if first else EXIT_INPUT
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
            writes = [f"{each.flag} {each.metavar}" for each in settings_of_verb(verb) if each.writes]
            message = f"foils {verb} has no -o; it writes {', '.join(writes)}"
        raise UsageError(message) from error
    return EXIT_INPUT if bare else 0


def _missing(verb: str, argument: Any) -> str:
    """Say which argument or option of a verb is missing, and what it is."""
    name, option = argument.name, argument.parameter
    value = f" {option.metavar}" if option.metavar and name.startswith("-") else ""
    return f"foils {verb} needs {name}{value}, which is missing. {option.help or ''}".strip()


def standard_joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a lone `-` joined to the option before it.

    Cyclopts takes it for an option.
    """
    words = list(arguments)
    for place in range(len(words) - 1, 0, -1):
        if words[place] == STANDARD and words[place - 1].startswith("--"):
            words[place - 1 : place + 1] = [f"{words[place - 1]}={STANDARD}"]
    return words


@contextmanager
def messages() -> Iterator[None]:
    """Print what the library logs, from INFO on, to stderr; each message once."""
    logger, handler = logging.getLogger("foils"), logging.Handler()
    level, say_once = logger.level, functools.cache(say)
    handler.emit = lambda record: say_once(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def overview() -> App:
    """Return the program as its help shows it: with the summaries of its verbs, for which no door is imported."""
    app = App(
        help=PURPOSE,
        usage="Usage: foils VERB [ARGUMENTS] [OPTIONS]",
        help_epilogue="Start with: foils demo",
        version=lambda: f"foils {version('foils')}",
        group_commands="Options",
        **_PROGRAM,
    )
    for place, verb in enumerate(DOORS):
        app.command(print, name=verb, help=summary(verb), group="Verbs", sort_key=place)

    @app.command(name="--install-completion", help="Let the shell that runs complete verbs and options.")
    def install() -> None:
        print(f"completion of foils is installed in {program().install_completion()}; start a new shell to use it")

    return app
