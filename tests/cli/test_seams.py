"""The program and the library are one: for every verb the same files, tables and results, from names and from objects.

A row of `SEAMS` is a command and calls of the library. Both run in a folder that holds what `world` makes, and what
they write must have the same bytes.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

import foils as library
from fakes import HashingEncoder
from foils.cli.verbs import DOORS
from foils.data import Negatives, Run
from foils.llm import Client
from foils.runtime.files import write_json
from foils.runtime.results import Result
from llm_server import Reply, serving
from train_models import made_up_folder, static_model, table

Calls = list[Callable[[], dict[str, Any]]]


class Reranker:
    """A cross-encoder that likes short documents."""

    def predict(self, pairs: Sequence[tuple[str, str]], **_: object) -> np.ndarray:
        return np.array([-len(document) for _, document in pairs], np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_beir):
    """A folder with a collection, sources of negatives, ratings, a run, labels, answers, pairs and a model."""
    folder = tmp_path_factory.mktemp("seams")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_beir(Path("small"))
        for method in ("random", "bm25"):
            library.mine("small", method, top=4).write(f"{method}.parquet")
        scored = library.score_pairs("small", library.mine("small", top=2), teacher=static_model(), vectors="v")
        scored.write("scored.parquet")
        gap = np.linspace(-50, 700, len(Negatives.read("random.parquet")))
        columns = {"elo": 1500 - gap, "elo_se": np.full(len(gap), 40.0), "gap": gap}
        Negatives.read("random.parquet").with_columns(columns).with_provenance({"stage": "rate"}).write("rated.parquet")
        library.search("small", dimensions="none", top=4, model=HashingEncoder()).write("first.trec")
        row = Negatives.read("random.parquet").kept().slice(0, 1).to_pylist()[0]
        Path("labels.csv").write_text(f"query_id,doc_id,relevant\n{row['query_id']},{row['doc_id']},yes\n")
        lines = [{"query_id": "q4", "answer": "the stern turns"}, {"query_id": "q5", "answer": "thousands of eggs"}]
        Path("answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        static_model().save_pretrained("static")
        static_model(seed=3).save_pretrained("other")
        place = made_up_folder(lambda _, **contents: write_beir(Path("learnable"), **contents))
        table(library.load(place), rated=True).write("learnable.parquet")
    return folder


@pytest.fixture
def world(made, tmp_path, monkeypatch, loaded, small):
    """Change to a copy of that folder, in which a language model's server answers."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foils.encode.opening.load_cross_encoder", lambda name, **_: Reranker())
    monkeypatch.setattr("foils.data.read._pydocs", lambda packages=None: replace(small, name="pydocs"))
    reply = Reply(json.dumps({"negatives": ["A boat in the wind", "Of bread and wind", "Of bees"]}))
    with serving(lambda *_: reply) as server:
        yield server


ENCODER: dict[str, Any] = {"encoder": "m", "vectors": "v"}


def objects(**more: Any) -> dict[str, Any]:
    return {"encoder": HashingEncoder(), "vectors": library.VectorStore("v"), **more}


def small_() -> Any:
    return library.load("small")


def tables() -> dict[str, Negatives]:
    return {name: Negatives.read(f"{name}.parquet") for name in ("random", "bm25")}


