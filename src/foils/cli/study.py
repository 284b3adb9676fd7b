"""foils study: does a score predict the training?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import only, refuse, takes
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.studies import StudySettings
    from foils.studies.analysis import StudyAnalysis

COMMANDS = "commands.txt"
RESULTS = "results.json"
PAGE = "report.html"


@dataclass(frozen=True)
class StudyOptions:
    """What every training of a study has in common, as `foils.studies.StudySettings` names it."""

    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each source.")] = 3
    queries: Annotated[int | None, typer.Option(min=1, help="Training queries of a seed. Default: all.")] = None
    per_query: Annotated[int, typer.Option(min=1, help="Negatives of a query, the first by rank.")] = 10
    hybrids: Annotated[int, typer.Option(min=1, help="Also unite up to so many sources; 1: none.")] = 1
    measures: Annotated[str, typer.Option(help="ir_measures' names; predictors are compared with the first.")] = (
        "nDCG@10,RR@10,R@100"
    )
    split: opt.Split = "train"
    test_split: Annotated[str, typer.Option("--test", metavar="SPLIT", help="Split to measure on.")] = "test"
    temperature: Annotated[float, typer.Option(help="τ of the scores and of the loss.")] = 0.05
    batches: Annotated[str, typer.Option(help="How batches are filled, as for foils train.")] = "random"
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the training, as in --set epochs=2, batch_size, learning_rate, loss; several times.",
        ),
    ] = None
    probe: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Train this cheap model on each source too, as a predictor: static:NAME."),
    ] = None
    unlabelled: Annotated[
        float | None,
        typer.Option(help="Relevant documents without a label for each labelled one. Default: estimated."),
    ] = None
    estimate_with: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A better encoder to estimate that with. Default: the model, untrained."),
    ] = None
    baselines: Annotated[
        bool, typer.Option(help="Also measure the model untrained, and trained on in-batch negatives alone.")
    ] = True

    def settings(self) -> StudySettings:
        """Return the settings of the study.

        Raises:
            InputError: a --set that is not NAME=VALUE, or settings out of range.
        """
        from foils.studies import StudySettings

        given = {name: value for name, value in vars(self).items() if name != "setting"}
        given["measures"] = tuple(name.strip() for name in self.measures.split(",") if name.strip())
        return StudySettings(**given, training=dict(opt.parsed_loosely(text) for text in self.setting or []))


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    if chosen["unlabelled"] is not None:
        refuse(
            only(options, "--estimate-with"),
            "with --unlabelled, which says what it would estimate; leave one of them out",
        )


@takes(StudyOptions, "options")
def study(
    collection: opt.CollectionName,
    source: opt.SourceNames,
    *,
    model: Annotated[
        list[str],
        typer.Option("--model", metavar="MODEL", help="What to train, as for foils train; several times."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="The study; calls add to it.")],
    options: StudyOptions,
    device: opt.Device = None,
    vectors: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where vectors are kept.")] = None,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Train on each source with several seeds, measure, and say which predictor foresaw the order of the results.

    Every call adds a collection, sources, models or seeds to the study in the folder; what is there is not done
    again, and a study that was stopped goes on where it was. The folder gets results.json and report.html.

    Example: foils study scifact/ bm25.parquet dense.parquet random.parquet --model static:all-MiniLM-L6-v2 -o study/
    """
    from foils.data import load_collection
    from foils.data.sources import read_sources
    from foils.data.store import write_json
    from foils.runtime.errors import require
    from foils.studies import analyse, open_study, read_cells, write_study_report

    require("plotly.offline", "report")
    settings, store = options.settings(), opt.vector_store(vectors)
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    if identical := opt.left_out(loaded.identical_ids(settings.test_split)):
        say(identical)
    sources = {found.name: found.negatives for found in read_sources(source, loaded)}
    cells = open_study(output, loaded, sources, model, settings, device=device)
    _remember(output / COMMANDS)
    for cell in cells:
        cell.run(store)
    analysis = analyse(read_cells(output))
    show_study(analysis)
    write_json(output / RESULTS, analysis.to_json())
    if json:
        write_json(json, analysis.to_json())
    write_study_report(output / PAGE, analysis, commands_of(output))
    say(f"report: {output / PAGE}")


def show_study(analysis: StudyAnalysis) -> None:
    """Print the results of each cell, the predictors, the headline, and warnings."""
    from foils.studies.verdict import lead_sentence

    remarks = "\n".join([analysis.headline, *(f"Warning: {each}" for each in analysis.warnings)])
    for cell in analysis.cells:
        rows = [
            (
                each.source,
                number(each.mean, 4),
                f"{each.low:.4f}–{each.high:.4f}",
                "" if isnan(each.gain) else f"{each.gain:+.4f} [{each.gain_low:+.4f}, {each.gain_high:+.4f}]",
                f"{len(each.seeds)}",
            )
            for each in analysis.outcomes[cell.name]
        ]
        columns = ["trained on", analysis.measure, "95 % interval", "gain over untrained", "seeds"]
        last = cell is analysis.cells[-1] and not analysis.leaderboard
        show_table(cell.name, columns, rows, caption=remarks if last else lead_sentence(analysis, cell.name))
    if analysis.leaderboard:
        _show_predictors(analysis, remarks)


def _show_predictors(analysis: StudyAnalysis, remarks: str) -> None:
    ranked: list[tuple[Any, ...]] = [
        (
            each.predictor,
            f"{each.kendall:+.2f}",
            f"{each.low:+.2f} – {each.high:+.2f}",
            f"{each.worst:+.2f}",
            number(each.regret, 4),
            f"{each.missing or ''}",
        )
        for each in analysis.leaderboard
    ]
    columns = ["predictor", "mean τ", "95 % interval", "worst cell", "regret", "cells without it"]
    show_table(f"Which predictor orders the sources as {analysis.measure} does", columns, ranked, caption=remarks)


def commands_of(study: Path) -> list[str]:
    """Return the commands that made a study, oldest first."""
    from foils.data.lines import whole_text

    path = study / COMMANDS
    return whole_text(path).splitlines() if path.is_file() else []


def _remember(path: Path) -> None:
    from foils.data.store import write_text

    command = shlex.join(["foils", *sys.argv[1:]])
    known = commands_of(path.parent)
    if command not in known:
        write_text(path, "\n".join([*known, command]) + "\n")
