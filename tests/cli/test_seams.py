"""The program and the library are one: the same bytes, defaults and provenance."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.deciding.doors import score
from foils.encode import VectorStore
from foils.runtime.files import write_json

Foils = Callable[..., Any]


def mined(foils: Foils, folder: Path, tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for method in ("random", "bm25"):
        paths[method] = tmp_path / f"{method}.parquet"
        assert foils("mine", folder, "--with", method, "--top", 3, "-o", paths[method]).status == 0
    return paths


def test_score(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = beir_folder()
    paths = mined(foils, folder, tmp_path)
    options = [
        "--json",
        tmp_path / "program.json",
        "--report",
        tmp_path / "program.html",
        "--encoder-args",
        f"vectors={tmp_path / 'v'}",
    ]
    ended = foils("score", folder, *paths.values(), *options, "--verbose")
    assert ended.status == 0, ended.err
    store, encoder = VectorStore(tmp_path / "v"), HashingEncoder()
    tables = {name: Negatives.read(path) for name, path in paths.items()}
    forms: list[Any] = [paths, list(paths.values()), tables, {name: each.table for name, each in tables.items()}]
    for number, sources in enumerate(forms):
        collection = load_collection(folder) if number % 2 else folder
        scores = score(collection, sources, encoder=encoder, vectors=store, verbose=True)
        write_json(tmp_path / "library.json", scores.to_json())
        if number < 3:
            assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
            decided = scores
    # An Arrow table says nothing of how it was mined, so that less is known of its false negatives.
    assert [score.eci_sem for score in scores.sources] == [score.eci_sem for score in decided.sources]
    scores = decided
    scores.report(tmp_path / "library.html")
    assert (tmp_path / "library.html").read_bytes() == (tmp_path / "program.html").read_bytes()
    assert str(scores).split() == ended.out.split()
    assert "<table>" in scores._repr_html_()


def test_what_a_table_says_of_itself_is_the_same_in_memory_and_on_disk(
    foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path
) -> None:
    path = mined(foils, beir_folder(), tmp_path)["bm25"]
    from foils.runtime.files import file_digest

    assert Negatives.read(path).digest == file_digest(path)
    assert json.loads(json.dumps(Negatives.read(path).to_json()))["kept"] > 0
