"""The demo is one in the program and the library: the same files, tables and page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.tuning.demo import demo


@pytest.fixture
def pydocs(monkeypatch: pytest.MonkeyPatch, small: Collection) -> Collection:
    monkeypatch.setattr("foils.data.read._pydocs", lambda packages=None: small)
    return small


@pytest.mark.slow
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
