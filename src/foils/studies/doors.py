"""The doors of studies: train on every source and compare, and look again at what was measured."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.data import Collection, Run
from foils.data.read import CollectionLike, CollectionSettings, identical_ids_caption
from foils.data.sources import SourcesLike, as_sources
from foils.encode.opening import StoreSettings
from foils.runtime.doors import door
from foils.runtime.files import write_json
from foils.runtime.keyed import arguments
from foils.runtime.options import Option
from foils.runtime.several import several
from foils.runtime.surroundings import MemorySettings
from foils.studies.analysis import analyse
from foils.studies.cells import FIRST_STAGE_FILE, Cell, add_command, known_commands, read_cells, source_file
from foils.studies.results import StudyAnalysis
from foils.studies.run import OpenCell, open_study, run_cells
from foils.studies.settings import StudySettings

if TYPE_CHECKING:
    StudiesLike = str | Path | StudyAnalysis | Sequence[str | Path | StudyAnalysis]
    TestsLike = CollectionLike | Sequence[CollectionLike]
else:
    TestsLike = list[str]
    StudiesLike = Annotated[list[Path], Option(metavar="STUDY")]

PAGE = "report.html"
RESULTS = "results.json"

log = logging.getLogger(__name__)


@door
def study(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    models: Annotated[list[str], Option(flag="--model", metavar="MODEL", repeated=True)],
    output: Annotated[Path, Option(short="-o", metavar="FOLDER")],
    test_on: Annotated[TestsLike | None, Option(metavar="COLLECTION", repeated=True)] = None,
    settings: StudySettings,
    device: str | None = None,
    reading: CollectionSettings,
    storing: StoreSettings,
    memory: MemorySettings,
) -> StudyAnalysis:
    """Train on each source with several seeds, measure, and say which predictor foresaw the order of the results.

    Every call adds a collection, sources, models or seeds to the study in the folder. What is there is not done again,
    and a study that was stopped goes on where it was. The folder gets results.json and report.html.

    Args:
        models: What to train: a folder, a hub name, all-MiniLM-L6-v2, or static:NAME for the word table of one; may be
            given several times.
        output: Folder of the study; a call adds to it.
        test_on: Collection to measure on; may be given several times, and then the means are averaged. In Python also
            Collection objects. Default: the one that is trained on.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Raises:
        InputError: fewer than two sources, a source that cannot be trained on, a model that cannot be loaded, or
            settings out of range; before anything is trained.
        UnknownNameError: an unknown split, loss or way of filling batches.
    """
    names = [str(each) for each in ([models] if isinstance(models, (str, Path)) else models)]
    folder, loaded = Path(output), reading.open(collection)
    given = [test_on] if isinstance(test_on, (str, Path, Collection)) else list(test_on or ())
    tests = [reading.open(each) for each in given]
    for tested in tests or [loaded]:
        if remark := identical_ids_caption(tested.identical_ids(settings.test_split)):
            log.info(remark)
    tables = {source.name: source.negatives for source in as_sources(sources, loaded)}
    cells = open_study(folder, loaded, tables, names, settings, tests=tests, device=device)
    parts = ["foils", "study", _named(collection)]
    parts += _paths(sources, list(tables), cells[0])
    parts += [part for name in names for part in ("--model", name)]
    parts += ["-o", str(folder), *(["--device", device] if device else [])]
    parts += [part for each in given for part in ("--test-on", _named(each))]
    recorded = settings
    if isinstance(settings.first_stage, Run):
        recorded = replace(settings, first_stage=cells[0].folder / FIRST_STAGE_FILE)
    parts += [*arguments(recorded), *arguments(reading), *arguments(storing, "storage")]
    add_command(folder, shlex.join(parts))
    run_cells(cells, storing.open_store())
    analysis: StudyAnalysis = report(folder, seed=settings.seed)
    write_json(folder / RESULTS, analysis.to_json())
    analysis.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    return analysis


def _named(collection: CollectionLike) -> str:
    """The name of a collection in a command."""
    return collection.name if isinstance(collection, Collection) else str(collection)


def _paths(sources: SourcesLike, names: Sequence[str], cell: OpenCell) -> list[str]:
    """Return [NAME=]PATH of each source; that of a table is the file that the cell keeps it in."""
    if isinstance(sources, Mapping):
        paths = [f"{name}={each}" if isinstance(each, (str, Path)) else "" for name, each in sources.items()]
    else:
        listed: list[Any] = several(sources)
        paths = [str(each) if isinstance(each, (str, Path)) else "" for each in listed]
    kept = [f"{name}={source_file(cell.folder, name, cell.facts['sources'][name])}" for name in names]
    return [path or there for path, there in zip(paths, kept, strict=True)]


@door
def report(
    studies: StudiesLike,
    *,
    measure: str | None = None,
    reliable: bool = False,
    seed: Annotated[int, Option(least=0)] = 0,
) -> StudyAnalysis:
    """Compare predictors with what was measured, in one study or in several together.

    A study that still runs can be looked at: what is finished is shown.

    Args:
        studies: Folder of a study; several may be given. In Python also the result of one.
        measure: Compare predictors with this measure. Default: the first of the study.
        reliable: Compare predictors in cells whose sources' order is reliable alone, not in all that are not flat.
        seed: Seed of the bootstraps; the same seed gives the same bytes.

    Raises:
        InputError: no study in a folder, or nothing finished in any.
    """
    cells, commands = list[Cell](), list[str]()
    for each in [studies] if isinstance(studies, (str, Path, StudyAnalysis)) else studies:
        if isinstance(each, StudyAnalysis):
            cells += each.cells
            commands += each.commands
        else:
            cells += read_cells(Path(each))
            commands += known_commands(Path(each))
    return analyse(cells, measure=measure, reliable=reliable, seed=seed, commands=commands)
