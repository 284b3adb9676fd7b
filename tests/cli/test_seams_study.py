"""Studies are one in the program and the library: the same files, results, pages and commands."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foils.data import Negatives, load_collection
from foils.evaluation import bm25_run
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.runtime.errors import InputError
from foils.runtime.files import write_json
from foils.studies.doors import report, study
from train_models import cross_encoder, made_up_folder, static_model

OPTIONS: dict[str, Any] = {
    "seeds": 2, "queries": 15, "measures": ["nDCG@10", "RR@10"], "temperature": 2.0, "similarity": "dot",
    "training": {"batch_size": 16, "learning_rate": 0.05, "loss": "mnrl"}, "baselines": False, "seed": 3,
}  # fmt: skip
TYPED = [
    "--seeds",
    "2",
    "--queries",
    "15",
    "--measures",
    "nDCG@10,RR@10",
    "--temperature",
    "2.0",
    "--study-args",
    "similarity=dot",
    "--set",
    "batch_size=16",
    "--set",
    "learning_rate=0.05",
    "--set",
    "loss=mnrl",
    "--no-baselines",
    "--seed",
    "3",
]


@pytest.fixture
def world(beir_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Change to a folder with a collection, three sources and a model; return the sources' names."""
    collection = load_collection(made_up_folder(beir_folder))
    retrievers = {
        "random": RandomRetriever(collection, seed=0), "bm25": BM25Retriever(collection),
        "other": RandomRetriever(collection, seed=1),
    }  # fmt: skip
    for name, retriever in retrievers.items():
        mine_negatives(collection, retriever, split="train", top=4).write(tmp_path / f"{name}.parquet")
    static_model().save_pretrained(str(tmp_path / "static"))
    monkeypatch.chdir(tmp_path)
    return list(retrievers)


def contents(folder: str, *, page: bool = True) -> dict[str, bytes]:
    """The files of a study, without those of single trainings, which say how long they took."""
    names = ("results.json", "cell.json", "scores.json", *(("report.html", "commands.txt") if page else ()))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(folder.encode(), b"FOLDER")
        for path in sorted(Path(folder).rglob("*"))
        if path.name in names or path.parent.name == "sources"
    }


def test_study_and_report(foils: Callable[..., Any], world: list[str], tmp_path: Path) -> None:
    paths = [f"{name}.parquet" for name in world]
    ended = foils(
        "study", "made-up", *paths, "--model", "static", "-o", "program-made", *TYPED, "--encoder-args", "vectors=v"
    )
    assert ended.status == 0, ended.err
    (command,) = Path("program-made/commands.txt").read_text().splitlines()
    assert shlex.split(command) == [
        "foils", "study", "made-up", *paths, "--model", "static", "-o", "program-made", *TYPED
    ]  # fmt: skip
    result = study("made-up", paths, models=["static"], output="door-made", **OPTIONS, vectors="v")
    assert contents("door-made") == contents("program-made")
    assert str(result).split() == ended.out.split()
    assert report("door-made", seed=3).to_json() == result.to_json() != report("door-made").to_json()

    few = foils("report", "program-made", "--reliable")
    assert few.status == 0, few.err
    assert str(report("program-made", reliable=True)).split() == few.out.split()
    again = foils("report", "program-made", "-o", "program.html", "--json", "program.json", "--measure", "RR@10")
    assert again.status == 0, again.err
    for studies in ("program-made", ["program-made"], Path("program-made")):
        analysis = report(studies, measure="RR@10")
        analysis.report("library.html")
        write_json("library.json", analysis.to_json())
        assert Path("library.html").read_bytes() == Path("program.html").read_bytes()
        assert Path("library.json").read_bytes() == Path("program.json").read_bytes()
        assert str(analysis).split() == again.out.split()
    pages = set(Path().glob("*.html"))
    assert foils("report", "program-made", "--measure", "RR@10").out.split() == again.out.split()
    assert set(Path().glob("*.html")) == pages  # without -o no page is written
    assert report(result, measure="RR@10").to_json() == report("door-made", measure="RR@10").to_json()
    assert report([result, "program-made"]).commands == (*result.commands, command)


