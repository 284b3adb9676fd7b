"""The option `--memory` of every verb whose work goes block by block."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from foils.cli.groups import Verb, parameters_of, presented
from foils.runtime import memory as budget

Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What a block of work may take beside the data, as 500MB or 4GiB. Changes memory and speed alone. "
        "Default: 1GiB.",
    ),
]
VERBS = ("rate", "batch", "train", "evaluate", "search")  # score's door has it too


def takes_memory(command: Verb) -> Verb:
    """Give a verb the option `--memory`; those whose blocks are small anyhow stay as they are."""
    if command.__name__ not in VERBS:
        return command
    option = inspect.Parameter("memory", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Memory)

    def within(*, memory: str | None = None, **given: Any) -> None:
        with budget.limited(budget.DEFAULT if memory is None else budget.parsed_size(memory)):
            command(**given)

    return presented(within, command, [*parameters_of(command), option])
