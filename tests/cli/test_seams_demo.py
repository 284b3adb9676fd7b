"""The demo is one in the program and the library: the same files, tables and page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import HashingEncoder
from foils.data import Collection, Negatives
from foils.deciding.doors import score
from foils.deciding.mine import mine
from foils.encode import VectorStore
from foils.runtime import memory
from foils.tuning.demo import demo


@pytest.fixture
def pydocs(monkeypatch: pytest.MonkeyPatch, small: Collection) -> Collection:
    monkeypatch.setattr("foils.data.read._pydocs", lambda packages=None: small)
    return small


def test_demo(foils: Callable[..., Any], loaded: object, pydocs: Collection, tmp_path: Path) -> None:
    ended = foils(
        "demo", "-o", tmp_path / "program", "--top", 3, "--seed", 2, "--encoder-args", f"vectors={tmp_path / 'v'}",
        "--tune", "none",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    assert f"report: {tmp_path / 'program' / 'report.html'}" in ended.err
    given = {"top": 3, "seed": 2, "encoder": HashingEncoder(), "vectors": tmp_path / "v"}
    shown = demo(str(tmp_path / "library"), **given, tuned="none")
    scores = shown.scores
    written = {path.name: path.read_bytes() for path in (tmp_path / "library").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (tmp_path / "program").iterdir()}
    assert set(written) == {"random.parquet", "bm25.parquet", "dense.parquet", "scores.json", "report.html"}
    assert str(shown).split() == ended.out.split()
    assert str(shown) == str(scores)
    tables = {name: Negatives.read(tmp_path / "library" / f"{name}.parquet") for name in ("random", "bm25", "dense")}
    again = score(pydocs, tables, encoder=HashingEncoder(), vectors=VectorStore(tmp_path / "v"), seed=2)
    assert again.to_json() == scores.to_json()
    plain = mine(pydocs, "dense", top=3, encoder=HashingEncoder(), vectors=tmp_path / "v")
    assert (tables["dense"].table, tables["dense"].provenance) == (plain.table, plain.provenance)


def test_a_model_is_tuned_at_the_end(
    foils: Callable[..., Any], loaded: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    from train_models import made_up, static_model

    collection = replace(made_up(queries=240, documents=400), name="pydocs", digest="made up")
    monkeypatch.setattr("foils.data.read._pydocs", lambda packages=None: collection)
    static_model().save_pretrained(str(tmp_path / "static"))
    ended = foils("demo", "-o", tmp_path / "out", "--top", 3, "--tune", tmp_path / "static")
    assert ended.status == 0, ended.err
    shown = demo(tmp_path / "out", top=3, tuned=str(tmp_path / "static"), encoder=HashingEncoder())
    assert shown.tuned.better
    assert shown.tuned.sentence.startswith("Better: nDCG@10 on test: ")
    assert str(shown).split() == ended.out.split()
    assert (tmp_path / "out" / "tuned" / "report.html").is_file()
    assert shown.to_json()["tuned"] == shown.tuned.to_json()


def test_a_budget_of_memory_holds_for_doors_that_a_door_calls(
    loaded: object, pydocs: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = []
    monkeypatch.setattr("foils.deciding.doors.score_sources", lambda *_: budgets.append(memory.budget()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demo(tmp_path, top=3, memory="3MiB", vectors=tmp_path / "v")
    assert budgets == [3 * 2**20]
