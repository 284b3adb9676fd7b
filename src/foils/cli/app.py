"""The program `foils`: its help, which verb runs, and how failures end it.

Nothing is loaded before it is needed.
"""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foils.cli.verbs import DOORS, EVERYWHERE, door_of, program, settings_of_verb, summary
from foils.runtime.errors import FoilsError, InputError, UnknownNameError
from foils.runtime.options import STANDARD

if TYPE_CHECKING:
    from cyclopts import Argument

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
    from cyclopts import CycloptsError
    from cyclopts.exceptions import MissingArgumentError

    from foils.runtime.progress import bars, reporting

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
    from foils.runtime.progress import say

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
    for title, rows in (
        ("Verbs:", {verb: summary(verb) for verb in DOORS}),
        ("Options of most verbs:", EVERYWHERE),
        ("Options:", OPTIONS),
    ):
        first = max(map(len, rows)) + 4
        lines = {name: textwrap.wrap(text, max(width - first, 20)) for name, text in rows.items()}
        aligned = [f"  {name}".ljust(first) + ("\n" + " " * first).join(text) for name, text in lines.items()]
        parts += [title, *aligned, ""]
    return "\n".join([*parts, "Start with: foils demo"])
