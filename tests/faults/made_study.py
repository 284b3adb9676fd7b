"""A study with results that nobody trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
