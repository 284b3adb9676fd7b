"""`foils tune` and `foils.tune` are one: the same files and tables; a plan runs again; no proof, no model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

import pyarrow as pa
from sentence_transformers import CrossEncoder

import foils as library
from foils.data import Run, load_collection
from foils.data.fusing import Fusion
from foils.evaluation import bm25_run
from foils.experiments.plan import Plan
from foils.experiments.tasks import RerankerTask
from foils.experiments.tune import Tuning
from foils.runtime.errors import InputError
from in_browser import assert_fits_everyone, needs_chromium
from train_models import masked_language_model
from tune_world import write_marked, write_world

FULL, RERANKED = "full", "reranked"
FULLY: dict[str, Any] = {"model": "static", "output": FULL, "seed": 1}
RERANKER = Plan({
    "given": {"collection": "marked", "model": "mlm", "seed": 0, "max_length": 32, "reranker": True,
              "first_stage": "run.trec"},
    "negatives": {"source": "random", "per_query": 4, "passes": 1},
    "batches": {"method": "random", "size": 8},
    "trials": {"documents": 600, "train_queries": 60, "test_queries": 30, "dev_documents": 300,
               "learning_rates": [0.01], "epochs": [30], "queries": 60, "final_epochs": 0},
})  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory, write_beir):
    """Pairs, models, and a tuning of an encoder in `full`, of a reranker in `reranked`."""
    folder = tmp_path_factory.mktemp("tune")
    write_world(folder)
    write_marked(write_beir, folder)
    masked_language_model(folder / "mlm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs = [bm25_run(load_collection("marked"), split, depth=10).table for split in ("dev", "test")]
        Run(pa.concat_tables(runs)).write("run.trec")
        library.tune("pairs.csv", **FULLY)
        RERANKER.write(f"{RERANKED}.toml")
        library.tune(plan=f"{RERANKED}.toml", output=RERANKED)
    return folder


@pytest.fixture
def world(folder, tmp_path, monkeypatch):
    """A copy of it, to work in."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: str) -> dict[str, bytes]:
    """The files of a tuning, its own name left out of them."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(folder.encode(), b"FOLDER")
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and "work" not in path.parts
    }


def test_the_proof_has_four_rows_and_is_what_evaluate_measures(world):
    tuned = library.tune("pairs.csv", **FULLY)  # nothing is done again
    assert tuned.better
    assert list(tuned.means) == ["base", "tuned", "bm25", "bm25 + tuned"]
    assert tuned.sentence.startswith("Deploy ")
    assert " Better: tuned over static +" in tuned.sentence
    assert tuned.comparison.difference == pytest.approx(tuned.means["tuned"] - tuned.means["base"])
    assert tuned.comparison.difference > 0.1
    models = {"a": "static", "b": tuned.model, "c": "bm25"}
    measured = library.evaluate("pairs.csv", models, measures=["nDCG@10"])
    means = list(tuned.means.values())[:3]
    assert [each.means["nDCG@10"] for each in measured.systems] == pytest.approx(means, abs=1e-3)
    fusion, retriever = tuned.plan["retriever"], Fusion.of(FULL)
    lexical = {"analyser": "words-and-bigrams", "language": "english", "k1": 1.2, "b": 0.75}
    assert retriever == Fusion("z", fusion["weight"], tuned.deploys, bm25=lexical, collection=retriever.collection)
    assert retriever.collection["source"] == "../pairs.csv"
    assert tuned.plan["given"]["bm25"] == lexical
    pairs = {(each.a, each.b) for each in tuned.evaluation.comparisons}
    assert {("tuned", "base"), ("bm25 + tuned", "tuned"), ("bm25 + tuned", "bm25")} <= pairs
    best = max(tuned.trials[:-1], key=lambda trial: trial.dev)
    assert tuned.plan["training"]["learning_rate"] == best.learning_rate
    assert "The same training with in-batch negatives alone " in tuned.plan["negatives"]["reason"]
    assert tuned.sentence.partition(" The model")[0] in Path(FULL, "model/README.md").read_text()


def test_advice_that_dev_gave_and_test_did_not_confirm_says_so(world, monkeypatch):
    tuned = library.tune("pairs.csv", **FULLY)
    for best, said in (("bm25", True), ("bm25 + tuned", False)):
        monkeypatch.setattr(type(tuned), "means", {**tuned.means, best: 0.99})
        monkeypatch.setattr(type(tuned), "deploys", "both")
        assert ("tie with the best on test" in tuned.sentence) == said
        monkeypatch.undo()


@pytest.mark.slow
@needs_chromium
def test_everyone_can_read_the_page(world):
    assert_fits_everyone(Path(FULL, "report.html").resolve())


def test_a_plan_runs_again_in_program_and_library(foils, world):
    ended = foils("tune", "--plan", f"{FULL}/plan.toml", "-o", "by-program", "--json", "program.json")
    assert ended.status == 0, ended.err
    tuned = library.tune(plan=f"{FULL}/plan.toml", output="by-library")
    assert files("by-library") == files("by-program")
    assert str(tuned).replace("by-library", "by-program").split() == ended.out.split()
    assert json.loads(Path("program.json").read_text()) == json.loads(Path("by-program/tune.json").read_text())
    again = {name: content for name, content in files("by-program").items() if name.endswith((".safetensors", ".toml"))}
    assert len(again) == 2
    assert again.items() <= files(FULL).items()


@pytest.mark.slow
def test_time_is_spent_and_the_plan_makes_the_same_steps_again(foils, world):
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "timed", "--minutes", 0.2)
    plan = Plan.read("timed/plan.toml")
    assert plan["training"]["steps"], ended.err
    plan.sections["training"] = {**plan["training"], "epochs": 4}  # whether or not dev rose in so little time
    plan.write("timed.toml")
    tunings = [library.tune(plan="timed.toml", output=output) for output in ("replay-a", "replay-b")]
    assert {each.trials[-1].steps for each in tunings} == {plan["training"]["steps"][-1]}
    assert tunings[0].means == tunings[1].means
    assert files("replay-a")["plan.toml"] == files("replay-b")["plan.toml"]


def test_the_same_command_does_nothing_again_and_another_is_refused(foils, world):
    command = ["tune", "pairs.csv", "--model", "static", "-o", FULL, "--seed", 1]
    made, times = files(FULL), {path: path.stat().st_mtime_ns for path in Path(FULL, "work").iterdir()}
    assert foils(*command).status == 0
    assert files(FULL) == made
    assert {path: path.stat().st_mtime_ns for path in Path(FULL, "work").iterdir()} == times
    minutes, seeded = [*command, "--minutes", 3], [*command[:-1], 2]
    for given, unlike in ((minutes, "minutes"), (seeded, "seed")):
        other = foils(*given)
        assert other.status == 2
        assert f"full holds another tuning, with another {unlike}; the same command goes on" in other.err
    plan = Plan.read(f"{FULL}/plan.toml")
    plan.sections["training"] = {**plan["training"], "epochs": 1, "learning_rate": 1e-6}
    plan.write(f"{FULL}/plan.toml")
    edited = foils("tune", "--plan", f"{FULL}/plan.toml", "-o", FULL)
    assert edited.status == 2
    assert "full/plan.toml is read for this" in edited.err
    tuned = library.tune(plan=f"{FULL}/plan.toml", output="edited")
    assert (tuned.trial.learning_rate, tuned.better) == (1e-6, False)
    assert tuned.deploys == "both", tuned.means
    assert tuned.sentence.startswith("Deploy BM25 and static together (--model edited)")
    assert Fusion.of("edited").base == str(Path("static").resolve())
    (system,) = library.evaluate("pairs.csv", "edited", measures=["nDCG@10"]).systems
    assert system.means["nDCG@10"] == pytest.approx(tuned.means["bm25 + base"], abs=1e-3)
    assert len(library.mine("pairs.csv", "dense", encoder="edited", top=3)) > 0


def test_little_time(foils, world):
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "by-program", "--minutes", 1e-5)
    tuned = library.tune("pairs.csv", model="static", output="by-library", minutes=1e-5)
    assert ended.status == int(not tuned.better)
    assert files("by-library") == files("by-program")
    assert [(trial.steps, trial.source) for trial in tuned.trials] == [(1, "")]  # one training takes all of the time
    assert "sources" not in tuned.plan.sections  # nothing is mined, so the plan names nothing that would be


def test_pairs_that_teach_nothing_keep_the_base(foils, world):
    ended = foils("tune", "shuffled.csv", "--model", "static", "-o", "out")
    assert ended.status == 1, ended.err
    assert "no better model: the base is kept" in ended.err
    result = json.loads(Path("out/tune.json").read_text())
    assert (result["better"], result["model"]) == (False, "static")
    assert " Kept static: " in result["sentence"]
    assert not Path("out/model").exists()
    assert not Path("out/retriever.json").exists()
    assert Path("out/report.html").is_file()


def test_explain_writes_nothing(foils, world):
    before = sorted(world.rglob("*"))
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "out", "--explain")
    assert ended.status == 0, ended.err
    assert "learning_rates 0.001, 0.003, 0.009" in " ".join(ended.out.split())
    assert sorted(world.rglob("*")) == before


@pytest.mark.slow
def test_a_reranker_has_to_beat_its_first_stage(foils, world, monkeypatch):
    tuned = library.tune(plan=f"{RERANKED}.toml", output=RERANKED)  # nothing is done again
    assert tuned.better
    assert tuned.base == "the order of run.trec"
    assert list(tuned.means) == ["first stage", "tuned", "bm25 + first stage", "bm25", "first stage + tuned"]
    assert tuned.next == f"foils evaluate marked --run run.trec --reranker {RERANKED} --rerank-depth 50"
    monkeypatch.setattr(type(tuned), "means", {**tuned.means, "bm25 + first stage": 0.99})
    monkeypatch.setitem(tuned.plan.sections, "retriever", {**tuned.plan["retriever"], "advised": False})
    assert tuned.deploys == "bm25 + first stage"
    assert tuned.sentence.startswith("Deploy BM25 and run.trec together: ")
    monkeypatch.undo()
    monkeypatch.chdir(world)
    measured = library.evaluate("marked", run="run.trec", reranker=tuned.model, measures=["nDCG@10"], rerank_depth=50)
    means = list(tuned.means.values())
    assert [system.means["nDCG@10"] for system in measured.systems] == pytest.approx(means[:2])
    shutil.copytree(RERANKED, "folder")
    Fusion("z", tuned.plan["retriever"]["weight"], "both").write(Path("folder", "retriever.json"))
    how = {"run": "run.trec", "reranker": "folder", "measures": ["nDCG@10"], "rerank_depth": 50}
    assert library.evaluate("marked", **how).systems[1].means["nDCG@10"] == pytest.approx(means[-1])
    assert CrossEncoder(tuned.model, device="cpu").num_labels == 1
    ended = foils("tune", "--plan", f"{RERANKED}/plan.toml", "-o", "again")
    assert ended.status == 0, ended.err
    assert files(RERANKED)["model/model.safetensors"] == files("again")["model/model.safetensors"]


@pytest.mark.slow
def test_a_reranker_that_helps_only_beside_its_first_stage_is_better_with_it(world, monkeypatch):
    tuned = library.tune(plan=f"{RERANKED}.toml", output=RERANKED)
    together = tuned.compared("first stage + tuned", "first stage")
    found = {("tuned", "first stage"): replace(together, a="tuned", p=0.5), (together.a, together.b): together}
    monkeypatch.setattr(type(tuned), "compared", lambda _, a, b: found.get((a, b)))
    assert (tuned.better, tuned.comparison) == (True, together)
    assert " Better: both together over the order of run.trec +" in tuned.sentence
    monkeypatch.setattr(type(tuned), "means", {"first stage": 0.5, "tuned": 0.5, "first stage + tuned": 0.6})
    monkeypatch.setitem(tuned.plan.sections, "retriever", {**tuned.plan["retriever"], "advised": True})
    what = f"the order of run.trec and the tuned model together (--reranker {RERANKED})"
    assert tuned.sentence.startswith(f"Deploy {what}: ")
    monkeypatch.setattr(type(tuned), "means", {"first stage": 0.6, "tuned": 0.5, "first stage + tuned": 0.59})
    worse = replace(together, b="first stage", difference=-0.01, p=0.5)
    monkeypatch.setattr(type(tuned), "compared", lambda _, a, b: together if a == "tuned" else worse)
    assert tuned.deploys == "first stage"  # a reranker costs too much to be no better


@pytest.mark.slow
@pytest.mark.parametrize("advised", [True, False])
def test_a_reranker_that_is_worse_on_dev_is_kept_where_it_helps_its_first_stage(world, monkeypatch, advised):
    monkeypatch.setattr(Tuning, "base_dev", 2.0)
    monkeypatch.setattr(Tuning, "_fusion", lambda *_: {"weight": 0.3, "advised": advised, "reason": "why"})
    tuned = library.tune(plan=f"{RERANKED}.toml", output=RERANKED)
    training = tuned.plan["training"]
    assert (training["epochs"] > 0, "first stage + tuned" in tuned.means) == (advised, advised)
    assert ("together with the first stage it is better" in training["reason"]) == advised
    assert ("retriever" in tuned.plan.sections) == advised


@pytest.mark.parametrize("deploys", ["both", "model"])
def test_a_tuned_folder_is_a_first_stage_as_it_searches(world, deploys):
    Fusion("z", 0.4, deploys).write(Path(FULL, "retriever.json"))
    collection = load_collection("pairs.csv")
    (expected,) = library.evaluate(collection, {"tuned": FULL}, split="test", measures=["nDCG@10"]).runs
    first = RerankerTask("mlm", first_stage=FULL, max_length=None).ranked(collection, "test")
    for name in ("query_id", "doc_id"):
        assert first.table[name].to_pylist() == expected.first(50).table[name].to_pylist()


@pytest.mark.parametrize(("given", "message"), [
    ({}, "nothing to tune on"),
    ({"collection": "pairs.csv"}, "no folder to write to"),
    ({"plan": f"{FULL}/plan.toml", "seed": 3}, "seed 3: no effect with plan"),
    ({"collection": "marked", "model": "static", "output": "out", "reranker": True}, "static"),
])  # fmt: skip
def test_what_is_refused(world, given, message):
    with pytest.raises(InputError, match=message):
        library.tune(**given)
    assert not Path("out", "plan.toml").exists()
