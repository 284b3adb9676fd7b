"""The program `foils`: which verb runs, and how failures end it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from foils.cli.verb import UsageError
from foils.cli.verbs import DOORS
from foils.runtime.errors import FailureError, FoilsError, InputError, UnknownNameError

EXIT_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 1, 130


def main() -> None:
    """Run the program. Exit status: 0; 2 for bad input or usage, with a message; 1 for a failure."""
    _quieten()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the program with these arguments and return its exit status; messages go to stderr."""
    try:
        return _run(arguments)
    except UsageError as error:
        verb = f" {arguments[0]}" if arguments[0] in DOORS else ""
        _say(f"error: {error} (see: foils{verb} --help)")
        return EXIT_INPUT
    except InputError as error:
        _say(f"error: {error}")
        return EXIT_INPUT
    except (FailureError, FoilsError) as error:
        _say(f"failed: {error}")
        return EXIT_FAILURE
    except KeyboardInterrupt:
        _say("interrupted; what was finished is kept")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def _run(arguments: Sequence[str]) -> int:
    """Run what the first argument names; only what it needs is imported."""
    first = arguments[0] if arguments else ""
    if first in DOORS:
        from foils.cli.program import by_door
        from foils.cli.show import Progress, messages
        from foils.runtime.progress import reporting

        with Progress() as progress, reporting(progress), messages():
            return by_door(arguments)
    if first in ("", "-h", "--help"):
        from foils.cli.overview import overview

        print(overview())
        return 0 if first else EXIT_INPUT
    if first == "--version":
        from importlib.metadata import version

        print(f"foils {version('foils')}")
        return 0
    if first in ("--install-completion", "--show-completion"):
        from foils.cli.completion import completion

        return completion(first, *arguments[1:])
    if first.startswith("-"):
        raise UsageError(f"unknown option {first!r}; options of a verb stand after it: foils VERB {first}")
    raise UsageError(str(UnknownNameError("verb", first, DOORS)))


def _say(message: str) -> None:
    from foils.cli.show import say

    say(message)


def _quieten() -> None:
    """Keep other libraries' progress bars and notices off the terminal; warnings of theirs stay."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for name in ("bm25s", "sentence_transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
