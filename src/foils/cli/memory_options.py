"""The option `--memory` of every verb whose work goes block by block."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from foils import memory as budget

Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What a block of work may take beside the data, as 500MB or 4GiB. Changes memory and speed alone. "
        "[default: 1GiB]",
    ),
]
VERBS = ("mine", "evaluate", "search", "study", "demo")  # others' blocks are small, whatever the data


def takes_memory(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the option `--memory`; those whose blocks are small anyhow stay as they are."""
    if command.__name__ not in VERBS:
        return command
    hints = get_type_hints(command, include_extras=True)  # of the verb's own module, where they are written as text
    own = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    option = inspect.Parameter("memory", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Memory)

    def within(*, memory: str | None = None, **given: Any) -> None:
        with budget.limited(budget.DEFAULT if memory is None else budget.parsed_size(memory)):
            command(**given)

    within.__name__, within.__doc__ = command.__name__, command.__doc__
    within.__signature__ = inspect.Signature([*own, option])  # type: ignore[attr-defined]
    within.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, option)}
    return within
