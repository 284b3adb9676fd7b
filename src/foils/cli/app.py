"""The program `foils`: its verbs, and how failures end it."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version

import typer
from cyclopts import CycloptsError

from foils.cli.groups import checked
from foils.cli.memory_options import takes_memory
from foils.cli.program import by_door, summary
from foils.cli.scale_options import takes_ray, with_address
from foils.cli.show import Progress, messages, say
from foils.cli.verbs import DOORS
from foils.runtime.errors import FailureError, FoilsError, InputError
from foils.runtime.progress import reporting

VERBS = ("mine", "rate", "select", "batch", "train", "evaluate", "search", "study", "report", "demo")

EXIT_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 1, 130


def application() -> typer.Typer:
    """Build the program: a file of this folder for each verb, with a function of its name."""
    app = typer.Typer(
        name="foils",
        help="Hard negatives for retrievers and rerankers: mine them, say which source to train on before any "
        "training, and measure whether it helped.",
        epilog="Start with: foils demo",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def options(show: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        if show:
            typer.echo(f"foils {version('foils')}")
            raise typer.Exit

    for verb, made in DOORS.items():  # `run` gives them to `foils.cli.program`; here they stand for the help
        app.command(verb, help=summary(made))(lambda: None)
    for verb in VERBS:
        module = import_module(f"foils.cli.{verb}")
        function = getattr(module, verb)
        command = checked(takes_memory(takes_ray(function)), getattr(module, "check_options", None))
        app.command(verb, help=_paragraphs(function), no_args_is_help=verb != "demo")(command)
    return app


def _paragraphs(function: Callable[..., object]) -> str:
    """A verb's docstring, each paragraph on one line, so that it is wrapped where the terminal ends."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n"))


def main() -> None:
    """Run the program. Exit status: 0; 2 for bad input or usage, with a message; 1 for a failure."""
    _quieten()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the program with these arguments and return its exit status; messages go to stderr."""
    try:
        with Progress() as progress, reporting(progress), messages():
            if arguments and arguments[0] in DOORS:
                return by_door(with_address(arguments))
            status = application()(with_address(arguments), prog_name="foils", standalone_mode=False)
        if status == EXIT_INTERRUPTED:
            raise typer.Abort
        return status if isinstance(status, int) else 0
    except typer.TyperException as error:
        if message := error.format_message():  # none where no arguments were given and the help was shown
            say(f"error: {message} (see: foils{_verb(arguments)} --help)")
        return EXIT_INPUT
    except CycloptsError as error:
        say(f"error: {' '.join(str(error).split())} (see: foils{_verb(arguments)} --help)")
        return EXIT_INPUT
    except InputError as error:
        say(f"error: {error}")
        return EXIT_INPUT
    except (FailureError, FoilsError) as error:
        say(f"failed: {error}")
        return EXIT_FAILURE
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted; what was finished is kept")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def _verb(arguments: list[str]) -> str:
    return f" {arguments[0]}" if arguments and arguments[0] in (*DOORS, *VERBS) else ""


def _quieten() -> None:
    """Keep other libraries' progress bars and notices off the terminal; warnings of theirs stay."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for name in ("bm25s", "sentence_transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
