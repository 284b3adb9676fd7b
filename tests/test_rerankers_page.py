"""The commands of docs/rerankers.md, one after the other, with small models and a server that answers as a model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import TOP
from llm_server import Reply, serving
from tiny_models import tiny_cross_encoder, tiny_encoder

PAGE = Path(__file__).parents[1] / "docs" / "rerankers.md"
SUBJECTS = ("wind sail boat keel tack", "yeast dough bread flour salt", "bees honey nest queen flower")
SHOWN = re.compile(r"^(Query|Passage)[^\n]*:\n(.*?)\n", re.MULTILINE)


def collection() -> tuple[dict[str, tuple[str, str]], dict[str, str], dict[str, dict[str, dict[str, int]]]]:
    """Documents that are two to four words of a subject, queries of three; those of the test alone are judged."""
    words = [subject.split() for subject in SUBJECTS]
    documents = {f"d{s}{i}": " ".join(np.roll(of, i)[: 2 + i % 3]) for s, of in enumerate(words) for i in range(5)}
    queries = {f"q{s}{i}": " ".join(np.roll(of, i)[:3]) for s, of in enumerate(words) for i in range(5)}
    test = {query: {f"d{query[1:]}": 1} for query in queries if query.endswith("4")}
    return {key: ("", text) for key, text in documents.items()}, queries, {"test": test}


def shared(query: str, passage: str) -> int:
    return len(set(query.split()) & set(passage.split()))


def compares(number: int, asked: dict[str, Any]) -> Reply:
    """The passage with more words of the query is the better one; which one is shown first matters a little."""
    shown = SHOWN.findall(asked["messages"][0]["content"])
    queries, (first, second) = ([text for kind, text in shown if kind == name] for name in ("Query", "Passage"))
    lead = shared(queries[0], first) - shared(queries[-1], second)
    return Reply(json.dumps({"preference": float(np.clip(0.55 + 0.15 * lead, 0, 1))}))


def commands() -> list[list[str]]:
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return [shlex.split(line.removeprefix("$ foils ")) for line in block.splitlines()]


def test_the_commands_of_the_page_make_a_reranker(tmp_path, beir_folder, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    documents, queries, qrels = collection()
    beir_folder("questions", documents=documents, queries=queries, qrels=qrels)
    texts = [*queries.values(), *(text for _, text in documents.values())]
    for name in ("small-encoder", "small-bert"):
        (tmp_path / name).mkdir()
    tiny_encoder(tmp_path / "small-encoder", texts)
    tiny_cross_encoder(tmp_path / "small-bert", texts)
    with serving(compares) as server:
        ours = {
            "BAAI/bge-base-en-v1.5": "./small-encoder",
            "answerdotai/ModernBERT-base": "./small-bert",
            "http://localhost:8000/v1": server.url,
            "40000": "48",  # one pair of each of twelve queries
        }
        for words in commands():
            for theirs, own in ours.items():
                words = [word.replace(theirs, own) for word in words]
            assert run(words) == 0, f"{words}: {capsys.readouterr().err}"
            if "--distil" in words:
                asked = len(server.seen)
                assert asked == 2 * 2 * 12, "two judges, both orders, one pair of each query outside the test"
                again = [*words[: words.index("--distil")], "-o", "again.parquet"]
                assert run(again) == 0
                assert len(server.seen) == asked, "nothing is asked twice"
    rated = Negatives.read(tmp_path / "rated.parquet")
    assert len(server.seen) == asked + 2 * 3 * 12, "both orders, six comparisons of each query with others"
    assert np.isfinite(rated.kept()["offset"].to_numpy()).sum() == np.isfinite(rated.kept()["elo"].to_numpy()).sum()
    best = rated.table["query_id"].take(rated.rejected_for(TOP)).to_pylist()
    assert sorted(best) == sorted(set(queries) - set(qrels["test"]))
    counts = json.loads((tmp_path / "reranker" / "foils_training.json").read_text())["counts"]
    assert counts["queries without a label, the candidate rated best in the positive's place"] == 12
    systems = json.loads((tmp_path / "result.json").read_text())["systems"]
    assert [len(each["per_query"]["nDCG@10"]) for each in systems] == [3, 3]
    assert systems[1]["name"] == "bm25 + reranker"
