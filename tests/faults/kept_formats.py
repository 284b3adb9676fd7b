"""Forms of the files that foils keeps for itself and reads again: a study's, and a checkpoint's list of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_formats import BrokenPromiseError, Format

from foils.experiments import Cell, read_cells
from foils.experiments.study import trained_file
from foils.experiments.tasks import IN_BATCH
from foils.runtime.files import sealed

SOURCES = {name: f"{at:010x}" for at, name in enumerate(("random", "bm25", "é <b>"))}
FACTS: dict[str, Any] = {
    "collection": {"name": "made-up", "digest": "c" * 32},
    "model": {"name": "static", "fingerprint": "m" * 32},
    "settings": {"measures": ["nDCG@10", "RR@10"], "queries": None},
    "sources": SOURCES,
}
SCORED: dict[str, Any] = {
    "of": {"sources": SOURCES, "score_with": None},
    "sources": {name: {"eci_sem": 0.25 + at, "rho": -1} for at, name in enumerate(SOURCES)},
}
RESULT: dict[str, Any] = {
    "source": "bm25", "seed": 0, "rows": 40, "steps": 3, "seconds": 1.5, "measures": {"nDCG@10": 0.5, "RR@10": 0.75},
    "per_query": {"nDCG@10": [0.5, 1, 0.0], "RR@10": [0.75, 1.0, 0.5]},
}  # fmt: skip
CELL = "cells/made-up--static--x"
WHOLE = "foils_checkpoint.json"  # foils.training.fit.WHOLE, which torch need not be loaded for


def written(value: dict[str, Any]) -> bytes:
    """Return a value as the bytes of a JSON file with its checksum."""
    return json.dumps(sealed(value), ensure_ascii=False).encode()


def study_files() -> dict[str, bytes]:
    """Return the files of a cell with two seeds: path in the study → contents."""
    results = {
        str(trained_file(Path(CELL), name, digest, seed)): written({**RESULT, "source": name, "seed": seed})
        for name, digest in {**SOURCES, IN_BATCH: ""}.items()
        for seed in range(2)
    }
    return {f"{CELL}/cell.json": written(FACTS), f"{CELL}/scores.json": written(SCORED), **results}


def write_study(folder: Path) -> Path:
    """Write the study into a folder, files that are there kept as they are."""
    for name, data in study_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
    return folder


def _study(up: int, count: Callable[[Cell], int]) -> Callable[[Path], int]:
    """Read a study of which one file is given, so many folders below it, and the others are good."""

    def read(path: Path) -> int:
        (cell,) = read_cells(write_study(path.parents[up]))
        kept = [cell.facts, cell.predictors, {name: list(of) for name, of in cell.outcomes.items()}]
        json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
        for of in cell.outcomes.values():
            if not all(values.ndim == 2 and values.size and np.isfinite(values).all() for values in of.values()):
                raise BrokenPromiseError("results that are no (seeds, queries) finite numbers were taken")
        return count(cell)

    return read


def _checkpoint(path: Path) -> int:
    from foils.training.fit import last_whole_checkpoint

    folder = path.parents[1]
    for name in ("model.safetensors", "sub/state.json"):
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(b"12345")
    found = last_whole_checkpoint(folder)
    if found is not None and found != path.parent:
        raise BrokenPromiseError(f"{found} is no checkpoint")
    return int(found is not None)


def _is_whole(data: bytes) -> int:
    sizes = {"model.safetensors": 5, "sub/state.json": 5, WHOLE: len(data)}
    try:
        said = json.loads(data.decode("utf-8-sig"), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return 0
    if not isinstance(said, tuple) or len(dict(said)) < max(1, len(said)):
        return 0
    return int(all(name in sizes and sizes[name] == size for name, size in said))


_TRAINED = str(trained_file(Path(CELL), "é <b>", SOURCES["é <b>"], 1))


def _said(data: bytes) -> Any:
    return json.loads(data.decode("utf-8-sig"))


KEPT: dict[str, Format] = {
    found.name: found
    for found in (
        Format("study-cell", lambda: [written(FACTS)], _study(2, lambda cell: len(cell.facts["sources"])),
               lambda data: len(_said(data)["sources"]), file=f"{CELL}/cell.json"),
        Format("study-scores", lambda: [written(SCORED)],
               _study(2, lambda cell: sum(len(of) for of in cell.predictors.values())),
               lambda data: sum(len(of) for of in _said(data)["sources"].values()), file=f"{CELL}/scores.json"),
        Format("study-result", lambda: [written(RESULT)],
               _study(3, lambda cell: sum(values.shape[1] for values in cell.outcomes["é <b>"].values())),
               lambda data: sum(len(of) for of in _said(data)["per_query"].values()), file=_TRAINED),
        Format("checkpoint-list", lambda: [json.dumps({"model.safetensors": 5, "sub/state.json": 5}).encode()],
               _checkpoint, _is_whole, file=f"checkpoint-7/{WHOLE}"),
    )
}  # fmt: skip
