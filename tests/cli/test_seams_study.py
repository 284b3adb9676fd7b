"""Studies are one in the program and the library: the same files, results and pages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from foils.data import Negatives, load_collection
from foils.evaluation import bm25_run
from foils.experiments.doors import report, study
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.runtime.files import write_json
from train_models import cross_encoder, made_up_folder, static_model


@pytest.fixture
def world(beir_folder, tmp_path, monkeypatch):
    """Change to a folder with a collection and a copy, three sources, a run and models; return the sources."""
    place = made_up_folder(beir_folder)
    collection = load_collection(place)
    retrievers = {
        "random": RandomRetriever(collection, seed=0), "bm25": BM25Retriever(collection),
        "other": RandomRetriever(collection, seed=1),
    }  # fmt: skip
    for name, retriever in retrievers.items():
        mine_negatives(collection, retriever, split="train", top=4).write(tmp_path / f"{name}.parquet")
    bm25_run(collection, "test", depth=15).write(tmp_path / "first.trec")
    shutil.copytree(place, tmp_path / "copy")
    static_model().save_pretrained(str(tmp_path / "static"))
    (tmp_path / "cross").mkdir()
    cross_encoder(tmp_path / "cross")
    monkeypatch.chdir(tmp_path)
    return [f"{name}.parquet" for name in retrievers]


def contents(folder: str) -> dict[str, bytes]:
    """The files of a study, without those of single trainings, which say how long they took."""
    names = ("results.json", "cell.json", "scores.json", "report.html")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(folder.encode(), b"FOLDER")
        for path in sorted(Path(folder).rglob("*"))
        if path.name in names or path.parent.name == "sources"
    }


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "encoders": (
        {"models": ["static"], "seeds": 2, "queries": 15, "measures": ["nDCG@10", "RR@10"],
         "training": {"batch_size": 16, "learning_rate": 0.05, "temperature": 2.0}},
        "--model static --seeds 2 --queries 15 --measures nDCG@10,RR@10 --set batch_size=16 --set learning_rate=0.05 "
        "--set temperature=2.0",
    ),
    "rerankers": (
        {"models": ["cross"], "seeds": 1, "per_query": 3, "reranker": True, "first_stage": "first.trec",
         "score_with": "static", "training": {"batch_size": 8}},
        "--model cross --seeds 1 --per-query 3 --reranker --first-stage first.trec --score-with static "
        "--set batch_size=8",
    ),
    "other collections": (
        {"models": "static", "seeds": 1, "training": {"batch_size": 16}, "test_on": ["made-up", "copy"]},
        "--model static --seeds 1 --set batch_size=16 --test-on made-up --test-on copy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_study(foils, world, name):
    options, typed = OPTIONS[name]
    ended = foils("study", "made-up", *world, *typed.split(), "-o", "program-made")
    assert ended.status == 0, ended.err
    result = study("made-up", world, output="door-made", **options)
    assert contents("door-made") == contents("program-made")
    assert str(result).split() == ended.out.split()
    tables = {path.partition(".")[0]: Negatives.read(path) for path in world}
    study(load_collection("made-up"), tables, output="door-made", **options)  # the same with objects: nothing is done
    assert contents("door-made") == contents("program-made")


def test_report(foils, world):
    result = study("made-up", world, output="made", **{**OPTIONS["encoders"][0], "seeds": 1})
    assert report("made").to_json() == result.to_json() != report("made", seed=3).to_json()
    ended = foils("report", "made", "-o", "program.html", "--json", "program.json", "--measure", "RR@10")
    assert ended.status == 0, ended.err
    for studies in ("made", ["made"], Path("made"), result):
        analysis = report(studies, measure="RR@10")
        analysis.report("library.html")
        write_json("library.json", analysis.to_json())
        assert Path("library.html").read_bytes() == Path("program.html").read_bytes()
        assert Path("library.json").read_bytes() == Path("program.json").read_bytes()
        assert str(analysis).split() == ended.out.split()
    pages = set(Path().glob("*.html"))
    assert foils("report", "made").status == 0
    assert set(Path().glob("*.html")) == pages  # without -o no page is written
    assert len(report([result, "made"]).cells) == 2
    assert foils("report", "copy").status == 2
