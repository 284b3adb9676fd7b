"""`foils search` and `foils.search` are one: names, paths and objects give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foils as library
from fakes import HashingEncoder
from foils.cli.program import options_of_verb
from foils.cli.verbs import DOORS
from foils.data import Collection, Run, load_collection
from foils.encode import VectorStore
from foils.llm import Client
from foils.runtime.errors import InputError
from foils.runtime.files import write_json
from foils.runtime.keyed import KeyedSetting
from llm_server import Reply, serving

Foils = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("loaded")
ANSWERS = {"q4": "the stern turns", "q5": "thousands of eggs"}


def flags(options: dict[str, Any]) -> list[object]:
    """What the program is given for keyword arguments."""
    settings = options_of_verb(DOORS["search"])
    keys = {key.name for each in settings if isinstance(each, KeyedSetting) for key in each.keys}
    return [
        text
        for name, value in options.items()
        for text in (
            ("--dimension-args", f"{name}={value}") if name in keys else (f"--{name.replace('_', '-')}", value)
        )
    ]


def same(result: Any, ended: Any, tmp_path: Path) -> None:
    """The result says, and would write, what the program did."""
    assert ended.status == 0, ended.err
    write_json(tmp_path / "library.json", result.to_json())
    assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
    assert str(result).split() == ended.out.split()
    assert "<table>" in result._repr_html_()


@pytest.mark.parametrize(
    "options",
    [
        {"dimensions": "rdime"},
        {"dimensions": "none", "top": 3},
        {},
        {"dimensions": "eclipse"},
        {"dimensions": "eclipse", "k_minus": 2, "alpha": 0.5, "share": 0.5},
        {"dimensions": "rdime", "scaled": False},
        {"tune": "train", "measure": "AP", "dimensions": "dime"},
        {"dimensions": "dime", "second_pass": "rerank", "top": 2},
    ],
)
def test_search(options: dict[str, Any], foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, trec = beir_folder(), tmp_path / "run.trec"
    ended = foils(
        "search", folder, "--model", "m", *flags(options), "--run", trec, "--json", tmp_path / "program.json",
        "--encoder-args", f"vectors={tmp_path / 'v'}",
    )  # fmt: skip
    written = trec.read_bytes()
    given: list[tuple[Any, Any, Any]] = [
        (folder, "m", tmp_path / "v"), (load_collection(folder), HashingEncoder(), VectorStore(tmp_path / "v")),
    ]  # fmt: skip
    for collection, model, vectors in given:
        result = library.search(collection, model=model, run=trec, vectors=vectors, **options)
        same(result, ended, tmp_path)
        assert trec.read_bytes() == written
    library.search(folder, model="m", **options).write(tmp_path / "later.trec")
    assert (tmp_path / "later.trec").read_bytes() == written


def test_feedback_and_answers(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, run, answers = beir_folder(), tmp_path / "bm25.trec", tmp_path / "answers.jsonl"
    library.search(folder, dimensions="none").write(run)
    answers.write_text("".join(json.dumps({"query_id": key, "answer": text}) + "\n" for key, text in ANSWERS.items()))
    options = ["--feedback", run, "--answers", answers, "--dimensions", "eclipse", "--run", tmp_path / "r"]
    options += ["--dimension-args", "k_minus=3"]
    ended = foils("search", folder, *options, "--json", tmp_path / "program.json")
    result = library.search(folder, dimensions="eclipse", feedback=run, answers=ANSWERS, k_minus=3, run=tmp_path / "r")
    same(result, ended, tmp_path)
    again = library.search(folder, dimensions="eclipse", feedback=Run.read(run), answers=answers, k_minus=3)
    assert again.run.table.equals(result.run.table)


def test_a_language_model(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, written, kept = beir_folder(), tmp_path / "answers.jsonl", tmp_path / "log"
    with serving(lambda number, asked: Reply("boats and bees")) as server:
        ended = foils(
            "answer", folder, "--llm-model", "m", "--base-url", server.url, "--llm-args", f"price=1,2,log={kept}",
            "-o", written, "--json", tmp_path / "program.json",
        )  # fmt: skip
        assert ended.status == 0, ended.err
        for model in ("m", Client("m", server.url)):
            url = server.url if model == "m" else None
            answers = library.answer(folder, llm_model=model, base_url=url, price=(1.0, 2.0), log=kept)
            answers.write(tmp_path / "library.jsonl")
            assert (tmp_path / "library.jsonl").read_bytes() == written.read_bytes()
            write_json(tmp_path / "library.json", answers.to_json())
            assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
            assert str(answers).split() == ended.out.replace(f"→ {written}", "").split()
        assert len(server.seen) == 2, "kept answers are not asked for again"
    by_file, by_object, by_texts = (
        library.search(folder, dimensions="dime", answers=each) for each in (written, answers, dict(answers.texts))
    )
    assert by_file.to_json() == by_object.to_json() == by_texts.to_json()
    assert by_file.to_json()["answers"] == answers.to_json()["digest"]


def test_options_without_effect_are_refused_by_their_names_in_python(small: Collection) -> None:
    with pytest.raises(InputError, match=r"^beta 2.0: no effect with dimensions dime; leave it out"):
        library.search(small, dimensions="dime", beta=2.0)
    with pytest.raises(InputError, match=r"^feedback Run: no effect on tune, which"):
        library.search(small, tune="train", feedback=Run.from_dict({"q4": {"d1": 1.0}}))