V = "--encoder m --encoder-args vectors=v"
JSON = "--json out.json"
OUT = f"-o out.parquet {JSON}"
BOTH = "random.parquet bm25.parquet"
SOURCES = BOTH.split()
SEAMS: dict[str, tuple[str, Calls]] = {
    "describe": ("describe small --json out.json", [lambda: {"collection": "small"}, lambda: {"collection": small_()}]),
    "mine": ("mine small -o out.parquet --json out.json --export triplets=out.jsonl", [
        lambda: {"collection": "small"}, lambda: {"collection": Path("small")}, lambda: {"collection": small_()},
    ]),
    "mine random": ("mine small --with random --seed 3 -o out.parquet", [
        lambda: {"collection": "small", "method": "random", "seed": 3},
    ]),
    "mine by rules": (
        "mine small --top 2 --relative-margin 0.3 --max-score 3 -o out.parquet",
        [lambda: {"collection": "small", "top": 2, "relative_margin": 0.3, "max_score": 3.0}],
    ),
    "mine a window": ("mine small --ranks 1-6 --draw simans:5,-1 -o out.parquet", [
        lambda: {"collection": "small", "ranks": (1, 6), "draw": "simans:5,-1"},
        lambda: {"collection": "small", "ranks": "1-6", "draw": "simans:5,-1"},
    ]),
    "mine dense": (f"mine small --with dense --top 3 {V} --collection-args keep_identical_ids=true -o out.parquet", [
        lambda: {"collection": "small", "method": "dense", "top": 3, "keep_identical_ids": True, **ENCODER},
        lambda: objects(collection=library.load("small", keep_identical_ids=True), method="dense", top=3),
    ]),
    "generate": (
        "generate small --base-url URL --llm-model m --top 3 --limit 2 --llm-args log=log,price=1000000,0 "
        "-o out.parquet --json out.json",
        [
            lambda: {"collection": "small", "llm_model": "m", "base_url": "URL", "log": "log", "top": 3, "limit": 2,
                     "price": (1e6, 0)},
            lambda: {"collection": small_(), "llm_model": Client("m", "URL"), "log": "log", "top": 3, "limit": 2,
                     "price": (1e6, 0)},
        ],
    ),
    "fuse": (f"fuse small {BOTH} --method rrf --rrf-k 9 -o out.parquet --json out.json", [
        lambda: {"collection": "small", "sources": SOURCES, "method": "rrf", "rrf_k": 9},
        lambda: {"collection": small_(), "sources": tables(), "method": "rrf", "rrf_k": 9},
    ]),
    "filter": ("filter small bm25.parquet --max-score 1 -o out.parquet --json out.json", [
        lambda: {"collection": "small", "source": "bm25.parquet", "max_score": 1.0},
        lambda: {"collection": small_(), "source": tables()["bm25"], "max_score": 1.0},
    ]),
    "score-pairs": ("score-pairs learnable learnable.parquet --teacher bi-encoder:static --teacher bi-encoder:other "
                    "--encoder-args vectors=v -o out.parquet --json out.json", [
        lambda: {"collection": "learnable", "source": "learnable.parquet", "vectors": "v",
                 "teacher": ["bi-encoder:static", "bi-encoder:other"]},
    ]),
    "score": (f"score small {BOTH} {V} --json out.json --report out.html", [
        lambda: {"collection": "small", "sources": SOURCES, **ENCODER},
        lambda: objects(collection=small_(), sources=tables()),
    ]),
    "score with labels": (f"score small {BOTH} {V} --labels labels.csv --json out.json", [
        lambda: {"collection": "small", "sources": SOURCES, "labels": "labels.csv", **ENCODER},
    ]),
    "rate": (f"rate small random.parquet {V} --judgements kept --degree 2 {OUT}", [
        lambda: {"collection": "small", "source": "random.parquet", "judgements": "kept", "degree": 2, **ENCODER},
        lambda: objects(collection=small_(), source=Negatives.read("random.parquet"), judgements="more", degree=2),
    ]),
    "label": (f"label small {BOTH} --with bi-encoder --draw uncertain -n 5 --checks 3 {V} -o out.tsv {JSON}", [
        lambda: {"collection": "small", "sources": SOURCES, "ask": "bi-encoder", "n": 5, "checks": 3,
                 "draw": "uncertain", "output": "out.tsv", **ENCODER},
        lambda: objects(collection=small_(), sources=tables(), ask="bi-encoder", draw="uncertain", n=5, checks=3,
                        output="out.tsv"),
    ]),
    "select": ("select rated.parquet --by simans --set per_query=2 --set target=200 --seed 3 --collection small "
               f"{OUT} --export triplets=out.jsonl", [
        lambda: {"rated": "rated.parquet", "by": "simans", "settings": {"per_query": 2, "target": 200}, "seed": 3,
                 "collection": "small"},
        lambda: {"rated": Path("rated.parquet"), "by": "simans", "settings": {"per_query": 2, "target": 200},
                 "seed": 3, "collection": small_()},
    ]),
    "select by benefit": (f"select {BOTH} --by benefit --set top=2 --collection small --seed 3 {V} -o out.parquet", [
        lambda: {"rated": SOURCES, "by": "benefit", "settings": {"top": 2}, "collection": "small", "seed": 3,
                 **ENCODER},
    ]),
    "compose": (f"compose small {BOTH} --top 2 --lambda 0.5 {V} -o out.parquet --json out.json", [
        lambda: {"collection": "small", "sources": SOURCES, "top": 2, "regularization": 0.5, **ENCODER},
        lambda: objects(collection=small_(), sources=tables(), top=2, regularization=0.5),
    ]),
    **{
        f"export {form}": (f"export small scored.parquet --form {form}{scores} -o out --json out.json", [
            lambda form=form, given=given: {"collection": "small", "source": "scored.parquet", "form": form, **given},
            lambda form=form, given=given: {"collection": small_(), "form": form, **given,
                                            "source": Negatives.read("scored.parquet").table.to_pandas()},
        ])
        for form, scores, given in (
            ("tuples", " --scores teacher", {"scores": "teacher"}), ("tevatron", "", {}),
            ("flagembedding", " --scores teacher", {"scores": "teacher"}),
        )
    },
    "batch": (f"batch learnable learnable.parquet --with hobit --batch-size 4 --set seeds=2 --per-query 2 --seed 3 {V} "
              "-o out.parquet --json out.json", [
        lambda: {"collection": "learnable", "method": "hobit", "source": "learnable.parquet", "batch_size": 4,
                 "settings": {"seeds": 2}, "per_query": 2, "seed": 3, **ENCODER},
        lambda: objects(collection=library.load("learnable"), method="hobit", batch_size=4, settings={"seeds": 2},
                        source=Negatives.read("learnable.parquet"), per_query=2, seed=3),
    ]),
    "evaluate BM25": ("evaluate small --model bm25 --model lexical=bm25 --reranker models/short --top 2 --measures "
                      "nDCG@10 --write-runs out --json out.json", [
        lambda: {"collection": "small", "systems": ["bm25", "lexical=bm25"], "reranker": "models/short", "top": 2,
                 "measures": "nDCG@10"},
    ]),
    "evaluate": (
        "evaluate small --model a=one --run first.trec --reranker models/short --measures nDCG@10,R@2 --top 5 "
        "--rerank-depth 3 --encoder-args vectors=v --write-runs out --json out.json",
        [
            lambda: {"collection": "small", "systems": ["a=one"], "run": ["first.trec"], "reranker": ["models/short"],
                     "measures": "nDCG@10,R@2", "top": 5, "rerank_depth": 3, "vectors": "v"},
            lambda: {"collection": small_(), "top": 5, "rerank_depth": 3, "measures": ["nDCG@10", "R@2"],
                     "vectors": "v",
                     "systems": {"a": HashingEncoder(), "first": Run.read("first.trec"), "first + short": Reranker()}},
        ],
    ),
    **{
        f"search {name}": (f"search small --model m --encoder-args vectors=v {typed} --run out.trec --json out.json", [
            lambda given=given: {"collection": "small", "model": "m", "vectors": "v", "run": "out.trec", **given},
            lambda given=given: {"collection": small_(), "model": HashingEncoder(), "vectors": library.VectorStore("v"),
                                 "run": Path("out.trec"), **given},
        ])
        for name, typed, given in (
            ("by default", "", {}), ("plainly", "--dimensions none --top 3", {"dimensions": "none", "top": 3}),
            ("rdime", "--dimensions rdime", {"dimensions": "rdime"}),
            ("eclipse", "--dimensions eclipse --feedback first.trec --answers answers.jsonl",
             {"dimensions": "eclipse", "feedback": "first.trec", "answers": "answers.jsonl"}),
            ("tuned", "--tune train --measure AP", {"tune": "train", "measure": "AP"}),
        )
    },
    "train": (
        "train learnable learnable.parquet --model static --loss weighted --set temperature=0.1 --batches hobit "
        f"--set-batches seeds=2 --per-query 2 --epochs 2 --batch-size 8 --learning-rate 0.05 --seed 3 -o out {JSON}",
        [
            lambda: {"collection": "learnable", "source": "learnable.parquet", "model": "static", "loss": "weighted",
                     "loss_settings": {"temperature": 0.1}, "batches": "hobit", "batch_settings": {"seeds": 2},
                     "per_query": 2, "epochs": 2, "batch_size": 8, "learning_rate": 0.05, "seed": 3, "output": "out"},
        ],
    ),
    "merge": ("merge static other --alpha 0.5 -o out --json out.json", [
        lambda: {"base": "static", "tuned": "other", "alpha": 0.5, "output": "out"},
    ]),
    "cache": ("cache size --kind llm --json out.json", [lambda: {"action": "size", "kind": ("llm",)}]),
}  # fmt: skip
ELSEWHERE = {"demo", "push", "relabel", "report", "study", "tune"}  # tests of their own compare program and library
OF_OBJECTS = {"rate", "generate"}  # what they record says where something is kept, or what was asked anew


