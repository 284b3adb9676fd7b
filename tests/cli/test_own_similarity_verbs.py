"""Sparse and multi-vector models through the program: search, evaluate, mine, and score in a cross-encoder's place."""

import json

import numpy as np
import pytest

from foils.data import Run, load_collection
from foils.encode.own_similarity import open_own
from sparse_models import tiny_sparse_and_multi_vector

WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    pytest.importorskip("torch")
    root, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    with (root / "corpus.jsonl").open("w") as out:
        for i in range(30):
            text = " ".join(rng.choice(WORDS, 8))
            out.write(json.dumps({"_id": f"d{i}", "title": "", "text": text}) + "\n")
    with (root / "queries.jsonl").open("w") as out:
        for i in range(6):
            out.write(json.dumps({"_id": f"q{i}", "text": " ".join(rng.choice(WORDS, 3))}) + "\n")
    (root / "qrels").mkdir()
    for split in ("train", "test"):
        lines = [f"q{i}\td{i}\t1" for i in range(6)]
        (root / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    models = tiny_sparse_and_multi_vector(tmp_path_factory.mktemp("models"), WORDS)
    return root, dict(zip(("sparse", "multi-vector"), models, strict=True))


def similarities(world, kind):
    """The similarity of every query with every document, pair by pair."""
    collection = load_collection(world[0])
    model = open_own(world[1][kind])
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
    table = Run.read(run).table
    assert json.loads(result.read_text())["encoder"]["kind"] == kind
    for query, documents in best.items():
        rows = [row for row in table.to_pylist() if row["query_id"] == query]
        assert [row["doc_id"] for row in rows] == documents[:5]
        np.testing.assert_allclose(
            [row["score"] for row in rows], [expected[query][d] for d in documents[:5]], rtol=1e-4
        )

    said = foils(
        "evaluate", folder, "--model", models[kind], "--run", run, "--reranker", models[kind], "--top", 5,
        "--measures", "RR@5", "--write-runs", tmp_path / "runs", "--json", result,
    )  # fmt: skip
    assert said.status == 0, said.err
    systems = json.loads(result.read_text())["systems"]
    assert len({json.dumps(system["per_query"], sort_keys=True) for system in systems}) == 1, "all three ways are one"

    pool = ["--cross-encoder", models[kind], "--pool", "random", "--pool-depth", "30"]
    for way in ([kind, "--encoder", models[kind]], ["cross-encoder", *pool]):
        said = foils(
            "mine", folder, "--with", *way, "--top", 4, "-o", tmp_path / "m.parquet", "--export",
            f"trec={tmp_path / 'm.trec'}", "--max-length", 64,
        )  # fmt: skip
        assert said.status == 0, said.err
        mined = Run.read(tmp_path / "m.trec").table.to_pylist()
        for query, documents in best.items():
            others = [document for document in documents if document != f"d{query[1:]}"]
            assert [row["doc_id"] for row in mined if row["query_id"] == query] == others[:4], way


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (
            "multi-vector",
            ["search", "--model", "MODEL", "--run", "r", "--dimensions", "rdime"],
            "a vector for each token",
        ),
        ("sparse", ["search", "--model", "MODEL", "--run", "r", "--dimensions", "eclipse"], "words"),
        ("sparse", ["search", "--model", "MODEL", "--run", "r", "--index", "flat"], "no effect with a sparse model"),
        ("sparse", ["search", "--model", "MODEL", "--run", "r", "--encoder-args", "storage=float16"], "not kept"),
        ("multi-vector", ["mine", "--with", "dense", "--encoder", "MODEL", "-o", "m"], "no dense vector"),
        ("multi-vector", ["mine", "--with", "sparse", "--encoder", "MODEL", "-o", "m"], "--with multi-vector"),
        ("sparse", ["mine", "--with", "sparse", "--encoder", "MODEL", "--scorer", "encoder", "-o", "m"], "has none"),
        ("sparse", ["train", "SOURCE", "--model", "MODEL", "-o", "m"], "no dense vector"),
    ],
)
def test_what_has_no_meaning_is_refused(foils, world, tmp_path, kind, arguments, said):
    source = tmp_path / "s.trec"
    source.write_text("q0 Q0 d9 1 1.0 s\n")
    files = {"MODEL": str(world[1][kind]), "SOURCE": str(source)}
    verb, *rest = (files.get(each, each) for each in arguments)
    ended = foils(verb, world[0], *rest)
    assert ended.status == 2, ended.err
    assert said in ended.err
