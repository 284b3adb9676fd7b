"""A study on disk: cells (a collection and a model), each with its sources' scores and its trainings.

::

    study/commands.txt                     what made it, a command a line
    study/cells/COLLECTION--MODEL--DIGEST/
        cell.json                          what it is
        sources/SOURCE--DIGEST.parquet     the rows of each source
        first-stage.trec                   what rerankers rerank, where it was no file
        scores.json                        predictors of each source
        trained/SOURCE--DIGEST--N.json     what training N on a source gave

Every file appears whole, and JSON with a checksum of what it says. A training that is there is not repeated; one that
was killed goes on from its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data.records import whole_text
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import write_sealed, write_text
from foils.studies.kept import ANY, misfit, read_json

UNTRAINED, IN_BATCH, FIRST_STAGE = "untrained", "in-batch negatives", "first stage"
BASELINES = (UNTRAINED, IN_BATCH, FIRST_STAGE)

AND = " & "  # between the names of a hybrid's parts
COMMANDS = "commands.txt"
SCORES_FILE, FIRST_STAGE_FILE = "scores.json", "first-stage.trec"
DIGEST = re.compile("[0-9a-f]{10}")
CELL: dict[str, Any] = {
    "collection": {"name": str, "digest": str},
    "model": {"name": str, "fingerprint": str},
    "settings": {"measures": [str]},
    "sources": {ANY: DIGEST},
}
TEST: dict[str, Any] = {"name": str, "queries": float}
SCORES: dict[str, Any] = {"of": {}, "sources": {ANY: {ANY: float}}}
TRAINED: dict[str, Any] = {"seconds": float, "per_query": {ANY: [float]}}
"""What the files of a cell hold at least, as `read_json` takes it."""


@dataclass(frozen=True)
class Cell:
    """One collection and one model of a study, as they lie on disk.

    Attributes:
        folder: of the cell.
        facts: collection, model, settings, and what was asked for, as in cell.json.
        predictors: source → predictor → value; a predictor that could not be had is missing.
        outcomes: source (or baseline) → measure → (seeds, queries) values.
        seconds: source → mean seconds of a training.
        apart: what tells it from other cells of the same collection and model, as "learning_rate 0.01"; "" alone.
    """

    folder: Path
    facts: Mapping[str, Any]
    predictors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, npt.NDArray[np.float64]]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    apart: str = ""

    @property
    def name(self) -> str:
        """Collection and model, and what tells it apart."""
        name = f"{self.facts['collection']['name']} · {self.facts['model']['name']}"
        return f"{name} · {self.apart}" if self.apart else name

    @property
    def sources(self) -> list[str]:
        """Sources with both predictors and outcomes, in the order they were given."""
        return [name for name in self.facts["sources"] if name in self.predictors and name in self.outcomes]

    @property
    def parts(self) -> list[int]:
        """Of how many other sources each of `sources` is made: 1, or more for a hybrid."""
        names = set(self.facts["sources"])
        return [len(each) if set(each) <= names else 1 for each in (name.split(AND) for name in self.sources)]

    @property
    def training(self) -> dict[str, Any]:
        """Settings of the trainings that are not the same for every study, as cell.json tells them."""
        settings = self.facts["settings"]
        names = ("test_on", "reranker", "first_stage", "rerank_depth", "queries", "per_query", "temperature", "batches")
        known = {name: settings[name] for name in names if settings.get(name) is not None}
        own = settings.get("training")
        return {**known, **own} if isinstance(own, dict) else known

    def means(self, measure: str) -> dict[str, npt.NDArray[np.float64]]:
        """Return source or baseline → (seeds,) means over queries; of several collections, the mean of their means."""
        known = {name: values[measure] for name, values in self.outcomes.items() if measure in values}
        return {name: mean_of(values, self.sizes) for name, values in known.items()}

    @property
    def tests(self) -> dict[str, slice]:
        """Name of each collection that is tested on, and the place of its queries; empty: they are not written down."""
        named = self.facts.get("tests", [])
        ends = np.cumsum([0, *(int(each["queries"]) for each in named)]).tolist()
        return {each["name"]: slice(*ends[at : at + 2]) for at, each in enumerate(named)}

    @property
    def sizes(self) -> list[int]:
        """Queries of each collection that is tested on; of one alone, nothing."""
        sizes = [place.stop - place.start for place in self.tests.values()]
        return sizes if len(sizes) > 1 else []


def mean_of(values: npt.NDArray[np.float64], sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return (…,) means of (…, queries) values; where the queries are of several collections, the mean of their means.

    Args:
        values: per query, collection by collection.
        sizes: queries of each collection; none: they are all of one.
    """
    if not sizes:
        return np.asarray(values.mean(axis=-1))
    parts = np.split(values, np.cumsum(sizes)[:-1], axis=-1)
    return np.asarray(np.mean([part.mean(axis=-1) for part in parts], axis=0))


def results_of(cell: Cell, names: Sequence[str], measure: str) -> npt.NDArray[np.float64]:
    """Return (sources, seeds) means over queries, of the seeds that all of the named sources have."""
    means = cell.means(measure)
    common = min(len(means[name]) for name in names)
    return np.stack([means[name][:common] for name in names])