def written() -> dict[str, bytes]:
    """What was written, less the seconds that it took."""
    clock = re.compile(rb'"seconds": [\d.e-]+|"texts_per_second": [\d.e-]+|[\d.,]+ s\b')
    paths = [path for place in Path().glob("out*") for path in (place, *place.rglob("*"))]
    return {
        str(path): path.read_bytes() if path.suffix == ".safetensors" else clock.sub(b"", path.read_bytes())
        for path in paths
        if path.is_file() and not {"work", "trained"} & set(path.parts)
    }


def words(text: str) -> list[str]:
    """What was shown, less the seconds that it took and where it was written."""
    return re.sub(r" → \S+|[\d.,]+ s\b", "", text).split()


def clear() -> None:
    for path in Path().glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write(result: Result, typed: list[str]) -> None:
    """Write of a result what the command asks for."""
    given = dict(pairwise(typed))
    if DOORS[typed[0]].writes:
        result.write(given["-o"])  # type: ignore[attr-defined]
    if "--json" in given:
        write_json(given["--json"], result.to_json())
    if "--report" in given:
        result.report(given["--report"])  # type: ignore[attr-defined]
    if "--export" in given:
        form, _, path = given["--export"].partition("=")
        result.export(path, form=form)  # type: ignore[attr-defined]
    if "--write-runs" in given:
        result.write_runs(given["--write-runs"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SEAMS)
def test_program_and_library_write_the_same(foils, world, name):
    command, calls = SEAMS[name]
    typed = shlex.split(command.replace("URL", world.url))
    ended = foils(*typed)
    assert ended.status == 0, ended.err
    program = written()
    shown = words(ended.out)
    assert program
    assert shown
    for number, call in enumerate(calls):
        clear()
        given = call()
        for key, value in given.items():
            if isinstance(value, str) and value == "URL":
                given[key] = world.url
        if isinstance(given.get("llm_model"), Client):
            given["llm_model"] = Client("m", world.url)
        result = getattr(library, typed[0].replace("-", "_"))(**given)
        write(result, typed)
        if number == 0 or typed[0] not in OF_OBJECTS:
            assert written() == program
            assert words(str(result)) == shown
        else:
            assert written().keys() == program.keys()
    assert "<table>" in result._repr_html_()


def test_every_verb_has_a_seam():
    assert {command.split()[0] for command, _ in SEAMS.values()} | ELSEWHERE == {*DOORS}
