"""`foils evaluate` and `foils.evaluate` are one: names, paths and objects give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foils as library
from fakes import HashingEncoder
from foils.data import Run, load_collection
from foils.encode import VectorStore
from foils.evaluation import bm25_run, rerank_run
from foils.evaluation.systems import named_systems
from foils.runtime.errors import InputError
from foils.runtime.files import write_json

Foils = Callable[..., Any]


class Reranker:
    """A cross-encoder that likes short documents."""

    def predict(self, pairs: Sequence[tuple[str, str]], **_: object) -> np.ndarray:
        return np.array([-len(document) for _, document in pairs], np.float32)


@pytest.fixture(autouse=True)
def loaded_by_name(loaded: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foils.encode.opening.load_cross_encoder", lambda name, **_: Reranker())


def test_evaluate(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, trec = beir_folder(), tmp_path / "first.trec"
    assert foils("search", folder, "--dimensions", "none", "--top", 4, "--run", trec).status == 0
    ended = foils(
        "evaluate", folder, "--model", "a=one", "--model", "two", "--run", trec, "--reranker", "models/short",
        "--measures", "nDCG@10,R@2", "--top", 5, "--rerank-depth", 3, "--write-runs", tmp_path / "program", "--json",
        tmp_path / "program.json", "--encoder-args", f"vectors={tmp_path / 'v'}",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    run = Run.read(trec)
    given: list[dict[str, Any]] = [
        {"systems": ["a=one", "two"], "run": [trec], "reranker": ["models/short"]},
        {"systems": {"a": "one", "hashing": HashingEncoder(), "first": trec, "first + short": Reranker()}},
        {
            "systems": {"a": HashingEncoder(), "hashing": "two", "first": Run(run.table, "first")},
            "reranker": {"first + short": Reranker()},
        },
    ]
    for number, systems in enumerate(given):
        collection = load_collection(folder) if number else str(folder)
        result = library.evaluate(
            collection, **systems, measures=["nDCG@10", "R@2"] if number else "nDCG@10,R@2", top=5, rerank_depth=3,
            vectors=VectorStore(tmp_path / "v") if number else tmp_path / "v",
        )  # fmt: skip
        write_json(tmp_path / "library.json", result.to_json())
        assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
        assert str(result).split() == ended.out.split()
        result.write_runs(tmp_path / f"library{number}")
        for written in (tmp_path / "program").iterdir():
            assert (tmp_path / f"library{number}" / written.name).read_bytes() == written.read_bytes()
    assert [system.name for system in result.systems] == ["a", "hashing", "first", "first + short"]
    assert "<table>" in result._repr_html_()


def test_one_system_need_not_stand_in_a_list(beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    for encoder in (HashingEncoder(), "one", Path("one")):
        result = library.evaluate(beir_folder(str(type(encoder))), encoder, vectors=tmp_path)
        assert [system.name for system in result.systems] == ["hashing"]


def test_what_a_system_is(tmp_path: Path) -> None:
    (tmp_path / "a=b.trec").write_text("")
    every = named_systems([HashingEncoder(), Reranker(), tmp_path / "a=b.trec", str(tmp_path / "a=b.trec"), "x=model"])
    assert [each.kind for each in every] == ["encoder", "reranker", "run", "run", "encoder"]
    assert [each.name for each in every] == ["", "", "", "", "x"]


def test_options_without_effect_are_refused_by_their_names_in_python(small: Any) -> None:
    run = Run.from_dict({"q4": {"d1": 1.0}})
    with pytest.raises(InputError, match=r"^top 5, max_length 64: no effect without an encoder"):
        library.evaluate(small, run, top=5, max_length=64)
    with pytest.raises(InputError, match=r"nothing to evaluate; give an encoder \(systems MODEL\) or a run"):
        library.evaluate(small)


def test_bm25_is_a_system_whose_run_can_be_written_and_reranked(
    foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = beir_folder()
    ended = foils(
        "evaluate", folder, "--model", "bm25", "--model", "lexical=bm25", "--reranker", "models/short", "--top", 2,
        "--measures", "nDCG@10", "--write-runs", tmp_path / "runs",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "bm25 + short.trec", "bm25.trec", "lexical.trec"
    ]  # fmt: skip
    expected = bm25_run(load_collection(folder), "test", depth=2)
    assert Run.read(tmp_path / "runs" / "bm25.trec").table == expected.table
    result = library.evaluate(folder, ["bm25"], measures="nDCG@10", top=2)
    assert [run.table for run in result.runs] == [expected.table]
    reranked = rerank_run(expected, load_collection(folder), Reranker().predict)
    assert Run.read(tmp_path / "runs" / "bm25 + short.trec").table == reranked.table
