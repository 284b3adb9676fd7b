"""The demo is one in the program and the library: the same files and tables, and two verdicts about one model."""

from dataclasses import replace

import pytest

from foils.experiments.doors import PACKAGES, demo


@pytest.mark.slow
def test_one_model_is_decided_for_and_tuned(foils, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    from train_models import made_up, static_model

    collection = replace(made_up(queries=240, documents=400), name="pydocs", digest="made up")
    monkeypatch.setattr("foils.data.read._pydocs", lambda packages=None: collection)
    static_model().save_pretrained(str(tmp_path / "static"))
    ended = foils("demo", "-o", tmp_path / "out", "--model", tmp_path / "static")
    assert ended.status == 0, ended.err
    shown = demo(tmp_path / "out", model=str(tmp_path / "static"))
    assert list(shown.tuned.means)[:2] == ["base", "tuned"]
    assert shown.tuned.sentence.startswith("Deploy ")
    assert str(shown).split() == ended.out.split()
    assert (tmp_path / "out" / "tuned" / "report.html").is_file()
    assert shown.to_json()["tuned"] == shown.tuned.to_json()
    named = shown.tuned.plan["given"]["collection"]
    assert named == f"pydocs:{','.join(PACKAGES)}", "the next command would measure on other queries"