def cell_folder(study: Path, collection: Mapping[str, str], model: Mapping[str, Any], settings: object) -> Path:
    """Return where a cell lies; the same collection, weights and settings always lie in the same place."""
    key = json.dumps([collection["digest"], model["fingerprint"], settings], sort_keys=True)
    digest = hashlib.blake2b(key.encode(), digest_size=5).hexdigest()
    return study / "cells" / f"{slug(collection['name'])}--{slug(str(model['name']))}--{digest}"


def trained_file(folder: Path, source: str, digest: str, seed: int) -> Path:
    """Return where the result of a training lies."""
    return folder / "trained" / f"{slug(source)}--{digest}--{seed}.json"


def source_file(folder: Path, source: str, digest: str) -> Path:
    """Return where the rows of a source lie, so that a later call scores it beside other sources."""
    return folder / "sources" / f"{slug(source)}--{digest}.parquet"


def known_sources(folder: Path) -> dict[str, str]:
    """Return source → digest of a cell's sources, those of every earlier call; none where there is no cell yet."""
    path = folder / "cell.json"
    return dict(read_json(path, CELL)["sources"]) if path.is_file() else {}


def write_cell(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write cell.json; sources that were there already stay."""
    path = folder / "cell.json"
    merged = {**facts, "sources": {**known_sources(folder), **facts["sources"]}}
    if not path.is_file() or merged != read_json(path, CELL):
        write_sealed(path, merged)
    return merged


def read_cells(study: Path) -> list[Cell]:
    """Read every cell of a study, in the order of their names.

    Raises:
        InputError: there is no study.
        FormatError: a file of it is damaged.
    """
    folders = sorted(path.parent for path in study.glob("cells/*/cell.json"))
    if not folders:
        raise InputError(f"{study}: no study here (expected {study}/cells/*/cell.json); make one with foils study")
    return [read_cell(folder) for folder in folders]


def known_commands(study: Path) -> list[str]:
    """Return the commands that made a study, oldest first.

    Raises:
        FormatError: they are no text.
    """
    path = study / COMMANDS
    return whole_text(path).splitlines() if path.is_file() else []


def add_command(study: Path, command: str) -> None:
    """Write down a command of a study, unless it is there."""
    known = known_commands(study)
    if command not in known:
        write_text(study / COMMANDS, "\n".join([*known, command]) + "\n")


def told_apart(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with names of their own: those of one collection and model say which settings differ.

    Cells whose settings do not differ (of two studies) are numbered.
    """
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        alike.setdefault(replace(cell, apart="").name, []).append(cell)
    named_cells, numbers = [], Counter[str]()
    for cell in cells:
        others = [{**each.facts["settings"], **each.training} for each in alike[replace(cell, apart="").name]]
        own = {**cell.facts["settings"], **cell.training}
        differ = [key for key in own if key != "training" and any(each.get(key) != own[key] for each in others)]
        apart = ", ".join(f"{key} {own[key]}" for key in differ)
        named = replace(cell, apart=apart)
        numbers[named.name] += 1
        if numbers[named.name] > 1:
            number = f"({numbers[named.name]})"
            named = replace(cell, apart=f"{apart} {number}".strip())
        named_cells.append(named)
    return named_cells


def read_cell(folder: Path) -> Cell:
    """Read the cell of a folder.

    Raises:
        FormatError: a file of it is damaged.
    """
    facts = read_json(folder / "cell.json", CELL)
    tests = facts.get("tests", [])
    if not (isinstance(tests, list) and all(misfit(each, TEST, "") is None for each in tests)):
        raise FormatError("'tests' are no collections; remove it, and it will be made again", folder / "cell.json")
    scores = folder / SCORES_FILE
    predictors = read_json(scores, SCORES)["sources"] if scores.is_file() else {}
    outcomes: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    seconds: dict[str, float] = {}
    for name, digest in [*facts["sources"].items(), *((each, "") for each in BASELINES)]:
        results = list(_results(folder, name, digest))
        if results:
            measures = results[0]["per_query"]
            outcomes[name] = {
                measure: np.array([result["per_query"][measure] for result in results], np.float64)
                for measure in measures
            }
            seconds[name] = float(np.mean([float(result["seconds"]) for result in results]))
    cell = Cell(folder, facts, predictors, outcomes, seconds)
    lengths = {values.shape[1] for of in outcomes.values() for values in of.values()}
    if cell.sizes and lengths - {sum(cell.sizes)}:
        raise FormatError(f"{sum(cell.sizes)} test queries, and results of other numbers", folder / "cell.json")
    return cell


def _results(folder: Path, source: str, digest: str) -> Iterator[dict[str, Any]]:
    seed, first = 0, None
    while (path := trained_file(folder, source, digest, seed)).is_file():
        result = read_json(path, TRAINED)
        sizes = {measure: len(values) for measure, values in result["per_query"].items()}
        first = sizes if first is None else first
        if sizes != first:
            raise FormatError("other measures or queries than with seed 0; remove it, and it will be made again", path)
        yield result
        seed += 1


def slug(text: str) -> str:
    """Return text as a part of a file's name: letters, digits, dot, dash; what is lost is made up for by a digest."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60] or "x"
    return plain if plain == text else f"{plain}-{hashlib.blake2b(text.encode(), digest_size=3).hexdigest()}"
