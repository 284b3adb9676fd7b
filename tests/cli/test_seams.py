"""The program and the library are one: for every verb the same files, tables and results, from names and from objects.

Each command of `SEAMS` runs in a folder that holds what `world` makes; then the library gets what the command gives, by
name, and a second time objects in the place of names. What they write must have the same bytes.
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
from foils.cli.app import DOORS, door_of
from foils.data import Negatives, Run
from foils.data.read import OPENERS
from foils.runtime.files import write_json
from foils.runtime.results import Result
from llm_server import Reply, serving
from screens import assert_whole
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
        learnable = library.load(place)
        for name, seed in (("learnable", 0), ("again", 5)):
            table(learnable, rated=True, seed=seed).write(f"{name}.parquet")
        how = {"models": "static", "seeds": 1, "queries": 9, "training": {"batch_size": 8}}
        library.study(learnable, ["learnable.parquet", "again.parquet"], output="study", **how)
    return folder


@pytest.fixture
def world(made, tmp_path, monkeypatch, loaded, small):
    """Change to a copy of that folder, in which a language model's server answers."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foils.encode.vectors.load_cross_encoder", lambda name, **_: Reranker())
    monkeypatch.setitem(OPENERS, "pydocs", lambda _: replace(small, name="pydocs"))
    reply = Reply(json.dumps({"negatives": ["A boat in the wind", "Of bread and wind", "Of bees"]}))
    with serving(lambda *_: reply) as server:
        yield server


BOTH, V = "random.parquet bm25.parquet", "--encoder m"
OUT, SEARCH = "-o out.parquet --json out.json", "search small --model m"
SEAMS = f"""
describe small --json out.json
mine small {OUT}
mine small --top 2 --relative-margin 0.3 --max-score 3 -o out.parquet
mine small --ranks 1-6 --draw uniform -o out.parquet
generate small --base-url URL --llm-model m --top 3 --limit 2 --price 1000000,0 {OUT}
fuse small {BOTH} --method rrf --rrf-k 9 {OUT}
filter small bm25.parquet --max-score 1 {OUT}
score-pairs learnable learnable.parquet --teacher bi-encoder:static {OUT}
score small {BOTH} {V} --json out.json --report out.html
rate small random.parquet {V} --degree 2 {OUT}
label small {BOTH} --with bi-encoder -n 5 --checks 3 {V} -o out.tsv --json out.json
select rated.parquet --by simans --set per_query=2 --set target=200 --seed 3 {OUT}
select {BOTH} --by benefit --set top=2 --collection small --seed 3 {V} -o out.parquet
export small scored.parquet --form flagembedding --scores teacher -o out --json out.json
batch learnable learnable.parquet --with hobit --batch-size 4 --set seeds=2 --per-query 2 --seed 3 {V} {OUT}
evaluate small --model bm25 --model lexical=bm25 --reranker models/short --top 2 --measures nDCG@10 \
    --write-runs out --json out.json
evaluate small --model a=one --run first.trec --reranker models/short --measures nDCG@10,R@2 --top 5 \
    --rerank-depth 3 --write-runs out --json out.json
{SEARCH} --dimensions eclipse --answers answers.jsonl --run out.trec --json out.json
{SEARCH} --dimensions dime --tune train --measure AP --run out.trec --json out.json
train learnable learnable.parquet --model static --loss weighted --set temperature=0.1 --batches hobit \
    --set-batches seeds=2 --per-query 2 --epochs 2 --batch-size 8 --learning-rate 0.05 --seed 3 -o out --json out.json
study learnable learnable.parquet again.parquet --model static --seeds 1 --queries 9 --test-on learnable \
    --measures nDCG@10,RR@10 --set batch_size=8 --set learning_rate=0.05 -o out --json out.json
report study --measure RR@10 --seed 3 -o out.html --json out.json
merge static other --alpha 0.5 -o out --json out.json
cache size --json out.json
""".strip().splitlines()
ELSEWHERE = {"demo", "relabel", "tune"}  # tests of their own compare program and library
OF_NAMES = {"cache", "merge", "report", "score-pairs", "train"}  # nothing of theirs is given as an object here
OF_OBJECTS = {"rate", "generate"}  # what they record says where something is kept, or what was asked anew


