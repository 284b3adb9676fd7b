"""A study's files, damaged by hand: each is refused by name, with what to do, and nothing of another folder is read."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import SEAL, write_sealed
from foils.studies import analyse, read_cells
from foils.studies.cells import CELL, COMMANDS, SCORES, known_commands, trained_file, write_cell

SOURCES = {"random": "0" * 10, "bm25": "1" * 10, "dense": "2" * 10}
FACTS: dict[str, Any] = {
    "collection": {"name": "c", "digest": "c" * 32},
    "model": {"name": "m", "fingerprint": "m" * 32},
    "settings": {"measures": ["nDCG@10"]},
    "sources": SOURCES,
}


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A cell with three sources, two seeds each; its folder."""
    folder = tmp_path / "study" / "cells" / "c--m--x"
    (folder / "trained").mkdir(parents=True)
    (folder / "cell.json").write_text(json.dumps(FACTS))
    predictors = {name: {"eci_sem": float(at)} for at, name in enumerate(SOURCES)}
    (folder / "scores.json").write_text(json.dumps({"of": {"sources": SOURCES}, "sources": predictors}))
    for at, (name, digest) in enumerate(SOURCES.items()):
        for seed in range(2):
            result = {"seconds": 1, "per_query": {"nDCG@10": [0.1 * at, 0.2 * at + 0.01 * seed]}}
            trained_file(folder, name, digest, seed).write_text(json.dumps(result))
    return folder


def changed(path: Path, place: tuple[str, ...], value: object) -> None:
    """Set what lies at a place in a JSON file; `...` takes it away."""
    whole = json.loads(path.read_text())
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    path.write_text(json.dumps(whole))


def files(cell: Path) -> dict[str, Path]:
    return {
        "cell": cell / "cell.json",
        "scores": cell / "scores.json",
        "result": trained_file(cell, "bm25", SOURCES["bm25"], 1),
    }


def test_it_is_a_good_study(cell: Path) -> None:
    (read,) = read_cells(cell.parents[1])
    assert read.sources == list(SOURCES)
    assert read.outcomes["bm25"]["nDCG@10"] == pytest.approx(np.array([[0.1, 0.2], [0.1, 0.21]]))
    assert analyse([read]).leaderboard[0].predictor == "eci_sem"


@pytest.mark.parametrize("data", [b"", b"{", b"\x00", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5_000])
@pytest.mark.parametrize("name", ["cell", "scores", "result"])
def test_what_is_no_json_is_named_with_what_to_do(cell: Path, name: str, data: bytes) -> None:
    path = files(cell)[name]
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"malformed JSON; remove it, and it will be made again") as caught:
        read_cells(cell.parents[1])
    assert caught.value.path == path
    assert len(str(caught.value)) < 1_000


WRONG: list[tuple[str, tuple[str, ...], object, str]] = [
    ("cell", ("sources",), ..., "'sources' of it is missing"),
    ("cell", ("sources", "bm25"), "../../../x", "'bm25' of 'sources' of it is no digest"),
    ("cell", ("sources", "bm25"), "1" * 300, "is no digest"),
    ("cell", ("sources", "bm25"), None, "is no digest"),
    ("cell", ("sources",), [], "'sources' of it is no object"),
    ("cell", ("model", "name"), 3, "'name' of 'model' of it is no text"),
    ("cell", ("collection", "name"), "\ud800", "no Unicode"),
    ("cell", ("settings", "measures"), [], "no list of texts"),
    ("cell", ("settings", "measures"), [1], "no list of texts"),
    ("cell", ("settings", "queries"), float("nan"), "holds NaN"),
    ("scores", ("of",), ..., "'of' of it is missing"),
    ("scores", ("sources", "bm25"), [], "is no object"),
    ("scores", ("sources", "bm25", "eci_sem"), "1", "no finite number"),
    ("scores", ("sources", "bm25", "eci_sem"), True, "no finite number"),
    ("scores", ("sources", "bm25", "eci_sem"), 10**400, "no finite number"),
    ("scores", ("sources", "bm25", "eci_sem"), float("inf"), "holds NaN, infinity"),
    ("result", ("seconds",), None, "no finite number"),
    ("result", ("per_query",), ..., "is missing"),
    ("result", ("per_query", "nDCG@10"), [], "no list of finite numbers"),
    ("result", ("per_query", "nDCG@10"), ["a", "b"], "no list of finite numbers"),
    ("result", ("per_query", "nDCG@10"), [1, [2]], "no list of finite numbers"),
    ("result", ("per_query", "nDCG@10"), [1, 2, 3], "other measures or queries than with seed 0"),
    ("result", ("per_query", "RR@10"), [1, 2], "other measures or queries than with seed 0"),
]


