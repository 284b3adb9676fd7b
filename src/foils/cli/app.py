"""The program `foils`: its verbs, its help, which verb runs, and how failures end it.

A verb is a door of `foils` by its name, and what the program does beside it. Nothing is loaded before it is needed.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import foils
from foils.runtime import files
from foils.runtime.errors import FailureError, FoilsError, InputError, UnknownNameError
from foils.runtime.options import STANDARD, Option, Setting

EXIT_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 1, 130
PURPOSE = (
    "Hard negatives for retrievers and rerankers: mine them, decide before any training which to train on, and measure "
    "whether it helped."
)
EVERYWHERE = {
    "--json FILE": "Write the result as JSON to this file; - is standard output, in the place of the table.",
    "--device DEVICE": "torch device, e.g. cuda:0. Default: the first one available.",
    "--ray ADDRESS": "Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), "
    "or auto (the cluster of this machine). The result has the same bytes.",
    "--trust-remote-code": "Run code that comes with a model.",
}
OPTIONS = {
    "-h, --help": "Show this help; foils VERB --help shows a verb's.",
    "--version": "Print the version.",
    "--install-completion": "Let the shell that runs complete verbs and options.",
}
Door = Any  # a function, with its settings by name
Values = Mapping[str, Any]


class UsageError(InputError):
    """A command that the program does not understand."""


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
    made = Option(**{"metavar": "FILE", "writes": writes, **option})
    return Output(name, kind, made, default, text, "Output", write=write)


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
OPEN = Output(
    "open_report", bool | None, Option(flag="--open"), None,
    "Open the report in a browser (on a terminal). Default: yes.", "Output",
)  # fmt: skip


class Verb(NamedTuple):
    """What the program needs of a verb beside its door.

    Attributes:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is given the result
            and the values of all options.
    """

    outputs: tuple[Output, ...] = ()
    after: Callable[[Any, Values], None] = lambda *_: None


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    return getattr(foils, verb.replace("-", "_"))


def summary(verb: str) -> str:
    """Return the first line of a door's docstring, read from its file: nothing is imported for `foils --help`."""
    name = verb.replace("-", "_")
    home = next(home for home, names in foils._homes.items() if name in names)
    source = Path(foils.__file__).parent.joinpath(*home.split(".")).with_suffix(".py").read_text("utf-8")
    docstring = re.search(rf'^def {name}\(.*?"""(.*?)$', source, re.DOTALL | re.MULTILINE)
    return docstring[1].strip() if docstring else ""


def _fail_where_empty(result: Any, _: Values) -> None:
    if not result.keep.any():
        raise FailureError("no row is kept: there is nothing to train on")


def _fail_where_kept(result: Any, _: Values) -> None:
    if not getattr(result, "better", True):
        raise FailureError("no better model: the base is kept")


def _open_report(_: Any, given: Values) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if given.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((given.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


DOORS: dict[str, Verb] = {
    "describe": Verb(),
    "export": Verb((RECORDS,)),
    "score": Verb((REPORT,)),
    "mine": Verb((NEGATIVES,), after=_fail_where_empty),
    "generate": Verb((NEGATIVES,)),
    "fuse": Verb((NEGATIVES,)),
    "filter": Verb((NEGATIVES,)),
    "score-pairs": Verb((NEGATIVES,)),
    "study": Verb(),
    "report": Verb((PAGE,)),
    "demo": Verb((OPEN,), after=_open_report),
    "rate": Verb((NEGATIVES,)),
    "label": Verb(),
    "relabel": Verb((NEGATIVES, PROMOTED)),
    "select": Verb((NEGATIVES,)),
    "compose": Verb((NEGATIVES,)),
    "evaluate": Verb(),
    "batch": Verb((PLAN,)),
    "search": Verb(),
    "train": Verb(),
    "tune": Verb(after=_fail_where_kept),
    "merge": Verb(),
    "cache": Verb(),
}


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
            from foils.cli.program import program

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
    from cyclopts import CycloptsError

    from foils.cli.program import program
    from foils.runtime.progress import bars, reporting

    needed = [each for each in door_of(verb).settings.values() if each.default is inspect.Parameter.empty]
    bare = needed and len(arguments) == 1
    try:
        with reporting(bars), messages():
            program(verb)([verb, "--help"] if bare else standard_joined(arguments))
    except CycloptsError as error:
        raise UsageError(" ".join(str(error).split())) from error
    return EXIT_INPUT if bare else 0


def standard_joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a lone `-` joined to the option before it: cyclopts takes it for an option."""
    words: list[str] = []
    for argument in arguments:
        if argument == STANDARD and words and words[-1].startswith("--"):
            words[-1] = f"{words[-1]}={STANDARD}"
        else:
            words.append(argument)
    return words


@contextmanager
def messages() -> Iterator[None]:
    """Print what the library logs, from INFO on, to stderr."""
    from foils.runtime.progress import say

    logger, handler = logging.getLogger("foils"), logging.Handler()
    handler.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
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
    verbs = {verb: summary(verb) for verb in DOORS}
    for title, rows in (("Verbs:", verbs), ("Options of most verbs:", EVERYWHERE), ("Options:", OPTIONS)):
        first = max(map(len, rows)) + 4
        lines = {name: textwrap.wrap(text, max(width - first, 20)) for name, text in rows.items()}
        aligned = [f"  {name}".ljust(first) + ("\n" + " " * first).join(text) for name, text in lines.items()]
        parts += [title, *aligned, ""]
    return "\n".join([*parts, "Start with: foils demo"])
