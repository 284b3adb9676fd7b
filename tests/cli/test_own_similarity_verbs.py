"""Sparse and multi-vector models through the program: search, evaluate, mine, and score in a cross-encoder's place."""

import json
import shlex

import numpy as np
import pytest

from foils.data import Negatives, Run, load_collection
from foils.encode.cross_encoders import open_own
from tiny_models import tiny_sparse_and_multi_vector

WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture(scope="module")
def world(tmp_path_factory, write_beir):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    documents = {f"d{i}": ("", " ".join(rng.choice(WORDS, 8))) for i in range(30)}
    queries = {f"q{i}": " ".join(rng.choice(WORDS, 3)) for i in range(6)}
    judged = {f"q{i}": {f"d{i}": 1} for i in range(6)}
    qrels = {"train": judged, "test": judged}
    root = write_beir(tmp_path_factory.mktemp("world") / "own", documents=documents, queries=queries, qrels=qrels)
    models = tiny_sparse_and_multi_vector(tmp_path_factory.mktemp("models"), WORDS)
    return root, dict(zip(("sparse", "multi-vector"), models, strict=True))


def similarities(world, kind):
    """The similarity of every query with every document, pair by pair."""
    collection, model = load_collection(world[0]), open_own(world[1][kind])
    texts = collection.document_texts(range(30))
    return {
        f"q{i}": {f"d{j}": float(model.predict([(query, texts[j])])[0]) for j in range(30)}
        for i, query in enumerate(collection.query_texts(range(6)))
    }


@pytest.mark.parametrize("kind", ["sparse", "multi-vector"])
def test_search_evaluate_mine_and_rerank_agree_with_pairs_scored_one_by_one(foils, world, tmp_path, kind):
    (folder, models), expected = world, similarities(world, kind)
    best = {query: sorted(of, key=lambda document: -of[document]) for query, of in expected.items()}
    run, result = tmp_path / "own.trec", tmp_path / "own.json"
    said = foils("search", folder, "--model", models[kind], "--run", run, "--top", 5, "--json", result)
    assert said.status == 0, said.err
    assert f"{kind} search of" in said.out
    assert json.loads(result.read_text())["encoder"]["kind"] == kind
    table = Run.read(run).table.to_pylist()
    for query, documents in best.items():
        rows = [row for row in table if row["query_id"] == query]
        assert [row["doc_id"] for row in rows] == documents[:5]
        own = [expected[query][document] for document in documents[:5]]
        np.testing.assert_allclose([row["score"] for row in rows], own, rtol=1e-4)

    said = foils(
        "evaluate", folder, "--model", models[kind], "--run", run, "--reranker", models[kind], "--top", 5,
        "--measures", "RR@5", "--json", result,
    )  # fmt: skip
    assert said.status == 0, said.err
    systems = json.loads(result.read_text())["systems"]
    assert len({json.dumps(system["per_query"], sort_keys=True) for system in systems}) == 1, "all three ways are one"

    pool = ["--cross-encoder", models[kind], "--pool", "random", "--pool-depth", "30"]
    for way in ([kind, "--encoder", models[kind]], ["cross-encoder", *pool]):
        written = ["-o", tmp_path / "m.parquet", "--max-length", 64]
        said = foils("mine", folder, "--with", *way, "--top", 4, *written)
        assert said.status == 0, said.err
        mined = Negatives.read(tmp_path / "m.parquet").kept().to_pylist()
        for query, documents in best.items():
            others = [document for document in documents if document != f"d{query[1:]}"]
            assert [row["doc_id"] for row in mined if row["query_id"] == query] == others[:4], way


@pytest.mark.parametrize(("command", "said"), [
    ("search FOLDER --model multi-vector --run r --dimensions rdime", "no one dense vector"),
    ("search FOLDER --model sparse --run r --index flat", "no effect with a sparse model"),
    ("mine FOLDER --with dense --encoder multi-vector -o m", "no dense vector"),
    ("mine FOLDER --with sparse --encoder multi-vector -o m", "--with multi-vector"),
    ("mine FOLDER --with sparse --encoder sparse --scorer encoder -o m", "has none"),
    ("train FOLDER SOURCE --model sparse -o m", "no dense vector"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(foils, world, tmp_path, monkeypatch, command, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.trec").write_text("q0 Q0 d9 1 1.0 s\n")
    places = {"FOLDER": world[0], "SOURCE": "s.trec", **world[1]}
    words = shlex.split(command)
    kept = [words[at] if words[at - 1] == "--with" else places.get(words[at], words[at]) for at in range(len(words))]
    ended = foils(*kept)
    assert ended.status == 2, ended.err
    assert said in ended.err
