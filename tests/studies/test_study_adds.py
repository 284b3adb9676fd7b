"""Every call adds to a study: what was scored and trained stays, and what cannot be done is refused before training."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foils.cli.app import run
from foils.encode import VectorStore
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.runtime.errors import FoilsError
from foils.studies import StudySettings, analyse, read_cells, run_study
from train_models import made_up, made_up_folder, static_model, table

QUICK = {"batch_size": 16, "learning_rate": 0.05}
SETTINGS = StudySettings(seeds=1, per_query=4, training=QUICK, baselines=False)


@pytest.fixture(scope="module")
def sources():
    collection = made_up()
    return {
        "random": mine_negatives(collection, RandomRetriever(collection, seed=0), split="train", top=4),
        "bm25": mine_negatives(collection, BM25Retriever(collection), split="train", top=4),
        "made": table(collection),
        "other": table(collection, seed=5),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "static"
    static_model().save_pretrained(str(folder))
    return str(folder)


@pytest.fixture
def study(sources, model, tmp_path):
    """Call a study in one folder with some of the sources; the folder is `study.folder`."""
    store = VectorStore(tmp_path / "vectors")

    def call(*names, settings=SETTINGS, folder="study", renamed=None):
        chosen = renamed or {name: sources[name] for name in names}
        return run_study(tmp_path / folder, made_up(), chosen, [model], store, settings)

    call.folder = tmp_path / "study"
    return call


def trainings(folder):
    return {path.name: path.read_text() for path in folder.glob("cells/*/trained/*.json")}


def predictors(folder):
    (cell,) = read_cells(folder)
    return cell.predictors


def test_a_later_call_with_other_sources_adds_and_keeps_what_was_there(study):
    study("random", "bm25")
    before = trainings(study.folder)
    study("made", "other")
    (cell,) = read_cells(study.folder)
    assert cell.sources == ["random", "bm25", "made", "other"]
    assert before.items() <= trainings(study.folder).items()
    assert {each.source for each in analyse([cell]).outcomes[cell.name]} == set(cell.sources)
    study("random", "bm25", "made", "other", folder="whole")
    whole = predictors(study.folder.parent / "whole")
    for name, values in cell.predictors.items():  # one scale for all: as if they had come together
        assert values == pytest.approx(whole[name], rel=1e-6, abs=1e-9)


def test_options_of_an_earlier_call_hold_for_a_later_one(study, model):
    study("random", "bm25", settings=replace(SETTINGS, probe=model, probe_rows=40))
    before = predictors(study.folder)
    study("made")
    after = predictors(study.folder)
    assert {name: after[name]["probe"] for name in before} == {name: before[name]["probe"] for name in before}
    assert 0 <= after["made"]["probe"] <= 1


def test_one_more_source_is_enough_where_others_are_there(study):
    with pytest.raises(FoilsError, match="two at least"):
        study("random")
    study("random", "bm25")
    study("made")
    assert set(predictors(study.folder)) == {"random", "bm25", "made"}


def test_a_name_does_not_take_the_place_of_other_rows(study, sources):
    study("random", "bm25")
    before = trainings(study.folder)
    with pytest.raises(FoilsError, match=r"bm25.*other rows.*NAME=FILE"):
        study(renamed={"bm25": sources["other"], "made": sources["made"]})
    assert trainings(study.folder) == before
    assert set(predictors(study.folder)) == {"random", "bm25"}


def test_sources_that_were_scored_without_their_rows_keep_their_predictors(study):
    study("random", "bm25")
    before = predictors(study.folder)
    for path in study.folder.glob("cells/*/sources/*"):
        path.unlink()
    study("made")
    after = predictors(study.folder)
    assert set(after) == {"random", "bm25", "made"}
    assert after["bm25"] == before["bm25"]


BAD = [
    ({"measures": ("nDCG@10", "Nonsense@3")}, "Nonsense"),
    ({"measures": ("nDCG@1000",)}, "nDCG@1000.*100"),
    ({"batches": "nonsense"}, "nonsense"),
    ({"training": {**QUICK, "loss": "nonsense"}}, "nonsense"),
    ({"training": {**QUICK, "loss": "hybrid"}}, "ratings"),
    ({"training": {**QUICK, "epochs": "two"}}, "epochs"),
    ({"training": {**QUICK, "batch_size": 2.5}}, "batch_size"),
    ({"training": {**QUICK, "patience": 3}}, "patience"),
    ({"training": {**QUICK, "precision": "float16"}}, "float16"),
    ({"probe": "/nowhere/at/all"}, "/nowhere/at/all"),
    ({"score_with": "/nowhere/at/all"}, "/nowhere/at/all"),
    ({"test_split": "train"}, "train"),
    ({"split": "nonsense"}, "nonsense"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_done_is_refused_before_anything_is_trained(study, change, message):
    with pytest.raises(FoilsError, match=message):
        study("random", "bm25", settings=StudySettings(**{"seeds": 1, "training": QUICK, **change}))
    assert not study.folder.exists()


def test_every_model_is_looked_at_before_the_first_is_trained(sources, model, tmp_path):
    two = {name: sources[name] for name in ("random", "bm25")}
    with pytest.raises(FoilsError, match="/nowhere/at/all"):
        run_study(tmp_path / "s", made_up(), two, [model, "/nowhere/at/all"], VectorStore(tmp_path / "v"), SETTINGS)
    assert not (tmp_path / "s").exists()


def test_a_source_that_a_seed_cannot_train_on_is_refused(study, sources):
    whole = sources["made"]
    few = whole.reject(np.asarray(whole.table["query_id"].to_pylist()) != "q0", "not this one")
    with pytest.raises(FoilsError, match=r"few.*seed"):
        study(renamed={"few": few, "bm25": sources["bm25"]}, settings=replace(SETTINGS, queries=2, seeds=3))
    assert not study.folder.exists()


def test_two_sources_are_compared_and_no_order_is_made_of_them(sources, model, beir_folder, tmp_path, capsys):
    folder = made_up_folder(beir_folder)
    paths = [str(tmp_path / f"{name}.parquet") for name in ("random", "bm25")]
    for name, path in zip(("random", "bm25"), paths, strict=True):
        sources[name].write(path)
    how = [
        "--model",
        model,
        "-o",
        str(tmp_path / "s"),
        "--encoder-args",
        f"vectors={tmp_path / 'v'}",
        "--set",
        "learning_rate=0.05",
    ]
    assert run(["study", str(folder), *paths, *how, "--set", "batch_size=16", "--seeds", "2"]) == 0
    shown = "".join(capsys.readouterr())
    results = json.loads((tmp_path / "s" / "results.json").read_text())
    (cell,) = results["cells"]
    assert results["leaderboard"] == []
    best, second = [each["source"] for each in cell["outcomes"] if each["source"] in ("random", "bm25")]
    lead = cell["lead"]
    assert (lead["source"], lead["against"]) == (best, second)
    assert lead["low"] <= lead["mean"] <= lead["high"]
    means = {each["source"]: each["mean"] for each in cell["outcomes"]}
    assert lead["mean"] == pytest.approx(means[best] - means[second])
    for text in (shown, (tmp_path / "s" / "report.html").read_text()):
        assert "two sources" in text.replace("\n", " ")
        assert "τ" in text  # said why there is none
    assert run(["report", str(tmp_path / "s"), "-o", str(tmp_path / "page.html")]) == 0
    commands = (tmp_path / "s" / "commands.txt").read_text()
    assert run(["study", str(folder), *paths, *how, "--measures", "nonsense"]) == 2
    assert (tmp_path / "s" / "commands.txt").read_text() == commands  # what was refused made nothing