def test_what_is_studied_with_objects_is_repeated_by_the_command_that_is_recorded(
    foils: Callable[..., Any], world: list[str]
) -> None:
    tables = {name: Negatives.read(f"{name}.parquet") for name in world}
    study("made-up", {name: f"{name}.parquet" for name in world}, models="static", output="paths", **OPTIONS)
    study(load_collection("made-up"), tables, models=["static"], output="objects", **OPTIONS)
    assert contents("objects", page=False) == contents("paths", page=False)
    (command,) = Path("objects/commands.txt").read_text().splitlines()
    times = {path: path.stat().st_mtime_ns for path in Path("objects").rglob("trained/*")}
    assert len(times) == 6
    assert foils(*shlex.split(command)[1:]).status == 0
    assert {path: path.stat().st_mtime_ns for path in Path("objects").rglob("trained/*")} == times
    assert Path("objects/commands.txt").read_text() == f"{command}\n"


def test_a_similarity_makes_another_cell(world: list[str]) -> None:
    paths = [f"{name}.parquet" for name in world]
    quick = {**OPTIONS, "seeds": 1}
    for similarity in (None, "dot"):
        result = study("made-up", paths, models="static", output="study", **{**quick, "similarity": similarity})
    one, other = (cell.predictors["bm25"] for cell in result.cells)
    assert one["eci_sem"] != other["eci_sem"]


def test_rerankers(foils: Callable[..., Any], world: list[str], tmp_path: Path) -> None:
    (tmp_path / "cross").mkdir()
    cross_encoder(tmp_path / "cross")
    first = bm25_run(load_collection("made-up"), "test", depth=15)
    first.write("first.trec")
    paths = [f"{name}.parquet" for name in world]
    named = ["--model", "cross", "-o", "program-made"]
    typed = ["--seeds", "1", "--per-query", "3", "--reranker", "--first-stage", "first.trec",
             "--study-args", "rerank_depth=12", "--score-with", "static",
             "--set", "batch_size=8", "--set", "learning_rate=0.01"]  # fmt: skip
    options: dict[str, Any] = {
        "seeds": 1, "per_query": 3, "reranker": True, "rerank_depth": 12, "score_with": "static",
        "training": {"batch_size": 8, "learning_rate": 0.01}, "models": ["cross"],
    }  # fmt: skip
    ended = foils("study", "made-up", *paths, *named, *typed, "--encoder-args", "vectors=v")
    assert ended.status == 0, ended.err
    (command,) = Path("program-made/commands.txt").read_text().splitlines()
    assert shlex.split(command) == [
        "foils",
        "study",
        "made-up",
        *paths,
        "--model",
        "cross",
        "-o",
        "program-made",
        *typed,
    ]
    result = study("made-up", paths, output="door-made", **options, first_stage="first.trec", vectors="v")
    assert contents("door-made") == contents("program-made")
    assert str(result).split() == ended.out.split()
    study("made-up", paths, output="objects", **options, first_stage=first, vectors="v")
    assert contents("objects", page=False) == contents("program-made", page=False)
    (command,) = Path("objects/commands.txt").read_text().splitlines()
    times = {path: path.stat().st_mtime_ns for path in Path("objects").rglob("trained/*")}
    assert len(times) == 4
    assert foils(*shlex.split(command)[1:]).status == 0
    assert {path: path.stat().st_mtime_ns for path in Path("objects").rglob("trained/*")} == times
    with pytest.raises(InputError, match=r"first_stage first\.trec: no effect without reranker"):
        study("nowhere", paths, models="static", output="study", first_stage="first.trec")


def test_other_collections_to_measure_on(foils: Callable[..., Any], world: list[str]) -> None:
    shutil.copytree("made-up", "other")
    paths = [f"{name}.parquet" for name in world]
    named = ["--model", "static", "-o", "program-made", "--test-on", "made-up", "--test-on", "other"]
    typed = ["--seeds", "1", "--set", "batch_size=16", "--no-baselines"]
    ended = foils("study", "made-up", *paths, *named, *typed, "--encoder-args", "vectors=v")
    assert ended.status == 0, ended.err
    (command,) = Path("program-made/commands.txt").read_text().splitlines()
    assert shlex.split(command) == ["foils", "study", "made-up", *paths, *named, *typed]
    options: dict[str, Any] = {"seeds": 1, "training": {"batch_size": 16}, "baselines": False, "models": "static"}
    tests = ["made-up", load_collection("other")]
    result = study("made-up", paths, output="door-made", test_on=tests, **options, vectors="v")
    assert contents("door-made") == contents("program-made")
    assert str(result).split() == ended.out.split()
    for each in result.outcomes[result.cells[0].name]:
        assert each.tests["made-up"] == each.tests["other"] == pytest.approx(each.mean)
