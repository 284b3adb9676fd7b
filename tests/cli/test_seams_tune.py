"""`foils tune` and `foils.tune` are one: the same files and tables; no proof, no model."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sentence_transformers import CrossEncoder

import foils as library
from foils.data import Run, load_collection
from foils.data.description import with_three_splits
from foils.data.run import Fusion
from foils.evaluation import bm25_run
from foils.experiments.plan import Plan
from foils.experiments.tasks import RerankerTask
from foils.experiments.tune import Tuning
from foils.experiments.tuned import Candidate
from foils.runtime.errors import InputError
from in_browser import assert_fits_everyone, needs_chromium
from train_models import made_up, masked_language_model
from tune_world import tuned_by, write_marked, write_world

FULL, RERANKED = "full", "reranked"
RECIPE = {"learning_rate": 0.05, "steps": 60, "batch_size": 32, "reason": "by hand"}
QUICK: dict[str, Any] = {
    "given": {"collection": "pairs.csv", "model": "static", "seed": 1}, "recipe": RECIPE,
    "search": {"trainings": 3, "most_steps": 60, "reason": "little is tried"},
}  # fmt: skip
RERANKER: dict[str, Any] = {
    "given": {"collection": "marked", "model": "mlm", "seed": 0, "reranker": True, "first_stage": "run.trec"},
    "recipe": {"learning_rate": 0.01, "steps": 180, "batch_size": 10, "max_length": 32, "reason": "by hand"},
    "search": {"trainings": 1, "most_steps": 180, "reason": "nothing else is tried"},
    "negatives": {"source": "random", "reason": "by hand"},
}  # fmt: skip


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
        tuned_by(QUICK, Path(FULL))
        tuned_by(RERANKER, Path(RERANKED))
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
    tuned = tuned_by(QUICK, Path(FULL))  # nothing is done again
    assert tuned.better
    assert list(tuned.means) == ["base", "tuned", "bm25", "bm25 + tuned"]
    assert tuned.sentence.startswith("Deploy ")
    assert tuned.training.startswith("Tuned: ")
    comparison = tuned.compared("tuned", "base")
    assert comparison.difference == pytest.approx(tuned.means["tuned"] - tuned.means["base"])
    assert comparison.difference > 0.05
    models = {"a": "static", "b": tuned.model, "c": "bm25", "d": FULL}
    measured = library.evaluate("pairs.csv", models, measures=["nDCG@10"])
    means = [*list(tuned.means.values())[:3], tuned.means[tuned.system]]
    assert [each.means["nDCG@10"] for each in measured.systems] == pytest.approx(means, abs=1e-3)
    fusion, retriever = tuned.plan["retriever"], Fusion.of(FULL)
    lexical = {"analyser": "words-and-bigrams", "language": "english", "k1": 1.2, "b": 0.75}
    assert retriever == Fusion("z", fusion["weight"], tuned.deploys, bm25=lexical, collection=retriever.collection)
    assert retriever.collection["source"] == "../pairs.csv"
    assert tuned.sentence in Path(FULL, "model/README.md").read_text()
    written = json.loads(Path(FULL, "tune.json").read_text())
    assert written["documents"] == {"searched": 240, "all": 240}
    assert written["trials"][0]["dev"] == written["base_dev"]


def test_what_is_deployed_and_its_weight_are_chosen_without_test(world):
    """With the judgements of test exchanged, so that every system is wrong there, the same is chosen."""
    whole = load_collection("pairs.csv")
    three = with_three_splits(whole)
    table = three.qrels["test"]
    rolled = table.set_column(1, "doc_id", pa.chunked_array([[*table["doc_id"].to_pylist()[1:], "0"]]).cast("string"))
    other = replace(three, qrels={**three.qrels, "test": rolled.filter(pc.is_in(rolled["doc_id"], table["doc_id"]))})
    chosen = []
    for collection in (three, other):
        tuning = Tuning(collection, Plan(deepcopy(QUICK)), Path(f"out-{len(chosen)}"), "cpu")
        tuned = tuning.run()
        sections = [tuned.plan[name] for name in ("training", "retriever")]
        chosen.append([{key: value for key, value in each.items() if key != "reason"} for each in sections])
        assert tuned.better
    assert chosen[0] == chosen[1]
    assert tuned.means["tuned"] < 0.1, "test was another"


@pytest.mark.slow
@needs_chromium
def test_everyone_can_read_the_page(world):
    assert_fits_everyone(Path(FULL, "report.html").resolve())


def test_the_same_command_does_nothing_again_and_another_is_refused(foils, world):
    command = ["tune", "pairs.csv", "--model", "static", "-o", "little", "--minutes", 1e-5]
    first = foils(*command)
    before = files("little"), {path: path.stat().st_mtime_ns for path in Path("little", "work").iterdir()}
    assert foils(*command).status == first.status
    assert (files("little"), {path: path.stat().st_mtime_ns for path in Path("little", "work").iterdir()}) == before
    for given, unlike in (([*command[:-1], 3], "minutes"), ([*command, "--seed", 2], "seed")):
        other = foils(*given)
        assert other.status == 2
        assert f"little holds another tuning, with another {unlike}; the same command goes on" in other.err


@pytest.mark.parametrize("deploys", ["bm25", "base", "both"])
def test_whatever_is_deployed_the_folder_answers_new_queries(foils, world, deploys):
    retriever = {"deploys": deploys, "weight": 0.6, "dev": {}, "reason": "by hand"}
    tuned = tuned_by({**QUICK, "retriever": retriever}, Path("kept"), members=[])
    assert (tuned.better, tuned.deploys, tuned.model) == (False, deploys, "static")
    assert tuned.training == "Kept static: no training is better on dev. No model was written."
    assert not Path("kept/model").exists()
    (system,) = library.evaluate("pairs.csv", "kept", measures=["nDCG@10"]).systems
    assert system.means["nDCG@10"] == pytest.approx(tuned.means[tuned.system], abs=1e-3)
    query = load_collection("pairs.csv").queries["text"][0].as_py()
    answered = foils("search", "kept", "--query", query, "--top", 3)
    assert answered.status == 0, answered.err
    hits = library.Retriever.load("kept").search(query, 3)[0]
    assert [hit.doc_id in answered.out for hit in hits] == [True] * 3


def test_the_plain_training_is_what_foils_train_does_by_default(world, monkeypatch):
    """The same rows, steps, rate, batches and length; a query has 70 answers, of which 64 are trained on."""
    from foils.training import fit

    done: list[tuple[Any, Any, str]] = []
    train_model = fit.train_model

    def noted(model: Any, data: Any, output: Any, *, settings: Any, batches: str, **more: Any) -> Any:
        done.append((data, settings, batches))
        return train_model(model, data, output, settings=settings, batches=batches, **more)

    monkeypatch.setattr(fit, "train_model", noted)
    plain = made_up(100, 200)
    train = plain.qrels["train"]
    answers = [train.set_column(1, "doc_id", pa.array([f"d{at}"] * len(train))) for at in range(70)]
    judged = replace(plain, qrels={**plain.qrels, "train": pa.concat_tables(answers)}, digest="70 answers")
    given = {"collection": "answers", "model": "static", "seed": 3, "minutes": None}
    tuning = Tuning(judged, Plan({"given": given}), Path("out"), "cpu")
    tuning.schedule()
    tuning.measured((tuning.plain,))
    library.train(judged, model="static", output="plain", seed=3, device="cpu")
    (data, tuned, filled), (of_train, by_hand, by_default) = done
    np.testing.assert_array_equal(data.rows, of_train.rows)
    assert data.counts == of_train.counts
    assert max(np.unique(data.rows[:, 0], return_counts=True)[1]) == 64
    for name in ("learning_rate", "batch_size", "max_length", "lora", "loss_settings", "seed", "patience"):
        assert getattr(tuned, name) == getattr(by_hand, name), name
    assert tuned.steps_of(len(data)) == by_hand.steps_of(len(of_train))
    assert filled == by_default == "random"


def test_the_plain_training_has_the_steps_that_there_is_time_for(world):
    """500 queries with 64 answers each are 250 steps of 128 rows; 100 are made in any case."""
    plain = made_up(1_000, 1_000)
    train = plain.qrels["train"]
    answers = [train.set_column(1, "doc_id", pa.array([f"d{at}"] * len(train))) for at in range(64)]
    judged = replace(plain, qrels={**plain.qrels, "train": pa.concat_tables(answers)}, digest="64 answers")
    for minutes, steps, reason in (
        (1e-5, 100, "what there is time for: by default foils train takes 250 with 32,000 rows"),
        (None, 250, "what foils train does by default with 32,000 rows"),
    ):
        given = {"collection": "answers", "model": "static", "seed": 3, "minutes": minutes}
        tuning = Tuning(judged, Plan({"given": given}), Path(f"out-{steps}"), "cpu")
        tuning.schedule()
        assert tuning.plan["data"]["train_queries"] == 500
        assert tuning.plan["recipe"]["steps"] == steps
        assert reason in tuning.plan["recipe"]["reason"]


def test_program_and_library_write_the_same(foils, world, monkeypatch):
    monkeypatch.setattr("foils.experiments.tune.MOST_TRAININGS", 2)
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "by-program", "--json", "program.json")
    tuned = library.tune("pairs.csv", model="static", output="by-library")
    assert ended.status == int(not tuned.better), ended.err
    assert files("by-library") == files("by-program")
    assert str(tuned).replace("by-library", "by-program").split() == ended.out.split()
    assert json.loads(Path("program.json").read_text()) == json.loads(Path("by-program/tune.json").read_text())


def test_little_time(foils, world):
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "by-program", "--minutes", 1e-5)
    tuned = library.tune("pairs.csv", model="static", output="by-library", minutes=1e-5)
    assert ended.status == int(not tuned.better)
    written = [json.loads(Path(folder, "tune.json").read_text()) for folder in ("by-program", "by-library")]
    assert written[0]["trials"] == written[1]["trials"]
    recipe = tuned.plan["recipe"]
    assert recipe["steps"] == 100, "the plain training is finished, whatever the time"
    assert "more than is left, and is finished all the same" in recipe["reason"]
    assert "nothing else was tried" in tuned.warnings[-1]
    assert "nothing else was tried" in ended.out
    assert len(tuned.candidates) == 2  # the base and the plain training
    assert tuned.plan["negatives"]["source"] == "", "there is no time to mine"


def test_pairs_that_teach_the_wrong_thing_keep_the_base(foils, world):
    """Dev and test ask what the base knows; the pairs of train are exchanged among each other."""
    known = with_three_splits(load_collection("pairs.csv"))
    train = known.qrels["train"]
    turned = train["doc_id"].to_pylist()
    wrong = train.set_column(1, "doc_id", pa.chunked_array([[*turned[1:], turned[0]]]).cast("string"))
    shuffled = replace(known, qrels={**known.qrels, "train": wrong})
    given = {**QUICK["given"], "model": f"{FULL}/model", "collection": "shuffled"}
    sections = {"given": given, "recipe": RECIPE, "search": {**QUICK["search"], "trainings": 1}}
    tuned = Tuning(shuffled, Plan(sections), Path("out"), "cpu").run()
    assert not tuned.better or tuned.taken.share < 1
    worst = next(each for each in tuned.candidates if each.members and each.share == 1)
    assert worst.mean < tuned.candidates[0].mean - 0.1, "the training did harm"
    assert tuned.taken.mean >= tuned.candidates[0].mean


def test_a_base_that_is_kept_ends_the_program_with_one(foils, world, monkeypatch):
    monkeypatch.setattr(Tuning, "_improves", lambda *_: False)
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "out", "--minutes", 1e-5)
    assert ended.status == 1, ended.err
    assert "no better model: the base is kept" in ended.err
    result = json.loads(Path("out/tune.json").read_text())
    assert (result["better"], result["model"]) == (False, "static")
    assert Path("out/report.html").is_file()


def test_explain_writes_nothing_and_says_what_would_be_done(foils, world):
    before = sorted(world.rglob("*"))
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "out", "--explain")
    assert ended.status == 0, ended.err
    shown = " ".join(ended.out.split())
    assert "what foils train does by default with" in shown
    assert "three times the learning rate" in shown
    assert "learning_rate" not in shown
    assert sorted(world.rglob("*")) == before


@pytest.mark.slow
def test_a_reranker_has_to_beat_its_first_stage(foils, world):
    tuned = tuned_by(RERANKER, Path(RERANKED))  # nothing is done again
    assert tuned.better
    assert tuned.base == "the order of run.trec"
    assert list(tuned.means) == ["first stage", "tuned", "first stage + tuned", "bm25"]
    assert tuned.next.endswith(f"--run run.trec --reranker {RERANKED} --rerank-depth 50")
    how = {"run": "run.trec", "measures": ["nDCG@10"], "rerank_depth": 50}
    measured = library.evaluate("marked", reranker=tuned.model, **how)
    means = list(tuned.means.values())
    assert [system.means["nDCG@10"] for system in measured.systems] == pytest.approx(means[:2])
    shutil.copytree(RERANKED, "folder")
    Fusion("z", tuned.plan["retriever"]["weight"], "both").write(Path("folder", "retriever.json"))
    fused = library.evaluate("marked", reranker="folder", **how)
    assert fused.systems[1].means["nDCG@10"] == pytest.approx(means[2])
    assert CrossEncoder(tuned.model, device="cpu").num_labels == 1
    tuned_by(RERANKER, Path("again"))
    assert files(RERANKED)["model/model.safetensors"] == files("again")["model/model.safetensors"]


@pytest.mark.slow
@pytest.mark.parametrize(("together", "better"), [(0.9, True), (0.0, False)])
def test_a_reranker_that_helps_only_beside_its_first_stage_is_taken_with_it(world, monkeypatch, together, better):
    """What dev has of it alone is worse than the first stage: both together decide."""
    tuning = Tuning(load_collection("marked"), Plan(deepcopy(RERANKER)), Path(RERANKED), "cpu")
    count = 20
    base, worse = (Candidate((), 0.0, np.full(count, mean)) for mean in (0.5, 0.4))
    monkeypatch.setattr(tuning, "_fused", lambda _: (0.5, np.full(count, together)))
    assert tuning._improves(base, worse) is better


@pytest.mark.parametrize("deploys", ["both", "model"])
def test_a_tuned_folder_is_a_first_stage_as_it_searches(world, deploys):
    Fusion("z", 0.4, deploys).write(Path(FULL, "retriever.json"))
    collection = load_collection("pairs.csv")
    (expected,) = library.evaluate(collection, {"tuned": FULL}, split="test", measures=["nDCG@10"]).runs
    first = RerankerTask("mlm", first_stage=FULL).ranked(collection, "test")
    for name in ("query_id", "doc_id"):
        assert first.table[name].to_pylist() == expected.first(50).table[name].to_pylist()


@pytest.mark.parametrize(("given", "message"), [
    ({"collection": "pairs.csv"}, "no folder to write to"),
    ({"collection": "marked", "model": "static", "output": "out", "reranker": True}, "static"),
])  # fmt: skip
def test_what_is_refused(world, given, message):
    with pytest.raises(InputError, match=message):
        library.tune(**given)
    assert not Path("out", "tune.json").exists()
