"""The doors of studies: train on every source and compare, and look again at what was measured."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foils.data import Collection
from foils.data.read import CollectionLike, CollectionSettings, identical_ids_caption
from foils.data.sources import SourcesLike, as_sources
from foils.experiments.analysis import StudyAnalysis, analyse
from foils.experiments.cells import Cell, read_cells
from foils.experiments.study import StudySettings, run_study
from foils.runtime.doors import door
from foils.runtime.files import write_json
from foils.runtime.options import Option

if TYPE_CHECKING:
    StudiesLike = str | Path | StudyAnalysis | Sequence[str | Path | StudyAnalysis]
    TestsLike = CollectionLike | Sequence[CollectionLike]
else:
    TestsLike = list[str]
    StudiesLike = Annotated[list[Path], Option(metavar="STUDY")]

PAGE = "report.html"

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
    run_study(folder, loaded, tables, names, None, settings, tests=tests, device=device)
    analysis: StudyAnalysis = report(folder)
    write_json(folder / "results.json", analysis.to_json())
    analysis.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    return analysis


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
    cells = list[Cell]()
    for each in [studies] if isinstance(studies, (str, Path, StudyAnalysis)) else studies:
        cells += each.cells if isinstance(each, StudyAnalysis) else read_cells(Path(each))
    return analyse(cells, measure=measure, reliable=reliable, seed=seed)
