"""The demo is one in the program and the library: the same files, tables and page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import HashingEncoder
from foils.data import Collection, Negatives
from foils.encode import VectorStore
from foils.mining.doors import mine
from foils.runtime import memory
from foils.scoring.doors import score
from foils.studies.doors import demo


@pytest.fixture
def pydocs(monkeypatch: pytest.MonkeyPatch, small: Collection) -> Collection:
    monkeypatch.setattr("foils.data.load._pydocs", lambda: small)
    return small


def test_demo(foils: Callable[..., Any], loaded: object, pydocs: Collection, tmp_path: Path) -> None:
    ended = foils(
        "demo", "-o", tmp_path / "program", "--top", 3, "--seed", 2, "--encoder-args", f"vectors={tmp_path / 'v'}"
    )
    assert ended.status == 0, ended.err
    assert f"report: {tmp_path / 'program' / 'report.html'}" in ended.err
    scores = demo(str(tmp_path / "library"), top=3, seed=2, encoder=HashingEncoder(), vectors=tmp_path / "v")
    written = {path.name: path.read_bytes() for path in (tmp_path / "library").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (tmp_path / "program").iterdir()}
    assert set(written) == {"random.parquet", "bm25.parquet", "dense.parquet", "scores.json", "report.html"}
    assert str(scores).split() == ended.out.split()
    tables = {name: Negatives.read(tmp_path / "library" / f"{name}.parquet") for name in ("random", "bm25", "dense")}
    again = score(pydocs, tables, encoder=HashingEncoder(), vectors=VectorStore(tmp_path / "v"), seed=2)
    assert again.to_json() == scores.to_json()
    plain = mine(pydocs, "dense", top=3, encoder=HashingEncoder(), vectors=tmp_path / "v")
    assert (tables["dense"].table, tables["dense"].provenance) == (plain.table, plain.provenance)


def test_a_budget_of_memory_holds_for_doors_that_a_door_calls(
    loaded: object, pydocs: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = []
    monkeypatch.setattr("foils.scoring.doors.score_sources", lambda *_: budgets.append(memory.budget()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demo(tmp_path, top=3, memory="3MiB", vectors=tmp_path / "v")
    assert budgets == [3 * 2**20]
