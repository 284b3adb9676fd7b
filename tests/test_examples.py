"""The examples run, and are as short as they say."""

import runpy
from pathlib import Path

import pytest

from test_docs import write_pairs
from tiny_models import tiny_cross_encoder

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_ten_tasks_with_one_import(beir_folder, tmp_path, monkeypatch, capsys):
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
    for title in ("over none", "Training", "Batches", "rdime search"):
        assert title in shown


@pytest.mark.parametrize("notebook", sorted((EXAMPLES / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebooks_run(notebook, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    write_pairs(tmp_path)
    words = (tmp_path / "pairs.csv").read_text("utf-8").replace(",", " ").replace("?", " ").split()
    (tmp_path / "tiny").mkdir()
    monkeypatch.setenv("MODEL", str(tiny_cross_encoder(tmp_path / "tiny", [" ".join(sorted({*words}))])))
    monkeypatch.chdir(tmp_path)
    text = notebook.read_text("utf-8")
    assert text.count("# %%") >= 4
    left = {"your_pairs": "model", "which_negatives": "decision.html", "reranker": "reranker", "own_trainer": "trained"}
    runpy.run_path(str(notebook))
    assert (tmp_path / left[notebook.stem]).exists()