def read(text: str) -> Any:
    try:
        return json.loads(text)  # a number, or a switch
    except ValueError:
        return text


def as_given(words: Sequence[str]) -> dict[str, Any]:
    """What a command gives to the verb's door, by name, as it is spelt; what it writes of the result is left out."""
    door, given, rest, arguments = door_of(words[0]), {}, iter(words[1:]), []
    settings = door.settings
    names = {flag: name for name, each in settings.items() for flag in (each.flag, each.short)}
    for word in rest:
        if not word.startswith("-"):
            arguments.append(word)
        elif word.startswith("--set"):
            key, _, value = next(rest).partition("=")
            given.setdefault(names[word], {})[key] = read(value)
        elif word in names:
            value = read(next(rest))
            given[names[word]] = [given[names[word]], value] if names[word] in given else value
        else:
            next(rest)
    places = [name for name, each in settings.items() if each.positional]
    several = arguments[len(places) - 1 :] if len(arguments) > len(places) else arguments[len(places) - 1]
    given |= dict(zip(places, [*arguments[: len(places) - 1], several], strict=True))
    return given | ({"measures": given["measures"].split(",")} if "measures" in given else {})


def as_objects(verb: str, given: dict[str, Any]) -> dict[str, Any]:
    """The same with objects in the place of the names of files, models and servers."""
    made = {
        "collection": library.load,
        "sources": lambda names: {name.removesuffix(".parquet"): Negatives.read(name) for name in names},
        "source": Negatives.read,
        "encoder": lambda _: HashingEncoder(),
    }
    given = {name: made[name](value) if name in made else value for name, value in given.items()}
    if verb == "search":
        given |= {"model": HashingEncoder(), "run": Path(given["run"])}
    if verb == "evaluate" and "run" in given:
        systems = {"a": HashingEncoder(), "first": Run.read(given.pop("run")), "first + short": Reranker()}
        given |= {"systems": systems, "reranker": None}
    return given


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
    """What was shown, less the seconds that it took, the width that they have, and where it was written."""
    return re.sub(r" → \S+|[\d.,]+ s\b|─+", "", text).split()


def clear() -> None:
    for path in Path().glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write(result: Result, typed: list[str]) -> None:
    """Write of a result what the command asks for."""
    given = dict(pairwise(typed))
    if "output" in {each.name for each in DOORS[typed[0]].outputs}:
        result.write(given["-o"])  # type: ignore[attr-defined]
    if "--json" in given:
        write_json(given["--json"], result.to_json())
    if page := given.get("-o" if typed[0] == "report" else "--report"):
        result.report(page)  # type: ignore[attr-defined]
    if "--write-runs" in given:
        result.write_runs(given["--write-runs"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", SEAMS)
def test_program_and_library_write_the_same(foils, world, command):
    typed = shlex.split(command.replace("URL", world.url))
    verb = typed[0]
    ended = foils(*typed)
    assert ended.status == 0, ended.err
    program, shown = written(), words(ended.out)
    assert program
    assert shown
    for objects in (False, True) if verb not in OF_NAMES else (False,):
        clear()
        given = as_given(typed)
        result = getattr(library, verb.replace("-", "_"))(**(as_objects(verb, given) if objects else given))
        write(result, typed)
        if objects and verb in OF_OBJECTS:
            assert written().keys() == program.keys()
        else:
            assert written() == program
            assert words(str(result)) == shown
    assert "<table>" in result._repr_html_()
    assert len(repr(result).splitlines()) == 1
    assert len(result.to_pandas())
    for width in (80, 60):
        assert_whole(result.tables(), width)


def test_every_verb_has_a_seam():
    assert {command.split()[0] for command in SEAMS} | ELSEWHERE == {*DOORS}