@pytest.mark.parametrize(("name", "place", "value", "message"), WRONG, ids=range(len(WRONG)))
def test_what_a_study_does_not_write_is_refused(
    cell: Path, name: str, place: tuple[str, ...], value: object, message: str
) -> None:
    path = files(cell)[name]
    changed(path, place, value)
    with pytest.raises(FormatError, match=f"{message}.*remove it, and it will be made again") as caught:
        read_cells(cell.parents[1])
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("name", "was", "is_now"), [("cell", "1111", "1112"), ("scores", "2.0", "2.1"), ("result", "0.21", "0.22")]
)
def test_a_digit_that_changed_is_refused_and_a_file_without_a_checksum_read(
    cell: Path, name: str, was: str, is_now: str
) -> None:
    path = files(cell)[name]
    changed = path.read_text().replace(was, is_now, 1)
    write_sealed(path, json.loads(path.read_text()))
    (read,) = read_cells(cell.parents[1])
    assert SEAL not in read.facts
    path.write_text(path.read_text().replace(was, is_now, 1))
    with pytest.raises(
        FormatError, match=r"its contents have changed .*remove it, and it will be made again"
    ) as caught:
        read_cells(cell.parents[1])
    assert caught.value.path == path
    path.write_text(changed)
    assert read_cells(cell.parents[1]), "what has no checksum is taken at its word"


def test_a_folder_in_the_place_of_a_file(cell: Path) -> None:
    (cell / "cell.json").unlink()
    (cell / "cell.json").mkdir()
    with pytest.raises(InputError, match=r"cell\.json: "):
        read_cells(cell.parents[1])


def test_forms_say_what_is_written(tmp_path: Path) -> None:
    """What a study writes has the forms that its files are read with, so that no good file is refused."""
    assert write_cell(tmp_path, FACTS) == FACTS
    assert write_cell(tmp_path, {**FACTS, "sources": {"new": "3" * 10}})["sources"] == {**SOURCES, "new": "3" * 10}
    assert set(CELL) <= set(FACTS)
    assert set(SCORES) == {"of", "sources"}
    assert SEAL in json.loads((tmp_path / "cell.json").read_text())


def test_a_measure_that_one_source_lacks_is_not_compared(cell: Path) -> None:
    for seed in range(2):
        path = trained_file(cell, "dense", SOURCES["dense"], seed)
        path.write_text(path.read_text().replace("nDCG@10", "AP"))
    with pytest.raises(InputError, match=r"c · m have no nDCG@10; measured were AP, nDCG@10"):
        analyse(read_cells(cell.parents[1]))


def test_results_that_are_all_alike_agree_with_nothing_and_warn_of_nothing(cell: Path) -> None:
    for path in (cell / "trained").iterdir():
        path.write_text('{"seconds": 1, "per_query": {"nDCG@10": [0.5, 0.5]}}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = analyse(read_cells(cell.parents[1]))
    assert np.isnan(found.reliability["c · m"].half)
    assert found.leaderboard[0].kendall == 0


def test_commands_that_are_no_text(cell: Path) -> None:
    (cell / COMMANDS).write_bytes(b"foils study\n\xff\n")
    with pytest.raises(FormatError, match=r"commands\.txt:2: not UTF-8"):
        known_commands(cell)
