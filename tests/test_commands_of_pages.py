"""The commands of pages run one after the other, with small models and a server that answers as a language model."""

import json
import re
import shlex

import numpy as np
import pytest

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import TOP
from llm_server import Reply, serving
from test_docs import ROOT, THINGS, in_consoles, write_pairs
from tiny_models import tiny_cross_encoder, tiny_encoder

TEXTS = {f"{thing}{kind}": f"the {thing} is {kind}" for thing in THINGS for kind in ("old", "new", "lost", "blue")}
QUERIES = {name: f"which {text.split()[1]} is {text.split()[3]}" for name, text in TEXTS.items()}
NAMES = list(TEXTS)
SUBJECTS = ("wind sail boat keel tack", "yeast dough bread flour salt", "bees honey nest queen flower")


def commands(page, **ours):
    """The commands of a page from the verb on; our own names of models and servers in the place of the page's."""
    ours = {"BAAI/bge-base-en-v1.5": "encoder", "all-MiniLM-L6-v2": "encoder", "BAAI/bge-reranker-v2-m3": "cross",
            "answerdotai/ModernBERT-base": "cross", **ours}  # fmt: skip
    for command, _ in in_consoles((ROOT / page).read_text("utf-8")):
        for theirs, own in ours.items():
            command = command.replace(theirs, own)
        yield shlex.split(command, comments=True)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Change to a folder; small models over the words of all texts."""
    monkeypatch.chdir(tmp_path)
    texts = [*TEXTS.values(), *QUERIES.values(), *SUBJECTS]
    for name, make in (("encoder", tiny_encoder), ("cross", tiny_cross_encoder)):
        (tmp_path / name).mkdir()
        make(tmp_path / name, texts)
    return tmp_path


def write(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/quickstart.md", pytest.param("docs/for-agents.md", marks=pytest.mark.slow)]
)
def test_pages_of_pairs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path)
    found = [shlex.split(command, comments=True) for command, _ in in_consoles((ROOT / page).read_text("utf-8"))]
    assert len(found) >= 3
    for words in found:
        assert run(words) == 0, capsys.readouterr().err
    if page == "README.md":
        assert {"bm25", "dense"} <= set(re.findall(r"\w+", (tmp_path / "page.html").read_text("utf-8")))


def test_from_flagembedding(place, capsys):
    records = [{"query": QUERIES[name], "pos": [text], "neg": []} for name, text in TEXTS.items()]
    write(place / "toy_finetune_data.jsonl", records)
    for words in commands("docs/from-flagembedding.md"):
        assert run(words) == 0, capsys.readouterr().err
    mined = read(place / "toy_finetune_data_minedHN.jsonl")
    assert {each["query"] for each in mined} == {each["query"] for each in records}
    assert {len(each["neg"]) for each in mined} == {15}
    assert all(not {*each["pos"]} & {*each["neg"]} for each in mined)
    taught = read(place / "train.jsonl")
    assert [(len(each["pos_scores"]), len(each["neg_scores"])) for each in taught] == [(1, 15)] * len(records)


def passages(*names):
    return [{"docid": name, "title": "", "text": TEXTS[name]} for name in names]


def neighbours(name, count):
    start = NAMES.index(name)
    return [NAMES[(start + step) % len(NAMES)] for step in range(1, count + 1)]


def test_from_tevatron(place, capsys):
    write(place / "train.jsonl", [
        {"query_id": f"q-{name}", "query": QUERIES[name], "positive_passages": passages(name),
         "negative_passages": passages(*neighbours(name, 2))}
        for name in NAMES
    ])  # fmt: skip
    ranked = [(name, at, rank) for name in NAMES for rank, at in enumerate([name, *neighbours(name, 5)], 1)]
    (place / "run.trec").write_text("".join(f"q-{name} Q0 {at} {rank} {9 - rank} m\n" for name, at, rank in ranked))
    for words in commands("docs/from-tevatron.md"):
        assert run(words) == 0, capsys.readouterr().err
    mined, kept = (
        {each["query_id"][2:]: {one["docid"] for one in each["negative_passages"]} for each in read(place / name)}
        for name in ("train.bm25.jsonl", "train.hn.jsonl")
    )
    assert set(mined) == set(NAMES)
    assert all(name not in of for name, of in mined.items())
    assert kept
    assert all(of <= {*neighbours(name, 5)} for name, of in kept.items())


def compares(number, asked):
    """The passage with more words of the query is the better one; which one is shown first matters a little."""
    shown = re.findall(r"^(Query|Passage)[^\n]*:\n(.*?)\n", asked["messages"][0]["content"], re.M)
    queries, (first, second) = ([set(text.split()) for kind, text in shown if kind == k] for k in ("Query", "Passage"))
    lead = len(queries[0] & first) - len(queries[-1] & second)
    return Reply(json.dumps({"preference": float(np.clip(0.55 + 0.15 * lead, 0, 1))}))


def test_a_reranker_without_labels(place, beir_folder, capsys):
    """Documents are two to four words of a subject, queries three; queries of the test alone are judged."""
    words = [subject.split() for subject in SUBJECTS]
    documents = {
        f"d{s}{i}": ("", " ".join(np.roll(of, i)[: 2 + i % 3])) for s, of in enumerate(words) for i in range(5)
    }
    queries = {f"q{s}{i}": " ".join(np.roll(of, i)[:3]) for s, of in enumerate(words) for i in range(5)}
    test = {query: {f"d{query[1:]}": 1} for query in queries if query.endswith("4")}
    beir_folder("questions", documents=documents, queries=queries, qrels={"test": test})
    with serving(compares) as server:
        for words in commands("docs/rerankers.md", **{"http://localhost:8000/v1": server.url, "40000": "48"}):
            assert run(words) == 0, f"{words}: {capsys.readouterr().err}"
            if "--distil" in words:
                asked = len(server.seen)
                assert asked == 2 * 2 * 12, "two judges, both orders, one pair of each query outside the test"
                assert run([*words[: words.index("--distil")], "-o", "again.parquet"]) == 0
                assert len(server.seen) == asked, "nothing is asked twice"
    assert len(server.seen) == asked + 2 * 3 * 12, "both orders, six comparisons of each query with others"
    rated = Negatives.read("rated.parquet")
    assert np.isfinite(rated.kept()["offset"].to_numpy()).sum() == np.isfinite(rated.kept()["elo"].to_numpy()).sum()
    assert set(rated.table["query_id"].take(rated.rejected_for(TOP)).to_pylist()) == set(queries) - set(test)
    counts = json.loads((place / "reranker" / "foils_training.json").read_text())["counts"]
    assert counts["queries without a label, the candidate rated best in the positive's place"] == 12
    systems = json.loads((place / "result.json").read_text())["systems"]
    assert [len(each["per_query"]["nDCG@10"]) for each in systems] == [3, 3]
    assert systems[1]["name"] == "bm25 + reranker"
