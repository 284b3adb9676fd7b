"""The option `--ray` of every verb that embeds texts, and how it spreads the verb's work."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from foils.cli.groups import Verb, parameters_of, presented

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Spread the work over Ray: over this machine's processors, or with HOST:PORT (or auto) over the cluster "
        "whose head that is. The result has the same bytes.",
        rich_help_panel="Encoder",
    ),
]


def takes_ray(command: Verb) -> Verb:
    """Give a verb that has the encoder options the option `--ray`; another verb stays as it is."""
    parameters = parameters_of(command)
    if "encode_batch" not in [parameter.name for parameter in parameters]:
        return command
    option = inspect.Parameter("ray", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Ray)

    def spread(*, ray: str | None = None, **given: Any) -> None:
        if ray is None:
            command(**given)
            return
        from foils.runtime.scale import on_ray

        with on_ray(ray):
            command(**given)

    return presented(spread, command, [*parameters, option])
