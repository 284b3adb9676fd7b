"""foils report: one page of one or several studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foils.cli import options as opt
from foils.cli.show import say
from foils.cli.study import commands_of, show_study


def report(
    study: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Folders of foils study.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")],
    measure: Annotated[str | None, typer.Option(help="Compare predictors with this measure. Default: the first.")] = (
        None
    ),
    seed: opt.Seed = 0,
    json: opt.Json = None,
) -> None:
    """Make the report of one study, or of several together, from what lies in their folders.

    A study that still runs can be looked at: what is finished is shown.

    Example: foils report study/ other-study/ --measure RR@10 -o report.html
    """
    from foils.data.store import write_json
    from foils.studies import analyse, read_cells, write_study_report

    cells = [cell for folder in study for cell in read_cells(folder)]
    analysis = analyse(cells, measure=measure, seed=seed)
    show_study(analysis)
    if json:
        write_json(json, analysis.to_json())
    write_study_report(output, analysis, [command for folder in study for command in commands_of(folder)])
    say(f"report: {output}")
