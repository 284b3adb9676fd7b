"""The program `foils`: its help, which verb runs, and how failures end it. Nothing is loaded before it is needed."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from foils.cli.verbs import DOORS, UsageError
from foils.runtime.errors import FoilsError, InputError, UnknownNameError

EXIT_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 1, 130
PURPOSE = (
    "Hard negatives for retrievers and rerankers: mine them, decide before any training which to train on, and measure "
    "whether it helped."
)
EVERYWHERE = {
    "--json FILE": "Write the result as JSON to this file.",
    "--device DEVICE": "torch device, e.g. cuda:0. Default: the first one available.",
    "--ray ADDRESS": "Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), "
    "or auto (the cluster of this machine). The result has the same bytes.",
    "--trust-remote-code": "Run code that comes with a model.",
}
OPTIONS = {
    "-h, --help": "Show this help; foils VERB --help shows a verb's.",
    "--version": "Print the version.",
    "--install-completion": "Complete verbs and options in this shell from now on (bash, zsh or fish).",
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
    status = EXIT_INPUT
    try:
        return _run(arguments)
    except UsageError as error:
        verb = f" {arguments[0]}" if arguments[0] in DOORS else ""
        message = f"error: {error} (see: foils{verb} --help)"
    except InputError as error:
        message = f"error: {error}"
    except FoilsError as error:
        status, message = EXIT_FAILURE, f"failed: {error}"
    except MemoryError:
        status, message = (
            EXIT_FAILURE,
            "failed: the memory of this machine is used up; give less, or a machine with more",
        )
    except KeyboardInterrupt:
        again = "run the same command to continue" + (", with --resume" if arguments[0] == "train" else "")
        status, message = EXIT_INTERRUPTED, f"interrupted; what was finished is kept: {again}"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    print(f"foils: {message}", file=sys.stderr)
    return status


def _run(arguments: Sequence[str]) -> int:
    """Run what the first argument names; only what it needs is imported."""
    first = arguments[0] if arguments else ""
    if first in DOORS:
        from foils.cli.program import run_verb
        from foils.cli.show import Progress, messages
        from foils.runtime.progress import reporting

        with reporting(Progress()), messages():
            return run_verb(arguments)
    if first in ("", "-h", "--help"):
        print(overview())
        return 0 if first else EXIT_INPUT
    if first == "--version":
        from importlib.metadata import version

        print(f"foils {version('foils')}")
        return 0
    if first == "--install-completion":
        from foils.cli.program import program

        print(f"{program().install_completion()} is read by new shells")
        return 0
    if first.startswith("-"):
        raise UsageError(f"unknown option {first!r}; options of a verb stand after it: foils VERB {first}")
    raise UsageError(str(UnknownNameError("verb", first, DOORS)))


def overview() -> str:
    """Return the help of the program, as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    verbs = {name: verb.summary() for name, verb in DOORS.items()}
    parts = ["Usage: foils VERB [ARGUMENTS] [OPTIONS]", "", textwrap.fill(PURPOSE, width), ""]
    for title, rows in (("Verbs:", verbs), ("Options of most verbs:", EVERYWHERE), ("Options:", OPTIONS)):
        parts += [title, *_aligned(rows, width), ""]
    return "\n".join([*parts, "Start with: foils demo"])


def _aligned(rows: Mapping[str, str], width: int) -> list[str]:
    first = max(map(len, rows)) + 4
    lines = {name: textwrap.wrap(text, max(width - first, 20)) for name, text in rows.items()}
    return [f"  {name}".ljust(first) + ("\n" + " " * first).join(text) for name, text in lines.items()]
