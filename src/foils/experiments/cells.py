"""A study on disk: cells (a collection and a model), each with its sources' scores and its trainings.

::

    study/cells/COLLECTION--MODEL--DIGEST/
        cell.json                          what it is
        sources/SOURCE--DIGEST.parquet     the rows of each source
        scores.json                        predictors of each source
        trained/SOURCE--DIGEST--N.json     what training N on a source gave

Every file appears whole, and JSON with a checksum of what it says. A training that is there is not repeated; one that
was killed goes on from its checkpoint.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.experiments.cache import digest_of, read_sealed
from foils.experiments.tasks import BASELINES
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import write_sealed

SCORES_FILE = "scores.json"
TRAINING_FACTS = (
    "test_on", "reranker", "first_stage", "fused_with", "queries", "per_query", "temperature", "batches", "epochs",
    "batch_size", "learning_rate", "loss",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One collection and one model of a study, as they lie on disk.

    Attributes:
        folder: of the cell.
        facts: collection, model, settings, and what was asked for, as in cell.json.
        predictors: source → predictor → value; a predictor that could not be had is missing.
        outcomes: source (or baseline) → measure → (seeds, queries) values.
        sizes_of: source (or baseline) → mean rows and steps of a training; of what was not trained there is nothing.
        apart: what tells it from other cells of the same collection and model, as "learning_rate 0.01"; "" alone.
    """

    folder: Path
    facts: Mapping[str, Any]
    predictors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, npt.NDArray[np.float64]]] = field(default_factory=dict)
    sizes_of: Mapping[str, tuple[float, float]] = field(default_factory=dict)
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
    def training(self) -> dict[str, Any]:
        """Settings of the trainings that are not the same for every study, as cell.json tells them."""
        settings = {**self.facts["settings"], **self.facts["settings"].get("training", {})}
        return {name: settings[name] for name in TRAINING_FACTS if settings.get(name) is not None}

    @property
    def tests(self) -> dict[str, int]:
        """Queries of each collection that is tested on; of one alone, nothing."""
        named = {each["name"]: int(each["queries"]) for each in self.facts.get("tests", [])}
        return named if len(named) > 1 else {}

    def means(self, measure: str) -> dict[str, npt.NDArray[np.float64]]:
        """Return source or baseline → (seeds,) means over queries; of several collections, the mean of their means."""
        known = {name: values[measure] for name, values in self.outcomes.items() if measure in values}
        return {name: values @ weights_of(values, [*self.tests.values()]) for name, values in known.items()}

    def results(self, names: Sequence[str], measure: str) -> npt.NDArray[np.float64]:
        """Return (sources, seeds) means over queries, of the seeds that all of the named sources have."""
        means = self.means(measure)
        common = min(len(means[name]) for name in names)
        return np.stack([means[name][:common] for name in names])


def weights_of(values: npt.NDArray[np.float64], sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return (queries,) weights whose sum with (…, queries) values is their mean: of collections, that of their means.

    Args:
        values: per query, collection by collection.
        sizes: queries of each collection; none: they are all of one.
    """
    counts = np.array(sizes or [values.shape[-1]])
    return np.asarray(np.repeat(1 / (len(counts) * counts), counts))


def cell_folder(study: Path, facts: Mapping[str, Any]) -> Path:
    """Return where a cell lies; the same collection, weights and settings always lie in the same place."""
    collection, model = facts["collection"], facts["model"]
    digest = digest_of([collection["digest"], model["fingerprint"], facts["settings"]], 5)
    return study / "cells" / f"{slug(collection['name'])}--{slug(model['name'])}--{digest}"


def trained_file(folder: Path, source: str, digest: str, seed: int) -> Path:
    """Return where the result of a training lies."""
    return folder / "trained" / f"{slug(source)}--{digest}--{seed}.json"


def source_file(folder: Path, source: str, digest: str) -> Path:
    """Return where the rows of a source lie, so that a later call scores it beside other sources."""
    return folder / "sources" / f"{slug(source)}--{digest}.parquet"


def known_sources(folder: Path) -> dict[str, str]:
    """Return source → digest of a cell's sources, those of every earlier call; none where there is no cell yet."""
    path = folder / "cell.json"
    return dict(read_sealed(path)["sources"]) if path.is_file() else {}


def write_cell(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write cell.json; sources that were there already stay."""
    path = folder / "cell.json"
    merged = {**facts, "sources": {**known_sources(folder), **facts["sources"]}}
    if not path.is_file() or merged != read_sealed(path):
        write_sealed(path, merged)


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


def read_cell(folder: Path) -> Cell:
    """Read the cell of a folder.

    Raises:
        FormatError: a file of it is damaged.
    """
    facts, scores = read_sealed(folder / "cell.json"), folder / SCORES_FILE
    predictors = read_sealed(scores)["sources"] if scores.is_file() else {}
    outcomes: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    for name, digest in {**facts["sources"], **dict.fromkeys(BASELINES, "")}.items():
        if results := _results(folder, name, digest):
            outcomes[name] = {
                measure: np.array([result["per_query"][measure] for result in results], np.float64)
                for measure in results[0]["per_query"]
            }
            if "rows" in results[0]:
                rows, steps = ([float(result[key]) for result in results] for key in ("rows", "steps"))
                sizes[name] = (float(np.mean(rows)), float(np.mean(steps)))
    return Cell(folder, facts, predictors, outcomes, sizes)


def _results(folder: Path, source: str, digest: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    while (path := trained_file(folder, source, digest, len(results))).is_file():
        results.append(read_sealed(path))
        sizes = [{name: len(values) for name, values in each["per_query"].items()} for each in results]
        if sizes[-1] != sizes[0]:
            raise FormatError("other measures or queries than with seed 0; remove it, and it will be made again", path)
    return results


def with_own_names(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with names of their own: those of one collection and model say which settings differ.

    Cells whose settings do not differ (of two studies) are numbered.
    """
    cells, named, numbers = [replace(cell, apart="") for cell in cells], list[Cell](), Counter[str]()
    for cell in cells:
        alike = [each.training for each in cells if each.name == cell.name]
        differ = {key: own for key, own in cell.training.items() if any(each.get(key) != own for each in alike)}
        apart = ", ".join(f"{key} {own}" for key, own in differ.items())
        numbers[name := replace(cell, apart=apart).name] += 1
        number = f"({numbers[name]})" if numbers[name] > 1 else ""
        named.append(replace(cell, apart=f"{apart} {number}".strip()))
    return named


def slug(text: str) -> str:
    """Return text as a part of a file's name: letters, digits, dot, dash; what is lost is made up for by a digest."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60] or "x"
    return plain if plain == text else f"{plain}-{hashlib.blake2b(text.encode(), digest_size=3).hexdigest()}"
