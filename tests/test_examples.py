"""The examples run, and are as short as they say."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_ten_tasks_with_one_import(
    beir_folder: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = EXAMPLES / "ten_tasks.py"
    lines = script.read_text("utf-8").splitlines()
    assert len(lines) <= 30
    assert [line for line in lines if line.startswith(("import", "from"))] == ["import sys", "import foils"]
    monkeypatch.setattr("sys.argv", [str(script), str(beir_folder()), "static:all-MiniLM-L6-v2", str(tmp_path)])
    names = runpy.run_path(str(script))
    shown = capsys.readouterr().out
    assert Path(names["trained"].path) == tmp_path / "model"
    assert (tmp_path / "run.trec").read_text()
    assert [system["name"] for system in names["result"].to_json()["systems"]] == ["base", "tuned"]
    for title in ("Sources of negatives", "Training", "Batches", "rdime search"):
        assert title in shown
