"""Verbs that are not yet made of doors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

VERBS: dict[str, str] = {}


def by_typer(arguments: Sequence[str]) -> int:
    """Run one of these verbs; return the exit status."""
    from importlib import import_module

    import typer

    from foils.cli.app import EXIT_INPUT, EXIT_INTERRUPTED, UsageError
    from foils.cli.groups import checked
    from foils.cli.memory_options import takes_memory
    from foils.cli.program import with_address
    from foils.cli.scale_options import takes_ray

    name = arguments[0]
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=settings)
    app.callback()(lambda: None)
    module = import_module(f"foils.cli.{name}")
    function = getattr(module, name)
    command = checked(takes_memory(takes_ray(function)), getattr(module, "check_options", None))
    app.command(name, help=_paragraphs(function), no_args_is_help=True)(command)
    try:
        status = app(with_address(arguments), prog_name="foils", standalone_mode=False)
    except typer.TyperException as error:
        if message := error.format_message():  # none where no arguments were given and the help was shown
            raise UsageError(message) from error
        return EXIT_INPUT
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if status == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _paragraphs(function: Callable[..., object]) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n"))
