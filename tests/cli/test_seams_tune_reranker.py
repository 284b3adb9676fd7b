"""`foils tune --reranker` is the same as for encoders; what is measured before may be the first stage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

import torch
from sentence_transformers import CrossEncoder

import foils as library
from foils.runtime.errors import InputError
from foils.tuning.plan import Plan
from train_models import cross_encoder, masked_language_model, static_model
from tune_world import write_marked

Foils = Callable[..., Any]
FULL = "full"
GIVEN = {"collection": "marked", "model": "mlm", "seed": 0, "max_length": 32, "reranker": True, "rerank_depth": 10,
         "score_with": "static"}  # fmt: skip
TRIALS = {"learning_rates": [0.01], "epochs": [30], "queries": 60, "final_epochs": 0, "dev_documents": 300}
ROWS = {"source": "random", "per_query": 4, "max_positives": 1, "passes": 1}


def tuned_by(output: str, **changed: Any) -> Any:
    """Tune by a plan that says everything but `changed`."""
    plan = Plan({"given": GIVEN, "trials": TRIALS, "negatives": ROWS, "batches": {"way": "random", "size": 8}})
    plan.sections.update(changed)
    plan.write(f"{output}.toml")
    return library.tune(plan=f"{output}.toml", output=output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection, models, and a reranker that was tuned from a masked language model in `full`."""
    folder = tmp_path_factory.mktemp("tune-reranker")
    write_marked(folder)
    static_model().save_pretrained(str(folder / "static"))
    masked_language_model(folder / "mlm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tuned_by(FULL)
    return folder


@pytest.fixture
def world(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_proof_is_what_evaluate_measures(foils: Foils, world: Path) -> None:
    tuned = library.tune(plan=f"{FULL}.toml", output=FULL)  # nothing is done again
    assert tuned.better
    assert tuned.base == "the order of bm25"
    assert "before (the order of bm25)" in tuned.sentence
    assert [system.name for system in tuned.evaluation.systems] == ["first stage", "tuned"]
    measured = library.evaluate("marked", ["bm25"], reranker=tuned.model, measures=["nDCG@10"], top=10, rerank_depth=10)
    means = [system.means["nDCG@10"] for system in tuned.evaluation.systems]
    assert [system.means["nDCG@10"] for system in measured.systems] == pytest.approx(means)
    assert means[1] - means[0] == pytest.approx(tuned.comparison.difference)
    assert tuned.plan["keep"]["collection"] == "none"
    assert CrossEncoder(tuned.model, device="cpu").num_labels == 1
    assert tuned.sentence.partition(" The model")[0] in Path(FULL, "model/README.md").read_text()
    assert "pairs of test scored" in Path(FULL, "report.html").read_text()
    ended = foils("tune", "--plan", f"{FULL}/plan.toml", "-o", "again")
    assert ended.status == 0, ended.err
    weights = [Path(name, "model/model.safetensors").read_bytes() for name in (FULL, "again")]
    assert weights[0] == weights[1]
    assert Path(FULL, "plan.toml").read_bytes() == Path("again/plan.toml").read_bytes()


def test_a_tuned_reranker_is_measured_against_itself_and_keeps_what_it_knows(world: Path) -> None:
    shutil.copytree(f"{FULL}/model", "reranker")
    given = {**GIVEN, "model": "reranker", "keep": "other"}
    shutil.copytree("marked", "other")
    trials = {**TRIALS, "epochs": [1], "learning_rates": [0.003], "keep_documents": 200}
    tuned = tuned_by("further", given=given, trials=trials)
    assert tuned.base == "reranker"
    before = json.loads(Path(FULL, "tune.json").read_text())["evaluation"]["systems"]
    assert tuned.evaluation.systems[0].means["nDCG@10"] == pytest.approx(before[1]["measures"]["nDCG@10"])
    assert tuned.first_stage == pytest.approx(before[0]["measures"]["nDCG@10"])
    assert f"The order of bm25 alone has {tuned.first_stage:.4f}." in str(tuned)
    if tuned.trial is not None:
        assert tuned.plan["keep"]["collection"] == "other"
        assert [len(system.query_ids) for system in tuned.keep.systems] == [20, 20]


def test_rerankers_are_merged(foils: Foils, world: Path) -> None:
    cross_encoder(Path("parts")).save_pretrained("cross")
    ended = foils("merge", "cross", f"{FULL}/model", "--reranker", "--alpha", 0.25, "-o", "merged")
    assert ended.status == 0, ended.err
    states = [CrossEncoder(name, device="cpu").state_dict() for name in ("cross", f"{FULL}/model", "merged")]
    for name, value in states[2].items():
        assert torch.allclose(value, 0.75 * states[0][name] + 0.25 * states[1][name], atol=1e-6), name


def test_sources_are_decided_and_contested(foils: Foils, world: Path) -> None:
    command = ["tune", "marked", "--reranker", "--model", "mlm", "--score-with", "static", "--rerank-depth", 10,
               "--minutes", 1e-5, "--max-length", 32]  # fmt: skip
    ended = foils(*command, "-o", "by-program")
    assert ended.status == 1, ended.err  # one short epoch is not enough
    result = json.loads(Path("by-program/tune.json").read_text())
    assert result["sentence"].startswith("Kept the order of bm25: ")
    plan, sources = result["plan"], [each["name"] for each in result["sources"]]
    assert {"random", "bm25", "dense 20-24"} <= set(sources)
    assert [each["queries"] for each in result["trials"]] == [50, 50]
    chosen, other = (each["source"] for each in result["trials"])
    assert (chosen == "random") != (other == "random")
    assert plan["documents"]["test_queries"] == 30
    assert plan["keep"]["reason"] == "a head that nobody trained has nothing to forget"


@pytest.mark.parametrize("first", ["static", "run.trec"])
def test_another_first_stage(foils: Foils, world: Path, first: str) -> None:
    for split in ("dev", "test"):
        library.evaluate("marked", ["bm25"], split=split, top=10).write_runs(split)
    Path("run.trec").write_text(Path("dev/bm25.trec").read_text() + Path("test/bm25.trec").read_text())
    given = {**GIVEN, "first_stage": first, "score_with": None}
    if first == "run.trec":
        given["score_with"] = "static"
    training = {"learning_rate": 0.01, "epochs": 1}
    tuned = tuned_by("other", given=given, training=training)
    depth = {"top": 10} if first == "static" else {}
    measured = library.evaluate("marked", [first], measures=["nDCG@10"], **depth)
    assert tuned.evaluation.systems[0].means["nDCG@10"] == pytest.approx(measured.systems[0].means["nDCG@10"])
    assert tuned.base == f"the order of {first}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_stage": "bm25"}, "first_stage bm25: no effect without reranker"),
        ({"reranker": True, "rerank_depth": 5}, "rerank_depth 5; expected at least 10"),
        ({"reranker": True, "model": "static"}, "static"),
    ],
)
def test_what_is_refused(world: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        library.tune("marked", **{"model": "mlm", "output": "out", **options})
    assert not Path("out", "plan.toml").exists()
