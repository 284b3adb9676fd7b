"""The commands of the pages for people who come from other tools, with their files and small models."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from foils.cli.app import run
from tiny_models import tiny_cross_encoder, tiny_encoder

DOCS = Path(__file__).parents[1] / "docs"
THINGS = ["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"]
TEXTS = {f"{thing}{kind}": f"the {thing} is {kind}" for thing in THINGS for kind in ("old", "new", "lost", "blue")}
QUERIES = {name: f"which {text.split()[1]} is {text.split()[3]}" for name, text in TEXTS.items()}
OURS = {
    "BAAI/bge-base-en-v1.5": "./small-encoder",
    "all-MiniLM-L6-v2": "./small-encoder",
    "cross-encoder:BAAI/bge-reranker-v2-m3": "cross-encoder:./small-reranker",
}


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [*TEXTS.values(), *QUERIES.values()]
    for name, make in (("small-encoder", tiny_encoder), ("small-reranker", tiny_cross_encoder)):
        (tmp_path / name).mkdir()
        make(tmp_path / name, texts)
    return tmp_path


def commands(page: str) -> list[list[str]]:
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.M | re.S))
    lines = blocks.replace("\\\n", " ").splitlines()
    return [[OURS.get(word, word) for word in shlex.split(line.removeprefix("$ foils "))] for line in lines]


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def run_all(page: str, capsys: pytest.CaptureFixture[str], count: int) -> None:
    found = commands(page)
    assert len(found) == count
    for words in found:
        assert run(words) == 0, f"{words}: {capsys.readouterr().err}"


def test_from_flagembedding(workplace, capsys):
    records = [{"query": QUERIES[name], "pos": [text], "neg": []} for name, text in TEXTS.items()]
    write(workplace / "toy_finetune_data.jsonl", records)
    run_all("from-flagembedding.md", capsys, 3)
    mined = read(workplace / "toy_finetune_data_minedHN.jsonl")
    assert [each["query"] for each in mined] == [each["query"] for each in records]
    assert {len(each["neg"]) for each in mined} == {15}
    assert all(not {*each["pos"]} & {*each["neg"]} for each in mined)
    taught = read(workplace / "train.jsonl")
    assert [(len(each["pos_scores"]), len(each["neg_scores"])) for each in taught] == [(1, 15)] * len(records)


def test_from_tevatron(workplace, capsys):
    names = list(TEXTS)

    def passage(name):
        return {"docid": name, "title": "", "text": TEXTS[name]}

    def neighbours(name, count):
        start = names.index(name)
        return [names[(start + step) % len(names)] for step in range(1, count + 1)]

    write(
        workplace / "train.jsonl",
        [
            {
                "query_id": f"q-{name}",
                "query": QUERIES[name],
                "positive_passages": [passage(name)],
                "negative_passages": [passage(each) for each in neighbours(name, 2)],
            }
            for name in names
        ],
    )
    ranked = [
        f"q-{name} Q0 {each} {rank} {9 - rank} dense"
        for name in names
        for rank, each in enumerate([name, *neighbours(name, 5)], 1)
    ]
    (workplace / "run.trec").write_text("\n".join(ranked) + "\n")
    run_all("from-tevatron.md", capsys, 3)
    mined = {each["query_id"]: each for each in read(workplace / "train.bm25.jsonl")}
    assert set(mined) == {f"q-{name}" for name in names}
    assert all(each["docid"] != key.removeprefix("q-") for key in mined for each in mined[key]["negative_passages"])
    kept = {
        each["query_id"]: {one["docid"] for one in each["negative_passages"]}
        for each in read(workplace / "train.hn.jsonl")
    }
    assert kept
    assert all(kept[key] <= {*neighbours(key.removeprefix("q-"), 5)} for key in kept)
